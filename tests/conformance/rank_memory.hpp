// SPDX-License-Identifier: Apache-2.0
// Memory of a test: bytes that tell their place, guards on both sides, the same for host and device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "conformance/ranks.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"
#include "support/descriptors.hpp"

namespace gigabar::test {

inline constexpr unsigned char kCanary = 0xc5;

// The byte that belongs at `position` of the data named `seed`: equal neighbours are rare, other seeds differ everywhere.
unsigned char pattern_byte(std::uint64_t position, std::uint64_t seed) noexcept;
void fill_pattern(void* destination, std::size_t bytes, std::uint64_t seed, std::uint64_t position = 0) noexcept;
testing::AssertionResult is_pattern(const void* data, std::size_t bytes, std::uint64_t seed, std::uint64_t position = 0);
testing::AssertionResult is_filled(const void* data, std::size_t bytes, unsigned char value = kCanary);

// A block of the chosen kind, on the device (rank modulo devices), filled with kCanary. Throws where there is no memory: the test
// has failed then.
class RankMemory {
 public:
  // `shift_bytes`: how far the usable part begins after a page's start.
  RankMemory(MemoryChoice choice, std::size_t bytes, std::size_t shift_bytes = 0);

  unsigned char* address() const noexcept { return address_; }  // of host and stand-in memory: the CPU may use it
  std::size_t bytes() const noexcept { return bytes_; }

  void put(std::size_t offset, const void* source, std::size_t bytes);
  std::vector<unsigned char> take(std::size_t offset, std::size_t bytes) const;
  // Data that begins at `position` of the data named `seed`.
  void put_pattern(std::size_t offset, std::size_t bytes, std::uint64_t seed, std::uint64_t position);
  void fill(unsigned char value = kCanary);
  testing::AssertionResult holds_pattern(std::size_t offset, std::size_t bytes, std::uint64_t seed, std::uint64_t position) const;
  testing::AssertionResult is_untouched(std::size_t offset, std::size_t bytes) const;
  // Everything but [offset, offset + bytes) is kCanary, and so are the guards.
  testing::AssertionResult is_untouched_around(std::size_t offset, std::size_t bytes) const;
  testing::AssertionResult are_guards_whole() const;

 private:
  static constexpr std::size_t kGuardBytes = 4096;

  MemoryChoice choice_;
  std::size_t bytes_;
  int number_ = 0;  // of the device
  std::optional<DeviceMemory> device_;
  std::optional<HostMemory> shared_;
  std::vector<unsigned char> host_;
  unsigned char* begin_ = nullptr;    // of the guard in front
  unsigned char* address_ = nullptr;  // of the usable part
};

// Of this process.
std::size_t resident_bytes();

}  // namespace gigabar::test
