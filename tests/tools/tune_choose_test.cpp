// SPDX-License-Identifier: Apache-2.0
// gigabar tune without ranks: which limits follow from which curves.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ranks/tune_choose.hpp"

namespace gigabar::tool::ranks {
namespace {

using Sizes = std::vector<std::uint64_t>;

const Sizes kSizes = {1024, 2048, 4096, 8192, 16384};

Split split_of(std::vector<double> first, std::vector<double> second) {
  return split_between(kSizes, {"gdr", std::move(first)}, {"staged", std::move(second)});
}

TEST(TuneSplit, IsWhereTheCurvesCross) {
  const Split split = split_of({1, 2, 4, 20, 80}, {5, 6, 7, 10, 20});
  EXPECT_EQ(split.limit_bytes, 4096U);
  EXPECT_EQ(split.threshold_bytes, 8192U);
  ASSERT_TRUE(split.crossover_bytes);
  EXPECT_GT(*split.crossover_bytes, 4096);
  EXPECT_LT(*split.crossover_bytes, 8192);
  EXPECT_NE(split.why.find("staged"), std::string::npos) << split.why;
}

TEST(TuneSplit, CrossoverIsOnStraightLinesInTheLogarithms) {
  // Twice as fast at 4096, half as fast at 8192: equal in the middle.
  const Split split = split_of({1, 1, 1, 2, 2}, {2, 2, 2, 1, 1});
  ASSERT_TRUE(split.crossover_bytes);
  EXPECT_NEAR(*split.crossover_bytes, 4096 * std::sqrt(2.0), 1e-6);
}

TEST(TuneSplit, KeepsTheFirstWayEverywhereOrNowhere) {
  const Split all = split_of({1, 1, 1, 1, 1}, {2, 2, 2, 2, 2});
  EXPECT_EQ(all.limit_bytes, kUnlimitedBytes);
  EXPECT_EQ(all.threshold_bytes, kUnlimitedBytes);
  EXPECT_FALSE(all.crossover_bytes);
  const Split none = split_of({2, 2, 2, 2, 2}, {1, 1, 1, 1, 1});
  EXPECT_EQ(none.limit_bytes, 0U);
  EXPECT_EQ(none.threshold_bytes, 1024U);
  EXPECT_FALSE(none.crossover_bytes);
}

TEST(TuneSplit, IsNotMovedByASingleDisturbedSize) {
  EXPECT_EQ(split_of({1, 1.3, 1, 5, 5}, {2, 1.2, 2, 1, 1}).limit_bytes, 4096U);
  EXPECT_EQ(split_of({2, 2, 2, 2, 2}, {4, 1.9, 4, 4, 4}).limit_bytes, kUnlimitedBytes);
}

TEST(TuneSplit, NeedsMoreThanThreePercent) {
  EXPECT_EQ(split_of({1, 1, 1, 1.02, 1.02}, {2, 2, 2, 1, 1}).limit_bytes, kUnlimitedBytes);
  EXPECT_EQ(split_of({1, 1, 1, 1.1, 1.1}, {2, 2, 2, 1, 1}).limit_bytes, 4096U);
}

TEST(TuneSplit, EqualCurvesKeepTheFirstWay) { EXPECT_EQ(split_of({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}).limit_bytes, kUnlimitedBytes); }

std::vector<Curve> candidates(const std::vector<std::vector<double>>& medians) {
  std::vector<Curve> curves;
  for (const auto& each : medians) curves.push_back({"chunk " + std::to_string(curves.size()), each});
  return curves;
}

TEST(TunePick, TakesTheBestOverAllSizes) {
  EXPECT_EQ(pick_nearest_to_best(candidates({{9, 9}, {5, 8}, {4, 20}}), 0).index, 1U);
  // Each size counts alike, whatever its times are.
  EXPECT_EQ(pick_nearest_to_best(candidates({{1, 1100}, {2, 1000}}), 1).index, 0U);
}

TEST(TunePick, StaysWithTheUsualForThreePercent) {
  EXPECT_EQ(pick_nearest_to_best(candidates({{100, 100}, {102, 102}}), 1).index, 1U);
  const Pick pick = pick_nearest_to_best(candidates({{100, 100}, {110, 110}}), 1);
  EXPECT_EQ(pick.index, 0U);
  EXPECT_NE(pick.why.find("10 %"), std::string::npos) << pick.why;
}

}  // namespace
}  // namespace gigabar::tool::ranks
