// SPDX-License-Identifier: Apache-2.0
// Reads that raise a notification of this rank. The fabric has no such operation: the reads are remembered, and whoever waits, or
// the control thread, looks whether they have ended and raises their notification.
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

namespace {

struct Read {
  LocalPlace local;
  RemotePlace remote;
  std::uint64_t bytes;
};

// NOINIT, INV_SEG, INV_LOC_OFF, INV_COMMSIZE, INV_NOTIF_ID, INV_RANK.
gaspi_return_t check(const std::vector<Read>& reads, SegmentId segment, NotificationId id) {
  const Process& all = process();
  if (!is_segment(segment)) return GASPI_ERR_INV_SEG;
  if (id >= all.config.notification_num) return GASPI_ERR_INV_NOTIF_ID;
  for (const Read& read : reads) {
    if (read.bytes > all.config.transfer_size_max) return GASPI_ERR_INV_COMMSIZE;
    const gaspi_return_t refused = check_local(read.local.segment, read.local.offset_bytes, read.bytes);
    if (refused != GASPI_SUCCESS) return refused;
    if (read.remote.rank >= all.rank_count) return GASPI_ERR_INV_RANK;
    if (read.remote.segment >= kSegments) return GASPI_ERR_INV_SEG;
  }
  return GASPI_SUCCESS;
}

// Before the first read is posted: all or nothing.
gaspi_return_t check_remote(const std::vector<Read>& reads, const Timeout& timeout, const char* function) {
  const Remaining time(timeout);
  for (const Read& read : reads) {
    const gaspi_return_t known = know_remote(read.remote.rank, read.remote.segment, time.left(), function);
    if (known != GASPI_SUCCESS) return known;
    const auto remote = process().fabric->remote_segment(read.remote.rank, read.remote.segment, time.left());
    if (remote.status() == Status::out_of_range) return GASPI_ERR_INV_SEG;
    if (!remote) return code_of(remote.error(), function);
    const bool fits = read.remote.offset_bytes <= remote->bytes && read.bytes <= remote->bytes - read.remote.offset_bytes;
    if (!fits) return GASPI_ERR_INV_REM_OFF;
  }
  return GASPI_SUCCESS;
}

gaspi_return_t post_reads(const char* function, const std::vector<Read>& reads, SegmentId segment, NotificationId id, QueueId queue,
                          gaspi_timeout_t timeout_ms) {
  if (const gaspi_return_t refused = check(reads, segment, id); refused != GASPI_SUCCESS) return refused;
  const Remaining time(timeout_of(timeout_ms));
  if (const gaspi_return_t refused = check_remote(reads, time.left(), function); refused != GASPI_SUCCESS) return refused;
  AwaitedRead awaited_read{{}, queue, segment, id};
  const auto post = [&]() -> Result<Operation> {
    Result<Operation> last = Operation{};
    for (const Read& read : reads) {
      last = process().fabric->read(read.local, read.remote, read.bytes, {.queue = queue, .policy = std::nullopt});
      if (!last) return last;
      awaited_read.operations.push_back(*last);
    }
    return last;
  };
  // The notification takes a place of the queue as the reads do: it is awaited with them.
  const auto requests = static_cast<unsigned>(reads.size()) + 1;
  const RemotePlace& first = reads.front().remote;
  const gaspi_return_t posted = post_to(function, queue, first.rank, first.segment, requests, time.left(), post);
  if (posted != GASPI_SUCCESS) return posted;
  std::uint64_t bytes = 0;
  for (const Read& read : reads) bytes += read.bytes;
  count_posted(posted, {{Counter::reads, reads.size()}, {Counter::read_bytes, bytes}});
  const std::scoped_lock lock(mutex);
  awaited.push_back(std::move(awaited_read));
  awaited_count.store(static_cast<unsigned>(awaited.size()), std::memory_order_release);
  return GASPI_SUCCESS;
}

}  // namespace
}  // namespace gigabar::gaspi

using namespace gigabar;
using namespace gigabar::gaspi;

gaspi_return_t pgaspi_read_notify(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                  const gaspi_rank_t rank, const gaspi_segment_id_t segment_id_remote,
                                  const gaspi_offset_t offset_remote, const gaspi_size_t size,
                                  const gaspi_notification_id_t notification_id, const gaspi_queue_id_t queue,
                                  const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    const std::vector<Read> reads{{{segment_id_local, offset_local}, {rank, segment_id_remote, offset_remote}, size}};
    return post_reads("gaspi_read_notify", reads, segment_id_local, notification_id, queue, timeout_ms);
  });
}
GASPI_NAMED(gaspi_read_notify);

gaspi_return_t pgaspi_read_list_notify(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                       gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                       gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                       gaspi_size_t* const size, const gaspi_segment_id_t segment_id_notification,
                                       const gaspi_notification_id_t notification_id, const gaspi_queue_id_t queue,
                                       const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (segment_id_local == nullptr || offset_local == nullptr || segment_id_remote == nullptr || offset_remote == nullptr ||
        size == nullptr)
      return GASPI_ERR_NULLPTR;
    if (num == 0 || num > kMaxListElements) return GASPI_ERR_INV_NUM;
    std::vector<Read> reads;
    for (gaspi_number_t i = 0; i < num; ++i)
      reads.push_back({{segment_id_local[i], offset_local[i]}, {rank, segment_id_remote[i], offset_remote[i]}, size[i]});
    return post_reads("gaspi_read_list_notify", reads, segment_id_notification, notification_id, queue, timeout_ms);
  });
}
GASPI_NAMED(gaspi_read_list_notify);
