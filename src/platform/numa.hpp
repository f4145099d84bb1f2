// NUMA nodes: of devices, of pages, and how pages are bound to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/status.hpp"

namespace gigabar {

// The node of a PCI device; -1 when the machine does not say.
int numa_node_of_device(const PciAddress& address);

// The node that the page holding `address` is on now, asked of the kernel (move_pages); -1 when it is not present, not this
// process's, or the kernel has no NUMA.
int numa_node_of_page(std::uintptr_t address);

// Nodes with memory, ascending; empty on a kernel without NUMA.
std::vector<int> numa_nodes();

// Binds (does not prefer) the pages of a range that are not present yet to `node`. Errors: invalid_argument (no such node; the
// cause lists those that are), no_permission.
Outcome bind_to_numa_node(void* address, std::size_t bytes, int node);

}  // namespace gigabar
