// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/seal.hpp"

#include <sodium.h>

#include <array>
#include <utility>

#include "base/bytes.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeadBytes = 4;  // type and count of descriptors
constexpr std::size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(kSealBytes == kLengthBytes + kHeadBytes + kTagBytes);

using Nonce = std::array<unsigned char, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(std::uint64_t frame_number) {
  Nonce nonce{};
  for (std::size_t index = 0; index < sizeof frame_number; ++index) {
    nonce[index] = static_cast<unsigned char>(frame_number >> (8 * index));
  }
  return nonce;
}

unsigned char* writable(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace

std::string Sealer::seal(std::uint16_t type, std::size_t descriptor_count, std::string_view body) {
  const std::string plain = ByteWriter().number(type).number(static_cast<std::uint16_t>(descriptor_count)).bytes(body).take();
  std::string sealed = ByteWriter().number(static_cast<std::uint32_t>(plain.size() + kTagBytes)).take();
  sealed.resize(kSealBytes + body.size());
  crypto_aead_xchacha20poly1305_ietf_encrypt(writable(sealed) + kLengthBytes, nullptr, unsigned_bytes(plain), plain.size(),
                                             unsigned_bytes(sealed), kLengthBytes, nullptr, nonce_of(frame_count_).data(),
                                             key_.data());
  ++frame_count_;
  return sealed;
}

Opener::Found Opener::open(std::string_view& bytes, OpenedFrame& frame) {
  if (bytes.size() < kLengthBytes) return Found::incomplete;
  const std::size_t rest_bytes = ByteReader(bytes).number<std::uint32_t>();
  if (rest_bytes < kHeadBytes + kTagBytes || rest_bytes > kHeadBytes + kMaxFrameBytes + kTagBytes) return Found::too_long;
  if (bytes.size() < kLengthBytes + rest_bytes) return Found::incomplete;
  std::string plain(rest_bytes - kTagBytes, '\0');
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(writable(plain), nullptr, nullptr, unsigned_bytes(bytes) + kLengthBytes,
                                                 rest_bytes, unsigned_bytes(bytes), kLengthBytes, nonce_of(frame_count_).data(),
                                                 key_.data()) != 0) {
    return Found::forged;
  }
  ++frame_count_;
  ByteReader head(plain);
  frame.type = head.number<std::uint16_t>();
  frame.descriptor_count = head.number<std::uint16_t>();
  plain.erase(0, kHeadBytes);
  frame.body = std::move(plain);
  bytes.remove_prefix(kLengthBytes + rest_bytes);
  return Found::frame;
}

}  // namespace gigabar::fabric::wireup
