// SPDX-License-Identifier: Apache-2.0
// A link's incoming half. Every byte here was written by another process.
#include <utility>

#include "base/errors.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr std::size_t kMaxAhead = 4096;  // messages and writes that overtook one

}  // namespace

void UcxLink::receive(const WireHeader& header, std::span<const std::byte> data) {
  if (state_ == LinkState::broken) return;
  const auto kind = static_cast<WireKind>(header.kind);
  const Access access = access_of(header);
  if (kind == WireKind::bye) {
    return lost(std::string(sentence_of(static_cast<Farewell>(access.request))));
  }
  has_heard_ = true;
  look_whether_ready();
  take_acknowledgement(header.acknowledged);
  if (state_ == LinkState::broken) return;
  switch (kind) {
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

// Writes are placed as they come; a message waits for everything before it.
void UcxLink::take_sequenced(const WireHeader& header, std::span<const std::byte> data) {
  if (header.sequence < expected_ || ahead_.contains(header.sequence)) return refuse("it repeated a sequence number");
  const bool is_message = header.kind == static_cast<std::uint8_t>(WireKind::message);
  if (!is_message && !place(header, data)) return;
  if (is_message && data.size() > kMaxPayloadBytes) return refuse("a message was too long");
  if (header.sequence != expected_) return hold(header, data);
  ++expected_;
  if (is_message) take_message(header.body, data);
  while (!ahead_.empty() && ahead_.begin()->first == expected_ && state_ != LinkState::broken) {
    const std::optional<Held> held = std::move(ahead_.extract(ahead_.begin()).mapped());
    ++expected_;
    if (!held) continue;
    held_units_ -= units_of(held->payload.size());
    take_message(held->header, held->payload);
  }
}

bool UcxLink::place(const WireHeader& header, std::span<const std::byte> data) {
  const Access access = access_of(header);
  const bool is_whole = !data.empty() && access.bytes == data.size();
  const Placed placed = is_whole ? transport_.home()->copy_to(place_of(access, rank_), data) : Placed::not_allowed;
  if (placed == Placed::failed) fail_to_place();
  if (placed == Placed::not_allowed) {
    refuse("a write to an unknown region, with a wrong guard or out of range", Farewell::bad_access);
  }
  return placed == Placed::ok;
}

void UcxLink::hold(const WireHeader& header, std::span<const std::byte> data) {
  if (ahead_.size() >= kMaxAhead || header.sequence - expected_ > kMaxAhead)
    return refuse(text("too much was out of order: number ", header.sequence, " came, ", expected_, " did not"));
  if (header.kind == static_cast<std::uint8_t>(WireKind::write)) {
    ahead_.emplace(header.sequence, std::nullopt);
    return;
  }
  held_units_ += units_of(data.size());
  if (held_units_ > kWindowUnits) return refuse("it sent more messages than it had leave for");
  ahead_.emplace(header.sequence, Held{header.body, {data.begin(), data.end()}});
}

void UcxLink::take_message(const Header& header, std::span<const std::byte> payload) {
  if (transport_.sink() != nullptr && inbox_.empty() && is_ready_told_) return deliver(header, payload);
  held_units_ += units_of(payload.size());
  if (held_units_ > kWindowUnits) return refuse("it sent more messages than it had leave for");
  inbox_.push_back({header, {payload.begin(), payload.end()}});
  transport_.attend_to(*this);
}

void UcxLink::deliver(const Header& header, std::span<const std::byte> payload) {
  consumed_units_ += units_of(payload.size());
  transport_.sink()->message(*this, header, payload);
  send_credit();
}

bool UcxLink::deliver_inbox() {
  if (!is_ready_told_) return false;
  bool is_something = false;
  while (!inbox_.empty()) {
    const Held held = std::move(inbox_.front());
    inbox_.pop_front();
    held_units_ -= units_of(held.payload.size());
    deliver(held.header, held.payload);
    is_something = true;
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

}  // namespace gigabar::transport::ucx
