// SPDX-License-Identifier: Apache-2.0
// Where bytes and notifications of peers are, and how operations are posted to queues, for the functions of device/fabric.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/copy.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/queue.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0::device::detail {

struct Place {
  Status status = Status::ok;
  std::byte* address = nullptr;
};

GIGABAR_DEVICE const DeviceSegment* find_segment(const DeviceFabric& fabric, Rank rank, SegmentId id) {
  if (rank >= fabric.rank_count || id >= fabric.segment_count) return nullptr;
  return fabric.segments + static_cast<std::size_t>(rank) * fabric.segment_count + id;
}

// Bytes of a segment, within its bounds. unavailable: the range exists, but is not load/store accessible.
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

// One load or one store of 16 bytes, so that the value is never visible without its payload.
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

// --- By queues -------------------------------------------------------------------------------------------------------------------

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

// The address of a notification's value, and of its payload.
GIGABAR_DEVICE Remote value_of(Remote notifications, NotificationId id) {
  return behind(notifications, sizeof(Notification) * std::uint64_t{id} + 12);
}
GIGABAR_DEVICE Remote payload_of(Remote notifications, NotificationId id) {
  return behind(notifications, sizeof(Notification) * std::uint64_t{id});
}

// At most mlx5::kMaxInlineBytes, in the order of memory. The loops have constant bounds, so that the words stay in registers.
GIGABAR_DEVICE Inline gather(const std::byte* from, std::uint64_t count) {
  Inline payload{{}, static_cast<std::uint32_t>(count)};
  const bool is_of_words = (reinterpret_cast<std::uintptr_t>(from) | count) % sizeof(std::uint64_t) == 0;
  if (is_of_words) {
    for (std::uint32_t i = 0; i < mlx5::kMaxInlineBytes / sizeof(std::uint64_t); ++i) {
      if (i < count / sizeof(std::uint64_t)) payload.words[i] = reinterpret_cast<const volatile std::uint64_t*>(from)[i];
    }
    return payload;
  }
  const auto* const bytes = reinterpret_cast<const volatile std::uint8_t*>(from);
  for (std::uint32_t i = 0; i < mlx5::kMaxInlineBytes; ++i) {
    if (i < count) payload.words[i / 8] |= std::uint64_t{bytes[i]} << i % 8 * 8;
  }
  return payload;
}

// Splits `count` bytes into work requests: calls post(offset of the part, its bytes) until one fails.
template <class PostPart>
GIGABAR_DEVICE Status in_parts(std::uint64_t count, const PostPart& post) {
  for (std::uint64_t at = 0; at < count; at += mlx5::kMaxBytes) {
    const std::uint64_t left = count - at;
    const Status status = post(at, static_cast<std::uint32_t>(left < mlx5::kMaxBytes ? left : mlx5::kMaxBytes));
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

// One thread. A few bytes travel inside the work request; more take as many requests as necessary.
template <Sharing S>
GIGABAR_DEVICE Status post_bytes(PeerQueue& to, Remote remote, Local local, const std::byte* bytes, std::uint64_t count,
                                 Timeout timeout) {
  Ticket ticket;
  if (count <= mlx5::kMaxInlineBytes) {
    return device::post_inline_write<S>(Thread{}, to.queue, remote, gather(bytes, count), ticket, timeout);
  }
  return in_parts(count, [&](std::uint64_t at, std::uint32_t part) {
    return device::post_write<S>(Thread{}, to.queue, behind(remote, at), behind(local, at), part, ticket, timeout);
  });
}

// The same with a notification, whose payload is left unchanged.
template <Sharing S>
GIGABAR_DEVICE Status post_bytes_notify(PeerQueue& to, Remote remote, Local local, const std::byte* bytes, std::uint64_t count,
                                        Remote value_place, std::uint32_t value, Timeout timeout) {
  Ticket ticket;
  if (count <= mlx5::kMaxInlineBytes) {
    return device::post_inline_write_notify<S>(Thread{}, to.queue, remote, gather(bytes, count), value_place, value, ticket,
                                               timeout);
  }
  const std::uint64_t last = (count - 1) / mlx5::kMaxBytes * mlx5::kMaxBytes;
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

// The word of one atomic's result, held from before the post until its thread has read it: no other atomic gets the word meanwhile,
// however long the thread is delayed.
struct ResultWord {
  std::uint64_t bit = 0;

  GIGABAR_DEVICE Local place(const PeerQueue& queue) const {
    return behind(queue.results, lowest_bit(bit) * sizeof(std::uint64_t));
  }
};

// Results that nobody waited for have arrived when the queue has completed the last of them. Then their words are free again.
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

// `kept` has the result words of `queue`, or of the queue of which `queue` is a copy.
template <Sharing S>
GIGABAR_DEVICE Status hold_result(Queue& queue, PeerQueue& kept, Timeout timeout, ResultWord& word) {
  Deadline deadline(timeout);
  bool is_last_look = false;
  while (true) {
    const std::uint64_t held = Shared<S>::load(&kept.held_results);
    word.bit = ~held & (held + 1);  // the lowest free one; 0: none
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

// For an atomic that may still write its result.
template <Sharing S>
GIGABAR_DEVICE void abandon_result(PeerQueue& kept, ResultWord word, Ticket ticket) {
  Shared<S>::raise(&kept.abandoned_until, ticket.index);
  set_bits_device(&kept.abandoned_results, word.bit);
}

// What was written to the rank before is in place there when a later atomic has completed.
GIGABAR_DEVICE Status flush_queue(PeerQueue& queue, Timeout timeout) {
  Ticket ticket;
  const Status status =
      device::post_fetch_add<Sharing::device>(Thread{}, queue.queue, queue.flush_word, 0, queue.results, ticket, timeout);
  if (status != Status::ok) return status;
  return device::wait<Sharing::device>(Thread{}, queue.queue, ticket, timeout);
}

// One thread. Everything that was posted to the queues of that number, to all ranks, no longer uses local memory.
GIGABAR_DEVICE_CALLED Status wait_all(const DeviceFabric& fabric, QueueId queue, Timeout timeout) {
  Status status = Status::ok;
  for (Rank rank = 0; rank < fabric.rank_count; ++rank) {
    if (fabric.queues[rank] == nullptr) continue;
    const Status waited = device::flush<Sharing::device>(Thread{}, fabric.queues[rank][queue].queue, timeout);
    if (status == Status::ok) status = waited;
  }
  return status;
}

// Flushes all queues to a rank.
GIGABAR_DEVICE_CALLED Status flush_rank(const DeviceFabric& fabric, Rank rank, Timeout timeout) {
  for (std::uint32_t i = 0; i < fabric.queue_count; ++i) {
    const Status status = flush_queue(fabric.queues[rank][i], timeout);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

// The posts of one operation, for every sharing of the queue: post_as<PostWrite>() and the like are compiled once for each sharing,
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

// A notification that CPUs take. Stores of this thread to load/store accessible memory come before it with Order::after_writes.
struct PostWord {
  Remote value_place;
  std::uint32_t value;
  Order order;
  Timeout timeout;

  template <Sharing S>
  GIGABAR_DEVICE Status to(PeerQueue& queue) const {
    // Such a post alone may ring without a fence.
    if constexpr (S == Sharing::exclusive) {
      if (order == Order::after_writes && queue.queue.waits_for_stores) fence_system();
    }
    Ticket ticket;
    return device::post_inline_write<S>(Thread{}, queue.queue, value_place, inline_value(value, sizeof value), ticket, timeout);
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

// One thread acts for the scope, for up to `timeout`, after a barrier with the others; `act` gets the queue. peer_lost takes
// precedence over the queue's status.
template <class Scope, class Act>
GIGABAR_DEVICE Status by_queue(const Scope& scope, const DeviceFabric& fabric, Rank rank, QueueId queue, Timeout timeout,
                               const Act& act) {
  const QueuePlace place = find_queue(fabric, rank, queue);
  if (place.status != Status::ok) return place.status;
  Status status = Status::ok;
  if (sync_all(scope) && scope.rank() == 0) {
    // Loaded first and used last: so it takes no time beside the post. A queue to a lost rank is in error soon.
    const Status peer = peer_status(fabric, rank);
    status = act(*place.queue);
    if (peer != Status::ok) status = peer;
  }
  return agree(patient(scope, timeout), status);
}

// The status of the target rank, for the thread of rank 0 of each block. It is loaded first and used last: so it takes no time
// beside the stores.
template <class Scope>
GIGABAR_DEVICE Status ask_status(const Scope& scope, const DeviceFabric& fabric, Rank rank) {
  return own_part(scope).rank() == 0 ? peer_status(fabric, rank) : Status::ok;
}

// By stores, to a rank whose status is `peer`.
template <class Scope>
GIGABAR_DEVICE Status store_bytes(const Scope& scope, Status peer, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  copy_bytes(scope, to, from, bytes);
  return agree(own_part(scope), peer);
}

// Raises a notification; with Order::after_writes after everything that the scope's threads stored before.
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

// By several blocks: the last one to come raises it, once. What the others stored before they came is ordered before its fence by
// acquire and release at the scope of the GPU, and by the fence before the notification: causality order is transitive.
template <class Own>
GIGABAR_DEVICE Status raise(const BasicBlocks<Own>& blocks, Status peer, Notification* to, std::uint32_t value, Order order,
                            std::uint64_t payload) {
  const Own& own = blocks.own();
  const BlocksCall call = own.rank() == 0 && order != Order::none ? begin(blocks.place()) : BlocksCall{};
  own.sync();
  if (order == Order::none) {
    if (blocks.rank() == 0) store_notification(to, value, payload);
    return agree(own, peer);
  }
  Status status = peer;
  if (own.rank() == 0) {
    if (!is_turn(blocks.place(), call)) {
      status = Status::timed_out;
    } else if (arrive(blocks.place(), call)) {
      fence_system();
      store_notification(to, value, payload);
    }
  }
  return agree(own, status);
}

// Raises a notification that the CPU of `rank` takes.
template <class Scope>
GIGABAR_DEVICE Status raise_for_cpu(const Scope& scope, const DeviceFabric& fabric, Rank rank, SegmentId segment, NotificationId id,
                                    std::uint32_t value, Order order, const Post& post) {
  return by_queue(scope, fabric, rank, post.queue, post.timeout, [&](PeerQueue& queue) {
    const Remote to = find_segment(fabric, rank, segment)->remote_notifications;
    return post_as(post.sharing, queue, PostWord{value_of(to, id), value, order, post.timeout});
  });
}

// Both ends of a post.
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

}  // namespace gigabar::inline v0::device::detail
