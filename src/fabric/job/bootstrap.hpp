// SPDX-License-Identifier: Apache-2.0
// What a rank and the bootstrap server say to each other over their channel.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "fabric/job/directories.hpp"
#include "secure/channel.hpp"

namespace gigabar::fabric {

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
