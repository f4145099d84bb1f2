// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/hub.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"
#include "transport/tcp/link.hpp"

namespace gigabar::transport::tcp {
namespace {

constexpr unsigned kEventsInARow = 8;      // and the link is asked first
constexpr unsigned kMaxSilentPolls = 512;  // and it is watched again
constexpr unsigned kPollsPerLook = 32;     // at all other sockets, meanwhile

}  // namespace

Hub::Hub(std::unique_ptr<secure::Poller> poller) : poller_(std::move(poller)), acceptor_(*poller_) {}

Result<std::shared_ptr<Hub>> Hub::open(const TransportOptions& options) {
  auto rails = find_rails(options.tcp_interfaces);
  if (!rails) return std::move(rails).error();
  auto poller = secure::Poller::open();
  if (!poller) return std::move(poller).error();
  std::shared_ptr<Hub> hub(new Hub(std::move(*poller)));
  hub->rails_ = std::move(*rails);
  hub->connect_deadline_ns_ = options.connect_deadline_ns;
  hub->protection_ = options.is_tcp_sealed ? Protection::sealed : Protection::authenticated;
  for (Rail& rail : hub->rails_) {
    rail.targets = hub->acceptor_.listen(rail.addresses);
    if (!rail.targets.empty()) continue;
    const int code = errno;
    return make_error(status_of_errno(code, Status::unavailable), "open TCP", rail.interface,
                      text("nothing can listen at its addresses: ", std::strerror(code)), {}, errno_code(code));
  }
  return hub;
}

std::uint64_t Hub::add_link(TcpLink& link) {
  attended_.reserve(links_.size() + 1);
  links_.emplace(++serial_, &link);
  return serial_;
}

void Hub::remove_link(std::uint64_t serial) noexcept {
  const auto found = links_.find(serial);
  std::erase(attended_, found->second);
  if (found->second == asked_first_) asked_first_ = nullptr;
  if (found->second == last_speaker_) last_speaker_ = nullptr;
  links_.erase(found);
}

void Hub::attend_to(TcpLink& link) noexcept {
  if (std::ranges::find(attended_, &link) == attended_.end()) attended_.push_back(&link);
}

// What the sink's own posts add is for the next poll().
bool Hub::attend(Sink& sink) {
  bool is_something = false;
  for (std::size_t count = attended_.size(); count > 0; --count) {
    TcpLink* const link = attended_.front();
    attended_.erase(attended_.begin());
    Undo again([&] { attend_to(*link); });
    is_something |= link->attend(sink);
    again.call_off();
  }
  return is_something;
}

void Hub::welcome(secure::ProvenConnection proven) {
  for (const auto& [serial, link] : links_) {
    if (link->waits_for(proven.number)) return link->take(std::move(proven.established));
  }
}

void Hub::handle(std::uint64_t token, std::uint32_t events, Sink& sink) {
  if (token == secure::Poller::kTimerToken) return;
  if (token >= kLinkTokens) {
    const auto link = links_.find(token - kLinkTokens);
    if (link == links_.end()) return;
    is_timer_stale_ |= link->second->next_ns() != secure::kNever;
    return link->second->handle(events, sink);
  }
  is_timer_stale_ = true;
  if (auto proven = acceptor_.handle(token, now_ns_)) welcome(std::move(*proven));
}

void Hub::set_timer() {
  std::int64_t next_ns = acceptor_.next_ns();
  for (const auto& [serial, link] : links_) next_ns = std::min(next_ns, link->next_ns());
  is_timer_stale_ = false;
  wake_at_ns_ = next_ns;
  poller_->wake_at(next_ns);
}

void Hub::run_timers() {
  is_timer_stale_ = true;
  acceptor_.run_timers(now_ns_);
  for (const auto& [serial, link] : links_) {
    if (link->next_ns() <= now_ns_) link->advance(now_ns_);
  }
}

// --- The link that is asked first ------------------------------------------------------------------------------------------------

void Hub::note_speaker(TcpLink& link) noexcept {
  events_in_a_row_ = std::exchange(last_speaker_, &link) == &link ? events_in_a_row_ + 1 : 1;
  if (events_in_a_row_ < kEventsInARow || asked_first_ != nullptr) return;
  asked_first_ = &link;
  silent_polls_ = 0;
  link.want_events();
}

void Hub::watch_again() noexcept {
  if (asked_first_ == nullptr) return;
  events_in_a_row_ = 0;
  std::exchange(asked_first_, nullptr)->want_events();
}

bool Hub::ask_first(Sink& sink) {
  if (asked_first_->listen(sink)) {
    silent_polls_ = 0;
    return true;
  }
  if (++silent_polls_ == kMaxSilentPolls) watch_again();
  return false;
}

bool Hub::arm() noexcept {
  if (!attended_.empty()) return false;
  watch_again();
  return true;
}

bool Hub::poll(Sink& sink) {
  if (asked_first_ == nullptr) return poll_sockets(sink);
  bool is_something = ask_first(sink);
  if (++polls_ % kPollsPerLook == 0) is_something |= poll_sockets(sink);
  return attend(sink) || is_something;
}

bool Hub::poll_sockets(Sink& sink) {
  std::array<epoll_event, 64> ready;
  const std::size_t count = poller_->take(ready);
  if (count == 0 && attended_.empty()) return false;
  now_ns_ = now_ns();
  const Undo timer([&] {
    if (is_timer_stale_) set_timer();
  });
  bool is_something = attend(sink);
  for (std::size_t index = 0; index < count; ++index) handle(ready[index].data.u64, ready[index].events, sink);
  if (wake_at_ns_ <= now_ns_) run_timers();
  is_something |= attend(sink);
  return is_something || count > 0;
}

}  // namespace gigabar::transport::tcp
