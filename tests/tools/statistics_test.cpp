// SPDX-License-Identifier: Apache-2.0
// The figures are only as good as these: percentiles, patterns, sizes, and the race.
#include "support/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "support/clock.hpp"
#include "support/options.hpp"
#include "support/pattern.hpp"

namespace gigabar::tool {
namespace {

TEST(Percentile, IsTheNearestRank) {
  EXPECT_EQ(percentile_index(1, 0.5), 0U);
  EXPECT_EQ(percentile_index(2, 0.5), 0U);
  EXPECT_EQ(percentile_index(3, 0.5), 1U);
  EXPECT_EQ(percentile_index(100, 0.5), 49U);
  EXPECT_EQ(percentile_index(100, 0.99), 98U);
  EXPECT_EQ(percentile_index(101, 0.99), 99U);
  EXPECT_EQ(percentile_index(99, 0.99), 98U);  // fewer than 100: the largest
  EXPECT_EQ(percentile_index(10000, 0.99), 9899U);
}

TEST(Percentile, IsReachedByTheFractionItNames) {
  for (std::size_t count = 1; count < 500; ++count) {
    for (const double fraction : {0.5, 0.9, 0.99}) {
      const std::size_t index = percentile_index(count, fraction);
      ASSERT_LT(index, count);
      EXPECT_GE(static_cast<double>(index + 1), fraction * static_cast<double>(count) - 1e-6);
      EXPECT_LT(static_cast<double>(index), fraction * static_cast<double>(count));
    }
  }
}

TEST(Summary, NamesSamplesThatWereMeasured) {
  std::vector<std::uint64_t> ticks(1000);
  std::iota(ticks.rbegin(), ticks.rend(), 1);  // 1..1000, descending
  const Summary summary = summarize(ticks, 2.0);
  EXPECT_EQ(summary.sample_count, 1000U);
  EXPECT_DOUBLE_EQ(summary.min_us, 0.002);
  EXPECT_DOUBLE_EQ(summary.p50_us, 1.0);
  EXPECT_DOUBLE_EQ(summary.p99_us, 1.98);
  EXPECT_DOUBLE_EQ(summary.max_us, 2.0);
  EXPECT_DOUBLE_EQ(summary.mean_us, 1.001);
}

TEST(Summary, OfNothingIsZero) {
  EXPECT_EQ(summarize({}, 1.0).sample_count, 0U);
  EXPECT_EQ(median({}), 0.0);
}

TEST(Median, OfEvenCountsIsTheMeanOfTheMiddleTwo) {
  std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(median(values), 2.5);
  std::vector<double> odd{9, 1, 5};
  EXPECT_DOUBLE_EQ(median(odd), 5);
}

TEST(PatternTest, FindsTheFirstWrongByteAtAnyPlaceAndLength) {
  const Pattern pattern(42);
  for (std::size_t bytes = 1; bytes < 70; ++bytes) {
    std::vector<std::byte> data(bytes);
    pattern.fill(data);
    EXPECT_FALSE(pattern.compare(data).has_value());
    for (std::size_t wrong = 0; wrong < bytes; ++wrong) {
      std::vector<std::byte> damaged = data;
      damaged[wrong] ^= std::byte{0x01};
      const auto mismatch = pattern.compare(damaged);
      ASSERT_TRUE(mismatch.has_value());
      EXPECT_EQ(mismatch->offset_bytes, wrong);
      EXPECT_EQ(mismatch->expected, pattern.at(wrong));
      EXPECT_EQ(mismatch->found, damaged[wrong]);
    }
  }
}

TEST(PatternTest, PoisonDiffersInEveryByte) {
  const Pattern pattern(7);
  std::vector<std::byte> data(1000);
  std::vector<std::byte> poison(1000);
  pattern.fill(data);
  pattern.poison(poison);
  for (std::size_t i = 0; i < data.size(); ++i) EXPECT_NE(data[i], poison[i]);
  EXPECT_FALSE(pattern.compare_poison(poison).has_value());
  EXPECT_TRUE(pattern.compare_poison(data).has_value());
}

TEST(PatternTest, ComparesAPartAtItsOffset) {
  const Pattern pattern(8);
  std::vector<std::byte> data(200);
  pattern.fill(data);
  for (std::size_t from = 0; from < 20; ++from) {
    EXPECT_FALSE(pattern.compare(std::span(data).subspan(from), from).has_value());
    EXPECT_TRUE(pattern.compare(std::span(data).subspan(from), from + 1).has_value());
  }
}

TEST(PatternTest, DiffersBySeed) {
  std::vector<std::byte> data(64);
  Pattern(1).fill(data);
  EXPECT_TRUE(Pattern(2).compare(data).has_value());
}

TEST(ParseSize, ReadsPowersOf1024AndRefusesTheRest) {
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("64K"), 65536U);
  EXPECT_EQ(parse_size("2m"), 2U << 20);
  EXPECT_EQ(parse_size("1G"), 1U << 30);
  EXPECT_EQ(parse_size("0"), 0U);
  for (const char* text : {"", "K", "-1", "1.5K", "12q", "0x10", " 4", "4 ", "99999999999999999999", "18446744073709551615G"}) {
    EXPECT_FALSE(parse_size(text).has_value()) << text;
  }
}

TEST(AffordableCount, StaysBetweenTheLeastAndTheMost) {
  EXPECT_EQ(affordable_count(100, 1e9, 10000), 10000U);
  EXPECT_EQ(affordable_count(1e6, 1e8, 10000), 100U);
  EXPECT_EQ(affordable_count(1e12, 1e6, 10000), kMinSamples);
  EXPECT_EQ(affordable_count(1e12, 1e6, 3), 3U);
  EXPECT_EQ(affordable_count(0, std::numeric_limits<double>::infinity(), 50), 50U);
}

TEST(Race, TakesEverySampleOnceAndInTurns) {
  const SampleClock clock = SampleClock::calibrate();
  std::string order;
  std::vector<Contender> contenders;
  contenders.push_back(make_contender("a", [&] {
    order += 'a';
    return true;
  }));
  contenders.push_back(make_contender("b", [&] {
    order += 'b';
    return true;
  }));
  for (Contender& contender : contenders) contender.wanted_count = 100;
  const std::array racing = {&contenders[0], &contenders[1]};
  for (std::size_t round = 0; round < 5; ++round) ASSERT_EQ(race_round(racing, clock, 5, round), nullptr);
  for (const Contender& contender : contenders) EXPECT_EQ(contender.ticks.size(), 100U);
  // No long stretch of one: 16 samples and 4 untimed calls a turn, twice where a round's end meets the next one's start.
  EXPECT_EQ(order.find(std::string(41, 'a')), std::string::npos);
  EXPECT_EQ(order.find(std::string(41, 'b')), std::string::npos);
}

TEST(Race, NamesTheContenderThatFailed) {
  const SampleClock clock = SampleClock::calibrate();
  std::vector<Contender> contenders;
  contenders.push_back(make_contender("good", [] { return true; }));
  contenders.push_back(make_contender("bad", [] { return false; }));
  for (Contender& contender : contenders) contender.wanted_count = 10;
  const std::array racing = {&contenders[0], &contenders[1]};
  const Contender* const failed = race_round(racing, clock, 1, 0);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->name, "bad");
}

TEST(Clock, AgreesWithTheSystemAndKnowsItsCost) {
  const SampleClock clock = SampleClock::calibrate();
  const std::uint64_t start_ns = monotonic_ns();
  const std::uint64_t start = clock.now();
  while (monotonic_ns() < start_ns + 50'000'000) {
  }
  const double measured_ns = static_cast<double>(clock.now() - start) * clock.ns_per_tick();
  const auto true_ns = static_cast<double>(monotonic_ns() - start_ns);
  EXPECT_NEAR(measured_ns / true_ns, 1.0, 0.01);
  EXPECT_GT(clock.cost_ns(), 0.0);
  EXPECT_LT(clock.cost_ns(), 100'000.0);
}

}  // namespace
}  // namespace gigabar::tool
