// SPDX-License-Identifier: Apache-2.0
// What this transport says to its counterpart: parcels and keys through the ranks' channel, frames on its connections.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"
#include "platform/network.hpp"
#include "secure/byte_stream.hpp"
#include "secure/handshake.hpp"
#include "transport/placing.hpp"

namespace gigabar::transport::tcp {

inline constexpr std::uint8_t kVersion = 3;  // of everything below

inline constexpr std::size_t kMaxPayloadBytes = 61440;                // of a message
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;  // of a write or an answer in one frame
// Shares of large writes on each lane, modulo 2^32: fewer than half of that are under way.
using ShareCounts = std::array<std::uint32_t, kMaxLanes>;

// --- Addresses and parcels ------------------------------------------------------------------------------------------------------

using secure::Protection;

// What an end asks for, and the best cipher that it has; of a link, what it is.
struct Security {
  Protection protection = Protection::authenticated;
  secure::Cipher cipher = secure::Cipher::chacha20_poly1305;  // of records, where it is sealed
  friend bool operator==(const Security&, const Security&) = default;
};

std::string address_text(const Security& security);
// Nothing: this is no address of this version of the transport.
std::optional<Security> security_of_address(std::string_view address);

// What the side that listens tells the side that connects, through the ranks' channel, which encrypts it. The secret is of this
// link alone: who proves it is the peer.
struct Offer {
  std::uint64_t link = 0;  // where the connection belongs; said in the clear before its handshake
  secure::Secret secret;
  std::vector<network::SocketAddress> targets;  // at most kMaxTargets
  unsigned lanes = 0;                           // connections beside the first that it would take; their numbers follow its own
};
inline constexpr std::size_t kMaxTargets = 16;
inline constexpr std::size_t kSecretBytes = 32;
std::string encode(const Offer& offer);
// Errors: bad_file.
Result<Offer> decode_offer(std::string_view bytes);
// How many of them there will be.
std::string encode_answer(std::uint64_t link, unsigned lanes);
// Nothing: it is none, or more than were offered.
std::optional<unsigned> decode_answer(std::string_view bytes, std::uint64_t link, unsigned offered_lanes);

// Who each end of a link's connections is: number 1 connects to number 0. The number of the connection and its protection are part
// of every key.
secure::Identity identity_of(const secure::Secret& secret, std::uint64_t connection, const Security& security, secure::Role role);

// --- Frames ---------------------------------------------------------------------------------------------------------------------

enum class FrameKind : std::uint8_t {
  message = 1,  // the caller's header and payload
  write,        // data for a region of the receiver
  read,         // asks for `bytes` of a region, as answers with this number
  answer,       // data that was asked for; `offset` within what was asked
  bye,          // the sender ends the link; `number` is a Farewell
  fence         // what follows waits until so many shares are in place: `body` is ShareCounts
};

inline constexpr std::uint16_t kFrameMagic = 0x7467;
// Data of data_bytes follows it.
struct FrameHeader {
  std::uint16_t magic = kFrameMagic;
  FrameKind kind{};
  std::uint8_t version = kVersion;
  std::uint32_t number = 0;  // of a region, or of a read
  std::uint64_t data_bytes = 0;
  std::uint64_t request = 0;  // read: how its answers are named; write on a lane: 1 with the last piece of a share
  Header body{};              // the message's header, or an Access
};
static_assert(sizeof(FrameHeader) == 56);
inline constexpr std::size_t kHead = sizeof(FrameHeader);

// Memory of the receiver.
struct Access {
  std::uint64_t guard = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // of a read
  std::uint64_t zero = 0;
};

inline FrameHeader make_header(FrameKind kind, std::uint32_t number, std::uint64_t data_bytes, const Access& access = {}) {
  return {.kind = kind, .number = number, .data_bytes = data_bytes, .body = std::bit_cast<Header>(access)};
}
inline Access access_of(const FrameHeader& header) noexcept { return std::bit_cast<Access>(header.body); }
// Of the receiver's memory, where the rank has a key of it.
inline Place place_of(const FrameHeader& header, Rank rank) noexcept {
  return {header.number, access_of(header).offset, Guard{rank, access_of(header).guard}};
}
// Nothing: these are no bytes of this protocol, or more data than a frame has. `bytes` has at least sizeof(FrameHeader).
std::optional<FrameHeader> parse_header(std::span<const std::byte> bytes) noexcept;

// A frame on its way out, and the rest of the transfer that it is a piece of.
struct OutgoingFrame {
  FrameHeader header;
  Place from;                  // of a write or an answer: where the frame's data are
  std::uint64_t bytes = 0;     // likewise: how many are left, those of the frame included
  std::size_t sent_bytes = 0;  // of header and data

  std::size_t data_sent() const noexcept { return sent_bytes - std::min(sent_bytes, kHead); }
  bool is_sent() const noexcept { return sent_bytes == kHead + header.data_bytes; }
  // Of the data that are not sent, which are at `data`, at most so many.
  secure::Moved send(secure::ByteStream& stream, const std::byte* data, std::size_t most_bytes);
  // The transfer's next piece, once this one is sent. False: it was the last one, or is no transfer's.
  bool advance() noexcept;
};
// The first piece of a write or an answer.
OutgoingFrame first_piece(FrameKind kind, std::uint32_t number, const Access& access, const Place& from, std::uint64_t bytes);

}  // namespace gigabar::transport::tcp
