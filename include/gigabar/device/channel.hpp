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
    channel.fabric_ = fabric;
    channel.rank_ = rank;
    channel.remote_ = remote;
    channel.local_ = local;
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
    if (kept_ == nullptr) return device::write(Thread{}, fabric_, {local_, local_offset}, {rank_, remote_, remote_offset}, bytes);
    if (!is_inside(local_offset, remote_offset, bytes)) return Status::out_of_range;
    return or_lost(detail::post_bytes<Sharing::exclusive>(queue_, detail::behind(there_.remote, remote_offset), named(local_offset),
                                                          here_.address + local_offset, bytes, timeout));
  }

  GIGABAR_DEVICE Status write_notify(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes,
                                     NotificationId id, std::uint32_t value, Timeout timeout) {
    if (kept_ == nullptr)
      return device::write_notify(Thread{}, fabric_, {local_, local_offset}, {rank_, remote_, remote_offset}, bytes, id, value);
    if (value == 0) return Status::invalid_argument;
    if (!is_inside(local_offset, remote_offset, bytes) || id >= fabric_.notification_count) return Status::out_of_range;
    return or_lost(detail::post_bytes_notify<Sharing::exclusive>(queue_, detail::behind(there_.remote, remote_offset),
                                                                 named(local_offset), here_.address + local_offset, bytes,
                                                                 detail::value_of(there_, id), value, timeout));
  }

  GIGABAR_DEVICE Status notify(NotificationId id, std::uint32_t value, Order order, std::uint64_t payload, Timeout timeout) {
    if (kept_ == nullptr) return device::notify(Thread{}, fabric_, rank_, remote_, id, value, order, payload);
    if (value == 0) return Status::invalid_argument;
    if (id >= fabric_.notification_count) return Status::out_of_range;
    Ticket ticket;
    return or_lost(device::post_inline_write_notify<Sharing::exclusive>(Thread{}, queue_.queue, detail::payload_of(there_, id),
                                                                        inline_value(payload), detail::value_of(there_, id), value,
                                                                        ticket, timeout));
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
  // A rank that is lost comes before what its queue says.
  GIGABAR_DEVICE Status or_lost(Status posted) const {
    const Status peer = peer_status(fabric_, rank_);
    return peer != Status::ok ? peer : posted;
  }

  DeviceFabric fabric_;
  Rank rank_ = 0;
  SegmentId remote_ = 0, local_ = 0;
  DeviceSegment there_, here_;
  PeerQueue* kept_ = nullptr;  // where the queue's state is put back; null: by loads and stores
  PeerQueue queue_;
};

}  // namespace gigabar::device
