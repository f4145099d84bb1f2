// How two ranks find out that both hold the job's key, and what they encrypt with afterwards.
//
//   initiator                                acceptor
//   prefix, hello                     ->
//                                     <-     prefix, hello; or a prefix with a verdict, and the end
//   prefix, proof                     ->
//                                     <-     prefix, proof; or a prefix with a verdict, and the end
//
// The initiator proves first: who only knows the address, or the job's id, gets nothing that was made with the key. Every message
// begins with the same prefix in all versions of the protocol, so that two versions can tell each other's number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/job/job.hpp"

namespace gigabar::fabric::wireup {

inline constexpr std::uint32_t kProtocolVersion = 1;

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
  Secret secret;  // from the job's key; without one, from its id
  bool has_key = false;
  std::string job_id;
  Rank rank = 0;
  Rank rank_count = 1;
  std::uint32_t version = kProtocolVersion;
};
// Nothing when libsodium cannot be used (no source of random numbers).
std::optional<Identity> identity_of(const Job& job);

enum class Verdict : std::uint32_t {
  go_on = 0,    // the rest of the message follows
  version = 1,  // the acceptor does not speak this version; its own is in the prefix
  refused = 2,  // another job, an impossible rank, a proof with another key: a stranger is not told which
  occupied = 3  // a channel between the two ranks is there or about to be
};

inline constexpr std::size_t kPrefixBytes = 16;
inline constexpr std::size_t kHelloBytes = 128;  // with its prefix
inline constexpr std::size_t kProofBytes = 48;   // with its prefix

struct Prefix {
  std::uint32_t version = 0;
  Verdict verdict = Verdict::go_on;
};
std::string encode(const Prefix& prefix);
// Nothing: these are no bytes of this protocol. `bytes` has at least kPrefixBytes.
std::optional<Prefix> decode_prefix(std::string_view bytes);

enum class Role : std::uint8_t { initiator, acceptor };
enum class HelloFault : std::uint8_t { none, malformed, version, job, rank };

// A direction each.
struct SessionKeys {
  Secret send;
  Secret receive;
};

// One handshake, at one end.
class Handshake {
 public:
  Handshake(const Identity& identity, Role role);

  // This end's hello to `peer`.
  std::string hello(Rank peer);
  // Checks the other end's hello, kHelloBytes. An initiator has said hello before and hears the rank that it called, or
  // HelloFault::rank. `malformed` also for a key that gives no secret.
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
  bool agree();
  Secret derive(std::string_view purpose) const;

  const Identity& identity_;
  Role role_;
  Rank peer_ = kAnyRank;
  Secret private_key_;
  Secret master_;
  std::string own_hello_, peer_hello_;
};

}  // namespace gigabar::fabric::wireup
