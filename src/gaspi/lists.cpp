// SPDX-License-Identifier: Apache-2.0
// Writes and reads of several places of one rank.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

// The arrays of a list, as every function takes them.
struct List {
  gaspi_number_t number;
  const gaspi_segment_id_t* segment_local;
  const gaspi_offset_t* offset_local;
  gaspi_rank_t rank;
  const gaspi_segment_id_t* segment_remote;
  const gaspi_offset_t* offset_remote;
  const gaspi_size_t* size;
};

// NULLPTR, INV_NUM, INV_COMMSIZE, INV_SEG, INV_LOC_OFF.
gaspi_return_t check(const List& list) {
  if (list.segment_local == nullptr || list.offset_local == nullptr || list.segment_remote == nullptr ||
      list.offset_remote == nullptr || list.size == nullptr)
    return GASPI_ERR_NULLPTR;
  if (list.number == 0 || list.number > kMaxListElements) return GASPI_ERR_INV_NUM;
  for (gaspi_number_t i = 0; i < list.number; ++i) {
    if (list.size[i] > process().config.transfer_size_max) return GASPI_ERR_INV_COMMSIZE;
    const gaspi_return_t refused = check_local(list.segment_local[i], list.offset_local[i], list.size[i]);
    if (refused != GASPI_SUCCESS) return refused;
    if (list.segment_remote[i] >= kSegments) return GASPI_ERR_INV_SEG;
  }
  return GASPI_SUCCESS;
}

std::vector<ListPiece> pieces_of(const List& list, std::uint64_t& bytes) {
  std::vector<ListPiece> pieces(list.number);
  for (gaspi_number_t i = 0; i < list.number; ++i) {
    pieces[i] = {{list.segment_local[i], list.offset_local[i]}, list.segment_remote[i], list.offset_remote[i], list.size[i]};
    bytes += list.size[i];
  }
  return pieces;
}

// Every segment of the list is known at the rank, and every piece fits: the fabric's refusal does not say which was wrong.
gaspi_return_t check_remote(const List& list, const Timeout& timeout, const char* function) {
  Process& all = process();
  if (list.rank >= all.rank_count) return GASPI_ERR_INV_RANK;
  const Remaining time(timeout);
  for (gaspi_number_t i = 0; i < list.number; ++i) {
    const gaspi_return_t known = know_remote(list.rank, list.segment_remote[i], time.left(), function);
    if (known != GASPI_SUCCESS) return known;
  }
  return GASPI_SUCCESS;
}

gaspi_return_t code_of_list(const Error& error, const List& list, const char* function) {
  if (error.status() != Status::out_of_range) return code_of_post(error, list.rank, list.segment_remote[0], function);
  for (gaspi_number_t i = 0; i < list.number; ++i) {
    const auto remote = process().fabric->remote_segment(list.rank, list.segment_remote[i], std::chrono::seconds(1));
    if (remote.status() == Status::out_of_range) return GASPI_ERR_INV_SEG;
  }
  return GASPI_ERR_INV_REM_OFF;
}

struct Notification {
  SegmentId segment;
  NotificationId id;
  std::uint32_t value;
};

enum class Direction : std::uint8_t { write, read };

gaspi_return_t check_and_post(const char* function, const List& list, Direction direction,
                              const std::optional<Notification>& notification, gaspi_queue_id_t queue, gaspi_timeout_t timeout_ms) {
  if (const gaspi_return_t refused = check(list); refused != GASPI_SUCCESS) return refused;
  if (notification) {
    if (notification->id >= process().config.notification_num) return GASPI_ERR_INV_NOTIF_ID;
    if (notification->value == 0) return GASPI_ERR_INV_NOTIF_VAL;
    if (notification->segment >= kSegments) return GASPI_ERR_INV_SEG;
  }
  const Remaining time(timeout_of(timeout_ms));
  if (const gaspi_return_t refused = check_remote(list, time.left(), function); refused != GASPI_SUCCESS) return refused;
  std::uint64_t bytes = 0;
  const std::vector<ListPiece> pieces = pieces_of(list, bytes);
  const bool is_write = direction == Direction::write;
  std::optional<Error> refusal;
  const auto post = [&]() -> Result<Operation> {
    Fabric& fabric = *process().fabric;
    const PostOptions options{.queue = queue, .policy = std::nullopt};
    const bool is_for_kernels = notification && taker_in_kernels(notification->segment) != nullptr;
    const bool is_one = notification && !is_for_kernels;
    Result<Operation> posted =
        is_one ? fabric.write_list_notify(list.rank, pieces, notification->segment, notification->id, notification->value, options)
        : is_write ? fabric.write_list(list.rank, pieces, options)
                   : fabric.read_list(list.rank, pieces, options);
    if (posted && is_for_kernels)
      posted = notify_taker(list.rank, notification->segment, notification->id, notification->value, options);
    if (!posted) refusal = posted.error();
    return posted;
  };
  const unsigned requests = list.number + (notification ? 1 : 0);
  const SegmentId known = notification ? notification->segment : list.segment_remote[0];
  const gaspi_return_t code = post_to(function, queue, list.rank, known, requests, time.left(), post);
  if (refusal && refusal->status() == Status::out_of_range) return code_of_list(*refusal, list, function);
  if (!is_write) return count_posted(code, {{Counter::reads, list.number}, {Counter::read_bytes, bytes}});
  const std::uint64_t notifications = notification ? 1 : 0;
  return count_posted(code,
                      {{Counter::writes, list.number}, {Counter::write_bytes, bytes}, {Counter::notifications, notifications}});
}

gaspi_return_t post_list(const char* function, const List& list, Direction direction,
                         const std::optional<Notification>& notification, gaspi_queue_id_t queue, gaspi_timeout_t timeout_ms) {
  return when_ready([&] { return check_and_post(function, list, direction, notification, queue, timeout_ms); });
}

}  // namespace

gaspi_return_t pgaspi_write_list(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                 gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                 gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                 gaspi_size_t* const size, const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  return post_list("gaspi_write_list", {num, segment_id_local, offset_local, rank, segment_id_remote, offset_remote, size},
                   Direction::write, std::nullopt, queue, timeout_ms);
}
GASPI_NAMED(gaspi_write_list);

gaspi_return_t pgaspi_read_list(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                gaspi_size_t* const size, const gaspi_queue_id_t queue, const gaspi_timeout_t timeout_ms) {
  return post_list("gaspi_read_list", {num, segment_id_local, offset_local, rank, segment_id_remote, offset_remote, size},
                   Direction::read, std::nullopt, queue, timeout_ms);
}
GASPI_NAMED(gaspi_read_list);

gaspi_return_t pgaspi_write_list_notify(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                        gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                        gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                        gaspi_size_t* const size, const gaspi_segment_id_t segment_id_notification,
                                        const gaspi_notification_id_t notification_id,
                                        const gaspi_notification_t notification_value, const gaspi_queue_id_t queue,
                                        const gaspi_timeout_t timeout_ms) {
  const Notification notification{segment_id_notification, notification_id, notification_value};
  return post_list("gaspi_write_list_notify", {num, segment_id_local, offset_local, rank, segment_id_remote, offset_remote, size},
                   Direction::write, notification, queue, timeout_ms);
}
GASPI_NAMED(gaspi_write_list_notify);
