// SPDX-License-Identifier: Apache-2.0
#include "secure/poller.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errors.hpp"

namespace gigabar::secure {
namespace {

Error failed(const char* call, int code) {
  return make_errno_error(code, "watch sockets", call, {}, code == EMFILE ? "raise the limit on open files (ulimit -n)" : "",
                          Status::unavailable);
}

}  // namespace

Poller::Poller(Descriptor epoll, Descriptor timer) noexcept
    : epoll_(std::move(epoll)), timer_(std::move(timer)), owner_(::getpid()) {}

Result<std::unique_ptr<Poller>> Poller::open() {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return failed("epoll_create1", errno);
  Descriptor timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer.is_open()) return failed("timerfd_create", errno);
  std::unique_ptr<Poller> poller(new Poller(std::move(epoll), std::move(timer)));
  if (!poller->set(EPOLL_CTL_ADD, poller->timer_.get(), EPOLLIN, kTimerToken)) return failed("epoll_ctl", errno);
  return poller;
}

bool Poller::is_owner() const noexcept { return ::getpid() == owner_; }

bool Poller::set(int operation, int descriptor, std::uint32_t events, std::uint64_t token) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  return ::epoll_ctl(epoll_.get(), operation, descriptor, &event) == 0;
}

void Poller::remove(int descriptor) noexcept {
  if (is_owner()) set(EPOLL_CTL_DEL, descriptor, 0, 0);
}

std::size_t Poller::take(std::span<epoll_event> events) noexcept {
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

void Poller::wake_at(std::int64_t at_ns) noexcept {
  if (at_ns == kNever && wake_at_ns_ == kNever) return;
  wake_at_ns_ = at_ns;
  constexpr std::int64_t kSecond = 1'000'000'000;
  itimerspec when{};
  if (at_ns != kNever) {
    at_ns = std::max<std::int64_t>(at_ns, 1);  // 0 would disarm it
    when.it_value.tv_sec = at_ns / kSecond;
    when.it_value.tv_nsec = at_ns % kSecond;
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

Watched::Watched(Poller& poller, Descriptor descriptor, std::uint64_t token, std::uint32_t events) noexcept
    : poller_(&poller), token_(token), events_(events) {
  if (poller.set(EPOLL_CTL_ADD, descriptor.get(), events, token)) descriptor_ = std::move(descriptor);
}

Watched& Watched::operator=(Watched other) noexcept {
  std::swap(poller_, other.poller_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(token_, other.token_);
  std::swap(events_, other.events_);
  return *this;
}

Watched::~Watched() {
  if (descriptor_.is_open()) poller_->remove(descriptor_.get());
}

void Watched::want(std::uint32_t events) noexcept {
  if (events != events_ && descriptor_.is_open()) rename(token_, events);
}

void Watched::rename(std::uint64_t token, std::uint32_t events) noexcept {
  token_ = token;
  events_ = events;
  poller_->set(EPOLL_CTL_MOD, descriptor_.get(), events_, token_);
}

bool Watched::move_to(Poller& poller, std::uint64_t token, std::uint32_t events) noexcept {
  poller_->remove(descriptor_.get());
  poller_ = &poller;
  token_ = token;
  events_ = events;
  return poller.set(EPOLL_CTL_ADD, descriptor_.get(), events, token);
}

}  // namespace gigabar::secure
