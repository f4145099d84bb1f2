// SPDX-License-Identifier: Apache-2.0
// The network interfaces of this host.
#pragma once

#include <string>
#include <vector>

#include "secure/sockets.hpp"

namespace gigabar::secure {

struct Interface {
  std::string name;
  SocketAddress address;  // without a port
};

// One entry for each address of the interfaces that are up, without IPv6 addresses that hold on one link only. None, with
// errno set, when the kernel does not tell.
std::vector<Interface> interfaces();
// "192.0.2.7", "2001:db8::1": as the user writes an address.
std::string host_of(const SocketAddress& address);

}  // namespace gigabar::secure
