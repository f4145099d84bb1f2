// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/addresses.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <utility>

#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::fabric {
namespace {

constexpr const char* kVariable = "GIGABAR_INTERFACES";
// Kept for documents: addresses of no host.
constexpr const char* kFarAwayIpv4 = "192.0.2.1";
constexpr const char* kFarAwayIpv6 = "2001:db8::1";

// The address that this host's packets to `destination` would carry. Nothing is sent.
void add_source_towards(const SocketAddress& destination, std::vector<SocketAddress>& addresses) {
  const Descriptor socket(::socket(destination.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || ::connect(socket.get(), destination.get(), destination.bytes) != 0) return;
  SocketAddress source = with_port(secure::own_address_of(socket.get()), 0);
  if (!ip_bytes(source).empty() && !is_loopback(source) && !is_of_one_link(source)) add(addresses, std::move(source));
}

bool can_be_bound(const SocketAddress& address) {
  const Descriptor probe(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe.is_open() && ::bind(probe.get(), address.get(), address.bytes) == 0;
}

}  // namespace

void add(std::vector<SocketAddress>& addresses, SocketAddress address) {
  if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(std::move(address));
}

bool is_written_as_loopback(const std::string& address) {
  const auto written = network::parse_address(address);
  return written ? is_loopback(*written) : address == "localhost";
}

bool is_of_this_host(SocketAddress address) {
  const bool is_ipv4 = network::ip_bytes(address).size() == sizeof(in_addr);  // inside an IPv6 one too
  address = is_ipv4 ? network::ip_address(network::ip_bytes(address), 0) : with_port(std::move(address), 0);
  if (!can_be_bound(address)) return false;
  if (is_loopback(address) || !can_be_bound(*network::parse_address(is_ipv4 ? kFarAwayIpv4 : kFarAwayIpv6))) return true;
  // Any address can be bound here (net.ipv4.ip_nonlocal_bind): the interfaces tell, where the kernel tells those.
  const std::vector<network::Interface> all = network::interfaces(true);
  return all.empty() || std::ranges::find(all, address, &network::Interface::address) != all.end();
}

bool has_named_interfaces() { return environment(kVariable).has_value(); }

Result<std::vector<SocketAddress>> outer_addresses(const Job& job) {
  std::vector<SocketAddress> addresses;
  if (const auto list = environment(kVariable)) {
    auto named = network::named_interfaces(*list, kVariable);
    if (!named) return std::move(named).error();
    for (network::Interface& interface : *named) add(addresses, std::move(interface.address));
    return addresses;
  }
  if (!job.master_address.empty()) {
    const auto masters = resolve(job.master_address, job.master_port);
    if (!masters) return masters.error();
    for (const SocketAddress& master : *masters) {
      // The way to an address of this host may begin at another one.
      if (is_of_this_host(master) && !is_loopback(master)) {
        add(addresses, with_port(master, 0));
      } else {
        add_source_towards(master, addresses);
      }
    }
  }
  // Whoever is asked for the way there answers with the default route.
  if (addresses.empty())
    for (const char* far_away : {kFarAwayIpv4, kFarAwayIpv6})
      add_source_towards(with_port(*network::parse_address(far_away), 9), addresses);
  if (addresses.empty())
    for (network::Interface& interface : network::interfaces())
      if (!is_loopback(interface.address)) add(addresses, std::move(interface.address));
  if (!addresses.empty()) return addresses;
  return make_error(Status::unavailable, "find the job", "this host's addresses",
                    "the job is on several hosts, and this one has no address but loopback",
                    "bring the network up, or name an interface with GIGABAR_INTERFACES");
}

Result<std::string> outer_address_list(const Job& job) {
  const auto addresses = outer_addresses(job);
  if (!addresses) return addresses.error();
  std::string list;
  for (const SocketAddress& address : *addresses) list += text(list.empty() ? "" : ",", network::host_of(address));
  return list;
}

Result<std::string> outer_interfaces(const Job& job) {
  const auto addresses = outer_addresses(job);
  if (!addresses) return addresses.error();
  std::vector<std::string> names;
  for (const network::Interface& interface : network::interfaces()) {
    const bool is_outer = std::ranges::find(*addresses, interface.address) != addresses->end();
    if (is_outer && std::ranges::find(names, interface.name) == names.end()) names.push_back(interface.name);
  }
  std::string list;
  for (const std::string& name : names) list += text(list.empty() ? "" : ",", name);
  return list;
}

// --- The directory ---------------------------------------------------------------------------------------------------------------

namespace {

// Errors carry the errno.
Result<Descriptor> listener_at(const SocketAddress& address) {
  Descriptor listener = secure::listen_at(address);
  if (listener.is_open()) return listener;
  const int code = errno;
  if (code != EADDRINUSE) return make_errno_error(code, "listen", address.name, {}, {}, Status::unavailable);
  return make_error(Status::unavailable, "listen", address.name,
                    address.is_unix() ? "another process has the name: rank 0 of another job with the same MASTER_PORT, or a "
                                        "stranger that keeps the job out"
                                      : "the port is taken by another program of this host",
                    "choose another MASTER_PORT, or set GIGABAR_MASTER_PORT at every rank", errno_code(code));
}

// The name that every rank of this user and host can tell. With a key it is for those that hold another one or none: they are told
// so there, by a process that is this user's.
SocketAddress known_address(const Job& job) {
  return network::unix_address(text("gigabar-directory-", ::geteuid(), "-", job.master_port));
}

// Of a job of one host, best first. With a key the first name is one that nobody else can tell, and so cannot take.
std::vector<SocketAddress> directory_addresses(const Job& job) {
  std::vector<SocketAddress> addresses;
  if (job.key.is_set()) {
    const auto identity = identity_of(job, secure::Purpose::directory);
    const std::string name = secret_name(identity, text("directory ", job.master_port, " ", ::geteuid()));
    addresses.push_back(network::unix_address("gigabar-directory-" + name));
  }
  addresses.push_back(known_address(job));
  return addresses;
}

// Whether a process of this user listens there.
bool is_of_this_user(const SocketAddress& address) {
  const Descriptor socket = secure::start_connect(address);
  return socket.is_open() && secure::credentials_of(socket.get()).is_of_this_user;
}

Result<std::vector<Descriptor>> listen_on_this_host(const Job& job) {
  std::vector<Descriptor> listeners;
  for (const SocketAddress& address : directory_addresses(job)) {
    auto listener = listener_at(address);
    if (listener) {
      listeners.push_back(std::move(*listener));
      continue;
    }
    // Another user that takes the second name on purpose does not keep the job from running.
    const bool is_needed = listeners.empty() || listener.error().record().native.code != EADDRINUSE;
    if (is_needed || is_of_this_user(address)) return listener.error();
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
  for (const SocketAddress& address : outer ? *outer : std::vector<SocketAddress>())
    add(addresses, with_port(address, job.master_port));
  return addresses;
}

}  // namespace

std::string name_of_master(const Job& job) {
  const bool is_v6 = job.master_address.find(':') != std::string::npos;
  return is_v6 ? text("[", job.master_address, "]:", job.master_port) : text(job.master_address, ":", job.master_port);
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
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) add(addresses, network::ip_address(entry->ai_addr, port));
  }
  return addresses;
}

Result<std::vector<Descriptor>> listen_as_master(const Job& job) {
  if (job.is_on_one_host) return listen_on_this_host(job);
  const auto addresses = addresses_to_listen_at(job);
  if (!addresses) return addresses.error();
  std::vector<Descriptor> listeners;
  for (const SocketAddress& address : *addresses) {
    auto listener = listener_at(address);
    if (!listener) return listener.error();
    listeners.push_back(std::move(*listener));
  }
  // Whoever has the name, the job can do without.
  auto known = listener_at(known_address(job));
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

}  // namespace gigabar::fabric
