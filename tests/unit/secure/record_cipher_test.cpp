// SPDX-License-Identifier: Apache-2.0
// Records of sealed connections: RecordCipher of secure/byte_stream.hpp. Each test runs with libcrypto, where it is there, and
// without it.
#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "driver/crypto/crypto.hpp"
#include "secure/byte_stream.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::secure {
namespace {

constexpr std::size_t kHead = RecordCipher::kTextOffset, kTag = kRecordOverheadBytes - kHead;
const std::string kKey = "32 bytes that nobody else knows!";

using Bytes = std::vector<unsigned char>;

RecordCipher cipher(Cipher kind) { return {Secret(kKey), kind}; }
std::vector<Cipher> ciphers_here() {
  if (best_cipher() == Cipher::chacha20_poly1305) return {Cipher::chacha20_poly1305};
  return {Cipher::chacha20_poly1305, Cipher::aes_256_gcm};
}

// With room for the length and the authenticator.
Bytes text_of(std::size_t bytes) {
  Bytes text(kHead + bytes + kTag);
  for (std::size_t i = 0; i < bytes; ++i) text[kHead + i] = static_cast<unsigned char>(i * 7 + 3);
  return text;
}

// From three pieces, one of them empty, to elsewhere.
bool seal(RecordCipher& sealing, Bytes& record) {
  Bytes source = record;
  const std::size_t bytes = record.size() - kHead - kTag, first = bytes / 3;
  const iovec pieces[] = {{source.data() + kHead, first}, {nullptr, 0}, {source.data() + kHead + first, bytes - first + kTag}};
  std::ranges::fill(record, 0);
  return sealing.seal(pieces, bytes, record.data());
}
bool open(RecordCipher& opening, Bytes& record) {
  std::size_t text_bytes = 0;
  const std::string_view come(reinterpret_cast<const char*>(record.data()), record.size());
  return RecordCipher::find(come, 1, kRecordBytes, text_bytes) == Found::record && opening.open(record.data(), text_bytes);
}

// What the standards say that record `number` is, as libsodium computes it.
Bytes sealed_by_sodium(Cipher kind, Bytes text, std::uint64_t number) {
  std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> nonce{};
  std::memcpy(nonce.data() + 4, &number, sizeof number);
  const auto encrypt = kind == Cipher::aes_256_gcm ? crypto_aead_aes256gcm_encrypt : crypto_aead_chacha20poly1305_ietf_encrypt;
  const auto rest_bytes = static_cast<std::uint32_t>(text.size() - kHead);
  std::memcpy(text.data(), &rest_bytes, kHead);
  encrypt(text.data() + kHead, nullptr, text.data() + kHead, text.size() - kHead - kTag, text.data(), kHead, nullptr, nonce.data(),
          reinterpret_cast<const unsigned char*>(kKey.data()));
  return text;
}

void expect_records_of_the_standard() {
  for (const Cipher kind : ciphers_here()) {
    SCOPED_TRACE(name_of(kind));
    RecordCipher sealing = cipher(kind), opening = cipher(kind);
    std::uint64_t number = 0;
    for (const std::size_t bytes :
         {1UL, 15UL, 16UL, 17UL, 63UL, 64UL, 65UL, 255UL, 256UL, 511UL, 512UL, 513UL, 4095UL, 65536UL, kRecordBytes}) {
      Bytes record = text_of(bytes);
      ASSERT_TRUE(seal(sealing, record));
      EXPECT_EQ(record, sealed_by_sodium(kind, text_of(bytes), number++)) << bytes;
      ASSERT_TRUE(open(opening, record)) << bytes;
      const Bytes sent = text_of(bytes);
      EXPECT_TRUE(std::equal(record.begin() + kHead, record.end() - kTag, sent.begin() + kHead));
    }
  }
}

template <class Spoil>
bool opens_after(Cipher kind, std::size_t bytes, const Spoil& spoil) {
  RecordCipher sealing = cipher(kind), opening = cipher(kind);
  Bytes record = text_of(bytes);
  EXPECT_TRUE(seal(sealing, record));
  spoil(record, opening);
  return open(opening, record);
}

void expect_changes_found(Cipher kind, std::size_t bytes) {
  SCOPED_TRACE(testing::Message() << name_of(kind) << ", " << bytes);
  EXPECT_TRUE(opens_after(kind, bytes, [](Bytes&, RecordCipher&) {}));
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, bytes / 2, bytes - 1, bytes, bytes + kTag - 1}) {
    EXPECT_FALSE(opens_after(kind, bytes, [&](Bytes& record, RecordCipher&) { record[kHead + at] ^= 1; })) << at;
  }
  EXPECT_FALSE(opens_after(kind, bytes, [](Bytes& record, RecordCipher&) { record[3] ^= 0x80; })) << "the length";
  EXPECT_FALSE(opens_after(kind, bytes, [](Bytes& record, RecordCipher&) {
    record.pop_back();
    --record[0];
  })) << "the length, of what is there";
  EXPECT_FALSE(opens_after(kind, bytes, [&](Bytes&, RecordCipher& opening) {
    RecordCipher sealing = cipher(kind);
    Bytes earlier = text_of(1);
    EXPECT_TRUE(seal(sealing, earlier) && open(opening, earlier));
  })) << "another record was lost or came twice";
  EXPECT_FALSE(opens_after(kind, bytes, [&](Bytes&, RecordCipher& opening) {
    opening = RecordCipher(Secret("32 bytes that somebody else has!"), kind);
  })) << "another key";
}
void expect_changes_found() {
  for (const Cipher kind : ciphers_here()) {
    for (const std::size_t bytes : {100UL, 10'000UL}) expect_changes_found(kind, bytes);
  }
}

bool has_libcrypto() { return crypto::availability().is_ok(); }

ISOLATED_TEST(RecordCipher, IsTheStandards) {
  if (!has_libcrypto()) GTEST_SKIP() << crypto::availability().reason;
  expect_records_of_the_standard();
}
ISOLATED_TEST(RecordCipher, FindsChanges) {
  if (!has_libcrypto()) GTEST_SKIP() << crypto::availability().reason;
  expect_changes_found();
}
ISOLATED_TEST(RecordCipher, IsTheStandardsWithoutLibcrypto) {
  const test::ScopedEnvironment library("GIGABAR_CRYPTO_LIBRARY", "/nonexistent/libcrypto.so.3");
  ASSERT_FALSE(has_libcrypto());
  expect_records_of_the_standard();
}
ISOLATED_TEST(RecordCipher, FindsChangesWithoutLibcrypto) {
  const test::ScopedEnvironment library("GIGABAR_CRYPTO_LIBRARY", "/nonexistent/libcrypto.so.3");
  ASSERT_FALSE(has_libcrypto());
  expect_changes_found();
}

}  // namespace
}  // namespace gigabar::secure
