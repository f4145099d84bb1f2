// SPDX-License-Identifier: Apache-2.0
// Pages of host memory as HostMemory needs them: asked for only when there is room, placed, present, and proved huge where they
// have to be.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/rounding.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// A page of the CPU: 4 KiB on x86-64, 4 or 64 KiB on arm64. A dma-buf begins and ends at one. Source: CUDA Driver API,
// cuMemGetHandleForAddressRange.
std::size_t host_page_bytes() noexcept;

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t whole_huge_pages(std::size_t bytes) noexcept { return round_up(bytes, kHugePageBytes); }

// Refuses what would bring out the kernel's killer: more than the machine, a control group of this process, or the node (-1: any)
// has left, with 1/64 on top for page tables and the driver's lists. Nothing is touched.
// Errors: out_of_memory; the cause says who has how much left.
Result<void> check_room(std::size_t bytes, int numa_node);

// What a node that is asked for means: all pages are of it, else it is an error; or as bring_pages() brings them.
enum class NodePolicy : std::uint8_t { bind, prefer };

enum class Backing : std::uint8_t { none, file };

// Brings the pages of a fresh mapping, all zero, as far as there is room: from `numa_node` what that node has, the rest from
// others, which is told in the log (info); -1: from any node. Those of a memory file are huge where they can be.
void bring_pages(std::byte* address, std::size_t bytes, int numa_node, Backing backing = Backing::none);

// A memory file of that size, which nobody can change any more: who maps it relies on it. Not open: see errno.
Descriptor open_memory_file(const char* name, std::size_t bytes) noexcept;
// The same, to be shared. Errors: out_of_memory, out_of_descriptors, no_permission.
Result<std::shared_ptr<const Descriptor>> make_memory_file(const char* name, std::size_t bytes);

struct UnmapPages {
  std::size_t bytes = 0;
  pid_t process = ::getpid();  // a forked child may have other memory there, and the parent's is not its to unmap
  void operator()(void* address) const noexcept;
};

// Zeroed memory of whole pages, present, on one node when that is asked for. Unmapped at the end.
class PageMapping {
 public:
  // `numa_node` is -1 or a node of this machine. Anonymous, or the first pages of a memory file: shared, not inherited by fork(),
  // and what fills huge pages lies on such where the kernel can (Linux 6.1: MADV_COLLAPSE); nothing depends on it but speed.
  // Errors: out_of_memory, no_permission.
  static Result<PageMapping> make(std::size_t bytes, int numa_node, NodePolicy policy = NodePolicy::bind, int file = -1);

  // On huge pages of 2 MiB: reserved ones when so many are free, else transparent ones, of which at least 90 % must be huge as the
  // kernel tells it once they are present. Errors: out_of_memory; the remedy says how to get huge pages.
  // Source: kernel, Documentation/admin-guide/mm/hugetlbpage.rst and transhuge.rst.
  static Result<PageMapping> make_huge(std::size_t bytes, int numa_node);

  // Whole pages of a file from `offset_bytes` on, as they are: at the beginning of a huge page, shared; a forked child has nothing
  // there.
  // Errors: out_of_memory, no_permission; each with its errno.
  static Result<PageMapping> map_file(int file, std::uint64_t offset_bytes, std::size_t bytes);

  PageMapping() noexcept = default;

  std::byte* address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  bool is_of_this_process() const noexcept { return taken_.get_deleter().process == ::getpid(); }

 private:
  static Result<PageMapping> map_anonymous(std::size_t bytes);
  static Result<PageMapping> make_reserved(std::size_t bytes, int numa_node);
  static Result<PageMapping> make_transparent(std::size_t bytes, int numa_node);
  static Result<PageMapping> take_address_space(std::size_t bytes);
  PageMapping(void* taken, std::size_t taken_bytes, void* address, std::size_t bytes) noexcept
      : taken_(taken, UnmapPages{taken_bytes}), address_(static_cast<std::byte*>(address)), bytes_(bytes) {}

  std::unique_ptr<void, UnmapPages> taken_;  // address space around it, which belongs to nobody else
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

// How many bytes of [begin, begin + bytes) are on transparent huge pages, in the words of /proc/self/smaps. Mappings that reach
// beyond the range do not count. Nothing when it names no mapping of the range.
std::optional<std::uint64_t> huge_bytes_in(std::string_view smaps, std::uintptr_t begin, std::size_t bytes);

}  // namespace gigabar::inline v0
