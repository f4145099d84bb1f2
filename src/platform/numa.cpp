// SPDX-License-Identifier: Apache-2.0
#include "platform/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "platform/cpu_set.hpp"
#include "platform/host_memory.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

// The kernel leaves out the last bit of a mask: get_nodes() in mm/mempolicy.c.
constexpr unsigned long kMaskBits = static_cast<unsigned long>(kMaxNumaNodes) + 1;

// Of a file of one line, as "0-3,8".
std::vector<int> numbers_in_file(const std::string& path, std::size_t end) {
  return parse_number_list(word_in_file(path), end).numbers;
}

std::string node_file(int node, const char* name) {
  return text(platform_roots().sys, "/devices/system/node/node", node, "/", name);
}

NumaNodeMask mask_of(int node) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  NumaNodeMask mask{};
  mask[static_cast<std::size_t>(node) / kBits] |= 1UL << (static_cast<std::size_t>(node) % kBits);
  return mask;
}

// "-1" is no number of a node.
int node_in_file(const std::string& path) {
  const auto node = number_in_file(path);
  return node && *node < kMaxNumaNodes ? static_cast<int>(*node) : -1;
}

Error refused(const char* operation, int node, const char* call, int code) {
  return make_errno_error(code, operation, text("NUMA node ", node), call);
}

Result<void> place_pages(void* address, std::size_t bytes, int node, int mode) {
  if (Result<void> exists = check_numa_node(node); !exists) return exists;
  const NumaNodeMask mask = mask_of(node);
  if (::syscall(SYS_mbind, address, bytes, mode, mask.data(), kMaskBits, 0UL) != 0)
    return refused("bind memory", node, "mbind", errno);
  return {};
}

std::size_t system_page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::uint64_t number_in(std::string_view word) { return parse_number(word, 0, UINT64_MAX).value_or(0); }

// The largest number of a zone's "protection: (0, 1943, 31990)".
std::uint64_t largest_in(std::string_view list) {
  std::uint64_t largest = 0;
  for (const std::string_view number : words_of(list, " (),")) largest = std::max(largest, number_in(number));
  return largest;
}

// Pages that the kernel does not give to programs: as calculate_totalreserve_pages() in mm/page_alloc.c, of one node.
std::uint64_t reserved_pages_of_node(const std::string& zones, int node) {
  const std::string ours = text("Node ", node, ", zone");
  bool is_ours = false;
  std::uint64_t reserved = 0, high = 0, managed = 0;
  for (const std::string_view line : words_of(zones, "\n")) {
    if (line.starts_with("Node ")) is_ours = line.starts_with(ours);
    if (!is_ours) continue;
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() < 2) continue;
    if (words[0] == "high") high = number_in(words[1]);  // comes first of a zone
    if (words[0] == "managed") managed = number_in(words[1]);
    if (words[0] == "protection:") {  // comes last
      reserved += std::min(high + largest_in(line), managed);
      high = managed = 0;
    }
  }
  return reserved;
}

}  // namespace

int numa_node_of_device(const PciAddress& address) {
  return node_in_file(platform_roots().sys + "/bus/pci/devices/" + address.to_string() + "/numa_node");
}

int numa_node_of_rdma_device(std::string_view name) {
  return node_in_file(text(platform_roots().sys, "/class/infiniband/", name, "/device/numa_node"));
}

int numa_node_of_page(std::uintptr_t address) {
  void* page = reinterpret_cast<void*>(address);
  int node = -1;
  if (::syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &node, 0) != 0) return -1;
  return std::max(node, -1);  // negative values are errnos of this page
}

PagePlacement placement_of_pages(const void* address, std::size_t bytes, std::size_t page_bytes) {
  constexpr std::size_t kMaxAsked = std::size_t{1} << 18;
  constexpr std::size_t kBatch = 512;
  PagePlacement placement;
  if (bytes == 0) return placement;
  if (page_bytes == 0) page_bytes = system_page_bytes();
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(address) / page_bytes * page_bytes;
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(address) + bytes - 1;
  placement.total_pages = (last - first) / page_bytes + 1;
  const std::size_t step = (placement.total_pages + kMaxAsked - 1) / kMaxAsked;
  std::array<void*, kBatch> pages{};
  std::array<int, kBatch> nodes{};
  for (std::size_t index = 0; index < placement.total_pages;) {
    std::size_t count = 0;
    for (; count < kBatch && index < placement.total_pages; ++count, index += step) {
      pages[count] = reinterpret_cast<void*>(first + index * page_bytes);
    }
    nodes.fill(-1);
    const bool is_told = ::syscall(SYS_move_pages, 0, count, pages.data(), nullptr, nodes.data(), 0) == 0;
    placement.asked_pages += count;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_told && nodes[i] >= 0) {
        ++placement.pages_by_node[nodes[i]];
      } else {
        ++placement.unknown_pages;
      }
    }
  }
  return placement;
}

std::vector<int> numa_nodes() { return numbers_in_file(platform_roots().sys + "/devices/system/node/has_memory", kMaxNumaNodes); }

std::vector<int> cpus_of_numa_node(int node) {
  return node < 0 ? std::vector<int>{} : numbers_in_file(node_file(node, "cpulist"), kMaxCpus);
}

std::optional<std::uint64_t> free_bytes_of_numa_node(int node) {
  const auto content = node < 0 ? std::nullopt : read_small_file(node_file(node, "meminfo"));
  const auto free = content ? number_behind(*content, "MemFree") : std::nullopt;
  if (!free) return {};
  // The lists of file pages that can be reclaimed hold neither shared memory nor what is locked, which FilePages counts too.
  std::uint64_t bytes = *free;
  for (const char* key : {"Active(file)", "Inactive(file)", "SReclaimable"}) bytes += number_behind(*content, key).value_or(0);
  const std::string zones = read_small_file(platform_roots().proc + "/zoneinfo", 16 << 20).value_or("");
  return bytes - std::min(bytes, reserved_pages_of_node(zones, node) * system_page_bytes());
}

Result<void> check_numa_node(int node) {
  const std::vector<int> nodes = numa_nodes();
  if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return {};
  return make_error(
      Status::invalid_argument, "bind memory", text("NUMA node ", node),
      nodes.empty() ? std::string("this machine has no NUMA") : "this machine's nodes with memory are " + joined(nodes),
      "use one of them, or -1 for the system's choice");
}

Result<void> bind_to_numa_node(void* address, std::size_t bytes, int node) { return place_pages(address, bytes, node, MPOL_BIND); }
Result<void> prefer_numa_node(void* address, std::size_t bytes, int node) {
  return place_pages(address, bytes, node, MPOL_PREFERRED);
}

Result<NumaAllocationPolicy> NumaAllocationPolicy::bind(int node) { return take(node, MPOL_BIND); }
Result<NumaAllocationPolicy> NumaAllocationPolicy::prefer(int node) { return take(node, MPOL_PREFERRED); }

Result<NumaAllocationPolicy> NumaAllocationPolicy::take(int node, int mode) {
  if (Result<void> exists = check_numa_node(node); !exists) return std::move(exists).error();
  NumaAllocationPolicy policy;
  if (::syscall(SYS_get_mempolicy, &policy.old_mode_, policy.old_nodes_.data(), kMaskBits, nullptr, 0UL) != 0)
    return refused("bind allocations", node, "get_mempolicy", errno);
  const NumaNodeMask mask = mask_of(node);
  if (::syscall(SYS_set_mempolicy, mode, mask.data(), kMaskBits) != 0)
    return refused("bind allocations", node, "set_mempolicy", errno);
  policy.is_changed_ = true;
  return policy;
}

NumaAllocationPolicy::~NumaAllocationPolicy() {
  if (!is_changed_) return;
  // The default policy must come without nodes.
  const bool has_nodes = std::any_of(old_nodes_.begin(), old_nodes_.end(), [](unsigned long part) { return part != 0; });
  if (::syscall(SYS_set_mempolicy, old_mode_, has_nodes ? old_nodes_.data() : nullptr, has_nodes ? kMaskBits : 0UL) != 0) {
    quietly([] {
      log(LogLevel::warning, text("bind allocations: the thread's memory policy could not be restored: ", std::strerror(errno)));
    });
  }
}

}  // namespace gigabar::inline v0
