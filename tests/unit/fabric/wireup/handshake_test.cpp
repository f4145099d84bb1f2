// Handshakes and sealed frames without sockets.
#include <gtest/gtest.h>

#include <cstring>

#include "ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

struct Pair {
  explicit Pair(const Job& left = job_of(0, 4), const Job& right = job_of(3, 4))
      : left_identity(*identity_of(left)),
        right_identity(*identity_of(right)),
        initiator(left_identity, Role::initiator),
        acceptor(right_identity, Role::acceptor) {}

  // What the acceptor finds, then the initiator.
  std::pair<HelloFault, HelloFault> exchange_hellos() {
    const std::string first = initiator.hello(right_identity.rank);
    const HelloFault heard = acceptor.take_hello(first);
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

  Pair other_key(job_of(0, 4), job_of(3, 4, "another key of many bytes"));
  EXPECT_EQ(other_key.exchange_hellos(), std::make_pair(HelloFault::none, HelloFault::none));
  EXPECT_FALSE(other_key.acceptor.is_proven(other_key.initiator.proof()));
  EXPECT_FALSE(other_key.initiator.is_proven(other_key.acceptor.proof()));
  Pair no_key(job_of(0, 4), job_of(3, 4, ""));
  no_key.exchange_hellos();
  EXPECT_FALSE(no_key.acceptor.is_proven(no_key.initiator.proof()));
  // A job without a key whose id is another job's key.
  Pair confused(job_of(0, 4, "", kKey), job_of(3, 4, kKey, kKey));
  confused.exchange_hellos();
  EXPECT_FALSE(confused.acceptor.is_proven(confused.initiator.proof()));
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

// Whatever is changed in a hello on its way: it is refused, or the proofs do not match.
TEST(WireupHandshake, EveryBitOfBothHellosIsBoundIntoTheProofs) {
  for (std::size_t bit = 0; bit < 8 * kHelloBytes; ++bit) {
    for (const bool is_first : {true, false}) {
      Pair pair;
      const auto change = [&](std::string hello, bool is_changed) {
        if (is_changed) hello[bit / 8] = static_cast<char>(hello[bit / 8] ^ (1 << (bit % 8)));
        return hello;
      };
      if (pair.acceptor.take_hello(change(pair.initiator.hello(3), is_first)) != HelloFault::none) continue;
      if (pair.initiator.take_hello(change(pair.acceptor.hello(pair.acceptor.peer()), !is_first)) != HelloFault::none) continue;
      ASSERT_FALSE(pair.acceptor.is_proven(pair.initiator.proof())) << bit << is_first;
      ASSERT_FALSE(pair.initiator.is_proven(pair.acceptor.proof())) << bit << is_first;
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
  EXPECT_EQ(wrong_callee.acceptor.take_hello(wrong_callee.initiator.hello(2)), HelloFault::rank);
  Pair wrong_answer(job_of(0, 4), job_of(3, 4));
  Identity other = *identity_of(job_of(2, 4));
  Handshake impostor(other, Role::acceptor);
  wrong_answer.initiator.hello(3);
  EXPECT_EQ(wrong_answer.initiator.take_hello(impostor.hello(0)), HelloFault::rank);
}

// A public key of low order would make the session's secret known to everybody.
TEST(WireupHandshake, WeakPublicKeysAreRefused) {
  Pair pair;
  std::string hello = pair.initiator.hello(3);
  for (const char first : {'\0', '\1'}) {
    std::string weak = hello;
    weak.replace(64, 32, 32, '\0');
    weak[64] = first;
    EXPECT_EQ(pair.acceptor.take_hello(weak), HelloFault::malformed);
  }
}

TEST(WireupHandshake, HellosOfOneJobLookDifferent) {
  Pair pair;
  Pair again;
  EXPECT_NE(pair.initiator.hello(3).substr(96), again.initiator.hello(3).substr(96)) << "the job's tag";
}

Secret secret_of(char fill) {
  Secret secret;
  std::memset(secret.data(), fill, Secret::bytes());
  return secret;
}

TEST(WireupSeal, FramesComeBackInOrder) {
  Sealer sealer(secret_of('k'));
  Opener opener(secret_of('k'));
  const std::vector<std::size_t> lengths{0, 1, 17, 4096, kMostFrameBytes};
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
