// SPDX-License-Identifier: Apache-2.0
#include "softhca/rig.hpp"

#include <cstring>
#include <new>

#include "support/failure.hpp"

namespace gigabar::tool::softhca {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::uint64_t kInitiatorBase = 0x6600'0000'0000;
constexpr std::uint64_t kTargetBase = 0x7700'0000'0000;

}  // namespace

AlignedBytes::AlignedBytes(std::uint64_t bytes)
    : bytes_((static_cast<std::size_t>(bytes) + kLineBytes - 1) / kLineBytes * kLineBytes),
      start_(std::aligned_alloc(kLineBytes, bytes_)) {
  if (start_ == nullptr) throw std::bad_alloc();
  std::memset(start_.get(), 0, bytes_);
}

bool WatchedWire::begin(const soft_hca::WireOperation& operation) {
  if (!wire_.begin(operation)) return false;
  const std::uint64_t begun = ++order_->begun[index_];
  if (before_ != index_ && order_->begun[before_] < begun) ++order_->overtaken_count;
  return true;
}

Rig::Line::Line(Rig& rig, const RigOptions& options, std::uint32_t index)
    : ring(sizes_of(options.queue).ring_bytes),
      cq(sizes_of(options.queue).cq_bytes),
      doorbells(2 * kLineBytes),
      wire(rig.peer_, rig.order_, index, index < options.posters ? index : index - options.posters) {
  using soft_hca::Place;
  const soft_hca::QueueMemory memory{Place::plain(ring.data()), Place::plain(doorbells.data()),
                                     Place::plain(doorbells.data() + kLineBytes), Place::plain(cq.data())};
  number = take(rig.hca_.create_queue(options.queue, memory, wire, queue));
}

Rig::Rig(const RigOptions& options) : initiator_(options.block_bytes), target_(options.block_bytes), order_(options.queue_count) {
  using soft_hca::Access;
  local_key_ = take(hca_.memory().register_memory({initiator_.data(), kInitiatorBase, options.block_bytes, Access::local_write}));
  remote_key_ = take(peer_.register_memory({target_.data(), kTargetBase, options.block_bytes, Access::everything}));
  for (std::uint32_t i = 0; i < options.queue_count; ++i) queues_.emplace_back(*this, options, i);
}

void Rig::set_faults(std::uint32_t index, const soft_hca::Faults& faults) {
  require(hca_.set_faults(queues_[index].number, faults));
}

soft_hca::QueueStatistics Rig::statistics(std::uint32_t index) { return take(hca_.statistics(queues_[index].number)); }

device::Local Rig::local(std::uint64_t offset_bytes) const noexcept { return {kInitiatorBase + offset_bytes, local_key_}; }
device::Remote Rig::remote(std::uint64_t offset_bytes) const noexcept { return {kTargetBase + offset_bytes, remote_key_}; }

}  // namespace gigabar::tool::softhca
