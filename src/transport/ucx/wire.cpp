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

}  // namespace

std::string encode(InvitationKind kind, const Invitation& invitation) {
  ByteWriter writer(kParcelMagic);
  writer.number(kVersion).number(static_cast<std::uint8_t>(kind)).number(invitation.link).number(invitation.piece_bytes);
  const std::string bytes = writer.string(invitation.address).take();
  return ByteWriter(bytes).number(fnv1a(bytes)).take();
}

Result<Invitation> decode_invitation(InvitationKind kind, std::string_view bytes) {
  ByteReader reader(bytes);
  const bool is_ours = reader.bytes(kParcelMagic.size()) == kParcelMagic;
  if (reader.number<std::uint8_t>() != kVersion || !is_ours) return malformed(kWhat, "it is of another kind or version");
  if (reader.number<std::uint8_t>() != static_cast<std::uint8_t>(kind))
    return malformed(kWhat, "an offer was mistaken for an answer");
  Invitation invitation{reader.number<std::uint64_t>(), reader.number<std::uint32_t>(),
                        std::string(reader.string(kMaxParcelBytes))};
  const std::string_view summed = bytes.substr(0, reader.offset());
  const auto sum = reader.number<std::uint64_t>();
  if (!reader.is_done()) return malformed(kWhat, "it was cut");
  // Against damage, not against a forger.
  if (sum != fnv1a(summed)) return malformed(kWhat, "its sum is wrong: it was damaged on the way");
  if (invitation.link == 0 || invitation.piece_bytes < kMinPieceBytes || invitation.piece_bytes > kMaxPieceBytes ||
      invitation.address.empty()) {
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
