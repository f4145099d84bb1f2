// SPDX-License-Identifier: Apache-2.0
// Ranks that kernels reach by themselves: the words of gigabar/fabric.hpp, called on the GPU.
//
// A DeviceFabric is a plain handle that a DeviceSession (gigabar/device_session.hpp) fills; kernels get it by value. Every function
// takes a scope first (scope.hpp): all threads of it call together, with equal arguments, and get the same answer. Functions that
// wait take a time; 0 looks once. An error concerns one peer: operations with the others go on.
//
// Ordering. "Before" is happens-before: program order within a thread, scope.sync() or another barrier between threads.
// - write() gives the peer's memory its bytes in no order, at no certain time.
// - notify() and write_notify() raise a notification behind all bytes that their callers wrote before, to any peer in reach of
//   loads and stores, or by the same queue to the same rank: the callers meet at scope.sync(), and one thread's
//   fence.acq_rel.sys stands between and the store of the word. Who sees the word by notification_wait() (ld.acquire.sys) and
//   whoever that thread then meets sees the bytes. PTX: release and acquire patterns, with bar.sync as the barrier that carries
//   causality order between threads of a block.
// - notify() with Order::none leaves the fence out, which is most of its time: for a word that stands for itself.
// - Peers out of reach have queues (queue.hpp, with its own account of order): operations with them are posted, and wait() tells
//   when local memory may be used again. A queue keeps the order of its notifications behind its writes; two queues keep none.
// - flush() ends when all bytes that the callers wrote to the peer before are in its memory.
// - Atomics are relaxed: order with them by flush() before and an acquire after.
// - notification_reset() takes the word in one step (atom.exch.acquire.sys).
//
// Source: PTX ISA, "Memory Consistency Model"; the words: GASPI specification 17.1, "One-sided communication".
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/copy.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/queue.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/status.hpp"

namespace gigabar::device {

// 16 bytes that one store fills and one load sees whole.
struct alignas(16) Notification {
  std::uint64_t payload = 0;
  std::uint32_t unused = 0;
  std::uint32_t value = 0;  // 0: not raised
};

// A rank's segment as kernels of this GPU reach it.
struct DeviceSegment {
  std::byte* address = nullptr;           // null: not by loads and stores
  Notification* notifications = nullptr;  // that rank's, of this segment; likewise
  std::uint64_t bytes = 0;                // 0: the rank has no such segment
  // As work requests name them: of the rank's segment, of its notifications, and of a segment of this rank's own.
  Remote remote;
  Remote remote_notifications;
  std::uint32_t local_key = 0;
  bool has_atomics = false;  // by loads and stores: those of this GPU and of the rank's are atomic with each other
};

// So many atomics of a queue, less one, are under way at once; adapters take 16.
inline constexpr std::uint32_t kResultWords = 64;

// A queue to one rank, and what its operations need besides.
struct PeerQueue {
  Queue queue;
  Local results;         // kResultWords words of 8 bytes; the first takes what nobody reads
  Remote barrier_words;  // that rank's
  Remote flush_word;     // that rank's; nobody else changes it
  // A bit for each of those words that an atomic under way has; of atomics that nobody waits for any more; and the ticket behind
  // these.
  alignas(128) std::uint64_t held_results = 1;
  std::uint64_t abandoned_results = 0;
  std::uint64_t abandoned_until = 0;
};

// What only kernels of this GPU use, one at a time.
struct KernelWords {
  std::uint64_t barrier_count = 0;  // barriers that have ended
  std::uint32_t barrier_step = 0;   // of the one under way: 1 when everything was flushed, r + 2 when round r was told
};

struct DeviceFabric {
  Rank rank = 0;
  Rank rank_count = 0;
  std::uint32_t segment_count = 0;                // ids below it
  std::uint32_t notification_count = 0;           // of each segment
  std::uint32_t queue_count = 0;                  // to each rank that has queues
  const DeviceSegment* segments = nullptr;        // [rank * segment_count + id]
  std::uint64_t* const* barrier_words = nullptr;  // [rank]: that rank's, one per round; null: not by loads and stores
  PeerQueue* const* queues = nullptr;             // [rank]: its queue_count queues; null: it has none
  const std::uint32_t* peer_status = nullptr;     // [rank]: a Status; [rank_count]: how many ranks are lost. The host writes them.
  KernelWords* words = nullptr;
};

// Which queue an operation takes where there is one, how long it may wait for room in it, and who else uses that queue, to whatever
// rank, in this kernel: with Sharing::exclusive this scope alone, with Sharing::block this block, which saves a microsecond or two
// of a GPU's atomics. wait(), flush() and barrier() go to all queues as Sharing::device: with less, only this scope or this block
// calls them.
struct Post {
  QueueId queue = 0;
  Timeout timeout{10'000'000'000};
  Sharing sharing = Sharing::device;
};

enum class Order : std::uint8_t { after_writes, none };

namespace detail {

GIGABAR_DEVICE Status status_at(const std::uint32_t* peer) { return static_cast<Status>(load_relaxed(peer)); }

}  // namespace detail

// ok, or peer_lost since the host saw the rank end or break.
GIGABAR_DEVICE Status peer_status(const DeviceFabric& fabric, Rank rank) { return detail::status_at(fabric.peer_status + rank); }

namespace detail {

struct Place {
  Status status = Status::ok;
  std::byte* address = nullptr;
};

GIGABAR_DEVICE const DeviceSegment* find_segment(const DeviceFabric& fabric, Rank rank, SegmentId id) {
  if (rank >= fabric.rank_count || id >= fabric.segment_count) return nullptr;
  return fabric.segments + static_cast<std::size_t>(rank) * fabric.segment_count + id;
}

// Bytes of a segment, within its bounds. unavailable: there is such a place, but not in reach.
GIGABAR_DEVICE Place find_bytes(const DeviceFabric& fabric, Rank rank, SegmentId id, std::uint64_t offset, std::uint64_t bytes) {
  const DeviceSegment* const segment = find_segment(fabric, rank, id);
  if (segment == nullptr || offset > segment->bytes || bytes > segment->bytes - offset) return {Status::out_of_range};
  if (segment->address == nullptr) return {Status::unavailable};
  return {Status::ok, segment->address + offset};
}

struct NotificationPlace {
  Status status = Status::ok;
  Notification* notification = nullptr;
};

GIGABAR_DEVICE NotificationPlace find_notification(const DeviceFabric& fabric, Rank rank, SegmentId id,
                                                   NotificationId notification) {
  const DeviceSegment* const segment = find_segment(fabric, rank, id);
  if (segment == nullptr || segment->bytes == 0 || notification >= fabric.notification_count) return {Status::out_of_range};
  if (segment->notifications == nullptr) return {Status::unavailable};
  return {Status::ok, segment->notifications + notification};
}

// One load and one store of 16 bytes, so that the value never shows without its payload.
GIGABAR_DEVICE void store_notification(Notification* to, std::uint32_t value, std::uint64_t payload) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .b64 high; .reg .b128 all; mov.b64 high, {%3, %2}; mov.b128 all, {%1, high}; st.relaxed.sys.global.b128 [%0], all; }"
      :
      : "l"(to), "l"(payload), "r"(value), "r"(0)
      : "memory");
#else
  store_relaxed(&to->payload, payload);
  store_release(&to->value, value);
#endif
}

GIGABAR_DEVICE std::uint32_t load_notification(const Notification* from, std::uint64_t& payload) {
#if defined(__CUDA_ARCH__)
  std::uint64_t high;
  asm volatile("{ .reg .b128 all; ld.acquire.sys.global.b128 all, [%2]; mov.b128 {%0, %1}, all; }"
               : "=l"(payload), "=l"(high)
               : "l"(from)
               : "memory");
  return static_cast<std::uint32_t>(high >> 32);
#else
  const std::uint32_t value = load_acquire(&from->value);
  payload = load_relaxed(&from->payload);
  return value;
#endif
}

}  // namespace detail

// --- By queues -------------------------------------------------------------------------------------------------------------------

namespace detail {

struct QueuePlace {
  Status status = Status::ok;
  PeerQueue* queue = nullptr;
};

GIGABAR_DEVICE QueuePlace find_queue(const DeviceFabric& fabric, Rank rank, QueueId queue) {
  if (fabric.queues[rank] == nullptr) return {Status::unavailable};
  if (queue >= fabric.queue_count) return {Status::out_of_range};
  return {Status::ok, fabric.queues[rank] + queue};
}

GIGABAR_DEVICE Remote behind(Remote place, std::uint64_t offset) { return {place.address + offset, place.key}; }
GIGABAR_DEVICE Local behind(Local place, std::uint64_t offset) { return {place.address + offset, place.key}; }

// The value's word of a notification, and the payload's.
GIGABAR_DEVICE Remote value_of(Remote notifications, NotificationId id) {
  return behind(notifications, sizeof(Notification) * std::uint64_t{id} + 12);
}
GIGABAR_DEVICE Remote payload_of(Remote notifications, NotificationId id) {
  return behind(notifications, sizeof(Notification) * std::uint64_t{id});
}

// At most mlx5::kMostInlineBytes, as they lie in memory. The loops have constant bounds, so that the words lie in registers.
GIGABAR_DEVICE Inline gather(const std::byte* from, std::uint64_t count) {
  Inline payload{{}, static_cast<std::uint32_t>(count)};
  const bool is_of_words = (reinterpret_cast<std::uintptr_t>(from) | count) % sizeof(std::uint64_t) == 0;
  if (is_of_words) {
    for (std::uint32_t i = 0; i < mlx5::kMostInlineBytes / sizeof(std::uint64_t); ++i) {
      if (i < count / sizeof(std::uint64_t)) payload.words[i] = reinterpret_cast<const volatile std::uint64_t*>(from)[i];
    }
    return payload;
  }
  const auto* const bytes = reinterpret_cast<const volatile std::uint8_t*>(from);
  for (std::uint32_t i = 0; i < mlx5::kMostInlineBytes; ++i) {
    if (i < count) payload.words[i / 8] |= std::uint64_t{bytes[i]} << i % 8 * 8;
  }
  return payload;
}

// As many work requests as it takes: post(where a part begins, its bytes), until one fails.
template <class PostPart>
GIGABAR_DEVICE Status in_parts(std::uint64_t count, const PostPart& post) {
  for (std::uint64_t at = 0; at < count; at += mlx5::kMostBytes) {
    const std::uint64_t left = count - at;
    const Status status = post(at, static_cast<std::uint32_t>(left < mlx5::kMostBytes ? left : mlx5::kMostBytes));
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

// One thread. Few bytes go inside the work request; more in as many requests as it takes.
template <Sharing S>
GIGABAR_DEVICE Status post_bytes(PeerQueue& to, Remote remote, Local local, const std::byte* bytes, std::uint64_t count,
                                 Timeout timeout) {
  Ticket ticket;
  if (count <= mlx5::kMostInlineBytes) {
    return device::post_inline_write<S>(Thread{}, to.queue, remote, gather(bytes, count), ticket, timeout);
  }
  return in_parts(count, [&](std::uint64_t at, std::uint32_t part) {
    return device::post_write<S>(Thread{}, to.queue, behind(remote, at), behind(local, at), part, ticket, timeout);
  });
}

// Notification and all. The payload of the notification is left as it is.
template <Sharing S>
GIGABAR_DEVICE Status post_bytes_notify(PeerQueue& to, Remote remote, Local local, const std::byte* bytes, std::uint64_t count,
                                        Remote value_place, std::uint32_t value, Timeout timeout) {
  Ticket ticket;
  if (count <= mlx5::kMostInlineBytes) {
    return device::post_inline_write_notify<S>(Thread{}, to.queue, remote, gather(bytes, count), value_place, value, ticket,
                                               timeout);
  }
  const std::uint64_t last = (count - 1) / mlx5::kMostBytes * mlx5::kMostBytes;
  const Status status = last == 0 ? Status::ok : post_bytes<S>(to, remote, local, bytes, last, timeout);
  if (status != Status::ok) return status;
  return device::post_write_notify<S>(Thread{}, to.queue, behind(remote, last), behind(local, last),
                                      static_cast<std::uint32_t>(count - last), value_place, value, ticket, timeout);
}

template <Sharing S>
GIGABAR_DEVICE Status post_bytes_back(PeerQueue& from, Remote remote, Local local, std::uint64_t count, Timeout timeout) {
  Ticket ticket;
  return in_parts(count, [&](std::uint64_t at, std::uint32_t part) {
    return device::post_read<S>(Thread{}, from.queue, behind(remote, at), behind(local, at), part, ticket, timeout);
  });
}

// The word of one atomic's result, from before it is posted until its thread has read it: nobody else gets it in between, however
// long the thread is held up.
struct ResultWord {
  std::uint64_t bit = 0;

  GIGABAR_DEVICE Local place(const PeerQueue& queue) const {
    return behind(queue.results, lowest_bit(bit) * sizeof(std::uint64_t));
  }
};

// Results that nobody waited for have come when the queue has completed the last of them; their words are free again then.
template <Sharing S>
GIGABAR_DEVICE void free_abandoned_results(const Queue& queue, PeerQueue& kept) {
  const std::uint64_t bits = Shared<S>::load(&kept.abandoned_results);
  if (bits == 0 || !Shared<S>::compare_swap(&kept.abandoned_results, bits, 0)) return;
  fence_device();  // the ticket was raised before its bit was set
  const bool is_over = Shared<S>::load(&queue.completed) >= Shared<S>::load(&kept.abandoned_until);
  if (is_over) {
    clear_bits_device(&kept.held_results, bits);
  } else {
    set_bits_device(&kept.abandoned_results, bits);
  }
}

// `kept` has the words for results, of `queue` or of the one that it is a copy of.
template <Sharing S>
GIGABAR_DEVICE Status hold_result(Queue& queue, PeerQueue& kept, Timeout timeout, ResultWord& word) {
  Deadline deadline(timeout);
  bool is_last_look = false;
  while (true) {
    const std::uint64_t held = Shared<S>::load(&kept.held_results);
    word.bit = ~held & (held + 1);  // the lowest that is free; 0: none
    if (word.bit != 0) {
      if (Shared<S>::compare_swap(&kept.held_results, held, held | word.bit)) return Status::ok;
      continue;  // another thread has changed it
    }
    const std::uint64_t error = Shared<S>::load(&queue.error);
    if (error != 0) return status_of_error(error);
    if (is_last_look) return Status::timed_out;
    poll_cq<S>(queue);
    free_abandoned_results<S>(queue, kept);
    is_last_look = deadline.has_passed();
  }
}
GIGABAR_DEVICE void release_result(PeerQueue& kept, ResultWord word) { clear_bits_device(&kept.held_results, word.bit); }

// Of an atomic that may still write its result.
template <Sharing S>
GIGABAR_DEVICE void abandon_result(PeerQueue& kept, ResultWord word, Ticket ticket) {
  Shared<S>::raise(&kept.abandoned_until, ticket.index);
  set_bits_device(&kept.abandoned_results, word.bit);
}

// What was written to the rank before is in place there when an atomic behind it has come back.
GIGABAR_DEVICE Status flush_queue(PeerQueue& queue, Timeout timeout) {
  Ticket ticket;
  const Status status =
      device::post_fetch_add<Sharing::device>(Thread{}, queue.queue, queue.flush_word, 0, queue.results, ticket, timeout);
  if (status != Status::ok) return status;
  return device::wait<Sharing::device>(Thread{}, queue.queue, ticket, timeout);
}

// One thread. All that was posted to the queue of that number, to all ranks, no longer uses local memory.
GIGABAR_DEVICE_CALLED Status wait_all(const DeviceFabric& fabric, QueueId queue, Timeout timeout) {
  Status status = Status::ok;
  for (Rank rank = 0; rank < fabric.rank_count; ++rank) {
    if (fabric.queues[rank] == nullptr) continue;
    const Status waited = device::flush<Sharing::device>(Thread{}, fabric.queues[rank][queue].queue, timeout);
    if (status == Status::ok) status = waited;
  }
  return status;
}

// Of all queues to a rank.
GIGABAR_DEVICE_CALLED Status flush_rank(const DeviceFabric& fabric, Rank rank, Timeout timeout) {
  for (std::uint32_t i = 0; i < fabric.queue_count; ++i) {
    const Status status = flush_queue(fabric.queues[rank][i], timeout);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

// What is posted for one operation, whoever shares the queue: post_as<PostWrite>() and the like are compiled for each sharing once,
// not at each place that posts.
struct PostWrite {
  Remote remote;
  Local local;
  const std::byte* bytes;
  std::uint64_t count;
  Timeout timeout;

  template <Sharing S>
  GIGABAR_DEVICE Status to(PeerQueue& queue) const {
    return post_bytes<S>(queue, remote, local, bytes, count, timeout);
  }
};
struct PostWriteNotify {
  PostWrite write;
  Remote value_place;
  std::uint32_t value;

  template <Sharing S>
  GIGABAR_DEVICE Status to(PeerQueue& queue) const {
    return post_bytes_notify<S>(queue, write.remote, write.local, write.bytes, write.count, value_place, value, write.timeout);
  }
};
struct PostRead {
  Remote remote;
  Local local;
  std::uint64_t count;
  Timeout timeout;

  template <Sharing S>
  GIGABAR_DEVICE Status to(PeerQueue& queue) const {
    return post_bytes_back<S>(queue, remote, local, count, timeout);
  }
};
struct PostNotify {
  Remote payload_place;
  std::uint64_t payload;
  Remote value_place;
  std::uint32_t value;
  Timeout timeout;

  template <Sharing S>
  GIGABAR_DEVICE Status to(PeerQueue& queue) const {
    Ticket ticket;
    return device::post_inline_write_notify<S>(Thread{}, queue.queue, payload_place, inline_value(payload), value_place, value,
                                               ticket, timeout);
  }
};

// One thread.
template <class Posted>
GIGABAR_DEVICE_CALLED Status post_as(Sharing sharing, PeerQueue& queue, const Posted& posted) {
  switch (sharing) {
    case Sharing::exclusive: return posted.template to<Sharing::exclusive>(queue);
    case Sharing::block: return posted.template to<Sharing::block>(queue);
    default: return posted.template to<Sharing::device>(queue);
  }
}

// What one thread does for a scope: it has met the others, `act` gets the queue. A peer that is lost comes before what its queue
// says.
template <class Scope, class Act>
GIGABAR_DEVICE Status by_queue(const Scope& scope, const DeviceFabric& fabric, Rank rank, QueueId queue, const Act& act) {
  const QueuePlace place = find_queue(fabric, rank, queue);
  if (place.status != Status::ok) return place.status;
  scope.sync();
  Status status = Status::ok;
  if (scope.rank() == 0) {
    // Asked for first and looked at last: beside the post it costs no time. A queue to a rank that is lost ends in error soon.
    const Status peer = peer_status(fabric, rank);
    status = act(*place.queue);
    if (peer != Status::ok) status = peer;
  }
  return agree(scope, status);
}

// Of the rank that stores go to, for the thread of rank 0. It is asked for first and looked at last: beside the stores it costs no
// time.
template <class Scope>
GIGABAR_DEVICE Status ask_status(const Scope& scope, const DeviceFabric& fabric, Rank rank) {
  return scope.rank() == 0 ? peer_status(fabric, rank) : Status::ok;
}

// By stores, to a rank whose status is `peer`.
template <class Scope>
GIGABAR_DEVICE Status store_bytes(const Scope& scope, Status peer, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  copy_bytes(scope, to, from, bytes);
  return agree(scope, peer);
}

// Likewise; behind what the scope's threads stored before, as `order` says.
template <class Scope>
GIGABAR_DEVICE Status raise(const Scope& scope, Status peer, Notification* to, std::uint32_t value, Order order,
                            std::uint64_t payload) {
  scope.sync();
  if (scope.rank() == 0) {
    if (order == Order::after_writes) fence_system();
    store_notification(to, value, payload);
  }
  return agree(scope, peer);
}

// What the posts need to name both ends.
struct Ends {
  Remote remote;
  Local local;
};
GIGABAR_DEVICE Ends ends_of(const DeviceFabric& fabric, const std::byte* local_address, SegmentId local,
                            const RemotePlace& remote) {
  const DeviceSegment* const to = find_segment(fabric, remote.rank, remote.segment);
  return {behind(to->remote, remote.offset_bytes),
          {reinterpret_cast<std::uintptr_t>(local_address), find_segment(fabric, fabric.rank, local)->local_key}};
}

}  // namespace detail

// --- One-sided -------------------------------------------------------------------------------------------------------------------

// Bounds are checked first: out_of_range (no such rank, segment or range), unavailable (out of reach), with nothing written. A peer
// that is lost: peer_lost; its memory stays in reach, so that what was stored harms nobody.
// `local` may be written again after wait(), notify() or flush().
template <class Scope>
GIGABAR_DEVICE Status write(const Scope& scope, const DeviceFabric& fabric, LocalPlace local, RemotePlace remote,
                            std::uint64_t bytes, Post post = {}) {
  const detail::Place from = detail::find_bytes(fabric, fabric.rank, local.segment, local.offset_bytes, bytes);
  if (from.status != Status::ok) return from.status;
  const detail::Place to = detail::find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, bytes);
  if (to.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, remote.rank, post.queue, [&](PeerQueue& queue) {
      const detail::Ends ends = detail::ends_of(fabric, from.address, local.segment, remote);
      return detail::post_as(post.sharing, queue, detail::PostWrite{ends.remote, ends.local, from.address, bytes, post.timeout});
    });
  }
  if (to.status != Status::ok) return to.status;
  return detail::store_bytes(scope, detail::ask_status(scope, fabric, remote.rank), to.address, from.address, bytes);
}

// The bytes are in `local` behind wait(). Errors: as write.
template <class Scope>
GIGABAR_DEVICE Status read(const Scope& scope, const DeviceFabric& fabric, LocalPlace local, RemotePlace remote,
                           std::uint64_t bytes, Post post = {}) {
  const detail::Place to = detail::find_bytes(fabric, fabric.rank, local.segment, local.offset_bytes, bytes);
  if (to.status != Status::ok) return to.status;
  const detail::Place from = detail::find_bytes(fabric, remote.rank, remote.segment, remote.offset_bytes, bytes);
  if (from.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, remote.rank, post.queue, [&](PeerQueue& queue) {
      const detail::Ends ends = detail::ends_of(fabric, to.address, local.segment, remote);
      return detail::post_as(post.sharing, queue, detail::PostRead{ends.remote, ends.local, bytes, post.timeout});
    });
  }
  if (from.status != Status::ok) return from.status;
  return detail::store_bytes(scope, detail::ask_status(scope, fabric, remote.rank), to.address, from.address, bytes);
}

// Raises notification `id` of the peer's segment to `value`; the notification also carries 8 bytes of its own, which cost nothing:
// with Order::none the fastest way to send so many. Errors: invalid_argument (value 0), out_of_range, unavailable, peer_lost.
template <class Scope>
GIGABAR_DEVICE Status notify(const Scope& scope, const DeviceFabric& fabric, Rank rank, SegmentId segment, NotificationId id,
                             std::uint32_t value, Order order = Order::after_writes, std::uint64_t payload = 0, Post post = {}) {
  if (value == 0) return Status::invalid_argument;
  const detail::NotificationPlace place = detail::find_notification(fabric, rank, segment, id);
  if (place.status == Status::unavailable) {
    return detail::by_queue(scope, fabric, rank, post.queue, [&](PeerQueue& queue) {
      const Remote to = detail::find_segment(fabric, rank, segment)->remote_notifications;
      return detail::post_as(
          post.sharing, queue,
          detail::PostNotify{detail::payload_of(to, id), payload, detail::value_of(to, id), value, post.timeout});
    });
  }
  if (place.status != Status::ok) return place.status;
  return detail::raise(scope, detail::ask_status(scope, fabric, rank), place.notification, value, order, payload);
}

// As write, then notify. Errors: those of both; nothing is raised when the bytes were refused.
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
    return detail::by_queue(scope, fabric, remote.rank, post.queue, [&](PeerQueue& queue) {
      const detail::Ends ends = detail::ends_of(fabric, from.address, local.segment, remote);
      const Remote value_place =
          detail::value_of(detail::find_segment(fabric, remote.rank, remote.segment)->remote_notifications, id);
      const detail::PostWrite written{ends.remote, ends.local, from.address, bytes, post.timeout};
      return detail::post_as(post.sharing, queue, detail::PostWriteNotify{written, value_place, value});
    });
  }
  if (to.status != Status::ok) return to.status;
  const Status peer = detail::ask_status(scope, fabric, remote.rank);
  copy_bytes(scope, to.address, from.address, bytes);
  return detail::raise(scope, peer, place.notification, value, Order::after_writes, 0);
}

// --- Waiting ---------------------------------------------------------------------------------------------------------------------

// What was posted to the queue before, to all ranks, no longer uses local memory, and what was read is there. Peers in reach of
// loads and stores need no queue: it joins the threads of the scope. Errors: out_of_range, timed_out, and what the queue to a rank
// says: peer_lost, device_error; the others' are waited for all the same.
template <class Scope>
GIGABAR_DEVICE Status wait(const Scope& scope, const DeviceFabric& fabric, QueueId queue, Timeout timeout) {
  if (fabric.queue_count != 0 && queue >= fabric.queue_count) return Status::out_of_range;
  scope.sync();
  const bool is_to_wait = scope.rank() == 0 && fabric.queue_count != 0;
  const Status status = is_to_wait ? detail::wait_all(fabric, queue, timeout) : Status::ok;
  return detail::agree(scope, status);
}

// Errors: out_of_range, timed_out, peer_lost, device_error.
template <class Scope>
GIGABAR_DEVICE Status flush(const Scope& scope, const DeviceFabric& fabric, Rank rank, Timeout timeout) {
  if (rank >= fabric.rank_count) return Status::out_of_range;
  scope.sync();
  Status status = Status::ok;
  if (scope.rank() == 0) {
    status = peer_status(fabric, rank);
    fence_system();
    if (status == Status::ok && fabric.queues[rank] != nullptr) status = detail::flush_rank(fabric, rank, timeout);
  }
  return detail::agree(scope, status);
}

namespace detail {

// One thread. Polls until `look` finds something. `peer`: the status of whom it waits for, null: anybody; `lost_count`: of ranks,
// then. Both are looked at no more often than the clock: each look is a load that would delay the poll behind it.
template <class Look>
GIGABAR_DEVICE Status await(const std::uint32_t* peer, const std::uint32_t* lost_count, Timeout timeout, const Look& look) {
  Deadline deadline(timeout);
  while (!look()) {
    const bool is_over = deadline.has_passed();
    if (!deadline.has_looked()) continue;
    const bool is_lost = peer != nullptr ? status_at(peer) != Status::ok : is_over && load_relaxed(lost_count) != 0;
    if (!is_over && !is_lost) continue;
    // What is lost may have raised it just before it was.
    return look() ? Status::ok : is_lost ? Status::peer_lost : Status::timed_out;
  }
  return Status::ok;
}

// agree(), and a number of the thread of rank 0 with it.
template <class Scope>
GIGABAR_DEVICE Status agree_on(const Scope& scope, Status status, std::uint32_t& number) {
  const std::uint64_t answer = scope.broadcast(std::uint64_t{static_cast<std::uint32_t>(status)} << 32 | number);
  number = static_cast<std::uint32_t>(answer);
  return static_cast<Status>(answer >> 32);
}

template <class Look>
GIGABAR_DEVICE Status await(const DeviceFabric& fabric, Rank from, Timeout timeout, const Look& look) {
  return await(from == kAnyRank ? nullptr : fabric.peer_status + from, fabric.peer_status + fabric.rank_count, timeout, look);
}

// await(), by a scope, for a notification of at least `least`; `value` and, unless it is null, `payload`: what they are then.
template <class Scope>
GIGABAR_DEVICE Status await_value(const Scope& scope, const std::uint32_t* peer, const std::uint32_t* lost_count,
                                  const Notification& notification, std::uint32_t least, Timeout timeout, std::uint32_t& value,
                                  std::uint64_t* payload) {
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

// Waits until one of `count` notifications of this rank's segment, from `first` on, is raised; the lowest such id is `found`.
// `from`: whose they are; when that rank is lost the wait ends with peer_lost, else (kAnyRank) at its time, with peer_lost when
// some rank is lost and timed_out when none is. A raised notification comes before any error. Errors: out_of_range, timed_out,
// peer_lost.
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
  status = detail::agree_on(scope, status, place);
  if (status == Status::ok) found = first + place;
  return status;
}

// Waits until notification `id` of this rank's segment is at least `least`, for senders that raise it to numbers that grow;
// `value`: what it is then. It stays raised, so that nothing but the poll lies between one message and the next: the fastest way to
// wait. `payload`: what came with that value; from a rank out of reach of stores it may be that of a later one, whose value is
// still to come. Who changes to smaller numbers takes it down first. `from` and errors as notification_wait; invalid_argument
// (least 0).
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

// Takes the notification down; `value` is what it was, `payload` what it carried. Errors: out_of_range.
template <class Scope>
GIGABAR_DEVICE Status notification_reset(const Scope& scope, const DeviceFabric& fabric, SegmentId segment, NotificationId id,
                                         std::uint32_t& value, std::uint64_t* payload = nullptr) {
  const detail::NotificationPlace own = detail::find_notification(fabric, fabric.rank, segment, id);
  if (own.status != Status::ok) return own.status;
  std::uint32_t old = 0;
  std::uint64_t carried = 0;
  if (scope.rank() == 0) {
    if (payload != nullptr) detail::load_notification(own.notification, carried);
    old = exchange_acquire(&own.notification->value, 0);
  }
  value = scope.broadcast(old);
  if (payload != nullptr) *payload = scope.broadcast(carried);
  return Status::ok;
}

// --- Atomics ---------------------------------------------------------------------------------------------------------------------

namespace detail {

// What changes a word and brings back its value: by this GPU where the word is in reach, else by a queue.
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

// By atomics of this GPU, at a rank whose status is `peer`.
template <class Scope, class Change>
GIGABAR_DEVICE Status change_in_reach(const Scope& scope, Status peer, std::uint64_t* word, const Change& change,
                                      std::uint64_t& old) {
  const std::uint64_t answer = scope.rank() == 0 ? change.operate(word) : 0;
  const Status status = agree(scope, peer);
  old = scope.broadcast(answer);
  return status;
}

// One thread. `kept` has the words for results.
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
  const Status status = by_queue(scope, fabric, remote.rank, queue_id, [&](PeerQueue& queue) {
    const Remote word = behind(find_segment(fabric, remote.rank, remote.segment)->remote, remote.offset_bytes);
    return change_by_queue<Sharing::device>(queue.queue, queue, word, change, timeout, answer);
  });
  old = scope.broadcast(answer);
  return status;
}

}  // namespace detail

// On 8 aligned bytes; `old`: the value before. Atomic among all kernels that have the word in reach, or among those that use
// queues; not among both, nor with CPUs. To a rank in reach by a link without native atomics (most pairs over PCIe) it would not
// even be that: unavailable, and DeviceReach::why_no_atomics says why. Other errors: as write; invalid_argument (not a multiple of
// 8), timed_out (it may or may not be done).
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

// One thread. Tells a rank the number of the barrier that has come to round `round`. `words`: that rank's, if in reach.
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

// One thread. Counts only grow, and who tells in a round is never more than one barrier ahead.
GIGABAR_DEVICE Status await_barrier(const DeviceFabric& fabric, const std::uint64_t* word, std::uint64_t number,
                                    Deadline& deadline) {
  while (load_acquire(word) < number) {
    const bool is_over = deadline.has_passed();
    if (deadline.has_looked() && load_relaxed(fabric.peer_status + fabric.rank_count) != 0) return Status::peer_lost;
    if (is_over) return Status::timed_out;
  }
  return Status::ok;
}

// One thread. What was posted to queues before is in place.
GIGABAR_DEVICE Status flush_all(const DeviceFabric& fabric, Timeout timeout) {
  for (Rank rank = 0; fabric.queue_count != 0 && rank < fabric.rank_count; ++rank) {
    if (fabric.queues[rank] == nullptr) continue;
    const Status flushed = flush_rank(fabric, rank, timeout);
    if (flushed != Status::ok) return flushed;
  }
  return Status::ok;
}

// One thread. In round r a rank tells the one 2^r further. What the tables say is asked for in front of a fence, where it comes at
// one time: behind it each load would be a trip to the GPU's L2 of its own.
GIGABAR_DEVICE_CALLED Status meet_all(const DeviceFabric& fabric, Timeout timeout) {
  KernelWords& words = *fabric.words;
  const std::uint64_t number = words.barrier_count + 1;
  std::uint32_t done = words.barrier_step;  // who comes again goes on where it was: the others may have ended, and closed, on it
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
      // Each fence passes on what the rounds before have shown.
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

// Ends when one scope of every rank has come; what they wrote before, to anybody, is seen behind it. One scope of a rank at a time.
// After timed_out it is called again and goes on; it covers what was written before the first call. Takes ceil(log2 n) rounds.
// Errors: timed_out, peer_lost (a rank of the job is lost: the barrier cannot end), unavailable (a rank is out of reach, and there
// is no queue to it).
template <class Scope>
GIGABAR_DEVICE Status barrier(const Scope& scope, const DeviceFabric& fabric, Timeout timeout) {
  scope.sync();
  const Status status = scope.rank() == 0 ? detail::meet_all(fabric, timeout) : Status::ok;
  return detail::agree(scope, status);
}

}  // namespace gigabar::device
