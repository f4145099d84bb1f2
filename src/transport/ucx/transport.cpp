// SPDX-License-Identifier: Apache-2.0
// What the links are told, and when they and UCX get their turn. The calls of UCX are in worker.cpp.
#include "transport/ucx/transport.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "base/errors.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

Error no_descriptor(const char* call, int code) {
  return make_error(status_of_errno(code), "open UCX", "wake descriptor", text(call, " failed"), {}, errno_code(code));
}

std::string library_version() {
  const ucp::Library& library = ucp::library();
  return text(library.major, '.', library.minor, '.', library.patch);
}

}  // namespace

Result<std::unique_ptr<UcxTransport>> UcxTransport::open(const TransportOptions& options) {
  if (!ucp::availability().is_ok()) return make_error("open UCX", "libucp", ucp::availability());
  std::unique_ptr<UcxTransport> transport(new UcxTransport);
  transport->connect_deadline_ns_ = options.connect_deadline_ns;
  Result<void> opened = transport->open_context(options.ucx_devices);
  if (opened) opened = transport->open_worker();
  if (!opened) return std::move(opened).error();
  return transport;
}

Result<void> UcxTransport::open_wake_descriptor(int worker_descriptor) {
  wake_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake_.is_open()) return no_descriptor("epoll_create1", errno);
  timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_.is_open()) return no_descriptor("timerfd_create", errno);
  for (const int watched : {worker_descriptor, timer_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = watched;
    if (::epoll_ctl(wake_.get(), EPOLL_CTL_ADD, watched, &event) != 0) return no_descriptor("epoll_ctl", errno);
  }
  return {};
}

std::string UcxTransport::address() const { return address_text(library_version()); }

Availability UcxTransport::can_reach(const Peer& peer) const {
  const auto version = library_version_of_address(peer.address);
  if (!version) {
    return {AvailabilityCode::not_supported,
            "the peer has no UCX transport of this version",
            "install UCX and the same version of Gigabar at every rank",
            {}};
  }
  return {AvailabilityCode::ok, text("UCX ", library_version(), " here, ", *version, " there"), {}, {}};
}

Result<std::unique_ptr<Link>> UcxTransport::offer(const Peer& peer, std::size_t rail, Parcel& offer) {
  if (rail >= rails_.size()) {
    return make_error(Status::invalid_argument, "offer a link", text("rail ", rail),
                      "UCX has one rail, and chooses networks itself");
  }
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<UcxLink>(*this, peer, *number);
  offer.bytes = encode(InvitationKind::offer, link->invitation());
  offer.descriptors.clear();
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<Link>> UcxTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  if (!offer.descriptors.empty()) {
    return make_error(Status::bad_file, "accept a link", text("rank ", peer.rank), "the offer came with descriptors");
  }
  const auto invitation = decode_invitation(InvitationKind::offer, offer.bytes);
  if (!invitation) return invitation.error();
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<UcxLink>(*this, peer, *number);
  if (Result<void> connected = link->connect(*invitation); !connected) return std::move(connected).error();
  answer.bytes = encode(InvitationKind::answer, link->invitation());
  answer.descriptors.clear();
  return std::unique_ptr<Link>(std::move(link));
}

void UcxTransport::add_link(std::uint64_t number, UcxLink& link) {
  attended_.reserve(links_.size() + 1);
  links_.emplace(number, &link);
}

void UcxTransport::remove_link(std::uint64_t number, UcxLink& link) {
  links_.erase(number);
  std::erase(attended_, &link);
}

bool UcxTransport::poll(Sink& sink) {
  if (is_timer_set_) set_timer(0);
  sink_ = &sink;
  bool is_something = progress();
  if (std::exchange(is_starved_, false)) fail_all();
  is_something |= attend(sink);
  sink_ = nullptr;
  return is_something;
}

// There was no memory for something of a link; of which is not known.
void UcxTransport::fail_all() {
  try {
    for (auto& [number, link] : links_) link->lost_by(UCS_ERR_NO_MEMORY);
  } catch (const std::bad_alloc&) {
    is_starved_ = true;
    throw;
  }
}

bool UcxTransport::arm() {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const PlacedLink* link : attended_) {
    if (link->state() != LinkState::connecting) return false;
    first = std::min(first, link->connect_until_ns());
  }
  if (leaving_count_ > 0) return false;  // closing goes on in progress() only
  if (ucp::library().ucp_worker_arm(worker_) != UCS_OK) return false;
  if (first != std::numeric_limits<std::int64_t>::max()) set_timer(first);
  return true;
}

// 0: none. Setting it anew also takes back that it went off.
void UcxTransport::set_timer(std::int64_t at_ns) {
  itimerspec time{};
  time.it_value.tv_sec = at_ns / 1'000'000'000;
  time.it_value.tv_nsec = at_ns % 1'000'000'000;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
  is_timer_set_ = at_ns != 0;
}

// Something that is none of ours, or data of a kind that we do not send, is a stranger's.
void UcxTransport::arrived(const std::optional<WireHeader>& header, std::span<const std::byte> data, bool is_rendezvous) {
  const auto found = header ? links_.find(header->link) : links_.end();
  if (found == links_.end() || is_rendezvous) ++strangers_;
  if (found == links_.end()) return;
  if (is_rendezvous) return found->second->refuse("it sent data by rendezvous");
  found->second->receive(*header, data);
}

}  // namespace gigabar::transport::ucx
