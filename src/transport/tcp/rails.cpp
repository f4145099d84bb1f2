// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/rails.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "secure/interfaces.hpp"

namespace gigabar::transport::tcp {
namespace {

struct Network {
  std::array<char, sizeof(in6_addr)> bytes{};
  std::size_t byte_count = 0;  // of an address
  std::size_t bits = 0;

  bool has(const secure::SocketAddress& address) const {
    const std::string_view own = secure::ip_bytes(address);
    if (own.size() != byte_count) return false;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      const int mask = 0x80 >> bit % 8;
      if (((own[bit / 8] ^ bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

// "198.51.100.0/24", "fd00::/8". Nothing: it is not written as a network.
std::optional<Network> network_of(const std::string& entry) {
  const std::size_t slash = entry.find('/');
  if (slash == std::string::npos) return {};
  Network network;
  const std::string address = entry.substr(0, slash);
  if (::inet_pton(AF_INET, address.c_str(), network.bytes.data()) == 1) {
    network.byte_count = sizeof(in_addr);
  } else if (::inet_pton(AF_INET6, address.c_str(), network.bytes.data()) == 1) {
    network.byte_count = sizeof(in6_addr);
  } else {
    return {};
  }
  const auto bits = parse_number(entry.substr(slash + 1), 0, 8 * network.byte_count);
  if (!bits) return {};
  network.bits = *bits;
  return network;
}

void add(std::vector<Rail>& rails, const secure::Interface& interface) {
  auto rail = std::ranges::find(rails, interface.name, &Rail::interface);
  if (rail == rails.end()) rail = rails.insert(rails.end(), {interface.name, {}});
  if (std::ranges::find(rail->addresses, interface.address) == rail->addresses.end()) {
    rail->addresses.push_back(interface.address);
  }
}

Error refuse(std::string_view entry, const std::vector<secure::Interface>& all) {
  std::string here;
  for (const secure::Interface& interface : all) {
    here += text(here.empty() ? "" : ", ", interface.name, ' ', secure::host_of(interface.address));
  }
  return make_error(Status::invalid_argument, "open TCP", "GIGABAR_TCP_INTERFACES",
                    text('\'', entry.substr(0, 64), "' is no interface that is up, and no address or network of this host"),
                    text("name some of these: ", here));
}

}  // namespace

Result<std::vector<Rail>> find_rails(std::string_view list) {
  const std::vector<secure::Interface> all = secure::interfaces();
  if (all.empty()) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::unavailable), "open TCP", "interfaces",
                      text("the kernel does not tell them: ", std::strerror(code)), {}, errno_code(code));
  }
  std::vector<Rail> rails;
  do {
    const std::string entry(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    const auto network = network_of(entry);
    bool is_there = false;
    for (const secure::Interface& interface : all) {
      const bool is_meant =
          network ? network->has(interface.address) : interface.name == entry || secure::host_of(interface.address) == entry;
      if (!is_meant) continue;
      is_there = true;
      add(rails, interface);
    }
    if (!is_there) return refuse(entry, all);
  } while (!list.empty());
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
