// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/transport.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/undo.hpp"
#include "platform/cpu_set.hpp"
#include "transport/tcp/link.hpp"
#include "transport/tcp/open.hpp"
#include "transport/tcp/silence.hpp"

namespace gigabar::transport {
namespace tcp {
namespace {

constexpr unsigned kEventsInARow = 8;      // and the link is asked first
constexpr unsigned kMaxSilentPolls = 512;  // and it is watched again
constexpr unsigned kPollsPerLook = 32;     // at all other sockets, meanwhile

constexpr std::int64_t kLingerNs = 100'000'000;     // for what links that go have sent
constexpr std::int64_t kLeavingLookNs = 2'000'000;  // at whether it is gone

constexpr std::uint64_t kBellToken = secure::Poller::kTimerToken - 1;

// A connection is as fast as the thread at each end that copies, and encrypts. A quarter of the processors at each end leaves as
// many for the kernel's and the program's work, as the peer may be on the same host.
constexpr unsigned kProcessorsPerLane = 4;
constexpr unsigned kMaxLanesByDefault = 4;

Result<unsigned> wanted_lanes(const std::vector<int>& cpus) {
  constexpr const char* kVariable = "GIGABAR_TCP_CONNECTIONS";
  const auto given = environment(kVariable);
  const auto processors = static_cast<unsigned>(cpus.empty() ? usable_cpus().size() : cpus.size());
  if (!given || given->empty()) return std::min(processors / kProcessorsPerLane, kMaxLanesByDefault);
  const auto number = parse_number(*given, 0, kMaxLanes);
  if (number) return static_cast<unsigned>(*number);
  return make_error(Status::invalid_argument, "open TCP", kVariable, text("'", *given, "' is not allowed"),
                    text("give a number from 0 to ", kMaxLanes));
}

// Who closes a socket before everything that came was read resets the connection, and what the other side's kernel does not have by
// then is lost. So what comes is dropped until it has all.
bool has_gone_out(secure::ByteStream& stream) noexcept {
  constexpr unsigned kMaxDrops = 64;
  const int socket = stream.socket().get();
  if (stream.flush().how == secure::Moved::How::failed) return true;
  if (!stream.has_unsent()) ::shutdown(socket, SHUT_WR);
  std::array<std::byte, 16384> dropped;
  for (unsigned count = 0; count < kMaxDrops; ++count) {
    const ssize_t bytes = ::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (bytes < 0 && errno != EAGAIN && errno != EINTR) return true;
    if (bytes <= 0) break;
  }
  const auto path = path_of(socket);
  return !stream.has_unsent() && !(path && path->has_unacknowledged);
}

}  // namespace

Result<std::vector<Rail>> find_rails(std::string_view list) {
  const auto named = network::named_interfaces(list, "GIGABAR_TCP_INTERFACES");
  if (!named) return named.error();
  std::vector<Rail> rails;
  for (const network::Interface& interface : *named) {
    auto rail = std::ranges::find(rails, interface.name, &Rail::interface);
    if (rail == rails.end()) rail = rails.insert(rails.end(), {interface.name, {}, {}});
    if (rail->addresses.size() < kMaxTargets) rail->addresses.push_back(interface.address);
  }
  return rails;
}

std::string TcpTransport::rail_of(const network::SocketAddress& address) const {
  const auto is_same = [&](const network::SocketAddress& own) { return network::ip_bytes(own) == network::ip_bytes(address); };
  const auto has_it = [&](const Rail& rail) { return std::ranges::any_of(rail.addresses, is_same); };
  const auto rail = std::ranges::find_if(rails_, has_it);
  return rail != rails_.end() ? rail->interface : network::host_of(network::with_port(address, 0));
}

TcpTransport::TcpTransport(std::unique_ptr<secure::Poller> poller)
    : PlacedTransport(TransportKind::tcp, "TCP"), poller_(std::move(poller)), acceptor_(*poller_) {}

Result<std::unique_ptr<TcpTransport>> TcpTransport::open(const TransportOptions& options) {
  auto rails = find_rails(options.tcp_interfaces);
  if (!rails) return std::move(rails).error();
  auto poller = secure::Poller::open();
  if (!poller) return std::move(poller).error();
  std::unique_ptr<TcpTransport> opened(new TcpTransport(std::move(*poller)));
  opened->rails_ = std::move(*rails);
  opened->connect_deadline_ns_ = options.connect_deadline_ns;
  opened->security_ = {options.is_tcp_sealed ? Protection::sealed : Protection::authenticated, secure::best_cipher()};
  opened->cpus_ = options.cpus;
  const auto lanes = wanted_lanes(options.cpus);
  if (!lanes) return lanes.error();
  opened->wanted_lanes_ = *lanes;
  if (!opened->bell_.open() || !opened->poller_->set(EPOLL_CTL_ADD, opened->bell_.descriptor(), EPOLLIN, kBellToken)) {
    const int code = errno;
    return make_errno_error(code, "open TCP", "wake descriptor");
  }
  for (Rail& rail : opened->rails_) {
    opened->rail_names_.push_back(rail.interface);
    rail.targets = opened->acceptor_.listen(rail.addresses);
    if (!rail.targets.empty()) continue;
    const int code = errno;
    return make_errno_error(code, "open TCP", rail.interface, "nothing can listen at its addresses", {}, Status::unavailable);
  }
  return opened;
}

TcpTransport::~TcpTransport() {
  if (!is_of_this_process()) return;
  for (drop_leaving(); !leaving_.empty(); drop_leaving()) ::poll(nullptr, 0, 1);
}

std::optional<Security> TcpTransport::security_with(const Peer& peer) const {
  const auto theirs = security_of_address(peer.address);
  if (!theirs) return {};
  const Security both{std::max(theirs->protection, security_.protection), std::min(theirs->cipher, security_.cipher)};
  return both.protection == Protection::sealed ? both : Security{};
}

Availability TcpTransport::can_reach(const Peer& peer) const {
  const auto security = security_with(peer);
  if (!security) {
    return {AvailabilityCode::not_supported, "the peer has no TCP transport of this version",
            "install the same version of Gigabar at every rank"};
  }
  return {AvailabilityCode::ok, text("TCP, ", name_of(security->protection)), {}};
}

Result<std::unique_ptr<Link>> TcpTransport::offer(const Peer& peer, std::size_t rail, Parcel& offer) {
  const auto security = security_with(peer);
  if (rail >= rails_.size() || !security) {
    return make_error(Status::invalid_argument, "offer a link", text("rail ", rail, " to rank ", peer.rank),
                      "there is no such rail, or the peer has no TCP transport of this version");
  }
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<TcpLink>(*this, peer.rank, *number, *security);
  offer = {encode(link->expect_peer(rails_[rail].targets)), {}};
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<Link>> TcpTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  const auto security = security_with(peer);
  if (!offer.descriptors.empty() || !security) {
    return make_error(Status::bad_file, "accept a link", text("rank ", peer.rank),
                      "the offer came with descriptors, or its rank has no TCP transport of this version");
  }
  const auto decoded = decode_offer(offer.bytes);
  if (!decoded) return decoded.error();
  auto link = std::make_unique<TcpLink>(*this, peer.rank, decoded->link, *security);
  answer = {encode_answer(decoded->link, link->dial(*decoded)), {}};
  return std::unique_ptr<Link>(std::move(link));
}

std::uint64_t TcpTransport::add_link(TcpLink& link) {
  attended_.reserve(links_.size() + 1);
  links_.emplace(++serial_, &link);
  return serial_;
}

void TcpTransport::remove_link(std::uint64_t serial) noexcept {
  const auto found = links_.find(serial);
  std::erase(attended_, found->second);
  if (found->second == asked_first_) asked_first_ = nullptr;
  if (found->second == last_speaker_) last_speaker_ = nullptr;
  links_.erase(found);
}

void TcpTransport::handle(std::uint64_t token, std::uint32_t events, std::int64_t now, Sink& sink) {
  if (token == secure::Poller::kTimerToken) return;  // timers run behind all that has come
  if (token == kBellToken) return bell_.clear();     // a lane rang while it was disarmed; poll() has looked at all of them
  if (token >= kLinkTokens) {
    const auto link = links_.find(token - kLinkTokens);
    if (link == links_.end()) return;
    is_timer_stale_ |= link->second->state() == LinkState::connecting;
    return link->second->handle(events, sink);
  }
  is_timer_stale_ = true;
  auto proven = acceptor_.handle(token, now);
  if (!proven) return;
  for (const auto& [serial, link] : links_) {
    if (link->waits_for(proven->number)) return link->take(proven->number, std::move(proven->established));
  }
}

void TcpTransport::set_timer() {
  std::int64_t next_ns = acceptor_.next_ns();
  for (const auto& [serial, link] : links_) next_ns = std::min(next_ns, link->next_ns());
  if (!leaving_.empty()) next_ns = std::min(next_ns, now_ns() + kLeavingLookNs);
  is_timer_stale_ = false;
  poller_->wake_at(next_ns);
}

// --- Links that go --------------------------------------------------------------------------------------------------------------

std::int64_t TcpTransport::linger_until_ns() noexcept {
  const std::int64_t now = now_ns();
  if (now - linger_until_ns_ >= kLingerNs) linger_until_ns_ = now + kLingerNs;
  return linger_until_ns_;
}

void TcpTransport::let_go_out(secure::ByteStream stream) {
  leaving_.push_back({std::move(stream), now_ns() + kLingerNs});
  leaving_.back().stream.socket().want(EPOLLONESHOT);  // the timer alone looks at it
  drop_leaving();
  set_timer();
}

void TcpTransport::drop_leaving() noexcept {
  const std::int64_t now = now_ns();
  std::erase_if(leaving_, [&](Leaving& leaving) {
    if (!has_gone_out(leaving.stream) && now < leaving.until_ns) return false;
    secure::end_connection(leaving.stream.socket().get());
    return true;
  });
}

// --- The link that is asked first ------------------------------------------------------------------------------------------------

void TcpTransport::note_speaker(TcpLink& link) noexcept {
  events_in_a_row_ = std::exchange(last_speaker_, &link) == &link ? events_in_a_row_ + 1 : 1;
  if (events_in_a_row_ < kEventsInARow || asked_first_ != nullptr) return;
  asked_first_ = &link;
  silent_polls_ = 0;
  link.want_events();
}

bool TcpTransport::watch_again() noexcept {
  if (asked_first_ == nullptr) return true;
  events_in_a_row_ = silent_polls_ = 0;
  TcpLink* const link = std::exchange(asked_first_, nullptr);
  if (!link->want_events()) asked_first_ = link;
  return asked_first_ == nullptr;
}

bool TcpTransport::arm() noexcept {
  if (!attended_.empty() || !watch_again()) return false;
  if (lanes_.empty()) return true;
  bell_.arm();
  const bool is_quiet = std::ranges::none_of(lanes_, [](const auto& lane) { return lane->has_events(); });
  if (!is_quiet) bell_.disarm();
  return is_quiet;
}

// --- Lanes -----------------------------------------------------------------------------------------------------------------------

// Fewer where one cannot be opened: what is there works.
unsigned TcpTransport::lane_count() {
  while (lanes_.size() < wanted_lanes_) {
    auto lane = Lane::open(static_cast<unsigned>(lanes_.size()), home_, bell_, cpus_);
    if (!lane) {
      log(LogLevel::info, lane.error().message());
      wanted_lanes_ = static_cast<unsigned>(lanes_.size());
      break;
    }
    lanes_.push_back(std::move(*lane));
  }
  return wanted_lanes_;
}

bool TcpTransport::poll(Sink& sink) {
  if (!lanes_.empty()) bell_.disarm();
  for (const auto& lane : lanes_) {
    if (!lane->has_events()) continue;
    for (const LaneEvent& event : lane->take_events()) {
      const auto found = links_.find(event.link);
      if (found != links_.end()) found->second->take_event(event);
    }
  }
  if (asked_first_ == nullptr) return poll_sockets(sink);
  bool is_something = asked_first_->receive(sink);
  silent_polls_ = is_something ? 0 : silent_polls_ + 1;
  if (silent_polls_ == kMaxSilentPolls) watch_again();
  if (++polls_ % kPollsPerLook == 0) is_something |= poll_sockets(sink);
  return attend(sink) || is_something;
}

bool TcpTransport::poll_sockets(Sink& sink) {
  std::array<epoll_event, 64> ready;
  const std::size_t count = poller_->take(ready);
  if (count == 0 && attended_.empty()) return false;
  const std::int64_t now = now_ns();
  const Undo timer([&] {
    if (is_timer_stale_) set_timer();
  });
  bool is_something = attend(sink);
  for (std::size_t index = 0; index < count; ++index) handle(ready[index].data.u64, ready[index].events, now, sink);
  if (poller_->wake_at_ns() <= now) {
    is_timer_stale_ = true;
    drop_leaving();
    acceptor_.run_timers(now, count == ready.size());
    for (const auto& [serial, link] : links_) {
      if (link->next_ns() <= now) link->advance(now);
    }
  }
  return attend(sink) || is_something || count > 0;
}

}  // namespace tcp

Result<std::unique_ptr<Transport>> open_tcp(const TransportOptions& options) {
  auto opened = tcp::TcpTransport::open(options);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Transport>(std::move(*opened));
}

}  // namespace gigabar::transport
