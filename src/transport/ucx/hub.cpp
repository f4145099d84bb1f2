// SPDX-License-Identifier: Apache-2.0
// What the links are told, and when they and UCX get their turn. The calls of UCX are in worker.cpp.
#include "transport/ucx/hub.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

Error no_descriptor(const char* call, int code) {
  return make_error(status_of_errno(code), "open UCX", "wake descriptor", text(call, " failed"), {}, errno_code(code));
}

}  // namespace

Result<std::shared_ptr<Hub>> Hub::open(const TransportOptions& options) {
  if (!ucp::availability().is_ok()) return make_error("open UCX", "libucp", ucp::availability());
  std::shared_ptr<Hub> hub(new Hub);
  hub->connect_deadline_ns_ = options.connect_deadline_ns;
  Result<void> opened = hub->open_context(options.ucx_devices);
  if (opened) opened = hub->open_worker();
  if (!opened) return std::move(opened).error();
  return hub;
}

Result<void> Hub::open_wake_descriptor(int worker_descriptor) {
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

void Hub::add_link(std::uint64_t number, UcxLink& link) { links_.emplace(number, &link); }

void Hub::remove_link(std::uint64_t number, UcxLink& link) {
  links_.erase(number);
  std::erase(attended_, &link);
  std::erase_if(events_, [&](const Event& event) { return event.link == &link; });
}

void Hub::attend_to(UcxLink& link) {
  if (std::find(attended_.begin(), attended_.end(), &link) == attended_.end()) attended_.push_back(&link);
}

bool Hub::poll(Sink& sink) {
  if (is_timer_set_) set_timer(0);
  sink_ = &sink;
  bool is_something = progress();
  if (std::exchange(is_starved_, false)) fail_all();
  is_something |= attend();
  is_something |= deliver();
  sink_ = nullptr;
  return is_something;
}

// There was no memory for something of a link; of which is not known.
void Hub::fail_all() {
  try {
    for (auto& [number, link] : links_) link->lost(UCS_ERR_NO_MEMORY);
  } catch (const std::bad_alloc&) {
    is_starved_ = true;
    throw;
  }
}

bool Hub::attend() {
  if (attended_.empty()) return false;
  const std::int64_t now = now_ns();
  bool is_something = false;
  // Links may join the list meanwhile; none leaves it, for none is destroyed in here.
  for (std::size_t i = 0; i < attended_.size();) {
    const UcxLink::Work work = attended_[i]->work(now);
    is_something |= work.did_something;
    if (work.is_over) {
      attended_.erase(attended_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return is_something;
}

bool Hub::deliver() {
  // What the sink's own posts add is for the next poll().
  const std::size_t count = events_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    if (const Done* done = std::get_if<Done>(&event.what)) {
      sink_->done(*event.link, done->cookie, done->outcome);
    } else if (const Error* error = std::get_if<Error>(&event.what)) {
      sink_->broken(*event.link, *error);
    } else {
      event.link->told_ready();
      sink_->ready(*event.link);
    }
  }
  return count > 0;
}

bool Hub::arm() {
  if (!events_.empty()) return false;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const UcxLink* link : attended_) {
    const auto wakes_at = link->wakes_at_ns();
    if (!wakes_at) return false;
    first = std::min(first, *wakes_at);
  }
  if (leaving_count_ > 0) return false;  // closing goes on in progress() only
  if (ucp::library().ucp_worker_arm(worker_) != UCS_OK) return false;
  if (first != std::numeric_limits<std::int64_t>::max()) set_timer(first);
  return true;
}

// 0: none. Setting it anew also takes back that it went off.
void Hub::set_timer(std::int64_t at_ns) {
  itimerspec time{};
  time.it_value.tv_sec = at_ns / 1'000'000'000;
  time.it_value.tv_nsec = at_ns % 1'000'000'000;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
  is_timer_set_ = at_ns != 0;
}

// Something that is none of ours, or data of a kind that we do not send, is a stranger's.
void Hub::arrived(const std::optional<WireHeader>& header, std::span<const std::byte> data, bool is_rendezvous) {
  const auto found = header ? links_.find(header->link) : links_.end();
  if (found == links_.end() || is_rendezvous) ++strangers_;
  if (found == links_.end()) return;
  if (is_rendezvous) return found->second->refuse("it sent data by rendezvous");
  found->second->receive(*header, data);
}

}  // namespace gigabar::transport::ucx
