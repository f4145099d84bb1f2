// SPDX-License-Identifier: Apache-2.0
// The memory that a software HCA may touch, by key: what a registration is for a real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <unordered_map>

#include "gigabar/status.hpp"

namespace gigabar::soft_hca {

// What an HCA may do with registered memory. Reading it for its own side needs no right.
enum class Access : std::uint8_t {
  local_read = 0,
  local_write = 1,   // results of reads and atomics
  remote_write = 2,  // by peers
  remote_read = 4,
  remote_atomic = 8,
  everything = 15,
};
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool includes(Access granted, Access wanted) { return (granted | wanted) == granted; }

// [device_address, + bytes) as work requests name it lies at `cpu` for this process: the same number for plain memory, another one
// for GPU memory behind a mapping.
struct MemoryRange {
  void* cpu = nullptr;
  std::uint64_t device_address = 0;
  std::uint64_t bytes = 0;
  Access access = Access::local_read;

  static MemoryRange plain(void* address, std::uint64_t bytes, Access access) {
    return {address, reinterpret_cast<std::uintptr_t>(address), bytes, access};
  }
};

// Threads: any. Memory must live until it is deregistered and no operation uses it.
class MemoryTable {
 public:
  // One key, local and remote, never 0. Errors: invalid_argument (null, no bytes, a range that wraps).
  Result<std::uint32_t> register_memory(const MemoryRange& range);
  // False for a key that is none. The key is given out again when all others have been.
  bool deregister_memory(std::uint32_t key);
  // Where [address, + bytes) of that key lies, or null: no such key, not inside, or not with this right.
  std::byte* find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, Access wanted) const;

 private:
  mutable std::shared_mutex mutex_;  // of what follows
  std::unordered_map<std::uint32_t, MemoryRange> ranges_;
  std::uint32_t next_key_ = 1;
};

}  // namespace gigabar::soft_hca
