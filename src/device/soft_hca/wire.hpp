// SPDX-License-Identifier: Apache-2.0
// What lies between a software HCA's queue and its peer's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/in_place.hpp"
#include "gigabar/device/mlx5.hpp"

namespace gigabar::soft_hca {

using device::mlx5::Opcode;
using device::mlx5::Syndrome;

// rdma_write, rdma_read, fetch_add or compare_swap.
struct WireOperation {
  Opcode opcode = Opcode::nop;
  std::byte* local = nullptr;  // source of a write, else destination; stays until the completion was polled
  std::uint64_t bytes = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};

// The way of one queue to one peer. Threads: one at a time.
// Ordering: writes take effect at the peer in the order of begin(): who sees one by acquire sees those before. Aligned 4 and 8
// bytes are never torn. Completions come in the order of begin(). What is behind a failed operation should have no effect, and
// completes with any answer.
class Wire : InPlace {
 public:
  virtual ~Wire() = default;
  // False: not yet, for want of room or because of what is under way; call again. Never waits.
  virtual bool begin(const WireOperation& operation) = 0;
  // With nothing under way: whether the write, whose bytes stay no longer than the call, was done by it, in order and well. Nothing
  // is to be polled for it then.
  virtual bool place([[maybe_unused]] const WireOperation& write) { return false; }
  // How the oldest operation that was not told yet ended, or nothing while it has not.
  virtual std::optional<Syndrome> poll() = 0;
  // Instead of poll() while nothing is under way; behind place(), before its completion is told.
  virtual void idle() {}
};

}  // namespace gigabar::soft_hca
