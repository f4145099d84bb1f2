// SPDX-License-Identifier: Apache-2.0
// A link's outgoing half, and its end.
#include "transport/ucx/link.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr std::size_t kQuickBytes = 4096;
constexpr unsigned kMaxSendsPerTurn = 32;          // so that others get their turn where the socket takes all at once
constexpr std::int64_t kLingerNs = 100'000'000;    // for a farewell to go out
constexpr std::int64_t kGiveUpNs = 2'000'000'000;  // for UCX to return what was cancelled

Result<void> cancelled(const std::string& object, const Error& why) {
  ErrorRecord record = why.record();
  record.object = object;
  return Error(std::move(record));
}

}  // namespace

UcxLink::UcxLink(UcxTransport& transport, const Peer& peer, std::uint64_t number)
    : transport_(transport), rank_(peer.rank), number_(number), connect_until_ns_(now_ns() + transport_.connect_deadline_ns()) {
  limits_.payload_bytes = kMaxPayloadBytes;
  limits_.quick_payload_bytes = kQuickBytes;
  limits_.write_bytes = limits_.read_bytes = kTransferBytes;
  transport_.add_link(number_, *this);
  transport_.attend_to(*this);
}

UcxLink::~UcxLink() {
  if (!transport_.is_of_this_process()) return;
  if (endpoint_ != nullptr) {
    const bool can_tell = state_ != LinkState::broken && !endpoint_->is_lost();
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
  for (const Outgoing& item : outgoing_) {
    if (item.operation != nullptr) transport_.give_back(*item.operation);
  }
}

std::string UcxLink::object() const { return text("rank ", rank_, " over ", rail_); }

// --- Connecting ------------------------------------------------------------------------------------------------------------------

Invitation UcxLink::invitation() const { return {number_, transport_.piece_bytes(), transport_.worker_address()}; }

Result<void> UcxLink::connect(const Invitation& invitation) {
  peer_number_ = invitation.link;
  peer_address_ = invitation.address;
  piece_bytes_ = std::min(invitation.piece_bytes, transport_.piece_bytes());
  limits_.payload_bytes = std::min<std::size_t>(kMaxPayloadBytes, piece_bytes_);
  auto endpoint = transport_.connect(invitation.address, this, object());
  if (!endpoint) return std::move(endpoint).error();
  endpoint_ = *endpoint;
  rail_ = transport_.rail_of(*endpoint_);
  send(transport_.take_operation(WireKind::hello, peer_number_));
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
  if (!connected) {
    fail(Error(connected.record()), {});
    return connected;
  }
  become_ready();
  return {};
}

// The peer can receive: it said something, and it is known where it is.
void UcxLink::become_ready() {
  if (state_ != LinkState::connecting || endpoint_ == nullptr || !has_heard_) return;
  state_ = LinkState::ready;
  rail_ = transport_.rail_of(*endpoint_);
  transport_.tell({this, Ready{}});
  pump();  // the peer, ready before, may have asked for something
}

// --- Posting ---------------------------------------------------------------------------------------------------------------------

Posted UcxLink::post_message(const Header& header, std::span<const std::byte> payload) {
  if (state_ == LinkState::broken) return Posted::broken;
  const std::uint64_t units = units_of(payload.size());
  if (state_ != LinkState::ready || posted_units_ - acknowledged_units_ + units > kWindowUnits) return Posted::full;
  if (payload.size() > limits_.payload_bytes) {
    fail(make_error(Status::out_of_range, "send a message", object(),
                    text(counted(payload.size(), "byte"), " are more than the limit")),
         Farewell::own_failure);
    return Posted::broken;
  }
  Operation& operation = transport_.take_operation(WireKind::message, peer_number_);
  operation.copy.assign(payload.begin(), payload.end());
  operation.data = operation.copy;
  operation.header.body = header;
  posted_units_ += units;
  outgoing_.push_back({&operation, nullptr});
  pump();
  return Posted::ok;
}

Reach UcxLink::reach(Direction direction, const Region& local, const RemoteRegion& remote) const {
  return reach_by_placing(direction, local, remote, "UCX", rail_);
}

Posted UcxLink::post_write(const Region& local, std::uint64_t local_offset, const RemoteRegion& remote, std::uint64_t remote_offset,
                           std::uint64_t bytes, std::uint64_t cookie) {
  return post_transfer(WireKind::write, local, local_offset, remote, remote_offset, bytes, cookie);
}

Posted UcxLink::post_read(const Region& local, std::uint64_t local_offset, const RemoteRegion& remote, std::uint64_t remote_offset,
                          std::uint64_t bytes, std::uint64_t cookie) {
  return post_transfer(WireKind::read, local, local_offset, remote, remote_offset, bytes, cookie);
}

Posted UcxLink::post_transfer(WireKind kind, const Region& local, std::uint64_t local_offset, const RemoteRegion& remote,
                              std::uint64_t remote_offset, std::uint64_t bytes, std::uint64_t cookie) {
  if (state_ == LinkState::broken) return Posted::broken;
  if (state_ != LinkState::ready || writes_.size() + reads_.size() >= kMaxTransfers) return Posted::full;
  if (auto why = why_no_transfer(local, local_offset, remote, remote_offset, bytes, object(), "UCX")) {
    transport_.tell({this, Done{cookie, std::move(*why)}});
    return Posted::ok;
  }
  const Place here = static_cast<const PlacedRegion&>(local).at(local_offset);
  const RegionKey& key = static_cast<const PlacedRemoteRegion&>(remote).key();
  Access there{key.region, 0, key.guard, remote_offset, bytes};
  if (kind == WireKind::write) {
    writes_.push_back({cookie, here, there});
    outgoing_.push_back({nullptr, &writes_.back()});
  } else {
    while (reads_.contains(next_request_)) ++next_request_;
    there.request = next_request_++;
    reads_[there.request] = {cookie, here, bytes, bytes};
    outgoing_.push_back({&transport_.take_operation(kind, peer_number_, there), nullptr});
  }
  pump();
  return Posted::ok;
}

// --- Sending ---------------------------------------------------------------------------------------------------------------------

void UcxLink::pump() {
  if (is_pumping_) return;
  is_pumping_ = true;
  for (unsigned count = 0; state_ == LinkState::ready && under_way_ < kMaxUnderWay; ++count) {
    if (outgoing_.empty() && answers_.empty()) break;
    if (count == kMaxSendsPerTurn) {
      pump_later();
      break;
    }
    // Both in turn: neither waits for all of the other.
    is_answers_turn_ = outgoing_.empty() || (!answers_.empty() && !is_answers_turn_);
    if (is_answers_turn_) {
      send_answer();
    } else {
      send_next();
    }
  }
  is_pumping_ = false;
}

void UcxLink::pump_later() {
  wants_pump_ = true;
  transport_.attend_to(*this);
}

void UcxLink::send_next() {
  const Outgoing next = outgoing_.front();
  if (next.write != nullptr) return send_piece(*next.write);
  outgoing_.pop_front();
  send(*next.operation);
}

void UcxLink::send_piece(Write& write) {
  const std::uint64_t bytes = std::min<std::uint64_t>(piece_bytes_, write.to.bytes - write.sent_bytes);
  Place place = write.from;
  place.offset += write.sent_bytes;
  const std::byte* from = transport_.home()->memory(place, bytes);
  if (from == nullptr) return fail(taken_back_under_way("write", object()), Farewell::own_failure);
  Operation& operation = transport_.take_operation(WireKind::write, peer_number_,
                                                   {write.to.region, 0, write.to.guard, write.to.offset + write.sent_bytes, bytes});
  operation.data = {from, bytes};
  operation.owner = &write;
  write.sent_bytes += bytes;
  if (write.sent_bytes == write.to.bytes) outgoing_.pop_front();
  ++pieces_under_way_;
  send(operation);
}

// The bytes are copied: the region may go before UCX has sent them.
void UcxLink::send_answer() {
  Answer& answer = answers_.front();
  const std::uint64_t bytes = std::min<std::uint64_t>(piece_bytes_, answer.asked.bytes - answer.sent_bytes);
  Place place = place_of(answer.asked, rank_);
  place.offset += answer.sent_bytes;
  const std::byte* from = transport_.home()->memory(place, bytes);
  if (from == nullptr) return refuse("it reads from a region that was taken back", Farewell::bad_access);
  Operation& operation =
      transport_.take_operation(WireKind::answer, peer_number_, {0, answer.asked.request, 0, answer.sent_bytes, bytes});
  operation.copy.assign(from, from + bytes);
  operation.data = operation.copy;
  answer.sent_bytes += bytes;
  if (answer.sent_bytes == answer.asked.bytes) answers_.pop_front();
  send(operation);
}

void UcxLink::send(Operation& operation) {
  WireHeader& header = operation.header;
  const auto kind = static_cast<WireKind>(header.kind);
  header.data_bytes = static_cast<std::uint32_t>(operation.data.size());
  if (kind == WireKind::message || kind == WireKind::write) header.sequence = next_sequence_++;
  header.acknowledged = told_units_ = consumed_units_;
  ++under_way_;
  transport_.send(*endpoint_, operation);
}

// One at a time: a peer that reads nothing cannot make them pile up, and the next one tells all that came meanwhile.
void UcxLink::send_credit() {
  if (is_credit_under_way_ || state_ != LinkState::ready || consumed_units_ - told_units_ < kWindowUnits / 4) return;
  is_credit_under_way_ = true;
  send(transport_.take_operation(WireKind::credit, peer_number_));
}

void UcxLink::sent(Operation& operation, ucs_status_t status) {
  --under_way_;
  const auto kind = static_cast<WireKind>(operation.header.kind);
  if (kind == WireKind::credit) is_credit_under_way_ = false;
  if (kind == WireKind::write) {
    --pieces_under_way_;
    if (status == UCS_OK) finish_piece(*static_cast<Write*>(operation.owner), operation.data.size());
  }
  if (status != UCS_OK) return lost(status);
  // Not from here: UCX is going through what waits for the socket, and what is sent meanwhile overtakes all of that, thousands of
  // pieces where the peer takes them as fast as they come.
  if (!is_pumping_ && !(outgoing_.empty() && answers_.empty())) pump_later();
  send_credit();
}

void UcxLink::finish_piece(Write& write, std::uint64_t bytes) {
  write.finished_bytes += bytes;
  if (write.finished_bytes < write.to.bytes || state_ == LinkState::broken) return;
  transport_.tell({this, Done{write.cookie, {}}});
  writes_.remove_if([&](const Write& item) { return &item == &write; });
}

// --- Breaking --------------------------------------------------------------------------------------------------------------------

void UcxLink::lost(ucs_status_t status) {
  if (state_ == LinkState::broken) return;
  fail(
      make_error(Status::peer_lost, "connection", object(), text_of(status), "forget the peer and connect anew", native_of(status)),
      {});
}

void UcxLink::refuse(std::string_view why, Farewell reason) {
  if (state_ == LinkState::broken) return;
  fail(make_error(Status::peer_lost, "connection", object(), text("the peer broke the rules: ", why)), reason);
}

void UcxLink::fail(Error error, std::optional<Farewell> farewell) {
  if (state_ == LinkState::broken) return;
  state_ = LinkState::broken;
  error_ = std::move(error);
  if (endpoint_ != nullptr && !endpoint_->is_lost()) farewell_ = farewell;
  give_up_at_ns_ = now_ns() + kGiveUpNs;
  transport_.attend_to(*this);
}

// Nothing is told before UCX has returned all local memory.
bool UcxLink::finish_breaking(std::int64_t now_ns) {
  if (endpoint_ != nullptr) {
    transport_.close(*endpoint_);
    if (pieces_under_way_ > 0 && now_ns < give_up_at_ns_) return false;
    if (pieces_under_way_ > 0) log(LogLevel::warning, text("ucx: ", object(), ": sends did not end in 2 s"));
    transport_.leave(*std::exchange(endpoint_, nullptr), kLingerNs);
    if (farewell_) say_farewell(*farewell_);
  }
  for (const Write& write : writes_) transport_.tell({this, Done{write.cookie, cancelled(object(), *error_)}});
  for (const auto& [request, read] : reads_) transport_.tell({this, Done{read.cookie, cancelled(object(), *error_)}});
  writes_.clear();
  reads_.clear();
  answers_.clear();
  transport_.tell({this, *error_});
  return true;
}

Operation& UcxLink::farewell(Farewell reason) const {
  return transport_.take_operation(WireKind::bye, peer_number_, {.request = static_cast<std::uint32_t>(reason)});
}

// Through an endpoint of its own: the link's may be stuck behind data that the peer does not take, and is closed by now. The peer
// would else notice only when UCX next looks whether it is alive, and UCX finds that its process is.
void UcxLink::say_farewell(Farewell reason) {
  const auto endpoint = transport_.connect(peer_address_, nullptr, object());
  if (!endpoint) return;
  transport_.send(**endpoint, farewell(reason));
  transport_.leave(**endpoint, kLingerNs);
}

UcxLink::Work UcxLink::work(std::int64_t now_ns) {
  if (state_ == LinkState::broken) {
    const bool did_something = deliver_inbox();
    const bool is_over = finish_breaking(now_ns);
    return {did_something || is_over, is_over};
  }
  if (state_ == LinkState::connecting) {
    if (now_ns < connect_until_ns_) return {};
    fail(make_error(Status::timed_out, "connect", object(), "the peer's UCX did not answer within the deadline",
                    "look for a firewall between the hosts, and at UCX_NET_DEVICES"),
         {});
    return {true, false};
  }
  bool did_something = deliver_inbox();
  if (std::exchange(wants_pump_, false)) {
    pump();
    did_something = true;
  }
  return {did_something, state_ == LinkState::ready && inbox_.empty() && !wants_pump_};
}

std::optional<std::int64_t> UcxLink::wakes_at_ns() const {
  if (state_ == LinkState::connecting) return connect_until_ns_;
  return {};
}

}  // namespace gigabar::transport::ucx
