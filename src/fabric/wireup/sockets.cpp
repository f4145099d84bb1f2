// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/errors.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

// A host that is gone answers nothing: the kernel gives up after this time, with data under way or without.
constexpr unsigned kLostAfterMs = 20'000;
constexpr int kKeepaliveIdleS = 5;
constexpr int kKeepaliveIntervalS = 5;
constexpr int kKeepaliveProbes = 3;

template <class Value>
bool set_option(int socket, int level, int name, const Value& value) noexcept {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

template <class SocketAddress>
void keep(Target& target, const SocketAddress& address, std::size_t bytes) {
  std::memcpy(&target.address, &address, sizeof address);
  target.address_bytes = static_cast<socklen_t>(bytes);
}

Descriptor listen_at(const Target& target) {
  Descriptor socket(::socket(target.address.ss_family, SOCK_STREAM | kFlags, 0));
  if (!socket.is_open()) return socket;
  if (target.address.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  const auto* address = reinterpret_cast<const sockaddr*>(&target.address);
  if (::bind(socket.get(), address, target.address_bytes) == 0 && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
  const int code = errno;
  socket = Descriptor();
  errno = code;
  return socket;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  // Both families have the port at the same place.
  sockaddr_in four{};
  std::memcpy(&four, &address, sizeof four);
  return ntohs(four.sin_port);
}

}  // namespace

Target unix_target(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero byte: the abstract name space, where nothing is left behind.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  Target target;
  target.is_unix = true;
  keep(target, address, offsetof(sockaddr_un, sun_path) + 1 + name.size());
  target.text = text("unix socket ", name);
  return target;
}

Target tcp_target(const Address& address, std::uint16_t port) {
  Target target;
  if (address.is_ipv6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, address.bytes.data(), sizeof six.sin6_addr);
    keep(target, six, sizeof six);
  } else {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, address.bytes.data(), sizeof four.sin_addr);
    keep(target, four, sizeof four);
  }
  target.text = text(address.text(), " port ", port);
  return target;
}

Descriptor listen_unix(const std::string& name) { return listen_at(unix_target(name)); }

std::vector<Descriptor> listen_tcp(const std::vector<Address>& addresses, std::uint16_t& port) {
  // A port that is free at the first address may be taken at the next.
  constexpr int kTries = 16;
  std::vector<Descriptor> sockets;
  for (int tries = 0; tries < kTries && sockets.size() < addresses.size(); ++tries) {
    sockets.clear();
    port = 0;
    for (const Address& address : addresses) {
      Descriptor socket = listen_at(tcp_target(address, port));
      if (!socket.is_open()) break;
      port = port_of(socket.get());
      sockets.push_back(std::move(socket));
    }
    if (sockets.size() < addresses.size() && errno != EADDRINUSE) break;
  }
  if (sockets.size() == addresses.size()) return sockets;
  port = 0;
  return {};
}

void set_tcp_options(int socket) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kLostAfterMs);
}

Descriptor start_connect(const Target& target) {
  Descriptor socket(::socket(target.address.ss_family, SOCK_STREAM | kFlags, 0));
  if (!socket.is_open()) return socket;
  if (!target.is_unix) set_tcp_options(socket.get());
  const auto* address = reinterpret_cast<const sockaddr*>(&target.address);
  if (::connect(socket.get(), address, target.address_bytes) == 0 || errno == EINPROGRESS) return socket;
  const int code = errno;
  socket = Descriptor();
  errno = code;
  return socket;
}

std::optional<Credentials> credentials_of(int socket) noexcept {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0) return {};
  return Credentials{found.pid, found.uid};
}

Descriptor watch_process(pid_t process) noexcept {
  if (process <= 0) return {};
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));  // close-on-exec by itself
}

Arrival read_up_to(int socket, std::string& bytes, std::size_t wanted_bytes) {
  std::array<char, 256> piece{};
  while (bytes.size() < wanted_bytes) {
    const std::size_t most = std::min(piece.size(), wanted_bytes - bytes.size());
    const ssize_t count = ::recv(socket, piece.data(), most, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN ? Arrival::incomplete : Arrival::failed;
    if (count == 0) return Arrival::ended;
    bytes.append(piece.data(), static_cast<std::size_t>(count));
  }
  return Arrival::complete;
}

bool send_now(int socket, std::string_view bytes) noexcept {
  const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0 && static_cast<std::size_t>(count) < bytes.size()) errno = ENOBUFS;
  return count == static_cast<ssize_t>(bytes.size());
}

bool is_readable(int socket) noexcept {
  pollfd entry{socket, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

bool is_at_end(int socket) noexcept {
  char byte = 0;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

void end_connection(int socket) noexcept {
  // Closing with unread bytes makes TCP tell the peer a reset, which may overtake what it has not read yet.
  std::array<char, 4096> unread{};
  for (int round = 0; round < 16; ++round) {
    if (::recv(socket, unread.data(), unread.size(), MSG_DONTWAIT) <= 0) break;
  }
  ::shutdown(socket, SHUT_RDWR);
}

}  // namespace gigabar::fabric::wireup
