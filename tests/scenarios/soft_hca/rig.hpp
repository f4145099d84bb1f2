// SPDX-License-Identifier: Apache-2.0
// A software HCA, the memory of two sides and the queues between them, in one process. What the HCA refuses is thrown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/device/queue.hpp"

namespace gigabar::soft_hca::test {

template <class T>
T taken(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

// Zeroed bytes at 64.
class Bytes {
 public:
  explicit Bytes(std::size_t bytes) : bytes_((bytes + 63) / 64 * 64), start_(std::aligned_alloc(64, bytes_), &std::free) {
    if (start_ == nullptr) throw std::bad_alloc();
    std::memset(start_.get(), 0, bytes_);
  }
  std::byte* data() const noexcept { return static_cast<std::byte*>(start_.get()); }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> span() const noexcept { return {data(), bytes_}; }
  std::uint64_t address(std::size_t offset_bytes = 0) const noexcept {
    return reinterpret_cast<std::uintptr_t>(start_.get()) + offset_bytes;
  }
  template <class T>
  T& at(std::size_t offset_bytes) const noexcept {
    return *reinterpret_cast<T*>(data() + offset_bytes);
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<void, decltype(&std::free)> start_;
};

// A queue and its memory.
struct QueueRig {
  QueueRig(SoftHca& hca, const QueueOptions& options, Wire& wire)
      : ring(std::size_t{options.depth} * sizeof(device::mlx5::Block)),
        cq((options.is_collapsed ? 1 : std::size_t{std::max(options.cq_depth, options.depth)}) * sizeof(device::mlx5::Cqe)),
        doorbells(128) {
    const QueueMemory memory{Place::plain(ring.data()), Place::plain(doorbells.data()), Place::plain(doorbells.data() + 64),
                             Place::plain(cq.data())};
    number = taken(hca.create_queue(options, memory, wire, queue));
  }

  Bytes ring, cq, doorbells;
  device::Queue queue;
  std::uint32_t number = 0;
};

// What work requests call the memory of the sides: no addresses of this process.
inline constexpr std::uint64_t kPeerBase = 0x7700'0000'0000;
inline constexpr std::uint64_t kLocalBase = 0x6600'0000'0000;

struct TwoSides {
  explicit TwoSides(std::size_t bytes) : local(bytes), remote(bytes) {
    local_key = taken(hca.memory().register_memory({local.data(), kLocalBase, bytes, Access::local_write}));
    peer_key = taken(peer.register_memory({remote.data(), kPeerBase, bytes, Access::everything}));
  }

  QueueRig& add_queue(const QueueOptions& options, Wire& wire) { return queues.emplace_back(hca, options, wire); }
  device::Queue& queue(std::size_t index = 0) { return queues[index].queue; }
  device::Local at_local(std::uint64_t offset_bytes) const noexcept { return {kLocalBase + offset_bytes, local_key}; }
  device::Remote at_peer(std::uint64_t offset_bytes) const noexcept { return {kPeerBase + offset_bytes, peer_key}; }
  void set_faults(const Faults& faults, std::size_t index = 0) {
    const Result<void> outcome = hca.set_faults(queues[index].number, faults);
    if (!outcome) throw std::runtime_error(outcome.message());
  }
  QueueStatistics statistics(std::size_t index = 0) { return taken(hca.statistics(queues[index].number)); }

  MemoryTable peer;
  Bytes local, remote;
  std::uint32_t local_key = 0, peer_key = 0;
  std::deque<QueueRig> queues;  // does not move its elements; outlives the HCA, which looks at them
  SoftHca hca;
};

}  // namespace gigabar::soft_hca::test
