// SPDX-License-Identifier: Apache-2.0
// Waiting for notifications and taking them.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

constexpr std::chrono::microseconds kBetweenLooks{100};

// A piece of the time that is left: while reads are awaited, somebody has to look whether they have ended.
Timeout piece_of(const Timeout& left, bool are_awaited) {
  const Timeout piece(kBetweenLooks);
  return are_awaited && (left.is_forever() || left.ns() > piece.ns()) ? piece : left;
}

Result<NotificationId> wait_and_raise(SegmentId segment, NotificationId first, std::uint32_t number, const Timeout& timeout) {
  Fabric& fabric = *process().fabric;
  const Remaining time(timeout);
  for (;;) {
    const bool are_awaited = raise_arrived();
    const Timeout left = time.left();
    Result<NotificationId> found = fabric.notification_wait(segment, first, number, piece_of(left, are_awaited));
    if (found.status() != Status::timed_out || (!left.is_forever() && left.ns() <= 0)) return found;
  }
}

gaspi_return_t answer(const Result<NotificationId>& found, gaspi_notification_id_t* first_id) {
  if (!found) return guarded([&] { return code_of(found.error(), "gaspi_notify_waitsome"); });
  *first_id = *found;
  return GASPI_SUCCESS;
}

// NOINIT, INV_SEG, INV_NOTIF_ID, ERR_DEVICE.
gaspi_return_t check(SegmentId segment, NotificationId first, std::uint32_t number, const char* function) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (!is_segment(segment)) return GASPI_ERR_INV_SEG;
  const gaspi_number_t all = process().config.notification_num;
  if (first >= all || number > all - first) return GASPI_ERR_INV_NOTIF_ID;
  return taker_in_kernels(segment) == nullptr ? GASPI_SUCCESS : refuse_taker(segment, function);
}

}  // namespace

gaspi_return_t pgaspi_notify_waitsome(const gaspi_segment_id_t segment_id_local, const gaspi_notification_id_t notification_begin,
                                      const gaspi_number_t num, gaspi_notification_id_t* const first_id,
                                      const gaspi_timeout_t timeout_ms) {
  const gaspi_return_t refused = check(segment_id_local, notification_begin, num, "gaspi_notify_waitsome");
  if (refused != GASPI_SUCCESS) return refused;
  if (first_id == nullptr) return GASPI_ERR_NULLPTR;
  if (num == 0) return GASPI_SUCCESS;
  count(Counter::notification_waits);
  const Timeout timeout = timeout_of(timeout_ms);
  if (!are_reads_awaited())
    return answer(process().fabric->notification_wait(segment_id_local, notification_begin, num, timeout), first_id);
  return guarded([&] { return answer(wait_and_raise(segment_id_local, notification_begin, num, timeout), first_id); });
}
GASPI_NAMED(gaspi_notify_waitsome);

gaspi_return_t pgaspi_notify_reset(const gaspi_segment_id_t segment_id_local, const gaspi_notification_id_t notification_id,
                                   gaspi_notification_t* const old_notification_val) {
  const gaspi_return_t refused = check(segment_id_local, notification_id, 1, "gaspi_notify_reset");
  if (refused != GASPI_SUCCESS) return refused;
  if (old_notification_val == nullptr) return GASPI_ERR_NULLPTR;
  if (are_reads_awaited()) {
    const gaspi_return_t raised = guarded([] { return raise_arrived(), GASPI_SUCCESS; });
    if (raised != GASPI_SUCCESS) return raised;
  }
  const Result<std::uint32_t> before = process().fabric->notification_reset(segment_id_local, notification_id);
  if (!before) return guarded([&] { return code_of(before.error(), "gaspi_notify_reset"); });
  *old_notification_val = *before;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_notify_reset);
