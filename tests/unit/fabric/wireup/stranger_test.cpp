// SPDX-License-Identifier: Apache-2.0
// Those who do not belong: other keys, other jobs, garbage, floods, silence.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/log.hpp"
#include "ranks.hpp"
#include "secure/dial.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar::fabric::wireup {
namespace {

Settings of_version(std::uint32_t version) {
  Settings settings = both();
  settings.version = version;
  return settings;
}

// Takes the challenge while `node` polls.
bool read_challenge(Node& node, RawSocket& socket, Handshake& handshake) {
  return pump({&node}, [&] { return socket.received().size() >= kChallengeBytes; }) &&
         handshake.take_challenge(socket.received().substr(0, kChallengeBytes));
}

// What the initiator is told, and the acceptor counts.
struct Refused {
  Status status = Status::ok;
  std::string message;
  Refusals counted;
};
Refused refuse(const Job& initiator, const Job& acceptor, const Settings& settings = both()) {
  Node left(initiator, settings);
  Node right(acceptor);
  // Over TCP it is told at the deadline.
  const std::int64_t wait_ns = settings.has_unix ? kLongTimeNs : 3 * kSecond;
  EXPECT_TRUE(left.wireup->connect(1, right.wireup->rank_address(), now_ns() + wait_ns).is_ok());
  EXPECT_TRUE(pump({&left, &right}, [&] { return !left.losses.empty(); }));
  EXPECT_EQ(left.connected_count + right.connected_count, 0);
  if (left.losses.empty()) return {};
  return {left.losses[0].second.status(), left.losses[0].second.message(), right.wireup->refusals()};
}

TEST(WireupStrangers, AnotherKey) {
  for (const bool is_tcp : {false, true}) {
    for (const std::string& key : {std::string("another key, of enough bytes"), std::string()}) {
      if (is_tcp && key.empty()) continue;
      const Refused refused = refuse(job_of(0, 2, key), job_of(1, 2), is_tcp ? only_tcp() : both());
      EXPECT_EQ(name_of(refused.status), "no_permission") << refused.message;
      EXPECT_NE(refused.message.find("GIGABAR_JOB_KEY"), std::string::npos) << refused.message;
      EXPECT_GE(refused.counted.wrong_key, 1u);
      EXPECT_EQ(refused.counted.total(), refused.counted.wrong_key);
    }
  }
  EXPECT_EQ(refuse(job_of(0, 2), job_of(1, 2, "")).status, Status::no_permission);
}

TEST(WireupStrangers, AnotherJobCountOrRank) {
  const Job from_another_job = job_of(0, 2, kKey, "job 2");
  for (const auto& [initiator, acceptor] : {std::pair(from_another_job, job_of(1, 2)), std::pair(job_of(0, 3), job_of(1, 2)),
                                            std::pair(job_of(0, 4), job_of(3, 4)), std::pair(job_of(2, 3), job_of(1, 2))}) {
    const Refused refused = refuse(initiator, acceptor);
    EXPECT_EQ(name_of(refused.status), "no_permission") << refused.message;
    EXPECT_EQ(refused.counted.wrong_job, 1u);
    EXPECT_EQ(refused.counted.total(), 1u);
  }
}

TEST(WireupStrangers, AnotherVersionNamesBoth) {
  for (const bool is_tcp : {false, true}) {
    Settings settings = of_version(77);
    settings.has_unix = !is_tcp;
    const Refused refused = refuse(job_of(0, 2), job_of(1, 2), settings);
    EXPECT_EQ(name_of(refused.status), "not_supported") << refused.message;
    EXPECT_NE(refused.message.find("version 4 "), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find("version 77"), std::string::npos) << refused.message;
    EXPECT_GE(refused.counted.wrong_job, 1u);
  }
}

TEST(WireupStrangers, WithoutAKeyOnlyThisHost) {
  Node left(job_of(0, 2, ""));
  Node right(job_of(1, 2, ""));
  EXPECT_TRUE(right.rank_address().addresses.empty()) << "nobody can come from elsewhere";
  RankAddress elsewhere = right.rank_address();
  elsewhere.host.boot[0] ^= 1;
  elsewhere.addresses = {ipv4({192, 0, 2, 77}, 4711)};
  ASSERT_TRUE(left.wireup->connect(1, encode(elsewhere), now_ns() + kLongTimeNs));
  ASSERT_TRUE(pump({&left}, [&] { return !left.losses.empty(); }));
  EXPECT_EQ(name_of(left.losses[0].second.status()), "no_permission");
  EXPECT_NE(left.losses[0].second.message().find("GIGABAR_JOB_KEY"), std::string::npos);
}

// An initiator that has the address but not the key learns nothing that was made with it.
TEST(WireupStrangers, AreToldNothing) {
  Node node(job_of(0, 2));
  RawSocket silent(loopback_of(node));
  RawSocket babbler(loopback_of(node));
  ASSERT_TRUE(babbler.send("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"));
  RawSocket another_job(loopback_of(node));
  const Identity other = identity_of(job_of(1, 2, kKey, "job 2"));
  Handshake handshake(other, Role::initiator);
  ASSERT_TRUE(pump({&node}, [&] { return another_job.received().size() == kChallengeBytes; }));
  const std::string challenge = another_job.received();
  ASSERT_TRUE(handshake.take_challenge(challenge));
  ASSERT_TRUE(another_job.send(handshake.hello(0)));
  ASSERT_TRUE(pump({&node}, [&] { return babbler.has_ended() && another_job.has_ended(); }));
  // Nothing but random bytes, for each its own.
  EXPECT_EQ(silent.received().size(), kChallengeBytes);
  EXPECT_EQ(babbler.received().size(), kChallengeBytes);
  EXPECT_NE(silent.received(), babbler.received());
  EXPECT_EQ(another_job.received(), challenge + encode(Prefix{kProtocolVersion, Verdict::refused}));
  EXPECT_EQ(node.wireup->refusals().malformed, 1u);
  EXPECT_EQ(node.wireup->refusals().wrong_job, 1u);
}

TEST(WireupStrangers, TruncatedHandshakesAtEveryByte) {
  Node node(job_of(0, 2));
  const Identity identity = identity_of(job_of(1, 2));
  for (const bool is_tcp : {false, true}) {
    for (std::size_t length = 0; length < kHelloBytes + kProofBytes; ++length) {
      const std::uint64_t before = node.wireup->refusals().total();
      Handshake handshake(identity, Role::initiator);
      RawSocket stranger(is_tcp ? loopback_of(node) : unix_of(node));
      ASSERT_TRUE(read_challenge(node, stranger, handshake));
      const std::string hello = handshake.hello(0);
      ASSERT_TRUE(stranger.send(hello.substr(0, length)) || length == 0);
      if (length >= kHelloBytes) {
        ASSERT_TRUE(pump({&node}, [&] { return stranger.received().size() >= kChallengeBytes + kHelloBytes; }));
        ASSERT_EQ(handshake.take_hello(stranger.received().substr(kChallengeBytes)), HelloFault::none);
        ASSERT_TRUE(stranger.send(handshake.proof().substr(0, length - kHelloBytes)) || length == kHelloBytes);
      }
      stranger.half_close();
      ASSERT_TRUE(pump({&node}, [&] { return stranger.has_ended(); })) << length;
      const bool is_between = length == 0 || length == kPrefixBytes || length == kHelloBytes;
      EXPECT_EQ(node.wireup->refusals().total() - before, is_between ? 0u : 1u) << length;
    }
  }
  EXPECT_EQ(node.wireup->refusals().total(), node.wireup->refusals().malformed);
  EXPECT_EQ(node.connected_count, 0);
}

// A handshake that comes in single bytes is slow, not wrong.
TEST(WireupStrangers, ByteByByteIsWelcome) {
  Node node(job_of(0, 2));
  const Identity identity = identity_of(job_of(1, 2));
  Handshake handshake(identity, Role::initiator);
  RawSocket socket(loopback_of(node));
  ASSERT_TRUE(read_challenge(node, socket, handshake));
  for (const char byte : handshake.hello(0)) {
    ASSERT_TRUE(socket.send({&byte, 1}));
    node.poll();
  }
  ASSERT_TRUE(pump({&node}, [&] { return socket.received().size() >= kChallengeBytes + kHelloBytes; }));
  ASSERT_EQ(handshake.take_hello(socket.received().substr(kChallengeBytes)), HelloFault::none);
  for (const char byte : handshake.proof()) {
    ASSERT_TRUE(socket.send({&byte, 1}));
    node.poll();
  }
  ASSERT_TRUE(pump({&node}, [&] { return node.wireup->is_connected(1); }));
}

// What was overheard is refused by a hash: the acceptor does not even say its hello.
TEST(WireupStrangers, ReplayedHandshakes) {
  Node node(job_of(0, 2));
  Puppet puppet(node, job_of(1, 2), loopback_of(node));
  ASSERT_TRUE(puppet.shake_hands());
  const std::string first_frame = puppet.sealer->seal(1, 0, "order");
  puppet.socket().close();
  ASSERT_TRUE(pump({&node}, [&] { return !node.losses.empty(); }));

  RawSocket replay(loopback_of(node));
  ASSERT_TRUE(replay.send(puppet.hello + puppet.proof + first_frame));
  ASSERT_TRUE(pump({&node}, [&] { return replay.has_ended(); }));
  EXPECT_EQ(replay.received().size(), kChallengeBytes + kPrefixBytes) << "the challenge and the refusal";
  EXPECT_EQ(node.wireup->refusals().wrong_key, 1u);
  EXPECT_EQ(node.connected_count, 1);
  EXPECT_TRUE(node.frames[1].empty());
}

// A peer that holds the key and then breaks the rules loses its channel; the others do not notice.
TEST(WireupStrangers, ForgedFramesBreakThatChannelOnly) {
  Node node(job_of(0, 3));
  Node friendly(job_of(2, 3));
  ASSERT_TRUE(connect_both(node, friendly));
  const auto expect_broken = [&](const std::function<std::string(Sealer&)>& bytes, const std::string& why) {
    node.losses.clear();
    Puppet puppet(node, job_of(1, 3), unix_of(node));
    ASSERT_TRUE(puppet.shake_hands());
    ASSERT_TRUE(puppet.socket().send(bytes(*puppet.sealer)));
    ASSERT_TRUE(pump({&node, &friendly}, [&] { return !node.losses.empty(); })) << why;
    EXPECT_EQ(node.losses[0].first, 1u);
    EXPECT_EQ(node.losses[0].second.status(), Status::peer_lost);
    EXPECT_NE(node.losses[0].second.message().find(why), std::string::npos) << node.losses[0].second.message();
    EXPECT_TRUE(puppet.socket().has_ended());
  };
  for (const std::size_t at : {0U, 3U, 4U, 8U, 20U}) {
    expect_broken(
        [&](Sealer& sealer) {
          std::string wire = sealer.seal(1, 0, "0123456789");
          wire += sealer.seal(1, 0, std::string(300, 'x'));
          wire[at] = static_cast<char>(wire[at] ^ 1);
          return wire;
        },
        at == 3 ? "length" : "authentic");
  }
  expect_broken([](Sealer& sealer) { return sealer.seal(1, 0, std::string(kMaxFrameBytes + 1, 'x')); }, "length");
  expect_broken([](Sealer& sealer) { return sealer.seal(0x9000, 0, "x"); }, "type 36864");
  expect_broken([](Sealer&) { return std::string(1000, '\0'); }, "length");
  expect_broken([](Sealer& sealer) { return sealer.seal(1, 1, "x"); }, "descriptors");
  expect_broken([](Sealer& sealer) { return sealer.seal(0, 0, "", true); }, "disconnected");
  EXPECT_TRUE(node.frames[1].empty());
  EXPECT_TRUE(friendly.wireup->send(0, frame_of(1, "still here")).is_ok());
  ASSERT_TRUE(pump({&node, &friendly}, [&] { return !node.frames[2].empty(); }));
}

TEST(WireupStrangers, SlowOnesAreDropped) {
  Settings settings = both();
  settings.handshake_ns = kSecond / 5;
  Node node(job_of(0, 2), settings);
  RawSocket silent(unix_of(node));
  RawSocket half(loopback_of(node));
  ASSERT_TRUE(half.send("gigab"));
  const std::int64_t began_ns = now_ns();
  ASSERT_TRUE(pump({&node}, [&] { return silent.has_ended() && half.has_ended(); }));
  EXPECT_GE(now_ns() - began_ns, kSecond / 10);
  EXPECT_LT(now_ns() - began_ns, 4 * kSecond);
  EXPECT_EQ(node.wireup->refusals().too_slow, 2u);
  EXPECT_EQ(Settings{}.handshake_ns, 5 * kSecond);
}

// More strangers than are held: the older ones go, each is counted once, and a rank gets in between them.
TEST(WireupStrangers, TwoHundredAtOnce) {
  for (const bool is_tcp : {false, true}) {
    Settings settings = both();
    settings.max_pending_handshakes = 64;
    Node node(job_of(0, 2), settings);
    std::vector<std::unique_ptr<RawSocket>> strangers;
    for (int count = 0; count < 200; ++count) {
      strangers.push_back(std::make_unique<RawSocket>(is_tcp ? loopback_of(node) : unix_of(node)));
      ASSERT_TRUE(strangers.back()->is_connected());
    }
    const auto ended_count = [&] {
      return std::ranges::count_if(strangers, [](const auto& stranger) { return stranger->has_ended(); });
    };
    ASSERT_TRUE(pump({&node}, [&] { return ended_count() >= 136; }));
    EXPECT_EQ(ended_count(), 136);
    EXPECT_EQ(node.wireup->refusals().crowded_out, 136u);
    EXPECT_EQ(node.wireup->refusals().total(), 136u);
    EXPECT_FALSE(strangers.back()->has_ended()) << "the newest are held";
    Node peer(job_of(1, 2));
    ASSERT_TRUE(connect_both(peer, node));
  }
}

// Those of TCP and those of this host do not take each other's places.
TEST(WireupStrangers, AFloodOverTcpLeavesTheUnixSocketAlone) {
  Settings settings = both();
  settings.max_pending_handshakes = 4;
  settings.grace_before_hello_ns = settings.handshake_ns = 1000 * kSecond;  // TCP's listener rests all the time
  Node node(job_of(0, 3), settings);
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int count = 0; count < 20; ++count) strangers.push_back(std::make_unique<RawSocket>(loopback_of(node)));
  ASSERT_TRUE(pump({&node}, [&] {
    return std::ranges::count_if(strangers, [](const auto& stranger) { return !stranger->received().empty(); }) == 4;
  }));
  Node peer(job_of(1, 3), Settings{});
  ASSERT_TRUE(connect_both(peer, node));
  EXPECT_EQ(node.wireup->refusals().total(), 0u) << "nobody had to go for it";
}

// Ranks that all come at once are not strangers: those that find no place wait until there is one.
TEST(WireupStrangers, ACrowdOfRanksIsLetInOneAfterAnother) {
  constexpr Rank kRanks = 40;
  Settings narrow = both();
  narrow.max_pending_handshakes = 4;
  narrow.grace_before_hello_ns = 20 * kSecond;  // however slow the machine is
  narrow.grace_after_hello_ns = 20 * kSecond;
  Node node(job_of(0, kRanks), narrow);
  std::vector<std::unique_ptr<Node>> others;
  std::vector<Node*> all{&node};
  for (Rank rank = 1; rank < kRanks; ++rank) {
    others.push_back(std::make_unique<Node>(job_of(rank, kRanks), rank % 2 == 0 ? only_tcp() : both()));
    all.push_back(others.back().get());
    ASSERT_TRUE(others.back()->connect(node));
    others.back()->poll();
    others.back()->poll();
  }
  ASSERT_TRUE(pump(all, [&] { return node.connected_count == static_cast<int>(kRanks) - 1; }));
  EXPECT_TRUE(node.losses.empty());
  EXPECT_EQ(node.wireup->refusals().total(), 0u);
  for (const auto& other : others) EXPECT_EQ(other->last_is_same_host, other->rank % 2 == 1) << other->rank;
}

// Members that show the key and do not prove it hold their places for a moment only; who does not hold it, for none.
TEST(WireupStrangers, HellosWithoutProofsMakeWay) {
  Settings narrow = both();
  narrow.max_pending_handshakes = 4;
  Node node(job_of(0, 3), narrow);
  const Identity other_key = identity_of(job_of(1, 3, "not the key of this job"));
  const Identity identity = identity_of(job_of(1, 3));
  Handshake keyless(other_key, Role::initiator);
  RawSocket refused(loopback_of(node));
  ASSERT_TRUE(read_challenge(node, refused, keyless));
  ASSERT_TRUE(refused.send(keyless.hello(0)));
  ASSERT_TRUE(pump({&node}, [&] { return refused.has_ended(); }));
  EXPECT_EQ(node.wireup->refusals().wrong_key, 1u);
  std::vector<std::unique_ptr<Handshake>> handshakes;
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int count = 0; count < 4; ++count) {
    handshakes.push_back(std::make_unique<Handshake>(identity, Role::initiator));
    strangers.push_back(std::make_unique<RawSocket>(loopback_of(node)));
    ASSERT_TRUE(read_challenge(node, *strangers.back(), *handshakes.back()));
    ASSERT_TRUE(strangers.back()->send(handshakes.back()->hello(0)));
    ASSERT_TRUE(pump({&node}, [&] { return strangers.back()->received().size() == kChallengeBytes + kHelloBytes; }));
  }
  Node peer(job_of(2, 3), only_tcp());
  ASSERT_TRUE(connect_both(peer, node));
  EXPECT_EQ(node.wireup->refusals().crowded_out, 1u);
}

// The 65th pushes out who has said nothing, not the rank that is in the middle of its handshake.
TEST(WireupStrangers, SilentOnesGoFirst) {
  Settings settings = both();
  settings.max_pending_handshakes = 64;
  Node node(job_of(0, 2), settings);
  const Identity identity = identity_of(job_of(1, 2));
  Handshake handshake(identity, Role::initiator);
  RawSocket early(unix_of(node));
  ASSERT_TRUE(read_challenge(node, early, handshake));
  ASSERT_TRUE(early.send(handshake.hello(0)));
  ASSERT_TRUE(pump({&node}, [&] { return early.received().size() == kChallengeBytes + kHelloBytes; }));
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int count = 0; count < 100; ++count) strangers.push_back(std::make_unique<RawSocket>(unix_of(node)));
  ASSERT_TRUE(pump({&node}, [&] { return node.wireup->refusals().crowded_out == 37; }));
  ASSERT_EQ(handshake.take_hello(early.received().substr(kChallengeBytes)), HelloFault::none);
  ASSERT_TRUE(early.send(handshake.proof()));
  ASSERT_TRUE(pump({&node}, [&] { return node.wireup->is_connected(1); }));
}

// The address leads to somebody who is no rank.
TEST(WireupStrangers, AnImpostorListens) {
  const std::string name = "gigabar-impostor-" + std::to_string(::getpid());
  const Descriptor listener = listen_at(network::unix_address(name));
  ASSERT_TRUE(listener.is_open());
  const Identity identity = identity_of(job_of(1, 2, "a key that the impostor made up"));
  const Identity other_rank = identity_of(job_of(2, 3));
  const Identity same_key = identity_of(job_of(1, 2));
  const std::string garbage(200, 'g');
  enum Kind : std::uint8_t { speaks_garbage, lacks_the_key, is_another_rank, reflects, stays_silent, proves_nothing, ends };
  for (int kind = 0; kind < ends; ++kind) {
    Node node(job_of(0, 2));
    RankAddress rank_address = node.rank_address();
    rank_address.unix_name = name;
    rank_address.addresses.clear();
    ASSERT_TRUE(node.wireup->connect(1, encode(rank_address), now_ns() + (kind == stays_silent ? kSecond / 5 : kLongTimeNs)));
    Handshake handshake(kind == is_another_rank ? other_rank : kind == proves_nothing ? same_key : identity, Role::acceptor);
    Descriptor accepted;
    std::string heard;
    bool has_answered = false;
    bool has_proven = false;
    ASSERT_TRUE(pump({&node}, [&] {
      if (!accepted.is_open()) {
        accepted = Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (accepted.is_open() && kind == speaks_garbage) send_now(accepted.get(), garbage);
        if (accepted.is_open() && kind != speaks_garbage && kind != stays_silent) send_now(accepted.get(), handshake.challenge());
      }
      if (accepted.is_open()) read_up_to(accepted.get(), heard, kHelloBytes + kProofBytes);
      if (heard.size() >= kHelloBytes && !has_answered) {
        has_answered = true;
        EXPECT_EQ(handshake.take_hello(heard.substr(0, kHelloBytes)), kind == is_another_rank  ? HelloFault::job
                                                                      : kind == proves_nothing ? HelloFault::none
                                                                                               : HelloFault::key);
        send_now(accepted.get(), kind == reflects ? heard.substr(0, kHelloBytes) : handshake.hello(0));
      }
      if (heard.size() == kHelloBytes + kProofBytes && !has_proven) {
        has_proven = true;
        std::string proof = handshake.proof();
        proof.back() = static_cast<char>(proof.back() ^ 1);
        send_now(accepted.get(), proof);
      }
      return !node.losses.empty();
    })) << kind;
    EXPECT_EQ(name_of(node.losses[0].second.status()), kind == stays_silent ? "timed_out" : "no_permission")
        << kind << node.losses[0].second.message();
    EXPECT_EQ(has_proven, kind == proves_nothing) << "nobody else hears the proof";
    EXPECT_EQ(node.connected_count, 0);
  }
}

// Over TCP anybody may have answered: however often it refuses, the rank goes on trying until the deadline, and connects when the
// right one comes.
TEST(WireupStrangers, ARefusalOverTcpIsNeverFinal) {
  for (const bool comes : {false, true}) {
    const Descriptor listener = listen_at(kLoopback);
    ASSERT_TRUE(listener.is_open());
    auto poller = Poller::open();
    ASSERT_TRUE(poller);
    const Identity identity = identity_of(job_of(0, 2)), other = identity_of(job_of(1, 2));
    std::int64_t now = now_ns();  // the dial's clock
    const std::int64_t deadline_ns = now + 20 * kSecond;
    Dial dial(identity, **poller, 1, 1, {with_port(kLoopback, port_of(own_address_of(listener.get())))}, deadline_ns, {});
    std::vector<Descriptor> held;
    std::optional<Handshake> handshake;
    std::string heard;
    Dial::Progress progress = Dial::Progress::going;
    for (int turn = 0; progress == Dial::Progress::going && turn < 3000; ++turn) {
      Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.is_open()) {
        const bool is_last = comes && held.size() == 20;
        if (is_last) handshake.emplace(other, Role::acceptor);
        send_now(socket.get(), is_last ? handshake->challenge() : encode(Prefix{kProtocolVersion, Verdict::refused}));
        held.push_back(std::move(socket));
      }
      if (handshake) {
        read_up_to(held.back().get(), heard, kHelloBytes + kProofBytes);
        if (heard.size() >= kHelloBytes && handshake->peer() == kAnyRank) {
          EXPECT_EQ(handshake->take_hello(heard.substr(0, kHelloBytes)), HelloFault::none);
          send_now(held.back().get(), handshake->hello(0));
        }
        if (heard.size() == kHelloBytes + kProofBytes && handshake->take_proof(heard.substr(kHelloBytes)))
          send_now(held.back().get(), handshake->proof());
      }
      ::poll(nullptr, 0, 1);
      progress = dial.advance(now += kSecond / 50);
    }
    EXPECT_GT(held.size(), 20u) << "it tries again";
    EXPECT_EQ(progress, comes ? Dial::Progress::connected : Dial::Progress::failed);
    if (comes) continue;
    EXPECT_EQ(name_of(dial.error().status()), "no_permission") << "the deadline tells what was heard";
    EXPECT_GE(now, deadline_ns);
  }
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
TEST(WireupStrangers, NoDescriptorToAcceptWith) {
  Node node(job_of(0, 2));
  Node peer(job_of(1, 2));
  ASSERT_TRUE(peer.connect(node));
  peer.poll();
  int busy_rounds = 0;
  std::atomic<int> line_count{0};
  LogHandler before = set_log_handler(
      [&](LogLevel, std::string_view line) { line_count += line.find("ulimit -n") != std::string_view::npos ? 1 : 0; });
  const bool has_slept = test::without_descriptors([&] {
    for (; busy_rounds < 20; ++busy_rounds) {
      node.poll();
      pollfd watched{node.wireup->wake_descriptor(), POLLIN, 0};
      if (::poll(&watched, 1, 20) == 0) return true;
    }
    return false;
  });
  set_log_handler(std::move(before));
  EXPECT_TRUE(has_slept) << "poll() was called for nothing " << busy_rounds << " times";
  EXPECT_EQ(line_count, 1) << "once for each pause";
  ASSERT_TRUE(pump({&node, &peer}, [&] { return node.has(peer) && peer.has(node); })) << "it goes on when there is room again";
}

TEST(WireupStrangers, NoDescriptorToOpenWith) {
  const Job job = job_of(0, 2);
  const auto refused = test::without_descriptors([&] { return Wireup::open(job); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(name_of(refused.status()), "out_of_descriptors") << refused.error().message();
  EXPECT_FALSE(refused.error().record().remedy.empty());
}

TEST(WireupStrangers, NoDescriptorToConnectWithIsTriedAgain) {
  Node node(job_of(0, 2));
  Node peer(job_of(1, 2));
  ASSERT_TRUE(peer.connect(node));
  test::without_descriptors([&] {
    for (int round = 0; round < 5; ++round) peer.poll();
    return 0;
  });
  EXPECT_TRUE(peer.losses.empty());
  ASSERT_TRUE(pump({&node, &peer}, [&] { return node.has(peer) && peer.has(node); }));
}
#endif

}  // namespace
}  // namespace gigabar::fabric::wireup
