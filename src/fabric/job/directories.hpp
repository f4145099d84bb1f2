// SPDX-License-Identifier: Apache-2.0
// The kinds of directory that open_directory() chooses from, and what a rank and the bootstrap server say to each other over their
// channel.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "fabric/job/job.hpp"
#include "secure/channel.hpp"

namespace gigabar::fabric {

// Rank 0's: keeps all addresses and gives them out within poll(). Who has not proved itself `handshake_ns` after it was accepted is
// cut off, and before that when others come and there is no room (PendingLimit). Errors: unavailable (the port is taken, the
// master's address is unknown), no_permission (it is no address of this host, and there is no key), out_of_descriptors.
inline constexpr std::int64_t kHandshakeNs = 5'000'000'000;
Result<std::unique_ptr<Directory>> open_bootstrap_server(const Job& job, std::int64_t handshake_ns = kHandshakeNs);

// Any other rank's: a connection to the bootstrap server. Waits for it. Errors: timed_out (rank 0 never listened), unavailable (its
// address is unknown), no_permission (another key, or a key is needed), invalid_argument (rank 0 has another rank count, or this
// rank is there already), not_supported (another version of the protocol), out_of_descriptors (this process had none for a
// connection until the deadline).
Result<std::unique_ptr<Directory>> open_member(const Job& job, std::int64_t deadline_ns);

enum class BootstrapMessageType : std::uint16_t {
  publish = 1,  // member: its address
  ask = 2,      // member: wants the address of `rank`
  answer = 3,   // server: the address of `rank`
};

struct BootstrapMessage {
  BootstrapMessageType type{};
  Rank rank = 0;
  std::string rank_address;  // at most kMaxRankAddressBytes
};

// The body: the rank in four bytes, then the address.
inline secure::Frame frame_of(BootstrapMessageType type, Rank rank, const std::string& rank_address = {}) {
  return {static_cast<std::uint16_t>(type), ByteWriter().number(rank).bytes(rank_address).take(), {}};
}

// Nothing: it is no message.
inline std::optional<BootstrapMessage> message_in(const secure::Frame& frame) {
  ByteReader reader(frame.body);
  const auto rank = reader.number<Rank>();
  reader.expect(frame.body.size() <= sizeof rank + kMaxRankAddressBytes && frame.descriptors.empty());
  if (!reader.is_ok()) return {};
  return BootstrapMessage{static_cast<BootstrapMessageType>(frame.type), rank, frame.body.substr(sizeof rank)};
}

}  // namespace gigabar::fabric
