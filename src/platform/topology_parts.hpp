// SPDX-License-Identifier: Apache-2.0
// The parts of discover_topology: each reads one kind of thing from the machine's files, bounded whatever they say.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/topology.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_files.hpp"

namespace gigabar::topology_parts {

// Orders PCI addresses as their text does.
inline std::uint64_t key_of(const PciAddress& address) {
  return (std::uint64_t{address.domain} << 24) | (std::uint64_t{address.bus} << 16) | (std::uint64_t{address.device} << 8) |
         address.function;
}

// Indexes of Topology::pci or gpus by key_of(address): machines have thousands of devices.
using PciIndex = std::map<std::uint64_t, int>;
template <class Device>
PciIndex index_of(const std::vector<Device>& devices) {
  PciIndex index;
  for (const Device& device : devices) index.emplace(key_of(device.address), static_cast<int>(&device - devices.data()));
  return index;
}
int find_in(const PciIndex& index, const PciAddress& address);  // -1: none

// What the parts are made from.
struct Sources {
  const SystemFiles& files;
  const DriverAnswers& answers;
  std::vector<std::string>& notes;  // remarks on what could not be found out
};

// Names in a folder, with a note when it cannot be listed.
std::vector<std::string> names_in(const Sources& from, const std::string& folder);

std::vector<Nic> read_nics(const Sources& from, const std::vector<PciNode>& pci);
std::vector<Gpu> read_gpus(const Sources& from, const std::vector<PciNode>& pci);
std::vector<NvLinkBond> read_nvlinks(const Sources& from, const std::vector<PciNode>& pci, const std::vector<Gpu>& gpus);

// The number at the start of "32.0 GT/s PCIe" or "400 Gb/sec (4X NDR)"; 0 when there is none from 0 to `most`.
double leading_number(std::string_view text, double most);

}  // namespace gigabar::topology_parts
