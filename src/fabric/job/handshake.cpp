// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/handshake.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace gigabar::fabric {
namespace {

constexpr std::string_view kMagic = "gbardir\n";
constexpr std::string_view kContext = "gigabar directory";

void append_number(std::string& bytes, std::uint32_t number) {
  for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xff);
}

std::uint32_t number_at(std::string_view bytes, std::size_t offset) {
  std::uint32_t number = 0;
  for (unsigned byte = 0; byte < 4; ++byte) number |= std::uint32_t{static_cast<unsigned char>(bytes[offset + byte])} << (8 * byte);
  return number;
}

const unsigned char* data_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

void hash(Secret& result, std::string_view text, const unsigned char* key, std::size_t key_bytes) {
  crypto_generichash(result.bytes.data(), result.bytes.size(), data_of(text), text.size(), key, key_bytes);
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
  std::string bytes(kMagic);
  append_number(bytes, hello.version);
  append_number(bytes, hello.rank);
  append_number(bytes, hello.rank_count);
  bytes.append(reinterpret_cast<const char*>(hello.nonce.data()), hello.nonce.size());
  return bytes;
}

std::optional<Hello> read_hello(std::string_view bytes) {
  if (bytes.size() < kHelloBytes || !bytes.starts_with(kMagic)) return {};
  Hello hello;
  hello.version = number_at(bytes, 8);
  hello.rank = number_at(bytes, 12);
  hello.rank_count = number_at(bytes, 16);
  std::copy_n(data_of(bytes) + 20, kNonceBytes, hello.nonce.begin());
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
  secret_ = JobKey({reinterpret_cast<const char*>(secret.bytes.data()), secret.bytes.size()});
}

Secret Handshake::derive(Purpose purpose, std::string_view member_hello, std::string_view server_hello) const {
  std::string all(1, static_cast<char>(purpose));
  all += member_hello;
  all += server_hello;
  Secret result;
  hash(result, all, data_of(secret_.bytes()), secret_.bytes().size());
  return result;
}

std::string Handshake::directory_name(std::uint16_t port) const {
  const Secret name = derive(Purpose::name, std::to_string(port) + " ", std::to_string(::geteuid()));
  constexpr std::size_t kNameBytes = 16;
  std::array<char, 2 * kNameBytes + 1> digits{};
  return std::string("gigabar-directory-") + sodium_bin2hex(digits.data(), digits.size(), name.bytes.data(), kNameBytes);
}

std::string proof_text(const Secret& proof) { return {reinterpret_cast<const char*>(proof.bytes.data()), proof.bytes.size()}; }

bool is_proof(const Secret& expected, std::string_view bytes) {
  return bytes.size() == expected.bytes.size() && sodium_memcmp(expected.bytes.data(), bytes.data(), expected.bytes.size()) == 0;
}

}  // namespace gigabar::fabric
