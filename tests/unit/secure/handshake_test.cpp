// SPDX-License-Identifier: Apache-2.0
// Handshakes without sockets.
#include <gtest/gtest.h>
#include <sodium.h>

#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "unit/fabric/wireup/ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

struct Pair {
  explicit Pair(const Job& left = job_of(0, 4), const Job& right = job_of(3, 4))
      : left_identity(identity_of(left)),
        right_identity(identity_of(right)),
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

bool opens(Opener& opener, const std::string& wire, const std::string& body) {
  std::string_view left = wire;
  OpenedFrame frame;
  return opener.open(left, frame) == Opener::Found::frame && frame.body == body;
}

TEST(SecureHandshake, BothProveAndShareKeys) {
  for (const std::string& key : {kKey, std::string()}) {
    Pair pair(job_of(0, 4, key), job_of(3, 4, key));
    EXPECT_EQ(pair.exchange_hellos(), std::make_pair(HelloFault::none, HelloFault::none));
    EXPECT_EQ(pair.acceptor.peer(), 0u);
    EXPECT_EQ(pair.acceptor.peer_rank_count(), 4u);
    EXPECT_TRUE(pair.acceptor.take_proof(pair.initiator.proof()));
    EXPECT_TRUE(pair.initiator.take_proof(pair.acceptor.proof()));
    EXPECT_EQ(pair.initiator.verdict(), Verdict::proceed);
    Sealer left = pair.initiator.take_sealer(), right = pair.acceptor.take_sealer();
    Opener left_opener = pair.initiator.take_opener(), right_opener = pair.acceptor.take_opener();
    EXPECT_TRUE(opens(right_opener, left.seal(1, 0, "from left"), "from left"));
    EXPECT_TRUE(opens(left_opener, right.seal(1, 0, "from right"), "from right"));
    EXPECT_FALSE(opens(left_opener, left.seal(1, 0, "sent back"), "sent back")) << "the directions share a key";
  }
}

TEST(SecureHandshake, ProofsAreOfOneRoleOneKeyOneExchange) {
  Pair pair;
  pair.exchange_hellos();
  EXPECT_FALSE(pair.acceptor.take_proof(pair.acceptor.proof())) << "its own, reflected";
  EXPECT_FALSE(pair.initiator.take_proof(pair.initiator.proof())) << "its own, reflected";
  Pair again;
  again.exchange_hellos();
  EXPECT_FALSE(again.acceptor.take_proof(pair.initiator.proof())) << "replayed";
}

// Before anything is computed that costs more than a hash.
TEST(SecureHandshake, AHelloIsOfOneKeyAndOneChallenge) {
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
  // What an acceptor answered to another hello is none for this one, though the challenge is the same.
  Pair other;
  Handshake repeated(other.left_identity, Role::initiator);
  const std::string challenge = other.acceptor.challenge();
  ASSERT_TRUE(other.initiator.take_challenge(challenge) && repeated.take_challenge(challenge));
  ASSERT_EQ(other.acceptor.take_hello(other.initiator.hello(3)), HelloFault::none);
  const std::string answer = other.acceptor.hello(0);
  repeated.hello(3);
  EXPECT_EQ(repeated.take_hello(answer), HelloFault::key);
  EXPECT_EQ(other.initiator.take_hello(answer), HelloFault::none);
  // An acceptor's hello is none of an initiator's, and the other way round.
  Pair reflected;
  EXPECT_EQ(reflected.initiator.take_hello(reflected.first_hello()), HelloFault::rank);
  for (const std::size_t bytes : {std::size_t{0}, kChallengeBytes - 1, kChallengeBytes + 1})
    EXPECT_FALSE(pair.initiator.take_challenge(std::string(bytes, 'x')));
  for (const Prefix& prefix : {Prefix{kProtocolVersion, Verdict::refused}, Prefix{kProtocolVersion + 1, Verdict::proceed}})
    EXPECT_FALSE(pair.initiator.take_challenge(encode(prefix) + std::string(32, 'x')));
}

std::string exchanged(const Secret& own, const Secret& other) {
  std::array<unsigned char, crypto_scalarmult_BYTES> public_key{}, shared{};
  EXPECT_EQ(crypto_scalarmult_base(public_key.data(), other.data()), 0);
  EXPECT_EQ(crypto_scalarmult(shared.data(), own.data(), public_key.data()), 0);
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

// A frame opened by libsodium alone: "" where it does not open.
std::string body_of(const std::string& wire, const std::string& key, const std::string& header) {
  crypto_secretstream_xchacha20poly1305_state state;
  const auto bytes = [](const std::string& text) { return reinterpret_cast<const unsigned char*>(text.data()); };
  std::string plain(wire.size() - 4 - crypto_secretstream_xchacha20poly1305_ABYTES, '\0');
  EXPECT_EQ(crypto_secretstream_xchacha20poly1305_init_pull(&state, bytes(header), bytes(key)), 0);
  const bool is_open = crypto_secretstream_xchacha20poly1305_pull(&state, reinterpret_cast<unsigned char*>(plain.data()), nullptr,
                                                                  nullptr, bytes(wire) + 4, wire.size() - 4, bytes(wire), 4) == 0;
  return is_open ? plain.substr(4) : "";
}

// One session as who stands between sees it: every byte of the handshake, and a frame of each rank.
struct Recorded {
  explicit Recorded(Secret initiators = fresh_private_key(), Secret acceptors = fresh_private_key())
      : first(std::move(initiators)), second(std::move(acceptors)) {
    Handshake initiator(left, Role::initiator, first), acceptor(right, Role::acceptor, second);
    challenge = acceptor.challenge();
    EXPECT_TRUE(initiator.take_challenge(challenge));
    hello = initiator.hello(3);
    EXPECT_EQ(acceptor.take_hello(hello), HelloFault::none);
    answer = acceptor.hello(0);
    EXPECT_EQ(initiator.take_hello(answer), HelloFault::none);
    proof = initiator.proof();
    EXPECT_TRUE(acceptor.take_proof(proof));
    last = acceptor.proof();
    EXPECT_TRUE(initiator.take_proof(last));
    frame = initiator.take_sealer().seal(1, 0, "from the initiator");
    frame_back = acceptor.take_sealer().seal(1, 0, "from the acceptor");
    for (const Role role : {Role::initiator, Role::acceptor}) {
      data_keys.emplace_back(initiator.data_key(role).bytes());
      EXPECT_EQ(data_keys.back(), acceptor.data_key(role).bytes());
    }
  }
  std::string master(const std::string& shared) const {
    return hash_of(hash_of({}, {"gigabar job key", kKey}), {"gigabar channel", shared, challenge, hello, answer});
  }
  // The two frames, as far as they open with the job's key and this for the secret of the exchange.
  std::string open(const std::string& shared) const {
    const std::string there = hash_of(master(shared), {"frames of the initiator"});
    const std::string back = hash_of(master(shared), {"frames of the acceptor"});
    return body_of(frame, there, proof.substr(16, 24)) + body_of(frame_back, back, last.substr(16, 24));
  }

  Identity left = identity_of(job_of(0, 4)), right = identity_of(job_of(3, 4));
  Secret first, second;
  std::string challenge, hello, answer, proof, last, frame, frame_back;
  std::vector<std::string> data_keys;
};

// The keys as the protocol says, computed here once more.
TEST(SecureHandshake, TheKeysAreMadeOfTheJobsKeyTheExchangeAndAllThatWasSaid) {
  const Recorded session;
  const std::string shared = exchanged(session.first, session.second);
  ASSERT_EQ(shared, exchanged(session.second, session.first));
  EXPECT_EQ(session.open(shared), "from the initiatorfrom the acceptor");
  const std::string master = session.master(shared);
  EXPECT_EQ(session.data_keys,
            std::vector({hash_of(master, {"data of the initiator"}), hash_of(master, {"data of the acceptor"})}));
  EXPECT_EQ(session.proof.substr(40), hash_of(master, {"proof of the initiator", session.proof.substr(0, 40)}));
  EXPECT_EQ(session.last.substr(40), hash_of(master, {"proof of the acceptor", session.last.substr(0, 40)}));
  // Hellos end with a hash that is made with the key, of what was said before and of what is before it.
  constexpr std::size_t kBefore = kHelloBytes - 32;
  const std::string secret = hash_of({}, {"gigabar job key", kKey});
  const auto& [hello, answer] = std::pair(session.hello, session.answer);
  EXPECT_EQ(hello.substr(kBefore), hash_of(secret, {"hello of the initiator", session.challenge, hello.substr(0, kBefore)}));
  EXPECT_EQ(answer.substr(kBefore),
            hash_of(secret, {"hello of the acceptor", session.challenge, hello, answer.substr(0, kBefore)}));
}

// Forward secrecy: all was recorded, and the job's key became known later. What is missing is the secret of the exchange, of which
// only the public keys were on the wire.
TEST(SecureHandshake, TheJobsKeyDoesNotOpenWhatWasRecorded) {
  const Recorded session;
  constexpr std::size_t kPublicKey = 32;
  const std::string first = session.hello.substr(kPublicKey, 32), second = session.answer.substr(kPublicKey, 32);
  std::string both = first;
  for (std::size_t index = 0; index < both.size(); ++index) both[index] = static_cast<char>(both[index] ^ second[index]);
  const std::string key_itself = hash_of({}, {"gigabar job key", kKey});
  for (const std::string& guess : {std::string(), std::string(32, '\0'), first, second, first + second, both, key_itself})
    EXPECT_EQ(session.open(guess), "");
  // A fresh exchange of his own with either end's public key gives him another secret.
  const Secret his = fresh_private_key();
  EXPECT_EQ(session.open(exchanged(his, session.first)), "");
  EXPECT_EQ(session.open(exchanged(his, session.second)), "");
  // The control: with either end's ephemeral key, which is wiped when the keys are made, it opens.
  EXPECT_EQ(session.open(exchanged(session.first, session.second)), "from the initiatorfrom the acceptor");
}

std::string from_hexadecimal(const char* digits) {
  std::string bytes(32, '\0');
  std::size_t count = 0;
  EXPECT_EQ(sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), 32, digits, 64, nullptr, &count, nullptr), 0);
  EXPECT_EQ(count, 32u);
  return bytes;
}

// RFC 7748, section 6.1: Alice's and Bob's keys, and the secret that they share.
TEST(SecureHandshake, TheExchangeIsX25519) {
  const Secret alice(from_hexadecimal("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
  const Secret bob(from_hexadecimal("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
  const Recorded session(alice, bob);
  EXPECT_EQ(session.hello.substr(32, 32), from_hexadecimal("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
  EXPECT_EQ(session.answer.substr(32, 32), from_hexadecimal("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
  EXPECT_EQ(session.open(from_hexadecimal("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")),
            "from the initiatorfrom the acceptor");
}

TEST(SecureHandshake, EveryBitOfAProofCounts) {
  Pair pair;
  pair.exchange_hellos();
  const std::string proof = pair.initiator.proof();
  for (std::size_t bit = 0; bit < 8 * proof.size(); ++bit) {
    std::string changed = proof;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(pair.acceptor.take_proof(changed)) << bit;
  }
  EXPECT_FALSE(pair.acceptor.take_proof(proof.substr(1)));
  EXPECT_FALSE(pair.acceptor.take_proof(""));
}

// Whatever is changed in a hello on its way: it is refused.
TEST(SecureHandshake, EveryBitOfBothHellosCounts) {
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

// Where the two ends see version, job, number of ranks, one of the ranks, a role, the purpose or a public key differently,
// the hello is refused.
TEST(SecureHandshake, HellosStandForAllThatTheEndsAgreeOn) {
  const auto hear = [](const std::function<void(Identity&)>& change, std::size_t changed_byte) {
    Pair pair;
    Handshake acceptor(pair.right_identity, Role::acceptor);
    const std::string challenge = acceptor.challenge();
    pair.initiator.take_challenge(challenge);
    change(pair.left_identity);
    std::string hello = pair.initiator.hello(3);
    if (changed_byte < hello.size()) hello[changed_byte] = static_cast<char>(hello[changed_byte] ^ 1);
    return acceptor.take_hello(hello);
  };
  const auto nothing = [](Identity&) {};
  EXPECT_EQ(hear(nothing, kHelloBytes), HelloFault::none);
  EXPECT_EQ(hear([](Identity& identity) { identity.version = 2; }, kHelloBytes), HelloFault::version);
  EXPECT_EQ(hear([](Identity& identity) { identity.job_id = "job 2"; }, kHelloBytes), HelloFault::job);
  EXPECT_EQ(hear([](Identity& identity) { identity.rank_count = 5; }, kHelloBytes), HelloFault::job);
  EXPECT_EQ(hear([](Identity& identity) { identity.purpose = Purpose::directory; }, kHelloBytes), HelloFault::job);
  // On the way: fields that are possible all the same fail by the hash.
  EXPECT_EQ(hear(nothing, 20), HelloFault::key) << "rank 1 in place of rank 0";
  EXPECT_EQ(hear(nothing, 24), HelloFault::rank) << "to rank 2";
  EXPECT_EQ(hear(nothing, 32), HelloFault::job) << "the public key, of which the job's tag is made";
  // The role: an acceptor's hello and proof are refused by another acceptor, and the other way round.
  Pair pair;
  pair.exchange_hellos();
  Pair mirrored(job_of(3, 4), job_of(0, 4));
  mirrored.acceptor.challenge();
  EXPECT_EQ(mirrored.acceptor.take_hello(pair.acceptor.hello(0)), HelloFault::key);
}

// What the directory of a job binds and does not require: each states its own number of ranks.
TEST(SecureHandshake, ADirectoryHearsWhoCountsDifferently) {
  const Identity rank = identity_of(job_of(2, 3), Purpose::directory), server = identity_of(job_of(0, 2), Purpose::directory);
  Handshake initiator(rank, Role::initiator), acceptor(server, Role::acceptor);
  ASSERT_TRUE(initiator.take_challenge(acceptor.challenge()));
  ASSERT_EQ(acceptor.take_hello(initiator.hello(0)), HelloFault::none);
  ASSERT_EQ(initiator.take_hello(acceptor.hello(2)), HelloFault::none);
  EXPECT_EQ(acceptor.peer_rank_count(), 3u);
  EXPECT_EQ(initiator.peer_rank_count(), 2u);
  ASSERT_TRUE(acceptor.take_proof(initiator.proof()));
  const std::string told = acceptor.proof(Verdict::wrong_count);
  ASSERT_TRUE(initiator.take_proof(told));
  EXPECT_EQ(initiator.verdict(), Verdict::wrong_count);
  // Nobody on the way makes another verdict of it.
  std::string changed = told;
  changed.replace(0, kPrefixBytes, encode(Prefix{kProtocolVersion, Verdict::proceed}));
  EXPECT_FALSE(initiator.take_proof(changed));
}

// What was said for one purpose is nothing for the other, whoever repeats it.
TEST(SecureHandshake, AHelloIsOfOnePurpose) {
  const Identity left = identity_of(job_of(1, 2)), right = identity_of(job_of(0, 2), Purpose::directory);
  Handshake initiator(left, Role::initiator), acceptor(right, Role::acceptor);
  ASSERT_TRUE(initiator.take_challenge(acceptor.challenge()));
  std::string hello = initiator.hello(0);
  EXPECT_EQ(acceptor.take_hello(hello), HelloFault::job);
  hello[28] = static_cast<char>(Purpose::directory);
  EXPECT_EQ(acceptor.take_hello(hello), HelloFault::key);
}

TEST(SecureHandshake, HelloFaultsSayWhich) {
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
  Identity other = identity_of(job_of(2, 4));
  Handshake impostor(other, Role::acceptor);
  wrong_answer.first_hello();
  EXPECT_EQ(wrong_answer.initiator.take_hello(impostor.hello(0)), HelloFault::rank);
}

// A public key of low order would make the session's secret known to everybody. One who holds the job's key sends it.
TEST(SecureHandshake, WeakPublicKeysAreRefused) {
  constexpr std::size_t kBefore = kHelloBytes - 32, kPublicKey = 32, kTag = 64;
  const std::string secret = hash_of({}, {"gigabar job key", kKey});
  for (const char first : {'\0', '\1'}) {
    Pair pair;
    const std::string challenge = pair.acceptor.challenge();
    ASSERT_TRUE(pair.initiator.take_challenge(challenge));
    std::string weak = pair.initiator.hello(3).substr(0, kBefore);
    weak.replace(kPublicKey, 32, 32, '\0');
    weak[kPublicKey] = first;
    weak.replace(kTag, 32, hash_of(weak.substr(kPublicKey, 32), {"job", "job 1"}));
    weak += hash_of(secret, {"hello of the initiator", challenge, weak});
    EXPECT_EQ(pair.acceptor.take_hello(weak), HelloFault::malformed);
    EXPECT_EQ(pair.acceptor.peer(), kAnyRank) << "nothing of it is kept";
    EXPECT_EQ(pair.acceptor.take_hello(pair.initiator.hello(3)), HelloFault::none);
  }
}

TEST(SecureHandshake, HellosOfOneJobLookDifferent) {
  Pair pair;
  Pair again;
  EXPECT_NE(pair.first_hello().substr(64, 32), again.first_hello().substr(64, 32)) << "the job's tag";
}

}  // namespace
}  // namespace gigabar::fabric::wireup
