// SPDX-License-Identifier: Apache-2.0
// The authenticated channels between ranks: one stream socket per pair that has something to say, made at first use. They carry
// what is said before and beside the data: offers of links, keys of segments, quiescing, farewells. A channel that breaks means
// that the peer is gone, on every transport.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/job/job.hpp"
#include "gigabar/status.hpp"
#include "platform/network.hpp"
#include "secure/endpoint.hpp"

namespace gigabar::fabric {
namespace wireup {

inline constexpr std::size_t kMaxSocketAddresses = 16;
inline constexpr std::size_t kMaxUnixNameBytes = 64;

// What tells one kernel's network name space from all others.
struct HostIdentity {
  std::array<unsigned char, 16> boot{};  // the kernel's boot_id; random when it cannot be read: then no address is of this host
  std::uint64_t network = 0;             // inode of the network name space
  bool operator==(const HostIdentity&) const = default;
};
HostIdentity this_host();

// Where a rank listens, as bytes that other processes read.
struct RankAddress {
  HostIdentity host;
  std::string unix_name;  // in the abstract name space, without its leading zero; empty: does not listen there
  std::vector<network::SocketAddress> addresses;  // IPv4 and IPv6, best first, at most kMaxSocketAddresses
};

std::string encode(const RankAddress& rank_address);
// Everything is checked. Errors: bad_file.
Result<RankAddress> decode_rank_address(const std::string& bytes);

}  // namespace wireup

using secure::Frame;
using secure::kMaxFrameBytes;
using secure::Refusals;
using WireupEvents = secure::ChannelEvents;

// What tests change; everybody else takes it as it is.
struct WireupSettings : secure::Limits {
  std::uint32_t version = secure::kProtocolVersion;
  bool has_unix = true;
  std::vector<network::SocketAddress> tcp_addresses;  // where it listens; none: TCP is not used at all. Without a key neither
};

// All channels of this rank, with the promises of an Endpoint. Without a key only Unix sockets are used. At most 128 unfinished
// handshakes are held at once on Unix sockets, and as many on TCP.
class Wireup final : public secure::Endpoint {
 public:
  // Listens on a Unix socket in the abstract name space (peers on this host must run as the same user: SO_PEERCRED) and, when the
  // job is on several hosts, on TCP at outer_addresses() (job/addresses.hpp). Errors: out_of_descriptors, unavailable,
  // invalid_argument (GIGABAR_INTERFACES).
  static Result<std::unique_ptr<Wireup>> open(const Job& job);
  static Result<std::unique_ptr<Wireup>> open(const Job& job, const WireupSettings& settings);
  using Endpoint::Endpoint;  // it listens nowhere
  // Where this rank is found: part of its address.
  std::string rank_address() const { return encode(rank_address_); }

  // Starts to connect; connected() or lost() follows. When both ranks connect at once, one channel remains. No effect when there is
  // one. A peer that does not listen yet is tried again until the deadline (now_ns() clock). Errors: bad_file (a malformed
  // address), invalid_argument (no other rank of the job).
  Result<void> connect(Rank rank, const std::string& rank_address, std::int64_t deadline_ns);

 private:
  Result<void> listen_at(bool has_unix, std::vector<network::SocketAddress> tcp_addresses);
  std::vector<network::SocketAddress> targets_of(const wireup::RankAddress& rank_address) const;
  std::optional<Error> no_target_error(Rank rank) const;

  wireup::RankAddress rank_address_;
  bool has_unix_ = false, has_tcp_ = false;
};

}  // namespace gigabar::fabric
