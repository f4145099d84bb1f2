// SPDX-License-Identifier: Apache-2.0
// Writes and reads of several places of one rank, and reads that raise a notification.
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

// Its pieces. NULLPTR, INV_NUM, INV_COMMSIZE, INV_SEG, INV_LOC_OFF.
gaspi_return_t read_pieces(const List& list, std::vector<ListPiece>& pieces) {
  if (list.segment_local == nullptr || list.offset_local == nullptr || list.segment_remote == nullptr ||
      list.offset_remote == nullptr || list.size == nullptr)
    return GASPI_ERR_NULLPTR;
  if (list.number == 0 || list.number > kMaxListElements) return GASPI_ERR_INV_NUM;
  for (gaspi_number_t i = 0; i < list.number; ++i) {
    const ListPiece& piece = pieces.emplace_back(
        ListPiece{{list.segment_local[i], list.offset_local[i]}, list.segment_remote[i], list.offset_remote[i], list.size[i]});
    if (piece.bytes > process().config.transfer_size_max) return GASPI_ERR_INV_COMMSIZE;
    const gaspi_return_t refused = check_local(piece.local.segment, piece.local.offset_bytes, piece.bytes);
    if (refused != GASPI_SUCCESS) return refused;
    if (piece.remote_segment >= kSegments) return GASPI_ERR_INV_SEG;
  }
  return GASPI_SUCCESS;
}

// Every segment of the list is known at the rank: the fabric's refusal does not say which was wrong.
gaspi_return_t check_remote(Rank rank, const std::vector<ListPiece>& pieces, const Remaining& time, const char* function) {
  if (rank >= process().rank_count) return GASPI_ERR_INV_RANK;
  for (const ListPiece& piece : pieces) {
    const gaspi_return_t known = know_remote(rank, piece.remote_segment, time.left(), function);
    if (known != GASPI_SUCCESS) return known;
  }
  return GASPI_SUCCESS;
}

// Every piece fits.
gaspi_return_t check_sizes(Rank rank, const std::vector<ListPiece>& pieces, const Remaining& time, const char* function) {
  for (const ListPiece& piece : pieces) {
    const auto remote = process().fabric->remote_segment(rank, piece.remote_segment, time.left());
    if (remote.status() == Status::out_of_range) return GASPI_ERR_INV_SEG;
    if (!remote) return code_of(remote.error(), function);
    if (!fits(piece.remote_offset_bytes, piece.bytes, remote->bytes)) return GASPI_ERR_INV_REM_OFF;
  }
  return GASPI_SUCCESS;
}

// Returns the last one.
Result<Operation> read_each(Rank rank, const std::vector<ListPiece>& pieces, const PostOptions& options,
                            std::vector<Operation>& reads) {
  Result<Operation> posted = Operation{};
  for (const ListPiece& piece : pieces) {
    posted = process().fabric->read(piece.local, {rank, piece.remote_segment, piece.remote_offset_bytes}, piece.bytes, options);
    if (!posted) return posted;
    reads.push_back(*posted);
  }
  return posted;
}

struct Notification {
  SegmentId segment;
  NotificationId id;
  std::uint32_t value;
};

enum class Direction : std::uint8_t { write, read };

gaspi_return_t check_and_post(const char* function, const List& list, Direction direction,
                              const std::optional<Notification>& notification, gaspi_queue_id_t queue, gaspi_timeout_t timeout_ms) {
  const bool is_write = direction == Direction::write;
  std::vector<ListPiece> pieces;
  if (const gaspi_return_t refused = read_pieces(list, pieces); refused != GASPI_SUCCESS) return refused;
  if (notification) {
    if (notification->id >= process().config.notification_num) return GASPI_ERR_INV_NOTIF_ID;
    if (notification->value == 0) return GASPI_ERR_INV_NOTIF_VAL;
    if (is_write ? notification->segment >= kSegments : !is_segment(notification->segment)) return GASPI_ERR_INV_SEG;
  }
  const Remaining time(timeout_of(timeout_ms));
  if (const gaspi_return_t refused = check_remote(list.rank, pieces, time, function); refused != GASPI_SUCCESS) return refused;
  // A report of the fabric is of one read: each is posted alone, all of them or none, and awaited.
  const bool are_awaited = !is_write && notification;
  std::vector<Operation> reads;
  if (are_awaited) {
    if (const gaspi_return_t refused = check_sizes(list.rank, pieces, time, function); refused != GASPI_SUCCESS) return refused;
  }
  std::uint64_t bytes = 0;
  for (const ListPiece& piece : pieces) bytes += piece.bytes;
  std::optional<Error> refusal;
  const auto post = [&]() -> Result<Operation> {
    Fabric& fabric = *process().fabric;
    const PostOptions options{.queue = queue, .policy = std::nullopt};
    const bool is_for_kernels = is_write && notification && taker_in_kernels(notification->segment) != nullptr;
    const bool is_one = is_write && notification && !is_for_kernels;
    Result<Operation> posted =
        is_one ? fabric.write_list_notify(list.rank, pieces, notification->segment, notification->id, notification->value, options)
        : is_write    ? fabric.write_list(list.rank, pieces, options)
        : are_awaited ? read_each(list.rank, pieces, options, reads)
                      : fabric.read_list(list.rank, pieces, options);
    if (posted && is_for_kernels)
      posted = notify_taker(list.rank, notification->segment, notification->id, notification->value, options);
    if (!posted) refusal = posted.error();
    return posted;
  };
  const unsigned requests = list.number + (notification ? 1 : 0);
  const SegmentId known = is_write && notification ? notification->segment : pieces.front().remote_segment;
  const gaspi_return_t code = post_to(function, queue, list.rank, known, requests, time.left(),
                                      {{is_write ? Counter::writes : Counter::reads, list.number},
                                       {is_write ? Counter::write_bytes : Counter::read_bytes, bytes},
                                       {Counter::notifications, is_write && notification ? 1 : 0}},
                                      post);
  if (refusal && refusal->status() == Status::out_of_range) {
    // Why it was refused, not how asking for it ends.
    const gaspi_return_t wrong = check_sizes(list.rank, pieces, Remaining(std::chrono::seconds(1)), function);
    return wrong == GASPI_ERR_INV_SEG ? wrong : GASPI_ERR_INV_REM_OFF;
  }
  // The notification has a place of the queue as the reads have: it is awaited with them.
  if (are_awaited && code == GASPI_SUCCESS) await_reads(std::move(reads), queue, notification->segment, notification->id);
  return code;
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

gaspi_return_t pgaspi_read_notify(const gaspi_segment_id_t segment_id_local, const gaspi_offset_t offset_local,
                                  const gaspi_rank_t rank, const gaspi_segment_id_t segment_id_remote,
                                  const gaspi_offset_t offset_remote, const gaspi_size_t size,
                                  const gaspi_notification_id_t notification_id, const gaspi_queue_id_t queue,
                                  const gaspi_timeout_t timeout_ms) {
  const List one{1, &segment_id_local, &offset_local, rank, &segment_id_remote, &offset_remote, &size};
  return post_list("gaspi_read_notify", one, Direction::read, Notification{segment_id_local, notification_id, 1}, queue,
                   timeout_ms);
}
GASPI_NAMED(gaspi_read_notify);

gaspi_return_t pgaspi_read_list_notify(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_local,
                                       gaspi_offset_t* const offset_local, const gaspi_rank_t rank,
                                       gaspi_segment_id_t* const segment_id_remote, gaspi_offset_t* const offset_remote,
                                       gaspi_size_t* const size, const gaspi_segment_id_t segment_id_notification,
                                       const gaspi_notification_id_t notification_id, const gaspi_queue_id_t queue,
                                       const gaspi_timeout_t timeout_ms) {
  return post_list("gaspi_read_list_notify", {num, segment_id_local, offset_local, rank, segment_id_remote, offset_remote, size},
                   Direction::read, Notification{segment_id_notification, notification_id, 1}, queue, timeout_ms);
}
GASPI_NAMED(gaspi_read_list_notify);
