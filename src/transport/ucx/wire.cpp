// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/wire.hpp"

#include <cstring>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/fnv.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr std::string_view kParcelMagic = "GBUX";
constexpr const char* kWhat = "the peer's UCX parcel";

// Of an invitation: magic, version, kind, length of the address, sum, number of the link, bytes of a piece, zeros. The address
// follows.
constexpr std::size_t kHeadBytes = 32;
constexpr std::size_t kSumAt = 8;

// Of everything else in an invitation: against damage, not against a forger.
std::uint64_t sum_of(std::string invitation) {
  invitation.replace(kSumAt, sizeof(std::uint64_t), sizeof(std::uint64_t), '\0');
  return fnv1a(invitation);
}

}  // namespace

std::string encode(InvitationKind kind, const Invitation& invitation) {
  ByteWriter writer(kParcelMagic);
  writer.number(kVersion).number(static_cast<std::uint8_t>(kind)).number(static_cast<std::uint16_t>(invitation.address.size()));
  writer.number(std::uint64_t{0}).number(invitation.link).number(invitation.piece_bytes).number(std::uint32_t{0});
  std::string bytes = writer.bytes(invitation.address).take();
  const std::uint64_t sum = sum_of(bytes);
  std::memcpy(bytes.data() + kSumAt, &sum, sizeof sum);
  return bytes;
}

Result<Invitation> decode_invitation(InvitationKind kind, std::string_view bytes) {
  if (bytes.size() <= kHeadBytes || bytes.size() > kMaxParcelBytes) return malformed(kWhat, "its length cannot be");
  ByteReader reader(bytes);
  const bool is_ours = reader.bytes(kParcelMagic.size()) == kParcelMagic;
  if (reader.number<std::uint8_t>() != kVersion || !is_ours) return malformed(kWhat, "it is of another kind or version");
  if (reader.number<std::uint8_t>() != static_cast<std::uint8_t>(kind))
    return malformed(kWhat, "an offer was mistaken for an answer");
  if (reader.number<std::uint16_t>() != bytes.size() - kHeadBytes) return malformed(kWhat, "it was cut");
  if (reader.number<std::uint64_t>() != sum_of(std::string(bytes))) {
    return malformed(kWhat, "its sum is wrong: it was damaged on the way");
  }
  Invitation invitation{reader.number<std::uint64_t>(), reader.number<std::uint32_t>(), std::string(bytes.substr(kHeadBytes))};
  if (reader.number<std::uint32_t>() != 0 || invitation.link == 0 || invitation.piece_bytes < kMinPieceBytes ||
      invitation.piece_bytes > kMaxPieceBytes) {
    return malformed(kWhat, "a number in it is out of range");
  }
  return invitation;
}

std::string address_text(std::string_view library_version) { return text("ucx ", unsigned{kVersion}, ' ', library_version); }

std::optional<std::string> library_version_of_address(std::string_view address) {
  const std::string begin = address_text("");
  if (!address.starts_with(begin) || address.size() > 64) return {};
  const std::string_view version = address.substr(begin.size());
  if (version.empty() || version.find_first_not_of("0123456789.") != std::string_view::npos) return {};
  return std::string(version);
}

std::optional<WireHeader> parse_header(const void* header, std::size_t header_bytes, std::size_t data_bytes) {
  if (header == nullptr || header_bytes != sizeof(WireHeader)) return {};
  WireHeader parsed;
  std::memcpy(&parsed, header, sizeof parsed);
  if (parsed.magic != kMagic || parsed.version != kVersion || parsed.data_bytes != data_bytes) return {};
  if (parsed.kind < WireKind::hello || parsed.kind > WireKind::bye) return {};
  return parsed;
}

}  // namespace gigabar::transport::ucx
