// SPDX-License-Identifier: Apache-2.0
// libhwloc.so.15, opened at run time: what the PCI ids call the devices of this machine.
#pragma once

#include <string>
#include <vector>

#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::hwloc {

struct PciName {
  PciAddress address;
  std::string name;  // "vendor device"; empty when the library was built without the PCI ids
};

// ok when the library was opened and has what is needed. Threads: any; the first call opens it.
const Availability& availability();

// Of this machine's devices and bridges; none where the library cannot be used. Threads: any. Cost: tens of milliseconds.
std::vector<PciName> pci_names();

}  // namespace gigabar::hwloc
