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
  std::vector<secure::SocketAddress> addresses;  // without ports
};

// `list`: names of interfaces, addresses of this host and networks ("eth0,192.0.2.7,198.51.100.0/24,fd00::/8"), in the order of the
// rails. Errors: invalid_argument (an entry that fits nothing that is up, with what there is).
Result<std::vector<Rail>> find_rails(std::string_view list);

// The one that has the address, or the address itself.
std::string rail_of(const std::vector<Rail>& rails, const secure::SocketAddress& address);

}  // namespace gigabar::transport::tcp
