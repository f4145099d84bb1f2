// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/rails.hpp"

#include <algorithm>

#include "secure/interfaces.hpp"
#include "transport/tcp/wire.hpp"

namespace gigabar::transport::tcp {

Result<std::vector<Rail>> find_rails(std::string_view list) {
  const auto named = secure::named_interfaces(list, "GIGABAR_TCP_INTERFACES");
  if (!named) return named.error();
  std::vector<Rail> rails;
  for (const secure::Interface& interface : *named) {
    auto rail = std::ranges::find(rails, interface.name, &Rail::interface);
    if (rail == rails.end()) rail = rails.insert(rails.end(), {interface.name, {}, {}});
    if (rail->addresses.size() < kMaxTargets) rail->addresses.push_back(interface.address);
  }
  return rails;
}

std::string rail_of(const std::vector<Rail>& rails, const secure::SocketAddress& address) {
  const std::string_view bytes = secure::ip_bytes(address);
  for (const Rail& rail : rails) {
    for (const secure::SocketAddress& own : rail.addresses) {
      if (secure::ip_bytes(own) == bytes) return rail.interface;
    }
  }
  return secure::host_of(secure::with_port(address, 0));
}

}  // namespace gigabar::transport::tcp
