// SPDX-License-Identifier: Apache-2.0
// Several blocks as one scope, on the hardware.
#include "gpu/device_ranks.cuh"

namespace gigabar::test {
namespace {

// Both ranks write each other every round's words by all blocks, which come at different times, and look at what came. With
// `is_mixed` a block copies what others have made.
__global__ void write_together(DeviceFabric fabric, Report* report, std::uint64_t* words, const std::uint64_t* came,
                               std::uint64_t bytes, std::uint32_t first_round, std::uint32_t rounds, bool is_counted,
                               bool is_mixed) {
  const Rank peer = 1 - fabric.rank;
  gpu::Blocks blocks;
  if (!is_ok(report, open_blocks(fabric, 2, gridDim.x, blockIdx.x, blocks), 0)) return;
  const std::uint64_t count = bytes / 8;
  for (std::uint32_t round = first_round; round < first_round + rounds; ++round) {
    // Quad i of a scope is copied by thread i modulo its size.
    const std::uint32_t maker = is_mixed ? (blocks.rank() + round) % blocks.size() : blocks.rank();
    for (std::uint64_t i = 2ULL * maker; i < count; i += 2ULL * blocks.size()) {
      for (std::uint64_t k = i; k < i + 2 && k < count; ++k) words[k] = round * 1000ULL + fabric.rank + k;
    }
    if (is_mixed) blocks.sync();
    __nanosleep((blockIdx.x * 7 + round) % 5 * 1000);
    std::uint32_t value = 0;
    if (is_counted) {
      if (!is_ok(report, write_count(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, bytes, 1), round)) return;
      if (!is_ok(report, counter_wait(blocks, fabric, peer, 1, round, kLong, value), round)) return;
    } else {
      if (!is_ok(report, write_notify(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, bytes, 6, round), round)) return;
      if (!is_ok(report, notification_wait_until(blocks, fabric, kTarget, 6, round, kLong, value, peer), round)) return;
    }
    unsigned long long wrong = value != round ? 1 : 0;
    for (std::uint64_t i = blocks.rank(); i < count; i += blocks.size()) {
      wrong += gpu::load_relaxed(came + i) != round * 1000ULL + peer + i ? 1 : 0;
    }
    if (wrong != 0) atomicAdd(&report->wrong_count, wrong);
    if (!is_ok(report, barrier(blocks, fabric, kLong), round)) return;
  }
}

template <class W>
class DeviceBlocksTest : public DeviceFabricTest<W> {};
using BlockWays = testing::Types<Way<gpu::Block, QueueUse::never>, Way<gpu::Block, QueueUse::always>>;
TYPED_TEST_SUITE(DeviceBlocksTest, BlockWays);

TYPED_TEST(DeviceBlocksTest, MessagesAreWholeWhenTheyAreTold) {
  const auto reach = this->ranks_[0].session->reach(1, kTarget);
  const bool counts = !this->kIsByQueue && reach->why_no_atomics.empty();
  std::uint32_t round = 1, counted_round = 1;
  for (const std::uint64_t bytes : {8, 4096, 65536, 1 << 20}) {
    for (const unsigned blocks : {1U, 2U, 8U, 13U}) {
      for (const bool is_counted : {false, true}) {
        if (is_counted && !counts) continue;
        for (const bool is_mixed : {false, true}) {
          constexpr std::uint32_t kRounds = 40;
          std::uint32_t& first = is_counted ? counted_round : round;
          for (const TestRank& rank : this->ranks_) {
            this->launch_at(rank, write_together, blocks, 256, static_cast<std::uint64_t*>(rank.origin->address()),
                            static_cast<const std::uint64_t*>(rank.target->address()), bytes, first, kRounds, is_counted, is_mixed);
          }
          for (const TestRank& rank : this->ranks_) rank.expect_ok();
          first += kRounds;
        }
      }
    }
  }
}

// One block of three leaves: the others are told in time, and nothing is raised.
__global__ void leave_one_out(DeviceFabric fabric, Report* report) {
  gpu::Blocks blocks;
  if (!is_ok(report, open_blocks(fabric, 3, gridDim.x, blockIdx.x, blocks, {200'000'000}), 0)) return;
  if (blockIdx.x == 1) return;
  const Rank peer = 1 - fabric.rank;
  const Status first = write_notify(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, 4096, 7, 1);
  const Status second = write_notify(blocks, fabric, {kOrigin, 0}, {peer, kTarget, 0}, 4096, 7, 2);
  const Status met = flush(blocks, fabric, peer, kLong);
  const bool is_told = second == Status::timed_out && met == Status::timed_out;
  if ((first != Status::ok && first != Status::timed_out) || !is_told) atomicAdd(&report->wrong_count, 1ULL);
}

TYPED_TEST(DeviceBlocksTest, ABlockThatDoesNotComeIsTold) {
  this->launch(leave_one_out, 3, 64);
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

}  // namespace
}  // namespace gigabar::test
