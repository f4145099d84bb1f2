// SPDX-License-Identifier: Apache-2.0
// Messages between a rank and the bootstrap server, encrypted and authenticated; each direction has its own key and counts its
// messages, so that none can be changed, repeated, left out or sent back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/job/handshake.hpp"
#include "fabric/job/sockets.hpp"

namespace gigabar::fabric {

enum class BootstrapMessageType : std::uint8_t {
  welcome = 1,       // server: the handshake is done
  wrong_count = 2,   // server: `rank` is the number of its ranks
  rank_taken = 3,    // server: this rank is there already
  publish = 4,       // member: its address
  ask = 5,           // member: wants the address of `rank`
  rank_address = 6,  // server: the address of `rank`
};

struct BootstrapMessage {
  BootstrapMessageType type{};
  Rank rank = 0;
  std::string body;  // at most kMaxRankAddressBytes
};

// Not copied: two that count on from the same number would use a nonce twice.
class SealedStream {
 public:
  SealedStream() noexcept = default;
  SealedStream(const SealedStream&) = delete;
  SealedStream& operator=(const SealedStream&) = delete;
  SealedStream(SealedStream&&) noexcept = default;
  SealedStream& operator=(SealedStream&&) noexcept = default;
  ~SealedStream() = default;
  SealedStream(const Secret& send_key, const Secret& receive_key) noexcept : send_key_(send_key), receive_key_(receive_key) {}

  // What goes over the wire for the next message.
  std::string seal(const BootstrapMessage& message);

  enum class Found : std::uint8_t { nothing, message, broken };
  // Takes the next whole message out of `stream`. broken: it was not made by the other end; the stream is of no more use.
  Found next(ByteStream& stream, BootstrapMessage& message);

 private:
  Secret send_key_, receive_key_;
  std::uint64_t sent_count_ = 0;
  std::uint64_t received_count_ = 0;
};
// Of one message on the wire, at most.
std::size_t most_sealed_bytes() noexcept;

}  // namespace gigabar::fabric
