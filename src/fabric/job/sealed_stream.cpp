// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/sealed_stream.hpp"

#include <sodium.h>

#include <array>

#include "base/bytes.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kLengthBytes = 2;    // of what follows, least byte first
constexpr std::size_t kHeadBytes = 1 + 4;  // type and rank
constexpr std::size_t kTagBytes = crypto_aead_chacha20poly1305_ietf_ABYTES;
constexpr std::size_t kMinBytes = kHeadBytes + kTagBytes;
constexpr std::size_t kMaxBytes = kMinBytes + kMaxRankAddressBytes;
static_assert(kMaxBytes <= 0xffff, "the length has two bytes");
static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == 32, "as a Secret");

using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(std::uint64_t count) {
  Nonce nonce{};
  for (std::size_t byte = 0; byte < 8; ++byte) nonce[byte] = static_cast<unsigned char>(count >> (8 * byte) & 0xff);
  return nonce;
}

std::string plain_bytes(const BootstrapMessage& message) {
  return ByteWriter().number(static_cast<std::uint8_t>(message.type)).number(message.rank).bytes(message.body).take();
}

void read_plain(std::string_view bytes, BootstrapMessage& message) {
  ByteReader reader(bytes);
  message.type = static_cast<BootstrapMessageType>(reader.number<std::uint8_t>());
  message.rank = reader.number<Rank>();
  message.body.assign(bytes.substr(kHeadBytes));
}

}  // namespace

std::size_t most_sealed_bytes() noexcept { return kLengthBytes + kMaxBytes; }

std::string SealedStream::seal(const BootstrapMessage& message) {
  const std::string plain = plain_bytes(message);
  const std::size_t sealed_bytes = plain.size() + kTagBytes;
  std::string wire = ByteWriter().number(static_cast<std::uint16_t>(sealed_bytes)).take();
  wire.resize(kLengthBytes + sealed_bytes);
  const Nonce nonce = nonce_of(sent_count_++);
  auto* const bytes = reinterpret_cast<unsigned char*>(wire.data());
  crypto_aead_chacha20poly1305_ietf_encrypt(bytes + kLengthBytes, nullptr, unsigned_bytes(plain), plain.size(), bytes, kLengthBytes,
                                            nullptr, nonce.data(), send_key_.bytes.data());
  return wire;
}

SealedStream::Found SealedStream::next(ByteStream& stream, BootstrapMessage& message) {
  const std::string_view wire = stream.received();
  if (wire.size() < kLengthBytes) return Found::nothing;
  const std::size_t sealed_bytes = ByteReader(wire).number<std::uint16_t>();
  if (sealed_bytes < kMinBytes || sealed_bytes > kMaxBytes) return Found::broken;
  if (wire.size() < kLengthBytes + sealed_bytes) return Found::nothing;
  std::string plain(sealed_bytes - kTagBytes, '\0');
  const Nonce nonce = nonce_of(received_count_++);
  const int result = crypto_aead_chacha20poly1305_ietf_decrypt(
      reinterpret_cast<unsigned char*>(plain.data()), nullptr, nullptr, unsigned_bytes(wire) + kLengthBytes, sealed_bytes,
      unsigned_bytes(wire), kLengthBytes, nonce.data(), receive_key_.bytes.data());
  if (result != 0) return Found::broken;
  read_plain(plain, message);
  stream.use(kLengthBytes + sealed_bytes);
  return Found::message;
}

}  // namespace gigabar::fabric
