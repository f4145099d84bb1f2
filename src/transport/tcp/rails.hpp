// SPDX-License-Identifier: Apache-2.0
// The interfaces that this side of the transport listens at: each is a rail.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"
#include "secure/sockets.hpp"

namespace gigabar::transport::tcp {

struct Rail {
  std::string interface;
  std::vector<secure::SocketAddress> addresses;  // without ports, at most kMaxTargets
  std::vector<secure::SocketAddress> targets;    // where it listens
};

// `list`: see secure::named_interfaces(). Errors: the same.
Result<std::vector<Rail>> find_rails(std::string_view list);

// The one that has the address, or the address itself.
std::string rail_of(const std::vector<Rail>& rails, const secure::SocketAddress& address);

}  // namespace gigabar::transport::tcp
