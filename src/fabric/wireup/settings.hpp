// SPDX-License-Identifier: Apache-2.0
// What tests change about a Wireup; everybody else takes it as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/wireup/handshake.hpp"
#include "fabric/wireup/rank_address.hpp"
#include "fabric/wireup/wireup.hpp"

namespace gigabar::fabric::wireup {

struct Settings {
  std::uint32_t version = kProtocolVersion;
  bool has_unix = true;
  std::vector<Address> tcp_addresses;          // where it listens; none: TCP is not used at all. Needs a key
  std::int64_t handshake_ns = 5'000'000'000;   // for strangers
  std::size_t most_unfinished = 128;           // handshakes of strangers, on Unix sockets and on TCP each
  std::int64_t silent_grace_ns = 20'000'000;   // before who has not shown the key may have to make room
  std::int64_t spoken_grace_ns = 250'000'000;  // the same of who has, and has not proved it
};

Result<std::unique_ptr<Wireup>> open_wireup(const Job& job, const Settings& settings);

}  // namespace gigabar::fabric::wireup
