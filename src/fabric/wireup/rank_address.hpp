// SPDX-License-Identifier: Apache-2.0
// Where a rank listens, as bytes that other processes read.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gigabar/status.hpp"

namespace gigabar::fabric::wireup {

inline constexpr std::size_t kMaxSocketAddresses = 16;
inline constexpr std::size_t kMaxUnixNameBytes = 64;

// An IPv4 or IPv6 address without a port.
struct Address {
  bool is_ipv6 = false;
  std::array<unsigned char, 16> bytes{};  // IPv4: the first four

  bool is_loopback() const noexcept;
  std::string text() const;
  bool operator==(const Address&) const = default;
};
// Of a connected or accepted socket's other end; an IPv4 address inside an IPv6 one is told as IPv4. The socket is of one of the
// two families.
Address address_of(const sockaddr_storage& socket_address) noexcept;

// What tells one kernel's network name space from all others.
struct HostIdentity {
  std::array<unsigned char, 16> boot{};  // the kernel's boot_id; random when it cannot be read: then no address is of this host
  std::uint64_t network = 0;             // inode of the network name space
  bool operator==(const HostIdentity&) const = default;
};
HostIdentity this_host();

struct RankAddress {
  HostIdentity host;
  std::string unix_name;                       // in the abstract name space, without its leading zero; empty: does not listen there
  std::uint16_t ipv4_port = 0, ipv6_port = 0;  // 0: does not listen there
  std::vector<Address> addresses;              // best first, at most kMaxSocketAddresses
};

std::string encode(const RankAddress& rank_address);
// Everything is checked. Errors: bad_file.
Result<RankAddress> decode_rank_address(const std::string& bytes);

}  // namespace gigabar::fabric::wireup
