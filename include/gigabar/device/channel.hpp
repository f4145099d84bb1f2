// SPDX-License-Identifier: Apache-2.0
// A rank's segment and the access to it, held in the registers of the scope that uses them: an operation needs no lookup.
//
// Each function of fabric.hpp reads the tables of the session and the state of its queue again, because others may have changed
// them. On a GPU, where an acquire empties the cache, that takes half of a small operation's time. A channel reads them once.
#pragma once

#include <cstdint>

#include "gigabar/device/fabric.hpp"

namespace gigabar::inline v0::device {

// A channel belongs to one scope from open() to close(); each thread of the scope has its own object. Meanwhile nobody else may use
// that queue to that rank: neither by fabric.hpp nor by another channel (wait(), flush() and barrier() of fabric.hpp use all
// queues). To a load/store accessible rank there is no queue, and operations are loads and stores.
//
// Scope, ordering, errors and times are those of the functions of the same name in fabric.hpp, with two exceptions:
// - The first operation after the loss of a rank may still return ok; the next one does not.
// - write_notify() by a queue is ordered after the bytes of that queue alone; notify() with Order::after_writes after all stores.
//
// When the host reconnects to a lost rank, channels to it must be opened again.
//
// A Channel finds the kind of access when it is opened. Where it is known at compile time, a DirectChannel (loads and stores alone)
// or a QueueChannel makes a smaller kernel with more free registers. Its open() returns unavailable for a rank with the other kind.
enum class ChannelWay : std::uint8_t { any, stores, queue };

template <ChannelWay W>
class BasicChannel {
 public:
  // Opens a channel to segment `remote` of `rank`, from segment `local` of this rank. Errors: out_of_range, unavailable (also: one
  // of the segments notifies CPUs), not_supported (check_version).
  template <class Scope>
  GIGABAR_DEVICE static Status open(const Scope& scope, const DeviceFabric& fabric, Rank rank, SegmentId remote, SegmentId local,
                                    QueueId queue, BasicChannel& channel) {
    if (check_version(fabric) != Status::ok) return Status::not_supported;
    const DeviceSegment* const there = detail::find_segment(fabric, rank, remote);
    const DeviceSegment* const here = detail::find_segment(fabric, fabric.rank, local);
    if (there == nullptr || there->bytes == 0 || here == nullptr || here->bytes == 0) return Status::out_of_range;
    if (there->notifies_cpus || here->notifies_cpus) return Status::unavailable;
    channel.status_ = fabric.peer_status + rank;
    if (detail::own_part(scope).rank() == 0) channel.known_status_ = load_relaxed(channel.status_);
    channel.notification_count_ = fabric.notification_count;
    channel.here_ = here->address;
    channel.here_bytes_ = here->bytes;
    channel.here_key_ = here->local_key;
    channel.own_notifications_ = here->notifications;
    channel.there_bytes_ = there->bytes;
    channel.has_atomics_ = there->has_atomics;
    channel.kept_ = nullptr;
    const bool is_in_reach = there->address != nullptr;
    if (W != ChannelWay::any && is_in_reach != (W == ChannelWay::stores)) return Status::unavailable;
    if (is_in_reach) {
      channel.there_.address = reinterpret_cast<std::uintptr_t>(there->address);
      channel.notifications_.address = reinterpret_cast<std::uintptr_t>(there->notifications);
      return Status::ok;
    }
    channel.there_ = there->remote;
    channel.notifications_ = there->remote_notifications;
    const detail::QueuePlace place = detail::find_queue(fabric, rank, queue);
    if (place.status != Status::ok) return place.status;
    channel.kept_ = place.queue;
    if (scope.rank() != 0) return Status::ok;
    const QueueSetup& setup = place.queue->queue;
    static_cast<QueueSetup&>(channel.queue_.queue) = setup;
    detail::copy_state(channel.queue_.queue, place.queue->queue);
    return Status::ok;
  }

  // Gives the queue back: others may use it after a barrier with this scope.
  template <class Scope>
  GIGABAR_DEVICE void close(const Scope& scope) {
    if (!is_direct() && kept_ != nullptr && scope.rank() == 0) detail::copy_state(kept_->queue, queue_.queue);
    kept_ = nullptr;
  }

  template <class Scope>
  GIGABAR_DEVICE Status write(const Scope& scope, std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes,
                              Timeout timeout) {
    if (!is_inside(local_offset, remote_offset, bytes)) return Status::out_of_range;
    const std::byte* const from = here_ + local_offset;
    const Remote to = detail::behind(there_, remote_offset);
    if (is_direct()) return detail::store_bytes(scope, next_status(scope), at<std::byte>(to), from, bytes);
    return by_queue(scope, timeout,
                    [&] { return detail::post_bytes<Sharing::exclusive>(queue_, to, named(from), from, bytes, timeout); });
  }

  template <class Scope>
  GIGABAR_DEVICE Status write_notify(const Scope& scope, std::uint64_t local_offset, std::uint64_t remote_offset,
                                     std::uint64_t bytes, NotificationId id, std::uint32_t value, Timeout timeout) {
    if (value == 0) return Status::invalid_argument;
    if (!is_inside(local_offset, remote_offset, bytes) || id >= notification_count_) return Status::out_of_range;
    const std::byte* const from = here_ + local_offset;
    const Remote to = detail::behind(there_, remote_offset);
    if (is_direct()) {
      copy_bytes(scope, at<std::byte>(to), from, bytes);
      return detail::raise(scope, next_status(scope), at<Notification>(notifications_) + id, value, Order::after_writes, 0);
    }
    return by_queue(scope, timeout, [&] {
      return detail::post_bytes_notify<Sharing::exclusive>(queue_, to, named(from), from, bytes,
                                                           detail::value_of(notifications_, id), value, timeout);
    });
  }

  template <class Scope>
  GIGABAR_DEVICE Status notify(const Scope& scope, NotificationId id, std::uint32_t value, Order order, std::uint64_t payload,
                               Timeout timeout) {
    if (value == 0) return Status::invalid_argument;
    if (id >= notification_count_) return Status::out_of_range;
    if (is_direct()) return detail::raise(scope, next_status(scope), at<Notification>(notifications_) + id, value, order, payload);
    return by_queue(scope, timeout, [&] {
      Ticket ticket;
      // A post whose payload fits its WQE may need no fence.
      if (order == Order::after_writes && queue_.queue.waits_for_stores) fence_system();
      return device::post_inline_write_notify<Sharing::exclusive>(Thread{}, queue_.queue, detail::payload_of(notifications_, id),
                                                                  inline_value(payload), detail::value_of(notifications_, id),
                                                                  value, ticket, timeout);
    });
  }

  // Changes 8 aligned bytes of `remote`; `old` is the value before.
  template <class Scope>
  GIGABAR_DEVICE Status atomic_fetch_add(const Scope& scope, std::uint64_t remote_offset, std::uint64_t value, Timeout timeout,
                                         std::uint64_t& old) {
    return change_word(scope, remote_offset, timeout, old, detail::FetchAdd{value});
  }
  template <class Scope>
  GIGABAR_DEVICE Status compare_swap(const Scope& scope, std::uint64_t remote_offset, std::uint64_t expected, std::uint64_t desired,
                                     Timeout timeout, std::uint64_t& old) {
    return change_word(scope, remote_offset, timeout, old, detail::CompareSwap{expected, desired});
  }

  // Waits for a notification of this rank's segment `local`, raised by `rank`. It uses no queue: a channel that only waits need not
  // be closed, and its queue is free for others.
  template <class Scope>
  GIGABAR_DEVICE Status notification_wait_until(const Scope& scope, NotificationId id, std::uint32_t least, Timeout timeout,
                                                std::uint32_t& value, std::uint64_t* payload = nullptr) const {
    if (least == 0) return Status::invalid_argument;
    if (id >= notification_count_) return Status::out_of_range;
    return detail::await_value(scope, status_, nullptr, own_notifications_[id], least, timeout, value, payload);
  }

  // Waits until writes no longer use local memory.
  template <class Scope>
  GIGABAR_DEVICE Status wait(const Scope& scope, Timeout timeout) {
    if (is_direct()) {
      scope.sync();
      return Status::ok;
    }
    return by_queue(scope, timeout, [&] { return device::flush<Sharing::exclusive>(Thread{}, queue_.queue, timeout); });
  }

 private:
  GIGABAR_DEVICE bool is_direct() const {
    if constexpr (W == ChannelWay::any) return kept_ == nullptr;
    return W == ChannelWay::stores;
  }
  template <class T>
  GIGABAR_DEVICE static T* at(Remote place) {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(place.address));
  }
  GIGABAR_DEVICE Local named(const std::byte* address) const { return {reinterpret_cast<std::uintptr_t>(address), here_key_}; }
  GIGABAR_DEVICE static bool lies_in(std::uint64_t segment_bytes, std::uint64_t offset, std::uint64_t bytes) {
    return offset <= segment_bytes && bytes <= segment_bytes - offset;
  }
  GIGABAR_DEVICE bool is_inside(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes) const {
    return lies_in(here_bytes_, local_offset, bytes) && lies_in(there_bytes_, remote_offset, bytes);
  }
  template <class Scope, class Change>
  GIGABAR_DEVICE Status change_word(const Scope& scope, std::uint64_t remote_offset, Timeout timeout, std::uint64_t& old,
                                    const Change& change) {
    if (remote_offset % sizeof old != 0) return Status::invalid_argument;
    if (!lies_in(there_bytes_, remote_offset, sizeof old)) return Status::out_of_range;
    const Remote word = detail::behind(there_, remote_offset);
    if (is_direct() && !has_atomics_) return Status::unavailable;
    if (is_direct()) return detail::change_in_reach(scope, next_status(scope), at<std::uint64_t>(word), change, old);
    std::uint64_t answer = 0;
    const Status status = by_queue(scope, timeout, [&] {
      return detail::change_by_queue<Sharing::exclusive>(queue_.queue, *kept_, word, change, timeout, answer);
    });
    old = scope.broadcast(answer);
    return status;
  }
  // Returns the status that the previous operation loaded, so that no operation waits for the load; loads it for the next
  // operation.
  template <class Scope>
  GIGABAR_DEVICE Status next_status(const Scope& scope) {
    if (detail::own_part(scope).rank() != 0) return Status::ok;
    const auto status = static_cast<Status>(known_status_);
    known_status_ = load_relaxed(status_);
    return status;
  }
  // One thread acts for the scope, for up to `timeout`. peer_lost takes precedence over the queue's status.
  template <class Scope, class Act>
  GIGABAR_DEVICE Status by_queue(const Scope& scope, Timeout timeout, const Act& act) {
    Status status = Status::ok;
    if (detail::sync_all(scope) && scope.rank() == 0) {
      const Status peer = next_status(scope);
      status = act();
      if (peer != Status::ok) status = peer;
    }
    return detail::agree(detail::patient(scope, timeout), status);
  }

  const std::uint32_t* status_ = nullptr;  // the rank's
  std::uint32_t known_status_ = 0;         // loaded at the last operation; not converted, because a conversion would wait for it
  std::uint32_t notification_count_ = 0;
  // The rank's segment and its notifications: addresses of this GPU for loads and stores, otherwise those of work requests.
  Remote there_, notifications_;
  std::uint64_t there_bytes_ = 0;
  bool has_atomics_ = false;  // by loads and stores
  // This rank's.
  std::byte* here_ = nullptr;
  std::uint64_t here_bytes_ = 0;
  std::uint32_t here_key_ = 0;
  Notification* own_notifications_ = nullptr;
  PeerQueue* kept_ = nullptr;  // where close() stores the queue's state; null: access by loads and stores
  PeerQueue queue_;            // of the thread of rank 0; only the members that posts use
};

using Channel = BasicChannel<ChannelWay::any>;
using DirectChannel = BasicChannel<ChannelWay::stores>;
using QueueChannel = BasicChannel<ChannelWay::queue>;

}  // namespace gigabar::inline v0::device
