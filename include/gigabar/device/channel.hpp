// A rank's segment and a queue to it, held in the registers of the one thread that uses them: nothing is looked up at a post.
//
// Each post of fabric.hpp reads the tables of the session and the state of its queue anew, because others may have changed them;
// on a GPU, where an acquire empties the cache, that takes about 2 us of a small write's time. A channel reads them once.
#pragma once

#include <cstdint>

#include "gigabar/device/fabric.hpp"

namespace gigabar::device {

// For one thread, from open() to close(); meanwhile nobody else uses that queue, to that rank, in any way: neither by fabric.hpp
// nor by another channel (wait(), flush() and barrier() of fabric.hpp use all queues). To a rank in reach of loads and stores it is
// those. Ordering, errors and times: those of the functions of the same name in fabric.hpp.
class Channel {
 public:
  // To segment `remote` of `rank`, from segment `local` of this one. Errors: out_of_range, unavailable.
  GIGABAR_DEVICE static Status open(const DeviceFabric& fabric, Rank rank, SegmentId remote, SegmentId local, QueueId queue,
                                    Channel& channel) {
    const DeviceSegment* const there = detail::find_segment(fabric, rank, remote);
    const DeviceSegment* const here = detail::find_segment(fabric, fabric.rank, local);
    if (there == nullptr || there->bytes == 0 || here == nullptr || here->bytes == 0) return Status::out_of_range;
    channel.status_ = fabric.peer_status + rank;
    channel.notification_count_ = fabric.notification_count;
    channel.there_ = *there;
    channel.here_ = *here;
    channel.kept_ = nullptr;
    if (there->address != nullptr) return Status::ok;
    const detail::QueuePlace place = detail::find_queue(fabric, rank, queue);
    if (place.status != Status::ok) return place.status;
    channel.kept_ = place.queue;
    channel.queue_ = *place.queue;
    return Status::ok;
  }

  // The queue is everybody's again, behind a barrier with them.
  GIGABAR_DEVICE void close() {
    if (kept_ != nullptr) kept_->queue = queue_.queue;
    kept_ = nullptr;
  }

  GIGABAR_DEVICE Status write(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes, Timeout timeout) {
    if (!is_inside(local_offset, remote_offset, bytes)) return Status::out_of_range;
    if (kept_ == nullptr) return store(local_offset, remote_offset, bytes);
    return or_lost(detail::post_bytes<Sharing::exclusive>(queue_, detail::behind(there_.remote, remote_offset), named(local_offset),
                                                          here_.address + local_offset, bytes, timeout));
  }

  GIGABAR_DEVICE Status write_notify(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes,
                                     NotificationId id, std::uint32_t value, Timeout timeout) {
    if (value == 0) return Status::invalid_argument;
    if (!is_inside(local_offset, remote_offset, bytes) || id >= notification_count_) return Status::out_of_range;
    if (kept_ == nullptr) {
      copy_bytes(Thread{}, there_.address + remote_offset, here_.address + local_offset, bytes);
      return raise(id, value, Order::after_writes, 0);
    }
    return or_lost(detail::post_bytes_notify<Sharing::exclusive>(queue_, detail::behind(there_.remote, remote_offset),
                                                                 named(local_offset), here_.address + local_offset, bytes,
                                                                 detail::value_of(there_, id), value, timeout));
  }

  GIGABAR_DEVICE Status notify(NotificationId id, std::uint32_t value, Order order, std::uint64_t payload, Timeout timeout) {
    if (value == 0) return Status::invalid_argument;
    if (id >= notification_count_) return Status::out_of_range;
    if (kept_ == nullptr) return raise(id, value, order, payload);
    Ticket ticket;
    return or_lost(device::post_inline_write_notify<Sharing::exclusive>(Thread{}, queue_.queue, detail::payload_of(there_, id),
                                                                        inline_value(payload), detail::value_of(there_, id), value,
                                                                        ticket, timeout));
  }

  // As device::notification_wait_until, on this rank's segment `local`, for what `rank` raises. It uses no queue: a channel that
  // only waits need not be closed, and its queue is free.
  GIGABAR_DEVICE Status notification_wait_until(NotificationId id, std::uint32_t least, Timeout timeout,
                                                std::uint32_t& value) const {
    if (least == 0) return Status::invalid_argument;
    if (id >= notification_count_) return Status::out_of_range;
    std::uint32_t seen = 0;
    const Status status =
        detail::await(status_, nullptr, timeout, [&] { return (seen = load_acquire(&here_.notifications[id].value)) >= least; });
    if (status == Status::ok) value = seen;
    return status;
  }

  // What was written no longer uses local memory.
  GIGABAR_DEVICE Status wait(Timeout timeout) {
    if (kept_ == nullptr) return Status::ok;
    return or_lost(device::flush<Sharing::exclusive>(Thread{}, queue_.queue, timeout));
  }

 private:
  GIGABAR_DEVICE Local named(std::uint64_t offset) const {
    return {reinterpret_cast<std::uintptr_t>(here_.address + offset), here_.local_key};
  }
  GIGABAR_DEVICE bool is_inside(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes) const {
    return local_offset <= here_.bytes && bytes <= here_.bytes - local_offset && remote_offset <= there_.bytes &&
           bytes <= there_.bytes - remote_offset;
  }
  GIGABAR_DEVICE Status store(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes) const {
    copy_bytes(Thread{}, there_.address + remote_offset, here_.address + local_offset, bytes);
    return or_lost(Status::ok);
  }
  GIGABAR_DEVICE Status raise(NotificationId id, std::uint32_t value, Order order, std::uint64_t payload) const {
    if (order == Order::after_writes) fence_system();
    detail::store_notification(there_.notifications + id, value, payload);
    return or_lost(Status::ok);
  }
  // A rank that is lost comes before what its queue says.
  GIGABAR_DEVICE Status or_lost(Status posted) const {
    const auto peer = static_cast<Status>(load_relaxed(status_));
    return peer != Status::ok ? peer : posted;
  }

  const std::uint32_t* status_ = nullptr;  // the rank's
  std::uint32_t notification_count_ = 0;
  DeviceSegment there_, here_;
  PeerQueue* kept_ = nullptr;  // where the queue's state is put back; null: by loads and stores
  PeerQueue queue_;
};

}  // namespace gigabar::device
