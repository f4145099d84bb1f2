// SPDX-License-Identifier: Apache-2.0
// libhwloc.so.15, opened at run time: the machine's PCI devices, NUMA nodes and packages, of this machine or of a copy of its
// files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::hwloc {

struct PciObject {
  PciAddress address;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t class_code = 0;  // base class and subclass
  bool is_bridge = false;
  std::string name;  // "vendor device" from the PCI ids; empty when the library was built without them
};

struct NumaObject {
  unsigned os_index = 0;
  std::vector<int> cpus;  // near it: a node without CPUs of its own has those of the part of the machine that it hangs on
  std::uint64_t memory_bytes = 0;
  int package = -1;  // number of the package that it belongs to; -1: of none, or of several
};

struct Discovery {
  std::vector<PciObject> pci;
  std::vector<NumaObject> numa_nodes;
};

// ok when the library was opened and has what is needed. Threads: any; the first call opens it.
const Availability& availability();

// Reads the machine whose files lie below `root`, which messages call `name`. "/" is this machine and is read in this process. Any
// other folder is read in a forked child that is limited in time, memory and output, because the library trusts what it reads.
// CPUs that a container does not allow are part of the machine too.
// Errors: not_supported (the library cannot be used, or finds no machine there), bad_file (the child crashed, hung, or wrote too
// much), out_of_descriptors, out_of_memory. Threads: any. Cost: tens of milliseconds; a child at most 20 s.
// Source: hwloc 2.8 documentation, "Environment Variables" and "Topology building".
Result<Discovery> discover(const std::string& root, const std::string& name);

// What the child wrote, for tests: it is not trusted either. Errors: bad_file, not_supported (it found no machine).
Result<Discovery> parse_output(std::string_view output, const std::string& name);

}  // namespace gigabar::hwloc
