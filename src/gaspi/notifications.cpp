// SPDX-License-Identifier: Apache-2.0
// Waiting for notifications and taking them; and reads that raise a notification of this rank (lists.cpp posts them). The fabric
// has no such operation: the reads are remembered, and whoever waits, or the control thread, looks whether they have ended and
// raises their notification.
#include "gaspi/process.hpp"

namespace gigabar::gaspi {
namespace {

struct AwaitedRead {
  std::vector<Operation> operations;
  QueueId queue = 0;
  SegmentId segment = 0;
  NotificationId id = 0;
};

std::mutex mutex;  // of the list, also while notifications are raised: of two threads the second finds them raised
std::vector<AwaitedRead> awaited;
std::atomic<unsigned> awaited_count{0};

enum class Progress : std::uint8_t { under_way, arrived, failed };

// Of all that was posted to the queue. Looks once.
Progress progress_of_queue(QueueId id) {
  Queue& queue = process().queues[id];
  const auto turn = lock_within(queue.turn, Timeout::test());
  if (!turn) return Progress::under_way;  // another thread posts, or waits and raises
  const Result<void> waited = process().fabric->wait(id, Timeout::test());
  if (waited.status() == Status::timed_out) return Progress::under_way;
  if (!waited && !queue.failure) queue.failure = waited.error();  // the fabric tells it once
  return queue.failure ? Progress::failed : Progress::arrived;
}

// The fabric keeps the reports of its last 4096 operations. Where that of a read is gone, and nobody has looked between its end and
// that of 4096 others, the read has ended for certain when its queue is empty.
Progress progress_of(const AwaitedRead& read, const std::optional<EndedQueue>& ended) {
  const bool has_ended = ended && ended->queue == read.queue;
  if (has_ended && !ended->has_failed) return Progress::arrived;
  for (const Operation operation : read.operations) {
    const Result<OperationReport> report = process().fabric->report(operation);
    if (!report) return has_ended ? Progress::failed : progress_of_queue(read.queue);
    if (!report->is_done) return Progress::under_way;
    if (report->status != Status::ok) return Progress::failed;
  }
  return Progress::arrived;
}

bool are_reads_awaited() noexcept { return awaited_count.load(std::memory_order_acquire) != 0; }

}  // namespace

bool raise_arrived(std::optional<EndedQueue> ended) {
  if (!are_reads_awaited()) return false;
  const std::scoped_lock lock(mutex);
  std::erase_if(awaited, [&](const AwaitedRead& read) {
    const Progress progress = progress_of(read, ended);
    if (progress == Progress::arrived) {
      if (Result<void> raised = notify_self(read.segment, read.id, 1); !raised) code_of(raised.error(), "gaspi_read_notify");
    }
    return progress != Progress::under_way;
  });
  awaited_count.store(static_cast<unsigned>(awaited.size()), std::memory_order_release);
  return !awaited.empty();
}

void drop_awaited_reads(std::optional<SegmentId> segment) {
  const std::scoped_lock lock(mutex);
  std::erase_if(awaited, [&](const AwaitedRead& read) { return !segment || read.segment == *segment; });
  awaited_count.store(static_cast<unsigned>(awaited.size()), std::memory_order_release);
}

void await_reads(std::vector<Operation> operations, QueueId queue, SegmentId segment, NotificationId id) {
  const std::scoped_lock lock(mutex);
  awaited.push_back({std::move(operations), queue, segment, id});
  awaited_count.store(static_cast<unsigned>(awaited.size()), std::memory_order_release);
}

}  // namespace gigabar::gaspi

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

constexpr Timeout kBetweenLooks(std::chrono::microseconds(100));

Result<NotificationId> wait_and_raise(SegmentId segment, NotificationId first, std::uint32_t number, const Timeout& timeout) {
  Fabric& fabric = *process().fabric;
  const Remaining time(timeout);
  for (;;) {
    const bool are_awaited = raise_arrived();
    const Timeout left = time.left();
    // While reads are awaited, somebody has to look whether they have ended.
    const bool is_in_pieces = are_awaited && (left.is_forever() || left.ns() > kBetweenLooks.ns());
    Result<NotificationId> found = fabric.notification_wait(segment, first, number, is_in_pieces ? kBetweenLooks : left);
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
