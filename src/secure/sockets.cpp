// SPDX-License-Identifier: Apache-2.0
#include "secure/sockets.hpp"

#include <netdb.h>
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

namespace gigabar::secure {
namespace {

// All ranks of a job may come at once; the kernel has a limit of its own.
constexpr int kBacklog = 4096;
// A host that is gone answers nothing: the kernel gives up after this time, with data under way or without.
constexpr unsigned kLostAfterMs = 20'000;
constexpr int kKeepaliveIdleS = 5;
constexpr int kKeepaliveIntervalS = 5;
constexpr int kKeepaliveProbes = 3;

// Before an IPv4 address inside an IPv6 one.
constexpr std::string_view kMappedIpv4("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);

template <class Value>
void set_option(int socket, int level, int name, const Value& value) noexcept {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

Descriptor new_socket(const SocketAddress& address) {
  return Descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Descriptor closed(Descriptor socket, int code) {
  socket = Descriptor();
  errno = code;
  return socket;
}

using AddressOf = int (*)(int, sockaddr*, socklen_t*);
bool read_address(AddressOf call, int socket, SocketAddress& address) noexcept {
  address.bytes = sizeof address.storage;
  return call(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) == 0;
}

}  // namespace

SocketAddress unix_address(const std::string& name) {
  SocketAddress address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  const std::size_t name_bytes = std::min(name.size(), sizeof local.sun_path - 1);
  std::memcpy(local.sun_path + 1, name.data(), name_bytes);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_bytes);
  address.name = text("unix socket ", name);
  return address;
}

std::string name_of_address(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const int code = ::getnameinfo(address.get(), address.bytes, host.data(), host.size(), port.data(), port.size(),
                                 NI_NUMERICHOST | NI_NUMERICSERV);
  if (code != 0) return "?";
  return address.storage.ss_family == AF_INET6 ? text("[", host.data(), "]:", port.data()) : text(host.data(), ":", port.data());
}

// Both families have the port at the same place.
std::uint16_t port_of(const SocketAddress& address) noexcept {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

SocketAddress with_port(SocketAddress address, std::uint16_t port) {
  reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  address.name = name_of_address(address);
  return address;
}

SocketAddress ip_address(const sockaddr* from, std::uint16_t port) {
  SocketAddress address;
  address.bytes = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, from, address.bytes);
  return with_port(std::move(address), port);
}

SocketAddress ip_address(std::string_view bytes, std::uint16_t port) {
  if (bytes.starts_with(kMappedIpv4)) bytes.remove_prefix(kMappedIpv4.size());
  sockaddr_storage made{};
  made.ss_family = bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (made.ss_family == AF_INET) {
    std::memcpy(&reinterpret_cast<sockaddr_in&>(made).sin_addr, bytes.data(), sizeof(in_addr));
  } else {
    std::memcpy(&reinterpret_cast<sockaddr_in6&>(made).sin6_addr, bytes.data(), sizeof(in6_addr));
  }
  return ip_address(reinterpret_cast<const sockaddr*>(&made), port);
}

std::string_view ip_bytes(const SocketAddress& address) noexcept {
  if (address.storage.ss_family == AF_INET)
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr), sizeof(in_addr)};
  if (address.storage.ss_family != AF_INET6) return {};
  std::string_view bytes(reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr),
                         sizeof(in6_addr));
  if (bytes.starts_with(kMappedIpv4)) bytes.remove_prefix(kMappedIpv4.size());
  return bytes;
}

bool is_loopback(const SocketAddress& address) noexcept {
  const std::string_view bytes = ip_bytes(address);
  if (bytes.size() == sizeof(in_addr)) return bytes[0] == 127;
  return bytes == std::string_view(reinterpret_cast<const char*>(&in6addr_loopback), sizeof in6addr_loopback);
}

bool is_of_one_link(const SocketAddress& address) noexcept {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

Descriptor listen_at(const SocketAddress& address) {
  Descriptor socket = new_socket(address);
  if (!socket.is_open()) return socket;
  if (!address.is_unix() && port_of(address) != 0) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(socket.get(), address.get(), address.bytes) == 0 && ::listen(socket.get(), kBacklog) == 0) return socket;
  return closed(std::move(socket), errno);
}

SocketAddress own_address_of(int socket) noexcept {
  SocketAddress address;
  read_address(&::getsockname, socket, address);
  return address;
}

void set_tcp_options(int socket) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kLostAfterMs);
}

void allow_slow_reader(int socket) noexcept { set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0U); }

Descriptor start_connect(const SocketAddress& address) {
  Descriptor socket = new_socket(address);
  if (!socket.is_open()) return socket;
  if (!address.is_unix()) set_tcp_options(socket.get());
  if (::connect(socket.get(), address.get(), address.bytes) == 0 || errno == EINPROGRESS) return socket;
  return closed(std::move(socket), errno);
}

bool lacks_descriptors(std::int64_t code) noexcept { return code == EMFILE || code == ENFILE; }
bool lacks_resources(std::int64_t code) noexcept { return lacks_descriptors(code) || code == ENOMEM || code == ENOBUFS; }

int connection_code(int socket) noexcept {
  int code = 0;
  socklen_t bytes = sizeof code;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &bytes);
  if (code != 0) return code;
  SocketAddress own, peer;
  if (!read_address(&::getpeername, socket, peer)) return EINPROGRESS;
  // The kernel may choose the wanted port as the socket's own when nobody listens at it.
  const bool is_itself = !peer.is_unix() && read_address(&::getsockname, socket, own) && own.bytes == peer.bytes &&
                         std::memcmp(&own.storage, &peer.storage, own.bytes) == 0;
  return is_itself ? ECONNREFUSED : 0;
}

Credentials credentials_of(int socket) noexcept {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0) return {};
  return {found.pid, found.uid == ::geteuid()};
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

}  // namespace gigabar::secure
