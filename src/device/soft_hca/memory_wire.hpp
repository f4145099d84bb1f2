// SPDX-License-Identifier: Apache-2.0
// A wire to memory that this process reaches: its own, shared, or a GPU's behind a mapping.
#pragma once

#include <deque>

#include "device/soft_hca/memory_table.hpp"
#include "device/soft_hca/wire.hpp"

namespace gigabar::soft_hca {

// How bytes get to the peer. Aligned 4 and 8 bytes by one store behind everything before; whoever sees it sees that.
using StoreBytes = void (*)(void* to, const void* from, std::size_t bytes);

// For memory that the CPU caches. A mapping that combines writes needs one that drains them, before and after.
void store_cached(void* to, const void* from, std::size_t bytes);

// Executes each operation when it is begun.
class MemoryWire final : public Wire {
 public:
  // `peer`: what the other side has registered; it must outlive the wire.
  explicit MemoryWire(const MemoryTable& peer, StoreBytes store = store_cached) : peer_(&peer), store_(store) {}

  bool begin(const WireOperation& operation) override;
  bool place(const WireOperation& write) override;
  std::optional<Syndrome> poll() override;

 private:
  Syndrome execute(const WireOperation& operation);

  const MemoryTable* peer_;
  StoreBytes store_;
  std::deque<Syndrome> ended_;
  bool is_broken_ = false;
};

}  // namespace gigabar::soft_hca
