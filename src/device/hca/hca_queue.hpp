// SPDX-License-Identifier: Apache-2.0
// One queue pair of an adapter as a device::PeerQueue: ring, doorbell record and CQ are libmlx5's, in memory that kernels reach.
#pragma once

#include <cstdint>
#include <memory>

#include "device/hca/hca.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/status.hpp"

namespace gigabar::hca {

// For one thread at a time, with the exception that ring() names.
class HcaQueue {
 public:
  // A new one, not connected. `depth`: slots of the ring at most, a power of two; libmlx5 may make it shorter. `hca` must outlive
  // it. Errors: out_of_memory, device_error, not_supported (a libmlx5 that keeps its queues where kernels do not reach them, or
  // registers that they may not reach when kernels are to ring).
  static Result<std::unique_ptr<HcaQueue>> create(Hca& hca, std::uint32_t depth);
  // Ends what is under way.
  ~HcaQueue();
  HcaQueue(const HcaQueue&) = delete;
  HcaQueue& operator=(const HcaQueue&) = delete;

  std::uint32_t number() const noexcept;
  Ringer ringer() const noexcept;
  // Why not the kernels; empty: they do, or nobody asked them to.
  const std::string& why_cpu() const noexcept;

  // With a queue of the peer's port. Errors: device_error and others of ibv_modify_qp.
  Result<void> connect(const PortAddress& peer, std::uint32_t peer_number);
  // One atomic on the peer's `word` of 0 by the CPU, through the same ring, doorbell and CQ as kernels': whether all of it works.
  // The peer must have connected its end. Errors: timed_out, device_error, peer_lost.
  Result<void> try_out(device::Remote word, std::int64_t timeout_ns);
  // As kernels are to have it, with the results' memory; the peer's words are the caller's. Behind try_out() it goes on where that
  // ended.
  device::PeerQueue& queue() noexcept;

  // Hands a doorbell that kernels rang on to the adapter; whether there was one. Beside everything but the destructor. Where
  // kernels ring it has nothing to do.
  bool ring() noexcept;

 private:
  struct State;
  explicit HcaQueue(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gigabar::hca
