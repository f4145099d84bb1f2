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

constexpr std::size_t kTag = RecordCipher::kAuthenticatorBytes;
using Head = std::array<unsigned char, 4>;
constexpr Head kHead{1, 2, 3, 4};
const std::string kKey = "32 bytes that nobody else knows!";

using Bytes = std::vector<unsigned char>;

RecordCipher cipher(Cipher kind) { return {Secret(kKey), kind}; }
std::vector<Cipher> ciphers_here() {
  if (best_cipher() == Cipher::chacha20_poly1305) return {Cipher::chacha20_poly1305};
  return {Cipher::chacha20_poly1305, Cipher::aes_256_gcm};
}

// With room for the authenticator.
Bytes text_of(std::size_t bytes) {
  Bytes text(bytes + kTag);
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<unsigned char>(i * 7 + 3);
  return text;
}

// From three pieces, one of them empty, to elsewhere.
bool seal(RecordCipher& sealing, const Head& head, Bytes& record) {
  Bytes source = record;
  const std::size_t bytes = record.size() - kTag, first = bytes / 3;
  const iovec pieces[] = {{source.data(), first}, {nullptr, 0}, {source.data() + first, source.size() - first}};
  std::ranges::fill(record, 0);
  return sealing.seal(head.data(), head.size(), pieces, record.data(), bytes);
}
bool open(RecordCipher& opening, const Head& head, Bytes& record) {
  return opening.open(head.data(), head.size(), record.data(), record.size() - kTag);
}

// What the standards say that record `number` is, as libsodium computes it.
Bytes sealed_by_sodium(Cipher kind, Bytes text, std::uint64_t number, const std::string& key = kKey) {
  std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> nonce{};
  std::memcpy(nonce.data() + 4, &number, sizeof number);
  const auto encrypt = kind == Cipher::aes_256_gcm ? crypto_aead_aes256gcm_encrypt : crypto_aead_chacha20poly1305_ietf_encrypt;
  encrypt(text.data(), nullptr, text.data(), text.size() - kTag, kHead.data(), kHead.size(), nullptr, nonce.data(),
          reinterpret_cast<const unsigned char*>(key.data()));
  return text;
}

std::string key_behind(const std::string& key) {
  std::string next(key.size(), 0);
  crypto_kdf_derive_from_key(reinterpret_cast<unsigned char*>(next.data()), next.size(), 1, "gb_next_",
                             reinterpret_cast<const unsigned char*>(key.data()));
  return next;
}

void expect_records_of_the_standard() {
  for (const Cipher kind : ciphers_here()) {
    SCOPED_TRACE(name_of(kind));
    RecordCipher sealing = cipher(kind), opening = cipher(kind);
    std::uint64_t number = 0;
    for (const std::size_t bytes :
         {1UL, 15UL, 16UL, 17UL, 63UL, 64UL, 65UL, 255UL, 256UL, 511UL, 512UL, 513UL, 4095UL, 65536UL, kRecordBytes}) {
      Bytes record = text_of(bytes);
      ASSERT_TRUE(seal(sealing, kHead, record));
      EXPECT_EQ(record, sealed_by_sodium(kind, text_of(bytes), number++)) << bytes;
      ASSERT_TRUE(open(opening, kHead, record)) << bytes;
      record.resize(bytes);
      Bytes sent = text_of(bytes);
      sent.resize(bytes);
      EXPECT_EQ(record, sent);
    }
  }
}

// Twice, by records of both kinds: those that libcrypto seals and those that it does not.
void expect_keys_that_change() {
  constexpr std::uint64_t kEach = RecordCipher::kRecordsPerKey;
  for (const Cipher kind : ciphers_here()) {
    SCOPED_TRACE(name_of(kind));
    RecordCipher sealing = cipher(kind), opening = cipher(kind);
    std::string key = kKey;
    for (std::uint64_t number = 0; number < 2 * kEach + 2; ++number) {
      if (number == kEach || number == 2 * kEach) key = key_behind(key);
      const bool is_near = (number + 2) % kEach < 4;  // to a change of the key
      const std::size_t bytes = is_near && number % 2 == 0 ? 1000 : 1;
      Bytes record = text_of(bytes);
      ASSERT_TRUE(seal(sealing, kHead, record));
      if (is_near) {
        EXPECT_EQ(record, sealed_by_sodium(kind, text_of(bytes), number, key)) << number;
      }
      ASSERT_TRUE(open(opening, kHead, record)) << number;
    }
    EXPECT_NE(key, kKey);
  }
}

template <class Spoil>
bool opens_after(Cipher kind, std::size_t bytes, const Spoil& spoil) {
  RecordCipher sealing = cipher(kind), opening = cipher(kind);
  Bytes record = text_of(bytes);
  Head head = kHead;
  EXPECT_TRUE(seal(sealing, head, record));
  spoil(record, head, opening);
  return open(opening, head, record);
}

void expect_changes_found(Cipher kind, std::size_t bytes) {
  SCOPED_TRACE(testing::Message() << name_of(kind) << ", " << bytes);
  EXPECT_TRUE(opens_after(kind, bytes, [](Bytes&, Head&, RecordCipher&) {}));
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, bytes / 2, bytes - 1, bytes, bytes + kTag - 1}) {
    EXPECT_FALSE(opens_after(kind, bytes, [&](Bytes& record, Head&, RecordCipher&) { record[at] ^= 1; })) << at;
  }
  EXPECT_FALSE(opens_after(kind, bytes, [](Bytes&, Head& head, RecordCipher&) { head[3] ^= 0x80; })) << "the head";
  EXPECT_FALSE(opens_after(kind, bytes, [](Bytes&, Head&, RecordCipher& opening) {
    Bytes earlier = text_of(1);
    open(opening, kHead, earlier);
  })) << "another record was lost or came twice";
  EXPECT_FALSE(opens_after(kind, bytes, [&](Bytes&, Head&, RecordCipher& opening) {
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
ISOLATED_TEST(RecordCipher, ChangesItsKey) {
  if (!has_libcrypto()) GTEST_SKIP() << crypto::availability().reason;
  expect_keys_that_change();
}
ISOLATED_TEST(RecordCipher, ChangesItsKeyWithoutLibcrypto) {
  const test::ScopedEnvironment library("GIGABAR_CRYPTO_LIBRARY", "/nonexistent/libcrypto.so.3");
  ASSERT_FALSE(has_libcrypto());
  expect_keys_that_change();
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
