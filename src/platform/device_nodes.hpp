// SPDX-License-Identifier: Apache-2.0
// The device nodes of GPUs and RDMA adapters, and the drivers that they should lead to. A node is a name with a number; the kernel
// looks at the number alone, so a node that was made for another run of the machine opens another driver's device, or none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

// What the kernel says of the driver that a node is named for.
struct NodeDriver {
  std::string name;                    // in /proc/devices: "nvidia-uvm"; of a miscellaneous device its own: "rdma_cm"
  bool is_told = false;                // the kernel's lists could be read
  std::vector<std::uint32_t> majors;   // that the driver has; empty: none, it is not loaded
  std::optional<std::uint32_t> minor;  // that this node should have; nothing: not told
};

// Nothing: the node is of no driver that is known here, or is none of those that may be opened to look at them.
std::optional<NodeDriver> driver_of_node(const SystemFiles& files, const std::string& path);

// Whether the numbers of a device are those of its driver; what is not told does not count against it.
bool is_number_of(const NodeDriver& driver, const NodeFacts& facts);

// What open(2) for reading and writing answers on this machine: 0, or errno. Nothing: it is not tried, since the node may not be
// opened by its permission bits, or has not, for certain, the number of its driver: opening a device can change it (a watchdog
// starts).
std::optional<int> try_to_open(const std::string& path, const NodeFacts& facts, const std::optional<NodeDriver>& driver);

// The name in /proc/devices of whom a major number of character devices belongs to; empty: nobody.
std::string owner_of_major(const SystemFiles& files, std::uint32_t major);

}  // namespace gigabar::inline v0
