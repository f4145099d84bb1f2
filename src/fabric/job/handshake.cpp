// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/handshake.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/bytes.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::string_view kMagic = "gbardir\n";
constexpr std::string_view kContext = "gigabar directory";

void hash(Secret& result, std::string_view text, const unsigned char* key, std::size_t key_bytes) {
  crypto_generichash(result.bytes.data(), result.bytes.size(), unsigned_bytes(text), text.size(), key, key_bytes);
}

}  // namespace

Hello make_hello(const Job& job) {
  Hello hello;
  hello.rank = job.rank;
  hello.rank_count = job.rank_count;
  randombytes_buf(hello.nonce.data(), hello.nonce.size());
  return hello;
}

std::string write_hello(const Hello& hello) {
  ByteWriter writer(kMagic);
  writer.number(hello.version).number(hello.rank).number(hello.rank_count).bytes(view_of(hello.nonce));
  return writer.take();
}

std::optional<Hello> read_hello(std::string_view bytes) {
  ByteReader reader(bytes);
  reader.expect(reader.bytes(kMagic.size()) == kMagic);
  Hello hello;
  hello.version = reader.number<std::uint32_t>();
  hello.rank = reader.number<Rank>();
  hello.rank_count = reader.number<Rank>();
  hello.nonce = reader.array<kNonceBytes>();
  if (!reader.is_ok()) return {};
  return hello;
}

bool begins_hello(std::string_view bytes) {
  const std::size_t count = std::min(bytes.size(), kMagic.size());
  return bytes.substr(0, count) == kMagic.substr(0, count);
}

void Secret::wipe() noexcept { sodium_memzero(bytes.data(), bytes.size()); }

Handshake::Handshake(const Job& job) {
  // A key may be longer than the hash takes.
  Secret key, secret;
  hash(key, job.key.is_set() ? job.key.bytes() : std::string_view(job.id), nullptr, 0);
  hash(secret, std::string(kContext) + (job.key.is_set() ? " key " : " no key ") + job.id, key.bytes.data(), key.bytes.size());
  secret_ = JobKey(view_of(secret.bytes));
}

Secret Handshake::derive(Purpose purpose, std::string_view member_hello, std::string_view server_hello) const {
  std::string all(1, static_cast<char>(purpose));
  all += member_hello;
  all += server_hello;
  Secret result;
  hash(result, all, unsigned_bytes(secret_.bytes()), secret_.bytes().size());
  return result;
}

std::string Handshake::directory_name(std::uint16_t port) const {
  const Secret name = derive(Purpose::name, std::to_string(port) + " ", std::to_string(::geteuid()));
  constexpr std::size_t kNameBytes = 16;
  std::array<char, 2 * kNameBytes + 1> digits{};
  return std::string("gigabar-directory-") + sodium_bin2hex(digits.data(), digits.size(), name.bytes.data(), kNameBytes);
}

std::string proof_text(const Secret& proof) { return std::string(view_of(proof.bytes)); }

bool is_proof(const Secret& expected, std::string_view bytes) {
  return bytes.size() == expected.bytes.size() && sodium_memcmp(expected.bytes.data(), bytes.data(), expected.bytes.size()) == 0;
}

}  // namespace gigabar::fabric
