// SPDX-License-Identifier: Apache-2.0
// Addresses, and the network interfaces of this host.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"

namespace gigabar::network {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string name;  // for messages: "unix socket gigabar-...", "127.0.0.1:29500", "[::1]:29500"

  bool is_unix() const noexcept { return storage.ss_family == AF_UNIX; }
  bool operator==(const SocketAddress& other) const noexcept { return name == other.name; }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};
// In the abstract name space, where nothing is left behind; `name` without its leading zero byte.
SocketAddress unix_address(const std::string& name);
// "192.0.2.7", "2001:db8::1": as the user writes an address. Nothing: it is not written so.
std::optional<SocketAddress> parse_address(const std::string& written);
std::string host_of(const SocketAddress& address);
// "127.0.0.1:29500", "[::1]:29500"; "?" where it is no address of the two families.
std::string name_of_address(const SocketAddress& address);
// Of an IPv4 or IPv6 address; with_port() writes the name anew.
std::uint16_t port_of(const SocketAddress& address) noexcept;
SocketAddress with_port(SocketAddress address, std::uint16_t port);
// `from` is of one of the two families.
SocketAddress ip_address(const sockaddr* from, std::uint16_t port);
// From 4 or 16 bytes in the order of the network, and back. An IPv4 address inside an IPv6 one counts as IPv4; other families have
// no bytes.
SocketAddress ip_address(std::string_view bytes, std::uint16_t port);
std::string_view ip_bytes(const SocketAddress& address) noexcept;
bool is_loopback(const SocketAddress& address) noexcept;
// An IPv6 address that means nothing without its interface.
bool is_of_one_link(const SocketAddress& address) noexcept;

struct Interface {
  std::string name;
  SocketAddress address;  // without a port
};

// One entry for each address of the interfaces that are up; IPv6 addresses that hold on one link only where they are asked for.
// None, with errno set, when the kernel does not tell.
std::vector<Interface> interfaces(bool has_those_of_one_link = false);
// Those that a user's list names, in its order, each once: interfaces, addresses of this host and networks
// ("eth0,192.0.2.7,198.51.100.0/24,fd00::/8"). `variable` has the list, for errors: invalid_argument (an entry fits nothing that is
// up; with what there is), out_of_descriptors and others of errno (the kernel does not tell).
Result<std::vector<Interface>> named_interfaces(std::string_view list, const std::string& variable);

}  // namespace gigabar::network
