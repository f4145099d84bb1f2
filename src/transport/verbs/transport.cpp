// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/transport_state.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "platform/kernel_memcpy.hpp"

namespace gigabar::transport::rdma {
namespace {

constexpr std::int64_t kLookEveryNs = 1'000'000;         // for rdma_cm's events and deadlines while there is no reason to
constexpr std::int64_t kConnectingLookEveryNs = 20'000;  // the same while links are connecting
constexpr unsigned kLookEveryPolls = 256;                // the clock is read after so many polls while links are busy,
constexpr unsigned kIdlePollWeight = 16;                 // of which one that found nothing counts for so many
constexpr int kMaxEventsAtOnce = 64;

Availability check_functions() {
  const auto& functions = verbs::functions();
  if (functions.ibv_create_comp_channel != nullptr && functions.ibv_destroy_comp_channel != nullptr &&
      functions.ibv_get_cq_event != nullptr && functions.ibv_ack_cq_events != nullptr)
    return {};
  return {AvailabilityCode::symbol_missing, "libibverbs has no completion channels", "install a newer rdma-core"};
}

bool can_talk(const RailAddress& first, const RailAddress& second) {
  return first.technology == second.technology && first.is_ipv6 == second.is_ipv6;
}

}  // namespace

Result<std::unique_ptr<Transport>> VerbsTransport::open(const TransportOptions& options) {
  if (const Availability functions = check_functions(); !functions.is_ok())
    return make_error("open verbs", "libibverbs", functions);
  std::unique_ptr<VerbsTransport> transport(new VerbsTransport(options));
  errno = 0;
  transport->channel_.reset(rdmacm::functions().rdma_create_event_channel());
  if (transport->channel_ == nullptr) {
    const int code = errno;
    const bool is_denied = code == EACCES || code == EPERM;
    return make_error(is_denied ? Status::no_permission : Status::unavailable, "open verbs", "/dev/infiniband/rdma_cm",
                      text("rdma_create_event_channel failed: ", std::strerror(code)),
                      is_denied ? "let this user open /dev/infiniband/rdma_cm (mode 0666, or --device for a container)"
                                : "this machine has no RDMA device, or rdma_ucm is not loaded (modprobe rdma_ucm)",
                      errno_code(code));
  }
  if (!unblock(transport->channel_->fd)) return call_failed("fcntl", "channel of rdma_cm", errno);
  auto rails = open_rails(transport->channel_.get(), options);
  if (!rails) return std::move(rails).error();
  transport->rails_ = std::move(*rails);
  for (const Rail& rail : transport->rails_.rails) transport->rail_names_.push_back(rail.name);
  if (Result<void> opened = transport->open_wake_descriptor(); !opened) return std::move(opened).error();
  return std::unique_ptr<Transport>(std::move(transport));
}

VerbsTransport::~VerbsTransport() {
  if (refused_count_ == 0) return;
  quietly([&] { log(LogLevel::info, text("verbs: ", refused_count_, " connection(s) of strangers were refused")); });
}

Result<void> VerbsTransport::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(wake_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return call_failed("epoll_ctl", "wake descriptor", errno);
  return {};
}

Result<void> VerbsTransport::open_wake_descriptor() {
  wake_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake_.is_open()) return call_failed("epoll_create1", "wake descriptor", errno);
  Result<void> watched = watch(channel_->fd);
  for (const auto& device : rails_.devices) {
    if (watched) watched = watch(device->channel->fd);
    if (watched && device->has_events) watched = watch(device->context->async_fd);
  }
  return watched;
}

std::string VerbsTransport::address() const {
  std::vector<RailAddress> addresses;
  for (const Rail& rail : rails_.rails) addresses.push_back(rail.address);
  return write_card(addresses);
}

Result<std::unique_ptr<Region>> VerbsTransport::register_memory(const MemoryRange& range) {
  const std::string object = range_text(reinterpret_cast<std::uintptr_t>(range.address), range.bytes);
  if (range.kind == MemoryKind::stand_in && !options_.stand_in_registration)
    return make_error(Status::not_supported, "register memory", object, "this NIC does not reach stand-in memory", "stage it");
  take_device_events();  // one that has just gone must not refuse it for the others
  if (std::ranges::all_of(rails_.devices, &Device::is_gone))
    return make_error(Status::device_error, "register memory", object, "every RDMA device was removed or failed",
                      "see the kernel's log (dmesg); ranks that start anew find them again");
  return VerbsRegion::make(range, rails_.rails, order_);
}

Result<std::unique_ptr<RemoteRegion>> VerbsTransport::open_region(const Peer& peer, Parcel key) {
  auto read = read_key(key.bytes);
  if (!read || !key.descriptors.empty())
    return make_error(Status::bad_file, "open region", text("rank ", peer.rank), "the key of its region is malformed");
  return std::unique_ptr<RemoteRegion>(std::make_unique<VerbsRemoteRegion>(std::move(*read)));
}

std::string VerbsTransport::why_no_words() const {
  if (std::ranges::all_of(rails_.devices, &Device::is_iwarp)) return std::string(kNoWordsOfIwarp);
  const bool has_rxe = std::ranges::any_of(rails_.devices, &Device::is_rxe);
  return std::string(has_rxe && !kernel_stores_words_once() ? kNoWordsOfThisKernel : "");
}

Availability VerbsTransport::can_reach(const Peer& peer) const {
  const auto theirs = read_card(peer.address);
  if (!theirs) return {AvailabilityCode::not_supported, "the peer has no address for RDMA, or a malformed one", {}};
  for (const Rail& rail : rails_.rails) {
    for (const RailAddress& other : *theirs) {
      if (can_talk(rail.address, other))
        return {AvailabilityCode::ok, text(name_of(rail.address.technology), " from ", rail.name, " to ", text_of(other)), {}};
    }
  }
  return {
      AvailabilityCode::not_supported,
      text("no rail of the peer speaks ", name_of(rails_.rails.front().address.technology), " as ", rail_names_.front(), " does"),
      "use devices of one kind on both sides (option rails)"};
}

// The rails of this side that speak to one of theirs: those in a network of theirs, and only where there is none the others, whose
// networks may be routed.
std::vector<std::size_t> VerbsTransport::rails_towards(std::span<const RailAddress> theirs) const {
  std::vector<std::size_t> fitting, near;
  for (std::size_t i = 0; i < rails_.rails.size(); ++i) {
    const RailAddress& own = rails_.rails[i].address;
    const auto fits = [&](const RailAddress& other) { return can_talk(own, other); };
    const auto is_near = [&](const RailAddress& other) { return fits(other) && is_same_network(own, other); };
    if (rails_.rails[i].listener == nullptr) continue;
    if (std::ranges::any_of(theirs, fits)) fitting.push_back(i);
    if (std::ranges::any_of(theirs, is_near)) near.push_back(i);
  }
  return near.empty() ? fitting : near;
}

Result<std::unique_ptr<VerbsLink>> VerbsTransport::make_link(std::size_t rail) {
  Token token{};
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    return call_failed("getrandom", "a token", errno);
  auto link = std::make_unique<VerbsLink>(*this, rail, token, now_ns() + options_.connect_deadline_ns);
  if (Result<void> prepared = link->prepare(); !prepared) return std::move(prepared).error();
  return link;
}

Result<std::unique_ptr<Link>> VerbsTransport::offer(const Peer& peer, std::size_t rail, Parcel& offer) {
  if (rail >= rails_.rails.size())
    return make_error(Status::out_of_range, "offer link", text("rank ", peer.rank),
                      text("there are ", counted(rails_.rails.size(), "rail")));
  // Round and round; all rails while the peer's address is not known.
  const auto theirs = read_card(peer.address);
  if (const auto fitting = rails_towards(theirs.value_or(std::vector<RailAddress>())); !fitting.empty())
    rail = fitting[rail % fitting.size()];
  if (rails_.rails[rail].listener == nullptr)
    return make_error(Status::unavailable, "offer link", rails_.rails[rail].name, "the RDMA device was removed or failed",
                      "see the kernel's log (dmesg); ranks that start anew find it again");
  auto link = make_link(rail);
  if (!link) return std::move(link).error();
  offer = Parcel{write_offer({static_cast<std::uint8_t>(rail), rails_.rails[rail].address, (*link)->token()}), {}};
  return std::unique_ptr<Link>(std::move(*link));
}

Result<std::unique_ptr<Link>> VerbsTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  const auto read = read_offer(offer.bytes);
  if (!read || !offer.descriptors.empty())
    return make_error(Status::bad_file, "accept link", text("rank ", peer.rank), "the offer is malformed");
  // The same network first, then the rail of the same number, then the nearest.
  const auto fitting = rails_towards(std::span(&read->from, 1));
  if (fitting.empty()) {
    return make_error(Status::not_supported, "accept link", text("rank ", peer.rank),
                      text("no rail here speaks ", name_of(read->from.technology), " to ", text_of(read->from)),
                      "use devices of one kind on both sides (option rails)");
  }
  const auto same = std::ranges::find(fitting, std::size_t{read->rail});
  const std::size_t best = same != fitting.end() ? *same : fitting.front();
  auto link = make_link(best);
  if (!link) return std::move(link).error();
  (*link)->expect(read->token, read->rail);
  answer = Parcel{write_answer({static_cast<std::uint8_t>(best), rails_.rails[best].address, (*link)->token()}), {}};
  return std::unique_ptr<Link>(std::move(*link));
}

// --- Moving on -------------------------------------------------------------------------------------------------------------------

bool VerbsTransport::poll(Sink& sink) {
  const bool was_armed = is_armed_;
  if (was_armed) take_wakes();
  bool has_happened = false;
  bool is_connecting = false;
  // By index: callbacks may offer and accept links.
  for (std::size_t i = 0; i < links_.size(); ++i) {  // NOLINT(modernize-loop-convert): callbacks may add links
    has_happened |= links_[i]->poll(sink);
    is_connecting |= links_[i]->is_connecting();
  }
  polls_since_look_ += has_happened ? 1 : kIdlePollWeight;
  if (!was_armed && !is_connecting && polls_since_look_ < kLookEveryPolls) return has_happened;
  polls_since_look_ = 0;
  const std::int64_t now = now_ns();
  if (!was_armed && now - looked_ns_ < (is_connecting ? kConnectingLookEveryNs : kLookEveryNs)) return has_happened;
  looked_ns_ = now;
  return look_around(sink) || has_happened;
}

bool VerbsTransport::look_around(Sink& sink) {
  bool has_happened = take_device_events();
  has_happened |= take_events(sink);
  for (std::size_t i = 0; i < links_.size(); ++i) {  // NOLINT(modernize-loop-convert): callbacks may add links
    links_[i]->look_at_clock(looked_ns_);
    if (links_[i]->has_failed()) has_happened |= links_[i]->poll(sink);
  }
  return has_happened;
}

bool VerbsTransport::take_events(Sink& sink) {
  const auto& cm = rdmacm::functions();
  bool has_happened = false;
  for (int i = 0; i < kMaxEventsAtOnce; ++i) {
    rdma_cm_event* event = nullptr;
    if (cm.rdma_get_cm_event(channel_.get(), &event) != 0) return has_happened;  // EAGAIN: there are no more
    has_happened = true;
    const CmEvent copy(*event);
    // Before it is handled, and nothing before it throws: an id cannot be destroyed while an event of it is not acknowledged.
    cm.rdma_ack_cm_event(event);
    handle(copy, sink);
  }
  return has_happened;
}

void VerbsTransport::handle(const CmEvent& event, Sink& sink) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event);
  for (std::size_t i = 0; i < links_.size(); ++i) {  // NOLINT(modernize-loop-convert): callbacks may add links
    if (links_[i]->is_on(event.id)) return links_[i]->handle(event, sink);
  }
  if (event.event != RDMA_CM_EVENT_DEVICE_REMOVAL) return;
  for (Rail& rail : rails_.rails) {
    if (rail.listener != nullptr && rail.listener.get() == event.id) return leave(*rail.device, "was removed");
  }
}

void VerbsTransport::on_request(const CmEvent& event) {
  Id id(event.id);
  const auto rail = std::find_if(rails_.rails.begin(), rails_.rails.end(),
                                 [&](const Rail& one) { return one.listener != nullptr && one.listener.get() == event.listen_id; });
  const auto introduction = read_introduction(event.private_data());
  if (rail == rails_.rails.end() || !introduction) return refuse(std::move(id), "it is no rank of this job");
  const auto index = static_cast<std::size_t>(rail - rails_.rails.begin());
  VerbsLink* expected = nullptr;
  // All of them, so that the time does not tell which one was near.
  for (VerbsLink* const link : links_) expected = link->is_expecting(index, introduction->token) ? link : expected;
  if (expected == nullptr) return refuse(std::move(id), "its token is not expected");
  expected->take_request(std::move(id), event, *introduction);
}

void VerbsTransport::refuse(Id id, const char* why) {
  const auto reason = write_refusal(Refusal::unknown_token);
  rdmacm::functions().rdma_reject(id.get(), reason.data(), static_cast<std::uint8_t>(reason.size()));
  ++refused_count_;
  if (is_logged(LogLevel::info))
    log(LogLevel::info, text("verbs: a connection was refused: ", why, " (", refused_count_, " so far)"));
}

// Its descriptors leave the set, because those of a removed device would wake every sleeper at once. `is_gone` comes last: what
// ends before it, for want of memory, begins anew.
void VerbsTransport::leave(Device& device, const char* why) {
  if (device.is_gone) return;
  for (VerbsLink* const link : links_) {
    if (link->has_device(device)) link->fail_device(text("the RDMA device ", why));
  }
  for (Rail& rail : rails_.rails) {
    if (rail.device.get() != &device || rail.listener == nullptr) continue;
    rail.listener.reset();
    log(LogLevel::warning, text("verbs: the RDMA device of rail ", rail.name, " ", why));
  }
  for (const int descriptor : {device.channel->fd, device.context->async_fd})
    ::epoll_ctl(wake_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  device.is_gone = true;
}

// The descriptors of a device that was removed are in error for ever. Nothing else may tell it: another user of the context may
// have taken the event, and a read that does not block can say EAGAIN as if the device were there.
bool VerbsTransport::take_device_events() {
  bool has_happened = false;
  for (const auto& device : rails_.devices) {
    std::array<pollfd, 2> watched{{{device->has_events ? device->context->async_fd : -1, POLLIN, 0}, {device->channel->fd, 0, 0}}};
    if (device->is_gone || ::poll(watched.data(), watched.size(), 0) <= 0) continue;
    ibv_async_event event{};
    for (int i = 0; (watched[0].revents & POLLIN) != 0 && i < kMaxEventsAtOnce; ++i) {
      if (verbs::functions().ibv_get_async_event(device->context, &event) != 0) break;
      const ibv_async_event copy = event;
      verbs::functions().ibv_ack_async_event(&event);  // first, as above
      on_device_event(*device, copy);
      has_happened = true;
    }
    if (((watched[0].revents | watched[1].revents) & (POLLERR | POLLHUP)) == 0) continue;
    leave(*device, "was removed");
    has_happened = true;
  }
  return has_happened;
}

// What no completion tells. The others are told by completions and rdma_cm, or by the peer's silence (a port that is down).
void VerbsTransport::on_device_event(Device& device, const ibv_async_event& event) {
  if (event.event_type == IBV_EVENT_CQ_ERR) {
    for (VerbsLink* const link : links_) {
      if (link->has_queue(event.element.cq)) link->fail_device("its completion queue failed (overflow, or the adapter's error)");
    }
  }
  if (event.event_type == IBV_EVENT_DEVICE_FATAL) leave(device, "reported a fatal error");
}

void VerbsTransport::take_wakes() {
  is_armed_ = false;
  for (const auto& device : rails_.devices) {
    ibv_cq* queue = nullptr;
    void* link = nullptr;
    while (verbs::functions().ibv_get_cq_event(device->channel, &queue, &link) == 0) verbs::functions().ibv_ack_cq_events(queue, 1);
  }
}

bool VerbsTransport::arm() {
  is_armed_ = true;
  bool is_quiet = true;
  for (VerbsLink* const link : links_) is_quiet = link->arm() && is_quiet;
  return is_quiet;
}

}  // namespace gigabar::transport::rdma
