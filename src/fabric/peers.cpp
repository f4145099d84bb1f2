// SPDX-License-Identifier: Apache-2.0
// Connecting: find the peer's address, open the channel, greet, agree on links, be ready.
//
// Of two ranks the lower one offers links, whoever began. It tries its transports in order; one that cannot be used, or whose links
// do not stand in half of the time that is left, is passed over with its reason, and when none is left both sides know all reasons.
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/shown.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

// A process that dies closes its links and its channel in any order: a link that breaks before it stands is taken for the network's
// fault only when the channel has outlived it for so long.
constexpr std::int64_t kChannelGraceNs = 50'000'000;
constexpr std::int64_t kChannelErrorNs = 1'000'000;

Error of_other_version(Rank rank, std::uint32_t version) {
  return make_error(Status::not_supported, "connect", rank_text(rank),
                    text("its version of the protocol is ", version, ", this one's is ", kEngineVersion),
                    "use the same version of Gigabar at all ranks");
}

// Nothing: it does, as far as the address of its transport tells.
std::optional<std::string> why_unreachable(const transport::Transport& transport, const transport::Peer& peer) {
  if (peer.address.empty()) return text(rank_text(peer.rank), " has not opened it");
  Availability reachable = transport.can_reach(peer);
  if (reachable.is_ok()) return {};
  return std::move(reachable.reason);
}

void add_reason(std::string& reasons, std::string_view name, std::string_view reason) {
  reasons += text(reasons.empty() ? "" : "; ", name, ": ", reason);
}

// Both sides agree on the candidate, but the network may swallow its packets: it has half of the time that is left, the others the
// rest. From the peer's answer on, since a peer that is busy gets no other offer. A link that breaks before tells its own reason.
void limit_candidate(Peer& peer) {
  if (peer.failed_candidate) return;
  const std::int64_t now = now_ns();
  const std::int64_t half_ns = (peer.deadline_ns - now) / 2;
  peer.failed_candidate = {now + half_ns, make_error(Status::timed_out, "connect", rank_text(peer.rank),
                                                     text("no link stands after ", half_ns / 1'000'000, " ms"),
                                                     "look for a firewall between the hosts")};
}

}  // namespace

Result<Peer*> Engine::find_peer(Rank rank) {
  if (rank >= job_.rank_count) {
    return make_error(Status::invalid_argument, "fabric", text("rank ", rank),
                      text("the job has ", counted(job_.rank_count, "rank")), "give a rank below that");
  }
  if (recent_peer_ != nullptr && recent_peer_->rank == rank) return recent_peer_;
  auto found = peers_.find(rank);
  if (found == peers_.end()) {
    auto peer = std::make_unique<Peer>();
    peer->rank = rank;
    peer->is_self = rank == job_.rank;
    peer->identity.rank = rank;
    found = peers_.emplace(rank, std::move(peer)).first;
  }
  return recent_peer_ = found->second.get();
}

Result<Peer*> Engine::ready_peer(Lock& lock, Rank rank, const Timeout& timeout) {
  auto found = find_peer(rank);
  if (!found) return found;
  Peer& peer = **found;
  if (peer.state == Peer::State::ready) return found;
  if (peer.state == Peer::State::lost) return *peer.why;
  const Uncancelled uncancelled;
  const AwaitedPeer awaited(peer);
  begin_to_connect(peer);
  const bool is_over = progress_until(lock, timeout, [&] { return peer.state == Peer::State::ready || awaited.is_lost(); });
  if (!is_over) {
    return make_error(Status::timed_out, "connect", rank_text(rank), "the connection does not stand yet",
                      "call again, or look whether that rank was started");
  }
  if (awaited.is_lost()) return awaited.why("connect");
  return &peer;
}

bool Engine::can_still_speak(Rank rank, bool connects) {
  auto found = find_peer(rank);
  if (!found) return false;
  Peer& peer = **found;
  if (connects && peer.state == Peer::State::idle && directory_) {
    const auto rank_address = directory_->rank_address(rank);
    if (!rank_address) return false;  // without the directory nobody finds anybody any more
    if (*rank_address) begin_to_connect(peer);
  }
  return peer.state != Peer::State::lost;
}

std::optional<Error> Engine::error_when_alone(const char* operation, const char* what, bool connects) {
  const auto self = peers_.find(job_.rank);
  if (job_.rank_count == 1 || (self != peers_.end() && self->second->state == Peer::State::ready)) return {};
  const Uncancelled uncancelled;
  std::string ranks, causes;
  for (Rank rank = 0; rank < job_.rank_count; ++rank) {
    if (rank == job_.rank) continue;
    if (can_still_speak(rank, connects)) return {};
    const Peer& peer = *peers_[rank];
    ranks += text(ranks.empty() ? "" : ", ", rank);
    if (peer.why && causes.size() < 500)
      causes += text(causes.empty() ? "" : "; ", rank_text(rank), ": ", peer.why->record().cause);
  }
  return make_error(Status::peer_lost, operation, text("ranks ", ranks), text("no rank is left that could ", what, ": ", causes),
                    "connect to a rank that was started again with forget() and connect()");
}

void Engine::begin_to_connect(Peer& peer) {
  if (peer.state != Peer::State::idle) return;
  peer.deadline_ns = now_ns() + settings_.connect_timeout_ns;
  try {
    if (peer.is_self) return connect_to_self(peer);
    peer.state = Peer::State::finding;
    connecting_.push_back(&peer);
    progress_connecting(peer);
  } catch (const std::bad_alloc&) {
    if (peer.state != Peer::State::idle) starve(peer);
    throw;
  }
}

void Engine::progress_connecting(Peer& peer) {
  if (peer.state == Peer::State::ready || peer.state == Peer::State::lost || peer.state == Peer::State::idle) {
    std::erase(connecting_, &peer);
    return;
  }
  if (now_ns() > peer.deadline_ns) {
    const std::string_view missing = peer.state == Peer::State::finding      ? "it has left no address: was it started?"
                                     : peer.state == Peer::State::connecting ? "its channel does not stand"
                                                                             : "no link stands";
    fail(peer, make_error(Status::timed_out, "connect", rank_text(peer.rank), std::string(missing),
                          "start the rank, or allow more time with connect_timeout"));
    return;
  }
  if (peer.failed_candidate && now_ns() - peer.failed_candidate->at_ns > kChannelGraceNs) {
    const Error failure = std::move(peer.failed_candidate->error);
    next_candidate(peer, failure.record().cause);
    return;
  }
  if (peer.state != Peer::State::finding || !directory_) return;
  auto rank_address = directory_->rank_address(peer.rank);
  if (!rank_address) return fail(peer, std::move(rank_address).error());
  if (!*rank_address) return;
  peer.rank_address = std::move(**rank_address);
  ByteReader reader(peer.rank_address);
  const auto version = reader.number<std::uint32_t>();
  const std::string channel(reader.string(kMaxRankAddressBytes));
  if (!reader.is_ok() || version != kEngineVersion) return fail(peer, of_other_version(peer.rank, version));
  peer.state = Peer::State::connecting;
  if (wireup_->is_connected(peer.rank)) {
    // It was faster.
    peer.state = Peer::State::greeting;
    return;
  }
  // The channel's own error says more than that of this function: it comes first.
  const std::int64_t deadline_ns = peer.deadline_ns - kChannelErrorNs;
  if (Result<void> begun = wireup_->connect(peer.rank, channel, deadline_ns); !begun) fail(peer, std::move(begun).error());
}

Result<void> Engine::send_frame(Peer& peer, FrameType type, std::string body, std::vector<Descriptor> descriptors) {
  Frame frame{.type = type, .body = std::move(body), .descriptors = std::move(descriptors)};
  if (peer.is_self) {
    take_frame(peer, frame);
    return {};
  }
  try {
    Result<void> sent = wireup_->send(peer.rank, std::move(frame));
    if (!sent && peer.state != Peer::State::lost) fail(peer, Error(sent.record()));
    return sent;
  } catch (const std::bad_alloc&) {
    starve(peer);
    return Error::out_of_memory();
  }
}

void Engine::connected(Rank rank, bool is_same_host, std::int64_t process) {
  auto found = find_peer(rank);
  if (!found) return;
  Peer& peer = **found;
  if (peer.state == Peer::State::lost) {
    // The rank came back, or never knew that it was lost: a new connection begins with a peer that was forgotten.
    unwanted_.push_back(rank);
    return;
  }
  peer.identity.is_same_host = is_same_host;
  peer.identity.process = process;
  if (peer.state == Peer::State::idle) {
    peer.deadline_ns = now_ns() + settings_.connect_timeout_ns;
    connecting_.push_back(&peer);
  }
  peer.state = Peer::State::greeting;
  ByteWriter hello;
  hello.number(kEngineVersion).number(settings_.eager_bytes).number(job_.rank_count).string(rank_address_);
  (void)send_frame(peer, kHello, hello.take());  // its failure is the peer's
}

void Engine::on_hello(Peer& peer, const Frame& frame) {
  ByteReader reader(frame.body);
  const auto version = reader.number<std::uint32_t>();
  peer.peer_eager_bytes = reader.number<std::uint64_t>();
  const auto rank_count = reader.number<Rank>();
  const std::string_view rank_address = reader.string(kMaxRankAddressBytes);
  if (version != kEngineVersion) return fail(peer, of_other_version(peer.rank, version));
  if (!reader.is_done() || rank_count != job_.rank_count || peer.has_greeted) {
    return accuse(peer, "its greeting is malformed", "connect");
  }
  peer.rank_address = rank_address;
  peer.has_greeted = true;
  peer.state = Peer::State::linking;
  peer.candidate = 0;
  if (job_.rank < peer.rank) offer_links(peer);
}

std::string_view Engine::part_of_address(std::string_view rank_address, std::optional<TransportKind> wanted) {
  ByteReader reader(rank_address);
  reader.number<std::uint32_t>();
  reader.string(kMaxRankAddressBytes);
  const auto count = reader.number<std::uint8_t>();
  for (unsigned index = 0; index < count && reader.is_ok(); ++index) {
    const auto kind = reader.number<std::uint8_t>();
    const std::string_view part = reader.string(kMaxRankAddressBytes);
    if (reader.is_ok() && wanted && kind == static_cast<std::uint8_t>(*wanted)) return part;
  }
  const std::string_view reasons = wanted ? std::string_view() : reader.string(kMaxReasonBytes);
  return reader.is_ok() ? reasons : std::string_view();
}

// Of a pair that has no transport in common: what was tried, and what each of the two says of what it has not opened.
Error Engine::error_without_transport(const Peer& peer, std::string_view tried) const {
  std::string cause = text("no transport reaches it: ", tried);
  const auto add = [&](Rank rank, std::string_view reasons) {
    if (!reasons.empty()) cause += text("; of ", rank_text(rank), ": ", reasons);
  };
  add(job_.rank, why_no_transport_);
  add(peer.rank, shown(part_of_address(peer.rank_address, {}), kMaxReasonBytes));
  return make_error(Status::unavailable, "connect", rank_text(peer.rank), std::move(cause), "remove one of the causes");
}

void Engine::add_rail(Peer& peer, std::unique_ptr<transport::Link> link, std::uint32_t number) {
  link->owner = &peer;
  peer.rails.push_back({.link = std::move(link), .number = number});
}

// Errors: those of the transport. Where a frame cannot be sent the peer fails.
Result<void> Engine::offer_rails(Peer& peer) {
  transport::Transport& transport = *peer.transport;
  const std::size_t count = std::min<std::size_t>({transport.rails().size(), settings_.of_transports.rail_count, kMaxRails});
  for (std::size_t rail = 0; rail < std::max<std::size_t>(count, 1); ++rail) {
    transport::Parcel parcel;
    auto link = transport.offer(peer.identity, rail, parcel);
    if (!link) return std::move(link).error();
    add_rail(peer, std::move(*link), ++last_link_number_);
    ByteWriter writer;
    writer.number(static_cast<std::uint8_t>(transport.kind())).number(static_cast<std::uint8_t>(rail)).number(last_link_number_);
    writer.number(static_cast<std::uint8_t>(count)).string(parcel.bytes);
    if (!send_frame(peer, kLinkOffer, writer.take(), std::move(parcel.descriptors))) break;
  }
  return {};
}

void Engine::offer_links(Peer& peer) {
  const auto near = placement_.prefer_own_node();  // for what links allocate and pin
  drop_links(peer);
  for (; peer.candidate < transports_.size(); ++peer.candidate) {
    transport::Transport& transport = *transports_[peer.candidate];
    peer.identity.address = part_of_address(peer.rank_address, transport.kind());
    auto why = why_unreachable(transport, peer.identity);
    if (!why) {
      peer.transport = &transport;
      const Result<void> offered = offer_rails(peer);
      if (offered) return;
      why = offered.record().cause;
      drop_links(peer);
    }
    add_reason(peer.reasons, name_of(transport.kind()), *why);
  }
  (void)send_frame(peer, kNoTransport, peer.reasons);
  fail(peer, error_without_transport(peer, peer.reasons));
}

void Engine::next_candidate(Peer& peer, const std::string& reason) {
  const std::string_view name = peer.transport != nullptr ? name_of(peer.transport->kind()) : "link";
  log(LogLevel::info, text("fabric: ", rank_text(peer.rank), ": ", name, " cannot be used: ", reason));
  add_reason(peer.reasons, name, reason);
  ++peer.candidate;
  offer_links(peer);
}

void Engine::on_link_offer(Peer& peer, Frame& frame) {
  ByteReader reader(frame.body);
  const auto kind = reader.number<std::uint8_t>();
  const auto rail = reader.number<std::uint8_t>();
  const auto number = reader.number<std::uint32_t>();
  const auto rail_count = reader.number<std::uint8_t>();
  const std::string_view bytes = reader.string(transport::kMaxParcelBytes);
  if (!reader.is_done() || kind >= kTransportKinds || rail >= kMaxRails || rail_count > kMaxRails ||
      peer.state != Peer::State::linking || job_.rank < peer.rank) {
    return accuse(peer, "its offer of a link is malformed", "connect");
  }
  if (rail == 0) {  // a new candidate; each transport is one once
    drop_links(peer);
    ++peer.candidate;
  }
  peer.offered_rails = std::max<std::uint8_t>(rail_count, 1);
  if (peer.rails.size() >= kMaxRails || peer.candidate > kTransportKinds) {
    return accuse(peer, text("it offers more than ", kMaxRails, " links, or more than ", kTransportKinds, " transports"),
                  "connect");
  }
  const auto near = placement_.prefer_own_node();
  transport::Parcel answer;
  std::string refusal = "it is not open at the other side";
  bool is_accepted = false;
  const auto open = std::ranges::find(transports_, static_cast<TransportKind>(kind), [](const auto& each) { return each->kind(); });
  if (open != transports_.end()) {
    if (!peer.rails.empty() && peer.transport != open->get()) return accuse(peer, "it offers links of two transports", "connect");
    peer.identity.address = part_of_address(peer.rank_address, (*open)->kind());
    auto link = (*open)->accept(peer.identity, {std::string(bytes), std::move(frame.descriptors)}, answer);
    is_accepted = link.is_ok();
    if (is_accepted) {
      peer.transport = open->get();
      add_rail(peer, std::move(*link), number);
    } else {
      refusal = link.error().record().cause;
    }
  }
  ByteWriter writer;
  writer.number(number).number(static_cast<std::uint8_t>(is_accepted ? 1 : 0)).number(rail_count);
  writer.string(is_accepted ? answer.bytes : refusal);
  (void)send_frame(peer, kLinkAnswer, writer.take(), std::move(answer.descriptors));
}

void Engine::on_link_answer(Peer& peer, Frame& frame) {
  ByteReader reader(frame.body);
  const auto number = reader.number<std::uint32_t>();
  const auto is_accepted = reader.number<std::uint8_t>();
  reader.number<std::uint8_t>();
  const std::string_view bytes = reader.string(transport::kMaxParcelBytes);
  if (!reader.is_done() || job_.rank > peer.rank || (peer.state != Peer::State::linking && peer.state != Peer::State::ready)) {
    return accuse(peer, "its answer to an offer is malformed", "connect");
  }
  const auto rail = std::find_if(peer.rails.begin(), peer.rails.end(), [&](const Rail& made) { return made.number == number; });
  if (rail == peer.rails.end()) return;  // of a candidate that was given up
  // A link that is answered carries operations: it is neither completed again nor given up for another.
  if (std::exchange(rail->is_answered, true)) {
    return accuse(peer, "it answered the same offer twice", "connect");
  }
  if (is_accepted == 0) return next_candidate(peer, shown(bytes, kMaxSaidBytes));
  if (const Result<void> completed = rail->link->complete({std::string(bytes), std::move(frame.descriptors)}); !completed)
    return next_candidate(peer, completed.record().cause);
  const auto is_next = [&](const auto& transport) {
    transport::Peer there = peer.identity;
    there.address = part_of_address(peer.rank_address, transport->kind());
    return !why_unreachable(*transport, there);
  };
  // Over verbs a link stands at the acceptor only when it stands here; elsewhere the acceptor may post by it already.
  if (peer.transport->kind() == TransportKind::verbs &&
      std::any_of(transports_.begin() + static_cast<std::ptrdiff_t>(peer.candidate) + 1, transports_.end(), is_next))
    limit_candidate(peer);
  become_ready(peer);
}

void Engine::become_ready(Peer& peer) {
  if (peer.state != Peer::State::linking || peer.rails.empty() || peer.rails.size() < peer.offered_rails) return;
  for (const Rail& rail : peer.rails) {
    if (rail.link->state() != transport::LinkState::ready) return;
  }
  peer.state = Peer::State::ready;
  if (peer.transport->needs_processor()) patience_ = kPatienceBesideKernel;
  std::erase(connecting_, &peer);
  ++changes_;
  list_busy(peer);
}

Result<void> Engine::link_to_self(Peer& peer, transport::Transport& transport) {
  peer.identity.address = transport.address();
  transport::Parcel offer, answer;
  auto link = transport.offer(peer.identity, 0, offer);
  if (!link) return std::move(link).error();
  auto end = transport.accept(peer.identity, std::move(offer), answer);
  if (!end) return std::move(end).error();
  if (Result<void> completed = (*link)->complete(std::move(answer)); !completed) return completed;
  peer.transport = &transport;
  peer.self_end = std::move(*end);
  peer.self_end->owner = &peer;
  add_rail(peer, std::move(*link), ++last_link_number_);
  return {};
}

void Engine::connect_to_self(Peer& peer) {
  const auto near = placement_.prefer_own_node();
  peer.identity.is_same_host = true;
  peer.identity.process = getpid();
  peer.has_greeted = true;
  peer.peer_eager_bytes = settings_.eager_bytes;
  std::string reasons = why_no_transport_;
  for (const auto& transport : transports_) {
    const Result<void> linked = link_to_self(peer, *transport);
    if (linked) {
      peer.state = Peer::State::linking;
      connecting_.push_back(&peer);
      return become_ready(peer);
    }
    add_reason(reasons, name_of(transport->kind()), linked.record().cause);
  }
  fail(peer, make_error(Status::unavailable, "connect", rank_text(peer.rank),
                        text("no transport reaches this rank itself: ", reasons), "allow the local transport"));
}

// --- What transports and channels tell ------------------------------------------------------------------------------------------

void Engine::ready(transport::Link& link) {
  Peer* const peer = owner_of(link);
  if (peer == nullptr) return;
  ++changes_;
  become_ready(*peer);
}

void Engine::broken(transport::Link& link, const Error& error) {
  Peer* const owner = owner_of(link);
  if (owner == nullptr) return;
  Peer& peer = *owner;
  if (peer.state == Peer::State::linking && job_.rank < peer.rank && !peer.is_self) {
    // A candidate that came to nothing, before its limit; the next one is tried outside of the transport's poll.
    const std::int64_t now = now_ns();
    if (!peer.failed_candidate || peer.failed_candidate->at_ns > now) peer.failed_candidate = {now, error};
    return;
  }
  if (peer.state == Peer::State::linking && !peer.is_self) return;  // the other side offers the next one
  ErrorRecord record = error.record();
  record.status = Status::peer_lost;
  record.object = text(rank_text(peer.rank), ": ", record.object);
  fail(peer, Error(std::move(record)));
}

void Engine::frame(Rank rank, Frame frame) {
  auto found = find_peer(rank);
  if (!found || (*found)->state == Peer::State::lost) return;
  try {
    take_frame(**found, frame);
  } catch (const std::bad_alloc&) {
    starve(**found);  // what it said is lost
  }
}

void Engine::take_frame(Peer& peer, Frame& frame) {
  if (!peer.has_greeted && frame.type != kHello && frame.type != kFarewell) {
    return accuse(peer, "it spoke before it greeted");
  }
  ++changes_;
  // A link does not stand without them. Memory is reached in other ways.
  if (frame.lacks_descriptors && frame.type != kSegmentKey) {
    return accuse(peer, "descriptors that it sent could not be taken: this process has no room for them (ulimit -n)");
  }
  switch (frame.type) {
    case kHello: on_hello(peer, frame); break;
    case kLinkOffer: on_link_offer(peer, frame); break;
    case kLinkAnswer: on_link_answer(peer, frame); break;
    case kNoTransport: fail(peer, error_without_transport(peer, shown(frame.body, kMaxSaidBytes))); break;
    case kSegmentAsk: on_segment_ask(peer, frame); break;
    case kSegmentKey: on_segment_key(peer, frame); break;
    case kSegmentAbsent: on_segment_absent(peer, frame); break;
    case kSegmentRevoke: on_segment_revoke(peer, frame); break;
    case kFarewell: accuse(peer, "it closed its fabric"); break;
    default: accuse(peer, text("it sent a frame of unknown type ", frame.type));
  }
}

void Engine::lost(Rank rank, const Error& error) {
  const auto found = peers_.find(rank);
  if (found == peers_.end() || found->second->state == Peer::State::lost) return;
  fail(*found->second, error);
}

}  // namespace gigabar::fabric
