// SPDX-License-Identifier: Apache-2.0
// NUMA nodes: of devices, of pages, what they have left, and how pages are bound to one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

inline constexpr int kMaxNumaNodes = 1024;  // what Linux can be built for at most (CONFIG_NODES_SHIFT 10)
using NumaNodeMask = std::array<unsigned long, static_cast<std::size_t>(kMaxNumaNodes) / (8 * sizeof(unsigned long))>;

// The node of a PCI device; -1 when the machine does not say.
int numa_node_of_device(const PciAddress& address);
// Of an RDMA device by its name, "mlx5_0"; -1 for software devices too.
int numa_node_of_rdma_device(std::string_view name);

// The node that the page holding `address` is on now, asked of the kernel (move_pages); -1 when it is not present, not this
// process's, or the kernel has no NUMA.
int numa_node_of_page(std::uintptr_t address);

// Where the pages of a range are.
struct PagePlacement {
  std::map<int, std::size_t> pages_by_node;
  std::size_t unknown_pages = 0;  // asked about, but not present, not movable, or the kernel has no NUMA
  std::size_t asked_pages = 0;    // the sum of the above: every page, or of very large ranges evenly spread ones
  std::size_t total_pages = 0;
};

// Asks the kernel (move_pages) where the pages of `page_bytes` (0: the system's page size) that hold [address, address + bytes) are
// now. Of more than 262144 pages (1 GiB of 4 KiB pages) every k-th is asked, with the smallest k that stays within that number.
// Threads: any. Cost: about 0.1 µs per page.
PagePlacement placement_of_pages(const void* address, std::size_t bytes, std::size_t page_bytes = 0);

// Nodes with memory, ascending; empty on a kernel without NUMA.
std::vector<int> numa_nodes();

// The CPUs of a node, ascending; empty when there is no such node, or it has memory only.
std::vector<int> cpus_of_numa_node(int node);

// What can still be allocated on a node without the kernel having to kill a process: free pages and what can be taken back from
// caches of files and the kernel, less what the kernel keeps for itself. Nothing when the machine does not say.
// Source: kernel, Documentation/filesystems/proc.rst (meminfo, zoneinfo); calculated as MemAvailable is (mm/show_mem.c).
std::optional<std::uint64_t> free_bytes_of_numa_node(int node);

// Errors: invalid_argument: no such node; the cause lists those that are.
Result<void> check_numa_node(int node);

// Binds (does not prefer) the pages of a range that are not present yet to `node`. Errors: invalid_argument (no such node; the
// cause lists those that are), no_permission.
Result<void> bind_to_numa_node(void* address, std::size_t bytes, int node);
// The same as a wish: pages for which the node has no room come from others.
Result<void> prefer_numa_node(void* address, std::size_t bytes, int node);

// While it lives, the kernel takes new pages for this thread from one node; the thread's policy before comes back at the end.
// For memory that somebody else allocates on this thread. Made and destroyed on the same thread.
class NumaAllocationPolicy {
 public:
  // Errors: as bind_to_numa_node.
  static Result<NumaAllocationPolicy> bind(int node);
  // The same as a wish.
  static Result<NumaAllocationPolicy> prefer(int node);

  NumaAllocationPolicy(NumaAllocationPolicy&& other) noexcept
      : is_changed_(std::exchange(other.is_changed_, false)), old_mode_(other.old_mode_), old_nodes_(other.old_nodes_) {}
  NumaAllocationPolicy& operator=(NumaAllocationPolicy&&) = delete;
  ~NumaAllocationPolicy();

 private:
  NumaAllocationPolicy() = default;
  static Result<NumaAllocationPolicy> take(int node, int mode);
  bool is_changed_ = false;
  int old_mode_ = 0;
  NumaNodeMask old_nodes_{};
};

}  // namespace gigabar::inline v0
