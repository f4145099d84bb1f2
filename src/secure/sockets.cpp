// SPDX-License-Identifier: Apache-2.0
#include "secure/sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

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

Descriptor listen_at(const SocketAddress& address) {
  Descriptor socket = new_socket(address);
  if (!socket.is_open()) return socket;
  if (!address.is_unix() && network::port_of(address) != 0) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
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

void end_connection(int socket) noexcept {
  // Closing with unread bytes makes TCP tell the peer a reset, which may overtake what it has not read yet.
  std::array<char, 4096> unread{};
  for (int round = 0; round < 16; ++round) {
    if (::recv(socket, unread.data(), unread.size(), MSG_DONTWAIT) <= 0) break;
  }
  ::shutdown(socket, SHUT_RDWR);
}

// --- Pollers ---------------------------------------------------------------------------------------------------------------------

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

bool Watched::want(std::uint32_t events) noexcept {
  if (events == events_ || !descriptor_.is_open()) return true;
  if (events == 0) poller_->remove(descriptor_.get());
  if (events_ == 0 && !poller_->set(EPOLL_CTL_ADD, descriptor_.get(), events, token_)) return false;
  if (events != 0 && events_ != 0) poller_->set(EPOLL_CTL_MOD, descriptor_.get(), events, token_);
  events_ = events;
  return true;
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
