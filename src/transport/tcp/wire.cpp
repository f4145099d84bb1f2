// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/wire.hpp"

#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"

namespace gigabar::transport::tcp {
namespace {

constexpr std::string_view kOfferMagic = "gigabar tcp offer";
constexpr std::string_view kAnswerMagic = "gigabar tcp answer";

bool can_have(FrameKind kind, std::uint64_t data_bytes) noexcept {
  switch (kind) {
    case FrameKind::message: return data_bytes <= kMaxPayloadBytes;
    case FrameKind::write:
    case FrameKind::answer: return data_bytes > 0 && data_bytes <= kPieceBytes;
    case FrameKind::read:
    case FrameKind::bye:
    case FrameKind::fence: return data_bytes == 0;
  }
  return false;
}

}  // namespace

std::string address_text(const Security& security) {
  return text("tcp ", unsigned{kVersion}, ' ', name_of(security.protection), ' ', name_of(security.cipher));
}

std::optional<Security> security_of_address(std::string_view address) {
  for (const Protection protection : {Protection::authenticated, Protection::sealed}) {
    for (const secure::Cipher cipher : {secure::Cipher::chacha20_poly1305, secure::Cipher::aes_256_gcm}) {
      const Security security{protection, cipher};
      if (address == address_text(security)) return security;
    }
  }
  return {};
}

std::string encode(const Offer& offer) {
  ByteWriter writer(kOfferMagic);
  writer.number(kVersion).number(offer.link).bytes(offer.secret.bytes());
  writer.number(static_cast<std::uint8_t>(offer.lanes)).number(static_cast<std::uint8_t>(offer.targets.size()));
  for (const network::SocketAddress& target : offer.targets) {
    writer.string(network::ip_bytes(target)).number(network::port_of(target));
  }
  return writer.take();
}

Result<Offer> decode_offer(std::string_view bytes) {
  constexpr const char* kWhat = "the peer's TCP parcel";
  ByteReader reader(bytes);
  reader.expect(reader.bytes(kOfferMagic.size()) == kOfferMagic);
  reader.expect(reader.number<std::uint8_t>() == kVersion);
  if (!reader.is_ok()) return malformed(kWhat, "it is of another kind or version");
  Offer offer;
  offer.link = reader.number<std::uint64_t>();
  offer.secret = secure::Secret(reader.bytes(kSecretBytes));
  offer.lanes = reader.number<std::uint8_t>();
  const auto count = reader.number<std::uint8_t>();
  reader.expect(offer.link != 0 && offer.lanes <= kMaxLanes && count > 0 && count <= kMaxTargets);
  for (unsigned index = 0; index < count && reader.is_ok(); ++index) {
    const std::string_view address = reader.string(16);
    const auto port = reader.number<std::uint16_t>();
    reader.expect((address.size() == 4 || address.size() == 16) && port != 0);
    if (reader.is_ok()) offer.targets.push_back(network::ip_address(address, port));
  }
  if (!reader.is_done()) return malformed(kWhat, "it was cut, or a number in it is out of range");
  return offer;
}

std::string encode_answer(std::uint64_t link, unsigned lanes) {
  return ByteWriter(kAnswerMagic).number(kVersion).number(link).number(static_cast<std::uint8_t>(lanes)).take();
}

std::optional<unsigned> decode_answer(std::string_view bytes, std::uint64_t link, unsigned offered_lanes) {
  for (unsigned lanes = 0; lanes <= offered_lanes; ++lanes) {
    if (bytes == encode_answer(link, lanes)) return lanes;
  }
  return {};
}

secure::Identity identity_of(const secure::Secret& secret, std::uint64_t connection, const Security& security, secure::Role role) {
  const Rank own = role == secure::Role::initiator ? 1 : 0;
  const std::string name = text("tcp link ", connection, ' ', name_of(security.protection), ' ', name_of(security.cipher));
  return secure::make_identity(secret, name, own, 2, secure::Purpose::transfer);
}

std::optional<FrameHeader> parse_header(std::span<const std::byte> bytes) noexcept {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const bool is_right = header.magic == kFrameMagic && header.version == kVersion;
  if (!is_right || !can_have(header.kind, header.data_bytes)) return {};
  return header;
}

secure::Moved OutgoingFrame::send(secure::ByteStream& stream, const std::byte* data, std::size_t most_bytes) {
  const std::size_t head_sent = std::min(sent_bytes, kHead);
  const std::size_t data_bytes = std::min<std::size_t>(header.data_bytes - data_sent(), most_bytes);
  const iovec pieces[] = {{reinterpret_cast<std::byte*>(&header) + head_sent, kHead - head_sent},
                          {const_cast<std::byte*>(data), data_bytes}};
  const secure::Moved moved = stream.send(pieces);
  sent_bytes += moved.bytes;
  return moved;
}

bool OutgoingFrame::advance() noexcept {
  const std::uint64_t gone_bytes = header.data_bytes;
  if (bytes <= gone_bytes) return false;
  Access access = access_of(header);
  access.offset += gone_bytes;
  from.offset += gone_bytes;
  *this = first_piece(header.kind, header.number, access, from, bytes - gone_bytes);
  return true;
}

OutgoingFrame first_piece(FrameKind kind, std::uint32_t number, const Access& access, const Place& from, std::uint64_t bytes) {
  return {make_header(kind, number, std::min(kPieceBytes, bytes), access), from, bytes};
}

}  // namespace gigabar::transport::tcp
