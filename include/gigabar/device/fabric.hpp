// SPDX-License-Identifier: Apache-2.0
// Communication that kernels start: the functions of gigabar/fabric.hpp, called on the GPU.
//
// A DeviceSession (gigabar/device_session.hpp) fills a DeviceFabric, a plain handle that kernels get by value. The first argument
// of every function is a scope (scope.hpp): all its threads call together, with equal arguments, and get the same result. Functions
// that wait take a timeout; 0 tests once. An error concerns one peer: operations with other peers are unaffected.
//
// Several blocks as one (BasicBlocks): functions that only store do not wait for the other blocks, each block waits for values by
// itself, and each block gets its own status: one of them may see a loss or a deadline that another does not see yet.
//
// Ordering. "Before" is happens-before: program order within a thread, scope.sync() or another barrier between threads.
// - write() stores its bytes in the peer's memory in no order, at no defined time.
// - notify() and write_notify() raise a notification after all bytes that their callers wrote before, to any load/store accessible
//   peer, or by the same queue to the same rank: the callers meet at scope.sync(), then one thread executes fence.acq_rel.sys and
//   stores the word. A thread that sees the word by notification_wait() (ld.acquire.sys), and every thread that it then meets at a
//   barrier, sees the bytes. PTX: release and acquire patterns; bar.sync carries causality order between threads of a block.
//   Of several blocks the last one to come executes the fence and stores the word, once: who sees it sees the bytes of all blocks.
// - write_count() counts a call when the bytes of all its blocks are in place: each block executes its own fence.acq_rel.sys, then
//   adds its share to the peer's count (red.relaxed.sys). Only the sum of all shares changes the number. The additions are a chain
//   of read-modify-writes, so a thread that sees the number (ld.acquire.sys) sees what came before each of the fences. Calls do not
//   mix: a block adds to the next one when all blocks have added to this one (acquire and release at the scope of the GPU).
// - notify() with Order::none omits the fence, which is most of its time: for a word that needs no other data.
// - Peers that are not load/store accessible have queues (queue.hpp, with its own ordering contract). Operations with them are
//   posted, and wait() returns when local memory may be used again. A queue keeps its notifications after its writes; two queues
//   have no order.
// - flush() ends when all bytes that the callers wrote to the peer before are in its memory.
// - Atomics are relaxed: order them by flush() before and an acquire after.
// - notification_reset() takes the word in one step (atom.exch.acquire.sys).
//
// Source: PTX ISA, "Memory Consistency Model"; names and semantics: GASPI specification 17.1, "One-sided communication".
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/copy.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/posting.hpp"
#include "gigabar/device/queue.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0::device {

// --- One-sided -------------------------------------------------------------------------------------------------------------------

// Writes `bytes` from `local` to `remote`. Bounds are checked first.
// Errors: out_of_range (no such rank, segment or range), unavailable (not accessible); nothing was written. peer_lost: the memory
// of a lost peer stays accessible, so stores to it do no harm.
// Ordering: `local` may be written again after wait(), notify() or flush().
template <class Scope>
GIGABAR_DEVICE Status write(const Scope& scope, const DeviceFabric& fabric, LocalPlace local, RemotePlace remote,
                            std::uint64_t bytes, Post post = {}) {
  const detail::Place from = detail::find_bytes(fabric, fabric.rank, local.segment, local.offset_bytes, bytes);
  if (from.status != Status::ok) return from.status;
  const detail::Place to = detail::find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, bytes);
  if (to.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, remote.rank, post.queue, post.timeout, [&](PeerQueue& queue) {
      const detail::Ends ends = detail::ends_of(fabric, from.address, local.segment, remote);
      return detail::post_as(post.sharing, queue, detail::PostWrite{ends.remote, ends.local, from.address, bytes, post.timeout});
    });
  }
  if (to.status != Status::ok) return to.status;
  return detail::store_bytes(scope, detail::ask_status(scope, fabric, remote.rank), to.address, from.address, bytes);
}

// Reads `bytes` from `remote` into `local`. They are there after wait(). Errors: as write.
template <class Scope>
GIGABAR_DEVICE Status read(const Scope& scope, const DeviceFabric& fabric, LocalPlace local, RemotePlace remote,
                           std::uint64_t bytes, Post post = {}) {
  const detail::Place to = detail::find_bytes(fabric, fabric.rank, local.segment, local.offset_bytes, bytes);
  if (to.status != Status::ok) return to.status;
  const detail::Place from = detail::find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, bytes);
  if (from.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, remote.rank, post.queue, post.timeout, [&](PeerQueue& queue) {
      const detail::Ends ends = detail::ends_of(fabric, to.address, local.segment, remote);
      return detail::post_as(post.sharing, queue, detail::PostRead{ends.remote, ends.local, bytes, post.timeout});
    });
  }
  if (from.status != Status::ok) return from.status;
  return detail::store_bytes(scope, detail::ask_status(scope, fabric, remote.rank), to.address, from.address, bytes);
}

// Raises notification `id` of the peer's segment to `value`. The notification also carries a payload of 8 bytes at no cost: with
// Order::none this is the fastest way to send 8 bytes. Errors: invalid_argument (value 0), out_of_range, unavailable, peer_lost.
// Of a segment that notifies CPUs (DeviceSessionOptions::cpu_segments) the owner's CPU takes it, by Fabric::notification_wait: it
// goes by a queue, without a payload (not_supported).
template <class Scope>
GIGABAR_DEVICE Status notify(const Scope& scope, const DeviceFabric& fabric, Rank rank, SegmentId segment, NotificationId id,
                             std::uint32_t value, Order order = Order::after_writes, std::uint64_t payload = 0, Post post = {}) {
  if (value == 0) return Status::invalid_argument;
  const detail::NotificationPlace place = detail::find_notification(fabric, rank, segment, id);
  if (place.status == Status::unavailable && detail::find_segment(fabric, rank, segment)->notifies_cpus) {
    if (payload != 0) return Status::not_supported;
    return detail::raise_for_cpu(scope, fabric, rank, segment, id, value, order, post);
  }
  if (place.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, rank, post.queue, post.timeout, [&](PeerQueue& queue) {
      const Remote to = detail::find_segment(fabric, rank, segment)->remote_notifications;
      return detail::post_as(
          post.sharing, queue,
          detail::PostNotify{detail::payload_of(to, id), payload, detail::value_of(to, id), value, post.timeout});
    });
  }
  if (place.status != Status::ok) return place.status;
  return detail::raise(scope, detail::ask_status(scope, fabric, rank), place.notification, value, order, payload);
}

// Writes, then notifies. Errors: as write and notify; nothing is raised when the write was rejected.
template <class Scope>
GIGABAR_DEVICE Status write_notify(const Scope& scope, const DeviceFabric& fabric, LocalPlace local, RemotePlace remote,
                                   std::uint64_t bytes, NotificationId id, std::uint32_t value, Post post = {}) {
  if (value == 0) return Status::invalid_argument;
  const detail::NotificationPlace place = detail::find_notification(fabric, remote.rank, remote.segment, id);
  if (place.status != Status::ok && place.status != Status::unavailable) return place.status;
  const detail::Place from = detail::find_bytes(fabric, fabric.rank, local.segment, local.offset_bytes, bytes);
  if (from.status != Status::ok) return from.status;
  const detail::Place to = detail::find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, bytes);
  if (to.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, remote.rank, post.queue, post.timeout, [&](PeerQueue& queue) {
      const detail::Ends ends = detail::ends_of(fabric, from.address, local.segment, remote);
      const Remote value_place =
          detail::value_of(detail::find_segment(fabric, remote.rank, remote.segment)->remote_notifications, id);
      const detail::PostWrite written{ends.remote, ends.local, from.address, bytes, post.timeout};
      return detail::post_as(post.sharing, queue, detail::PostWriteNotify{written, value_place, value});
    });
  }
  if (to.status != Status::ok) return to.status;
  if (place.status == Status::unavailable) {  // the bytes directly, the notification to a CPU
    const detail::QueuePlace queue = detail::find_queue(fabric, remote.rank, post.queue);
    if (queue.status != Status::ok) return queue.status;
    copy_bytes(scope, to.address, from.address, bytes);
    return detail::raise_for_cpu(scope, fabric, remote.rank, remote.segment, id, value, Order::after_writes, post);
  }
  const Status peer = detail::ask_status(scope, fabric, remote.rank);
  copy_bytes(scope, to.address, from.address, bytes);
  return detail::raise(scope, peer, place.notification, value, Order::after_writes, 0);
}

// --- Counted writes --------------------------------------------------------------------------------------------------------------

using CounterId = std::uint32_t;

namespace detail {

// One thread of each block. Adds a call, behind a fence. Of several blocks: this block's share; the shares of the calls before are
// all there. `call`: as begin_call() returned it before the bytes were copied.
struct SoleCall {};
template <class Scope>
GIGABAR_DEVICE SoleCall begin_call(const Scope&) {
  return {};
}
template <class Own>
GIGABAR_DEVICE BlocksCall begin_call(const BasicBlocks<Own>& blocks) {
  return blocks.own().rank() == 0 ? begin(blocks.place()) : BlocksCall{};
}
template <class Scope>
GIGABAR_DEVICE Status count_call(const Scope&, SoleCall, std::uint64_t* counter) {
  fence_system();
  add_system(counter, kWholeCall);
  return Status::ok;
}
template <class Own>
GIGABAR_DEVICE Status count_call(const BasicBlocks<Own>& blocks, const BlocksCall& call, std::uint64_t* counter) {
  // The fence follows the load that has seen the turn: it acquires what the other blocks have released, their additions.
  if (!is_turn(blocks.place(), call)) return Status::timed_out;
  fence_system();
  add_system(counter, blocks.place().share);
  arrive(blocks.place(), call);
  return Status::ok;
}

}  // namespace detail

// Writes, then counts: `counter` of this rank at the peer goes up by one, once, when the bytes of the whole scope are in place
// there. Each pair of ranks has its own counters (kCounterCount), which nothing but this function changes. Several blocks save most
// of a write_notify by one: no block waits for another, their fences overlap, and the last addition to arrive completes the call,
// whichever it is. blocks_for() says how many blocks a size is worth. One scope at a time uses a counter; it may change between two
// calls, behind a barrier. Errors: out_of_range (no such rank, segment, range or counter), unavailable (not load/store accessible,
// or the link has no atomics: use write_notify), peer_lost (it does no harm, and the call is counted), timed_out (another block did
// not come: not counted).
template <class Scope>
GIGABAR_DEVICE Status write_count(const Scope& scope, const DeviceFabric& fabric, LocalPlace local, RemotePlace remote,
                                  std::uint64_t bytes, CounterId counter) {
  const detail::Place from = detail::find_bytes(fabric, fabric.rank, local.segment, local.offset_bytes, bytes);
  if (from.status != Status::ok) return from.status;
  const detail::Place to = detail::find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, bytes);
  if (to.status != Status::ok) return to.status;
  if (counter >= kCounterCount) return Status::out_of_range;
  std::uint64_t* const counters = fabric.remote_counters[remote.rank];
  if (counters == nullptr) return Status::unavailable;
  const auto& own = detail::own_part(scope);
  const auto call = detail::begin_call(scope);
  Status status = detail::ask_status(scope, fabric, remote.rank);
  copy_bytes(scope, to.address, from.address, bytes);
  own.sync();
  if (own.rank() == 0) {
    const Status counted = detail::count_call(scope, call, counters + counter);
    if (counted != Status::ok) status = counted;
  }
  return detail::agree(own, status);
}

// --- Waiting ---------------------------------------------------------------------------------------------------------------------

// Waits until everything that was posted to the queue before, to all ranks, no longer uses local memory, and read bytes are in
// place. Load/store accessible peers have no queue: for them it only synchronises the threads of the scope.
// Errors: out_of_range, timed_out, and the status of the queue to a rank: peer_lost, device_error; it waits for the queues to the
// other ranks nevertheless.
template <class Scope>
GIGABAR_DEVICE Status wait(const Scope& scope, const DeviceFabric& fabric, QueueId queue, Timeout timeout) {
  if (fabric.queue_count != 0 && queue >= fabric.queue_count) return Status::out_of_range;
  const bool is_to_wait = detail::sync_all(scope) && scope.rank() == 0 && fabric.queue_count != 0;
  const Status status = is_to_wait ? detail::wait_all(fabric, queue, timeout) : Status::ok;
  return detail::agree(detail::patient(scope, timeout), status);
}

// Waits until everything that the scope's threads wrote to `rank` before is in place there.
// Errors: out_of_range, timed_out, peer_lost, device_error.
template <class Scope>
GIGABAR_DEVICE Status flush(const Scope& scope, const DeviceFabric& fabric, Rank rank, Timeout timeout) {
  if (rank >= fabric.rank_count) return Status::out_of_range;
  Status status = Status::ok;
  if (detail::sync_all(scope) && scope.rank() == 0) {
    status = peer_status(fabric, rank);
    fence_system();
    if (status == Status::ok && fabric.queues[rank] != nullptr) status = detail::flush_rank(fabric, rank, timeout);
  }
  return detail::agree(detail::patient(scope, timeout), status);
}

namespace detail {

// Whether a wait goes on (ok), and its deadline, by value: the caller's stays in registers. Not in place, so that what follows a
// poll is near to it: a warp that comes to code for the first time since long waits for the code.
struct Looked {
  Status status;
  Deadline deadline;
};
GIGABAR_DEVICE_CALLED Looked look_around(const std::uint32_t* peer, const std::uint32_t* lost_count, Deadline deadline) {
  const bool is_over = deadline.look();
  const bool is_lost = peer != nullptr ? status_at(peer) != Status::ok : is_over && load_relaxed(lost_count) != 0;
  return {is_lost ? Status::peer_lost : is_over ? Status::timed_out : Status::ok, deadline};
}

// One thread. Polls until `look` finds something. `peer`: the status of the rank that it waits for; null: any rank, with
// `lost_count`, the number of lost ranks. Both are read no more often than the clock, because each load would delay the next poll.
template <class Look>
GIGABAR_DEVICE Status await(const std::uint32_t* peer, const std::uint32_t* lost_count, Deadline& deadline, const Look& look) {
  if (deadline.tests_once()) {
    if (look()) return Status::ok;
    const Status status = look_around(peer, lost_count, deadline).status;
    return look() ? Status::ok : status;
  }
  while (true) {
    for (std::uint32_t polls = Deadline::kPollsPerLook; polls != 0; --polls) {
      if (look()) return Status::ok;
#if !defined(__CUDA_ARCH__)
      deadline.note_poll();
#endif
    }
    const Looked looked = look_around(peer, lost_count, deadline);
    deadline = looked.deadline;
    // A lost rank may have raised it just before it was lost.
    if (looked.status != Status::ok) return look() ? Status::ok : looked.status;
  }
}

// agree(), and a number from the thread of rank 0.
template <class Scope>
GIGABAR_DEVICE Status agree_on(const Scope& scope, Status status, std::uint32_t& number) {
  const std::uint64_t answer = scope.broadcast(std::uint64_t{static_cast<std::uint32_t>(status)} << 32 | number);
  number = static_cast<std::uint32_t>(answer);
  return is_broken(scope) ? Status::timed_out : static_cast<Status>(answer >> 32);
}

template <class Look>
GIGABAR_DEVICE Status await(const std::uint32_t* peer, const std::uint32_t* lost_count, Timeout timeout, const Look& look) {
  Deadline deadline(timeout);
  return await(peer, lost_count, deadline, look);
}

template <class Look>
GIGABAR_DEVICE Status await(const DeviceFabric& fabric, Rank from, Timeout timeout, const Look& look) {
  return await(from == kAnyRank ? nullptr : fabric.peer_status + from, fabric.peer_status + fabric.rank_count, timeout, look);
}

// await(), by a scope, for a notification of at least `least`. Returns its `value` and, unless it is null, its `payload`.
template <class Whole>
GIGABAR_DEVICE Status await_value(const Whole& whole, const std::uint32_t* peer, const std::uint32_t* lost_count,
                                  const Notification& notification, std::uint32_t least, Timeout timeout, std::uint32_t& value,
                                  std::uint64_t* payload) {
  const auto& scope = own_part(whole);
  Status status = Status::ok;
  std::uint32_t seen = 0;
  std::uint64_t carried = 0;
  if (scope.rank() == 0) {
    status = await(peer, lost_count, timeout, [&] {
      seen = payload == nullptr ? load_acquire(&notification.value) : load_notification(&notification, carried);
      return seen >= least;
    });
  }
  status = agree_on(scope, status, seen);
  if (payload != nullptr) carried = scope.broadcast(carried);
  if (status != Status::ok) return status;
  value = seen;
  if (payload != nullptr) *payload = carried;
  return status;
}

}  // namespace detail

// Waits until one of `count` notifications of this rank's segment, from `first` on, is raised; `found` is the lowest such id.
// `from` is the rank that raises them: when it is lost the wait ends with peer_lost. With kAnyRank the wait ends at its timeout,
// with peer_lost when some rank is lost and timed_out when none is. A raised notification takes precedence over any error.
// Errors: out_of_range, timed_out, peer_lost; unavailable (the segment notifies CPUs; so for all functions that take
// notifications).
template <class Scope>
GIGABAR_DEVICE Status notification_wait(const Scope& scope, const DeviceFabric& fabric, SegmentId segment, NotificationId first,
                                        std::uint32_t count, Timeout timeout, NotificationId& found, Rank from = kAnyRank) {
  const detail::NotificationPlace own = detail::find_notification(fabric, fabric.rank, segment, first);
  if (own.status != Status::ok) return own.status;
  if (count == 0 || count > fabric.notification_count - first) return Status::out_of_range;
  if (from != kAnyRank && from >= fabric.rank_count) return Status::out_of_range;
  Status status = Status::ok;
  std::uint32_t place = 0;
  if (scope.rank() == 0) {
    status = detail::await(fabric, from, timeout, [&] {
      for (place = 0; place < count; ++place) {
        if (load_acquire(&own.notification[place].value) != 0) return true;
      }
      return false;
    });
  }
  status = detail::agree_on(detail::patient(scope, timeout), status, place);
  if (status == Status::ok) found = first + place;
  return status;
}

// Waits until notification `id` of this rank's segment is at least `least`, for senders that raise it to growing numbers; `value`
// is its value then. It stays raised, so only the poll lies between one message and the next: the fastest wait. `payload` is the
// payload of that value; by a queue it may be that of a later value, which has not arrived yet. Before a change to smaller numbers
// reset the notification. `from` and errors: as notification_wait; invalid_argument (least 0).
template <class Scope>
GIGABAR_DEVICE Status notification_wait_until(const Scope& scope, const DeviceFabric& fabric, SegmentId segment, NotificationId id,
                                              std::uint32_t least, Timeout timeout, std::uint32_t& value, Rank from = kAnyRank,
                                              std::uint64_t* payload = nullptr) {
  if (least == 0) return Status::invalid_argument;
  const detail::NotificationPlace own = detail::find_notification(fabric, fabric.rank, segment, id);
  if (own.status != Status::ok) return own.status;
  if (from != kAnyRank && from >= fabric.rank_count) return Status::out_of_range;
  const std::uint32_t* const peer = from == kAnyRank ? nullptr : fabric.peer_status + from;
  return detail::await_value(scope, peer, fabric.peer_status + fabric.rank_count, *own.notification, least, timeout, value,
                             payload);
}

// Waits until `from` has completed `least` calls of write_count to `counter`, of those that the pair of ranks has ever made:
// numbers go on from kernel to kernel, and behind 2^32 - 1 comes 0; `least` is less than 2^31 ahead. `value` is the number of calls
// then, also when it timed out: with a timeout of 0 it is read. Errors: out_of_range (no such rank or counter), timed_out,
// peer_lost.
template <class Scope>
GIGABAR_DEVICE Status counter_wait(const Scope& scope, const DeviceFabric& fabric, Rank from, CounterId counter,
                                   std::uint32_t least, Timeout timeout, std::uint32_t& value) {
  if (from >= fabric.rank_count || counter >= kCounterCount) return Status::out_of_range;
  const auto& own = detail::own_part(scope);
  const std::uint64_t* const word = fabric.counters + std::size_t{from} * kCounterCount + counter;
  Status status = Status::ok;
  std::uint32_t seen = 0;
  if (own.rank() == 0) {
    status = detail::await(fabric, from, timeout, [&] {
      seen = static_cast<std::uint32_t>(load_acquire(word) >> 32);
      return static_cast<std::int32_t>(seen - least) >= 0;
    });
  }
  status = detail::agree_on(own, status, seen);
  value = seen;
  return status;
}

// Resets the notification to 0; `value` is its previous value, `payload` the payload of that value (by a queue it may be that of a
// later value). Errors: out_of_range.
template <class Scope>
GIGABAR_DEVICE Status notification_reset(const Scope& scope, const DeviceFabric& fabric, SegmentId segment, NotificationId id,
                                         std::uint32_t& value, std::uint64_t* payload = nullptr) {
  const detail::NotificationPlace own = detail::find_notification(fabric, fabric.rank, segment, id);
  if (own.status != Status::ok) return own.status;
  std::uint32_t old = 0;
  std::uint64_t carried = 0;
  // No block still waits for the value.
  if (detail::meet_blocks(scope) && scope.rank() == 0) {
    if (payload == nullptr) {
      old = exchange_acquire(&own.notification->value, 0);
    } else {
      do {
        old = detail::load_notification(own.notification, carried);
      } while (!compare_swap_acquire(&own.notification->value, old, 0));
    }
  }
  value = scope.broadcast(old);
  if (payload != nullptr) *payload = scope.broadcast(carried);
  return detail::is_broken(scope) ? Status::timed_out : Status::ok;
}

// --- Atomics ---------------------------------------------------------------------------------------------------------------------

namespace detail {

// The two atomics: by this GPU where the word is load/store accessible, else by a queue.
struct FetchAdd {
  std::uint64_t value;

  GIGABAR_DEVICE std::uint64_t operate(std::uint64_t* word) const { return fetch_add_system(word, value); }
  template <Sharing S>
  GIGABAR_DEVICE Status post(Queue& queue, Remote word, Local result, Ticket& ticket, Timeout timeout) const {
    return device::post_fetch_add<S>(Thread{}, queue, word, value, result, ticket, timeout);
  }
};
struct CompareSwap {
  std::uint64_t expected, desired;

  GIGABAR_DEVICE std::uint64_t operate(std::uint64_t* word) const { return compare_swap_system(word, expected, desired); }
  template <Sharing S>
  GIGABAR_DEVICE Status post(Queue& queue, Remote word, Local result, Ticket& ticket, Timeout timeout) const {
    return device::post_compare_swap<S>(Thread{}, queue, word, expected, desired, result, ticket, timeout);
  }
};

// By this GPU's atomics, to a rank whose status is `peer`.
template <class Scope, class Change>
GIGABAR_DEVICE Status change_in_reach(const Scope& scope, Status peer, std::uint64_t* word, const Change& change,
                                      std::uint64_t& old) {
  const std::uint64_t answer = scope.rank() == 0 ? change.operate(word) : 0;
  const Status status = agree(scope, peer);
  old = scope.broadcast(answer);
  return status;
}

// One thread. `kept` has the result words.
template <Sharing S, class Change>
GIGABAR_DEVICE Status change_by_queue(Queue& queue, PeerQueue& kept, Remote word, const Change& change, Timeout timeout,
                                      std::uint64_t& old) {
  ResultWord result;
  Status status = hold_result<S>(queue, kept, timeout, result);
  if (status != Status::ok) return status;
  const Local place = result.place(kept);
  Ticket ticket;
  status = change.template post<S>(queue, word, place, ticket, timeout);
  if (status == Status::ok) {
    status = device::wait<S>(Thread{}, queue, ticket, timeout);
    if (status != Status::ok) {
      abandon_result<S>(kept, result, ticket);
      return status;
    }
    old = load_acquire(reinterpret_cast<const std::uint64_t*>(place.address));
  }
  release_result(kept, result);
  return status;
}

template <class Scope, class Change>
GIGABAR_DEVICE Status change_word(const Scope& scope, const DeviceFabric& fabric, RemotePlace remote, Timeout timeout,
                                  QueueId queue_id, std::uint64_t& old, const Change& change) {
  if (remote.offset_bytes % sizeof old != 0) return Status::invalid_argument;
  const Place place = find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, sizeof old);
  if (place.status == Status::ok) {
    if (!find_segment(fabric, remote.rank, remote.segment)->has_atomics) return Status::unavailable;
    auto* const word = reinterpret_cast<std::uint64_t*>(place.address);
    return change_in_reach(scope, ask_status(scope, fabric, remote.rank), word, change, old);
  }
  if (place.status != Status::unavailable) return place.status;
  std::uint64_t answer = 0;
  const Status status = by_queue(scope, fabric, remote.rank, queue_id, timeout, [&](PeerQueue& queue) {
    const Remote word = behind(find_segment(fabric, remote.rank, remote.segment)->remote, remote.offset_bytes);
    return change_by_queue<Sharing::device>(queue.queue, queue, word, change, timeout, answer);
  });
  old = scope.broadcast(answer);
  return status;
}

}  // namespace detail

// Changes 8 aligned bytes; `old` is the value before. Atomic among all kernels that access the word directly, or among all that use
// queues; not between the two, nor with CPUs. Over a link without native atomics (most pairs over PCIe) direct access is not atomic
// at all: unavailable, and DeviceReach::why_no_atomics has the reason. Other errors: as write; invalid_argument (not a multiple of
// 8), timed_out (the operation may or may not be done).
template <class Scope>
GIGABAR_DEVICE Status atomic_fetch_add(const Scope& scope, const DeviceFabric& fabric, RemotePlace remote, std::uint64_t value,
                                       Timeout timeout, std::uint64_t& old, QueueId queue = 0) {
  return detail::change_word(scope, fabric, remote, timeout, queue, old, detail::FetchAdd{value});
}

template <class Scope>
GIGABAR_DEVICE Status compare_swap(const Scope& scope, const DeviceFabric& fabric, RemotePlace remote, std::uint64_t expected,
                                   std::uint64_t desired, Timeout timeout, std::uint64_t& old, QueueId queue = 0) {
  return detail::change_word(scope, fabric, remote, timeout, queue, old, detail::CompareSwap{expected, desired});
}

// --- Barrier ---------------------------------------------------------------------------------------------------------------------

namespace detail {

// One thread. Stores the barrier's number at a rank, for round `round`. `words`: that rank's words, if they are load/store
// accessible.
GIGABAR_DEVICE Status tell_barrier(const DeviceFabric& fabric, Rank rank, std::uint64_t* words, std::uint32_t round,
                                   std::uint64_t number, Timeout timeout) {
  if (words != nullptr) {
    store_relaxed(words + round, number);
    return Status::ok;
  }
  const QueuePlace place = find_queue(fabric, rank, 0);
  if (place.status != Status::ok) return place.status;
  Ticket ticket;
  return device::post_inline_write<Sharing::device>(Thread{}, place.queue->queue,
                                                    behind(place.queue->barrier_words, sizeof number * std::uint64_t{round}),
                                                    inline_value(number), ticket, timeout);
}

// One thread. Counts only grow, and the rank that stores in a round is never more than one barrier ahead.
GIGABAR_DEVICE Status await_barrier(const DeviceFabric& fabric, const std::uint64_t* word, std::uint64_t number,
                                    Deadline& deadline) {
  while (load_acquire(word) < number) {
    const bool is_over = deadline.has_passed();
    if (deadline.has_looked() && load_relaxed(fabric.peer_status + fabric.rank_count) != 0) return Status::peer_lost;
    if (is_over) return Status::timed_out;
  }
  return Status::ok;
}

// One thread. Waits until everything that was posted to queues before is in place.
GIGABAR_DEVICE Status flush_all(const DeviceFabric& fabric, Timeout timeout) {
  for (Rank rank = 0; fabric.queue_count != 0 && rank < fabric.rank_count; ++rank) {
    if (fabric.queues[rank] == nullptr) continue;
    const Status flushed = flush_rank(fabric, rank, timeout);
    if (flushed != Status::ok) return flushed;
  }
  return Status::ok;
}

// One thread. In round r a rank stores at the rank 2^r further. The tables are loaded before a fence, together: after it each load
// would be a separate round trip to the GPU's L2.
GIGABAR_DEVICE_CALLED Status meet_all(const DeviceFabric& fabric, Timeout timeout) {
  KernelWords& words = *fabric.words;
  const std::uint64_t number = words.barrier_count + 1;
  std::uint32_t done = words.barrier_step;  // a repeated call continues there: other ranks may already have completed the barrier
  const std::uint64_t* const own = fabric.barrier_words[fabric.rank];
  Deadline deadline(timeout);
  if (done == 0) {
    if (const Status flushed = flush_all(fabric, timeout); flushed != Status::ok) return flushed;
    words.barrier_step = done = 1;
  }
  std::uint32_t round = 0;
  for (std::uint64_t step = 1; step < fabric.rank_count; step *= 2, ++round) {
    if (done < round + 2) {
      const auto told = static_cast<Rank>((fabric.rank + step) % fabric.rank_count);
      std::uint64_t* const there = fabric.barrier_words[told];
      // Each fence passes on what the previous rounds have made visible.
      fence_system();
      const Status status = tell_barrier(fabric, told, there, round, number, timeout);
      if (status != Status::ok) return status;
      words.barrier_step = done = round + 2;
    }
    const Status status = await_barrier(fabric, own + round, number, deadline);
    if (status != Status::ok) return status;
  }
  words.barrier_step = 0;
  words.barrier_count = number;
  return Status::ok;
}

}  // namespace detail

// Waits until one scope of every rank has arrived. After it, everything that these scopes wrote before, to any rank, is visible.
// One scope of a rank at a time. After timed_out call it again to continue; it covers what was written before the first call. Takes
// ceil(log2 n) rounds.
// Errors: timed_out, peer_lost (a rank of the job is lost: the barrier cannot end), unavailable (a rank is not load/store
// accessible, and has no queue).
template <class Scope>
GIGABAR_DEVICE Status barrier(const Scope& scope, const DeviceFabric& fabric, Timeout timeout) {
  const bool is_to_meet = detail::sync_all(scope) && scope.rank() == 0;
  const Status status = is_to_meet ? detail::meet_all(fabric, timeout) : Status::ok;
  return detail::agree(detail::patient(scope, timeout), status);
}

}  // namespace gigabar::inline v0::device
