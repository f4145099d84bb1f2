// SPDX-License-Identifier: Apache-2.0
// Handshakes and sealed frames without sockets.
#include <gtest/gtest.h>
#include <sodium.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

struct Pair {
  explicit Pair(const Job& left = job_of(0, 4), const Job& right = job_of(3, 4))
      : left_identity(*identity_of(left)),
        right_identity(*identity_of(right)),
        initiator(left_identity, Role::initiator),
        acceptor(right_identity, Role::acceptor) {}

  std::string first_hello() {
    initiator.take_challenge(acceptor.challenge());  // not when they speak different versions
    return initiator.hello(right_identity.rank);
  }
  // What the acceptor finds, then the initiator.
  std::pair<HelloFault, HelloFault> exchange_hellos() {
    const HelloFault heard = acceptor.take_hello(first_hello());
    if (heard != HelloFault::none) return {heard, HelloFault::none};
    return {heard, initiator.take_hello(acceptor.hello(acceptor.peer()))};
  }

  Identity left_identity, right_identity;
  Handshake initiator, acceptor;
};

bool is_equal(const Secret& left, const Secret& right) { return std::memcmp(left.data(), right.data(), Secret::bytes()) == 0; }

TEST(WireupHandshake, BothProveAndShareKeys) {
  for (const std::string& key : {kKey, std::string()}) {
    Pair pair(job_of(0, 4, key), job_of(3, 4, key));
    EXPECT_EQ(pair.exchange_hellos(), std::make_pair(HelloFault::none, HelloFault::none));
    EXPECT_EQ(pair.acceptor.peer(), 0u);
    EXPECT_TRUE(pair.acceptor.is_proven(pair.initiator.proof()));
    EXPECT_TRUE(pair.initiator.is_proven(pair.acceptor.proof()));
    const SessionKeys left = pair.initiator.session();
    const SessionKeys right = pair.acceptor.session();
    EXPECT_TRUE(is_equal(left.send, right.receive));
    EXPECT_TRUE(is_equal(left.receive, right.send));
    EXPECT_FALSE(is_equal(left.send, left.receive));
  }
}

TEST(WireupHandshake, ProofsAreOfOneRoleOneKeyOneExchange) {
  Pair pair;
  pair.exchange_hellos();
  EXPECT_FALSE(pair.acceptor.is_proven(pair.acceptor.proof())) << "its own, reflected";
  EXPECT_FALSE(pair.initiator.is_proven(pair.initiator.proof())) << "its own, reflected";
  Pair again;
  again.exchange_hellos();
  EXPECT_FALSE(again.acceptor.is_proven(pair.initiator.proof())) << "replayed";
}

// Before anything is computed that costs more than a hash.
TEST(WireupHandshake, AHelloIsOfOneKeyAndOneChallenge) {
  const auto found = [](const Job& left, const Job& right) { return Pair(left, right).exchange_hellos().first; };
  EXPECT_EQ(found(job_of(0, 4), job_of(3, 4, "another key of many bytes")), HelloFault::key);
  EXPECT_EQ(found(job_of(0, 4), job_of(3, 4, "")), HelloFault::key);
  EXPECT_EQ(found(job_of(0, 4, ""), job_of(3, 4)), HelloFault::key);
  EXPECT_EQ(found(job_of(0, 4, "", kKey), job_of(3, 4, kKey, kKey)), HelloFault::key) << "a job's id that is another job's key";

  Pair pair;
  const std::string hello = pair.first_hello();
  Handshake again(pair.right_identity, Role::acceptor);
  EXPECT_EQ(again.take_hello(hello), HelloFault::key) << "before there is a challenge";
  again.challenge();
  EXPECT_EQ(again.take_hello(hello), HelloFault::key) << "of another connection";
  EXPECT_EQ(pair.acceptor.take_hello(hello), HelloFault::none);
  // An acceptor's hello is none of an initiator's, and the other way round.
  Pair reflected;
  EXPECT_EQ(reflected.initiator.take_hello(reflected.first_hello()), HelloFault::rank);
  for (const std::size_t bytes : {std::size_t{0}, kChallengeBytes - 1, kChallengeBytes + 1})
    EXPECT_FALSE(pair.initiator.take_challenge(std::string(bytes, 'x')));
  for (const Prefix& prefix : {Prefix{kProtocolVersion, Verdict::refused}, Prefix{kProtocolVersion + 1, Verdict::proceed}})
    EXPECT_FALSE(pair.initiator.take_challenge(encode(prefix) + std::string(32, 'x')));
}

std::string exchanged(const Ephemeral& own, const Ephemeral& other) {
  std::array<unsigned char, crypto_scalarmult_BYTES> public_key{}, shared{};
  EXPECT_EQ(crypto_scalarmult_base(public_key.data(), other.private_key.data()), 0);
  EXPECT_EQ(crypto_scalarmult(shared.data(), own.private_key.data(), public_key.data()), 0);
  return {reinterpret_cast<const char*>(shared.data()), shared.size()};
}

// BLAKE2b over parts with their lengths, by libsodium and nothing of ours.
std::string hash_of(std::string_view key, std::initializer_list<std::string_view> parts) {
  crypto_generichash_state state;
  const auto* const key_bytes = reinterpret_cast<const unsigned char*>(key.data());
  crypto_generichash_init(&state, key.empty() ? nullptr : key_bytes, key.size(), 32);
  for (const std::string_view part : parts) {
    std::array<unsigned char, 8> length{};
    for (unsigned byte = 0; byte < 8; ++byte) length[byte] = static_cast<unsigned char>(part.size() >> (8 * byte));
    crypto_generichash_update(&state, length.data(), length.size());
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(part.data()), part.size());
  }
  std::string digest(32, '\0');
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(digest.data()), digest.size());
  return digest;
}

std::string_view text_of(const Secret& secret) { return {reinterpret_cast<const char*>(secret.data()), Secret::bytes()}; }

// The keys as the protocol says, computed here once more. Without the exchanged secret in them, everybody who comes to hold the
// job's key later could read what was overheard before.
TEST(WireupHandshake, TheKeysAreMadeOfTheJobsKeyTheExchangeAndAllThatWasSaid) {
  const Identity left = *identity_of(job_of(0, 4)), right = *identity_of(job_of(3, 4));
  const Ephemeral first = Ephemeral::fresh(), second = Ephemeral::fresh();
  Handshake initiator(left, Role::initiator, first), acceptor(right, Role::acceptor, second);
  const std::string challenge = acceptor.challenge();
  ASSERT_TRUE(initiator.take_challenge(challenge));
  const std::string hello = initiator.hello(3);
  ASSERT_EQ(acceptor.take_hello(hello), HelloFault::none);
  const std::string answer = acceptor.hello(0);
  ASSERT_EQ(initiator.take_hello(answer), HelloFault::none);

  const std::string shared = exchanged(first, second);
  ASSERT_EQ(shared, exchanged(second, first));
  const std::string secret = hash_of({}, {"gigabar job key", kKey});
  const std::string master = hash_of(secret, {"gigabar wire-up", shared, challenge, hello, answer});
  EXPECT_EQ(text_of(initiator.session().send), hash_of(master, {"frames of the initiator"}));
  EXPECT_EQ(text_of(initiator.session().receive), hash_of(master, {"frames of the acceptor"}));
  EXPECT_EQ(text_of(acceptor.session().send), hash_of(master, {"frames of the acceptor"}));
  EXPECT_EQ(initiator.proof().substr(kPrefixBytes), hash_of(master, {"proof of the initiator"}));
  EXPECT_EQ(acceptor.proof().substr(kPrefixBytes), hash_of(master, {"proof of the acceptor"}));
  // Hellos end with a hash that is made with the key, of the challenge and of what is before it.
  constexpr std::size_t kBefore = kHelloBytes - 32;
  EXPECT_EQ(hello.substr(kBefore), hash_of(secret, {"hello of the initiator", challenge, hello.substr(0, kBefore)}));
  EXPECT_EQ(answer.substr(kBefore), hash_of(secret, {"hello of the acceptor", challenge, answer.substr(0, kBefore)}));
}

TEST(WireupHandshake, EveryBitOfAProofCounts) {
  Pair pair;
  pair.exchange_hellos();
  const std::string proof = pair.initiator.proof();
  for (std::size_t bit = 8 * kPrefixBytes; bit < 8 * proof.size(); ++bit) {
    std::string changed = proof;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(pair.acceptor.is_proven(changed)) << bit;
  }
  EXPECT_FALSE(pair.acceptor.is_proven(proof.substr(1)));
  EXPECT_FALSE(pair.acceptor.is_proven(""));
}

// Whatever is changed in a hello on its way: it is refused.
TEST(WireupHandshake, EveryBitOfBothHellosCounts) {
  for (std::size_t bit = 0; bit < 8 * kHelloBytes; ++bit) {
    for (const bool is_first : {true, false}) {
      Pair pair;
      const auto change = [&](std::string hello, bool is_changed) {
        if (is_changed) hello[bit / 8] = static_cast<char>(hello[bit / 8] ^ (1 << (bit % 8)));
        return hello;
      };
      const HelloFault first = pair.acceptor.take_hello(change(pair.first_hello(), is_first));
      if (is_first) {
        ASSERT_NE(first, HelloFault::none) << bit;
        continue;
      }
      ASSERT_NE(pair.initiator.take_hello(change(pair.acceptor.hello(pair.acceptor.peer()), true)), HelloFault::none) << bit;
    }
  }
}

TEST(WireupHandshake, HelloFaultsSayWhich) {
  const auto fault = [](const Job& left, const Job& right, std::uint32_t version = kProtocolVersion) {
    Pair pair(left, right);
    pair.left_identity.version = version;
    return pair.exchange_hellos().first;
  };
  EXPECT_EQ(fault(job_of(0, 4), job_of(3, 4)), HelloFault::none);
  EXPECT_EQ(fault(job_of(0, 4), job_of(3, 4), kProtocolVersion + 1), HelloFault::version);
  EXPECT_EQ(fault(job_of(0, 4, kKey, "job 2"), job_of(3, 4)), HelloFault::job);
  EXPECT_EQ(fault(job_of(0, 5), job_of(3, 4)), HelloFault::job);
  EXPECT_EQ(fault(job_of(4, 4), job_of(3, 4)), HelloFault::rank) << "there is no rank 4";
  EXPECT_EQ(fault(job_of(3, 4), job_of(3, 4)), HelloFault::rank) << "it is that rank itself";
  Pair wrong_callee;
  wrong_callee.first_hello();
  EXPECT_EQ(wrong_callee.acceptor.take_hello(wrong_callee.initiator.hello(2)), HelloFault::rank);
  Pair wrong_answer(job_of(0, 4), job_of(3, 4));
  Identity other = *identity_of(job_of(2, 4));
  Handshake impostor(other, Role::acceptor);
  wrong_answer.first_hello();
  EXPECT_EQ(wrong_answer.initiator.take_hello(impostor.hello(0)), HelloFault::rank);
}

// A public key of low order would make the session's secret known to everybody. One who holds the job's key sends it.
TEST(WireupHandshake, WeakPublicKeysAreRefused) {
  constexpr std::size_t kBefore = kHelloBytes - 32, kPublicKey = 64;
  const std::string secret = hash_of({}, {"gigabar job key", kKey});
  for (const char first : {'\0', '\1'}) {
    Pair pair;
    const std::string challenge = pair.acceptor.challenge();
    ASSERT_TRUE(pair.initiator.take_challenge(challenge));
    std::string weak = pair.initiator.hello(3).substr(0, kBefore);
    weak.replace(kPublicKey, 32, 32, '\0');
    weak[kPublicKey] = first;
    weak += hash_of(secret, {"hello of the initiator", challenge, weak});
    EXPECT_EQ(pair.acceptor.take_hello(weak), HelloFault::malformed);
    EXPECT_EQ(pair.acceptor.peer(), kAnyRank) << "nothing of it is kept";
    EXPECT_EQ(pair.acceptor.take_hello(pair.initiator.hello(3)), HelloFault::none);
  }
}

TEST(WireupHandshake, HellosOfOneJobLookDifferent) {
  Pair pair;
  Pair again;
  EXPECT_NE(pair.first_hello().substr(96, 32), again.first_hello().substr(96, 32)) << "the job's tag";
}

Secret secret_of(char fill) {
  Secret secret;
  std::memset(secret.data(), fill, Secret::bytes());
  return secret;
}

TEST(WireupSeal, FramesComeBackInOrder) {
  Sealer sealer(secret_of('k'));
  Opener opener(secret_of('k'));
  const std::vector<std::size_t> lengths{0, 1, 17, 4096, kMaxFrameBytes};
  std::string wire;
  for (const std::size_t length : lengths) wire += sealer.seal(static_cast<std::uint16_t>(length % 77), 3, pattern(length, length));
  std::string_view left = wire;
  for (const std::size_t length : lengths) {
    OpenedFrame frame;
    ASSERT_EQ(opener.open(left, frame), Opener::Found::frame);
    EXPECT_EQ(frame.type, length % 77);
    EXPECT_EQ(frame.descriptor_count, 3u);
    EXPECT_EQ(frame.body, pattern(length, length));
  }
  EXPECT_TRUE(left.empty());
}

TEST(WireupSeal, NothingOfAFrameIsInTheClear) {
  Sealer sealer(secret_of('k'));
  const std::string body = "a segment's key";
  EXPECT_EQ(sealer.seal(1, 0, body).find("segment"), std::string::npos);
  EXPECT_NE(sealer.seal(1, 0, body), sealer.seal(1, 0, body)) << "the nonce repeats";
}

// A copy would count on from the same number, with the same key.
static_assert(!std::is_copy_constructible_v<Sealer> && !std::is_copy_assignable_v<Sealer>);

TEST(WireupSeal, AMovedSealerLeavesNoKeyBehind) {
  Sealer first(secret_of('k'));
  const std::string one = first.seal(1, 0, "one");
  Sealer moved = std::move(first);
  std::string wire = one + moved.seal(1, 0, "two");
  std::string_view left = wire;
  Opener opener(secret_of('k'));
  OpenedFrame frame;
  EXPECT_EQ(opener.open(left, frame), Opener::Found::frame);
  EXPECT_EQ(opener.open(left, frame), Opener::Found::frame);
  const std::string behind = first.seal(1, 0, "three");  // NOLINT(bugprone-use-after-move): that is what is asked
  left = behind;
  EXPECT_EQ(opener.open(left, frame), Opener::Found::forged);
}

TEST(WireupSeal, EveryFlippedBitIsNoticed) {
  const std::string wire = Sealer(secret_of('k')).seal(5, 1, "0123456789");
  for (std::size_t bit = 0; bit < 8 * wire.size(); ++bit) {
    std::string changed = wire;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    std::string_view left = changed;
    OpenedFrame frame;
    EXPECT_NE(Opener(secret_of('k')).open(left, frame), Opener::Found::frame) << bit;
  }
}

TEST(WireupSeal, ReplayedMovedAndMissingFramesAreNoticed) {
  Sealer sealer(secret_of('k'));
  const std::string first = sealer.seal(1, 0, "first");
  const std::string second = sealer.seal(1, 0, "second");
  OpenedFrame frame;
  Opener skips(secret_of('k'));
  std::string_view left = second;
  EXPECT_EQ(skips.open(left, frame), Opener::Found::forged);
  Opener repeats(secret_of('k'));
  left = first;
  EXPECT_EQ(repeats.open(left, frame), Opener::Found::frame);
  left = first;
  EXPECT_EQ(repeats.open(left, frame), Opener::Found::forged);
}

TEST(WireupSeal, TruncatedOnesWaitAndLongOnesDoNot) {
  const std::string wire = Sealer(secret_of('k')).seal(5, 1, "0123456789");
  OpenedFrame frame;
  for (std::size_t length = 0; length < wire.size(); ++length) {
    Opener opener(secret_of('k'));
    std::string_view left = std::string_view(wire).substr(0, length);
    EXPECT_EQ(opener.open(left, frame), Opener::Found::incomplete) << length;
    EXPECT_EQ(left.size(), length);
  }
  for (const std::string& length :
       {std::string("\xff\xff\xff\xff"), std::string("\x15\x00\x01\x00", 4), std::string("\x13\0\0\0", 4), std::string(4, '\0')}) {
    std::string_view left = length;
    EXPECT_EQ(Opener(secret_of('k')).open(left, frame), Opener::Found::too_long);
  }
}

}  // namespace
}  // namespace gigabar::fabric::wireup
