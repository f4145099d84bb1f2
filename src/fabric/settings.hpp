// SPDX-License-Identifier: Apache-2.0
// Every value in effect and who set it: FabricOptions, then the environment, then what was tuned, then the default.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/placement.hpp"
#include "gigabar/fabric.hpp"
#include "transport/transport.hpp"

namespace gigabar::fabric {

// Those that may differ from peer to peer: `gigabar tune` measures them per transport, its rails, and whether the peer is of this
// host.
struct Limits {
  std::uint64_t gdr_bytes = 0;
  std::uint64_t gdr_read_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  unsigned chunk_count = 0;
  std::uint64_t stripe_bytes = 0;
};

struct Settings {
  std::vector<TransportKind> transports;
  transport::TransportOptions of_transports;  // as far as they follow from options and variables
  bool ucx_trust_network = false;
  RailPolicy rail_policy = RailPolicy::first;
  CpuWish cpus;
  int device = -1;  // -1: none was named; the fabric takes local rank modulo devices
  PathPolicy policy;
  std::uint64_t eager_bytes = 0;
  // By transport, and whether the peer is of this host.
  std::array<std::array<Limits, 2>, kTransportKinds> limits_by_peer;
  bool progress_thread = true;
  bool notification_words = true;
  std::int64_t connect_timeout_ns = 0;

  const Limits& limits(TransportKind transport, bool is_same_host) const noexcept {
    return limits_by_peer[static_cast<std::size_t>(transport)][is_same_host ? 1 : 0];
  }

  std::vector<Setting> table;  // the same as text
  // Whether nobody has set it.
  bool is_default(std::string_view name) const noexcept;
  // What became of it, where that is known later.
  void show(std::string_view name, const std::string& value);
};

// "unlimited", or bytes.
std::string limit_text(std::uint64_t bytes);

// Of a policy that requires more than one path.
std::optional<Error> refuse_policy(std::string_view operation, const PathPolicy& policy);

// Errors: invalid_argument, naming the option or the variable and what is allowed.
Result<Settings> find_settings(const FabricOptions& options);

}  // namespace gigabar::fabric
