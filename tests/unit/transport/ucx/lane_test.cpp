// SPDX-License-Identifier: Apache-2.0
// Links whose large writes go over several connections. The other tests of this transport run with lanes too (CMakeLists.txt).
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <string>

#include "platform/cpu_set.hpp"
#include "support/scoped_environment.hpp"
#include "unit/transport/ucx/pair.hpp"
#include "unit/transport/ucx/raw_client.hpp"

namespace gigabar::transport::ucx::test {
namespace {

constexpr const char* kVariable = "GIGABAR_UCX_CONNECTIONS";
constexpr std::size_t kBytes = 4 << 20;

struct Lanes : Pair {
  explicit Lanes(const char* near_count = "3", const char* far_count = "3") {
    {
      const gigabar::test::ScopedEnvironment count(kVariable, near_count);
      near = open_transport();
    }
    const gigabar::test::ScopedEnvironment count(kVariable, far_count);
    far = open_transport();
  }
};

// " x4" of "tcp/lo x4"; nothing where there are no lanes.
std::string lanes_of(std::string_view rail) {
  const std::size_t cross = rail.find(" x");
  return std::string(cross == std::string_view::npos ? "" : rail.substr(cross));
}

TEST(UcxLanes, BothUseWhatBothHave) {
  struct Try {
    const char *near, *far, *end;
  };
  for (const Try& one : {Try{"4", "2", " x2"}, Try{"2", "4", " x2"}, Try{"1", "4", " x1"}, Try{"0", "4", ""}, Try{"4", "0", ""},
                         Try{"16", "16", " x16"}}) {
    Lanes pair(one.near, one.far);
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    const std::string near_rail(pair.near_link->rail()), far_rail(pair.far_link->rail());
    EXPECT_EQ(near_rail, far_rail);
    EXPECT_EQ(lanes_of(near_rail), one.end) << one.near << " and " << one.far;
    // Writes of the peer come over all of them, answers to reads over none.
    EXPECT_EQ(pair.near_link->limits().quick_read_bytes < kBytes, near_rail.ends_with(one.end) && *one.end != '\0');
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

TEST(UcxLanes, OneForFourProcessorsWhereNothingIsSaid) {
  struct Try {
    std::size_t processors;
    const char* end;
  };
  for (const Try& one : {Try{1, ""}, Try{3, ""}, Try{4, " x1"}, Try{15, " x3"}, Try{64, " x4"}}) {
    Lanes pair("0", "16");
    {
      const gigabar::test::ScopedEnvironment nothing(kVariable, nullptr);
      TransportOptions options;
      options.cpus.assign(one.processors, usable_cpus().front());
      pair.near = open_transport(options);
    }
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    EXPECT_EQ(lanes_of(pair.near_link->rail()), one.end) << one.processors;
  }
}

TEST(UcxLanes, ANumberThatIsNoneIsRefused) {
  for (const char* const value : {"17", "many", "-1", "2x"}) {
    const gigabar::test::ScopedEnvironment count(kVariable, value);
    const auto refused = UcxTransport::open({});
    ASSERT_EQ(refused.status(), Status::invalid_argument) << value;
    EXPECT_NE(refused.error().message().find(kVariable), std::string::npos) << refused.error().message();
  }
}

// More pieces than the peer remembers without acknowledging, each message behind all writes before it.
TEST(UcxLanes, MessagesAreBehindTheirWritesForLong) {
  Lanes pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kWrite = 64 << 10;
  constexpr std::uint64_t kRounds = kPieceWindow;  // two pieces each: the peer forgets all numbers twice
  Buffer source(*pair.near, kWrite), target(*pair.far, kWrite * 2);
  const auto remote = pair.open_far(*target.region);
  std::uint64_t received = 0, wrong = 0;
  pair.far_sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    wrong += number_of(header) == received ? 0 : 1;
    // The next write goes beside it, and the one after that waits for this message.
    const std::byte* const place = target.data() + (received % 2) * kWrite;
    for (const std::size_t at : {std::size_t{0}, kWrite / 2 - 8, kWrite / 2, kWrite - 8}) {
      std::uint64_t round = 0;
      std::memcpy(&round, place + at, sizeof round);
      wrong += round == received ? 0 : 1;
    }
    ++received;
  };
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (std::size_t at = 0; at < kWrite; at += 8) std::memcpy(source.data() + at, &round, sizeof round);
    pair.post([&] { return pair.near_link->post_write(*source.region, 0, *remote, (round % 2) * kWrite, kWrite, round); });
    pair.post([&] { return pair.near_link->post_message(header_of(round), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.contains(round) && received >= round; })) << round;
  }
  ASSERT_TRUE(pair.poll_until([&] { return received == kRounds; }));
  EXPECT_EQ(wrong, 0u);
}

TEST(UcxLanes, ASleeperIsWokenByALane) {
  Lanes pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  for (std::uint64_t round = 0; round < 20; ++round) {
    ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, round), Posted::ok);
    const Deadline deadline = Deadline::after_ns(kPatienceNs);
    while (!pair.near_sink.dones.contains(round) && !deadline.has_passed()) {
      pair.far->poll(pair.far_sink);
      if (pair.near->poll(pair.near_sink) || !pair.near->arm()) continue;
      pollfd watched{pair.near->wake_descriptor(), POLLIN, 0};
      ASSERT_EQ(::poll(&watched, 1, 10'000), 1) << "nothing woke it in round " << round;
    }
    ASSERT_TRUE(pair.near_sink.dones.contains(round));
  }
}

// What was complete at the sender when it closed is delivered, though the word of the end takes another connection.
TEST(UcxLanes, AClosedLinkLosesNothing) {
  for (int round = 0; round < 20; ++round) {
    Lanes pair;
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
    const auto remote = pair.open_far(*target.region);
    ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, 1), Posted::ok);
    pair.post([&] { return pair.near_link->post_message(header_of(9), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == 1; }));
    // Its word about the message may be with UCX still.
    for (int i = 0; i < 10; ++i) pair.near->poll(pair.near_sink);
    pair.near_link.reset();
    ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.errors.size() == 1; }));
    EXPECT_EQ(pair.far_sink.messages.size(), 1u) << round << ": " << pair.far_sink.errors.begin()->second;
  }
}

TEST(UcxLanes, ARegionThatGoesWhileItIsWritten) {
  for (int round = 0; round < 10; ++round) {
    Lanes pair;
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
    const auto remote = pair.open_far(*target.region);
    std::memset(source.data(), 0x77, kBytes);
    // More than the lanes could send by themselves, so that some is always still to come.
    std::uint64_t posted = 0;
    for (int polls = 0; polls <= 50 * round; ++polls) {
      if (polls != 0) pair.poll();
      while (posted < pair.near_sink.dones.size() + 32) {
        ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, posted++), Posted::ok);
      }
    }
    target.region.reset();
    std::memset(target.data(), 0x22, kBytes);
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
    EXPECT_EQ(pair.near_sink.dones.size(), posted);
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(target.data()[i], std::byte{0x22}) << round;
  }
}

// What a liar may say on a lane's connection.
TEST(UcxLanes, WhatIsNotAllowedThereBreaksTheLinkOnly) {
  Lanes pair;
  Buffer target(*pair.far, 4096);
  std::memset(target.data(), 0x11, target.bytes);
  const RegionKey key = *decode_region_key(target.region->key(pair.to_near)->bytes);
  struct Try {
    const char* what;
    WireKind kind;
    std::uint64_t number;
    Access access;
    unsigned count;
  };
  const Try tries[] = {
      {"another guard", WireKind::write, 0, {key.region, 0, key.guard ^ 1, 0, 8}, 1},
      {"an unknown region", WireKind::write, 0, {key.region + 1000, 0, key.guard, 0, 8}, 1},
      {"one byte too far", WireKind::write, 0, {key.region, 0, key.guard, 4089, 8}, 1},
      {"before the region", WireKind::write, 0, {key.region, 0, key.guard, ~std::uint64_t{7}, 8}, 1},
      {"less than told", WireKind::write, 0, {key.region, 0, key.guard, 0, 16}, 1},
      {"a message", WireKind::message, 0, {}, 1},
      {"a read", WireKind::read, 0, {key.region, 1, key.guard, 0, 8}, 1},
      {"a number twice", WireKind::write, 5, {key.region, 0, key.guard, 8, 8}, 2},
      {"a number far ahead", WireKind::write, kPieceWindow + 7, {key.region, 0, key.guard, 8, 8}, 1},
  };
  for (const Try& one : tries) {
    Parcel offer, answer;
    pair.near_link = std::move(pair.near->offer(pair.to_far, 0, offer)).value();
    pair.far_link = std::move(pair.far->accept(pair.to_near, std::move(offer), answer)).value();
    const Invitation invitation = *decode_invitation(InvitationKind::answer, answer.bytes);
    ASSERT_EQ(invitation.lanes.size(), 3u);
    ASSERT_TRUE(pair.near_link->complete(std::move(answer)));
    ASSERT_TRUE(pair.poll_until([&] { return pair.is_ready(); }));
    {
      RawClient client(invitation.lanes[1]);
      for (unsigned i = 0; i < one.count; ++i) {
        WireHeader header = make_header(one.kind, invitation.link, 0);
        header.sequence = one.number;
        set_access(header, one.access);
        client.send(header, std::string(8, '\x11'));
      }
      ASSERT_TRUE(pair.poll_until([&] {
        client.progress();
        return !pair.far_sink.errors.empty() && !pair.near_sink.errors.empty();
      })) << one.what;
    }
    EXPECT_NE(pair.far_sink.errors[pair.far_link.get()].find("broke the rules"), std::string::npos) << one.what;
    for (std::size_t i = 0; i < target.bytes; ++i) ASSERT_EQ(target.data()[i], std::byte{0x11}) << one.what;
    EXPECT_TRUE(target.is_guarded()) << one.what;
    pair.near_link.reset();
    pair.far_link.reset();
    pair.near_sink = {};
    pair.far_sink = {};
  }
  // Of a link that is none's.
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Parcel offer;
  const auto idle = pair.far->offer(pair.to_near, 0, offer);
  RawClient client(decode_invitation(InvitationKind::offer, offer.bytes)->lanes[0]);
  const std::uint64_t before = pair.far->strangers();
  WireHeader header = make_header(WireKind::write, 12345, 0);
  set_access(header, {key.region, 0, key.guard, 0, 8});
  client.send(header, std::string(8, 'x'));
  client.send(std::string(11, 'x'), "data");
  ASSERT_TRUE(pair.poll_until([&] {
    client.progress();
    return pair.far->strangers() == before + 2;
  }));
  for (std::size_t i = 0; i < target.bytes; ++i) ASSERT_EQ(target.data()[i], std::byte{0x11});
  EXPECT_EQ(pair.far_link->state(), LinkState::ready);
}

TEST(UcxLanes, DamagedListsOfConnectionsAreRefused) {
  const Invitation good{7, 65536, "address", {"first", "second"}};
  const std::string bytes = encode(InvitationKind::offer, good);
  const auto decoded = decode_invitation(InvitationKind::offer, bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->address, good.address);
  EXPECT_EQ(decoded->lanes, good.lanes);
  for (std::size_t cut = 1; cut <= bytes.size(); ++cut) {
    EXPECT_FALSE(decode_invitation(InvitationKind::offer, bytes.substr(0, bytes.size() - cut))) << cut;
  }
  EXPECT_FALSE(decode_invitation(InvitationKind::offer, bytes + "x"));
  EXPECT_FALSE(decode_invitation(InvitationKind::offer, encode(InvitationKind::offer, {7, 65536, "", {"a"}})));
  EXPECT_FALSE(decode_invitation(InvitationKind::offer, encode(InvitationKind::offer, {7, 65536, "a", {"", "b"}})));
  Invitation many = good;
  many.lanes.assign(kMaxLanes + 1, "x");
  EXPECT_FALSE(decode_invitation(InvitationKind::offer, encode(InvitationKind::offer, many)));
}

}  // namespace
}  // namespace gigabar::transport::ucx::test
