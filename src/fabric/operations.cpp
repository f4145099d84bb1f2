// SPDX-License-Identifier: Apache-2.0
// Operations from post to the link. Those of one peer start in the order in which they were posted; what must be behind their data
// is posted behind it at once, so that nobody waits for completions to raise a notification.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/rounding.hpp"
#include "base/undo.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

using transport::Direction;
using transport::Posted;

// Copies by the CPU are done when a link's post returns: after so many pieces others get their turn.
constexpr unsigned kPiecesPerTurn = 16;
constexpr std::uint64_t kStripeAlignment = 4096;

constexpr const char* kWithData = "in the message with the data";
constexpr const char* kBesideAtomics = "in a message: the adapter has as many atomics under way as it can";

std::string place_text(std::string_view what, SegmentId segment, std::uint64_t offset, std::uint64_t bytes) {
  return text(what, " segment ", segment, " at ", offset, " +", bytes);
}

// In the order of OpKind.
constexpr std::array<std::string_view, 8> kOperationNames = {"write", "read", "notify", "write_in_order",
                                                             "flush", "send", "send",   "recv"};

std::string_view operation_name(OpKind kind) noexcept { return kOperationNames[static_cast<std::size_t>(kind)]; }

Error outside_remote(const Engine::Transfer& transfer, std::uint64_t length) {
  return make_error(Status::out_of_range, std::string(operation_name(transfer.kind)),
                    text(place_text("remote", transfer.remote.segment, transfer.remote.offset_bytes, transfer.bytes), " of rank ",
                         transfer.remote.rank),
                    text("the segment has ", length, " bytes"), "stay inside it");
}

// Which the peer may refuse.
Message message_to_target(Peer& peer, const RemoteState& remote, QueueId queue, MessageType type) noexcept {
  if (queue < kQueues) peer.refusable_queues = static_cast<std::uint16_t>(peer.refusable_queues | 1U << queue);
  return {.type = type, .segment = remote.id, .queue = queue, .epoch = remote.epoch};
}
Message message_to_target(const Op& op, MessageType type) noexcept {
  return message_to_target(*op.peer, *op.remote, op.is_internal ? kNoQueue : op.queue, type);
}

}  // namespace

// --- Posting --------------------------------------------------------------------------------------------------------------------

Op& Engine::make_op(OpKind kind, QueueId queue, Peer* peer, bool is_internal) {
  Op* op = nullptr;
  if (free_ops_.empty()) {
    // Each can be given back without memory for it.
    if (free_ops_.capacity() <= op_store_.size()) free_ops_.reserve(2 * op_store_.size() + 64);
    op = &op_store_.emplace_back();
  } else {
    op = free_ops_.back();
    free_ops_.pop_back();
    std::destroy_at(op);
    ::new (static_cast<void*>(op)) Op;  // not construct_at, which would first fill all of it with zeros
  }
  op->kind = kind;
  op->queue = queue;
  op->peer = peer;
  op->is_internal = is_internal;
  op->id = ++last_op_;
  op->begin_cycles = cycle_count();
  if (!is_internal) {
    ++queues_[queue].op_count;
    ++queues_[queue].posted_count;
    if (peer != nullptr) ++peer->op_count;
    ++statistics_.operations;
  }
  if (peer != nullptr) peer->is_ping_last = kind == OpKind::ping;
  return *op;
}

Result<void> Engine::check_transfer(const Transfer& transfer, LocalSegment*& local) {
  auto found = local_segment(transfer.local.segment);
  if (!found) return std::move(found).error();
  local = *found;
  if (!fits(transfer.local.offset_bytes, transfer.bytes, local->memory.bytes())) {
    return make_error(Status::out_of_range, std::string(operation_name(transfer.kind)),
                      place_text("local", transfer.local.segment, transfer.local.offset_bytes, transfer.bytes),
                      text("the segment has ", local->memory.bytes(), " bytes"), "stay inside it");
  }
  return {};
}

// Of an operation that is over when it is posted.
Operation Engine::record_at_once(const Peer& peer, const Choice* choice, std::uint64_t bytes, std::uint64_t begin_cycles) {
  Record& record = records_[++last_op_ % kRecords];
  record = {};
  record.id = last_op_;
  record.choice = choice;
  record.bytes = bytes;
  record.chunks = choice != nullptr ? 1 : 0;
  record.cycles = cycle_count() - begin_cycles;
  record.rank = peer.rank;
  record.rail_bytes[0] = bytes;
  return Operation{last_op_};
}

Result<Operation> Engine::post(Lock& lock, const Transfer& transfer, const PostOptions& options) {
  const std::uint64_t begin_cycles = cycle_count();
  poll_between_posts();
  LocalSegment* local = nullptr;
  if (transfer.is_between_segments()) {
    local = find_segment(transfer.local.segment);
    if (local == nullptr || !fits(transfer.local.offset_bytes, transfer.bytes, local->memory.bytes()))
      return check_transfer(transfer, local).error();
  }
  if (queues_[options.queue].posted_count >= kQueueDepth) {
    return make_error(Status::busy, std::string(operation_name(transfer.kind)), text("queue ", options.queue),
                      text("it holds ", kQueueDepth, " operations"), "wait for the queue first");
  }
  // As ready_peer and remote_segment find them when nothing has changed.
  Peer* peer = recent_peer_;
  if (peer == nullptr || peer->rank != transfer.remote.rank || peer->state != Peer::State::ready) {
    auto found = ready_peer(lock, transfer.remote.rank, connect_timeout());
    if (!found) return std::move(found).error();
    peer = *found;
  }
  RemoteState* remote = peer->recent_segment;
  if (remote == nullptr || remote->id != transfer.remote.segment) {
    auto found = remote_segment(lock, *peer, transfer.remote.segment, connect_timeout());
    if (!found) return std::move(found).error();
    remote = *found;
  }
  if (!fits(transfer.remote.offset_bytes, transfer.bytes, remote->bytes)) return outside_remote(transfer, remote->bytes);
  const bool is_notified = (transfer.flags & kHasNotification) != 0;
  if (transfer.bytes == 0 && !is_notified) return record_at_once(*peer, nullptr, 0, begin_cycles);
  const PathPolicy& policy = options.policy ? *options.policy : settings_.policy;
  Notifying notifying;
  notifying.is_word = is_notified && is_by_word(*peer, *remote, transfer.flags, transfer.notification, notifying.way);
  const Choice* choice = nullptr;
  if (transfer.bytes != 0 && transfer.is_between_segments()) {
    // Waiting above may have given the lock away: the segment is looked up again, and may be another one.
    if (Result<void> checked = check_transfer(transfer, local); !checked) return std::move(checked).error();
    const Direction direction = transfer.kind == OpKind::read ? Direction::read : Direction::write;
    const bool needs_message = is_notified && !notifying.is_word;
    auto chosen = choose(*peer, direction, *local, *remote, transfer.bytes, policy, needs_message);
    if (!chosen) return std::move(chosen).error();
    choice = (*chosen)->choice;
    notifying.could_be_word =
        needs_message && (*chosen)->is_alone && remote->ways[static_cast<std::size_t>(word_kind(transfer.flags))].is_word;
  }
  if (const auto posted = post_at_once(*peer, transfer, options.queue, local, *remote, choice, begin_cycles, notifying)) {
    if (!options.policy) open_target(options.queue, transfer, *peer, *remote, local, choice);
    return *posted;
  }
  Op& op = make_op(transfer.bytes == 0 ? OpKind::notify : transfer.kind, options.queue, peer, false);
  if (transfer.kind == OpKind::place) std::memcpy(op.ordered_bytes.data(), transfer.ordered_bytes, transfer.bytes);
  if (transfer.bytes != 0) op.use(local, transfer.local.offset_bytes);
  op.remote = remote;
  ++op.remote->users;
  op.remote_id = transfer.remote.segment;
  op.remote_offset = transfer.remote.offset_bytes;
  op.bytes = transfer.bytes;
  op.flags = transfer.flags;
  op.notification = transfer.notification;
  op.value = transfer.value;
  op.policy = policy;
  op.chunk_bytes = options.chunk_bytes.value_or(kNotGiven);
  op.stripe_bytes = options.stripe_bytes.value_or(kNotGiven);
  op.choice = choice;
  op.could_be_word = notifying.could_be_word;
  if (notifying.is_data_written) {
    op.next = op.rail_bytes[0] = op.bytes;
    op.chunks = 1;
  }
  const Operation id{op.id};
  submit(op);
  return id;
}

Result<Operation> Engine::post_list(Lock& lock, OpKind kind, Rank rank, std::span<const ListPiece> pieces,
                                    const PostOptions& options, std::optional<Transfer> notification) {
  const std::size_t needed = std::max<std::size_t>(pieces.size(), notification ? 1 : 0);
  if (pieces.size() > kMaxListPieces) {
    return make_error(Status::out_of_range, operation_name(kind) == "read" ? "read_list" : "write_list",
                      text(pieces.size(), " pieces"), text("a list has at most ", kMaxListPieces), "post several lists");
  }
  Queue& queue = queues_[options.queue];
  const unsigned posted_before = queue.posted_count;
  if (posted_before + needed > kQueueDepth) {
    return make_error(Status::busy, "list", text("queue ", options.queue),
                      text("it has room for ", counted(kQueueDepth - posted_before, "operation")), "wait for the queue first");
  }
  std::vector<Transfer> transfers;
  transfers.reserve(needed + 1);
  for (const ListPiece& piece : pieces) {
    transfers.push_back({kind, piece.local, {rank, piece.remote_segment, piece.remote_offset_bytes}, piece.bytes, 0, 0, 0});
  }
  if (notification) transfers.push_back(*notification);
  // All or nothing: every piece is checked before the first is posted.
  auto peer = ready_peer(lock, rank, connect_timeout());
  if (!peer) return std::move(peer).error();
  const PathPolicy& policy = options.policy ? *options.policy : settings_.policy;
  const Direction direction = kind == OpKind::read ? Direction::read : Direction::write;
  const auto check = [&](const Transfer& transfer) -> Result<void> {
    LocalSegment* local = nullptr;
    const auto check_local = [&] { return transfer.kind == OpKind::notify ? Result<void>() : check_transfer(transfer, local); };
    if (Result<void> checked = check_local(); !checked) return checked;
    auto remote = remote_segment(lock, **peer, transfer.remote.segment, connect_timeout());
    if (!remote) return std::move(remote).error();
    // Waiting for its key may have given the lock away.
    if (Result<void> checked = check_local(); !checked) return checked;
    if (!fits(transfer.remote.offset_bytes, transfer.bytes, (*remote)->bytes)) return outside_remote(transfer, (*remote)->bytes);
    if (local == nullptr || transfer.bytes == 0) return {};
    auto chosen = choose(**peer, direction, *local, **remote, transfer.bytes, policy, false);
    if (!chosen) return std::move(chosen).error();
    return {};
  };
  for (std::size_t index = 0; index < transfers.size(); ++index) {
    Result<void> checked = check(transfers[index]);
    if (checked) continue;
    edit(checked.error()).object = text("piece ", index, ": ", checked.record().object);
    return std::move(checked).error();
  }
  Result<Operation> last = record_at_once(**peer, nullptr, 0, cycle_count());
  for (const Transfer& transfer : transfers) {
    // As that of a write, the notification of a list takes no place beside its data.
    const unsigned beside = transfer.kind == OpKind::notify && queue.posted_count > posted_before ? 1 : 0;
    queue.posted_count -= beside;
    Undo put_back([&] { queue.posted_count += beside; });
    auto posted = post(lock, transfer, options);
    if (!posted) return posted;
    put_back.call_off();
    last = posted;
  }
  return last;
}

// What fits into one message, when nothing is before it and the link has room: it is over when the link has taken its bytes, so
// that there is nothing to remember but its record.
std::optional<Operation> Engine::post_at_once(Peer& peer, const Transfer& transfer, QueueId queue, const LocalSegment* local,
                                              const RemoteState& remote, const Choice* choice, std::uint64_t begin_cycles,
                                              Notifying& notifying) {
  if (!peer.pending.empty() || peer.state != Peer::State::ready || !flush_outbox(peer) || is_too_far_ahead(peer))
    return std::nullopt;
  const auto recorded = [&] {
    ++queues_[queue].posted_count;
    ++statistics_.operations;
    peer.is_ping_last = false;
    const Operation operation = record_at_once(peer, choice, transfer.bytes, begin_cycles);
    records_[last_op_ % kRecords].way = notifying.way;
    return operation;
  };
  const bool is_notified = (transfer.flags & kHasNotification) != 0;
  const bool is_direct = choice != nullptr && choice->method == Method::direct;
  const bool is_copied = choice != nullptr && is_one_sided(choice->method);
  const bool is_with_data = choice != nullptr && !is_copied;
  std::span<const std::byte> payload;
  transport::Link& link = *peer.rails.front().link;
  if (is_copied) {
    const bool is_one_write =
        transfer.kind == OpKind::write && (!is_notified || notifying.is_word) && transfer.bytes <= link.limits().copied_write_bytes;
    if (!is_one_write || peer.rails.size() != 1) return std::nullopt;
    if (is_direct && (choice->path != TransferPath::host || !local->memory.is_plain())) return std::nullopt;
  } else if (is_with_data && (choice->method != Method::message || transfer.bytes > link.limits().payload_bytes)) {
    return std::nullopt;
  }
  if (choice != nullptr) {
    const auto plain = plain_bytes(local->memory, transfer.local.offset_bytes, transfer.bytes);
    if (!plain) return std::nullopt;
    payload = *plain;
  }
  if (is_copied) {
    if (link.post_copied_write(payload, *remote.region, transfer.remote.offset_bytes, is_notified) != Posted::ok)
      return std::nullopt;
    if (!is_notified) return recorded();
    notifying.is_data_written = true;
    payload = {};
  }
  if (!is_with_data && notifying.is_word) {
    if (post_word(peer, remote, transfer.flags, transfer.notification, transfer.value)) return recorded();
    // An adapter has few atomics under way, and a message counts as well.
    if (word_kind(transfer.flags) == transport::WordKind::set) return std::nullopt;
    notifying.way = kBesideAtomics;
  }
  const bool is_place = transfer.kind == OpKind::place;
  if (is_place) payload = {static_cast<const std::byte*>(transfer.ordered_bytes), static_cast<std::size_t>(transfer.bytes)};
  const MessageType type = is_with_data ? MessageType::put : is_place ? MessageType::place : MessageType::notify;
  Message message = message_to_target(peer, remote, queue, type);
  message.flags = transfer.flags;
  message.a = transfer.remote.offset_bytes;
  if (is_notified) message.b = Message::pair(transfer.notification, transfer.value);
  if (!(is_notified || is_place ? post_after_data(peer, message, payload) : say_first(peer, message, payload))) return std::nullopt;
  if (is_notified && is_with_data) notifying.way = kWithData;
  if (is_notified && (!is_with_data || notifying.could_be_word)) ask_for_words(peer, remote, transfer.flags);
  return recorded();
}

// Where the CPU reads them plainly: where they are, or in bounce_ until the next call.
Result<std::span<const std::byte>> Engine::plain_bytes(const LocalMemory& memory, std::uint64_t offset, std::uint64_t bytes) {
  if (memory.is_plain()) return std::span<const std::byte>(memory.address() + offset, bytes);
  if (bounce_.size() < bytes) bounce_.resize(bytes);
  if (Result<void> loaded = memory.load(offset, bounce_.data(), bytes); !loaded) return std::move(loaded).error();
  return std::span<const std::byte>(bounce_.data(), bytes);
}

// Without memory for it the operation ends with its peer.
void Engine::submit(Op& op) noexcept {
  const Uncancelled uncancelled;
  Peer& peer = *op.peer;
  close_targets(peer);
  try {
    peer.pending.push_back(&op);
    if (peer.pending.size() == 1 && peer.state == Peer::State::ready) {
      advance(peer);
    } else {
      list_busy(peer);
    }
  } catch (const std::bad_alloc&) {
    starve(peer);
  }
}

void Engine::list_busy(Peer& peer) {
  if (peer.is_listed) return;
  busy_.push_back(&peer);
  peer.is_listed = true;
}

// --- Starting -------------------------------------------------------------------------------------------------------------------

void Engine::advance(Peer& peer) {
  if (peer.state != Peer::State::ready) return;
  bool is_stuck = !flush_outbox(peer);
  while (!is_stuck && !peer.pending.empty()) {
    Op& op = *peer.pending.front();
    if (is_too_far_ahead(peer) || !start_op(op)) {
      is_stuck = true;
      break;
    }
    peer.pending.pop_front();
    op.is_posted = true;
    end_if_over(op);
    ++changes_;
  }
  // Keys that the peer wants back: after what was posted before it asked, and behind everything that was written to the segment.
  for (std::size_t index = 0; index < peer.revoked.size();) {
    const RemoteState& remote = *peer.revoked[index];
    const bool is_used = remote.users != 0;
    if (is_used || !seal(peer) ||
        !say_first(peer, {.type = MessageType::revoked, .segment = remote.id, .epoch = remote.epoch}, {})) {
      is_stuck = is_stuck || !is_used;
      ++index;
      continue;
    }
    peer.revoked.erase(peer.revoked.begin() + static_cast<std::ptrdiff_t>(index));
  }
  if (is_stuck) list_busy(peer);
}

// For operations of the engine itself, which could not wait when they were made.
bool Engine::resolve(Op& op) {
  if (op.remote != nullptr || op.kind == OpKind::ping || op.kind == OpKind::eager || op.kind == OpKind::rendezvous) return true;
  Peer& peer = *op.peer;
  const auto found = peer.segments.find(op.remote_id);
  RemoteState& remote = found == peer.segments.end() ? ask_segment(peer, op.remote_id) : *found->second;
  if (remote.know == RemoteState::Know::asked) return false;
  if (remote.know == RemoteState::Know::absent) {
    op.fail(make_error(remote.absence, std::string(operation_name(op.kind)), text("segment ", op.remote_id, " of rank ", peer.rank),
                       remote.why_not, {}));
    return true;
  }
  const Choice* choice = nullptr;
  std::optional<Error> refusal;
  if (!fits(op.remote_offset, op.bytes, remote.bytes)) {
    refusal = make_error(Status::out_of_range, std::string(operation_name(op.kind)),
                         place_text("remote", op.remote_id, op.remote_offset, op.bytes),
                         text("the segment has ", remote.bytes, " bytes"), {});
  } else if (auto chosen = choose(peer, Direction::write, *op.local, remote, op.bytes, op.policy); chosen) {
    choice = (*chosen)->choice;
  } else {
    refusal = std::move(chosen).error();
  }
  // Not before: where there was no memory for the choice the operation is resolved again.
  op.remote = &remote;
  ++remote.users;
  op.choice = choice;
  if (refusal) op.fail(std::move(*refusal));
  return true;
}

bool Engine::start_op(Op& op) {
  if (!resolve(op)) return false;
  bool is_posted = true;
  if (!op.error) {
    switch (op.kind) {
      case OpKind::write:
        is_posted = op.choice->method == Method::direct   ? post_direct(op)
                    : op.choice->method == Method::staged ? post_staged(op)
                                                          : post_message_op(op);
        break;
      case OpKind::read: is_posted = op.choice->method == Method::direct ? post_direct(op) : post_get(op); break;
      case OpKind::eager: is_posted = post_eager(op); break;
      case OpKind::rendezvous:
        is_posted = say_first(*op.peer, {.type = MessageType::rendezvous_request, .a = op.tag, .b = op.id, .c = op.bytes}, {});
        if (is_posted) op.peer->by_id[op.id] = &op;
        break;
      case OpKind::ping: {
        is_posted = post_after_data(*op.peer, {.type = MessageType::ping, .a = op.remote_offset}, {});
        op.peer->flushed_data = op.peer->data_said;
        break;
      }
      case OpKind::place: {
        Message place = message_to_target(op, MessageType::place);
        place.a = op.remote_offset;
        is_posted = post_after_data(*op.peer, place, std::span(op.ordered_bytes).first(op.bytes));
        if (is_posted) op.rail_bytes[0] = op.bytes;
        break;
      }
      case OpKind::notify:
      case OpKind::receive: break;
    }
  }
  return is_posted && post_tail(op);
}

// What comes behind the data: the notification, or the message that a read or a message is complete.
bool Engine::post_tail(Op& op) {
  const bool is_notifying = (op.flags & kHasNotification) != 0 && !op.is_notified && !op.error;
  if (is_notifying && is_by_word(*op.peer, *op.remote, op.flags, op.notification, op.way)) {
    op.is_notified = post_word(*op.peer, *op.remote, op.flags, op.notification, op.value);
    // An adapter has few atomics under way, and a message counts as well.
    if (!op.is_notified && word_kind(op.flags) == transport::WordKind::set) return false;
    if (!op.is_notified) op.way = kBesideAtomics;
  }
  if (is_notifying && !op.is_notified) {
    Message notify = message_to_target(op, MessageType::notify);
    notify.flags = op.flags;
    notify.b = Message::pair(op.notification, op.value);
    if (!post_after_data(*op.peer, notify, {})) return false;
    op.is_notified = true;
    ask_for_words(*op.peer, *op.remote, op.flags);
  }
  if (op.finish) {
    Message finish = *op.finish;
    finish.b = static_cast<std::uint64_t>(op.error ? op.error->status() : Status::ok) |
               static_cast<std::uint64_t>(op.choice != nullptr ? op.choice->path : TransferPath::none) << 8;
    if (!post_after_data(*op.peer, finish, {})) return false;
    op.finish.reset();
  }
  return true;
}

bool Engine::post_message_op(Op& op) {
  Peer& peer = *op.peer;
  const LocalMemory& memory = op.local->memory;
  transport::Link& link = *peer.rails.front().link;
  const std::size_t most = link.limits().payload_bytes;
  if (op.next == 0 && op.choice->method == Method::store) {
    const auto bytes = plain_bytes(memory, op.local_offset, op.bytes);
    if (bytes && link.post_copied_write(*bytes, *op.remote->region, op.remote_offset, false) == Posted::ok) {
      op.next = op.rail_bytes[0] = op.bytes;
      op.chunks = 1;
    }
  }
  for (unsigned piece = 0; op.next < op.bytes; ++piece) {
    if (piece == kPiecesPerTurn || !flush_outbox(peer)) return false;
    const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(op.bytes - op.next, most));
    const bool is_last = op.next + bytes == op.bytes;
    auto payload = plain_bytes(memory, op.local_offset + op.next, bytes);
    if (!payload) {
      op.fail(std::move(payload).error());
      return true;
    }
    Message put = message_to_target(op, MessageType::put);
    put.a = op.remote_offset + op.next;
    const bool is_notifying = is_last && (op.flags & kHasNotification) != 0;
    if (is_notifying) {
      put.flags = op.flags;
      put.b = Message::pair(op.notification, op.value);
      if (!post_after_data(peer, put, *payload)) return false;
      op.is_notified = true;
      op.way = kWithData;
      if (op.could_be_word) ask_placed(peer);
    } else if (!say_first(peer, put, *payload)) {
      ++op.retries;
      return false;
    }
    op.next += bytes;
    op.rail_bytes[0] += bytes;
    ++op.chunks;
  }
  return true;
}

bool Engine::post_direct(Op& op) {
  Peer& peer = *op.peer;
  close_targets(peer);
  const std::size_t rail_count = peer.rails.size();
  const bool is_striped =
      rail_count > 1 && op.bytes >= (op.stripe_bytes != kNotGiven ? op.stripe_bytes : limits(peer).stripe_bytes);
  const bool is_read = op.kind == OpKind::read;
  if (op.next == 0 && rail_count > 1 && settings_.rail_policy == RailPolicy::round_robin) {
    op.rail = static_cast<std::uint8_t>(peer.next_rail++ % rail_count);
  }
  for (unsigned piece = 0; op.next < op.bytes; ++piece) {
    if (piece == kPiecesPerTurn) return false;
    Rail& rail = peer.rails[op.rail];
    const transport::LinkLimits& limits = rail.link->limits();
    std::uint64_t bytes = std::min(op.bytes - op.next, is_read ? limits.read_bytes : limits.write_bytes);
    if (is_striped) bytes = std::min(bytes, round_up(op.bytes / rail_count, kStripeAlignment));
    const auto cookie = reinterpret_cast<std::uint64_t>(&op);
    const transport::Region& region = *op.local->region(peer.transport->kind());
    const Posted posted = is_read ? rail.link->post_read(region, op.local_offset + op.next, *op.remote->region,
                                                         op.remote_offset + op.next, bytes, cookie)
                                  : rail.link->post_write(region, op.local_offset + op.next, *op.remote->region,
                                                          op.remote_offset + op.next, bytes, cookie);
    if (posted != Posted::ok) {
      ++op.retries;
      return false;
    }
    if (!is_read) rail.is_dirty = true;
    op.next += bytes;
    op.rail_bytes[op.rail] += bytes;
    ++op.outstanding;
    ++op.chunks;
    if (is_striped) op.rail = static_cast<std::uint8_t>((op.rail + 1u) % rail_count);
  }
  return true;
}

bool Engine::post_get(Op& op) {
  const Message get{.type = MessageType::get,
                    .segment = op.remote_id,
                    .epoch = op.remote->epoch,
                    .a = op.id,
                    .b = op.remote_offset,
                    .c = op.bytes};
  ByteWriter writer;
  writer.number(op.local->id).number(op.local_offset);
  for (const Preference preference : {op.policy.gdr, op.policy.p2p, op.policy.bar, op.policy.staged}) {
    writer.number(static_cast<std::uint8_t>(preference));
  }
  writer.number(op.chunk_bytes);
  const std::string payload = writer.take();
  if (!say_first(*op.peer, get, std::as_bytes(std::span(payload)))) return false;
  op.next = op.bytes;
  ++op.outstanding;  // until get_done
  ++op.chunks;
  op.peer->by_id[op.id] = &op;
  return true;
}

}  // namespace gigabar::fabric
