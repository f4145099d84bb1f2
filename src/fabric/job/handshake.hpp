// SPDX-License-Identifier: Apache-2.0
// How a rank and the bootstrap server of the directory prove to each other that they hold the job's key, and what they send each
// other after.
//
//   member -> server  hello           magic, version, rank, rank count, 32 random bytes
//   server -> member  hello           the same of rank 0
//   member -> server  proof           keyed hash over both hellos and the member's role
//   server -> member  proof, verdict  the bootstrap server's; then sealed messages in both directions
//
// The member proves itself first, so that a stranger learns nothing but that somebody listens. A server that refuses the proof
// answers with zeros. The key of the hash is made from the job's key and id; without a key the id stands in for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/job/job.hpp"

namespace gigabar::fabric {

inline constexpr std::uint32_t kDirectoryVersion = 1;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kHelloBytes = 8 + 3 * 4 + kNonceBytes;
inline constexpr std::size_t kProofBytes = 32;

struct Hello {
  std::uint32_t version = kDirectoryVersion;
  Rank rank = 0;
  Rank rank_count = 0;
  std::array<unsigned char, kNonceBytes> nonce{};
};
// With fresh random bytes.
Hello make_hello(const Job& job);
std::string write_hello(const Hello& hello);
// Nothing: too short, or of something else than a directory.
std::optional<Hello> read_hello(std::string_view bytes);
// Whether these can be the first bytes of one, however few they are.
bool begins_hello(std::string_view bytes);

// 32 bytes that are wiped when they go.
class Secret {
 public:
  Secret() noexcept = default;
  Secret(const Secret&) noexcept = default;
  Secret& operator=(const Secret&) noexcept = default;
  Secret(Secret&& other) noexcept : bytes(other.bytes) { other.wipe(); }
  Secret& operator=(Secret&& other) noexcept {
    bytes = other.bytes;
    if (this != &other) other.wipe();
    return *this;
  }
  ~Secret() { wipe(); }
  void wipe() noexcept;

  std::array<unsigned char, 32> bytes{};
};

// What a hash is for: one that was made for one purpose proves nothing for another.
enum class Purpose : char { member_proof = 'm', server_proof = 'k', member_sends = 'M', server_sends = 'K', name = 'n' };

class Handshake {
 public:
  explicit Handshake(const Job& job);
  // Over both hellos as they were sent.
  Secret derive(Purpose purpose, std::string_view member_hello, std::string_view server_hello) const;
  // The name of the Unix socket where a job of one host has its directory. With a key nobody else can tell it before it is taken.
  std::string directory_name(std::uint16_t port) const;

 private:
  JobKey secret_;
};

std::string proof_text(const Secret& proof);
// In a time that says nothing of where they differ.
bool is_proof(const Secret& expected, std::string_view bytes);

}  // namespace gigabar::fabric
