// SPDX-License-Identifier: Apache-2.0
#include "secure/stream.hpp"

#include <sodium.h>

#include <utility>

#include "base/bytes.hpp"

namespace gigabar::secure {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeadBytes = 4;  // type and count of descriptors
constexpr std::size_t kAddedBytes = crypto_secretstream_xchacha20poly1305_ABYTES;
static_assert(kFrameOverheadBytes == kLengthBytes + kHeadBytes + kAddedBytes);
static_assert(kStreamHeaderBytes == crypto_secretstream_xchacha20poly1305_HEADERBYTES);

using State = crypto_secretstream_xchacha20poly1305_state;
static_assert(alignof(State) == 1);
State* state_in(Secret& memory) { return reinterpret_cast<State*>(memory.data()); }
unsigned char* writable(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace

Sealer::Sealer(const Secret& key) : header_(kStreamHeaderBytes, '\0'), state_(Secret::of_size(sizeof(State))) {
  crypto_secretstream_xchacha20poly1305_init_push(state_in(state_), writable(header_), key.data());
}

std::string Sealer::seal(std::uint16_t type, std::size_t descriptor_count, std::string_view body, bool is_last) {
  if (!state_.is_set()) return {};
  const std::string plain = ByteWriter().number(type).number(static_cast<std::uint16_t>(descriptor_count)).bytes(body).take();
  std::string sealed = ByteWriter().number(static_cast<std::uint32_t>(plain.size() + kAddedBytes)).take();
  sealed.resize(kFrameOverheadBytes + body.size());
  const unsigned char tag =
      is_last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
  crypto_secretstream_xchacha20poly1305_push(state_in(state_), writable(sealed) + kLengthBytes, nullptr, unsigned_bytes(plain),
                                             plain.size(), unsigned_bytes(sealed), kLengthBytes, tag);
  return sealed;
}

Opener::Opener(const Secret& key, std::string_view header) : state_(Secret::of_size(sizeof(State))) {
  crypto_secretstream_xchacha20poly1305_init_pull(state_in(state_), unsigned_bytes(header), key.data());
}

Opener::Found Opener::open(std::string_view& bytes, OpenedFrame& frame) {
  if (bytes.size() < kLengthBytes) return Found::incomplete;
  const std::size_t rest_bytes = ByteReader(bytes).number<std::uint32_t>();
  if (rest_bytes < kHeadBytes + kAddedBytes || rest_bytes > kHeadBytes + kMaxFrameBytes + kAddedBytes) return Found::too_long;
  if (bytes.size() < kLengthBytes + rest_bytes) return Found::incomplete;
  std::string plain(rest_bytes - kAddedBytes, '\0');
  unsigned char tag = 0;
  if (!state_.is_set() || crypto_secretstream_xchacha20poly1305_pull(state_in(state_), writable(plain), nullptr, &tag,
                                                                     unsigned_bytes(bytes) + kLengthBytes, rest_bytes,
                                                                     unsigned_bytes(bytes), kLengthBytes) != 0) {
    state_ = Secret();
    return Found::forged;
  }
  frame.is_last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
  ByteReader head(plain);
  frame.type = head.number<std::uint16_t>();
  frame.descriptor_count = head.number<std::uint16_t>();
  plain.erase(0, kHeadBytes);
  frame.body = std::move(plain);
  bytes.remove_prefix(kLengthBytes + rest_bytes);
  return Found::frame;
}

}  // namespace gigabar::secure
