// SPDX-License-Identifier: Apache-2.0
// Channels come and go: any order, both at once, deadlines, ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

void expect_both_ways(Node& left, Node& right) {
  ASSERT_TRUE(left.wireup->send(right.rank, frame_of(1, "from left")));
  ASSERT_TRUE(right.wireup->send(left.rank, frame_of(2, "from right")));
  ASSERT_TRUE(pump({&left, &right}, [&] { return !left.frames[right.rank].empty() && !right.frames[left.rank].empty(); }));
  EXPECT_EQ(left.frames[right.rank].back().body, "from right");
  EXPECT_EQ(left.frames[right.rank].back().type, 2);
  EXPECT_EQ(right.frames[left.rank].back().body, "from left");
}

TEST(WireupConnect, OverTheUnixSocketOnOneHost) {
  for (const std::string& key : {kKey, std::string()}) {
    Node left(job_of(0, 2, key));
    Node right(job_of(1, 2, key));
    ASSERT_TRUE(connect_both(left, right));
    EXPECT_TRUE(left.last_is_same_host);
    EXPECT_TRUE(right.last_is_same_host);
    EXPECT_EQ(left.last_process, ::getpid());
    EXPECT_EQ(right.last_process, ::getpid());
    expect_both_ways(left, right);
    EXPECT_EQ(left.wireup->refusals().total() + right.wireup->refusals().total(), 0u);
    EXPECT_GT(left.wireup->memory_bytes(1), 0u);
    EXPECT_LT(left.wireup->memory_bytes(1), 4096u) << "a channel with nothing under way";
    EXPECT_EQ(left.wireup->memory_bytes(0), 0u);
  }
}

TEST(WireupConnect, OverTcp) {
  Node left(job_of(0, 2), only_tcp());
  Node right(job_of(1, 2));
  ASSERT_TRUE(connect_both(left, right));
  EXPECT_FALSE(left.last_is_same_host);
  EXPECT_EQ(left.last_process, 0);
  expect_both_ways(left, right);
}

// A job of one host: no socket of it is one of TCP, and it uses nobody's.
TEST(WireupConnect, AJobOfOneHostKnowsNoTcp) {
  Node left(job_of(0, 2), Settings{});
  Node right(job_of(1, 2), only_tcp());
  EXPECT_TRUE(left.rank_address().addresses.empty());
  ASSERT_TRUE(left.connect(right));
  ASSERT_TRUE(pump({&left, &right}, [&] { return !left.losses.empty(); }));
  EXPECT_EQ(name_of(left.losses[0].second.status()), "peer_lost");
  EXPECT_NE(left.losses[0].second.message().find("single host"), std::string::npos) << left.losses[0].second.message();
  EXPECT_EQ(right.wireup->refusals().total(), 0u);
  EXPECT_EQ(right.connected_count, 0);
}

// Loopback means each host's own, and a Unix socket is of one host: with neither there is nothing to try.
TEST(WireupConnect, NoAddressOfAnotherHostIsOfUse) {
  const Node right(job_of(1, 2));
  RankAddress elsewhere = right.rank_address();
  ++elsewhere.host.network;
  const struct {
    std::string key;
    const char* status;
    const char* cause;
  } kCases[] = {{kKey, "peer_lost", "none of its addresses can be reached from here"},
                {"", "no_permission", "the job has no key: only Unix sockets are used"}};
  for (const auto& one : kCases) {
    Node left(job_of(0, 2, one.key));
    ASSERT_TRUE(left.wireup->connect(1, encode(elsewhere), now_ns() + kLongTimeNs));
    ASSERT_TRUE(pump({&left}, [&] { return !left.losses.empty(); }));
    const Error& error = left.losses[0].second;
    EXPECT_EQ(name_of(error.status()), one.status);
    EXPECT_NE(error.message().find(one.cause), std::string::npos) << error.message();
  }
}

// Each has a port of its own, and nothing else listens at it.
TEST(WireupConnect, ListensAtTheAddressesItIsGiven) {
  Settings settings = only_tcp();
  settings.tcp_addresses = {ipv4({127, 0, 0, 2}), ipv4({127, 0, 0, 3})};
  Node node(job_of(0, 2), settings);
  const RankAddress rank_address = node.rank_address();
  ASSERT_EQ(rank_address.addresses.size(), 2u);
  for (std::size_t index = 0; index < 2; ++index) {
    const SocketAddress& address = rank_address.addresses[index];
    EXPECT_EQ(with_port(address, 0), settings.tcp_addresses[index]);
    EXPECT_TRUE(RawSocket(address).is_connected());
    EXPECT_FALSE(RawSocket(with_port(kLoopback, port_of(address))).is_connected());
  }
  settings.tcp_addresses = {ipv4({192, 0, 2, 1})};
  const auto elsewhere = Wireup::open(job_of(0, 2), settings);
  ASSERT_FALSE(elsewhere) << "an address of another host";
  EXPECT_EQ(name_of(elsewhere.status()), "unavailable");
  EXPECT_EQ(elsewhere.error().record().native.name, "EADDRNOTAVAIL");
}

TEST(WireupConnect, OverEveryAddressOfTheRank) {
  Node right(job_of(1, 2), only_tcp());
  RankAddress rank_address = right.rank_address();
  for (const SocketAddress& address : rank_address.addresses) {
    Node left(job_of(0, 2), only_tcp());
    RankAddress one = rank_address;
    one.addresses = {address};
    ASSERT_TRUE(left.wireup->connect(1, encode(one), now_ns() + kLongTimeNs));
    ASSERT_TRUE(pump({&left, &right}, [&] { return left.has(right) && right.has(left); })) << address.name;
    expect_both_ways(left, right);
    left.wireup->disconnect(1);
    ASSERT_TRUE(pump({&right}, [&] { return !right.has(left); }));
  }
}

TEST(WireupConnect, GoesOnToTheNextAddress) {
  Node right(job_of(1, 2), only_tcp());
  Node left(job_of(0, 2));
  RankAddress rank_address = right.rank_address();
  rank_address.unix_name = "gigabar-where-nobody-listens";
  // Addresses where nobody can listen.
  rank_address.addresses.insert(rank_address.addresses.begin(), {ipv4({255, 255, 255, 255}, 4711), ipv4({224, 0, 0, 1}, 4711)});
  ASSERT_TRUE(left.wireup->connect(1, encode(rank_address), now_ns() + kLongTimeNs));
  ASSERT_TRUE(pump({&left, &right}, [&] { return left.has(right) && right.has(left); }));
}

// The lower and the higher rank start, both start, and many times: one channel each, nothing lost and nothing doubled.
TEST(WireupConnect, BothAtOnceGiveOneChannel) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const bool is_tcp = round % 2 == 1;
    Node left(job_of(0, 2), is_tcp ? only_tcp() : both());
    Node right(job_of(1, 2), is_tcp ? only_tcp() : both());
    for (Node* node : {&left, &right}) {
      node->on_connected = [node](Rank peer) {
        for (int count = 0; count < 3; ++count) {
          EXPECT_TRUE(node->wireup->send(peer, frame_of(1, std::to_string(count))).is_ok());
        }
      };
    }
    // Any interleaving of the two ends' steps.
    ASSERT_TRUE(left.connect(right));
    for (auto steps = random() % 6; steps > 0; --steps) (random() % 2 == 0 ? left : right).poll();
    ASSERT_TRUE(right.connect(left));
    for (auto steps = random() % 12; steps > 0; --steps) (random() % 2 == 0 ? left : right).poll();
    ASSERT_TRUE(pump({&left, &right}, [&] { return left.frames[1].size() >= 3 && right.frames[0].size() >= 3; })) << round;
    for (int extra = 0; extra < 6; ++extra) left.poll(), right.poll();
    for (Node* node : {&left, &right}) {
      ASSERT_EQ(node->connected_count, 1) << round;
      ASSERT_TRUE(node->losses.empty()) << round << ": " << node->losses[0].second.message();
      const std::vector<Frame>& frames = node->frames[1 - node->rank];
      ASSERT_EQ(frames.size(), 3u) << round;
      for (std::size_t count = 0; count < 3; ++count) ASSERT_EQ(frames[count].body, std::to_string(count));
      ASSERT_EQ(node->wireup->refusals().total(), 0u) << round;
    }
  }
}

TEST(WireupConnect, ManyRanksAllToAll) {
  constexpr Rank kRanks = 12;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Node*> all;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    nodes.push_back(std::make_unique<Node>(job_of(rank, kRanks)));
    all.push_back(nodes.back().get());
  }
  for (Node* node : all) {
    for (Node* peer : all) {
      if (node != peer) {
        ASSERT_TRUE(node->connect(*peer));
      }
    }
  }
  ASSERT_TRUE(pump(all, [&] {
    return std::ranges::all_of(all, [](const Node* node) { return node->connected_count == static_cast<int>(kRanks) - 1; });
  }));
  for (Node* node : all) {
    for (Node* peer : all) {
      if (node != peer) {
        ASSERT_TRUE(node->wireup->send(peer->rank, frame_of(9, pattern(1000, node->rank * 100 + peer->rank))));
      }
    }
  }
  ASSERT_TRUE(
      pump(all, [&] { return std::ranges::all_of(all, [](const Node* node) { return node->frames.size() == kRanks - 1; }); }));
  for (Node* node : all) {
    EXPECT_TRUE(node->losses.empty());
    for (const auto& [peer, frames] : node->frames) {
      ASSERT_EQ(frames.size(), 1u);
      EXPECT_EQ(frames[0].body, pattern(1000, peer * 100 + node->rank));
    }
  }
}

TEST(WireupConnect, WaitsForAListenerThatIsNotThereYet) {
  Node left(job_of(0, 2));
  // The address of a rank that comes later: its Unix socket takes the name then.
  RankAddress rank_address = left.rank_address();
  rank_address.unix_name = "gigabar-test-" + std::to_string(::getpid());
  rank_address.addresses.clear();
  ASSERT_TRUE(left.wireup->connect(1, encode(rank_address), now_ns() + kLongTimeNs));
  EXPECT_FALSE(pump({&left}, [&] { return left.wireup->is_connected(1) || !left.losses.empty(); }, kSecond / 5));
  const Descriptor listener = listen_at(network::unix_address(rank_address.unix_name));
  ASSERT_TRUE(listener.is_open());
  Descriptor accepted;
  ASSERT_TRUE(pump({&left}, [&] {
    accepted = Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return accepted.is_open();
  }));
}

TEST(WireupConnect, TimesOutWhenNobodyComes) {
  Node left(job_of(0, 2));
  std::string rank_address;
  {
    Node gone(job_of(1, 2));
    rank_address = gone.wireup->rank_address();
  }
  const std::int64_t began_ns = now_ns();
  ASSERT_TRUE(left.wireup->connect(1, rank_address, began_ns + kSecond / 4));
  ASSERT_TRUE(pump({&left}, [&] { return !left.losses.empty(); }));
  EXPECT_GE(now_ns() - began_ns, kSecond / 4);
  EXPECT_LT(now_ns() - began_ns, 3 * kSecond);
  const Error& error = left.losses[0].second;
  EXPECT_EQ(name_of(error.status()), "timed_out") << error.message();
  EXPECT_NE(error.message().find("ECONNREFUSED"), std::string::npos) << error.message();
  EXPECT_FALSE(error.record().remedy.empty());
  EXPECT_FALSE(pump({&left}, [&] { return left.losses.size() > 1; }, kSecond / 10)) << "lost is told once";
}

// It listens and never says anything: the deadline is kept all the same.
TEST(WireupConnect, TimesOutWhenThePeerDoesNotPoll) {
  for (const bool is_tcp : {false, true}) {
    Node left(job_of(0, 2), is_tcp ? only_tcp() : both());
    Node silent(job_of(1, 2));
    const std::int64_t began_ns = now_ns();
    ASSERT_TRUE(left.connect(silent, kSecond / 4));
    ASSERT_TRUE(pump({&left}, [&] { return !left.losses.empty(); }));
    EXPECT_GE(now_ns() - began_ns, kSecond / 4);
    EXPECT_LT(now_ns() - began_ns, 3 * kSecond);
    EXPECT_EQ(name_of(left.losses[0].second.status()), "timed_out") << left.losses[0].second.message();
  }
}

TEST(WireupConnect, AskingAgainExtendsTheDeadline) {
  Node left(job_of(0, 2));
  Node right(job_of(1, 2));
  ASSERT_TRUE(left.connect(right, kSecond / 10));
  ASSERT_TRUE(left.connect(right));
  EXPECT_FALSE(pump({&left}, [&] { return !left.losses.empty(); }, kSecond / 4));
  ASSERT_TRUE(pump({&left, &right}, [&] { return left.has(right) && right.has(left); }));
  ASSERT_TRUE(left.connect(right)) << "no effect";
  EXPECT_FALSE(pump({&left, &right}, [&] { return left.connected_count + right.connected_count > 2; }, kSecond / 10));
}

TEST(WireupConnect, BadArguments) {
  Node left(job_of(0, 2));
  Node right(job_of(1, 2));
  EXPECT_EQ(left.wireup->connect(1, "no address", now_ns() + kSecond).status(), Status::bad_file);
  EXPECT_EQ(left.wireup->connect(0, right.wireup->rank_address(), now_ns() + kSecond).status(), Status::invalid_argument);
  EXPECT_EQ(left.wireup->connect(2, right.wireup->rank_address(), now_ns() + kSecond).status(), Status::invalid_argument);
  EXPECT_EQ(left.wireup->send(1, frame_of(1, "")).status(), Status::peer_lost);
  left.wireup->disconnect(1);
  EXPECT_FALSE(left.poll() && !left.losses.empty());
}

TEST(WireupConnect, DisconnectTellsOnlyThePeer) {
  for (const bool is_tcp : {false, true}) {
    Node left(job_of(0, 2), is_tcp ? only_tcp() : both());
    Node right(job_of(1, 2));
    ASSERT_TRUE(connect_both(left, right));
    // Queued frames arrive before the end.
    for (int count = 0; count < 5; ++count) ASSERT_TRUE(left.wireup->send(1, frame_of(1, std::to_string(count))));
    left.wireup->disconnect(1);
    EXPECT_FALSE(left.has(right));
    ASSERT_TRUE(pump({&left, &right}, [&] { return !right.losses.empty(); }));
    EXPECT_EQ(right.frames[0].size(), 5u);
    EXPECT_EQ(name_of(right.losses[0].second.status()), "peer_lost");
    EXPECT_NE(right.losses[0].second.message().find("disconnected"), std::string::npos) << right.losses[0].second.message();
    EXPECT_TRUE(left.losses.empty());
    // And anew.
    left.is_up.clear();
    ASSERT_TRUE(connect_both(right, left));
    expect_both_ways(left, right);
  }
}

// The peer connects anew before the end of the old channel was seen.
TEST(WireupConnect, AnewWhileTheOldEndIsUnread) {
  Node left(job_of(0, 2));
  Node right(job_of(1, 2));
  for (int round = 0; round < 50; ++round) {
    Node& first = round % 2 == 0 ? left : right;
    Node& second = round % 2 == 0 ? right : left;
    if (!left.has(right)) {
      ASSERT_TRUE(connect_both(left, right));
    }
    ASSERT_TRUE(first.wireup->send(second.rank, frame_of(1, "last words")));
    second.frames.clear();
    first.losses.clear();
    second.losses.clear();
    first.wireup->disconnect(second.rank);
    first.is_up.clear();
    ASSERT_TRUE(first.connect(second));
    ASSERT_TRUE(pump({&left, &right}, [&] { return first.has(second) && second.losses.size() == 1 && second.has(first); }))
        << round;
    ASSERT_EQ(second.frames[first.rank].size(), 1u);
    ASSERT_TRUE(first.losses.empty());
  }
}

TEST(WireupConnect, CallbacksMayConnectAndSend) {
  Node left(job_of(0, 3));
  Node middle(job_of(1, 3));
  Node right(job_of(2, 3));
  middle.on_connected = [&](Rank peer) {
    if (peer == 0) {
      EXPECT_TRUE(middle.connect(right).is_ok());
    }
  };
  middle.on_frame = [&](Rank peer, Frame frame) { EXPECT_TRUE(middle.wireup->send(2 - peer, std::move(frame)).is_ok()); };
  ASSERT_TRUE(left.connect(middle));
  ASSERT_TRUE(pump({&left, &middle, &right}, [&] { return middle.has(right) && right.has(middle) && left.has(middle); }));
  for (int count = 0; count < 100; ++count) ASSERT_TRUE(left.wireup->send(1, frame_of(1, std::to_string(count))));
  ASSERT_TRUE(pump({&left, &middle, &right}, [&] { return right.frames[1].size() == 100; }));
  for (std::size_t count = 0; count < 100; ++count) EXPECT_EQ(right.frames[1][count].body, std::to_string(count));
  // Connecting again from lost().
  left.on_lost = [&](Rank) { EXPECT_TRUE(left.connect(middle).is_ok()); };
  middle.on_connected = {};
  middle.wireup->disconnect(0);
  middle.is_up.clear();
  ASSERT_TRUE(pump({&left, &middle, &right}, [&] { return left.connected_count == 2 && middle.has(left); }));
}

TEST(WireupConnect, CancelledByDisconnect) {
  Node left(job_of(0, 2));
  Node right(job_of(1, 2));
  ASSERT_TRUE(left.connect(right));
  left.poll();
  left.wireup->disconnect(1);
  EXPECT_FALSE(pump({&left, &right}, [&] { return left.connected_count + right.connected_count > 0; }, kSecond / 10));
  EXPECT_TRUE(left.losses.empty());
  EXPECT_EQ(right.wireup->refusals().total(), 0u) << "who goes away is no stranger";
}

}  // namespace
}  // namespace gigabar::fabric::wireup
