// SPDX-License-Identifier: Apache-2.0
// Atomics of kernels at ranks in reach of loads and stores: where the link has no native ones they are refused, and nothing
// changes.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "gigabar/device/channel.hpp"

namespace gigabar::device {
namespace {

constexpr Timeout kLong{20'000'000'000};

// Rank 0 of two, with one word of memory at each.
struct TwoRanks {
  explicit TwoRanks(bool has_atomics) {
    for (Rank rank = 0; rank < 2; ++rank) {
      segments[rank].address = reinterpret_cast<std::byte*>(&words[rank]);
      segments[rank].bytes = sizeof words[rank];
      segments[rank].has_atomics = rank == 0 || has_atomics;
    }
    fabric.rank_count = 2;
    fabric.version = kHandleVersion;
    fabric.segment_count = 1;
    fabric.segments = segments.data();
    fabric.queues = queues.data();
    fabric.peer_status = statuses.data();
  }

  alignas(8) std::array<std::uint64_t, 2> words{5, 7};
  std::array<DeviceSegment, 2> segments;
  std::array<PeerQueue*, 2> queues{};
  std::array<std::uint32_t, 3> statuses{};
  DeviceFabric fabric;
};

TEST(DeviceAtomics, AreDoneWhereTheLinkHasThem) {
  TwoRanks ranks(true);
  std::uint64_t old = 0;
  EXPECT_EQ(atomic_fetch_add(Thread{}, ranks.fabric, {1, 0, 0}, 3, kLong, old), Status::ok);
  EXPECT_EQ(old, 7u);
  EXPECT_EQ(compare_swap(Thread{}, ranks.fabric, {1, 0, 0}, 10, 11, kLong, old), Status::ok);
  EXPECT_EQ(ranks.words[1], 11u);
}

TEST(DeviceAtomics, AreRefusedWhereTheLinkHasNone) {
  TwoRanks ranks(false);
  std::uint64_t old = 99;
  EXPECT_EQ(atomic_fetch_add(Thread{}, ranks.fabric, {1, 0, 0}, 3, kLong, old), Status::unavailable);
  EXPECT_EQ(compare_swap(Thread{}, ranks.fabric, {1, 0, 0}, 7, 11, kLong, old), Status::unavailable);
  EXPECT_EQ(ranks.words[1], 7u);
  EXPECT_EQ(old, 99u);
  EXPECT_EQ(atomic_fetch_add(Thread{}, ranks.fabric, {0, 0, 0}, 3, kLong, old), Status::ok) << "memory of its own GPU";
  EXPECT_EQ(ranks.words[0], 8u);
}

template <class C>
void expect_refused_by_channel() {
  TwoRanks ranks(false);
  C channel;
  ASSERT_EQ(C::open(Thread{}, ranks.fabric, 1, 0, 0, 0, channel), Status::ok);
  std::uint64_t old = 0;
  EXPECT_EQ(channel.atomic_fetch_add(Thread{}, 0, 3, kLong, old), Status::unavailable);
  EXPECT_EQ(channel.compare_swap(Thread{}, 0, 7, 11, kLong, old), Status::unavailable);
  EXPECT_EQ(ranks.words[1], 7u);
  EXPECT_EQ(channel.write(Thread{}, 0, 0, 8, kLong), Status::ok) << "stores need none";
  EXPECT_EQ(ranks.words[1], 5u);
}

TEST(DeviceAtomics, ChannelsRefuseThemToo) {
  expect_refused_by_channel<Channel>();
  expect_refused_by_channel<DirectChannel>();
}

TEST(DeviceMemoryWords, TheLowestBitHasItsNumber) {
  for (std::uint32_t bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(lowest_bit(std::uint64_t{1} << bit), bit);
    EXPECT_EQ(lowest_bit(~std::uint64_t{0} << bit), bit);
  }
}

}  // namespace
}  // namespace gigabar::device
