// SPDX-License-Identifier: Apache-2.0
// The network interfaces of this host.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

struct Interface {
  std::string name;
  SocketAddress address;  // without a port
};

// One entry for each address of the interfaces that are up, without IPv6 addresses that hold on one link only. None, with
// errno set, when the kernel does not tell.
std::vector<Interface> interfaces();
// Whether an interface that is up has it, those that hold on one link included; also when the kernel does not tell. `address` is
// without a port.
bool is_of_an_interface(const SocketAddress& address);
// Those that a user's list names, in its order, each once: interfaces, addresses of this host and networks
// ("eth0,192.0.2.7,198.51.100.0/24,fd00::/8"). `variable` has the list, for errors: invalid_argument (an entry fits nothing that is
// up; with what there is), out_of_descriptors and others of errno (the kernel does not tell).
Result<std::vector<Interface>> named_interfaces(std::string_view list, const std::string& variable);

// "192.0.2.7", "2001:db8::1": as the user writes an address. Nothing: it is not written so.
std::optional<SocketAddress> parse_address(const std::string& written);
std::string host_of(const SocketAddress& address);

}  // namespace gigabar::secure
