// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/sockets.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "fabric/job/handshake.hpp"
#include "fabric/job/interfaces.hpp"

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

// Errors carry the errno.
Result<Descriptor> listen_at(const SocketAddress& address) {
  const bool is_unix = address.storage.ss_family == AF_UNIX;
  Descriptor listener(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) return failed("socket", address.name, errno);
  // A job that is started anew takes the port over from connections of the last one, and from the launcher that keeps it free.
  if (!is_unix) set_option(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) set_option(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    const int code = errno;
    Error error = failed("listen", address.name, code,
                         code == EADDRINUSE ? "choose another MASTER_PORT, or set GIGABAR_MASTER_PORT at every rank" : "");
    if (error.status() == Status::busy) edit(error).status = Status::unavailable;
    if (code == EADDRINUSE)
      edit(error).cause = is_unix ? "another process has the name: rank 0 of another job with the same MASTER_PORT, or a "
                                    "stranger that keeps the job out"
                                  : "the port is taken by another program of this host";
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

SocketAddress with_port(SocketAddress address, std::uint16_t port) {
  // Both families have it at the same place.
  reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  address.name = name_of_address(address);
  return address;
}

// One that is there already is not added.
void add_at(std::vector<SocketAddress>& addresses, const SocketAddress& address, std::uint16_t port) {
  SocketAddress added = with_port(address, port);
  if (std::ranges::none_of(addresses, [&](const SocketAddress& known) { return known.name == added.name; }))
    addresses.push_back(std::move(added));
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

void ByteStream::queue(std::string_view bytes) {
  // What was sent goes now and then: a peer that never takes the last of it would have it kept for ever.
  if (sent_bytes_ > queued_.size() / 2) {
    queued_.erase(0, sent_bytes_);
    sent_bytes_ = 0;
  }
  queued_ += bytes;
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

namespace {

SocketAddress unix_address(const std::string& name) {
  SocketAddress address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  // A leading zero byte: the abstract name space, where nothing is left behind.
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  address.name = text("unix socket ", name);
  return address;
}

// The name that every rank of this user and host can tell. With a key it is for those that hold another one or none: they are told
// so there, by a process that is this user's.
SocketAddress known_address(const Job& job) { return unix_address(text("gigabar-directory-", ::geteuid(), "-", job.master_port)); }

// Of a job of one host, best first. With a key the first name is one that nobody else can tell, and so cannot take.
std::vector<SocketAddress> directory_addresses(const Job& job) {
  std::vector<SocketAddress> addresses;
  if (job.key.is_set()) addresses.push_back(unix_address(Handshake(job).directory_name(job.master_port)));
  addresses.push_back(known_address(job));
  return addresses;
}

Result<std::vector<Descriptor>> listen_on_this_host(const Job& job) {
  std::vector<Descriptor> listeners;
  for (const SocketAddress& address : directory_addresses(job)) {
    auto listener = listen_at(address);
    if (listener) {
      listeners.push_back(std::move(*listener));
      continue;
    }
    // Another user that takes the second name on purpose does not keep the job from running.
    const bool is_needed = listeners.empty() || listener.error().record().native.code != EADDRINUSE;
    if (is_needed || connect_to(address, now_ns())) return listener.error();
  }
  return listeners;
}

Result<std::vector<SocketAddress>> addresses_to_listen_at(const Job& job) {
  auto resolved = resolve(job.master_address, job.master_port);
  if (!resolved) return resolved;
  std::vector<SocketAddress> addresses;
  std::ranges::copy_if(*resolved, std::back_inserter(addresses), is_of_this_host);
  if (!std::ranges::all_of(addresses, is_loopback)) return addresses;
  // The name may stand for loopback here, and the address may be that of a translator: others come to an outer address.
  const auto outer = outer_addresses(job);
  if (!outer && addresses.empty()) return outer.error();
  for (const SocketAddress& address : outer ? *outer : std::vector<SocketAddress>()) add_at(addresses, address, job.master_port);
  return addresses;
}

}  // namespace

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
    address.name = name_of_address(address);
    addresses.push_back(std::move(address));
  }
  if (addresses.empty())
    return make_error(Status::unavailable, "find the directory", host, "the address is neither IPv4 nor IPv6",
                      "set MASTER_ADDR to the host name or address of rank 0");
  return addresses;
}

Result<std::vector<Descriptor>> listen_as_master(const Job& job) {
  if (job.is_on_one_host) return listen_on_this_host(job);
  const auto addresses = addresses_to_listen_at(job);
  if (!addresses) return addresses.error();
  std::vector<Descriptor> listeners;
  for (const SocketAddress& address : *addresses) {
    auto listener = listen_at(address);
    if (!listener) return listener.error();
    listeners.push_back(std::move(*listener));
  }
  // Whoever has the name, the job can do without.
  auto known = listen_at(known_address(job));
  if (known) listeners.push_back(std::move(*known));
  if (known.status() == Status::out_of_descriptors) return known.error();
  return listeners;
}

Result<std::vector<SocketAddress>> master_addresses(const Job& job) {
  if (job.is_on_one_host && (job.key.is_set() || is_written_as_loopback(job.master_address))) return directory_addresses(job);
  auto resolved = resolve(job.master_address, job.master_port);
  if (!resolved) return resolved;
  const bool is_here = std::ranges::any_of(*resolved, is_of_this_host);
  if (job.key.is_set()) {
    if (is_here) resolved->push_back(known_address(job));
    return resolved;
  }
  if (is_here) return directory_addresses(job);
  return make_error(Status::no_permission, "find the directory", name_of_master(job),
                    "this is no address of this host (or of this process's network name space), and the job has no key",
                    text("set GIGABAR_JOB_KEY to the same secret at every rank ('openssl rand -hex 32'); ", kRemedyOfNetworks));
}

bool is_of_this_user(int socket) noexcept {
  ucred found{};
  socklen_t bytes = sizeof found;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) == 0 && found.uid == ::geteuid();
}

Result<Descriptor> connect_to(const SocketAddress& address, std::int64_t deadline_ns) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return failed("socket", address.name, errno);
  const bool is_unix = address.storage.ss_family == AF_UNIX;
  if (!is_unix) prepare_stream(socket.get());
  int code = connect_now(socket.get(), address);
  if (code == EINPROGRESS || code == EINTR) {
    if (!wait_for(socket.get(), POLLOUT, deadline_ns))
      return make_error(Status::timed_out, "connect", address.name, "there was no answer before the deadline");
    code = pending_error(socket.get());
  }
  if (code != 0) {
    Error error = failed("connect", address.name, code);
    if (error.status() != Status::out_of_descriptors) edit(error).status = Status::unavailable;
    return error;
  }
  if (is_unix && !is_of_this_user(socket.get()))
    return make_error(
        Status::no_permission, "connect", address.name, "a process of another user listens there",
        "run all ranks as the same user; where another user takes the name on purpose, set GIGABAR_JOB_KEY: nobody can "
        "tell the name without it");
  if (is_connected_to_itself(socket.get())) return make_error(Status::unavailable, "connect", address.name, "nobody listens there");
  return socket;
}

}  // namespace gigabar::fabric
