// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/interfaces.hpp"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "fabric/job/master.hpp"
#include "fabric/job/variables.hpp"
#include "secure/interfaces.hpp"

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
  const auto written = secure::parse_address(address);
  return written ? is_loopback(*written) : address == "localhost";
}

bool is_of_this_host(SocketAddress address) {
  const bool is_ipv4 = secure::ip_bytes(address).size() == sizeof(in_addr);  // inside an IPv6 one too
  address = is_ipv4 ? secure::ip_address(secure::ip_bytes(address), 0) : with_port(std::move(address), 0);
  if (!can_be_bound(address)) return false;
  if (is_loopback(address) || !can_be_bound(*secure::parse_address(is_ipv4 ? kFarAwayIpv4 : kFarAwayIpv6))) return true;
  // Any address can be bound here (net.ipv4.ip_nonlocal_bind): the interfaces tell.
  return secure::is_of_an_interface(address);
}

bool has_named_interfaces() { return is_set(kVariable); }

Result<std::vector<SocketAddress>> outer_addresses(const Job& job) {
  std::vector<SocketAddress> addresses;
  if (const auto list = environment(kVariable)) {
    auto named = secure::named_interfaces(*list, kVariable);
    if (!named) return std::move(named).error();
    for (secure::Interface& interface : *named) add(addresses, std::move(interface.address));
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
      add_source_towards(with_port(*secure::parse_address(far_away), 9), addresses);
  if (addresses.empty())
    for (secure::Interface& interface : secure::interfaces())
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
  for (const SocketAddress& address : *addresses) list += text(list.empty() ? "" : ",", secure::host_of(address));
  return list;
}

Result<std::string> outer_interfaces(const Job& job) {
  const auto addresses = outer_addresses(job);
  if (!addresses) return addresses.error();
  std::vector<std::string> names;
  for (const secure::Interface& interface : secure::interfaces()) {
    const bool is_outer = std::ranges::find(*addresses, interface.address) != addresses->end();
    if (is_outer && std::ranges::find(names, interface.name) == names.end()) names.push_back(interface.name);
  }
  std::string list;
  for (const std::string& name : names) list += text(list.empty() ? "" : ",", name);
  return list;
}

}  // namespace gigabar::fabric
