// SPDX-License-Identifier: Apache-2.0
// Endpoints with somebody between them, who changes, repeats, redirects and cuts what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <new>

#include "secure/endpoint.hpp"
#include "unit/fabric/wireup/ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

// An endpoint that listens at a name of its own. It says a word of the application's to everybody it is connected with.
class Side : public ChannelEvents {
 public:
  explicit Side(Identity identity) : endpoint(std::move(identity), Limits{}, Poller::open().value()) {
    static int count = 0;
    address = network::unix_address("gigabar-side-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
    EXPECT_TRUE(endpoint.listen(listen_at(address)));
  }
  virtual ~Side() = default;
  void connected(Rank peer, bool, std::int64_t) override {
    ++connected_count;
    EXPECT_TRUE(endpoint.send(peer, frame_of(1, "state of the application")).is_ok());
  }
  void frame(Rank, Frame frame) override { bodies.push_back(std::move(frame.body)); }
  void lost(Rank, const Error& error) override { losses.push_back(error); }
  void forget() {
    connected_count = 0;
    bodies.clear();
    losses.clear();
  }

  Endpoint endpoint;
  SocketAddress address;
  int connected_count = 0;
  std::vector<std::string> bodies;
  std::vector<Error> losses;
};

enum class To : std::uint8_t { acceptor, initiator };
constexpr std::array<std::size_t, 2> kHandshakeBytes = {kHelloBytes + kProofBytes, kChallengeBytes + kHelloBytes + kProofBytes};

// Passes on what two endpoints say to each other, as `change` leaves it: the bytes of one direction from `offset` on.
class Between {
 public:
  using Change = std::function<void(To to, std::size_t offset, std::string& bytes)>;
  Between(const SocketAddress& target, Change change) : target_(target), change_(std::move(change)) {
    static int count = 0;
    address = network::unix_address("gigabar-between-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
    listener_ = listen_at(address);
    EXPECT_TRUE(listener_.is_open());
  }

  void step() {
    Descriptor accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.is_open()) {
      ++connection_count;
      ends_ = {std::move(accepted), start_connect(target_)};
      offsets_ = {0, 0};
    }
    if (!ends_[0].is_open()) return;
    const bool is_whole = pass(To::acceptor) && pass(To::initiator);
    if (!is_whole) cut();
  }
  // As a broken network would.
  void cut() {
    if (ends_[0].is_open()) ++ended_count;
    ends_ = {};
  }
  void inject(To to, const std::string& bytes) { EXPECT_TRUE(send_now(ends_[to == To::acceptor ? 1 : 0].get(), bytes)); }

  SocketAddress address;
  int connection_count = 0, ended_count = 0;
  std::array<std::string, 2> said;  // to the acceptor, to the initiator: of all connections, before the change

 private:
  bool pass(To to) {
    const auto index = static_cast<std::size_t>(to);
    std::array<char, 65536> piece{};
    const ssize_t count = ::recv(ends_[index].get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count <= 0) return count < 0 && errno == EAGAIN;
    std::string bytes(piece.data(), static_cast<std::size_t>(count));
    said[index] += bytes;
    change_(to, offsets_[index], bytes);
    offsets_[index] += static_cast<std::size_t>(count);
    return send_now(ends_[1 - index].get(), bytes);
  }

  SocketAddress target_;
  Change change_;
  Descriptor listener_;
  std::array<Descriptor, 2> ends_;
  std::array<std::size_t, 2> offsets_{};
};

bool run(Side& left, Side& right, Between& between, const std::function<bool()>& is_done) {
  for (const std::int64_t end_ns = now_ns() + 10 * kSecond; now_ns() < end_ns;) {
    left.endpoint.poll(left);
    between.step();
    right.endpoint.poll(right);
    between.step();
    if (is_done()) return true;
  }
  return false;
}

class EndpointPurposes : public testing::TestWithParam<Purpose> {
 protected:
  Side initiator{identity_of(job_of(1, 2), GetParam())};
  Side acceptor{identity_of(job_of(0, 2), GetParam())};
};
INSTANTIATE_TEST_SUITE_P(All, EndpointPurposes, testing::Values(Purpose::directory, Purpose::wireup),
                         [](const auto& given) { return given.param == Purpose::directory ? "Directory" : "Wireup"; });

TEST_P(EndpointPurposes, WhoStandsBetweenAndChangesNothingIsNotNoticed) {
  Between between(acceptor.address, [](To, std::size_t, std::string&) {});
  initiator.endpoint.dial(0, {between.address}, now_ns() + kLongTimeNs);
  ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !initiator.bodies.empty() && !acceptor.bodies.empty(); }));
  for (const std::string& said : between.said) EXPECT_EQ(said.find("application"), std::string::npos) << "it is in the clear";
}

// Every single byte of every message, changed on its way: neither end stands, and nothing of the application's is told.
TEST_P(EndpointPurposes, EveryByteOfTheHandshakeCounts) {
  for (const To to : {To::acceptor, To::initiator}) {
    const std::size_t bytes = kHandshakeBytes[static_cast<std::size_t>(to)];
    for (std::size_t changed = 0; changed < bytes; ++changed) {
      Between between(acceptor.address, [&](To direction, std::size_t offset, std::string& piece) {
        if (direction == to && offset <= changed && changed < offset + piece.size())
          piece[changed - offset] = static_cast<char>(piece[changed - offset] ^ 1);
      });
      initiator.forget();
      acceptor.forget();
      initiator.endpoint.dial(0, {between.address}, now_ns() + kLongTimeNs);
      ASSERT_TRUE(run(initiator, acceptor, between, [&] { return between.ended_count > 0; })) << changed;
      between.cut();
      initiator.endpoint.disconnect(0);
      for (int round = 0; round < 4; ++round) acceptor.endpoint.poll(acceptor);
      ASSERT_EQ(initiator.connected_count, 0) << changed;
      ASSERT_FALSE(acceptor.endpoint.is_connected(1)) << changed;
      // The acceptor's last word is not answered: it hears the end of the connection, and nothing else.
      const bool is_last = to == To::initiator && changed >= kChallengeBytes + kHelloBytes;
      ASSERT_EQ(acceptor.connected_count, is_last ? 1 : 0) << changed;
      ASSERT_EQ(acceptor.losses.size(), is_last ? 1u : 0u) << changed;
      ASSERT_TRUE(initiator.bodies.empty() && acceptor.bodies.empty()) << changed;
    }
  }
}

// A rank that is led to the listener of the other purpose, by whoever can redirect its connection.
TEST_P(EndpointPurposes, OneOfTheOtherPurposeIsRefused) {
  Side other(identity_of(job_of(0, 2), GetParam() == Purpose::directory ? Purpose::wireup : Purpose::directory));
  Between between(other.address, [](To, std::size_t, std::string&) {});
  initiator.endpoint.dial(0, {between.address}, now_ns() + kLongTimeNs);
  ASSERT_TRUE(run(initiator, other, between, [&] { return other.endpoint.refusals().wrong_job > 0; }));
  EXPECT_EQ(initiator.connected_count + other.connected_count, 0);
}

// Everything that a rank said, said again, to the same listener and to that of the other purpose.
TEST_P(EndpointPurposes, WhatWasSaidInOneSessionIsNothingInAnother) {
  Between between(acceptor.address, [](To, std::size_t, std::string&) {});
  initiator.endpoint.dial(0, {between.address}, now_ns() + kLongTimeNs);
  ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !initiator.bodies.empty() && !acceptor.bodies.empty(); }));
  initiator.endpoint.disconnect(0);
  ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !acceptor.losses.empty(); }));
  Side other(identity_of(job_of(0, 2), GetParam() == Purpose::directory ? Purpose::wireup : Purpose::directory));
  for (Side* side : {&acceptor, &other}) {
    side->forget();
    RawSocket again(side->address);
    ASSERT_TRUE(again.send(between.said[0]));
    for (int round = 0; round < 100 && side->endpoint.refusals().total() == 0; ++round) side->endpoint.poll(*side);
    EXPECT_EQ(side->endpoint.refusals().total(), 1u);
    EXPECT_EQ(side->connected_count, 0);
    EXPECT_TRUE(side->bodies.empty());
  }
  // And what the acceptor said, to a rank that connects anew.
  initiator.forget();
  Between repeats(acceptor.address, [&](To to, std::size_t offset, std::string& piece) {
    if (to == To::initiator) piece = between.said[1].substr(offset, piece.size());
  });
  initiator.endpoint.dial(0, {repeats.address}, now_ns() + kLongTimeNs);
  ASSERT_TRUE(run(initiator, acceptor, repeats, [&] { return repeats.ended_count > 0; }));
  EXPECT_EQ(initiator.connected_count, 0);
  EXPECT_TRUE(initiator.bodies.empty());
}

// A frame of one session is none of another, though both ranks are the same.
TEST_P(EndpointPurposes, AFrameIsOfOneSession) {
  std::string old_frame;
  for (const bool is_first : {true, false}) {
    initiator.forget();
    acceptor.forget();
    Between between(acceptor.address, [](To, std::size_t, std::string&) {});
    initiator.endpoint.dial(0, {between.address}, now_ns() + kLongTimeNs);
    ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !initiator.bodies.empty() && !acceptor.bodies.empty(); }));
    if (is_first) {
      old_frame = between.said[0].substr(kHandshakeBytes[0]);
      initiator.endpoint.disconnect(0);
    } else {
      between.inject(To::acceptor, old_frame);
    }
    ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !acceptor.losses.empty(); }));
    EXPECT_EQ(acceptor.losses[0].status(), Status::peer_lost);
    EXPECT_NE(acceptor.losses[0].message().find(is_first ? "it disconnected" : "not authentic"), std::string::npos)
        << acceptor.losses[0].message();
    EXPECT_EQ(acceptor.bodies.size(), 1u);
  }
}

// --- Frames on their way
// -----------------------------------------------------------------------------------------------------------

struct Damage {
  const char* name;
  std::function<std::string(const std::vector<std::string>&)> of;  // what arrives of three frames
  std::size_t told_count;
  const char* cause;
};

// What was told before the damage is right, and the channel ends with it.
TEST_P(EndpointPurposes, DamagedFramesEndTheChannel) {
  const std::vector<Damage> all = {
      {"changed",
       [](const auto& three) {
         std::string second = three[1];
         second[12] = static_cast<char>(second[12] ^ 1);
         return three[0] + second + three[2];
       },
       1, "not authentic"},
      {"lost", [](const auto& three) { return three[0] + three[2]; }, 1, "not authentic"},
      {"reordered", [](const auto& three) { return three[1] + three[0] + three[2]; }, 0, "not authentic"},
      {"repeated", [](const auto& three) { return three[0] + three[0] + three[1] + three[2]; }, 1, "not authentic"},
      {"cut", [](const auto& three) { return three[0] + three[1].substr(0, 20); }, 1, "without a sealed end"},
      {"cut between frames", [](const auto& three) { return three[0] + three[1]; }, 2, "without a sealed end"},
      {"whole", [](const auto& three) { return three[0] + three[1] + three[2]; }, 3, "without a sealed end"},
  };
  for (const Damage& damage : all) {
    initiator.forget();
    acceptor.forget();
    std::string held;
    bool is_held = false;
    Between between(acceptor.address, [&](To to, std::size_t, std::string& piece) {
      if (to == To::acceptor && is_held) held += std::exchange(piece, {});
    });
    initiator.endpoint.dial(0, {between.address}, now_ns() + kLongTimeNs);
    ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !initiator.bodies.empty() && !acceptor.bodies.empty(); }));
    is_held = true;
    acceptor.forget();
    constexpr std::size_t kFrameBytes = kFrameOverheadBytes + 10;
    for (const char* body : {"body one..", "body two..", "body three"}) ASSERT_TRUE(initiator.endpoint.send(0, frame_of(1, body)));
    ASSERT_TRUE(run(initiator, acceptor, between, [&] { return held.size() == 3 * kFrameBytes; }));
    std::vector<std::string> three;
    for (std::size_t index = 0; index < 3; ++index) three.push_back(held.substr(index * kFrameBytes, kFrameBytes));
    between.inject(To::acceptor, damage.of(three));
    between.cut();
    ASSERT_TRUE(run(initiator, acceptor, between, [&] { return !acceptor.losses.empty() && !initiator.losses.empty(); }));
    EXPECT_EQ(acceptor.bodies.size(), damage.told_count) << damage.name;
    EXPECT_EQ(acceptor.losses[0].status(), Status::peer_lost) << damage.name;
    EXPECT_NE(acceptor.losses[0].message().find(damage.cause), std::string::npos) << damage.name << acceptor.losses[0].message();
  }
}

// Ends the channel at a frame, or has no memory for it.
class Ending : public Side {
 public:
  using Side::Side;
  void connected(Rank peer, bool is_same_host, std::int64_t process) override {
    if (throws) throw std::bad_alloc();
    Side::connected(peer, is_same_host, process);
  }
  void frame(Rank peer, Frame frame) override {
    Side::frame(peer, std::move(frame));
    if (throws) throw std::bad_alloc();
    if (cuts) endpoint.cut(peer);
  }
  // False when it threw.
  bool poll() try {
    endpoint.poll(*this);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  bool throws = false, cuts = false;
};

// A stream with a gap would be taken for a whole one.
TEST_P(EndpointPurposes, WhatHasComeAfterACutIsNotTold) {
  Ending ending(identity_of(job_of(0, 2), GetParam()));
  for (const bool throws : {false, true}) {
    initiator.forget();
    ending.forget();
    Between idle(ending.address, [](To, std::size_t, std::string&) {});
    initiator.endpoint.dial(0, {ending.address}, now_ns() + kLongTimeNs);
    ASSERT_TRUE(run(initiator, ending, idle, [&] { return !initiator.bodies.empty() && !ending.bodies.empty(); }));
    ending.forget();
    for (const char* body : {"A", "B", "C"}) ASSERT_TRUE(initiator.endpoint.send(0, frame_of(1, body)));
    (throws ? ending.throws : ending.cuts) = true;
    EXPECT_EQ(ending.poll(), !throws);
    ending.throws = ending.cuts = false;
    ending.poll();
    EXPECT_EQ(ending.bodies, std::vector<std::string>{"A"});
    ASSERT_EQ(ending.losses.size(), 1u);
    EXPECT_NE(ending.losses[0].message().find("this rank closed it"), std::string::npos) << ending.losses[0].message();
    ASSERT_TRUE(run(initiator, ending, idle, [&] { return !initiator.losses.empty(); }));
  }
}

TEST_P(EndpointPurposes, AConnectionThatCannotBeNotedIsLost) {
  Ending ending(identity_of(job_of(0, 2), GetParam()));
  initiator.endpoint.dial(0, {ending.address}, now_ns() + kLongTimeNs);
  ending.throws = true;
  bool has_thrown = false;
  for (const std::int64_t end_ns = now_ns() + 10 * kSecond; !has_thrown && now_ns() < end_ns; has_thrown = !ending.poll())
    initiator.endpoint.poll(initiator);
  ASSERT_TRUE(has_thrown);
  ending.throws = false;
  ending.poll();
  EXPECT_EQ(ending.losses.size(), 1u);
  EXPECT_FALSE(ending.endpoint.is_connected(1));
}

// A rank comes a second time while words of its first channel are unread. There is no memory for them: the first channel ends, or
// its rank would wait for the answer.
TEST_P(EndpointPurposes, WordsThatAreLostWhenARankComesAgainEndTheChannel) {
  Ending server(identity_of(job_of(0, 2), GetParam()));
  Between idle(server.address, [](To, std::size_t, std::string&) {});
  initiator.endpoint.dial(0, {server.address}, now_ns() + kLongTimeNs);
  ASSERT_TRUE(run(initiator, server, idle, [&] { return !initiator.bodies.empty() && !server.bodies.empty(); }));
  const Identity identity = identity_of(job_of(1, 2), GetParam());
  Handshake handshake(identity, Role::initiator);
  RawSocket again(server.address);
  const auto receive = [&](std::size_t bytes) {
    for (int round = 0; round < 1000 && again.received().size() < bytes; ++round) server.poll();
    return again.received();
  };
  ASSERT_TRUE(handshake.take_challenge(receive(kChallengeBytes)));
  ASSERT_TRUE(again.send(handshake.hello(0)));
  ASSERT_EQ(handshake.take_hello(receive(kChallengeBytes + kHelloBytes).substr(kChallengeBytes)), HelloFault::none);
  ASSERT_TRUE(again.send(handshake.proof()));  // first: it is handled before the frame
  ASSERT_TRUE(initiator.endpoint.send(0, frame_of(1, "a question")));
  server.throws = true;
  EXPECT_FALSE(server.poll());
  server.throws = false;
  server.poll();
  EXPECT_EQ(server.losses.size(), 1u);
}

// --- Before the proofs
// -------------------------------------------------------------------------------------------------------------

// A peer that holds the key, knows the frames' keys after the hellos, and leaves out its proof.
TEST_P(EndpointPurposes, NothingIsHeardOfAPeerBeforeItsProof) {
  const Identity identity = identity_of(job_of(1, 2), GetParam());
  for (const bool has_proof : {false, true}) {
    acceptor.forget();
    Handshake handshake(identity, Role::initiator);
    RawSocket socket(acceptor.address);
    const auto receive = [&](std::size_t bytes) {
      for (int round = 0; round < 1000 && socket.received().size() < bytes; ++round) acceptor.endpoint.poll(acceptor);
      return socket.received();
    };
    ASSERT_TRUE(handshake.take_challenge(receive(kChallengeBytes)));
    ASSERT_TRUE(socket.send(handshake.hello(0)));
    ASSERT_EQ(handshake.take_hello(receive(kChallengeBytes + kHelloBytes).substr(kChallengeBytes)), HelloFault::none);
    const std::string proof = handshake.proof();
    Sealer sealer = handshake.take_sealer();
    std::string frames;
    for (int count = 0; count < 4; ++count) frames += sealer.seal(1, 0, "an early frame");
    ASSERT_TRUE(socket.send(has_proof ? proof + frames : frames));
    for (int round = 0; round < 100; ++round) acceptor.endpoint.poll(acceptor);
    EXPECT_EQ(acceptor.connected_count, has_proof ? 1 : 0);
    EXPECT_EQ(acceptor.bodies.size(), has_proof ? 4u : 0u);
    EXPECT_EQ(acceptor.endpoint.refusals().malformed, 1u);
    // Of the acceptor nothing but the proof's messages has come when it was not proven.
    if (!has_proof) {
      EXPECT_EQ(socket.received().size(), kChallengeBytes + kHelloBytes);
    }
  }
}

// The same the other way round: a listener that leaves out its proof.
TEST_P(EndpointPurposes, NothingIsHeardOfAListenerBeforeItsProof) {
  const Identity identity = identity_of(job_of(0, 2), GetParam());
  const SocketAddress address = network::unix_address("gigabar-no-proof-" + std::to_string(::getpid()));
  const Descriptor listener = listen_at(address);
  ASSERT_TRUE(listener.is_open());
  for (const bool has_proof : {false, true}) {
    initiator.forget();
    initiator.endpoint.dial(0, {address}, now_ns() + kLongTimeNs);
    Handshake handshake(identity, Role::acceptor);
    initiator.endpoint.poll(initiator);
    const Descriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ASSERT_TRUE(accepted.is_open());
    std::string heard;
    const auto receive = [&](std::size_t bytes) {
      heard.clear();
      for (int round = 0; round < 1000 && read_up_to(accepted.get(), heard, bytes) == Arrival::incomplete; ++round)
        initiator.endpoint.poll(initiator);
      return heard;
    };
    ASSERT_TRUE(send_now(accepted.get(), handshake.challenge()));
    ASSERT_EQ(handshake.take_hello(receive(kHelloBytes)), HelloFault::none);
    ASSERT_TRUE(send_now(accepted.get(), handshake.hello(1)));
    ASSERT_TRUE(handshake.take_proof(receive(kProofBytes)));
    const std::string proof = handshake.proof();
    Sealer sealer = handshake.take_sealer();
    std::string frames;
    for (int count = 0; count < 4; ++count) frames += sealer.seal(1, 0, "an early frame");
    ASSERT_TRUE(send_now(accepted.get(), has_proof ? proof + frames : frames));
    for (int round = 0; round < 100; ++round) initiator.endpoint.poll(initiator);
    EXPECT_EQ(initiator.connected_count, has_proof ? 1 : 0);
    EXPECT_EQ(initiator.bodies.size(), has_proof ? 4u : 0u);
    if (!has_proof) {
      EXPECT_EQ(receive(1), "") << "nothing of the application's was said";
    }
    initiator.endpoint.disconnect(0);
    // Connections that were tried again meanwhile.
    while (Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)).is_open()) continue;
  }
}

// --- Verdicts
// ----------------------------------------------------------------------------------------------------------------------

// Rank 0 tells a rank that counts differently, and one whose rank is there: with its proof, so that it is believed at once.
TEST(EndpointVerdicts, AreToldWithTheProof) {
  Side server(identity_of(job_of(0, 2), Purpose::directory));
  Side first(identity_of(job_of(1, 2), Purpose::directory)), second(identity_of(job_of(1, 2), Purpose::directory));
  Side third(identity_of(job_of(2, 3), Purpose::directory));
  Between idle(server.address, [](To, std::size_t, std::string&) {});
  first.endpoint.dial(0, {server.address}, now_ns() + kLongTimeNs);
  ASSERT_TRUE(run(first, server, idle, [&] { return first.connected_count == 1 && server.connected_count == 1; }));
  for (const auto& [side, cause] :
       {std::pair(&second, "rank 1 is there already"), std::pair(&third, "rank 0 counts 2 ranks, rank 2 counts 3")}) {
    const std::uint64_t before = server.endpoint.refusals().total();
    side->endpoint.dial(0, {server.address}, now_ns() + kLongTimeNs);
    ASSERT_TRUE(run(*side, server, idle, [&] { return !side->losses.empty(); }));
    EXPECT_EQ(name_of(side->losses[0].status()), "invalid_argument");
    EXPECT_NE(side->losses[0].message().find(cause), std::string::npos) << side->losses[0].message();
    EXPECT_EQ(server.endpoint.refusals().total(), before + 1);
  }
  EXPECT_EQ(server.connected_count, 1);
  EXPECT_TRUE(server.losses.empty()) << "the one that is there is not disturbed";
}

}  // namespace
}  // namespace gigabar::fabric::wireup
