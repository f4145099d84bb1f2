// SPDX-License-Identifier: Apache-2.0
// System calls on stream sockets, and the poller that they are in; nothing here waits or raises SIGPIPE.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"
#include "platform/network.hpp"

namespace gigabar::secure {

using network::SocketAddress;

// A listening socket; not open, with errno set, when there can be none. Port 0: the system chooses one; any other is taken over
// from connections of the last job, and from a launcher that keeps it free.
Descriptor listen_at(const SocketAddress& address);
SocketAddress own_address_of(int socket) noexcept;

// A socket that is connecting or connected; not open, with errno set, when that failed at once.
Descriptor start_connect(const SocketAddress& address);
// 0: connected to somebody else; EINPROGRESS: not yet; else the errno of what failed.
int connection_code(int socket) noexcept;
// Of an errno: the process or the host has no descriptor left; no descriptor or no memory.
bool lacks_descriptors(std::int64_t code) noexcept;
bool lacks_resources(std::int64_t code) noexcept;
// No delay, and an error after about 20 s in which the other host answered nothing.
void set_tcp_options(int socket) noexcept;
// For a connection whose other end may leave what was sent unread for any time: to the limit of 20 s that is silence too, although
// its host answers. An idle connection still notices a host that is gone; one with bytes under way has the system's time for it.
void allow_slow_reader(int socket) noexcept;

struct Credentials {
  pid_t process = 0;  // in this process's numbering; 0: not visible here
  bool is_of_this_user = false;
};
// Of the process at the other end of a Unix socket, as it was when it connected or listened.
Credentials credentials_of(int socket) noexcept;

enum class Arrival : std::uint8_t { complete, incomplete, ended, failed };
// Reads until `bytes` has `wanted_bytes`, and nothing beyond. Descriptors that come along are not taken: the kernel closes them.
Arrival read_up_to(int socket, std::string& bytes, std::size_t wanted_bytes);
// Small messages of a handshake: a fresh socket has room for them. False with errno set.
bool send_now(int socket, std::string_view bytes) noexcept;
// Of a listener: somebody waits there.
bool is_readable(int socket) noexcept;
// Says the end to the other side too when a forked child holds a copy, and lets it read everything that was sent.
void end_connection(int socket) noexcept;

// --- Pollers ---------------------------------------------------------------------------------------------------------------------

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// One epoll descriptor over all sockets of an endpoint, with a timer in it.
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
  // Of none it is taken out of the poller, so that a sender's kernel has nobody to wake. False: it is out and could not be put in
  // again, for want of memory.
  bool want(std::uint32_t events) noexcept;
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
