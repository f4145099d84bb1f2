// SPDX-License-Identifier: Apache-2.0
#include "platform/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::network {
namespace {

// Before an IPv4 address inside an IPv6 one.
constexpr std::string_view kMappedIpv4("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
constexpr std::string_view kLoopbackIpv6("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);

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
  return bytes.size() == sizeof(in_addr) ? bytes[0] == 127 : bytes == kLoopbackIpv6;
}

bool is_of_one_link(const SocketAddress& address) noexcept {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
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

// --- Interfaces ------------------------------------------------------------------------------------------------------------------

namespace {

// `network`: "198.51.100.0/24"; what is not written so has no address.
bool is_in_network(const SocketAddress& address, const std::string& network) {
  const std::size_t slash = std::min(network.find('/'), network.size());
  const auto base = parse_address(network.substr(0, slash));
  if (!base || slash == network.size()) return false;
  const std::string_view wanted = ip_bytes(*base), bytes = ip_bytes(address);
  const auto bits = parse_number(network.substr(slash + 1), 0, 8 * wanted.size());
  if (!bits || bytes.size() != wanted.size()) return false;
  for (std::size_t bit = 0; bit < *bits; ++bit) {
    const int mask = 0x80 >> bit % 8;
    if (((bytes[bit / 8] ^ wanted[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

Error names_nothing(const std::string& entry, const std::vector<Interface>& all, const std::string& variable) {
  const auto named = [](const Interface& interface) { return text(interface.name, ' ', host_of(interface.address)); };
  return make_error(Status::invalid_argument, "find interfaces", variable,
                    text('\'', entry.substr(0, 64), "' is no interface that is up, and no address or network of this host"),
                    text("name some of these: ", joined(all, ", ", named)));
}

}  // namespace

std::vector<Interface> interfaces(bool has_those_of_one_link) {
  std::vector<Interface> all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const sa_family_t family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address = ip_address(entry->ifa_addr, 0);
    if (has_those_of_one_link || !is_of_one_link(address)) all.push_back({entry->ifa_name, std::move(address)});
  }
  return all;
}

Result<std::vector<Interface>> named_interfaces(std::string_view list, const std::string& variable) {
  const std::vector<Interface> all = interfaces();
  if (all.empty()) {
    const int code = errno;
    return make_errno_error(code, "find interfaces", variable, "the kernel does not tell them", {}, Status::unavailable);
  }
  std::vector<Interface> named;
  do {
    const std::string entry(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    bool is_there = false;
    for (const Interface& one : all) {
      if (one.name != entry && host_of(one.address) != entry && !is_in_network(one.address, entry)) continue;
      is_there = true;
      const auto is_same = [&](const Interface& other) { return other.name == one.name && other.address == one.address; };
      if (std::ranges::none_of(named, is_same)) named.push_back(one);
    }
    if (!is_there) return names_nothing(entry, all, variable);
  } while (!list.empty());
  return named;
}

}  // namespace gigabar::network
