// SPDX-License-Identifier: Apache-2.0
// A wire to memory that this process reaches: its own, or a GPU's behind a mapping.
#pragma once

#include <cstring>
#include <deque>
#include <optional>

#include "device/soft_hca/memory_table.hpp"
#include "device/soft_hca/wire.hpp"
#include "gigabar/device/memory.hpp"

namespace gigabar::soft_hca {
namespace detail {

inline constexpr std::size_t kMaxUnderWay = 1024;

template <class Word>
bool store_word(void* to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(Word) || reinterpret_cast<std::uintptr_t>(to) % sizeof(Word) != 0) return false;
  Word value;
  std::memcpy(&value, from, sizeof value);
  device::store_release(static_cast<Word*>(to), value);
  return true;
}

inline Access right_for(Opcode opcode) {
  switch (opcode) {
    case Opcode::rdma_write: return Access::remote_write;
    case Opcode::rdma_read: return Access::remote_read;
    default: return Access::remote_atomic;
  }
}

// What a peer may be polling or changing is read in one access.
inline void load_bytes(void* to, const std::byte* from, std::size_t bytes) {
  if (bytes != sizeof(std::uint64_t) || reinterpret_cast<std::uintptr_t>(from) % sizeof(std::uint64_t) != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::uint64_t value = device::load_acquire(reinterpret_cast<const std::uint64_t*>(from));
  std::memcpy(to, &value, sizeof value);
}

inline std::uint64_t change_word(std::uint64_t* word, const WireOperation& operation) {
  if (operation.opcode == Opcode::fetch_add) return __atomic_fetch_add(word, operation.swap_or_add, __ATOMIC_SEQ_CST);
  std::uint64_t expected = operation.compare;
  __atomic_compare_exchange_n(word, &expected, operation.swap_or_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

}  // namespace detail

// How bytes get to the peer. Aligned 4 and 8 bytes by one store behind everything before; whoever sees it sees that.
using StoreBytes = void (*)(void* to, const void* from, std::size_t bytes);

// For memory that the CPU caches. A mapping that combines writes needs one that drains them, before and after.
inline void store_cached(void* to, const void* from, std::size_t bytes) {
  if (detail::store_word<std::uint64_t>(to, from, bytes) || detail::store_word<std::uint32_t>(to, from, bytes)) return;
  std::memcpy(to, from, bytes);
}

// Executes each operation when it is begun.
class MemoryWire final : public Wire {
 public:
  // `peer`: what the other side has registered; it must outlive the wire.
  explicit MemoryWire(const MemoryTable& peer, StoreBytes store = store_cached) : peer_(&peer), store_(store) {}

  bool begin(const WireOperation& operation) override {
    if (ended_.size() == detail::kMaxUnderWay) return false;
    const Syndrome syndrome = is_broken_ ? Syndrome::flushed : execute(operation);
    is_broken_ = is_broken_ || syndrome != Syndrome::none;
    ended_.push_back(syndrome);
    return true;
  }
  // One that fails is begun, which tells how.
  bool place(const WireOperation& write) override { return ended_.empty() && !is_broken_ && execute(write) == Syndrome::none; }
  std::optional<Syndrome> poll() override {
    if (ended_.empty()) return std::nullopt;
    const Syndrome syndrome = ended_.front();
    ended_.pop_front();
    return syndrome;
  }

 private:
  Syndrome execute(const WireOperation& operation) {
    const bool is_atomic = operation.opcode == Opcode::fetch_add || operation.opcode == Opcode::compare_swap;
    if (is_atomic && operation.remote_address % sizeof(std::uint64_t) != 0) return Syndrome::remote_request;
    std::byte* remote =
        peer_->find(operation.remote_key, operation.remote_address, operation.bytes, detail::right_for(operation.opcode));
    if (remote == nullptr) return Syndrome::remote_access;
    const auto bytes = static_cast<std::size_t>(operation.bytes);
    if (operation.opcode == Opcode::rdma_write) {
      store_(remote, operation.local, bytes);
    } else if (operation.opcode == Opcode::rdma_read) {
      detail::load_bytes(operation.local, remote, bytes);
    } else {
      // The peer's own range may put the word at an odd place of this process.
      if (reinterpret_cast<std::uintptr_t>(remote) % sizeof(std::uint64_t) != 0) return Syndrome::remote_operation;
      const std::uint64_t before = detail::change_word(reinterpret_cast<std::uint64_t*>(remote), operation);
      std::memcpy(operation.local, &before, sizeof before);
    }
    return Syndrome::none;
  }

  const MemoryTable* peer_;
  StoreBytes store_;
  std::deque<Syndrome> ended_;
  bool is_broken_ = false;
};

}  // namespace gigabar::soft_hca
