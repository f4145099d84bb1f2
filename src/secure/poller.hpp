// SPDX-License-Identifier: Apache-2.0
// One epoll descriptor over all sockets of an endpoint, with a timer in it.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"

namespace gigabar::secure {

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> open();

  int descriptor() const noexcept { return epoll_.get(); }
  // `operation` is epoll_ctl()'s. False with errno set. `token` comes back with every event.
  bool set(int operation, int descriptor, std::uint32_t events, std::uint64_t token) noexcept;
  // Closing is not enough: a forked child that holds a copy would keep the events coming.
  void remove(int descriptor) noexcept;
  // Events that are there now.
  std::size_t take(std::span<epoll_event> events) noexcept;
  // The descriptor becomes readable at `at_ns` (now_ns() clock), kNever: by events only. Tokens of the timer are kTimerToken.
  void wake_at(std::int64_t at_ns) noexcept;
  std::int64_t wake_at_ns() const noexcept { return wake_at_ns_; }
  // Not in a forked child, with which this process shares everything here.
  bool is_owner() const noexcept;

  static constexpr std::uint64_t kTimerToken = ~std::uint64_t{0};

 private:
  Poller(Descriptor epoll, Descriptor timer) noexcept;
  Descriptor epoll_, timer_;
  std::int64_t wake_at_ns_ = kNever;
  pid_t owner_;
};

// A descriptor in a poller, taken out and closed at the end.
class Watched {
 public:
  Watched() noexcept = default;
  // is_open() is false, and errno is set, when it could not be added.
  Watched(Poller& poller, Descriptor descriptor, std::uint64_t token, std::uint32_t events) noexcept;
  Watched(Watched&& other) noexcept = default;
  Watched& operator=(Watched other) noexcept;
  Watched(const Watched&) = delete;
  ~Watched();

  bool is_open() const noexcept { return descriptor_.is_open(); }
  int get() const noexcept { return descriptor_.get(); }
  std::uint64_t token() const noexcept { return token_; }
  void want(std::uint32_t events) noexcept;
  // From now on these events come, with another token.
  void rename(std::uint64_t token, std::uint32_t events) noexcept;
  // Likewise from another poller. False, with errno set: it is in none.
  bool move_to(Poller& poller, std::uint64_t token, std::uint32_t events) noexcept;

 private:
  Poller* poller_ = nullptr;
  Descriptor descriptor_;
  std::uint64_t token_ = 0;
  std::uint32_t events_ = 0;
};

}  // namespace gigabar::secure
