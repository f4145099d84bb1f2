// SPDX-License-Identifier: Apache-2.0
// Several blocks of a kernel as one scope, here with threads of the CPU as their lanes.
#include <deque>
#include <thread>
#include <vector>

#include "conformance/device_kernels.hpp"

namespace gigabar::test {
namespace {

using device::CpuTeam;

// Around the ranks, round by round: all blocks write each message, once with a notification, once counted.
template <class Blocks>
void write_in_rounds(const Blocks& blocks, const RankProcess& me, const DeviceFabric& handle, RankSegment& origin,
                     RankSegment& target, std::uint32_t first_round, std::uint32_t rounds) {
  constexpr NotificationId kWritten = 3;
  constexpr device::CounterId kCounter = 2;
  constexpr std::uint64_t kCountedAt = kSpan / 2;
  const bool is_counted = me.setup().word != kByQueues;
  for (std::uint32_t round = first_round; round < first_round + rounds; ++round) {
    const std::uint64_t bytes = 4096 + round * 997 % 8192;
    if (blocks.rank() == 0) origin.put_pattern(0, bytes, me.rank(), round);
    blocks.sync();
    const RemotePlace there{next_of(me), kTarget, 0}, counted_there{next_of(me), kTarget, kCountedAt};
    ASSERT_EQ(write_notify(blocks, handle, {kOrigin, 0}, there, bytes, kWritten, round), Status::ok);
    const Status counted = write_count(blocks, handle, {kOrigin, 0}, counted_there, bytes, kCounter);
    ASSERT_EQ(counted, is_counted ? Status::ok : Status::unavailable);
    std::uint32_t value = 0;
    ASSERT_EQ(notification_wait_until(blocks, handle, kTarget, kWritten, round, kLong, value, previous_of(me)), Status::ok);
    ASSERT_EQ(value, round);
    if (is_counted) {
      ASSERT_EQ(counter_wait(blocks, handle, previous_of(me), kCounter, round, kLong, value), Status::ok);
      ASSERT_EQ(value, round);
    }
    blocks.sync();
    if (blocks.rank() == 0) {
      ASSERT_TRUE(target.holds_pattern(0, bytes, previous_of(me), round)) << round;
      if (is_counted) {
        ASSERT_TRUE(target.holds_pattern(kCountedAt, bytes, previous_of(me), round)) << round;
      }
    }
    ASSERT_EQ(barrier(blocks, handle, kLong), Status::ok);
  }
}

RANK_BODY(write_by_blocks) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  constexpr std::uint32_t kThreads = 2, kRounds = 20;
  std::uint32_t round = 1;
  // Kernels one after another, of other sizes: groups and counters go on where the one before left them.
  for (const std::uint32_t count : {3U, 1U, 2U}) {
    std::deque<CpuTeam> teams;
    std::vector<std::thread> threads;
    for (std::uint32_t block = 0; block < count; ++block) {
      CpuTeam& team = teams.emplace_back(kThreads);
      for (std::uint32_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, block, member = CpuTeam::Member(team, i)] {
          device::BasicBlocks<CpuTeam::Member> blocks(member);
          ASSERT_EQ(open_blocks(handle, 1, count, block, blocks), Status::ok);
          write_in_rounds(blocks, me, handle, kernels.origin, kernels.target, round, kRounds);
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    round += kRounds;
  }
  EXPECT_TRUE(kernels.target.are_guards_whole());
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

class FabricDeviceBlocks : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDeviceBlocks, WriteTogether) { run_ranks("write_by_blocks", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDeviceBlocks, testing::ValuesIn(device_setups({1, 2, 3})), setup_name);

}  // namespace
}  // namespace gigabar::test
