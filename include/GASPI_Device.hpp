// SPDX-License-Identifier: Apache-2.0
// GASPI in kernels: functions with the names, arguments and return codes of those in GASPI.h, which a kernel calls on the handle
// that gaspi_device_open (GASPI_Ext.h) gives. They are the device functions of gigabar/device/fabric.hpp: a write to a load/store
// accessible segment is a store of this GPU, others are requests in a queue that no CPU of the program serves.
//
//   __global__ void send(gaspi_device_t device) {  // send<<<1, 256>>>(*device), from the pointer that gaspi_device_open stores
//     gaspi_write_notify(gigabar::device::Block{}, device, 0, 0, 1, 0, 0, 4096, 7, 1, 0, GASPI_BLOCK);
//   }
//
// The first argument is a scope (gigabar/device/scope.hpp): Thread, Warp or Block. All its threads call together, with equal
// arguments, and get the same result. In a program without nvcc threads of the CPU call (Thread or CpuTeam::Member), over memory of
// stand-ins.
//
// Where a call means something else than on the host:
// - A queue empties itself, so no call returns GASPI_QUEUE_FULL: without a free place a call waits, and ends with GASPI_TIMEOUT.
// - Kernels have queues of their own, `queue_num` of gaspi_device_open; gaspi_wait on the host does not wait for them. Local memory
//   of a write may be written again after gaspi_wait, as on the host, or after a gaspi_notify to the rank.
// - GASPI_ERR_DEVICE: this GPU accesses the segment, or its atomics, in no way; or the CPU takes the notifications of the segment
//   (GASPI_NOTIFY_CPU) that the kernel wants to take.
// - Atomics are atomic among kernels (docs/device.md has the table), not with gaspi_atomic_* of CPUs.
// - NOINIT does not exist: without a session there is no handle.
//
// Ordering: as on the host. A notification is seen after the data of its call and of every earlier write of the queue to the rank,
// by a kernel that runs too, whoever raised it. It also covers what the callers wrote before to load/store accessible segments.
#ifndef GIGABAR_GASPI_DEVICE_HPP
#define GIGABAR_GASPI_DEVICE_HPP

#include <cstdint>

#include "PGASPI.h"  // which names the types of functions that are overloaded here
#include "gigabar/device/fabric.hpp"

// Given to kernels by value; valid until gaspi_device_close.
struct gaspi_device {
  gigabar::device::DeviceFabric fabric;
  gaspi_size_t transfer_size_max = 0;
};

namespace gigabar::gaspi::device_side {

namespace device = gigabar::device;

inline constexpr std::uint64_t kNsPerMs = 1'000'000;
inline constexpr device::Timeout kLookForRanks{1'000'000'000};  // how long a wait without end does not ask for lost ranks
// An atomic is not given up earlier: a second call would change twice.
inline constexpr device::Timeout kAtomicAnswer{1'000'000'000};

GIGABAR_DEVICE device::Timeout timeout_of(gaspi_timeout_t ms) {
  return ms > device::kForever.ns / kNsPerMs ? device::kForever : device::Timeout{ms * kNsPerMs};
}

GIGABAR_DEVICE gaspi_return_t code_of(Status status) {
  switch (status) {
    case Status::ok: return GASPI_SUCCESS;
    case Status::timed_out: return GASPI_TIMEOUT;
    case Status::unavailable:
    case Status::not_supported: return GASPI_ERR_DEVICE;
    default: return GASPI_ERROR;
  }
}

// The rank's segment; null: it has none, or the handle was not opened for it, which the device functions refuse too.
GIGABAR_DEVICE const device::DeviceSegment* find_segment(const gaspi_device_t& device, Rank rank, gaspi_segment_id_t id) {
  const device::DeviceSegment* const segment = device::detail::find_segment(device.fabric, rank, id);
  return segment == nullptr || segment->bytes == 0 ? nullptr : segment;
}

GIGABAR_DEVICE bool fits(const device::DeviceSegment& segment, std::uint64_t offset, std::uint64_t bytes) {
  return offset <= segment.bytes && bytes <= segment.bytes - offset;
}

// The following functions return what a call names wrongly, in the order of the host's functions.
GIGABAR_DEVICE gaspi_return_t check_local(const gaspi_device_t& device, gaspi_segment_id_t id, std::uint64_t offset,
                                          std::uint64_t bytes) {
  if (bytes > device.transfer_size_max) return GASPI_ERR_INV_COMMSIZE;
  const device::DeviceSegment* const segment = find_segment(device, device.fabric.rank, id);
  if (segment == nullptr) return GASPI_ERR_INV_SEG;
  return fits(*segment, offset, bytes) ? GASPI_SUCCESS : GASPI_ERR_INV_LOC_OFF;
}

GIGABAR_DEVICE gaspi_return_t check_notification(const gaspi_device_t& device, gaspi_notification_id_t id,
                                                 gaspi_notification_t value) {
  if (id >= device.fabric.notification_count) return GASPI_ERR_INV_NOTIF_ID;
  return value != 0 ? GASPI_SUCCESS : GASPI_ERR_INV_NOTIF_VAL;
}

GIGABAR_DEVICE gaspi_return_t check_remote(const gaspi_device_t& device, gaspi_queue_id_t queue, gaspi_rank_t rank,
                                           gaspi_segment_id_t id, std::uint64_t offset, std::uint64_t bytes) {
  if (queue >= device.fabric.queue_count) return GASPI_ERR_INV_QUEUE;
  if (rank >= device.fabric.rank_count) return GASPI_ERR_INV_RANK;
  const device::DeviceSegment* const segment = find_segment(device, rank, id);
  if (segment == nullptr) return GASPI_ERR_INV_SEG;
  return fits(*segment, offset, bytes) ? GASPI_SUCCESS : GASPI_ERR_INV_REM_OFF;
}

GIGABAR_DEVICE gaspi_return_t check_taken(const gaspi_device_t& device, gaspi_segment_id_t id, std::uint64_t first,
                                          std::uint64_t number) {
  if (find_segment(device, device.fabric.rank, id) == nullptr) return GASPI_ERR_INV_SEG;
  const std::uint64_t all = device.fabric.notification_count;
  return first < all && number <= all - first ? GASPI_SUCCESS : GASPI_ERR_INV_NOTIF_ID;
}

// Runs a device function, which checks its arguments, and finds out only then which one it refused: a message takes as long as its
// instructions. `may_run`: nothing speaks against it that the function does not know; otherwise the arguments are checked first.
template <class Run, class Check>
GIGABAR_DEVICE gaspi_return_t run_checked(bool may_run, const Run& run, const Check& check) {
  Status status = Status::ok;
  if (may_run) {
    status = run();
    if (status == Status::ok) return GASPI_SUCCESS;
    if (status == Status::timed_out || status == Status::peer_lost || status == Status::device_error) return code_of(status);
  }
  const gaspi_return_t refused = check();
  if (refused != GASPI_SUCCESS) return refused;
  return code_of(may_run ? status : run());
}

GIGABAR_DEVICE bool may_post(const gaspi_device_t& device, gaspi_queue_id_t queue) { return queue < device.fabric.queue_count; }
// Of no bytes the function does not look where they are.
GIGABAR_DEVICE bool may_transfer(const gaspi_device_t& device, std::uint64_t bytes, gaspi_queue_id_t queue) {
  return bytes != 0 && bytes <= device.transfer_size_max && may_post(device, queue);
}

// `run`: a write or a read without a notification.
template <class Run>
GIGABAR_DEVICE gaspi_return_t run_transfer(const gaspi_device_t& device, gaspi_segment_id_t id_local, std::uint64_t offset_local,
                                           gaspi_rank_t rank, gaspi_segment_id_t id_remote, std::uint64_t offset_remote,
                                           std::uint64_t bytes, gaspi_queue_id_t queue, const Run& run) {
  return run_checked(may_transfer(device, bytes, queue), run, [&] {
    const gaspi_return_t refused = check_local(device, id_local, offset_local, bytes);
    return refused != GASPI_SUCCESS ? refused : check_remote(device, queue, rank, id_remote, offset_remote, bytes);
  });
}

GIGABAR_DEVICE device::Post on(gaspi_queue_id_t queue, gaspi_timeout_t timeout_ms) {
  return {queue, timeout_of(timeout_ms), device::Sharing::device};
}

template <class Scope>
GIGABAR_DEVICE bool are_all_lost(const Scope& scope, const device::DeviceFabric& fabric) {
  const std::uint32_t lost = scope.rank() == 0 ? device::load_relaxed(fabric.peer_status + fabric.rank_count) : 0;
  return fabric.rank_count > 1 && scope.broadcast(lost) == fabric.rank_count - 1;
}

// An atomic of `change`, which returns a Status.
template <class Change>
GIGABAR_DEVICE gaspi_return_t change_word(const gaspi_device_t& device, gaspi_segment_id_t id, gaspi_offset_t offset,
                                          gaspi_rank_t rank, gaspi_atomic_value_t* old, gaspi_timeout_t timeout_ms,
                                          const Change& change) {
  if (rank >= device.fabric.rank_count) return GASPI_ERR_INV_RANK;
  if (offset % sizeof(std::uint64_t) != 0) return GASPI_ERR_UNALIGN_OFF;
  if (old == nullptr) return GASPI_ERR_NULLPTR;
  const device::DeviceSegment* const segment = find_segment(device, rank, id);
  if (segment == nullptr) return GASPI_ERR_INV_SEG;
  if (!fits(*segment, offset, sizeof(std::uint64_t))) return GASPI_ERR_INV_REM_OFF;
  const device::Timeout timeout = timeout_of(timeout_ms);
  std::uint64_t before = 0;
  const Status status = change(RemotePlace{rank, id, offset}, timeout.ns > kAtomicAnswer.ns ? timeout : kAtomicAnswer, before);
  if (status == Status::ok) *old = before;
  return code_of(status);
}

}  // namespace gigabar::gaspi::device_side

// INV_COMMSIZE, INV_SEG, INV_LOC_OFF, INV_QUEUE, INV_RANK, INV_REM_OFF, ERR_DEVICE.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_write(const Scope& scope, const gaspi_device_t& device, gaspi_segment_id_t segment_id_local,
                                          gaspi_offset_t offset_local, gaspi_rank_t rank, gaspi_segment_id_t segment_id_remote,
                                          gaspi_offset_t offset_remote, gaspi_size_t size, gaspi_queue_id_t queue,
                                          gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  return side::run_transfer(device, segment_id_local, offset_local, rank, segment_id_remote, offset_remote, size, queue, [&] {
    return gigabar::device::write(scope, device.fabric, {segment_id_local, offset_local}, {rank, segment_id_remote, offset_remote},
                                  size, side::on(queue, timeout_ms));
  });
}

// Local memory has the bytes after gaspi_wait. As gaspi_write.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_read(const Scope& scope, const gaspi_device_t& device, gaspi_segment_id_t segment_id_local,
                                         gaspi_offset_t offset_local, gaspi_rank_t rank, gaspi_segment_id_t segment_id_remote,
                                         gaspi_offset_t offset_remote, gaspi_size_t size, gaspi_queue_id_t queue,
                                         gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  return side::run_transfer(device, segment_id_local, offset_local, rank, segment_id_remote, offset_remote, size, queue, [&] {
    return gigabar::device::read(scope, device.fabric, {segment_id_local, offset_local}, {rank, segment_id_remote, offset_remote},
                                 size, side::on(queue, timeout_ms));
  });
}

// INV_NOTIF_ID, INV_NOTIF_VAL, INV_QUEUE, INV_RANK, INV_SEG, ERR_DEVICE.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_notify(const Scope& scope, const gaspi_device_t& device, gaspi_segment_id_t segment_id_remote,
                                           gaspi_rank_t rank, gaspi_notification_id_t notification_id,
                                           gaspi_notification_t notification_value, gaspi_queue_id_t queue,
                                           gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  return side::run_checked(
      side::may_post(device, queue),
      [&] {
        return gigabar::device::notify(scope, device.fabric, rank, segment_id_remote, notification_id, notification_value,
                                       gigabar::device::Order::after_writes, 0, side::on(queue, timeout_ms));
      },
      [&] {
        const gaspi_return_t refused = side::check_notification(device, notification_id, notification_value);
        return refused != GASPI_SUCCESS ? refused : side::check_remote(device, queue, rank, segment_id_remote, 0, 0);
      });
}

// As gaspi_write and gaspi_notify.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_write_notify(const Scope& scope, const gaspi_device_t& device,
                                                 gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local,
                                                 gaspi_rank_t rank, gaspi_segment_id_t segment_id_remote,
                                                 gaspi_offset_t offset_remote, gaspi_size_t size,
                                                 gaspi_notification_id_t notification_id, gaspi_notification_t notification_value,
                                                 gaspi_queue_id_t queue, gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  return side::run_checked(
      side::may_transfer(device, size, queue),
      [&] {
        return gigabar::device::write_notify(scope, device.fabric, {segment_id_local, offset_local},
                                             {rank, segment_id_remote, offset_remote}, size, notification_id, notification_value,
                                             side::on(queue, timeout_ms));
      },
      [&] {
        gaspi_return_t refused = side::check_local(device, segment_id_local, offset_local, size);
        if (refused == GASPI_SUCCESS) refused = side::check_notification(device, notification_id, notification_value);
        return refused != GASPI_SUCCESS ? refused : side::check_remote(device, queue, rank, segment_id_remote, offset_remote, size);
      });
}

// Waits for what kernels of this GPU have posted to the queue. INV_QUEUE.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_wait(const Scope& scope, const gaspi_device_t& device, gaspi_queue_id_t queue,
                                         gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  if (queue >= device.fabric.queue_count) return GASPI_ERR_INV_QUEUE;
  return side::code_of(gigabar::device::wait(scope, device.fabric, queue, side::timeout_of(timeout_ms)));
}

// INV_SEG, INV_NOTIF_ID, ERR_DEVICE (GASPI_NOTIFY_CPU), NULLPTR. GASPI_BLOCK ends with GASPI_ERROR when every other rank is lost.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_notify_waitsome(const Scope& scope, const gaspi_device_t& device,
                                                    gaspi_segment_id_t segment_id_local, gaspi_notification_id_t notification_begin,
                                                    gaspi_number_t num, gaspi_notification_id_t* first_id,
                                                    gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  const auto check = [&] { return side::check_taken(device, segment_id_local, notification_begin, num); };
  if (num == 0 || first_id == nullptr) {
    const gaspi_return_t refused = check();
    return refused != GASPI_SUCCESS ? refused : first_id == nullptr ? GASPI_ERR_NULLPTR : GASPI_SUCCESS;
  }
  const bool is_forever = timeout_ms == GASPI_BLOCK;
  const gigabar::device::Timeout timeout = is_forever ? side::kLookForRanks : side::timeout_of(timeout_ms);
  gigabar::NotificationId found = 0;
  while (true) {
    const gigabar::Status status =
        gigabar::device::notification_wait(scope, device.fabric, segment_id_local, notification_begin, num, timeout, found);
    if (status == gigabar::Status::ok) {
      *first_id = found;
      return GASPI_SUCCESS;
    }
    const bool has_lost = status == gigabar::Status::peer_lost;
    if (!has_lost && status != gigabar::Status::timed_out) {
      const gaspi_return_t refused = check();
      return refused != GASPI_SUCCESS ? refused : side::code_of(status);
    }
    if (has_lost && side::are_all_lost(scope, device.fabric)) return GASPI_ERROR;
    if (!is_forever) return GASPI_TIMEOUT;
  }
}

// INV_SEG, INV_NOTIF_ID, ERR_DEVICE (GASPI_NOTIFY_CPU), NULLPTR.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_notify_reset(const Scope& scope, const gaspi_device_t& device,
                                                 gaspi_segment_id_t segment_id_local, gaspi_notification_id_t notification_id,
                                                 gaspi_notification_t* old_notification_val) {
  namespace side = gigabar::gaspi::device_side;
  const auto check = [&] {
    const gaspi_return_t refused = side::check_taken(device, segment_id_local, notification_id, 1);
    return refused != GASPI_SUCCESS || old_notification_val != nullptr ? refused : GASPI_ERR_NULLPTR;
  };
  std::uint32_t before = 0;
  const gaspi_return_t result = side::run_checked(
      old_notification_val != nullptr,
      [&] { return gigabar::device::notification_reset(scope, device.fabric, segment_id_local, notification_id, before); }, check);
  if (result == GASPI_SUCCESS) *old_notification_val = before;
  return result;
}

// INV_RANK, UNALIGN_OFF, NULLPTR, INV_SEG, INV_REM_OFF, ERR_DEVICE. The answer is awaited for at least a second.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_atomic_fetch_add(const Scope& scope, const gaspi_device_t& device,
                                                     gaspi_segment_id_t segment_id, gaspi_offset_t offset, gaspi_rank_t rank,
                                                     gaspi_atomic_value_t val_add, gaspi_atomic_value_t* val_old,
                                                     gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  return side::change_word(device, segment_id, offset, rank, val_old, timeout_ms,
                           [&](gigabar::RemotePlace place, gigabar::device::Timeout timeout, std::uint64_t& old) {
                             return gigabar::device::atomic_fetch_add(scope, device.fabric, place, val_add, timeout, old);
                           });
}

template <class Scope>
GIGABAR_DEVICE gaspi_return_t gaspi_atomic_compare_swap(const Scope& scope, const gaspi_device_t& device,
                                                        gaspi_segment_id_t segment_id, gaspi_offset_t offset, gaspi_rank_t rank,
                                                        gaspi_atomic_value_t comparator, gaspi_atomic_value_t val_new,
                                                        gaspi_atomic_value_t* val_old, gaspi_timeout_t timeout_ms) {
  namespace side = gigabar::gaspi::device_side;
  return side::change_word(device, segment_id, offset, rank, val_old, timeout_ms,
                           [&](gigabar::RemotePlace place, gigabar::device::Timeout timeout, std::uint64_t& old) {
                             return gigabar::device::compare_swap(scope, device.fabric, place, comparator, val_new, timeout, old);
                           });
}

#endif
