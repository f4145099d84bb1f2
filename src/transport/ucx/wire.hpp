// SPDX-License-Identifier: Apache-2.0
// What this transport says to its counterpart: parcels and keys through the ranks' channel, headers of UCP's active messages.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gigabar/status.hpp"
#include "transport/placing.hpp"

namespace gigabar::transport::ucx {

inline constexpr std::uint8_t kVersion = 6;  // of everything below

// How much one side may ask of the other: both sides count alike.
inline constexpr std::size_t kMaxPayloadBytes = 65536;
inline constexpr std::uint64_t kWindowUnits = 2U << 20;  // units_of() messages that either side holds at most for a link

// --- Parcels -------------------------------------------------------------------------------------------------------------------

// What offer() and accept() tell: where the sender's worker is, and the number that its peer puts into every message to it.
struct Invitation {
  std::uint64_t link = 0;
  std::uint32_t piece_bytes = 0;  // most data of one active message to it, at least kMinPieceBytes
  std::string address;            // of a UCP worker, opaque
};
inline constexpr std::uint32_t kMinPieceBytes = 4096;
inline constexpr std::uint32_t kMaxPieceBytes = 1U << 20;

enum class InvitationKind : std::uint8_t { offer = 1, answer = 2 };
std::string encode(InvitationKind kind, const Invitation& invitation);
// UCX believes every byte of a worker's address, so a sum over all of it is checked first. Errors: bad_file.
Result<Invitation> decode_invitation(InvitationKind kind, std::string_view bytes);

// "ucx 6 1.13.1": protocol version and UCX's own.
std::string address_text(std::string_view library_version);
// The peer's UCX version; nothing when it is no address of this transport's version.
std::optional<std::string> library_version_of_address(std::string_view address);

// --- Active messages -----------------------------------------------------------------------------------------------------------

enum class WireKind : std::uint8_t {
  hello = 1,  // the sender can receive
  message,    // body: the caller's header. In order, delivered after every earlier write
  write,      // body: Access. Data for a region of the receiver
  read,       // body: Access, whose request names the answers
  answer,     // body: Access, of which request and offset (from the start of what was asked for) count
  credit,     // nothing but `acknowledged`
  bye         // body: Access, of which `request` is a Farewell
};

// Of the processor's byte order, as UCX's own headers are.
inline constexpr std::uint16_t kMagic = 0x6762;
struct WireHeader {
  std::uint16_t magic = kMagic;
  std::uint8_t version = kVersion;
  WireKind kind{};
  std::uint32_t data_bytes = 0;
  std::uint64_t link = 0;          // the receiver's number
  std::uint64_t sequence = 0;      // of messages and writes, which count together; 0 in others
  std::uint64_t acknowledged = 0;  // units of messages that the sender has consumed on this link
  Header body{};
};
static_assert(sizeof(WireHeader) == 64);

struct Access {
  std::uint32_t region = 0;
  std::uint32_t request = 0;
  std::uint64_t guard = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

inline WireHeader make_header(WireKind kind, std::uint64_t link, std::uint32_t data_bytes) {
  return {.kind = kind, .data_bytes = data_bytes, .link = link};
}
// Nothing when it is none of ours, of another version, of an unknown kind, or does not fit `data_bytes`. All but `data_bytes`,
// `link` and the order of things is the receiver's to check.
std::optional<WireHeader> parse_header(const void* header, std::size_t header_bytes, std::size_t data_bytes);

inline Access access_of(const WireHeader& header) { return std::bit_cast<Access>(header.body); }
inline void set_access(WireHeader& header, const Access& access) { header.body = std::bit_cast<Header>(access); }
inline Place place_of(const Access& access, Rank rank) { return {access.region, access.offset, Guard{rank, access.guard}}; }

}  // namespace gigabar::transport::ucx
