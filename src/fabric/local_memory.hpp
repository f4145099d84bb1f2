// SPDX-License-Identifier: Apache-2.0
// Memory of this process as the engine touches it by itself: loads and stores by the CPU, through a mapping where it is a GPU's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"

namespace gigabar::fabric {

// Loads from GPU memory by the CPU are slower than a copy between GPUs from about here (H200: 1 µs for each 1 KiB above the first).
inline constexpr std::uint64_t kMaxMappedLoadBytes = 2048;

class LocalMemory {
 public:
  // Looks at what the memory is and maps it when it is a GPU's; a GPU's memory that cannot be mapped is reached by the copy engine.
  // Errors: invalid_argument (null, zero bytes, leaves its allocation), device_error.
  static Result<LocalMemory> look_at(void* address, std::size_t bytes);

  std::byte* address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  MemoryKind kind() const noexcept { return kind_; }
  int device() const noexcept { return device_; }
  std::uint64_t buffer_id() const noexcept { return buffer_id_; }
  // A GPU's, or a stand-in's that plays one.
  bool is_device() const noexcept { return device_ >= 0; }
  // The CPU reaches it by its own address.
  bool is_plain() const noexcept { return is_plain_; }
  // Whether a device's memory is the allocation that was looked at, and no later one at its place.
  bool is_same_allocation() const;

  // Up to here the CPU loads as fast as a copy between GPUs, or nearly: with the readback kernel, of more. Of a device's memory.
  std::uint64_t mapped_load_bytes() const noexcept;

  // Whether load_mapped() may be called.
  bool is_mapped() const noexcept { return mapping_.has_value(); }
  // Of a device's memory, by loads of the CPU through the mapping: no driver is called, no memory and no lock are taken. As
  // copy_from.
  Result<void> load_mapped(std::uint64_t offset_bytes, void* destination, std::size_t bytes) const noexcept;
  // Inside the range, as the caller has checked. Done when they return; of device memory: as copy_to and copy_from, and by the copy
  // engine or the readback kernel where that is faster.
  Result<void> load(std::uint64_t offset_bytes, void* destination, std::size_t bytes) const;
  Result<void> store(std::uint64_t offset_bytes, const void* source, std::size_t bytes) const;
  // As store, behind everything that this thread stored before; 4 and 8 aligned bytes are seen whole.
  Result<void> publish(std::uint64_t offset_bytes, const void* source, std::size_t bytes) const;

 private:
  LocalMemory() = default;
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::host_pageable;
  int device_ = -1;
  std::uint64_t buffer_id_ = 0;
  bool is_plain_ = true;
  std::optional<Mapping> mapping_;
};

// The memory of the last messages: what is used again costs one question to the driver, where a look costs ten times as much, and a
// mapping more.
class RecentMemory {
 public:
  // As LocalMemory::look_at; null: host memory, of which a message needs to know nothing else.
  Result<std::shared_ptr<const LocalMemory>> look_at(void* address, std::size_t bytes);

 private:
  std::array<std::shared_ptr<const LocalMemory>, 16> recent_;
  unsigned next_ = 0;
  std::array<std::uint64_t, 16> pinned_{};  // CUDA's ids of pinned host buffers; never used again for other memory
  unsigned next_pinned_ = 0;
};

// Whether every page of the range is mapped at all.
bool is_memory_of_this_process(std::uintptr_t begin, std::size_t bytes);

}  // namespace gigabar::fabric
