#include "fabric/job/sockets.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include "base/clock.hpp"
#include "base/errors.hpp"

namespace gigabar::fabric {
namespace {

constexpr int kBacklog = 4096;
constexpr std::size_t kReadBytes = 16384;

bool is_would_block(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

Error failed(const char* call, const std::string& object, int code, std::string remedy = {}) {
  return make_error(status_of_errno(code, Status::unavailable), call, object, std::strerror(code), std::move(remedy),
                    errno_code(code));
}

void set_option(int socket, int level, int option, int value) noexcept {
  // What cannot be set is only slower.
  static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
}

SocketAddress loopback_at(std::uint16_t port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.bytes = sizeof(sockaddr_in);
  address.name = text("127.0.0.1:", port);
  return address;
}

SocketAddress everywhere_at(int family, std::uint16_t port) {
  SocketAddress address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
    address.bytes = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
    address.bytes = sizeof(sockaddr_in);
  }
  address.name = text("port ", port);
  return address;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr) != 0;
}

// Only an address of this host can be bound.
bool is_of_this_host(SocketAddress address) {
  if (address.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = 0;
  } else {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = 0;
  }
  const Descriptor trial(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return trial.is_open() && ::bind(trial.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) == 0;
}

// By its text alone: a host's own name may stand for loopback there and for another address elsewhere.
bool is_written_as_loopback(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, address.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return address == "localhost";
}

std::string name_of_address(const addrinfo& found, std::uint16_t port) {
  std::array<char, NI_MAXHOST> host{};
  const int code = ::getnameinfo(found.ai_addr, found.ai_addrlen, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  const std::string name = code == 0 ? host.data() : "?";
  return found.ai_family == AF_INET6 ? text("[", name, "]:", port) : text(name, ":", port);
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0)
    return make_error(Status::unavailable, "find the directory", host, text("the address is unknown: ", ::gai_strerror(code)),
                      "set MASTER_ADDR to the host name or address of rank 0");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if ((entry->ai_family != AF_INET && entry->ai_family != AF_INET6) || entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.bytes = entry->ai_addrlen;
    address.name = name_of_address(*entry, port);
    addresses.push_back(std::move(address));
  }
  if (addresses.empty())
    return make_error(Status::unavailable, "find the directory", host, "the address is neither IPv4 nor IPv6",
                      "set MASTER_ADDR to the host name or address of rank 0");
  return addresses;
}

// Errors carry the errno.
Result<Descriptor> listen_at(const SocketAddress& address) {
  Descriptor listener(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) return failed("socket", address.name, errno);
  // A job that is started anew takes the port over from connections of the last one, and from the launcher that keeps it free.
  set_option(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) set_option(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    const int code = errno;
    Error error = failed("listen", address.name, code,
                         code == EADDRINUSE ? "choose another MASTER_PORT, or set GIGABAR_MASTER_PORT at every rank" : "");
    if (error.status() == Status::busy) error.record().status = Status::unavailable;
    if (code == EADDRINUSE) error.record().cause = "the port is taken by another program of this host";
    return error;
  }
  return listener;
}

int connect_now(int socket, const SocketAddress& address) {
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) == 0) return 0;
  return errno;
}

int pending_error(int socket) {
  int code = 0;
  socklen_t bytes = sizeof code;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &bytes) == 0 ? code : errno;
}

// The kernel may choose the wanted port as the socket's own when nobody listens at it.
bool is_connected_to_itself(int socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) return false;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) return false;
  return own_bytes == peer_bytes && std::memcmp(&own, &peer, own_bytes) == 0;
}

}  // namespace

bool ByteStream::receive(std::size_t most_bytes) {
  while (received_.size() < most_bytes) {
    const std::size_t before = received_.size();
    const std::size_t wanted = std::min(kReadBytes, most_bytes - before);
    received_.resize(before + wanted);
    const ssize_t bytes = ::recv(socket_.get(), received_.data() + before, wanted, 0);
    const int code = errno;
    received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    if (bytes == 0) return false;
    if (bytes < 0) return is_would_block(code);
  }
  return true;
}

bool ByteStream::send_queued() {
  while (queued_bytes() > 0) {
    const ssize_t bytes = ::send(socket_.get(), queued_.data() + sent_bytes_, queued_bytes(), MSG_NOSIGNAL);
    if (bytes < 0) return is_would_block(errno);
    sent_bytes_ += static_cast<std::size_t>(bytes);
  }
  queued_.clear();
  sent_bytes_ = 0;
  return true;
}

bool wait_for(int descriptor, short events, std::int64_t deadline_ns) {
  while (true) {
    const std::int64_t left_ns = std::max<std::int64_t>(deadline_ns - now_ns(), 0);
    pollfd entry{descriptor, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left_ns / 1'000'000 + 1, 1000)));
    if (ready > 0) return true;
    if (left_ns == 0) return false;
  }
}

void prepare_stream(int socket) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);  // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);  // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);  // milliseconds
}

std::string name_of_master(const Job& job) {
  const bool is_v6 = job.master_address.find(':') != std::string::npos;
  return is_v6 ? text("[", job.master_address, "]:", job.master_port) : text(job.master_address, ":", job.master_port);
}

bool is_on_one_host(const Job& job) { return !job.key.is_set() || is_written_as_loopback(job.master_address); }

Result<Descriptor> listen_as_master(const Job& job) {
  if (is_on_one_host(job)) return listen_at(loopback_at(job.master_port));
  auto both = listen_at(everywhere_at(AF_INET6, job.master_port));
  if (both || both.error().record().native.code == EADDRINUSE) return both;
  return listen_at(everywhere_at(AF_INET, job.master_port));  // a host without IPv6
}

Result<std::vector<SocketAddress>> master_addresses(const Job& job) {
  if (is_written_as_loopback(job.master_address)) return std::vector{loopback_at(job.master_port)};
  auto resolved = resolve(job.master_address, job.master_port);
  if (!resolved || job.key.is_set()) return resolved;
  for (const SocketAddress& address : *resolved)
    if (is_loopback(address) || is_of_this_host(address)) return std::vector{loopback_at(job.master_port)};
  return make_error(Status::no_permission, "find the directory", name_of_master(job),
                    "this is no address of this host, and the job has no key",
                    "set GIGABAR_JOB_KEY to the same secret at every rank ('openssl rand -hex 32')");
}

Result<Descriptor> connect_to(const SocketAddress& address, std::int64_t deadline_ns) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return failed("socket", address.name, errno);
  prepare_stream(socket.get());
  int code = connect_now(socket.get(), address);
  if (code == EINPROGRESS || code == EINTR) {
    if (!wait_for(socket.get(), POLLOUT, deadline_ns))
      return make_error(Status::timed_out, "connect", address.name, "there was no answer before the deadline");
    code = pending_error(socket.get());
  }
  if (code != 0) {
    Error error = failed("connect", address.name, code);
    if (error.status() != Status::out_of_descriptors) error.record().status = Status::unavailable;
    return error;
  }
  if (is_connected_to_itself(socket.get())) return make_error(Status::unavailable, "connect", address.name, "nobody listens there");
  return socket;
}

}  // namespace gigabar::fabric
