// SPDX-License-Identifier: Apache-2.0
// Several blocks as one scope: every order in which blocks can come, blocks that are ahead, that do not come, groups beside each
// other; and teams of threads that run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gigabar/device/channel.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::device {
namespace {

constexpr Timeout kTest{0};
constexpr Timeout kLong{std::uint64_t{20'000'000'000}};
constexpr std::size_t kBytes = 4096;
constexpr NotificationId kId = 1;
constexpr CounterId kCounter = 3;

using BlockOfOne = BasicBlocks<Thread>;

// Rank 0 of two, with a segment at each, and rank 1 as it sees what comes.
struct TwoRanks {
  TwoRanks() {
    for (Rank rank = 0; rank < 2; ++rank) {
      segments[rank].address = bytes[rank].data();
      segments[rank].bytes = kBytes;
      segments[rank].notifications = notifications[rank].data();
      remote_counters[rank] = counters[rank].data();  // each has those of rank 0 first
    }
    fabric.version = kHandleVersion;
    fabric.rank_count = 2;
    fabric.segment_count = 1;
    fabric.notification_count = 4;
    fabric.segments = segments.data();
    fabric.queues = queues.data();
    fabric.peer_status = statuses.data();
    fabric.counters = counters[0].data();
    fabric.remote_counters = remote_counters.data();
    fabric.block_groups = groups.data();
    there = fabric;
    there.rank = 1;
    there.counters = counters[1].data();
  }
  template <class Own>
  BasicBlocks<Own> open(const Own& own, std::uint32_t count, std::uint32_t index, Timeout timeout, std::uint32_t group = 0) {
    BasicBlocks<Own> blocks(own);
    EXPECT_EQ(open_blocks(fabric, group, count, index, blocks, timeout), Status::ok);
    return blocks;
  }
  std::vector<BlockOfOne> open_all(std::uint32_t count, Timeout timeout, std::uint32_t group = 0) {
    std::vector<BlockOfOne> blocks;
    for (std::uint32_t i = 0; i < count; ++i) blocks.push_back(open(Thread{}, count, i, timeout, group));
    return blocks;
  }
  template <class Scope>
  Status write_notify(const Scope& scope, std::uint32_t value, std::uint64_t size = kBytes) {
    return device::write_notify(scope, fabric, {0, 0}, {1, 0, 0}, size, kId, value);
  }
  template <class Scope>
  Status write_count(const Scope& scope, std::uint64_t size = kBytes) {
    return device::write_count(scope, fabric, {0, 0}, {1, 0, 0}, size, kCounter);
  }
  void fill(std::uint8_t seed) {
    for (std::size_t i = 0; i < kBytes; ++i) bytes[0][i] = static_cast<std::byte>(seed * 89 + i * 7 + i / 251);
  }
  std::uint32_t value() const { return notifications[1][kId].value; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(counters[1][kCounter] >> 32); }

  alignas(16) std::array<std::array<std::byte, kBytes>, 2> bytes{};
  std::array<std::array<Notification, 4>, 2> notifications{};
  std::array<std::array<std::uint64_t, 2 * kCounterCount>, 2> counters{};
  std::array<std::uint64_t*, 2> remote_counters{};
  std::array<DeviceSegment, 2> segments;
  std::array<PeerQueue*, 2> queues{};
  std::array<std::uint32_t, 3> statuses{};
  std::array<BlockGroup, kBlockGroups> groups;
  DeviceFabric fabric, there;
};

TEST(Blocks, SharesMakeAWholeOnlyTogether) {
  for (std::uint32_t count = 1; count <= kMaxScopeBlocks; ++count) {
    std::uint64_t sum = 0, least = ~std::uint64_t{0};
    for (std::uint32_t i = 0; i < count; ++i) {
      sum += detail::share_of(count, i);
      least = std::min(least, detail::share_of(count, i));
    }
    ASSERT_EQ(sum, std::uint64_t{1} << 32) << count;
    ASSERT_GE(least, 1U) << count;
  }
}

TEST(Blocks, HowManyASizeIsWorth) {
  static_assert(blocks_for(0) == 1 && blocks_for(16383) == 1 && blocks_for(16384) == 2);
  static_assert(blocks_for(65535) == 7 && blocks_for(65536) == 8 && blocks_for(~std::uint64_t{0}) == 8);
}

// Blocks come in every order, call after call; the numbers of calls are near their end in the second half.
class BlocksInOrder : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Count, BlocksInOrder, testing::Range(1U, 6U),
                         [](const auto& count) { return std::to_string(count.param); });

TEST_P(BlocksInOrder, ANotificationIsRaisedOnceByTheLast) {
  for (const std::uint64_t before : {std::uint64_t{0}, std::uint64_t{0xffffffc0}}) {
    TwoRanks ranks;
    ranks.groups[0].arrivals = before << 32;
    const auto blocks = ranks.open_all(GetParam(), kTest);
    std::vector<std::uint32_t> order(GetParam());
    std::iota(order.begin(), order.end(), 0U);
    std::uint32_t call = 0;
    do {
      ++call;
      ranks.fill(static_cast<std::uint8_t>(call));
      for (const std::uint32_t index : order) {
        ASSERT_EQ(ranks.value(), call - 1);
        ASSERT_EQ(ranks.write_notify(blocks[index], call), Status::ok);
      }
      ASSERT_EQ(ranks.value(), call);
      ASSERT_EQ(ranks.bytes[0], ranks.bytes[1]);
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(ranks.groups[0].arrivals & 0xffffffff, 0U) << "nothing is left for the next call";
  }
}

TEST_P(BlocksInOrder, ACallIsCountedByTheLast) {
  for (const std::uint64_t before : {std::uint64_t{0}, std::uint64_t{0xffffffc0}}) {
    TwoRanks ranks;
    ranks.counters[1][kCounter] = before << 32;
    const auto blocks = ranks.open_all(GetParam(), kTest);
    std::vector<std::uint32_t> order(GetParam());
    std::iota(order.begin(), order.end(), 0U);
    auto expected = static_cast<std::uint32_t>(before);
    std::uint32_t value = 0;
    do {
      ++expected;
      ranks.fill(static_cast<std::uint8_t>(expected));
      for (const std::uint32_t index : order) {
        ASSERT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounter, expected, kTest, value), Status::timed_out);
        ASSERT_EQ(value, expected - 1);
        ASSERT_EQ(ranks.write_count(blocks[index]), Status::ok);
      }
      ASSERT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounter, expected, kTest, value), Status::ok);
      ASSERT_EQ(value, expected);
      ASSERT_EQ(ranks.bytes[0], ranks.bytes[1]);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// --- Blocks that are ahead, late or not there ------------------------------------------------------------------------------------

// What every block does by itself, in a thread of its own.
template <class Work>
void run_threads(std::uint32_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Blocks, OneThatIsAheadWaitsForTheOthers) {
  for (const bool counts : {false, true}) {
    TwoRanks ranks;
    const auto blocks = ranks.open_all(2, kLong);
    const auto write = [&](std::uint32_t index, std::uint32_t value) {
      return counts ? ranks.write_count(blocks[index]) : ranks.write_notify(blocks[index], value);
    };
    const auto done = [&] {
      return counts ? load_acquire(&ranks.counters[1][kCounter]) >> 32 : load_acquire(&ranks.notifications[1][kId].value);
    };
    ASSERT_EQ(write(0, 1), Status::ok);
    std::thread ahead([&] { EXPECT_EQ(write(0, 2), Status::ok); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(done(), 0U) << "two parts of one block are not a call of two";
    EXPECT_EQ(write(1, 1), Status::ok);
    ahead.join();
    EXPECT_EQ(done(), 1U);
    EXPECT_EQ(write(1, 2), Status::ok);
    EXPECT_EQ(done(), 2U);
  }
}

TEST(Blocks, OneThatDoesNotComeBreaksTheScope) {
  for (const bool counts : {false, true}) {
    TwoRanks ranks;
    auto blocks = ranks.open_all(3, kTest);
    const auto write = [&](std::uint32_t index) {
      return counts ? ranks.write_count(blocks[index]) : ranks.write_notify(blocks[index], 7);
    };
    ASSERT_EQ(write(0), Status::ok);
    ASSERT_EQ(write(0), Status::timed_out);
    EXPECT_EQ(ranks.value(), 0U);
    EXPECT_EQ(ranks.count(), 0U);
    EXPECT_EQ(flush(blocks[1], ranks.fabric, 1, kLong), Status::timed_out);
    EXPECT_TRUE(blocks[2].any(false));
    EXPECT_EQ(open_blocks(ranks.fabric, 0, 3, 0, blocks[0], kLong), Status::unavailable);
    EXPECT_EQ(open_blocks(ranks.fabric, 1, 3, 0, blocks[0], kLong), Status::ok) << "another group";
  }
}

// Whoever waits for the missing one is told at the latest when the first gives up.
TEST(Blocks, AllAreToldThatOneDoesNotCome) {
  TwoRanks ranks;
  const auto blocks = ranks.open_all(4, {100'000'000});
  run_threads(3, [&](std::uint32_t me) {
    EXPECT_EQ(flush(blocks[me], ranks.fabric, 1, kLong), Status::timed_out);
    EXPECT_EQ(barrier(blocks[me], ranks.fabric, kLong), Status::timed_out);
    std::uint32_t value = 0;
    EXPECT_EQ(ranks.write_notify(blocks[me], 1), Status::timed_out);
    EXPECT_EQ(notification_reset(blocks[me], ranks.fabric, 0, kId, value), Status::timed_out);
  });
  EXPECT_EQ(ranks.value(), 0U);
}

// Block 0 waits for all: the others wait for it as long as it may, and for each other.
TEST(Blocks, ACallMayWaitLongerThanTheBlocksForEachOther) {
  TwoRanks ranks;
  const auto blocks = ranks.open_all(2, {500'000'000});
  run_threads(3, [&](std::uint32_t me) {
    if (me == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
      EXPECT_EQ(notify(Thread{}, ranks.there, 0, 0, kId, 9), Status::ok);
      return;
    }
    NotificationId found = 0;
    EXPECT_EQ(notification_wait(blocks[me], ranks.fabric, 0, 0, 4, kLong, found), Status::ok);
    EXPECT_EQ(found, kId);
    EXPECT_EQ(notification_wait(blocks[me], ranks.fabric, 0, 0, 1, {600'000'000}, found), Status::timed_out);
    EXPECT_FALSE(blocks[me].any(false)) << "the scope is whole";
  });
}

TEST(Blocks, GroupsDoNotDisturbEachOther) {
  TwoRanks ranks;
  const auto first = ranks.open_all(2, kTest, 0), second = ranks.open_all(3, kTest, 1);
  ASSERT_EQ(ranks.write_notify(first[0], 5), Status::ok);
  for (const BlockOfOne& block : second) ASSERT_EQ(ranks.write_notify(block, 9), Status::ok);
  EXPECT_EQ(ranks.value(), 9U) << "its own three have come";
  ASSERT_EQ(ranks.write_notify(Thread{}, 11), Status::ok);
  EXPECT_EQ(ranks.value(), 11U);
  ASSERT_EQ(ranks.write_notify(first[1], 5), Status::ok);
  EXPECT_EQ(ranks.value(), 5U);
}

TEST(Blocks, TheNextScopeOfAGroupHasAnotherSize) {
  TwoRanks ranks;
  std::uint32_t value = 0;
  for (const std::uint32_t count : {3U, 1U, 8U, 2U, 7U, kMaxScopeBlocks}) {
    for (const BlockOfOne& block : ranks.open_all(count, kTest)) {
      EXPECT_EQ(ranks.value(), value);
      EXPECT_EQ(ranks.write_notify(block, value + 1), Status::ok);
    }
    EXPECT_EQ(ranks.value(), ++value);
  }
}

TEST(Blocks, WhatNeedsNoOrderWaitsForNobody) {
  TwoRanks ranks;
  const auto blocks = ranks.open_all(3, kTest);
  for (std::uint32_t value = 1; value < 4; ++value) {
    ASSERT_EQ(notify(blocks[0], ranks.fabric, 1, 0, kId, value, Order::none, 77), Status::ok);
    EXPECT_EQ(ranks.value(), value);
  }
  EXPECT_EQ(ranks.notifications[1][kId].payload, 77U);
  ASSERT_EQ(notify(blocks[1], ranks.fabric, 1, 0, kId, 9, Order::none), Status::ok);
  EXPECT_EQ(ranks.value(), 3U) << "block 0 raises it";
}

// --- Errors ----------------------------------------------------------------------------------------------------------------------

TEST(Blocks, BadArguments) {
  TwoRanks ranks;
  BlockOfOne blocks;
  EXPECT_EQ(open_blocks(ranks.fabric, kBlockGroups, 1, 0, blocks), Status::out_of_range);
  EXPECT_EQ(open_blocks(ranks.fabric, 0, 0, 0, blocks), Status::invalid_argument);
  EXPECT_EQ(open_blocks(ranks.fabric, 0, 2, 2, blocks), Status::invalid_argument);
  EXPECT_EQ(open_blocks(ranks.fabric, 0, kMaxScopeBlocks + 1, 0, blocks), Status::invalid_argument);
  blocks = ranks.open(Thread{}, 1, 0, kTest);
  EXPECT_EQ(ranks.write_notify(blocks, 0), Status::invalid_argument);
  EXPECT_EQ(ranks.write_notify(blocks, 1, kBytes + 1), Status::out_of_range);
  for (const std::uint64_t arrivals : {ranks.groups[0].arrivals, ranks.counters[1][kCounter]}) EXPECT_EQ(arrivals, 0U);
}

TEST(Counters, BadArguments) {
  TwoRanks ranks;
  std::uint32_t value = 5;
  EXPECT_EQ(ranks.write_count(Thread{}, kBytes + 1), Status::out_of_range);
  EXPECT_EQ(write_count(Thread{}, ranks.fabric, {0, 1}, {1, 0, 0}, kBytes, 0), Status::out_of_range);
  EXPECT_EQ(write_count(Thread{}, ranks.fabric, {0, 0}, {2, 0, 0}, 4, 0), Status::out_of_range);
  EXPECT_EQ(write_count(Thread{}, ranks.fabric, {0, 0}, {1, 0, 0}, 4, kCounterCount), Status::out_of_range);
  EXPECT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounterCount, 1, kTest, value), Status::out_of_range);
  EXPECT_EQ(counter_wait(Thread{}, ranks.there, 2, 0, 1, kTest, value), Status::out_of_range);
  ranks.remote_counters[1] = nullptr;
  ranks.fill(1);
  EXPECT_EQ(ranks.write_count(Thread{}), Status::unavailable);
  EXPECT_NE(ranks.bytes[0], ranks.bytes[1]) << "nothing was written";
}

TEST(Counters, OfEveryScope) {
  TwoRanks ranks;
  EXPECT_EQ(ranks.write_count(Thread{}), Status::ok);
  EXPECT_EQ(ranks.count(), 1U);
  CpuTeam team(3);
  run_threads(3, [&](std::uint32_t me) { EXPECT_EQ(ranks.write_count(CpuTeam::Member(team, me)), Status::ok); });
  EXPECT_EQ(ranks.count(), 2U);
}

TEST(Counters, NumbersGoRound) {
  TwoRanks ranks;
  ranks.counters[1][kCounter] = std::uint64_t{0xffffffff} << 32;
  std::uint32_t value = 0;
  EXPECT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounter, 0, kTest, value), Status::timed_out);
  EXPECT_EQ(value, 0xffffffffU);
  EXPECT_EQ(ranks.write_count(Thread{}), Status::ok);
  EXPECT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounter, 0, kTest, value), Status::ok);
  EXPECT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounter, 0xffffffff, kTest, value), Status::ok) << "an earlier one";
  EXPECT_EQ(counter_wait(Thread{}, ranks.there, 0, kCounter, 1, kTest, value), Status::timed_out);
  EXPECT_EQ(value, 0U);
}

TEST(Blocks, ALostPeerIsToldAndNobodyWaits) {
  TwoRanks ranks;
  const auto blocks = ranks.open_all(2, kLong);
  ranks.statuses[1] = static_cast<std::uint32_t>(Status::peer_lost);
  for (int again = 0; again < 3; ++again) {
    for (const BlockOfOne& block : blocks) EXPECT_EQ(ranks.write_notify(block, 1), Status::peer_lost);
    for (const BlockOfOne& block : blocks) EXPECT_EQ(ranks.write_count(block), Status::peer_lost);
  }
  std::uint32_t value = 0;
  EXPECT_EQ(counter_wait(blocks[1], ranks.fabric, 1, 0, 1, kLong, value), Status::peer_lost);
  EXPECT_EQ(notification_wait_until(blocks[0], ranks.fabric, 0, kId, 1, kLong, value, 1), Status::peer_lost);
}

// --- Teams that run --------------------------------------------------------------------------------------------------------------

constexpr std::uint32_t kBlocks = 3, kThreads = 2;

// Every thread of every block of a scope.
template <class Work>
void run_blocks(TwoRanks& ranks, std::uint32_t group, const Work& work) {
  std::array<CpuTeam, kBlocks> teams{CpuTeam(kThreads), CpuTeam(kThreads), CpuTeam(kThreads)};
  run_threads(kBlocks * kThreads, [&](std::uint32_t me) {
    work(ranks.open(CpuTeam::Member(teams[me / kThreads], me % kThreads), kBlocks, me / kThreads, kLong, group));
  });
}

TEST(BlocksRun, SyncBroadcastAndAny) {
  TwoRanks ranks;
  std::array<std::uint32_t, kBlocks * kThreads> words{};
  run_blocks(ranks, 0, [&](const auto& blocks) {
    ASSERT_EQ(blocks.size(), kBlocks * kThreads);
    for (std::uint32_t i = 1; i <= 300; ++i) {
      words[blocks.rank()] = i + blocks.rank();
      blocks.sync();
      const std::uint32_t other = (blocks.rank() + i) % blocks.size();
      ASSERT_EQ(words[other], i + other);
      ASSERT_EQ(blocks.broadcast(blocks.rank() == 0 ? i * 3 : 0), i * 3);
      ASSERT_EQ(blocks.any(blocks.rank() == i % 7), i % 7 < blocks.size());
      ASSERT_FALSE(blocks.any(false));
    }
  });
}

// A writer whose blocks are up to a call apart, and a reader that answers: each message is whole when its number is there.
template <class Write, class Wait>
void expect_whole_messages(TwoRanks& ranks, const Write& write, const Wait& wait) {
  constexpr std::uint32_t kRounds = 200, kSlots = 4;
  constexpr std::uint64_t kSlotBytes = kBytes / kSlots;
  std::uint32_t answered = 0;
  std::thread reader([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      ASSERT_EQ(wait(round), Status::ok);
      const auto* const words = reinterpret_cast<const std::uint32_t*>(ranks.bytes[1].data() + round % kSlots * kSlotBytes);
      for (std::uint32_t i = 0; i < kSlotBytes / 4; ++i) ASSERT_EQ(words[i], round * 1000 + i) << "round " << round;
      store_release(&answered, round);
    }
  });
  run_blocks(ranks, 2, [&](const auto& blocks) {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      // Each block makes the words that it copies, and overwrites a slot when its last message was read.
      while (load_acquire(&answered) + kSlots < round) std::this_thread::yield();
      if ((round + blocks.rank()) % 13 == 0) std::this_thread::yield();
      const std::uint64_t offset = round % kSlots * kSlotBytes;
      auto* const words = reinterpret_cast<std::uint32_t*>(ranks.bytes[0].data() + offset);
      for (std::uint64_t i = blocks.rank() * 4; i < kSlotBytes / 4; i += blocks.size() * 4) {
        for (std::uint64_t k = i; k < i + 4; ++k) words[k] = round * 1000 + static_cast<std::uint32_t>(k);
      }
      ASSERT_EQ(write(blocks, offset, kSlotBytes, round), Status::ok);
    }
  });
  reader.join();
}

TEST(BlocksRun, NotificationsComeBehindAllParts) {
  TwoRanks ranks;
  std::uint32_t value = 0;
  expect_whole_messages(
      ranks,
      [&](const auto& blocks, std::uint64_t offset, std::uint64_t bytes, std::uint32_t round) {
        return write_notify(blocks, ranks.fabric, {0, offset}, {1, 0, offset}, bytes, kId, round);
      },
      [&](std::uint32_t round) { return notification_wait_until(Thread{}, ranks.there, 0, kId, round, kLong, value); });
}

TEST(BlocksRun, CountsComeBehindAllParts) {
  TwoRanks ranks;
  std::uint32_t value = 0;
  expect_whole_messages(
      ranks,
      [&](const auto& blocks, std::uint64_t offset, std::uint64_t bytes, std::uint32_t) {
        return write_count(blocks, ranks.fabric, {0, offset}, {1, 0, offset}, bytes, kCounter);
      },
      [&](std::uint32_t round) { return counter_wait(Thread{}, ranks.there, 0, kCounter, round, kLong, value); });
}

TEST(BlocksRun, ChannelsToo) {
  TwoRanks ranks;
  std::uint32_t value = 0;
  expect_whole_messages(
      ranks,
      [&](const auto& blocks, std::uint64_t offset, std::uint64_t bytes, std::uint32_t round) {
        DirectChannel channel;
        if (const Status opened = DirectChannel::open(blocks, ranks.fabric, 1, 0, 0, 0, channel); opened != Status::ok)
          return opened;
        return channel.write_notify(blocks, offset, offset, bytes, kId, round, kLong);
      },
      [&](std::uint32_t round) { return notification_wait_until(Thread{}, ranks.there, 0, kId, round, kLong, value); });
}

// Both ends of a ring are several blocks; messages of many pieces.
TEST(BlocksRun, Messages) {
  TwoRanks ranks;
  std::vector<MessageLine> lines(16);
  std::uint64_t credit = 0;
  RingEnd to, from;
  to.lines = from.lines = lines.data();
  to.credit = from.credit = &credit;
  to.line_count = from.line_count = 16;
  to.status = from.status = ranks.statuses.data();
  std::vector<std::uint8_t> sent(1000), received(1000);
  std::iota(sent.begin(), sent.end(), std::uint8_t{1});
  constexpr int kMessages = 30;
  std::thread sender([&] {
    run_blocks(ranks, 0, [&](const auto& blocks) {
      SendRing ring;
      ring.open(to);
      for (int i = 0; i < kMessages; ++i) ASSERT_EQ(send(blocks, ring, sent.data(), sent.size(), kLong), Status::ok);
      ring.close(blocks);
    });
  });
  run_blocks(ranks, 1, [&](const auto& blocks) {
    RecvRing ring;
    ring.open(from);
    for (int i = 0; i < kMessages; ++i) {
      std::uint64_t bytes = 0;
      ASSERT_EQ(recv(blocks, ring, received.data(), received.size(), bytes, kLong), Status::ok);
      ASSERT_EQ(bytes, sent.size());
      if (blocks.rank() == 0) {
        ASSERT_EQ(sent, received);
      }
      blocks.sync();
      if (blocks.rank() == 0) std::fill(received.begin(), received.end(), std::uint8_t{0});
      blocks.sync();
    }
    ring.close(blocks);
  });
  sender.join();
}

}  // namespace
}  // namespace gigabar::device
