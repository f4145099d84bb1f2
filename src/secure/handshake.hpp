// SPDX-License-Identifier: Apache-2.0
// How two ranks find out that both hold the job's key, and what they encrypt with afterwards.
//
//   initiator                                acceptor
//   prefix                            ->
//                                     <-     prefix, challenge
//   the rest of the hello             ->
//                                     <-     prefix, hello; or a prefix with a verdict, and the end
//   prefix, stream header, proof      ->
//                                     <-     prefix with a verdict, stream header, proof; or a prefix with a verdict, and the end
//
// A hello carries a keyed hash over all that was said before it and itself, the challenge, which is new for every connection, among
// it: who does not hold the key, or repeats what he overheard, costs the acceptor two hashes and no exchange of keys. The initiator
// shows the key first: who only knows the address, or the job's id, gets nothing that was made with the key. Every message begins
// with the same prefix in all versions of the protocol, so that two versions can tell each other's number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gigabar/types.hpp"
#include "secure/channel.hpp"
#include "secure/secret.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

inline constexpr std::uint32_t kProtocolVersion = 4;

// What a channel is for: a hello of one purpose is none of the other.
enum class Purpose : std::uint32_t { directory = 1, wireup = 2, transfer = 3 };

// What this rank says of itself in every handshake.
struct Identity {
  Secret secret;  // from the job's key; without one, from its id
  bool has_key = false;
  std::string job_id;
  Rank rank = 0;
  Rank rank_count = 1;
  Purpose purpose = Purpose::wireup;
  std::uint32_t version = kProtocolVersion;
};
// `key` may be not set. Throws std::bad_alloc, also when there is no source of random numbers.
Identity make_identity(const Secret& key, const std::string& job_id, Rank rank, Rank rank_count, Purpose purpose);
// 32 hexadecimal digits that follow from the identity's secret, the job's id and `what`, and that nobody without them can tell.
std::string secret_name(const Identity& identity, std::string_view what);

enum class Verdict : std::uint32_t {
  proceed = 0,     // the rest of the message follows
  version = 1,     // the acceptor does not speak this version; its own is in the prefix
  refused = 2,     // another job, an impossible rank, a proof with another key: a stranger is not told which
  occupied = 3,    // with the proof: a channel between the two ranks is there or about to be
  wrong_count = 4  // with the proof: the acceptor counts other ranks, as its hello says
};

inline constexpr std::size_t kPrefixBytes = 16;
// All with their prefix.
inline constexpr std::size_t kChallengeBytes = 48;
inline constexpr std::size_t kHelloBytes = 128;
inline constexpr std::size_t kProofBytes = 72;

struct Prefix {
  std::uint32_t version = 0;
  Verdict verdict = Verdict::proceed;
};
std::string encode(const Prefix& prefix);
// Nothing: these are no bytes of this protocol. `bytes` has at least kPrefixBytes.
std::optional<Prefix> decode_prefix(std::string_view bytes);
// Who a hello of kHelloBytes says that it is from.
Rank rank_in_hello(std::string_view hello);

enum class Role : std::uint8_t { initiator, acceptor };
enum class HelloFault : std::uint8_t { none, malformed, version, job, rank, key };

// The private key of one end, for one handshake.
Secret fresh_private_key();

// One handshake, at one end. In this order: the challenge, the initiator's hello, the acceptor's hello, proofs.
class Handshake {
 public:
  // `private_key` is made when it is needed.
  Handshake(const Identity& identity, Role role, Secret private_key = {});

  std::uint32_t version() const noexcept { return identity_.version; }
  // The acceptor's.
  std::string challenge();
  // The initiator's: of the acceptor's challenge, kChallengeBytes. False: malformed, or of another version (decode_prefix).
  bool take_challenge(std::string_view bytes);
  // This end's hello to `peer`.
  std::string hello(Rank peer);
  // Checks the other end's hello, kHelloBytes. An initiator has said hello before and hears the rank that it called, or
  // HelloFault::rank. `job`: of another job or purpose, or (not with a directory) another number of ranks. `key`: it was not made
  // with the job's key for this connection; until then nothing but hashes was computed. `malformed` also for a public key that
  // gives no secret.
  HelloFault take_hello(std::string_view bytes);
  // Who the other end says it is, and how many ranks it counts; proven only by take_proof().
  Rank peer() const noexcept { return peer_; }
  Rank peer_rank_count() const noexcept { return peer_rank_count_; }

  // Both hellos are known. An initiator's verdict is `proceed`.
  std::string proof(Verdict verdict = Verdict::proceed) const;
  // Whether the other end's proof, kProofBytes, was made with the job's key for these two hellos, its role, its verdict and its
  // stream. Takes the same time for every wrong one.
  bool take_proof(std::string_view bytes);
  // Of the other end's proof.
  Verdict verdict() const noexcept { return verdict_; }
  // After take_proof(), once.
  Sealer take_sealer() noexcept { return std::move(sealer_); }
  Opener take_opener() noexcept { return std::move(opener_); }
  // After take_proof(): what the end of that role encrypts with, where the frames are not the stream's.
  Secret data_key(Role role) const { return key("data", role); }
  // After take_proof(), once. `connection`: over which all of it was said.
  Established establish(Connection connection);

 private:
  const unsigned char* private_key();
  void agree();
  std::string hash_of(std::string_view hello, Role role) const;
  std::string proof_of(std::string_view message, Role role) const;
  Secret key(std::string_view what, Role role) const;
  std::string& hello_of(Role role) noexcept { return hellos_[static_cast<std::size_t>(role)]; }
  Role other_role() const noexcept { return role_ == Role::initiator ? Role::acceptor : Role::initiator; }

  const Identity& identity_;
  Role role_;
  Rank peer_ = kAnyRank;
  Rank peer_rank_count_ = 0;
  Verdict verdict_ = Verdict::refused;
  Secret private_key_;
  Secret shared_;  // of the exchange
  Secret master_;
  Sealer sealer_;
  Opener opener_;
  std::string challenge_;
  std::array<std::string, 2> hellos_;  // the initiator's, the acceptor's
};

}  // namespace gigabar::secure
