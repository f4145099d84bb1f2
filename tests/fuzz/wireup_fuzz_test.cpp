// SPDX-License-Identifier: Apache-2.0
// Addresses, handshakes and frames at random: nobody gets in with them, nothing false is told, and the others do not notice.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/mutator.hpp"
#include "unit/fabric/wireup/ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

using test::for_a_while;
using test::Mutator;

// Until the node has nothing to do at once.
void settle(Node& node) {
  for (int round = 0; round < 1000 && node.poll(); ++round) continue;
}

// In pieces, as a network may deliver them; the node takes them before there are more than a socket holds.
void send_in_pieces(Mutator& mutator, Node& node, const RawSocket& socket, const std::string& bytes) {
  constexpr std::size_t kMaxUnderWay = 100'000;
  std::size_t under_way = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t most = std::min(bytes.size() - at, kMaxUnderWay - under_way);
    const std::size_t count = mutator.once_in(3) ? std::min<std::size_t>(1 + mutator.below(40), most) : most;
    if (!socket.send(bytes.substr(at, count))) return;
    at += count;
    under_way += count;
    if (under_way == kMaxUnderWay || mutator.once_in(2)) {
      settle(node);
      under_way = 0;
    }
  }
  settle(node);
}

// A stranger's and a listener's answers both need a flip in something that is sure to be one.
std::string changed_for_sure(Mutator& mutator, const std::string& bytes) {
  std::string changed;
  do {
    changed = mutator.once_in(4) ? mutator.bytes(300) : mutator.changed(bytes);
  } while (changed.starts_with(bytes));
  return changed;
}

TEST(WireupFuzz, Addresses) {
  Node node(job_of(0, 2));
  const std::string good = node.wireup->rank_address();
  std::size_t read = 0;
  for_a_while([&](Mutator& mutator) {
    const std::string bytes = mutator.once_in(8) ? mutator.bytes(400) : mutator.changed(good);
    const auto rank_address = decode_rank_address(bytes);
    if (!rank_address) {
      EXPECT_EQ(rank_address.status(), Status::bad_file);
      EXPECT_EQ(node.wireup->connect(1, bytes, now_ns()).status(), Status::bad_file);
      return;
    }
    ++read;
    EXPECT_LE(rank_address->addresses.size(), kMaxSocketAddresses);
    const auto again = decode_rank_address(encode(*rank_address));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->addresses, rank_address->addresses);
    EXPECT_EQ(again->unix_name, rank_address->unix_name);
  });
  EXPECT_GT(read, 0u);
}

// Whatever is changed before the handshake is over keeps the peer out.
TEST(WireupFuzz, HandshakesOfStrangers) {
  Node node(job_of(0, 3));
  Node friendly(job_of(2, 3));
  ASSERT_TRUE(connect_both(node, friendly));
  const Identity identity = identity_of(job_of(1, 3));
  for_a_while([&](Mutator& mutator) {
    Handshake handshake(identity, Role::initiator);
    RawSocket stranger(unix_of(node));
    ASSERT_TRUE(stranger.is_connected());
    settle(node);
    ASSERT_TRUE(handshake.take_challenge(stranger.received()));
    const std::string hello = handshake.hello(0);
    const bool is_hello_changed = mutator.once_in(2);
    send_in_pieces(mutator, node, stranger, is_hello_changed ? changed_for_sure(mutator, hello) : hello);
    if (!is_hello_changed) {
      ASSERT_EQ(handshake.take_hello(stranger.received().substr(kChallengeBytes)), HelloFault::none);
      send_in_pieces(mutator, node, stranger, changed_for_sure(mutator, handshake.proof()));
    } else if (mutator.once_in(2)) {
      send_in_pieces(mutator, node, stranger, mutator.bytes(200));
    }
    ASSERT_FALSE(node.wireup->is_connected(1));
    stranger.close();
    settle(node);
    ASSERT_TRUE(node.has(friendly));
  });
  ASSERT_TRUE(friendly.wireup->send(0, frame_of(1, "still here")));
  ASSERT_TRUE(pump({&node, &friendly}, [&] { return !node.frames[2].empty(); }));
  EXPECT_GT(node.wireup->refusals().malformed, 0u);
}

// A peer with the key whose frames are changed on the way: what was told before the change is right, and then it is lost.
TEST(WireupFuzz, FramesOfPeers) {
  Node node(job_of(0, 2));
  for_a_while([&](Mutator& mutator) {
    node.frames.clear();
    node.losses.clear();
    Puppet puppet(node, job_of(1, 2), unix_of(node));
    ASSERT_TRUE(puppet.shake_hands());
    std::vector<std::string> bodies;
    std::string wire;
    for (std::size_t count = 1 + mutator.below(6); count > 0; --count) {
      bodies.push_back(pattern(mutator.once_in(5) ? mutator.below(60'000) : mutator.below(100), count));
      wire += puppet.sealer->seal(static_cast<std::uint16_t>(bodies.size()), 0, bodies.back());
    }
    const std::string changed = mutator.once_in(4) ? wire : mutator.changed(wire);
    const auto same = static_cast<std::size_t>(std::ranges::mismatch(wire, changed).in1 - wire.begin());
    send_in_pieces(mutator, node, puppet.socket(), changed);
    puppet.socket().close();
    ASSERT_TRUE(pump({&node}, [&] { return !node.losses.empty(); }));
    ASSERT_EQ(node.losses.size(), 1u);
    std::size_t whole_bytes = 0;
    std::size_t whole = 0;
    while (whole < bodies.size() && whole_bytes + kFrameOverheadBytes + bodies[whole].size() <= same) {
      whole_bytes += kFrameOverheadBytes + bodies[whole++].size();
    }
    const std::vector<Frame>& told = node.frames[1];
    ASSERT_EQ(told.size(), whole);
    for (std::size_t index = 0; index < whole; ++index) {
      ASSERT_EQ(told[index].type, index + 1);
      ASSERT_EQ(told[index].body, bodies[index]);
    }
  });
}

// The address leads to a listener that answers something else than it should.
TEST(WireupFuzz, AnswersOfListeners) {
  const std::string name = "gigabar-fuzz-" + std::to_string(::getpid());
  const Descriptor listener = listen_at(network::unix_address(name));
  ASSERT_TRUE(listener.is_open());
  Node node(job_of(0, 2));
  const Identity identity = identity_of(job_of(1, 2));
  RankAddress rank_address = node.rank_address();
  rank_address.unix_name = name;
  rank_address.addresses.clear();
  for_a_while([&](Mutator& mutator) {
    node.losses.clear();
    ASSERT_TRUE(node.wireup->connect(1, encode(rank_address), now_ns() + kLongTimeNs));
    settle(node);
    Descriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ASSERT_TRUE(accepted.is_open());
    std::string heard;
    Handshake handshake(identity, Role::acceptor);
    ASSERT_TRUE(send_now(accepted.get(), handshake.challenge()));
    settle(node);
    ASSERT_EQ(read_up_to(accepted.get(), heard, kHelloBytes), Arrival::complete);
    ASSERT_EQ(handshake.take_hello(heard), HelloFault::none);
    const std::string hello = handshake.hello(0);
    const bool is_hello_changed = mutator.once_in(2);
    send_now(accepted.get(), is_hello_changed ? changed_for_sure(mutator, hello) : hello);
    settle(node);
    if (!is_hello_changed) send_now(accepted.get(), changed_for_sure(mutator, handshake.proof()));
    settle(node);
    ASSERT_FALSE(node.wireup->is_connected(1));
    accepted = Descriptor();
    node.wireup->disconnect(1);
    settle(node);
    ASSERT_EQ(node.connected_count, 0);
    // Connections that were tried again meanwhile.
    while (Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)).is_open()) continue;
  });
}

}  // namespace
}  // namespace gigabar::fabric::wireup
