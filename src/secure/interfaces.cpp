// SPDX-License-Identifier: Apache-2.0
#include "secure/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::secure {
namespace {

struct Network {
  SocketAddress address;
  std::size_t bits = 0;

  bool has(const SocketAddress& other) const {
    const std::string_view own = ip_bytes(address), theirs = ip_bytes(other);
    if (own.size() != theirs.size()) return false;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      const int mask = 0x80 >> bit % 8;
      if (((own[bit / 8] ^ theirs[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

// "198.51.100.0/24". Nothing: it is not written as a network.
std::optional<Network> network_of(const std::string& entry) {
  const std::size_t slash = entry.find('/');
  if (slash == std::string::npos) return {};
  auto address = parse_address(entry.substr(0, slash));
  if (!address) return {};
  const auto bits = parse_number(entry.substr(slash + 1), 0, 8 * ip_bytes(*address).size());
  if (!bits) return {};
  return Network{std::move(*address), *bits};
}

Error names_nothing(const std::string& entry, const std::vector<Interface>& all, const std::string& variable) {
  std::string here;
  for (const Interface& interface : all) {
    here += text(here.empty() ? "" : ", ", interface.name, ' ', host_of(interface.address));
  }
  return make_error(Status::invalid_argument, "find interfaces", variable,
                    text('\'', entry.substr(0, 64), "' is no interface that is up, and no address or network of this host"),
                    text("name some of these: ", here));
}

std::vector<Interface> all_interfaces() {
  std::vector<Interface> all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const sa_family_t family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    all.push_back({entry->ifa_name, ip_address(entry->ifa_addr, 0)});
  }
  return all;
}

}  // namespace

std::vector<Interface> interfaces() {
  std::vector<Interface> all = all_interfaces();
  std::erase_if(all, [](const Interface& one) { return is_of_one_link(one.address); });
  return all;
}

bool is_of_an_interface(const SocketAddress& address) {
  const std::vector<Interface> all = all_interfaces();
  return all.empty() || std::ranges::find(all, address, &Interface::address) != all.end();
}

Result<std::vector<Interface>> named_interfaces(std::string_view list, const std::string& variable) {
  const std::vector<Interface> all = interfaces();
  if (all.empty()) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::unavailable), "find interfaces", variable,
                      text("the kernel does not tell them: ", std::strerror(code)), {}, errno_code(code));
  }
  std::vector<Interface> named;
  do {
    const std::string entry(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    const auto network = network_of(entry);
    bool is_there = false;
    for (const Interface& one : all) {
      const bool is_meant = network ? network->has(one.address) : one.name == entry || host_of(one.address) == entry;
      if (!is_meant) continue;
      is_there = true;
      const auto is_same = [&](const Interface& other) { return other.name == one.name && other.address == one.address; };
      if (std::ranges::none_of(named, is_same)) named.push_back(one);
    }
    if (!is_there) return names_nothing(entry, all, variable);
  } while (!list.empty());
  return named;
}

std::optional<SocketAddress> parse_address(const std::string& written) {
  std::array<char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET, written.c_str(), bytes.data()) == 1) return ip_address({bytes.data(), sizeof(in_addr)}, 0);
  if (::inet_pton(AF_INET6, written.c_str(), bytes.data()) == 1) return ip_address(view_of(bytes), 0);
  return {};
}

std::string host_of(const SocketAddress& address) {
  std::string host = address.name.substr(0, address.name.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace gigabar::secure
