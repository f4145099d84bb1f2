// SPDX-License-Identifier: Apache-2.0
// A piece of device memory in this process's address space, whoever put it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gigabar/mapping.hpp"

namespace gigabar::inline v0 {

// Serves the device addresses [device_begin, device_begin + bytes). The destructor of each backend's window unmaps it, except in a
// forked child, where it must not touch what the parent still uses.
class Window {
 public:
  Window(std::byte* cpu_address, std::uintptr_t first, std::size_t length_bytes, MappingType cache_type) noexcept
      : address(cpu_address),
        device_begin(first),
        bytes(length_bytes),
        type(cache_type),
        generation_(detail::process_generation()) {}
  virtual ~Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  bool is_of_this_process() const noexcept { return generation_ == detail::process_generation(); }
  bool covers(std::uintptr_t begin, std::size_t length) const noexcept {
    return begin >= device_begin && begin - device_begin <= bytes && length <= bytes - (begin - device_begin);
  }
  std::byte* at(std::uintptr_t device_address) const noexcept { return address + (device_address - device_begin); }

  std::byte* const address;
  const std::uintptr_t device_begin;
  const std::size_t bytes;
  const MappingType type;

 private:
  const std::uint32_t generation_;
};

// Device addresses [begin, begin + bytes).
struct DeviceRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

// What of an allocation to map when [begin, begin + bytes) of it is asked for: all of it while that is cheap, so that later ranges
// find their window; the range, rounded to large pages, where mapping all would take milliseconds and much BAR1.
DeviceRange range_to_map(DeviceRange allocation, DeviceRange asked) noexcept;

struct PeerMemory;

// A window over `range` of another process's device memory, for as long as it lives; nothing is cached. Errors: as of map(), and
// not_supported (GIGABAR_MAPPING asks for a backend that cannot). Threads: any.
Result<std::unique_ptr<Window>> open_peer_window(const PeerMemory& peer, DeviceRange range);

// Keeps the pages of a mapping from forked children (MADV_DONTFORK); logs when the kernel refuses.
void keep_from_forked_children(void* address, std::size_t bytes) noexcept;

}  // namespace gigabar::inline v0
