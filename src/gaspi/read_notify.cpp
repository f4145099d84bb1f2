// SPDX-License-Identifier: Apache-2.0
// Reads that raise a notification of this rank (lists.cpp posts them). The fabric has no such operation: the reads are remembered,
// and whoever waits, or the control thread, looks whether they have ended and raises their notification.
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

}  // namespace

bool are_reads_awaited() noexcept { return awaited_count.load(std::memory_order_acquire) != 0; }

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
