// SPDX-License-Identifier: Apache-2.0
#include "memory/host_pages.hpp"

#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/log.hpp"
#include "platform/host_memory.hpp"
#include "platform/numa.hpp"
#include "platform/roots.hpp"

// The kernel's library has the name since glibc 2.37. Source: madvise(2).
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace gigabar::inline v0 {
namespace {

constexpr const char* kOperation = "allocate host memory";
constexpr const char* kReservedPages = "/hugepages/hugepages-2048kB/";

std::string gib_text(std::uint64_t bytes) {
  char line[48];
  const double gib = static_cast<double>(bytes) / static_cast<double>(1 << 30);
  std::snprintf(line, sizeof line, gib < 0.1 ? "%.5f GiB" : "%.1f GiB", gib);
  return line;
}

Error no_room(std::size_t bytes, const std::string& who, std::uint64_t left_bytes, std::string remedy) {
  return make_error(
      Status::out_of_memory, kOperation, counted(bytes, "byte"),
      text(gib_text(bytes), " and 1/64 of that to manage it are asked for, ", who, " has ", gib_text(left_bytes), " left"),
      std::move(remedy));
}

Error system_error(std::size_t bytes, const char* what, int code, std::string remedy) {
  return make_error(code == EPERM || code == EACCES ? Status::no_permission : Status::out_of_memory, kOperation,
                    counted(bytes, "byte"), text(what, ": ", std::strerror(code)), std::move(remedy), errno_code(code));
}

// Brings the pages, where their binding says; 0 or an errno. A full node or an empty pool is then an error, not a signal.
int populate(std::byte* address, std::size_t bytes) { return ::madvise(address, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno; }

// Of a memory file: huge pages where the kernel has them. A piece with one page becomes a huge one of that page's node, zeroed at
// once; populating first would bring 512 pages, and copy them.
void take_huge_pages(std::byte* address, std::size_t bytes) {
  for (std::size_t at = 0; at + kHugePageBytes <= bytes; at += kHugePageBytes) {
    if (populate(address + at, host_page_bytes()) != 0) return;  // told when all pages are populated
  }
  if (bytes >= kHugePageBytes) ::madvise(address, bytes, MADV_COLLAPSE);
}

// The same of fresh pages, also before Linux 5.14.
int populate_or_touch(std::byte* address, std::size_t bytes, Backing backing = Backing::none) {
  if (backing == Backing::file) take_huge_pages(address, bytes);
  const int code = populate(address, bytes);
  if (code != EINVAL) return code;
  for (std::size_t at = 0; at < bytes; at += host_page_bytes()) static_cast<volatile std::byte*>(address)[at] = std::byte{0};
  return 0;
}

// Brings fresh pages, all of the node where one is asked for. `asked_bytes`: what an error names.
Result<void> fill(std::byte* address, std::size_t bytes, int numa_node, Backing backing, std::size_t asked_bytes) {
  if (numa_node >= 0) {
    if (Result<void> bound = bind_to_numa_node(address, bytes, numa_node); !bound) return bound;
  }
  const int code = populate_or_touch(address, bytes, backing);
  if (code == 0) return {};
  return system_error(asked_bytes, "populating pages", code, "ask for less, or another NUMA node");
}

// Of the machine, or of a node.
std::uint64_t reserved_pages(const char* name, int numa_node = -1) {
  const std::string folder = numa_node < 0 ? "/kernel/mm" : text("/devices/system/node/node", numa_node);
  return number_in_file(text(platform_roots().sys, folder, kReservedPages, name)).value_or(0);
}

// Free reserved pages that nobody has been promised, on the node when one is asked for.
std::uint64_t free_reserved_pages(int numa_node) {
  const std::uint64_t free = reserved_pages("free_hugepages");
  const std::uint64_t count = free - std::min(reserved_pages("resv_hugepages"), free);
  return numa_node < 0 ? count : std::min(count, reserved_pages("free_hugepages", numa_node));
}

Error no_huge_pages(std::size_t bytes, const std::string& cause, int numa_node) {
  const std::uint64_t missing =
      bytes / kHugePageBytes - std::min<std::uint64_t>(free_reserved_pages(numa_node), bytes / kHugePageBytes);
  const std::string node = numa_node < 0 ? "" : text(" on node ", numa_node);
  return make_error(
      Status::out_of_memory, kOperation, text(counted(bytes, "byte"), " on huge pages"), cause,
      text("reserve ", missing, " more huge pages", node, " (sysctl vm.nr_hugepages=", reserved_pages("nr_hugepages") + missing,
           "), or write madvise to /sys/kernel/mm/transparent_hugepage/enabled"));
}

}  // namespace

std::size_t host_page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

Result<void> check_room(std::size_t bytes, int numa_node) {
  const std::uint64_t needed = bytes + bytes / 64;
  // The only node has what the machine has; kernels that bring up memory as it is needed count it for the machine only.
  if (numa_node >= 0 && numa_nodes().size() > 1) {
    const auto left = free_bytes_of_numa_node(numa_node);
    if (left && needed > *left)
      return no_room(bytes, text("NUMA node ", numa_node), *left, "ask for less, use another node, or free memory of this one");
  }
  const AvailableHostMemory available = available_host_memory();
  if (needed <= available.bytes) return {};
  return no_room(bytes, available.limited_by, available.bytes, "ask for less, free memory, or raise the control group's limit");
}

void bring_pages(std::byte* address, std::size_t bytes, int numa_node, Backing backing) {
  // Why it cannot be was logged as it was found.
  const bool is_placed = numa_node >= 0 && prefer_numa_node(address, bytes, numa_node).is_ok();
  if (numa_node >= 0 && !is_placed)
    log(LogLevel::info, text(counted(bytes, "byte"), " are taken from any NUMA node, not from node ", numa_node));
  (void)populate_or_touch(address, bytes, backing);
  if (!is_placed) return;
  const PagePlacement placement = placement_of_pages(address, bytes);
  std::size_t far_pages = 0;
  for (const auto& [node, pages] : placement.pages_by_node) far_pages += node == numa_node ? 0 : pages;
  if (far_pages == 0) return;
  log(LogLevel::info, text(far_pages, " of ", counted(placement.asked_pages, "page"), " came from other NUMA nodes: node ",
                           numa_node, " had no room for them"));
}

Descriptor open_memory_file(const char* name, std::size_t bytes) noexcept {
  Descriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.is_open() && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    return file;
  const int code = errno;
  file = Descriptor();
  errno = code;
  return file;
}

Result<std::shared_ptr<const Descriptor>> make_memory_file(const char* name, std::size_t bytes) {
  Descriptor file = open_memory_file(name, bytes);
  if (!file.is_open()) {
    const int code = errno;
    return make_errno_error(code, kOperation, counted(bytes, "byte"), "no memory file",
                            "raise the descriptor limit (ulimit -n), or do not share it", Status::out_of_memory);
  }
  return std::make_shared<const Descriptor>(std::move(file));
}

void UnmapPages::operator()(void* address) const noexcept {
  if (process == ::getpid()) ::munmap(address, bytes);
}

Result<PageMapping> PageMapping::make(std::size_t bytes, int numa_node, NodePolicy policy, int file) {
  const std::size_t whole_bytes = round_up(bytes, host_page_bytes());
  if (Result<void> room = check_room(whole_bytes, policy == NodePolicy::bind ? numa_node : -1); !room)
    return std::move(room).error();
  auto mapped = file < 0 ? map_anonymous(whole_bytes) : map_file(file, 0, whole_bytes);
  if (!mapped) return mapped;
  const Backing backing = file < 0 ? Backing::none : Backing::file;
  if (policy == NodePolicy::prefer) {
    bring_pages(mapped->address_, whole_bytes, numa_node, backing);
  } else {
    if (Result<void> filled = fill(mapped->address_, whole_bytes, numa_node, backing, bytes); !filled)
      return std::move(filled).error();
  }
  return mapped;
}

Result<PageMapping> PageMapping::map_anonymous(std::size_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return system_error(bytes, "mmap", errno, "ask for less");
  return PageMapping(address, bytes, address, bytes);
}

Result<PageMapping> PageMapping::map_file(int file, std::uint64_t offset_bytes, std::size_t bytes) {
  auto taken = take_address_space(bytes);
  if (!taken) return taken;
  const auto offset = static_cast<off_t>(offset_bytes);
  if (::mmap(taken->address_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, offset) == MAP_FAILED)
    return system_error(bytes, "mmap of a memory file", errno, "ask for less");
  ::madvise(taken->taken_.get(), taken->taken_.get_deleter().bytes, MADV_DONTFORK);
  return taken;
}

Result<PageMapping> PageMapping::make_huge(std::size_t bytes, int numa_node) {
  const std::size_t whole_bytes = whole_huge_pages(bytes);
  // Reserved pages are taken already: they are not part of what the machine has left.
  if (free_reserved_pages(numa_node) >= whole_bytes / kHugePageBytes) {
    auto reserved = make_reserved(whole_bytes, numa_node);
    if (reserved) return reserved;
  }
  return make_transparent(whole_bytes, numa_node);
}

Result<PageMapping> PageMapping::make_reserved(std::size_t bytes, int numa_node) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
  if (address == MAP_FAILED) return system_error(bytes, "mmap of reserved huge pages", errno, "reserve more of them");
  PageMapping mapping(address, bytes, address, bytes);
  if (numa_node >= 0) {
    if (Result<void> bound = bind_to_numa_node(address, bytes, numa_node); !bound) return std::move(bound).error();
  }
  if (const int code = populate(mapping.address_, bytes); code != 0)
    return system_error(bytes, "populating reserved huge pages", code, "reserve more of them");
  return mapping;
}

Result<PageMapping> PageMapping::make_transparent(std::size_t bytes, int numa_node) {
  if (Result<void> room = check_room(bytes, numa_node); !room) return std::move(room).error();
  auto mapping = take_address_space(bytes);
  if (!mapping) return mapping;
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping->address_);
  if (::mprotect(mapping->address_, bytes, PROT_READ | PROT_WRITE) != 0)
    return system_error(bytes, "mprotect", errno, "ask for less");
  if (::madvise(mapping->address_, bytes, MADV_HUGEPAGE) != 0)
    return no_huge_pages(bytes, "this kernel has no transparent huge pages", numa_node);
  if (Result<void> filled = fill(mapping->address_, bytes, numa_node, Backing::none, bytes); !filled)
    return std::move(filled).error();
  const auto smaps = read_small_file(platform_roots().proc + "/self/smaps", std::size_t{256} << 20);
  const auto huge = smaps ? huge_bytes_in(*smaps, begin, bytes) : std::nullopt;
  if (!huge) return no_huge_pages(bytes, "the kernel does not tell whether the pages are huge (/proc/self/smaps)", numa_node);
  if (*huge < bytes / 10 * 9)
    return no_huge_pages(bytes, text("only ", gib_text(*huge), " of ", gib_text(bytes), " came on huge pages"), numa_node);
  return mapping;
}

// Of which nothing can be touched yet, at the beginning of a huge page. A page that never can stays at either end: the mapping does
// not grow together with a neighbour, so what the kernel tells of it is of these pages alone.
Result<PageMapping> PageMapping::take_address_space(std::size_t bytes) {
  const std::size_t taken_bytes = bytes + kHugePageBytes + 2 * host_page_bytes();
  void* taken = ::mmap(nullptr, taken_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (taken == MAP_FAILED) return system_error(bytes, "mmap", errno, "ask for less");
  const std::uintptr_t begin =
      round_up<std::uintptr_t>(reinterpret_cast<std::uintptr_t>(taken) + host_page_bytes(), kHugePageBytes);
  return PageMapping(taken, taken_bytes, reinterpret_cast<void*>(begin), bytes);
}

std::optional<std::uint64_t> huge_bytes_in(std::string_view smaps, std::uintptr_t begin, std::size_t bytes) {
  std::optional<std::uint64_t> total;
  bool is_ours = false;
  while (!smaps.empty()) {
    const std::string_view line = smaps.substr(0, smaps.find('\n'));
    smaps.remove_prefix(std::min(line.size() + 1, smaps.size()));
    // A mapping begins with "7f0000000000-7f0000200000 rw-p ..."; what follows about it are lines of "Key:   number kB".
    const std::string_view range = line.substr(0, line.find(' '));
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto from = hexadecimal<std::uintptr_t>(range.substr(0, dash));
    const auto to = hexadecimal<std::uintptr_t>(range.substr(std::min(dash + 1, range.size())));
    if (from && to) {
      is_ours = *from >= begin && *to <= begin + bytes;
      if (is_ours) total = total.value_or(0);
    } else if (is_ours && line.starts_with("AnonHugePages:")) {
      total = *total + number_behind(line, "AnonHugePages").value_or(0);
    }
  }
  return total;
}

}  // namespace gigabar::inline v0
