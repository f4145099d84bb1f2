// SPDX-License-Identifier: Apache-2.0
// Writes, reads, notifications and atomics of one place. The fabric's own path costs a fraction of a microsecond: what is added
// here is compares.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

PostOptions on(QueueId queue) { return {.queue = queue, .policy = std::nullopt}; }

// What a call names wrongly on this side. NOINIT, INV_SEG, INV_LOC_OFF, INV_COMMSIZE.
gaspi_return_t check_transfer(const LocalPlace& local, std::uint64_t bytes) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (bytes > process().config.transfer_size_max) return GASPI_ERR_INV_COMMSIZE;
  return check_local(local.segment, local.offset_bytes, bytes);
}

gaspi_return_t check_notification(NotificationId id, std::uint32_t value) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (id >= process().config.notification_num) return GASPI_ERR_INV_NOTIF_ID;
  return value != 0 ? GASPI_SUCCESS : GASPI_ERR_INV_NOTIF_VAL;
}

// An atomic. A call that timed out may have changed the value: the fabric goes on with it when it is made again.
template <class Change>
gaspi_return_t change(const char* function, const RemotePlace& place, gaspi_atomic_value_t* old, gaspi_timeout_t timeout_ms,
                      const Change& call) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  Process& all = process();
  if (place.segment >= kSegments) return GASPI_ERR_INV_SEG;
  if (place.rank >= all.rank_count) return GASPI_ERR_INV_RANK;
  if (place.offset_bytes % sizeof(std::uint64_t) != 0) return GASPI_ERR_UNALIGN_OFF;
  if (old == nullptr) return GASPI_ERR_NULLPTR;
  count(Counter::atomics);
  const Remaining time(timeout_of(timeout_ms));
  const gaspi_return_t known = know_remote(place.rank, place.segment, time.left(), function);
  if (known != GASPI_SUCCESS) return known;
  const Result<std::uint64_t> before = call(time.left());
  if (before) return store(old, *before);
  if (before.status() == Status::invalid_argument) return GASPI_ERR_UNALIGN_OFF;  // memory of the program that begins so
  return code_of_post(before.error(), place.rank, place.segment, function);
}

}  // namespace

gaspi_return_t pgaspi_write(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local, const gaspi_rank_t rank,
                            const gaspi_segment_id_t segment_id_remote, const gaspi_offset_t offset_remote, const gaspi_size_t size,
                            const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  const LocalPlace local{segment_id_local, offset_local};
  if (const gaspi_return_t refused = check_transfer(local, size); refused != GASPI_SUCCESS) return refused;
  return post_to("gaspi_write", queue, rank, segment_id_remote, size == 0 ? 0 : 1, timeout_of(timeout_ms),
                 {{Counter::writes, 1}, {Counter::write_bytes, size}},
                 [&] { return process().fabric->write(local, {rank, segment_id_remote, offset_remote}, size, on(queue)); });
}
GASPI_NAMED(gaspi_write);

gaspi_return_t pgaspi_read(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local, const gaspi_rank_t rank,
                           const gaspi_segment_id_t segment_id_remote, const gaspi_offset_t offset_remote, const gaspi_size_t size,
                           const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  const LocalPlace local{segment_id_local, offset_local};
  if (const gaspi_return_t refused = check_transfer(local, size); refused != GASPI_SUCCESS) return refused;
  return post_to("gaspi_read", queue, rank, segment_id_remote, size == 0 ? 0 : 1, timeout_of(timeout_ms),
                 {{Counter::reads, 1}, {Counter::read_bytes, size}},
                 [&] { return process().fabric->read(local, {rank, segment_id_remote, offset_remote}, size, on(queue)); });
}
GASPI_NAMED(gaspi_read);

gaspi_return_t pgaspi_notify(const gaspi_segment_id_t segment_id_remote, const gaspi_rank_t rank,
                             const gaspi_notification_id_t notification_id, const gaspi_notification_t notification_value,
                             const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  const gaspi_return_t refused = check_notification(notification_id, notification_value);
  if (refused != GASPI_SUCCESS) return refused;
  return post_to("gaspi_notify", queue, rank, segment_id_remote, 1, timeout_of(timeout_ms), {{Counter::notifications, 1}},
                 [&] { return notify_taker(rank, segment_id_remote, notification_id, notification_value, on(queue)); });
}
GASPI_NAMED(gaspi_notify);

gaspi_return_t pgaspi_write_notify(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                   const gaspi_rank_t rank, const gaspi_segment_id_t segment_id_remote,
                                   const gaspi_offset_t offset_remote, const gaspi_size_t size,
                                   const gaspi_notification_id_t notification_id, const gaspi_notification_t notification_value,
                                   const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  const LocalPlace local{segment_id_local, offset_local};
  if (const gaspi_return_t refused = check_transfer(local, size); refused != GASPI_SUCCESS) return refused;
  const gaspi_return_t refused = check_notification(notification_id, notification_value);
  if (refused != GASPI_SUCCESS) return refused;
  const RemotePlace remote{rank, segment_id_remote, offset_remote};
  const auto device = taker_in_kernels(segment_id_remote);
  return post_to("gaspi_write_notify", queue, rank, segment_id_remote, device != nullptr ? 2 : 1, timeout_of(timeout_ms),
                 {{Counter::writes, 1}, {Counter::write_bytes, size}, {Counter::notifications, 1}}, [&] {
                   if (device != nullptr)
                     return write_notify_kernel(*device, local, remote, size, notification_id, notification_value, on(queue));
                   return process().fabric->write_notify(local, remote, size, notification_id, notification_value, on(queue));
                 });
}
GASPI_NAMED(gaspi_write_notify);

gaspi_return_t pgaspi_atomic_fetch_add(const gaspi_segment_id_t segment_id, const gaspi_offset_t offset, const gaspi_rank_t rank,
                                       const gaspi_atomic_value_t val_add, gaspi_atomic_value_t* const val_old,
                                       const gaspi_timeout_t timeout_ms) {
  const RemotePlace place{rank, segment_id, offset};
  return change("gaspi_atomic_fetch_add", place, val_old, timeout_ms,
                [&](const Timeout& timeout) { return process().fabric->fetch_add(place, val_add, timeout); });
}
GASPI_NAMED(gaspi_atomic_fetch_add);

gaspi_return_t pgaspi_atomic_compare_swap(const gaspi_segment_id_t segment_id, const gaspi_offset_t offset, const gaspi_rank_t rank,
                                          const gaspi_atomic_value_t comparator, const gaspi_atomic_value_t val_new,
                                          gaspi_atomic_value_t* const val_old, const gaspi_timeout_t timeout_ms) {
  const RemotePlace place{rank, segment_id, offset};
  return change("gaspi_atomic_compare_swap", place, val_old, timeout_ms,
                [&](const Timeout& timeout) { return process().fabric->compare_swap(place, comparator, val_new, timeout); });
}
GASPI_NAMED(gaspi_atomic_compare_swap);
