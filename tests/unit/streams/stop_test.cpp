// SPDX-License-Identifier: Apache-2.0
// How soon a run notices that it is stopped: between pieces of memory, not between transfers. Nothing here depends on a clock.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "gigabar/device.hpp"
#include "streams/ends.hpp"
#include "streams/repeat.hpp"
#include "support/scoped_environment.hpp"
#include "unit/streams/plans.hpp"

namespace gigabar {
namespace {

const GiveUp kNever = [] { return false; };
constexpr std::size_t kHostPiece = std::size_t{64} << 20;
constexpr std::size_t kCopyPiece = std::size_t{16} << 20;

class StreamStop : public testing::Test {
 protected:
  static StreamPlan plan_of(const char* line) { return test::plan_of({line}, 1, 4096); }
  Ends ends_of(const StreamPlan& plan) {
    auto known = devices();
    EXPECT_TRUE(known);
    auto ends = Ends::allocate(0, plan.transfers[0], *known, warnings_, kNever);
    EXPECT_TRUE(ends) << ends.error().message();
    return std::move(ends).value();
  }

  test::ScopedEnvironment two_{"GIGABAR_STAND_IN", "2"};
  std::vector<std::string> warnings_;
};

// False for so many questions.
GiveUp after(unsigned questions) {
  return [questions]() mutable { return questions-- == 0; };
}

TEST_F(StreamStop, AllocatesNoMoreThanTheEndItIsAt) {
  const StreamPlan plan = plan_of("host->gpu0");
  const auto ends = Ends::allocate(0, plan.transfers[0], *devices(), warnings_, after(0));
  ASSERT_TRUE(ends);
  EXPECT_NE(ends->source().address(), nullptr);
  EXPECT_EQ(ends->destination().address(), nullptr) << "allocated behind the stop";
}

TEST_F(StreamStop, FillsNoMoreThanThePieceItIsAt) {
  const StreamPlan plan = plan_of("host->gpu0 bytes=192M");
  const Ends ends = ends_of(plan);
  ASSERT_TRUE(ends.fill(&host_side_device_code(), after(2)));
  EXPECT_FALSE(check_pattern(ends.source().address(), kHostPiece, 1));
  EXPECT_EQ(ends.source().address()[kHostPiece], std::byte{0}) << "filled behind the stop";
  ASSERT_TRUE(ends.poison(&host_side_device_code(), after(1)));
  EXPECT_EQ(ends.destination().address()[0], std::byte{kPoison});
  EXPECT_EQ(ends.destination().address()[std::size_t{8} << 20], std::byte{0}) << "poisoned behind the stop";
}

TEST_F(StreamStop, ComparesNoMoreThanThePieceItIsAt) {
  for (const char* const line : {"host->gpu0 bytes=192M", "gpu0->host bytes=192M"}) {
    const StreamPlan plan = plan_of(line);
    const Ends ends = ends_of(plan);
    ASSERT_TRUE(ends.poison(&host_side_device_code(), kNever));
    EXPECT_EQ(ends.check(&host_side_device_code(), kNever).status(), Status::verification_failed) << line;
    EXPECT_TRUE(ends.check(&host_side_device_code(), after(0))) << line << ": compared behind the stop";
  }
}

TEST_F(StreamStop, EndsInTheMiddleOfALargeCopy) {
  std::atomic<bool> stop{false};
  alignas(4) std::uint32_t gate = 0;
  const Repeat repeat(&gate, 1, 60, &stop);
  std::vector<std::size_t> offsets;
  const auto copy = [&](Slice slice) {
    offsets.push_back(slice.offset);
    if (offsets.size() == 2) stop = true;
    return Result<void>();
  };
  EXPECT_FALSE(copy_in_pieces(copy, {5, 4 * kCopyPiece + 1}, repeat).is_whole);
  EXPECT_EQ(offsets, (std::vector<std::size_t>{5, 5 + kCopyPiece}));
  stop = false;
  offsets = {0, 0};  // no stop any more
  EXPECT_TRUE(copy_in_pieces(copy, {0, 2 * kCopyPiece + 1}, repeat).is_whole);
  EXPECT_EQ(offsets.size(), 5u);
}

TEST_F(StreamStop, CountsNoCopyThatWasNotWhole) {
  std::atomic<bool> stop{false};
  alignas(4) std::uint32_t gate = 0;
  Repeat repeat(&gate, 1, 60, &stop);
  const StreamPlan plan = plan_of("host->gpu0");
  TransferRun run(0, plan.transfers[0], 1);
  ASSERT_TRUE(repeat.open(0));
  unsigned copies = 0;
  run_copy_loop(repeat, {run, 0, 4096, 4, {}, [&] {
                           if (++copies < 3) return OneCopy{};
                           stop = true;
                           return OneCopy{{}, -1, false};
                         }});
  EXPECT_EQ(copies, 3u);
  ASSERT_FALSE(run.parts[0].empty());
  EXPECT_EQ(run.parts[0].back().bytes, 2u * 4096);
  EXPECT_FALSE(run.error());
  EXPECT_TRUE(run.is_done());
}

// Nobody answers here: each round of the warm-up would last 2 s and be an error.
TEST_F(StreamStop, EndsTheWarmUpOfFlags) {
  const std::atomic<bool> stop{true};
  alignas(4) std::uint32_t gate = 0;
  Repeat repeat(&gate, 1, 60, &stop);
  const StreamPlan plan = plan_of("host->gpu0 flag");
  const Ends ends = ends_of(plan);
  TransferRun run(0, plan.transfers[0], 1);
  ASSERT_TRUE(repeat.open(0));
  std::uint32_t answered = 0;
  run_flag_loop(repeat, run, *ends.mapping(), &answered);
  EXPECT_FALSE(run.error()) << run.error()->cause;
  EXPECT_TRUE(run.is_done());
}

}  // namespace
}  // namespace gigabar
