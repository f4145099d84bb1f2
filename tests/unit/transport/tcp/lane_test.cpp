// SPDX-License-Identifier: Apache-2.0
// Links whose large writes go over connections of their own. link_test.cpp and the tests between ranks run with them too.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "platform/cpu_set.hpp"
#include "support/isolated.hpp"
#include "support/refused_threads.hpp"
#include "unit/transport/tcp/raw_peer.hpp"

namespace gigabar::transport::tcp::test {
namespace {

constexpr const char* kVariable = "GIGABAR_TCP_CONNECTIONS";
constexpr std::size_t kBytes = 4 << 20;

struct Lanes : Pair {
  explicit Lanes(const char* near_count = "3", const char* far_count = "3")
      : Pair(open_transport({}, near_count), open_transport({}, far_count)) {}
};

// With memory at both ends.
struct WritingLanes : Lanes {
  WritingLanes() { EXPECT_NO_FATAL_FAILURE(connect()); }
  Posted write(std::uint64_t cookie) { return near_link->post_write(*source.region, 0, *remote, 0, kBytes, cookie); }

  Buffer source{*near, kBytes}, target{*far, kBytes};
  std::unique_ptr<RemoteRegion> remote = open_far(*target.region);
};

TEST(TcpLanes, BothUseWhatBothHave) {
  struct Try {
    const char *near, *far, *rail;
  };
  for (const Try& one :
       {Try{"4", "2", "lo x2, authenticated"}, Try{"2", "4", "lo x2, authenticated"}, Try{"1", "4", "lo x1, authenticated"},
        Try{"0", "4", "lo, authenticated"}, Try{"4", "0", "lo, authenticated"}, Try{"8", "8", "lo x8, authenticated"}}) {
    Lanes pair(one.near, one.far);
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    EXPECT_EQ(pair.near_link->rail(), one.rail);
    EXPECT_EQ(pair.far_link->rail(), one.rail);
    // Writes of the peer come over all of them, answers to reads over none.
    EXPECT_EQ(pair.near_link->limits().quick_read_bytes < kBytes, std::string_view(one.rail).find(" x") != std::string_view::npos);
    Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
    const auto remote = pair.open_far(*target.region);
    const std::vector<std::byte> data = patterned(kBytes, 3);
    std::memcpy(source.data(), data.data(), kBytes);
    pair.post([&] { return pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, 1); });
    pair.post([&] { return pair.near_link->post_message(header_of(9), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1 && pair.near_sink.dones.size() == 1; }));
    EXPECT_EQ(std::memcmp(target.data(), data.data(), kBytes), 0);
    EXPECT_TRUE(target.is_guarded());
  }
}

TEST(TcpLanes, OneForFourProcessorsWhereNothingIsSaid) {
  struct Try {
    std::size_t processors;
    const char* rail;
  };
  for (const Try& one : {Try{1, "lo, authenticated"}, Try{3, "lo, authenticated"}, Try{4, "lo x1, authenticated"},
                         Try{15, "lo x3, authenticated"}, Try{64, "lo x4, authenticated"}}) {
    TransportOptions options;
    options.cpus.assign(one.processors, usable_cpus().front());
    Pair pair(open_transport(options, nullptr), open_transport({}, "8"));
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    EXPECT_EQ(pair.near_link->rail(), one.rail) << one.processors;
  }
}

TEST(TcpLanes, ANumberThatIsNoneIsRefused) {
  for (const char* const value : {"9", "many", "-1", "2x"}) {
    const gigabar::test::ScopedEnvironment count(kVariable, value);
    const auto refused = TcpTransport::open({});
    ASSERT_EQ(refused.status(), Status::invalid_argument) << value;
    EXPECT_NE(refused.error().message().find(kVariable), std::string::npos) << refused.error().message();
  }
}

// What is there works, over fewer connections.
ISOLATED_TEST(TcpLanes, ASystemWithoutThreadsHasTheLinksOwnConnection) {
  Lanes pair;
  ASSERT_NO_FATAL_FAILURE(gigabar::test::refuse_threads());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  EXPECT_EQ(pair.near_link->rail(), "lo, authenticated");
  Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, 1), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == 1; }));
}

// Each message behind all writes before it, and no write lost, over sizes of one share, of few, and of one for each lane.
TEST(TcpLanes, MessagesAreBehindTheirWrites) {
  Lanes pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kLargest = 256 << 10;
  Buffer source(*pair.near, kLargest), target(*pair.far, kLargest * 2);
  const auto remote = pair.open_far(*target.region);
  const auto bytes_of = [](std::uint64_t round) { return kLaneBytes + round % 7 * 4104; };
  std::uint64_t received = 0, wrong = 0;
  pair.far_sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    wrong += number_of(header) == received ? 0 : 1;
    // The next write goes beside it, and the one after that waits for this message.
    const std::byte* const place = target.data() + received % 2 * kLargest;
    for (std::size_t at = 0; at < bytes_of(received); at += 8) {
      std::uint64_t round = 0;
      std::memcpy(&round, place + at, sizeof round);
      wrong += round == received ? 0 : 1;
    }
    ++received;
  };
  constexpr std::uint64_t kRounds = 3000;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (std::size_t at = 0; at < bytes_of(round); at += 8) std::memcpy(source.data() + at, &round, sizeof round);
    pair.post([&] { return pair.near_link->post_write(*source.region, 0, *remote, round % 2 * kLargest, bytes_of(round), round); });
    pair.post([&] { return pair.near_link->post_message(header_of(round), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.contains(round) && received >= round; })) << round;
  }
  ASSERT_TRUE(pair.poll_until([&] { return received == kRounds; }));
  EXPECT_EQ(wrong, 0u);
}

// Of all sockets of this process: the smallest that the kernel allows.
void make_send_buffers_small() {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    const int least = 1;
    ::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }
}

// The socket is full at all times, and takes nothing between two frames too.
TEST(TcpLanes, AFullSocketRepeatsAndLosesNothing) {
  const std::unique_ptr<TcpTransport> near = open_transport({}, "1");
  RawPeer peer(*near, 1);
  make_send_buffers_small();
  Buffer source(*near, kLaneBytes);
  const std::vector<std::byte> data = patterned(kLaneBytes, 5);
  std::memcpy(source.data(), data.data(), data.size());
  constexpr std::uint64_t kWrites = 20;
  constexpr std::size_t kFrame = sizeof(FrameHeader) + kLaneBytes;
  const PlacedRemoteRegion remote({.region = 7, .guard = 8, .bytes = kWrites * kLaneBytes, .is_mapped = false});
  std::string heard;
  std::uint64_t posted = 0, come = 0;
  ASSERT_TRUE(peer.poll_until([&] {
    const auto post = [&] { return peer.link->post_write(*source.region, 0, remote, posted * kLaneBytes, kLaneBytes, posted); };
    while (posted < kWrites && post() == Posted::ok) ++posted;
    peer.hear(1, 50'000, heard);
    for (; heard.size() >= kFrame; heard.erase(0, kFrame), ++come) {
      const auto header = parse_header(std::as_bytes(std::span(heard)));
      if (!header || access_of(*header).offset != come * kLaneBytes || header->request != 1) return true;
      if (std::memcmp(heard.data() + sizeof(FrameHeader), data.data(), kLaneBytes) != 0) return true;
    }
    return come == kWrites && peer.sink.dones.size() == kWrites;
  }));
  EXPECT_EQ(come, kWrites) << "the next one is wrong";
  EXPECT_EQ(peer.link->state(), LinkState::ready);
}

TEST(TcpLanes, ASleeperIsWokenByALane) {
  WritingLanes pair;
  for (std::uint64_t round = 0; round < 20; ++round) {
    ASSERT_EQ(pair.write(round), Posted::ok);
    const Deadline deadline = Deadline::after_ns(kPatienceNs);
    while (!pair.near_sink.dones.contains(round) && !deadline.has_passed()) {
      pair.far->poll(pair.far_sink);
      if (pair.near->poll(pair.near_sink) || !pair.near->arm()) continue;
      pollfd watched{pair.near->wake_descriptor(), POLLIN, 0};
      // Less than the link's timer takes to look at it.
      ASSERT_EQ(::poll(&watched, 1, 1'000), 1) << "nothing woke it in round " << round;
    }
    ASSERT_TRUE(pair.near_sink.dones.contains(round));
  }
}

// What was complete at the sender when it closed is delivered, though the word of the end takes another connection.
TEST(TcpLanes, AClosedLinkLosesNothing) {
  for (int round = 0; round < 20; ++round) {
    WritingLanes pair;
    std::memset(pair.source.data(), 0x33, kBytes);
    ASSERT_EQ(pair.write(1), Posted::ok);
    pair.post([&] { return pair.near_link->post_message(header_of(9), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == 1; }));
    pair.near_link.reset();
    ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.errors.size() == 1; }));
    EXPECT_EQ(pair.far_sink.messages.size(), 1u) << round << ": " << pair.far_sink.errors.begin()->second;
    EXPECT_NE(pair.far_sink.errors.begin()->second.find("the peer closed"), std::string::npos);
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(pair.target.data()[i], std::byte{0x33}) << round;
  }
}

TEST(TcpLanes, ARegionThatGoesWhileItIsWritten) {
  for (int round = 0; round < 10; ++round) {
    WritingLanes pair;
    std::memset(pair.source.data(), 0x77, kBytes);
    // More than the lanes could send by themselves, so that some is always still to come.
    std::uint64_t posted = 0;
    for (int polls = 0; polls <= 50 * round; ++polls) {
      if (polls != 0) pair.poll();
      while (posted < pair.near_sink.dones.size() + 32) {
        ASSERT_EQ(pair.write(posted++), Posted::ok);
      }
    }
    pair.target.region.reset();
    std::memset(pair.target.data(), 0x22, kBytes);
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
    EXPECT_EQ(pair.near_sink.dones.size(), posted);
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(pair.target.data()[i], std::byte{0x22}) << round;
  }
}

TEST(TcpLanes, MemoryThatGoesWhileItIsSentIsTouchedNoMore) {
  WritingLanes pair;
  for (std::uint64_t cookie = 0; cookie < 32; ++cookie) {
    ASSERT_EQ(pair.write(cookie), Posted::ok);
  }
  pair.source.region.reset();
  std::vector<std::byte>().swap(pair.source.memory);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  EXPECT_EQ(pair.near_sink.dones.size(), 32u);
  EXPECT_NE(pair.near_sink.errors.begin()->second.find("write"), std::string::npos) << pair.near_sink.errors.begin()->second;
}

// What a liar may say on a connection for large writes, and about them.
TEST(TcpLanes, WhatIsNotAllowedThereBreaksTheLinkOnly) {
  const std::unique_ptr<TcpTransport> near = open_transport({}, "3");
  Buffer target(*near, 4096);
  std::memset(target.data(), 0x11, target.bytes);
  const RegionKey key = *decode_region_key(target.region->key(RawPeer::own_peer())->bytes);
  const auto write = [&](std::uint32_t region, std::uint64_t guard, std::uint64_t offset) {
    return frame(make_header(FrameKind::write, region, 8, {guard, offset, 0}), std::string(8, '\x22'));
  };
  FrameHeader fence = make_header(FrameKind::fence, 0, 0), fence_of_one = fence;
  fence.body[3 * sizeof(std::uint32_t)] = std::byte{1};  // over a fourth lane
  fence_of_one.body[0] = std::byte{1};
  struct Try {
    const char* what;
    std::size_t connection;
    std::string bytes;
  };
  const Try tries[] = {
      {"another guard", 2, write(key.region, key.guard ^ 1, 0)},
      {"an unknown region", 2, write(key.region + 1000, key.guard, 0)},
      {"one byte too far", 2, write(key.region, key.guard, 4089)},
      {"before the region", 2, write(key.region, key.guard, ~std::uint64_t{7})},
      {"a message", 2, frame(make_header(FrameKind::message, 0, 0))},
      {"a read", 2, frame(make_header(FrameKind::read, key.region, 0, {key.guard, 0, 8}))},
      {"a fence", 2, frame(make_header(FrameKind::fence, 0, 0))},
      {"no frame", 2, std::string(sizeof(FrameHeader), 'x')},
      {"a fence for a lane that is none", 0, frame(fence)},
  };
  for (const Try& one : tries) {
    RawPeer liar(*near, 3);
    liar.say(one.connection, one.bytes);
    ASSERT_TRUE(liar.poll_until([&] { return liar.sink.errors.size() == 1; })) << one.what;
    EXPECT_NE(liar.sink.errors.begin()->second.find("broke the rules"), std::string::npos) << one.what;
    for (std::size_t i = 0; i < target.bytes; ++i) ASSERT_EQ(target.data()[i], std::byte{0x11}) << one.what;
    EXPECT_TRUE(target.is_guarded()) << one.what;
  }
  RawPeer honest(*near, 3);
  FrameHeader share = make_header(FrameKind::write, key.region, 8, {key.guard, 8, 0});
  share.request = 1;
  honest.say(0, frame(fence_of_one) + frame(make_header(FrameKind::message, 0, 0)));
  honest.say(1, frame(share, std::string(8, '\x22')));
  ASSERT_TRUE(honest.poll_until([&] { return honest.sink.messages.size() == 1; }));
  EXPECT_EQ(target.data()[8], std::byte{0x22});
  EXPECT_EQ(honest.link->state(), LinkState::ready);
}

// A share that is not whole yet, and a message behind it.
struct Unfinished {
  Unfinished() {
    const RegionKey key = *decode_region_key(target.region->key(RawPeer::own_peer())->bytes);
    FrameHeader write = make_header(FrameKind::write, key.region, target.bytes, {key.guard, 0, 0});
    write.request = 1;
    share = frame(write, std::string(target.bytes, '\x22'));
    FrameHeader fence = make_header(FrameKind::fence, 0, 0);
    fence.body[0] = std::byte{1};
    peer.say(1, std::string_view(share).substr(0, share.size() / 2));
    peer.say(0, frame(fence) + frame(make_header(FrameKind::message, 0, 0)));
    for (int poll = 0; poll < 50; ++poll) {
      peer.poll_until([] { return true; });
      ::poll(nullptr, 0, 1);
    }
    EXPECT_TRUE(peer.sink.messages.empty());
  }
  void say_the_rest() { peer.say(1, std::string_view(share).substr(share.size() / 2)); }

  std::unique_ptr<TcpTransport> near = open_transport({}, "2");
  RawPeer peer{*near, 2};
  Buffer target{*near, 10'000};
  std::string share;
};

TEST(TcpLanes, WhatCameBeforeAFailedPostIsToldFirst) {
  Unfinished one;
  one.peer.hang_up(0);
  const Deadline deadline = Deadline::after_ns(1'000'000'000);
  while (one.peer.link->post_message(header_of(1), {}) == Posted::ok && !deadline.has_passed())
    one.peer.poll_until([] { return true; });
  for (int poll = 0; poll < 100; ++poll) one.peer.poll_until([] { return true; });
  one.say_the_rest();
  ASSERT_TRUE(one.peer.poll_until([&] { return one.peer.sink.errors.size() == 1; }));
  EXPECT_EQ(one.peer.sink.messages.size(), 1u);
}

TEST(TcpLanes, APeerThatDiesAtAFenceKeepsNobodyBusy) {
  Unfinished one;
  ASSERT_EQ(one.peer.link->post_message(header_of(1), {}), Posted::ok);  // which it does not read, so that its end is a reset
  one.peer.hang_up();
  unsigned busy = 0;
  for (int turn = 0; turn < 1000; ++turn) busy += one.near->poll(one.peer.sink) ? 1 : 0;
  EXPECT_LT(busy, 20u);
  const std::int64_t begin_ns = now_ns();
  ASSERT_TRUE(one.peer.poll_until([&] { return one.peer.sink.errors.size() == 1; }));
  EXPECT_LT(now_ns() - begin_ns, 4'000'000'000);
  EXPECT_EQ(one.peer.sink.statuses.begin()->second, Status::peer_lost);
  EXPECT_TRUE(one.peer.sink.messages.empty());
}

// A peer that refuses what it was sent says so in its place, which is behind what the fence holds back.
TEST(TcpLanes, WhatAPeerSaysLastBehindAFenceIsTold) {
  Unfinished one;
  const std::string messages = frame(make_header(FrameKind::message, 0, 100), std::string(100, 'm'));
  one.peer.say(0, messages + frame(make_header(FrameKind::bye, static_cast<std::uint32_t>(Farewell::bad_access), 0)));
  one.peer.hang_up();
  ASSERT_TRUE(one.peer.poll_until([&] { return one.peer.sink.errors.size() == 1; }));
  EXPECT_NE(one.peer.sink.errors.begin()->second.find("refused an access"), std::string::npos)
      << one.peer.sink.errors.begin()->second;
  EXPECT_EQ(one.peer.sink.statuses.begin()->second, Status::peer_lost);
  EXPECT_TRUE(one.peer.sink.messages.empty());
}

// One connection of several ends, as a firewall may do it, and the link with it.
TEST(TcpLanes, OneThatEndsAloneEndsTheLink) {
  const std::unique_ptr<TcpTransport> near = open_transport({}, "2");
  RawPeer peer(*near, 2);
  peer.hang_up(1);
  ASSERT_TRUE(peer.poll_until([&] { return peer.sink.errors.size() == 1; }));
  EXPECT_EQ(peer.sink.statuses.begin()->second, Status::peer_lost);
  EXPECT_NE(peer.sink.errors.begin()->second.find("connection for large writes"), std::string::npos);
}

}  // namespace
}  // namespace gigabar::transport::tcp::test
