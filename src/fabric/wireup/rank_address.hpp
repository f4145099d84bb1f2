// SPDX-License-Identifier: Apache-2.0
// Where a rank listens, as bytes that other processes read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gigabar/status.hpp"
#include "secure/sockets.hpp"

namespace gigabar::fabric::wireup {

inline constexpr std::size_t kMaxSocketAddresses = 16;
inline constexpr std::size_t kMaxUnixNameBytes = 64;

// What tells one kernel's network name space from all others.
struct HostIdentity {
  std::array<unsigned char, 16> boot{};  // the kernel's boot_id; random when it cannot be read: then no address is of this host
  std::uint64_t network = 0;             // inode of the network name space
  bool operator==(const HostIdentity&) const = default;
};
HostIdentity this_host();

struct RankAddress {
  HostIdentity host;
  std::string unix_name;  // in the abstract name space, without its leading zero; empty: does not listen there
  std::vector<secure::SocketAddress> addresses;  // IPv4 and IPv6, best first, at most kMaxSocketAddresses
};

std::string encode(const RankAddress& rank_address);
// Everything is checked. Errors: bad_file.
Result<RankAddress> decode_rank_address(const std::string& bytes);

}  // namespace gigabar::fabric::wireup
