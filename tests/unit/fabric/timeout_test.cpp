// SPDX-License-Identifier: Apache-2.0
// What a Timeout makes of durations.
#include <gtest/gtest.h>

#include <limits>

#include "gigabar/fabric.hpp"

namespace gigabar {
namespace {

using namespace std::chrono_literals;

TEST(Timeout, IsMadeOfAnyDuration) {
  EXPECT_EQ(Timeout(10s).ns(), 10'000'000'000);
  EXPECT_EQ(Timeout(3us).ns(), 3000);
  EXPECT_EQ(Timeout(7ns).ns(), 7);
  EXPECT_EQ(Timeout(2h).ns(), 7'200'000'000'000);
  EXPECT_EQ(Timeout(std::chrono::duration<double>(1.5)).ns(), 1'500'000'000);
  EXPECT_EQ(Timeout::of(250ms).ns(), 250'000'000);
  EXPECT_EQ(Timeout(std::chrono::duration<unsigned>(3)).ns(), 3'000'000'000);
}

TEST(Timeout, BelowZeroLooksOnceAndNeverIsForever) {
  EXPECT_EQ(Timeout(-5s).ns(), 0);
  EXPECT_FALSE(Timeout(-1ns).is_forever());
  EXPECT_EQ(Timeout(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())).ns(), 0);
  EXPECT_TRUE(Timeout::forever().is_forever());
}

// Added to a time of now it must not wrap.
TEST(Timeout, IsAtMostACentury) {
  const std::int64_t century_ns = std::chrono::nanoseconds(std::chrono::hours(24 * 365 * 100)).count();
  for (const Timeout timeout : {Timeout(std::chrono::hours::max()), Timeout(std::chrono::nanoseconds::max()),
                                Timeout(std::chrono::duration<double>(std::numeric_limits<double>::infinity()))}) {
    EXPECT_EQ(timeout.ns(), century_ns);
  }
}

}  // namespace
}  // namespace gigabar
