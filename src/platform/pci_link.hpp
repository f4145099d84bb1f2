// SPDX-License-Identifier: Apache-2.0
// What lies between a PCI device and its root port: the bridges, and PCIe links with how fast each runs now.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/topology.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

// Indexes into Topology::pci of a device and the bridges above it, the topmost last. Parents stand before their children, so a
// chain that does not is cut.
std::vector<int> way_up(const Topology& topology, int pci);
// The lowest bridge above both; -1: none.
int common_bridge(const Topology& topology, int first, int second);

struct PcieLink {
  double gt_per_s = 0;  // per lane: 2.5, 5, 8, 16, 32 or 64
  unsigned width = 0;   // lanes

  // Each way, after line coding: 8b/10b to 5 GT/s, 128b/130b to 32 GT/s, 242 of the 256 bytes of a FLIT at 64 GT/s.
  // Source: PCI Express Base Specification 6.0, sections 4.2.1 to 4.2.3.
  double gb_per_s() const noexcept;
  std::string name() const;  // "PCIe 5.0 x16"
};

// What has no such generation, or no width from 1 to 32 lanes (0 and 255 mean "not known"), is no link.
std::optional<PcieLink> pcie_link_of_speed(double gt_per_s, unsigned width) noexcept;
std::optional<PcieLink> pcie_link_of_generation(unsigned generation, unsigned width) noexcept;

// GT/s of "32.0 GT/s PCIe" and lanes of "16", as sysfs tells of a link; 0 for other text, and for what the kernel does not know
// ("Unknown", 0, 255).
double link_speed_in(std::string_view text);
unsigned link_lanes_in(std::string_view text);

// One device on the way to the root port, and the link it tells of: an endpoint or a switch's upper port the one above, other ports
// the one below. Both ends of a link are hops.
struct PcieHop {
  std::string device;  // "0000:3b:00.0"
  std::optional<PcieLink> link;
  std::string source;  // "sysfs", "NVML"; empty without a link
};

// From the device up to its root port; only the device when sysfs does not know it. The device's own link is asked of NVML when
// sysfs does not tell it. An idle GPU lowers its link's speed: ask while it works. Threads: any. Cost: two small files per hop.
// Source: kernel, Documentation/ABI/testing/sysfs-bus-pci, current_link_speed and current_link_width.
std::vector<PcieHop> pcie_path(const PciAddress& address);

// What lies between two devices: the hops of both paths that are not on the other one, the first's before the second's.
std::vector<PcieHop> pcie_path_between(const std::vector<PcieHop>& first, const std::vector<PcieHop>& second);

}  // namespace gigabar::inline v0
