// SPDX-License-Identifier: Apache-2.0
// How two ranks find out that both hold the job's key, and what they encrypt with afterwards.
//
//   initiator                                acceptor
//   prefix                            ->
//                                     <-     prefix, challenge
//   the rest of the hello             ->
//                                     <-     prefix, hello; or a prefix with a verdict, and the end
//   prefix, proof                     ->
//                                     <-     prefix, proof; or a prefix with a verdict, and the end
//
// A hello carries a keyed hash over itself and the challenge, which is new for every connection: who does not hold the key, or
// repeats what he overheard, costs the acceptor two hashes and no exchange of keys. The initiator proves first: who only knows the
// address, or the job's id, gets nothing that was made with the key. Every message begins with the same prefix in all versions of
// the protocol, so that two versions can tell each other's number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/job/job.hpp"

namespace gigabar::fabric::wireup {

inline constexpr std::uint32_t kProtocolVersion = 2;

// 32 secret bytes, wiped when they go.
class Secret {
 public:
  Secret() noexcept = default;
  Secret(const Secret&) noexcept = default;
  Secret& operator=(const Secret&) noexcept = default;
  ~Secret();

  unsigned char* data() noexcept { return bytes_.data(); }
  const unsigned char* data() const noexcept { return bytes_.data(); }
  static constexpr std::size_t bytes() noexcept { return 32; }

 private:
  std::array<unsigned char, 32> bytes_{};
};

// What this rank says of itself in every handshake.
struct Identity {
  JobKey secret;  // from the job's key; without one, from its id
  bool has_key = false;
  std::string job_id;
  Rank rank = 0;
  Rank rank_count = 1;
  std::uint32_t version = kProtocolVersion;
};
// Nothing when libsodium cannot be used (no source of random numbers).
std::optional<Identity> identity_of(const Job& job);

enum class Verdict : std::uint32_t {
  proceed = 0,  // the rest of the message follows
  version = 1,  // the acceptor does not speak this version; its own is in the prefix
  refused = 2,  // another job, an impossible rank, a proof with another key: a stranger is not told which
  occupied = 3  // a channel between the two ranks is there or about to be
};

inline constexpr std::size_t kPrefixBytes = 16;
// All with their prefix.
inline constexpr std::size_t kChallengeBytes = 48;
inline constexpr std::size_t kHelloBytes = 160;
inline constexpr std::size_t kProofBytes = 48;

struct Prefix {
  std::uint32_t version = 0;
  Verdict verdict = Verdict::proceed;
};
std::string encode(const Prefix& prefix);
// Nothing: these are no bytes of this protocol. `bytes` has at least kPrefixBytes.
std::optional<Prefix> decode_prefix(std::string_view bytes);

enum class Role : std::uint8_t { initiator, acceptor };
enum class HelloFault : std::uint8_t { none, malformed, version, job, rank, key };

// A direction each.
struct SessionKeys {
  Secret send;
  Secret receive;
};

// The random part of a handshake at one end.
struct Ephemeral {
  static Ephemeral fresh();
  Secret private_key;
  std::array<unsigned char, 32> nonce{};  // of the hello
};

// One handshake, at one end. In this order: the challenge, the initiator's hello, the acceptor's hello, proofs.
class Handshake {
 public:
  Handshake(const Identity& identity, Role role, Ephemeral ephemeral = Ephemeral::fresh());

  // The acceptor's.
  std::string challenge();
  // The initiator's: of the acceptor's challenge, kChallengeBytes. False: malformed, or of another version (decode_prefix).
  bool take_challenge(std::string_view bytes);
  // This end's hello to `peer`.
  std::string hello(Rank peer);
  // Checks the other end's hello, kHelloBytes. An initiator has said hello before and hears the rank that it called, or
  // HelloFault::rank. `key`: it was not made with the job's key for this connection; until then nothing but hashes was
  // computed. `malformed` also for a public key that gives no secret.
  HelloFault take_hello(std::string_view bytes);
  // Who the other end says it is; proven only by is_proven().
  Rank peer() const noexcept { return peer_; }

  // Both hellos are known.
  std::string proof() const;
  // Whether the other end's proof, kProofBytes, was made with the job's key for these two hellos and its role. Takes the same time
  // for every wrong one.
  bool is_proven(std::string_view bytes) const;
  SessionKeys session() const;

 private:
  void agree();
  Secret hash_of(std::string_view hello, bool is_initiators) const;
  Secret derive(std::string_view purpose) const;

  const Identity& identity_;
  Role role_;
  Rank peer_ = kAnyRank;
  Ephemeral ephemeral_;
  Secret shared_;  // of the exchange
  Secret master_;
  std::string challenge_, own_hello_, peer_hello_;
};

}  // namespace gigabar::fabric::wireup
