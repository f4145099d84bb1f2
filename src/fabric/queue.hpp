// SPDX-License-Identifier: Apache-2.0
// A queue, and what threads write with under its lock alone, beside the engine's lock that all queues share.
//
// A small write to memory that this process maps, and the word behind it, are stores: they are complete when the call returns. Of
// what the engine remembers they need only what stays the same as long as peers and segments do. A post that went this way under
// the engine's lock leaves that in its queue, as a target, and later posts of the queue use it (Engine::post_stores()).
//
// While a queue has a target, all of the following holds. Whoever changes any of it closes the targets first: behind
// Engine::close_targets() no store is under way, and none begins before a post under the engine's lock opens a target again.
// - The peer is ready and has one link, and nothing waits to be posted to it (Peer::pending, Peer::outbox).
// - What the peer's engine has to carry out is in place (Peer::data_said, Peer::data_placed, Peer::fence_marks), and the link keeps
//   no word back for a write that has not ended: a word may be stored at once.
// - The local segment is registered, and the peer has not asked for its own segment's key back.
//
// Locks, in the order in which they are taken: the engine's; a queue's; those inside a transport. A thread with a queue's lock
// takes no other one of the engine's, never sleeps, and holds it for one copy of at most LinkLimits::copied_write_bytes, before
// which it may load at most kMaxMappedLoadBytes from a GPU.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fair_mutex.hpp"
#include "base/wait_queue.hpp"
#include "fabric/local_memory.hpp"
#include "gigabar/fabric.hpp"
#include "transport/transport.hpp"

namespace gigabar::fabric {

struct Choice;
struct LocalSegment;
struct Peer;

inline constexpr std::size_t kStoreTargets = 4;  // of a queue

struct StoreTarget {
  const Peer* peer = nullptr;           // null: no target
  const LocalSegment* local = nullptr;  // whose bytes are written; null: for notifications alone
  Rank rank = 0;
  SegmentId local_id = 0, remote_id = 0;
  transport::Link* link = nullptr;
  const LocalMemory* source = nullptr;
  std::uint64_t source_bytes = 0, target_bytes = 0;
  std::uint64_t min_bytes = 0, max_bytes = 0;  // of the writes that the choice is for
  const Choice* choice = nullptr;
  const transport::RemoteRegion* region = nullptr;
  const transport::RemoteRegion* words = nullptr;
  std::size_t word_count = 0;
  std::array<const char*, 2> ways{};  // by WordKind: the sentence for reports; null: not as a word
};

// What stays of an operation by stores for report().
struct StoreRecord {
  const Choice* choice = nullptr;
  const char* way = nullptr;
  std::uint64_t cycles = 0;
  std::uint32_t bytes = 0;
  Rank rank = 0;
};

// Alone in its cache lines: threads of different queues share none.
struct alignas(128) Queue {
  mutable FairMutex mutex;
  // With both locks written, with either one read. Without a lock they are hints, by which threads keep away from a lock that
  // another one is about to take.
  std::atomic<bool> is_entered{false};   // by a thread that came with the engine's lock, which it may give away meanwhile
  std::atomic<bool> has_targets{false};  // without them nobody takes the queue's lock alone
  std::array<StoreTarget, kStoreTargets> targets;
  unsigned next_target = 0;
  std::vector<StoreRecord> records;  // kRecords, by the last bits of their numbers; empty before the first target
  // Of the thread that is at the queue: it has entered it, or has the queue's lock while nobody has.
  unsigned posted_count = 0;         // since the last wait that ended
  std::uint64_t look_at_cycles = 0;  // from then on a post moves the engine on first
  std::uint64_t store_count = 0;     // operations by stores; the number of the last one
  // Written with the engine's lock; a wait that finds nothing reads the first two without.
  std::atomic<unsigned> op_count{0};   // not over
  std::atomic<bool> has_error{false};  // behind `error`
  std::optional<Error> error;
  WaitQueue waiting;  // threads that want to enter

  // With the engine's lock. Behind try_enter() no thread that came with the queue's lock alone is at it.
  bool try_enter() noexcept {
    if (is_entered.load(std::memory_order_relaxed)) return false;
    is_entered.store(true, std::memory_order_relaxed);
    if (has_targets.load(std::memory_order_relaxed)) const std::lock_guard behind_the_last(mutex);
    return true;
  }
  void leave() noexcept {
    is_entered.store(false, std::memory_order_release);
    waiting.wake();
  }

  // With the engine's lock.
  void set_posted_count(unsigned count) noexcept {
    const std::lock_guard guard(mutex);
    posted_count = count;
  }
  void fail(const Error& first) {
    if (error) return;
    error = first;
    has_error.store(true, std::memory_order_release);
  }

  // Before the queue's lock is taken alone, and behind it.
  bool may_be_free() const noexcept {
    return has_targets.load(std::memory_order_relaxed) && !is_entered.load(std::memory_order_acquire) && !waiting.is_overdue();
  }
  // For a write of `bytes` bytes from the segment `local`, or a notification. Null: there is none.
  StoreTarget* find_target(bool is_write, const RemotePlace& remote, SegmentId local, std::uint64_t bytes) noexcept {
    for (StoreTarget& target : targets) {
      if (target.peer == nullptr || target.rank != remote.rank || target.remote_id != remote.segment) continue;
      if (!is_write ||
          (target.local != nullptr && target.local_id == local && bytes >= target.min_bytes && bytes <= target.max_bytes))
        return &target;
    }
    return nullptr;
  }
  // With the engine's lock. No thread uses those of which `is_it(target)` is true when this returns.
  template <class IsIt>
  void close_targets(const IsIt& is_it) noexcept {
    if (!has_targets.exchange(false, std::memory_order_relaxed)) return;
    const std::lock_guard guard(mutex);
    bool is_any_left = false;
    for (StoreTarget& target : targets) {
      if (target.peer != nullptr && is_it(target)) target = {};
      is_any_left = is_any_left || target.peer != nullptr;
    }
    has_targets.store(is_any_left, std::memory_order_relaxed);
  }
};

// Operations by stores are numbered by their queue; its number, counted from 1, stands in the bits from here on. The engine's own
// operations have none there.
inline constexpr unsigned kQueueBitsOfOperation = 56;

}  // namespace gigabar::fabric
