// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/memory_wire.hpp"

#include <cstring>

#include "gigabar/device/memory.hpp"

namespace gigabar::soft_hca {
namespace {

constexpr std::size_t kMaxUnderWay = 1024;

template <class Word>
bool store_word(void* to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(Word) || reinterpret_cast<std::uintptr_t>(to) % sizeof(Word) != 0) return false;
  Word value;
  std::memcpy(&value, from, sizeof value);
  device::store_release(static_cast<Word*>(to), value);
  return true;
}

Access right_for(Opcode opcode) {
  switch (opcode) {
    case Opcode::rdma_write: return Access::remote_write;
    case Opcode::rdma_read: return Access::remote_read;
    default: return Access::remote_atomic;
  }
}

// What a peer may be polling or changing is read in one access.
void load_bytes(void* to, const std::byte* from, std::size_t bytes) {
  if (bytes != sizeof(std::uint64_t) || reinterpret_cast<std::uintptr_t>(from) % sizeof(std::uint64_t) != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::uint64_t value = device::load_acquire(reinterpret_cast<const std::uint64_t*>(from));
  std::memcpy(to, &value, sizeof value);
}

std::uint64_t change_word(std::uint64_t* word, const WireOperation& operation) {
  if (operation.opcode == Opcode::fetch_add) return __atomic_fetch_add(word, operation.swap_or_add, __ATOMIC_SEQ_CST);
  std::uint64_t expected = operation.compare;
  __atomic_compare_exchange_n(word, &expected, operation.swap_or_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

}  // namespace

void store_cached(void* to, const void* from, std::size_t bytes) {
  if (store_word<std::uint64_t>(to, from, bytes) || store_word<std::uint32_t>(to, from, bytes)) return;
  std::memcpy(to, from, bytes);
}

Syndrome MemoryWire::execute(const WireOperation& operation) {
  const bool is_atomic = operation.opcode == Opcode::fetch_add || operation.opcode == Opcode::compare_swap;
  if (is_atomic && operation.remote_address % sizeof(std::uint64_t) != 0) return Syndrome::remote_request;
  std::byte* remote = peer_->find(operation.remote_key, operation.remote_address, operation.bytes, right_for(operation.opcode));
  if (remote == nullptr) return Syndrome::remote_access;
  const auto bytes = static_cast<std::size_t>(operation.bytes);
  if (operation.opcode == Opcode::rdma_write) {
    store_(remote, operation.local, bytes);
  } else if (operation.opcode == Opcode::rdma_read) {
    load_bytes(operation.local, remote, bytes);
  } else {
    // The peer's own range may put the word at an odd place of this process.
    if (reinterpret_cast<std::uintptr_t>(remote) % sizeof(std::uint64_t) != 0) return Syndrome::remote_operation;
    const std::uint64_t before = change_word(reinterpret_cast<std::uint64_t*>(remote), operation);
    std::memcpy(operation.local, &before, sizeof before);
  }
  return Syndrome::none;
}

bool MemoryWire::begin(const WireOperation& operation) {
  if (ended_.size() == kMaxUnderWay) return false;
  const Syndrome syndrome = is_broken_ ? Syndrome::flushed : execute(operation);
  is_broken_ = is_broken_ || syndrome != Syndrome::none;
  ended_.push_back(syndrome);
  return true;
}

// One that fails is begun, which tells how.
bool MemoryWire::place(const WireOperation& write) { return ended_.empty() && !is_broken_ && execute(write) == Syndrome::none; }

std::optional<Syndrome> MemoryWire::poll() {
  if (ended_.empty()) return std::nullopt;
  const Syndrome syndrome = ended_.front();
  ended_.pop_front();
  return syndrome;
}

}  // namespace gigabar::soft_hca
