// SPDX-License-Identifier: Apache-2.0
// Links over TCP: what all of their kind do, and what is theirs alone.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <thread>

#include "base/clock.hpp"
#include "unit/transport/placing/link_suite.hpp"
#include "unit/transport/placing/mapped_suite.hpp"
#include "unit/transport/tcp/pair.hpp"

namespace gigabar::transport::pairs {
namespace {

struct Tcp {
  static constexpr const char* kName = "TCP";
  static constexpr std::uint64_t kSmallMessages = 10'000, kOrderedWrites = 500, kTurns = 5'000, kMaxUnread = 10'000;
  static constexpr std::size_t kPiece = tcp::kPieceBytes, kMaxBytes = std::size_t{16} << 20;
};
struct Clear : Tcp {
  using Pair = tcp::test::Pair;
  static constexpr const char *kRail = "lo, authenticated", *kTestName = "authenticated";
};
struct Sealed : Tcp {
  struct Pair : tcp::test::Pair {
    Pair() : tcp::test::Pair(tcp::Protection::sealed) {}
  };
  static constexpr const char *kRail = "lo, sealed", *kTestName = "sealed";
};
struct ClearWithLanes : Tcp {
  struct Pair : tcp::test::Pair {
    Pair() : tcp::test::Pair(tcp::Protection::authenticated, "2") {}
  };
  static constexpr const char *kRail = "lo x2, authenticated", *kTestName = "authenticated_with_lanes";
};
struct SealedWithLanes : Tcp {
  struct Pair : tcp::test::Pair {
    Pair() : tcp::test::Pair(tcp::Protection::sealed, "2") {}
  };
  static constexpr const char *kRail = "lo x2, sealed", *kTestName = "sealed_with_lanes";
};
struct Names {
  template <class Kind>
  static std::string GetName(int) {  // NOLINT(readability-identifier-naming): GoogleTest's name
    return Kind::kTestName;
  }
};
using Kinds = testing::Types<Clear, Sealed, ClearWithLanes, SealedWithLanes>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, PlacedLinks, Kinds, Names);
using MappedKinds = testing::Types<Clear, ClearWithLanes>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, MappedLinks, MappedKinds, Names);

}  // namespace
}  // namespace gigabar::transport::pairs

namespace gigabar::transport::tcp::test {
namespace {

class TcpLinks : public testing::TestWithParam<Protection> {};
INSTANTIATE_TEST_SUITE_P(All, TcpLinks, testing::Values(Protection::authenticated, Protection::sealed),
                         [](const auto& given) { return std::string(name_of(given.param)); });

TEST_P(TcpLinks, OneThatTalksAllTheTimeSilencesNoOther) {
  Pair pair(GetParam());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  const std::unique_ptr<Link> talking_near = std::move(pair.near_link);
  std::unique_ptr<Link> talking_far = std::move(pair.far_link);
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  std::uint64_t turns = 0, heard = 0;
  const auto answer = [&](Link& link, const Header& header, std::span<const std::byte> payload) {
    if (&link == pair.far_link.get()) {
      ++heard;
    } else {
      ++turns;
      EXPECT_EQ(link.post_message(header, payload), Posted::ok);
    }
  };
  pair.near_sink.on_message = pair.far_sink.on_message = answer;
  ASSERT_EQ(talking_near->post_message(header_of(0), {}), Posted::ok);
  for (std::uint64_t round = 1; round <= 50; ++round) {
    const std::uint64_t turns_before = turns;
    ASSERT_TRUE(pair.poll_until([&] { return turns >= turns_before + 100; }));
    ASSERT_EQ(pair.near_link->post_message(header_of(round), {}), Posted::ok);
    ASSERT_TRUE(pair.poll_until([&] { return heard == round; }));
  }
  talking_far.reset();
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.count(talking_near.get()) == 1; }));
  ASSERT_EQ(pair.near_link->post_message(header_of(51), {}), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return heard == 51; }));
}

TEST_P(TcpLinks, WhatHasArrivedIsToldBeforeTheEnd) {
  Pair pair(GetParam());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kBytes = 16384;
  Buffer back(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  ASSERT_EQ(pair.near_link->post_read(*back.region, 0, *remote, 0, kBytes, 1), Posted::ok);
  const Deadline deadline = Deadline::after_ns(kPatienceNs);
  while (!pair.far->poll(pair.far_sink) && !deadline.has_passed()) {
  }
  ASSERT_EQ(pair.far_link->post_message(header_of(7), {}), Posted::ok);
  pair.far_link.reset();
  while (pair.near_link->post_message(header_of(0), {}) == Posted::ok && !deadline.has_passed()) {
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  ASSERT_EQ(pair.near_sink.messages.size(), 1u);
  ASSERT_EQ(pair.near_sink.dones.size(), 1u);
  EXPECT_EQ(pair.near_sink.dones[1], "");
}

TEST_P(TcpLinks, WhatWasPostedArrivesThoughTheLinkGoes) {
  Pair pair(GetParam());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kBytes = 3 << 20;
  Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, 1), Posted::ok);
  ASSERT_EQ(pair.near_link->post_message(header_of(7), {}), Posted::ok);
  std::jthread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(pair.far_link->post_message(header_of(1), {}), Posted::ok);
    const Deadline deadline = Deadline::after_ns(20'000'000'000);
    while (pair.far_sink.errors.empty() && !deadline.has_passed()) pair.far->poll(pair.far_sink);
  });
  pair.near_link.reset();
  reader.join();
  ASSERT_EQ(pair.far_sink.messages.size(), 1u);
  EXPECT_EQ(number_of(pair.far_sink.messages[0].header), 7u);
}

// The kernel's limit on silence also counts the time in which the other end does not read.
TEST_P(TcpLinks, APeerThatDoesNotReadIsNotLost) {
  Pair pair(GetParam());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  unsigned ends = 0;
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t peer_bytes = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) continue;
    unsigned limit_ms = 0;
    socklen_t limit_bytes = sizeof limit_ms;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &limit_bytes) != 0) continue;
    EXPECT_EQ(limit_ms, 0u);
    ++ends;
  }
  EXPECT_EQ(ends, 2u);
}

}  // namespace
}  // namespace gigabar::transport::tcp::test
