// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/link.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/undo.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr unsigned kMaxSendsPerTurn = 32;          // so that others get their turn where the socket takes all at once
constexpr std::int64_t kLingerNs = 100'000'000;    // for a farewell to go out
constexpr std::int64_t kGiveUpNs = 2'000'000'000;  // for UCX to return what was cancelled
constexpr std::size_t kMaxAhead = 4096;            // messages and writes that overtook one

}  // namespace

UcxLink::UcxLink(UcxTransport& transport, const Peer& peer, std::uint64_t number)
    : PlacedLink(transport, peer.rank, kMaxPayloadBytes, "ucx"), transport_(transport), number_(number) {
  transport_.add_link(number_, *this);
  transport_.attend_to(*this);
}

UcxLink::~UcxLink() {
  if (!transport_.is_of_this_process()) return;
  if (endpoint_ != nullptr) {
    const bool can_tell = state_ != LinkState::broken && !endpoint_->is_lost;
    const bool is_reading = pieces_under_way_ > 0;
    state_ = LinkState::broken;
    // In order, after what was sent before.
    // A farewell may be left out, and the peer sees the connection end.
    if (can_tell && !is_reading) quietly([&] { send(farewell(Farewell::closed)); });
    if (is_reading) transport_.close(*endpoint_);
    const Deadline deadline = Deadline::after_ns(kGiveUpNs);
    do transport_.progress();
    while (pieces_under_way_ > 0 && !deadline.has_passed());
    if (pieces_under_way_ > 0) quietly([&] { log(LogLevel::warning, text("ucx: ", object(), ": sends did not end in 2 s")); });
    transport_.leave(*std::exchange(endpoint_, nullptr), kLingerNs);
    if (can_tell && is_reading) quietly([&] { say_farewell(Farewell::closed); });
  }
  transport_.remove_link(number_, *this);
}

// --- Connecting ------------------------------------------------------------------------------------------------------------------

Result<void> UcxLink::connect(const Invitation& invitation) {
  peer_ = invitation;
  peer_.piece_bytes = std::min(invitation.piece_bytes, transport_.piece_bytes());
  limits_.payload_bytes = std::min<std::size_t>(kMaxPayloadBytes, peer_.piece_bytes);
  auto endpoint = transport_.connect(invitation.address, this, object());
  if (!endpoint) return std::move(endpoint).error();
  endpoint_ = *endpoint;
  rail_ = transport_.rail_of(*endpoint_);
  send(make(WireKind::hello));
  return {};
}

Result<void> UcxLink::complete(Parcel answer) {
  if (state_ != LinkState::connecting || endpoint_ != nullptr) {
    return make_error(Status::invalid_argument, "complete a link", object(), "it was completed before, or it broke");
  }
  const auto invitation =
      answer.descriptors.empty()
          ? decode_invitation(InvitationKind::answer, answer.bytes)
          : Result<Invitation>(make_error(Status::bad_file, "complete a link", object(), "descriptors came too"));
  Result<void> connected = invitation ? connect(*invitation) : Result<void>(invitation.error());
  if (!connected) fail(Error(connected.record()));
  look_whether_ready();
  return connected;
}

// The peer can receive: it said something, and it is known where it is.
void UcxLink::look_whether_ready() {
  if (state_ != LinkState::connecting || endpoint_ == nullptr || !has_heard_) return;
  rail_ = transport_.rail_of(*endpoint_);
  become_ready();
  pump();  // the peer, ready before, may have asked for something
}

// --- Posting ---------------------------------------------------------------------------------------------------------------------

Posted UcxLink::send_message(const Header& header, std::span<const std::byte> payload) {
  const std::uint64_t units = units_of(payload.size());
  if (posted_units_ - acknowledged_units_ + units > kWindowUnits) return Posted::full;
  std::unique_ptr<Operation> operation = make(WireKind::message);
  operation->copy.assign(payload.begin(), payload.end());
  operation->data = operation->copy;
  operation->header.body = header;
  outgoing_.push_back({std::move(operation), nullptr});
  posted_units_ += units;
  pump();
  return Posted::ok;
}

void UcxLink::begin(Direction direction, const Place& here, const RegionKey& there, const Transfer& transfer) {
  Access to{there.region, 0, there.guard, transfer.remote_offset, transfer.bytes};
  if (direction == Direction::write) {
    writes_.push_back({.cookie = transfer.cookie, .from = here, .to = to});
    Undo forget([&] { writes_.pop_back(); });
    outgoing_.push_back({nullptr, &writes_.back()});
    forget.call_off();
  } else {
    to.request = add_read(here, transfer);
    Undo forget([&] { reads_.erase(to.request); });
    outgoing_.push_back({make(WireKind::read, to), nullptr});
    forget.call_off();
  }
  ++transfers_;
  pump();
}

// --- Sending ---------------------------------------------------------------------------------------------------------------------

std::unique_ptr<Operation> UcxLink::make(WireKind kind, const Access& access) const {
  auto operation = std::make_unique<Operation>();
  operation->header = make_header(kind, peer_.link, 0);
  set_access(operation->header, access);
  return operation;
}

bool UcxLink::pump() {
  if (is_pumping_) return false;
  is_pumping_ = true;
  const Undo over([&] { is_pumping_ = false; });
  unsigned count = 0;
  for (; state_ == LinkState::ready && endpoint_->under_way < kMaxUnderWay && has_something_to_send(); ++count) {
    if (count == kMaxSendsPerTurn) {
      transport_.attend_to(*this);
      break;
    }
    // Both in turn: neither waits for all of the other.
    is_answers_turn_ = outgoing_.empty() || (!answers_.empty() && !is_answers_turn_);
    if (is_answers_turn_ || outgoing_.front().write != nullptr) {
      send_piece(is_answers_turn_ ? answers_.front() : *outgoing_.front().write);
    } else {
      std::unique_ptr<Operation> operation = std::move(outgoing_.front().operation);
      outgoing_.pop_front();
      send(std::move(operation));
    }
  }
  return count > 0;
}

// Of an answer the bytes are copied: the region may go before UCX has sent them.
void UcxLink::send_piece(Pieces& pieces) {
  const bool is_write = pieces.kind == WireKind::write;
  const std::uint64_t bytes = std::min<std::uint64_t>(peer_.piece_bytes, pieces.to.bytes - pieces.sent_bytes);
  Place place = pieces.from;
  place.offset += pieces.sent_bytes;
  const std::byte* const from = memory_to_send(place, bytes, !is_write);
  if (from == nullptr) return;
  Access to = pieces.to;
  to.offset += pieces.sent_bytes;
  to.bytes = bytes;
  std::unique_ptr<Operation> operation = make(pieces.kind, to);
  if (is_write) {
    operation->data = {from, bytes};
    operation->owner = &pieces;
    ++pieces_under_way_;
  } else {
    operation->copy.assign(from, from + bytes);
    operation->data = operation->copy;
  }
  pieces.sent_bytes += bytes;
  const bool is_last = pieces.sent_bytes == pieces.to.bytes;
  if (is_last && is_write) outgoing_.pop_front();
  if (is_last && !is_write) answers_.pop_front();
  send(std::move(operation));
}

void UcxLink::send(std::unique_ptr<Operation> operation) {
  WireHeader& header = operation->header;
  header.data_bytes = static_cast<std::uint32_t>(operation->data.size());
  if (header.kind == WireKind::message || header.kind == WireKind::write) header.sequence = next_sequence_++;
  header.acknowledged = told_units_ = consumed_units_;
  transport_.send(*endpoint_, std::move(operation));
}

// One at a time: a peer that reads nothing cannot make them pile up, and the next one tells all that came meanwhile.
void UcxLink::send_credit() {
  if (is_credit_under_way_ || state_ != LinkState::ready || consumed_units_ - told_units_ < kWindowUnits / 4) return;
  std::unique_ptr<Operation> credit = make(WireKind::credit);
  is_credit_under_way_ = true;
  send(std::move(credit));
}

void UcxLink::sent(const Operation& operation, ucs_status_t status) {
  if (operation.header.kind == WireKind::credit) is_credit_under_way_ = false;
  if (operation.header.kind == WireKind::write) {
    --pieces_under_way_;
    Pieces& write = *static_cast<Pieces*>(operation.owner);
    if (status == UCS_OK) write.finished_bytes += operation.data.size();
    if (status == UCS_OK && write.finished_bytes == write.to.bytes && state_ != LinkState::broken) {
      finish(write.cookie, {});
      writes_.remove_if([&](const Pieces& item) { return &item == &write; });
    }
  }
  if (status != UCS_OK) return lost_by(status);
  // Not from here: UCX is going through what waits for the socket, and what is sent meanwhile overtakes all of that, thousands of
  // pieces where the peer takes them as fast as they come.
  if (!is_pumping_ && has_something_to_send()) transport_.attend_to(*this);
  send_credit();
}

// --- Receiving: every byte was written by another process -----------------------------------------------------------------------

void UcxLink::receive(const WireHeader& header, std::span<const std::byte> data) {
  if (state_ == LinkState::broken) return;
  const Access access = access_of(header);
  if (header.kind == WireKind::bye) return lost(std::string(sentence_of(static_cast<Farewell>(access.request))));
  has_heard_ = true;
  look_whether_ready();
  take_acknowledgement(header.acknowledged);
  if (state_ == LinkState::broken) return;
  switch (header.kind) {
    case WireKind::message:
    case WireKind::write: return take_sequenced(header, data);
    case WireKind::read: return take_read(access);
    case WireKind::answer: return take_answer(access, data);
    case WireKind::hello:
    case WireKind::credit:
    case WireKind::bye: return;
  }
}

void UcxLink::take_acknowledgement(std::uint64_t units) {
  if (units > posted_units_) return refuse("it acknowledged messages that it was never sent");
  // An older one may arrive late.
  if (units > acknowledged_units_) acknowledged_units_ = units;
}

// Writes are placed as they come; a message waits for everything before it, and until somebody can be told.
void UcxLink::take_sequenced(const WireHeader& header, std::span<const std::byte> data) {
  if (header.sequence < expected_ || held_.contains(header.sequence)) return refuse("it repeated a sequence number");
  const bool is_message = header.kind == WireKind::message;
  if (!is_message && !place(header, data)) return;
  if (is_message && data.size() > kMaxPayloadBytes) return refuse("a message was too long");
  if (header.sequence - expected_ > kMaxAhead)
    return refuse(text("too much was out of order: number ", header.sequence, " came, ", expected_, " did not"));
  const bool is_next = header.sequence == expected_;
  if (is_next && !is_message) {
    ++expected_;
  } else if (is_next && can_tell() && !has_deliverable()) {
    ++expected_;
    deliver(header.body, data);
  } else {
    held_units_ += is_message ? units_of(data.size()) : 0;
    if (held_units_ > kWindowUnits) return refuse("it sent more messages than it had leave for");
    std::optional<Held> held;
    if (is_message) held = Held{header.body, {data.begin(), data.end()}};
    held_.emplace(header.sequence, std::move(held));
  }
  for (auto next = held_.find(expected_); next != held_.end() && next->first == expected_; ++expected_)
    next = next->second ? std::next(next) : held_.erase(next);
  if (has_deliverable() && !deliver_held()) transport_.attend_to(*this);
}

bool UcxLink::place(const WireHeader& header, std::span<const std::byte> data) {
  const Access access = access_of(header);
  const bool is_whole = !data.empty() && access.bytes == data.size();
  const Placed placed = is_whole ? transport_.home()->copy_to(place_of(access, rank_), data) : Placed::not_allowed;
  if (placed == Placed::failed) fail_to_place();
  if (placed == Placed::not_allowed) refuse_write();
  return placed == Placed::ok;
}

void UcxLink::deliver(const Header& header, std::span<const std::byte> payload) {
  consumed_units_ += units_of(payload.size());
  transport_.sink()->message(*this, header, payload);
  send_credit();
}

bool UcxLink::deliver_held() {
  const bool is_something = can_tell() && has_deliverable();
  while (can_tell() && has_deliverable()) {
    const Held held = std::move(*held_.extract(held_.begin()).mapped());
    held_units_ -= units_of(held.payload.size());
    Undo lose([&] { fail(Error::out_of_memory()); });
    deliver(held.header, held.payload);
    lose.call_off();
  }
  return is_something;
}

void UcxLink::take_read(const Access& asked) {
  const Place from = place_of(asked, rank_);
  if (!may_read(from, asked.bytes, answers_.size())) return;
  answers_.push_back({.kind = WireKind::answer, .from = from, .to = {.request = asked.request, .bytes = asked.bytes}});
  pump();
}

void UcxLink::take_answer(const Access& access, std::span<const std::byte> data) {
  const auto found = reads_.find(access.request);
  if (found == reads_.end()) return refuse("it answered what was not asked");
  Read& read = found->second;
  const bool is_inside = !data.empty() && data.size() <= read.missing_bytes && access.offset <= read.bytes - data.size();
  if (!is_inside) return refuse("an answer was longer than what was asked for");
  Place place = read.to;
  place.offset += access.offset;
  if (transport_.home()->copy_to(place, data) != Placed::ok) return fail_as_taken_back("read");
  read.missing_bytes -= data.size();
  if (read.missing_bytes > 0) return;
  finish(read.cookie, {});
  reads_.erase(found);
}

// --- Breaking --------------------------------------------------------------------------------------------------------------------

void UcxLink::lost_by(ucs_status_t status) {
  if (state_ != LinkState::broken) lost(text_of(status), "forget the peer and connect anew", native_of(status));
}

void UcxLink::begin_to_break(std::optional<Farewell> farewell) noexcept {
  if (endpoint_ != nullptr && !endpoint_->is_lost) farewell_ = farewell;
  give_up_at_ns_ = now_ns() + kGiveUpNs;
}

// Nothing is told before UCX has returned all local memory.
bool UcxLink::finish_breaking(Sink& sink) {
  if (!error_) return false;
  if (endpoint_ != nullptr) {
    transport_.close(*endpoint_);
    if (pieces_under_way_ > 0 && now_ns() < give_up_at_ns_) return false;
    if (pieces_under_way_ > 0) log(LogLevel::warning, text("ucx: ", object(), ": sends did not end in 2 s"));
    transport_.leave(*std::exchange(endpoint_, nullptr), kLingerNs);
    if (farewell_) say_farewell(*farewell_);
  }
  for (; !writes_.empty(); writes_.pop_front()) give_up(writes_.front().cookie);
  answers_.clear();
  tell_end(sink);
  return true;
}

// Through an endpoint of its own: the link's may be stuck behind data that the peer does not take, and is closed by now. The peer
// would else notice only when UCX next looks whether it is alive, and UCX finds that its process is.
void UcxLink::say_farewell(Farewell reason) {
  std::unique_ptr<Operation> operation = farewell(reason);
  const auto endpoint = transport_.connect(peer_.address, nullptr, object());
  if (!endpoint) return;
  transport_.send(**endpoint, std::move(operation));
  transport_.leave(**endpoint, kLingerNs);
}

bool UcxLink::attend(Sink& sink) {
  if (state_ == LinkState::connecting && now_ns() >= connect_until_ns_) {
    fail_to_connect("the peer's UCX did not answer within the deadline",
                    "look for a firewall between the hosts, and at UCX_NET_DEVICES");
  }
  bool is_something = tell_ready(sink);
  is_something |= deliver_held();
  is_something |= tell_dones(sink);
  is_something |= pump();
  is_something |= finish_breaking(sink);
  if (state_ == LinkState::connecting || error_) transport_.attend_to(*this);
  return is_something;
}

}  // namespace gigabar::transport::ucx
