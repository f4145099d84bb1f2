// SPDX-License-Identifier: Apache-2.0
// RDMA that a GPU posts: one queue is one queue pair to one peer, of an mlx5 HCA or of a software model of one.
//
// A post reserves slots of the ring, fills them, waits for its turn, and rings the doorbell. Its ticket names the index behind its
// last WQE. A ticket is done when the HCA has completed everything before that index. Every function is a template of the sharing
// of the queue, and takes the calling scope.
//
// Ordering, with the reasons (PTX ISA, "Memory Consistency Model"):
// 1. Payload and WQEs before doorbell. A thread's stores, then the scope's barrier (bar.sync, bar.warp.sync), reach the leader in
//    causality order. The leader's fence.acq_rel.sys orders them before the record, and a second one orders the record before the
//    doorbell's st.mmio (a software HCA waits for the record instead): an HCA that reads after the doorbell finds all of it. The
//    fence must be .sys, because the reader is outside the GPU. It waits for all stores in flight, also over NVLink (1.6 us on two
//    H100, 0.5 on one). One thread that has the queue to itself and writes at most 8 inline bytes to a software HCA therefore posts
//    sequence-tagged WQEs without a fence; it must itself fence other stores that have to be visible with them. Payload that other
//    threads wrote must have been met first, by a barrier or by an acquire; one fence covers it, because fences are cumulative.
// 2. Turns. Slots are published in the order of reservation: the post whose reservation begins at `ready` has the turn. It passes
//    the turn on by a release of `ready` (.cta or .gpu, as the sharing says) after its WQEs. A post that rings for others has taken
//    all their turns by acquire, so its .sys fence covers their WQEs too. The turn acts as the lock.
// 3. Slots before reuse. A completion is read by ld.acquire.sys, passed on by a release of `completed`, and taken by an acquire
//    before a slot is reserved again: a new WQE is never stored over one that the HCA has yet to read.
// 4. Within one queue the HCA executes in order: a notification that follows its payload in the ring follows it at the target. It
//    does not wait for reads and atomics, whose results may arrive later: Fence::before does.
// 5. A read's completion can be visible before its data when they take different ways through PCIe. Where the host sets
//    confirms_reads, each read is followed by a fenced DUMP of its destination, and the ticket is behind the DUMP.
// 6. When a ticket is done, local memory of its operations may be used again, and results of reads and atomics are visible to the
//    scope's threads. It says nothing about the target: only a notification seen there does.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gigabar/device/memory.hpp"
#include "gigabar/device/mlx5.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/device/sharing.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0::device {

// --- Words of a post -------------------------------------------------------------------------------------------------------------

// Memory of the peer and memory of this side, as the HCA addresses them.
struct Remote {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};
struct Local {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

// Up to 28 bytes that travel inside the WQE, in the order of memory.
struct Inline {
  std::uint64_t words[4] = {};
  std::uint32_t bytes = 0;
};
// The low `bytes`, 1 to 8, of a value.
GIGABAR_DEVICE Inline inline_value(std::uint64_t value, std::uint32_t bytes = sizeof(std::uint64_t)) {
  return {{value, 0, 0, 0}, bytes};
}

// Whether a post begins only when earlier reads and atomics of its queue have their results in place.
enum class Fence : std::uint8_t { none, before };

// The index behind the last WQE of a post. Counts from the queue's first index; never reused.
struct Ticket {
  std::uint64_t index = 0;
};

// --- The queue -------------------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kMaxDepth = 32768;  // so that 16 bits of an index distinguish any two WQEs of the ring
inline constexpr std::uint32_t kRingBatch = 32;    // the doorbell is rung at least once in this many slots

// Constants that the host sets before a kernel gets the queue; device addresses.
struct QueueSetup {
  mlx5::Block* ring = nullptr;
  std::uint32_t* doorbell_record = nullptr;  // the send queue's word
  std::uint64_t* doorbell = nullptr;         // the HCA's register, or a word that a CPU polls
  mlx5::Cqe* cq = nullptr;                   // set to kCqeUnwritten by the host
  std::uint32_t* cq_record = nullptr;        // consumer index for an HCA that checks overruns; null: it ignores them
  std::uint32_t depth = 0;                   // WQEs, a power of two, at most kMaxDepth
  std::uint32_t cq_depth = 0;                // CQEs, a power of two, at least `depth`; collapsed: 1
  std::uint32_t number = 0;                  // of the queue pair
  bool is_collapsed = false;                 // the HCA writes every CQE over the one before
  bool confirms_reads = false;
  // The HCA rereads a late record, and accepts sequence-tagged WQEs (mlx5.hpp): fewer fences, or none.
  bool waits_for_stores = false;
};

// In memory that the kernel can access, best of its own GPU; no HCA reads it. Made by the host. Words that different threads write
// are 128 bytes apart, the unit of a GPU's cache.
// State: indexes count WQEs and never wrap. All begin at the first index, whose low 16 bits are the HCA's first index.
struct alignas(128) Queue : QueueSetup {
  alignas(128) std::uint64_t reserved = 0;  // behind the last reserved
  alignas(128) std::uint64_t ready = 0;     // behind the last published
  alignas(128) std::uint64_t completed = 0;
  alignas(128) std::uint32_t lock = 0;  // held by the reader of an ordinary CQ
  std::uint64_t consumed = 0;           // CQEs of it, under the lock
  alignas(128) std::uint64_t error = 0;
};

namespace detail {

// To or from the registers of a thread that has the queue to itself: everything that it has reserved is also published. Word by
// word, because a copy of the whole would also load the bytes between them into registers.
GIGABAR_DEVICE void copy_state(Queue& to, const Queue& from) {
  to.reserved = to.ready = from.reserved;
  to.completed = from.completed;
  to.consumed = from.consumed;
  to.error = from.error;
}

}  // namespace detail

// The first failure that the HCA reported, kept until the host makes the queue anew. The HCA executes nothing of the queue after
// it.
struct QueueError {
  bool is_set = false;
  mlx5::Syndrome syndrome = mlx5::Syndrome::none;
  std::uint8_t vendor_syndrome = 0;
  std::uint16_t wqe_index = 0;  // the low 16 bits of it
};

namespace detail {

inline constexpr std::uint64_t kErrorSet = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kFailure = std::uint64_t{1} << 63;  // a status stands where an index would

// The peer reported it, or does not answer: peer_lost, the connection must be made anew. Errors of this side, and unknown ones:
// device_error.
GIGABAR_DEVICE Status status_of_error(std::uint64_t error) {
  switch (static_cast<mlx5::Syndrome>(error & 0xff)) {
    case mlx5::Syndrome::flushed:
    case mlx5::Syndrome::remote_request:
    case mlx5::Syndrome::remote_access:
    case mlx5::Syndrome::remote_operation:
    case mlx5::Syndrome::retries_exceeded:
    case mlx5::Syndrome::not_ready_retries_exceeded:
    case mlx5::Syndrome::remote_aborted: return Status::peer_lost;
    default: return Status::device_error;
  }
}

// --- Completions -----------------------------------------------------------------------------------------------------------------

// Puts the queue in error, unless it already is. The fence orders earlier completions before the error for every thread that sees
// it.
template <Sharing S>
GIGABAR_DEVICE void set_error(Queue& queue, std::uint64_t error_word, std::uint16_t wqe_index) {
  const std::uint64_t error = kErrorSet | std::uint64_t{wqe_index} << 16 |
                              std::uint64_t{mlx5::cqe_vendor_syndrome(error_word)} << 8 | mlx5::cqe_syndrome(error_word);
  fence_device();
  Shared<S>::compare_swap(&queue.error, 0, error);
}

// Everything before `index16` is completed: widens the 16 bits, which are less than a lap behind. False when they are not.
// Between the load of `completed` and that of a collapsed CQE other threads may have completed more than a lap. A second load of
// `completed` shows that; the CQE is then the older one.
template <Sharing S>
GIGABAR_DEVICE bool complete_up_to(Queue& queue, std::uint64_t completed, std::uint32_t index16) {
  std::uint64_t advance = (index16 - completed) & 0xffff;
  if (advance > queue.depth) {
    const std::uint64_t completed_by_others = Shared<S>::load(&queue.completed);
    if (completed_by_others == completed) return false;
    completed = completed_by_others;
    advance = (index16 - completed) & 0xffff;
    if (advance > queue.depth) return true;
  }
  if (advance != 0) Shared<S>::raise(&queue.completed, completed + advance);
  return true;
}

// Handles one CQE. `completed` was read before it, so that the CQE is not older. A flushed WQE does not prove that those before it
// succeeded.
template <Sharing S>
GIGABAR_DEVICE void take_cqe(Queue& queue, const mlx5::Cqe& cqe, std::uint64_t last_word, std::uint64_t completed) {
  const std::uint16_t wqe_index = mlx5::cqe_wqe_index(last_word);
  if (mlx5::cqe_opcode(last_word) != mlx5::CqeOpcode::request) {
    const std::uint64_t error_word = load_relaxed(&cqe.words[mlx5::kCqeErrorWord]);
    const bool is_flushed = mlx5::cqe_syndrome(error_word) == static_cast<std::uint8_t>(mlx5::Syndrome::flushed);
    if (!is_flushed) complete_up_to<S>(queue, completed, wqe_index);
    set_error<S>(queue, error_word, wqe_index);
  } else if (!complete_up_to<S>(queue, completed, wqe_index + 1U)) {
    set_error<S>(queue, mlx5::cqe_error_word(static_cast<std::uint8_t>(mlx5::Syndrome::bad_response), 0), wqe_index);
  }
}

template <Sharing S>
GIGABAR_DEVICE void poll_collapsed(Queue& queue) {
  const std::uint64_t completed = Shared<S>::load(&queue.completed);
  const std::uint64_t last_word = load_acquire(&queue.cq->words[mlx5::kCqeLastWord]);
  if (mlx5::cqe_opcode(last_word) != mlx5::CqeOpcode::invalid) take_cqe<S>(queue, *queue.cq, last_word, completed);
}

// Takes the CQEs that have arrived, at most a batch. A thread that finds the lock taken leaves them to its holder.
template <Sharing S>
GIGABAR_DEVICE void poll_ordinary(Queue& queue) {
  if (!Shared<S>::try_lock(&queue.lock)) return;
  std::uint64_t consumed = queue.consumed;
  for (std::uint32_t i = 0; i < kRingBatch; ++i) {
    const mlx5::Cqe& cqe = queue.cq[consumed & (queue.cq_depth - 1)];
    const std::uint64_t last_word = load_acquire(&cqe.words[mlx5::kCqeLastWord]);
    const std::uint32_t owner_of_lap = (consumed & queue.cq_depth) != 0 ? 1 : 0;
    if (mlx5::cqe_opcode(last_word) == mlx5::CqeOpcode::invalid || mlx5::cqe_owner(last_word) != owner_of_lap) break;
    take_cqe<S>(queue, cqe, last_word, Shared<S>::load(&queue.completed));
    ++consumed;
  }
  if (queue.cq_record != nullptr && consumed != queue.consumed) {
    store_relaxed(queue.cq_record, mlx5::big_endian(static_cast<std::uint32_t>(consumed & 0xff'ffff)));
  }
  queue.consumed = consumed;
  Shared<S>::unlock(&queue.lock);
}

template <Sharing S>
GIGABAR_DEVICE void poll_cq(Queue& queue) {
  if (queue.is_collapsed)
    poll_collapsed<S>(queue);
  else
    poll_ordinary<S>(queue);
}

// Whether the wait for a ticket is over, and its status. The error is read first, so that completions before it are seen.
template <Sharing S>
GIGABAR_DEVICE bool is_settled(Queue& queue, Ticket ticket, Status& status) {
  const std::uint64_t error = Shared<S>::load(&queue.error);
  if (Shared<S>::load(&queue.completed) >= ticket.index) {
    status = Status::ok;
    return true;
  }
  if (error == 0) return false;
  status = status_of_error(error);
  return true;
}

template <Sharing S>
GIGABAR_DEVICE Status wait_alone(Queue& queue, Ticket ticket, Timeout timeout) {
  Status status = Status::ok;
  Deadline deadline(timeout);
  while (!is_settled<S>(queue, ticket, status)) {
    poll_cq<S>(queue);
    if (is_settled<S>(queue, ticket, status)) break;
    if (deadline.has_passed()) return Status::timed_out;
  }
  return status;
}

// Gives the status of the thread of rank 0 to all threads, which then see what it has seen; the others pass ok. One barrier as long
// as the status is ok.
template <class Scope>
GIGABAR_DEVICE Status agree(const Scope& scope, Status status) {
  if (!scope.any(status != Status::ok)) return Status::ok;
  const auto agreed = static_cast<Status>(scope.broadcast(static_cast<std::uint32_t>(status)));  // warps broadcast no enumeration
  return is_broken(scope) ? Status::timed_out : agreed;
}

// --- Posting ---------------------------------------------------------------------------------------------------------------------

// Returns the first of `count` slots, or kFailure and the status; then nothing is reserved. `completed` is read before `reserved`,
// so `reserved` is never behind it.
template <Sharing S>
GIGABAR_DEVICE std::uint64_t reserve(Queue& queue, std::uint64_t count, Timeout timeout) {
  if (count > queue.depth) return kFailure | static_cast<std::uint64_t>(Status::invalid_argument);
  Deadline deadline(timeout);
  bool is_last_look = false;
  while (true) {
    // Loaded together: each alone takes a round trip to the GPU's L2.
    const std::uint64_t error = Shared<S>::load(&queue.error);
    const std::uint64_t completed = Shared<S>::load(&queue.completed);
    const std::uint64_t first = Shared<S>::load(&queue.reserved);
    if (error != 0) return kFailure | static_cast<std::uint64_t>(status_of_error(error));
    if (first + count - completed <= queue.depth) {
      if (Shared<S>::compare_swap(&queue.reserved, first, first + count)) return first;
      continue;  // another thread has reserved meanwhile
    }
    if (is_last_look) return kFailure | static_cast<std::uint64_t>(Status::timed_out);
    poll_cq<S>(queue);
    is_last_look = deadline.has_passed();
  }
}

// See "Ordering", 1. `is_sequence_tagged`: all WQEs since the last doorbell up to `end` are sequence-tagged.
GIGABAR_DEVICE void ring_doorbell(Queue& queue, std::uint64_t end, bool is_sequence_tagged) {
  if (!is_sequence_tagged) fence_system();
  store_relaxed(queue.doorbell_record, mlx5::doorbell_record(end));
  if (!queue.waits_for_stores) fence_system();
  store_register(queue.doorbell, mlx5::doorbell(end, queue.number));
}

// Waits for the turn without a deadline, because the posts before it only have to store WQEs and to ring; a post that gave up here
// would leave a hole in the ring. When there are later reservations, the last of them rings for all.
template <Sharing S>
GIGABAR_DEVICE void publish(Queue& queue, std::uint64_t first, std::uint64_t end, bool is_sequence_tagged) {
  if constexpr (S == Sharing::exclusive) {
    ring_doorbell(queue, end, is_sequence_tagged);
  } else {
    while (Shared<S>::load(&queue.ready) != first) cpu_relax();
    const bool is_last = Shared<S>::load(&queue.reserved) == end;
    const bool ends_batch = first / kRingBatch != end / kRingBatch;
    if (is_last || ends_batch) ring_doorbell(queue, end, false);
  }
  Shared<S>::store(&queue.ready, end);
}

// The common part of all posts. Each thread of the scope has `per_thread` WQEs of its own: fill(index of the first, flags of the
// last) stores them and returns whether the arguments were good; for bad ones it stores NOPs. Only the last WQE of all requests a
// CQE. `is_sequence_tagged`: the good WQEs are sequence-tagged.
template <Sharing S, class Scope, class Fill>
GIGABAR_DEVICE Status post(const Scope& scope, Queue& queue, std::uint32_t per_thread, Ticket& ticket, Timeout timeout,
                           const Fill& fill, bool is_sequence_tagged = false) {
  const std::uint64_t count = std::uint64_t{per_thread} * scope.size();
  std::uint64_t first = 0;
  if (scope.rank() == 0) first = reserve<S>(queue, count, timeout);
  first = patient(scope, timeout).broadcast(first);
  if ((first & kFailure) != 0) return static_cast<Status>(first & 0xff);
  const std::uint8_t last_flags = scope.rank() + 1 == scope.size() ? mlx5::kCqUpdate : std::uint8_t{0};
  const bool is_good = fill(first + std::uint64_t{per_thread} * scope.rank(), last_flags);
  scope.sync();
  if (scope.rank() == 0) publish<S>(queue, first, first + count, is_sequence_tagged && is_good);
  ticket.index = first + count;
  return is_good ? Status::ok : Status::invalid_argument;
}

GIGABAR_DEVICE mlx5::Segment* slot(const Queue& queue, std::uint64_t index) {
  return queue.ring[index & (queue.depth - 1)].segments;
}
GIGABAR_DEVICE std::uint8_t flags_of(Fence fence) { return fence == Fence::before ? mlx5::kFence : std::uint8_t{0}; }
GIGABAR_DEVICE std::uint8_t with(std::uint8_t flags, std::uint8_t others) { return static_cast<std::uint8_t>(flags | others); }

GIGABAR_DEVICE void fill_nop(Queue& queue, std::uint64_t index, std::uint8_t flags) {
  mlx5::store_segment(slot(queue, index), mlx5::control_segment(index, mlx5::Opcode::nop, queue.number, 1, flags));
}

// A write or a read of a range. For 0 bytes a NOP, because there is no data segment then.
GIGABAR_DEVICE void fill_transfer(Queue& queue, std::uint64_t index, mlx5::Opcode opcode, Remote remote, Local local,
                                  std::uint32_t bytes, std::uint8_t flags) {
  if (bytes == 0) return fill_nop(queue, index, flags);
  mlx5::Segment* segments = slot(queue, index);
  mlx5::store_segment(&segments[0], mlx5::control_segment(index, opcode, queue.number, 3, flags));
  mlx5::store_segment(&segments[1], mlx5::remote_segment(remote.address, remote.key));
  mlx5::store_segment(&segments[2], mlx5::data_segment(local.address, local.key, bytes));
}

// Whether a post of this many inline bytes, and a notification, needs no fence. See "Ordering", 1.
template <Sharing S, class Scope>
GIGABAR_DEVICE bool is_to_tag(const Queue& queue, std::uint32_t bytes) {
  if constexpr (S == Sharing::exclusive && std::is_same_v<Scope, Thread>) {
    return queue.waits_for_stores && bytes != 0 && bytes <= mlx5::kMaxTaggedBytes;
  } else {
    return false;
  }
}

GIGABAR_DEVICE void fill_tagged(Queue& queue, std::uint64_t index, Remote remote, const Inline& payload, std::uint8_t flags) {
  mlx5::Segment* segments = slot(queue, index);
  mlx5::Segment control = mlx5::control_segment(index, mlx5::Opcode::rdma_write, queue.number, 3, flags);
  control.words[0] |= mlx5::big_endian(mlx5::kSequenceTagFlag);
  mlx5::store_tagged(&segments[0], control, index);
  mlx5::store_tagged(&segments[1], mlx5::remote_segment(remote.address, remote.key), index);
  mlx5::store_tagged(&segments[2], mlx5::inline_segment(payload.words, payload.bytes), index);
}

GIGABAR_DEVICE void fill_inline(Queue& queue, std::uint64_t index, Remote remote, const Inline& payload, std::uint8_t flags,
                                bool is_sequence_tagged = false) {
  if (payload.bytes == 0) return fill_nop(queue, index, flags);
  if (is_sequence_tagged) return fill_tagged(queue, index, remote, payload, flags);
  mlx5::Segment* segments = slot(queue, index);
  const std::uint32_t count = mlx5::inline_segment_count(payload.bytes);
  mlx5::store_segment(&segments[0], mlx5::control_segment(index, mlx5::Opcode::rdma_write, queue.number, count, flags));
  mlx5::store_segment(&segments[1], mlx5::remote_segment(remote.address, remote.key));
  mlx5::store_segment(&segments[2], mlx5::inline_segment(payload.words, payload.bytes));
  if (count == 4) mlx5::store_segment(&segments[3], mlx5::inline_rest(payload.words));
}

GIGABAR_DEVICE void fill_atomic(Queue& queue, std::uint64_t index, mlx5::Opcode opcode, Remote remote, std::uint64_t swap_or_add,
                                std::uint64_t compare, Local result, std::uint8_t flags) {
  mlx5::Segment* segments = slot(queue, index);
  mlx5::store_segment(&segments[0], mlx5::control_segment(index, opcode, queue.number, 4, flags));
  mlx5::store_segment(&segments[1], mlx5::remote_segment(remote.address, remote.key));
  mlx5::store_segment(&segments[2], mlx5::atomic_segment(swap_or_add, compare));
  mlx5::store_segment(&segments[3], mlx5::data_segment(result.address, result.key, sizeof(std::uint64_t)));
}

GIGABAR_DEVICE void fill_dump(Queue& queue, std::uint64_t index, Local local, std::uint32_t bytes, std::uint8_t flags) {
  if (bytes == 0) return fill_nop(queue, index, flags);
  mlx5::Segment* segments = slot(queue, index);
  mlx5::store_segment(&segments[0], mlx5::control_segment(index, mlx5::Opcode::dump, queue.number, 2, flags));
  mlx5::store_segment(&segments[1], mlx5::data_segment(local.address, local.key, bytes));
}

GIGABAR_DEVICE bool is_good_notification(Remote place) { return place.address % sizeof(std::uint32_t) == 0; }

// The notification's word, after the payload in the slot before.
GIGABAR_DEVICE void fill_notification(Queue& queue, std::uint64_t index, Remote place, std::uint32_t value, std::uint8_t flags,
                                      bool is_sequence_tagged = false) {
  fill_inline(queue, index, place, inline_value(value, sizeof value), flags, is_sequence_tagged);
}

// A pair of NOPs, in place of a pair with bad arguments.
GIGABAR_DEVICE bool refuse_pair(Queue& queue, std::uint64_t index, std::uint8_t last_flags) {
  fill_nop(queue, index, 0);
  fill_nop(queue, index + 1, last_flags);
  return false;
}
GIGABAR_DEVICE bool refuse(Queue& queue, std::uint64_t index, std::uint8_t last_flags) {
  fill_nop(queue, index, last_flags);
  return false;
}

template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_atomic(const Scope& scope, Queue& queue, mlx5::Opcode opcode, Remote remote, std::uint64_t swap_or_add,
                                  std::uint64_t compare, Local result, Ticket& ticket, Timeout timeout, Fence fence) {
  return post<S>(scope, queue, 1, ticket, timeout, [&](std::uint64_t index, std::uint8_t last_flags) {
    if (remote.address % sizeof(std::uint64_t) != 0) return refuse(queue, index, last_flags);
    fill_atomic(queue, index, opcode, remote, swap_or_add, compare, result, with(last_flags, flags_of(fence)));
    return true;
  });
}

}  // namespace detail

// --- Posts -----------------------------------------------------------------------------------------------------------------------
// Scope: all its threads call together, each with an operation of its own: a warp posts 32 with one reservation, one publication
// and one doorbell. The ticket is the same for all, behind the last operation; `timeout` and `fence` are equal arguments. For a
// single operation one thread calls with the scope Thread.
//
// When the ring is full, a post polls the CQ until slots are free.
//
// Errors: invalid_argument (more WQEs than slots: all threads get it, nothing was posted; bytes above the limits or a word that is
// not aligned: this thread gets it, and a NOP was posted for it), timed_out (the ring stayed full; nothing was posted), peer_lost
// and device_error (the queue is in error, see error_of; nothing was posted).
//
// Threads: as S says. Cost: one or two system fences, or none ("Ordering", 1), and one store to a register per doorbell.

// Writes `bytes`, at most mlx5::kMaxBytes. 0 bytes move nothing, and also have a ticket.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_write(const Scope& scope, Queue& queue, Remote remote, Local local, std::uint32_t bytes, Ticket& ticket,
                                 Timeout timeout, Fence fence = Fence::none) {
  return detail::post<S>(scope, queue, 1, ticket, timeout, [&](std::uint64_t index, std::uint8_t last_flags) {
    if (bytes > mlx5::kMaxBytes) return detail::refuse(queue, index, last_flags);
    const std::uint8_t flags = detail::with(last_flags, detail::flags_of(fence));
    detail::fill_transfer(queue, index, mlx5::Opcode::rdma_write, remote, local, bytes, flags);
    return true;
  });
}

// Writes up to mlx5::kMaxInlineBytes that travel inside the WQE: no local memory is read later.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_inline_write(const Scope& scope, Queue& queue, Remote remote, const Inline& payload, Ticket& ticket,
                                        Timeout timeout, Fence fence = Fence::none) {
  const bool is_sequence_tagged = detail::is_to_tag<S, Scope>(queue, payload.bytes);
  const auto fill = [&](std::uint64_t index, std::uint8_t last_flags) {
    if (payload.bytes > mlx5::kMaxInlineBytes) return detail::refuse(queue, index, last_flags);
    detail::fill_inline(queue, index, remote, payload, detail::with(last_flags, detail::flags_of(fence)), is_sequence_tagged);
    return true;
  };
  return detail::post<S>(scope, queue, 1, ticket, timeout, fill, is_sequence_tagged);
}

// Writes, then sets the 4 aligned bytes at `notification` to `value`: a reader that sees the value (acquire) also sees the payload.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_write_notify(const Scope& scope, Queue& queue, Remote remote, Local local, std::uint32_t bytes,
                                        Remote notification, std::uint32_t value, Ticket& ticket, Timeout timeout,
                                        Fence fence = Fence::none) {
  return detail::post<S>(scope, queue, 2, ticket, timeout, [&](std::uint64_t index, std::uint8_t last_flags) {
    const bool is_good = bytes <= mlx5::kMaxBytes && detail::is_good_notification(notification);
    if (!is_good) return detail::refuse_pair(queue, index, last_flags);
    detail::fill_transfer(queue, index, mlx5::Opcode::rdma_write, remote, local, bytes, detail::flags_of(fence));
    detail::fill_notification(queue, index + 1, notification, value, last_flags);
    return true;
  });
}

template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_inline_write_notify(const Scope& scope, Queue& queue, Remote remote, const Inline& payload,
                                               Remote notification, std::uint32_t value, Ticket& ticket, Timeout timeout,
                                               Fence fence = Fence::none) {
  const bool is_sequence_tagged = detail::is_to_tag<S, Scope>(queue, payload.bytes);
  const auto fill = [&](std::uint64_t index, std::uint8_t last_flags) {
    const bool is_good = payload.bytes <= mlx5::kMaxInlineBytes && detail::is_good_notification(notification);
    if (!is_good) return detail::refuse_pair(queue, index, last_flags);
    detail::fill_inline(queue, index, remote, payload, detail::flags_of(fence), is_sequence_tagged);
    detail::fill_notification(queue, index + 1, notification, value, last_flags, is_sequence_tagged);
    return true;
  };
  return detail::post<S>(scope, queue, 2, ticket, timeout, fill, is_sequence_tagged);
}

// Reads `bytes`, at most mlx5::kMaxBytes, into `local`.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_read(const Scope& scope, Queue& queue, Remote remote, Local local, std::uint32_t bytes, Ticket& ticket,
                                Timeout timeout, Fence fence = Fence::none) {
  const std::uint32_t per_thread = queue.confirms_reads ? 2 : 1;
  return detail::post<S>(scope, queue, per_thread, ticket, timeout, [&](std::uint64_t index, std::uint8_t last_flags) {
    const bool is_good = bytes <= mlx5::kMaxBytes;
    const std::uint32_t count = is_good ? bytes : 0;
    const std::uint8_t flags = detail::flags_of(fence);
    const std::uint8_t read_flags = queue.confirms_reads ? flags : detail::with(flags, last_flags);
    detail::fill_transfer(queue, index, mlx5::Opcode::rdma_read, remote, local, count, read_flags);
    if (queue.confirms_reads) detail::fill_dump(queue, index + 1, local, count, detail::with(last_flags, mlx5::kFence));
    return is_good;
  });
}

// Changes 8 aligned bytes of the peer. The previous value is stored in 8 bytes at `result`, in this machine's byte order. Atomic
// among atomics of HCAs; when a GPU or a CPU also changes the word, a change of either may be lost.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_fetch_add(const Scope& scope, Queue& queue, Remote remote, std::uint64_t value, Local result,
                                     Ticket& ticket, Timeout timeout, Fence fence = Fence::none) {
  return detail::post_atomic<S>(scope, queue, mlx5::Opcode::fetch_add, remote, value, 0, result, ticket, timeout, fence);
}

template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_compare_swap(const Scope& scope, Queue& queue, Remote remote, std::uint64_t expected,
                                        std::uint64_t desired, Local result, Ticket& ticket, Timeout timeout,
                                        Fence fence = Fence::none) {
  return detail::post_atomic<S>(scope, queue, mlx5::Opcode::compare_swap, remote, desired, expected, result, ticket, timeout,
                                fence);
}

// Moves nothing. With a fence its ticket is done when the results of earlier reads and atomics are in place.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status post_nop(const Scope& scope, Queue& queue, Ticket& ticket, Timeout timeout, Fence fence = Fence::none) {
  return detail::post<S>(scope, queue, 1, ticket, timeout, [&](std::uint64_t index, std::uint8_t last_flags) {
    detail::fill_nop(queue, index, detail::with(last_flags, detail::flags_of(fence)));
    return true;
  });
}

// --- Waiting ---------------------------------------------------------------------------------------------------------------------
// Scope: all its threads call together with equal arguments. One thread polls; all get the answer and see the results.
// Threads: as S says.

// Polls the CQ once. Errors: peer_lost, device_error: the queue is in error.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status poll(const Scope& scope, Queue& queue) {
  Status status = Status::ok;
  if (scope.rank() == 0) {
    detail::poll_cq<S>(queue);
    const std::uint64_t error = Shared<S>::load(&queue.error);
    if (error != 0) status = detail::status_of_error(error);
  }
  return detail::agree(scope, status);
}

// Waits until everything before the ticket is completed. Errors: timed_out (nothing is lost: wait again), peer_lost and
// device_error (the queue was in error before that).
template <Sharing S, class Scope>
GIGABAR_DEVICE Status wait(const Scope& scope, Queue& queue, Ticket ticket, Timeout timeout) {
  Status status = Status::ok;
  if (scope.rank() == 0) status = detail::wait_alone<S>(queue, ticket, timeout);
  return detail::agree(detail::patient(scope, timeout), status);
}

// Waits for everything that any thread posted to the queue before. Errors: as wait.
template <Sharing S, class Scope>
GIGABAR_DEVICE Status flush(const Scope& scope, Queue& queue, Timeout timeout) {
  Status status = Status::ok;
  if (scope.rank() == 0) status = detail::wait_alone<S>(queue, Ticket{Shared<S>::load(&queue.reserved)}, timeout);
  return detail::agree(detail::patient(scope, timeout), status);
}

// Returns why the queue is in error, if it is. Threads: any that can access the queue. With a collapsed CQ the HCA overwrites the
// first failure with flushed requests, so the first failure may be missed.
template <Sharing S>
GIGABAR_DEVICE QueueError error_of(const Queue& queue) {
  const std::uint64_t error = Shared<S>::load(&queue.error);
  return {error != 0, static_cast<mlx5::Syndrome>(error & 0xff), static_cast<std::uint8_t>(error >> 8),
          static_cast<std::uint16_t>(error >> 16)};
}

}  // namespace gigabar::inline v0::device
