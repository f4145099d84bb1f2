// SPDX-License-Identifier: Apache-2.0
// Operations that are stores, under the lock of their queue alone. queue.hpp says what they rest on, and the order of the locks.
#include <algorithm>
#include <mutex>

#include "base/quietly.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {

// Nothing: it goes under the engine's lock, which also says what is wrong with it.
std::optional<Operation> Engine::post_stores(const Transfer& transfer, const PostOptions& options) noexcept {
  Queue& queue = queues_[options.queue];
  const bool is_write = transfer.kind == OpKind::write;
  if (!queue.may_be_free() || options.policy || (!is_write && transfer.kind != OpKind::notify)) return std::nullopt;
  const std::lock_guard guard(queue.mutex);
  const std::uint64_t begin_cycles = cycle_count();
  if (!queue.may_be_free() || queue.posted_count >= kQueueDepth) return std::nullopt;
  if (begin_cycles >= queue.look_at_cycles) {
    // Who polls now moves everything on, and keeps the engine's lock most of the time.
    if (cycles_per_look_ == 0 || pollers_.load(std::memory_order_relaxed) == 0) return std::nullopt;
    queue.look_at_cycles = begin_cycles + cycles_per_look_;
  }
  const StoreTarget* const target = queue.find_target(is_write, transfer.remote, transfer.local.segment, transfer.bytes);
  if (target == nullptr) return std::nullopt;
  const bool is_notified = (transfer.flags & kHasNotification) != 0;
  const transport::WordKind kind = word_kind(transfer.flags);
  const char* const way = is_notified ? target->ways[static_cast<std::size_t>(kind)] : nullptr;
  if (is_notified && (way == nullptr || transfer.notification >= target->word_count)) return std::nullopt;
  if (is_write) {
    if (!fits(transfer.local.offset_bytes, transfer.bytes, target->source_bytes) ||
        !fits(transfer.remote.offset_bytes, transfer.bytes, target->target_bytes))
      return std::nullopt;
    std::byte loaded[kMaxMappedLoadBytes];
    const std::byte* bytes = loaded;
    if (target->source->is_plain()) {
      bytes = target->source->address() + transfer.local.offset_bytes;
    } else if (!target->source->load_mapped(transfer.local.offset_bytes, loaded, transfer.bytes)) {
      return std::nullopt;
    }
    target->link->store({bytes, transfer.bytes}, *target->region, transfer.remote.offset_bytes);
  }
  if (is_notified) target->link->store_word(kind, *target->words, transfer.notification, transfer.value, options.queue);
  ++queue.posted_count;
  const std::uint64_t number = ++queue.store_count;
  queue.records[number % kRecords] = {is_write ? target->choice : nullptr, way, cycle_count() - begin_cycles,
                                      static_cast<std::uint32_t>(transfer.bytes), target->rank};
  return Operation{(std::uint64_t{options.queue} + 1) << kQueueBitsOfOperation | number};
}

// False: there may be something to wait for, or somebody.
bool Engine::wait_at_once(QueueId waited) noexcept {
  Queue& queue = queues_[waited];
  if (!queue.may_be_free()) return false;
  const std::lock_guard guard(queue.mutex);
  if (!queue.may_be_free() || queue.op_count.load(std::memory_order_acquire) != 0 || queue.has_error) return false;
  queue.posted_count = 0;
  return true;
}

// Behind an operation of a thread that has entered the queue, and which was posted at once.
void Engine::open_target(QueueId id, const Transfer& transfer, Peer& peer, const RemoteState& remote, const LocalSegment* local,
                         const Choice* choice) noexcept {
  if (peer.rails.size() != 1 || peer.data_said != peer.data_placed || peer.fence_marks != 0) return;
  if (!peer.pending.empty() || !peer.outbox.empty() || peer.state != Peer::State::ready) return;
  transport::Link& link = *peer.rails.front().link;
  const bool is_write = transfer.kind == OpKind::write && choice != nullptr && is_one_sided(choice->method);
  const bool is_stored = is_write ? link.can_store(*remote.region) : transfer.kind == OpKind::notify && remote.words != nullptr;
  if (!is_stored) return;
  const bool is_plain = !is_write || local->memory.is_plain();
  if (!is_plain && (!local->memory.is_mapped() || transfer.bytes > kMaxMappedLoadBytes)) return;
  Queue& queue = queues_[id];
  StoreTarget* place = queue.find_target(is_write, transfer.remote, transfer.local.segment, transfer.bytes);
  StoreTarget target = place != nullptr ? *place : StoreTarget{};
  target.peer = &peer;
  target.rank = peer.rank;
  target.remote_id = transfer.remote.segment;
  target.target_bytes = remote.bytes;
  target.link = &link;
  if (is_write) {
    target.local = local;
    target.local_id = local->id;
    target.source = &local->memory;
    target.source_bytes = local->memory.bytes();
    target.region = remote.region.get();
    target.choice = choice;
    // choose() decides by the same limits.
    target.min_bytes = 1;
    target.max_bytes = link.limits().copied_write_bytes;
    if (!is_plain) target.max_bytes = std::min(target.max_bytes, kMaxMappedLoadBytes);
    for (const std::uint64_t limit : {std::min<std::uint64_t>(settings_.eager_bytes, peer.peer_eager_bytes), limits(peer).gdr_bytes,
                                      link.limits().quick_read_bytes}) {
      if (transfer.bytes <= limit) {
        target.max_bytes = std::min(target.max_bytes, limit);
      } else {
        target.min_bytes = std::max(target.min_bytes, limit + 1);
      }
    }
  }
  target.words = remote.words.get();
  const bool can_store_words = remote.words != nullptr && link.can_store_words(*remote.words);
  for (std::size_t kind = 0; kind < target.ways.size(); ++kind) {
    target.ways[kind] = can_store_words && remote.ways[kind].is_word ? remote.ways[kind].reason : nullptr;
  }
  target.word_count = remote.words != nullptr ? transport::words_in(remote.words->bytes()) : 0;
  if (!is_write && target.ways == std::array<const char*, 2>{}) return;
  if (cycles_per_look_ == 0) {
    const std::uint64_t cycles = cycles_per_ms(opened_at_, {}) / kLooksPerMs;
    if (cycles == 0) return;  // no counter, or no time has passed
    cycles_per_look_ = cycles;
  }
  quietly([&] {
    const std::lock_guard guard(queue.mutex);
    queue.records.resize(kRecords);
    queue.look_at_cycles = cycle_count() + cycles_per_look_;
    if (place == nullptr) place = &queue.targets[queue.next_target++ % kStoreTargets];
    *place = target;
    queue.has_targets.store(true, std::memory_order_relaxed);
    peer.target_queues = static_cast<std::uint16_t>(peer.target_queues | 1U << id);
  });
}

void Engine::close_targets_of(Peer& peer) noexcept {
  for (QueueId id = 0; id < kQueues; ++id) {
    if ((peer.target_queues >> id & 1) != 0)
      queues_[id].close_targets([&](const StoreTarget& target) { return target.peer == &peer; });
  }
  peer.target_queues = 0;
}

void Engine::close_targets_from(const LocalSegment& segment) noexcept {
  for (Queue& queue : queues_) queue.close_targets([&](const StoreTarget& target) { return target.local == &segment; });
}

}  // namespace gigabar::fabric
