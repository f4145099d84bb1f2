// SPDX-License-Identifier: Apache-2.0
// Marks become rates, windows and overlap.
#include "streams/measure.hpp"

#include <gtest/gtest.h>

#include <random>

namespace gigabar {
namespace {

constexpr std::int64_t kMs = 1'000'000;

// One part that moves `bytes` evenly between two moments, with a mark every tenth.
Timeline steady(std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t bytes) {
  Timeline timeline;
  auto& marks = timeline.parts.emplace_back();
  for (std::uint64_t i = 0; i <= 10; ++i) {
    marks.push_back({begin_ns + (end_ns - begin_ns) * static_cast<std::int64_t>(i) / 10, bytes * i / 10});
  }
  return timeline;
}

TEST(StreamMeasure, LifeIsFromFirstBeginToLastEnd) {
  Timeline timeline = steady(0, 10 * kMs, 100'000'000);
  EXPECT_DOUBLE_EQ(life_rate(timeline), 10);
  timeline.parts.push_back(steady(5 * kMs, 20 * kMs, 100'000'000).parts.front());
  EXPECT_EQ(timeline.life()->begin_ns, 0);
  EXPECT_EQ(timeline.life()->end_ns, 20 * kMs);
  EXPECT_DOUBLE_EQ(life_rate(timeline), 10);
}

TEST(StreamMeasure, BytesBetweenMarksAreInProportion) {
  const Timeline timeline = steady(100, 200, 1000);
  EXPECT_DOUBLE_EQ(timeline.bytes_until(99), 0);
  EXPECT_DOUBLE_EQ(timeline.bytes_until(100), 0);
  EXPECT_DOUBLE_EQ(timeline.bytes_until(155), 550);
  EXPECT_DOUBLE_EQ(timeline.bytes_until(200), 1000);
  EXPECT_DOUBLE_EQ(timeline.bytes_until(1 << 30), 1000);
}

TEST(StreamMeasure, TheWindowIsWhatAllForegroundHasInCommon) {
  std::vector<Timeline> timelines = {steady(0, 10 * kMs, 1), steady(2 * kMs, 12 * kMs, 1), steady(-50 * kMs, 1 * kMs, 1)};
  timelines[2].is_background = true;
  const auto window = common_window(timelines);
  ASSERT_TRUE(window);
  EXPECT_EQ(window->begin_ns, 2 * kMs);
  EXPECT_EQ(window->end_ns, 10 * kMs);
  timelines[2].is_background = false;
  EXPECT_FALSE(common_window(timelines)) << "the third had ended before the second began";
}

TEST(StreamMeasure, NothingRan) {
  const Timeline never;
  const std::vector<Timeline> timelines(2);
  EXPECT_FALSE(never.life());
  EXPECT_EQ(life_rate(never), 0);
  EXPECT_FALSE(common_window(timelines));
  const Timeline* const all[] = {&never};
  EXPECT_FALSE(together(all));
}

// Transfers one after the other each show their full rate; only the wall clock tells.
TEST(StreamMeasure, SerialisedTransfersAreSeen) {
  const Timeline first = steady(0, 10 * kMs, 100'000'000);
  const Timeline second = steady(10 * kMs, 20 * kMs, 100'000'000);
  const Timeline* const both[] = {&first, &second};
  const auto result = together(both);
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->sum_gb_per_s, 20);
  EXPECT_DOUBLE_EQ(result->aggregate_gb_per_s, 10);
  EXPECT_DOUBLE_EQ(result->overlap_percent, 0);
}

TEST(StreamMeasure, AShortTransferInsideALongOneOverlapsWholly) {
  const Timeline long_one = steady(0, 100 * kMs, 1'000'000'000);
  const Timeline short_one = steady(40 * kMs, 50 * kMs, 10'000'000);
  const Timeline* const both[] = {&long_one, &short_one};
  EXPECT_DOUBLE_EQ(together(both)->overlap_percent, 100);
  const Timeline* const other_way_round[] = {&short_one, &long_one};
  EXPECT_DOUBLE_EQ(together(other_way_round)->overlap_percent, 100);
  const Timeline shifted = steady(95 * kMs, 105 * kMs, 10'000'000);
  const Timeline* const others[] = {&long_one, &shifted};
  EXPECT_DOUBLE_EQ(together(others)->overlap_percent, 50);
}

TEST(StreamMeasure, FiguresAndPercentilesAreSamples) {
  const StreamFigure figure = figure_of({3, 1, 2});
  EXPECT_EQ(figure.median, 2);
  EXPECT_EQ(figure.min, 1);
  EXPECT_EQ(figure.max, 3);
  EXPECT_EQ(figure.samples, (std::vector<double>{3, 1, 2})) << "in the order of the repeats";
  EXPECT_EQ(figure_of({4, 1, 10, 2}).median, 3) << "between the middle two";
  EXPECT_TRUE(figure_of({}).samples.empty());
  std::vector<double> samples;
  for (int i = 1; i <= 200; ++i) samples.push_back(201 - i);
  const auto latency = latency_of(samples);
  ASSERT_TRUE(latency);
  EXPECT_EQ(latency->sample_count, 200u);
  EXPECT_EQ(latency->p50_us, 100);
  EXPECT_EQ(latency->p99_us, 198);
  EXPECT_EQ(latency->max_us, 200);
  EXPECT_FALSE(latency_of({}));
}

// Of fewer than 100 samples the 99th percentile is the largest.
TEST(StreamMeasure, PercentilesOfFewSamplesAreSamples) {
  const auto of_first = [](int count) {
    std::vector<double> samples;
    for (int i = count; i > 0; --i) samples.push_back(i);
    return *latency_of(samples);
  };
  const struct {
    int count;
    double p50_us, p99_us;
  } kExpected[] = {{1, 1, 1}, {2, 1, 2}, {3, 2, 3}, {10, 5, 10}, {99, 50, 99}, {100, 50, 99}, {101, 51, 100}};
  for (const auto& [count, p50_us, p99_us] : kExpected) {
    EXPECT_EQ(of_first(count).p50_us, p50_us) << count;
    EXPECT_EQ(of_first(count).p99_us, p99_us) << count;
    EXPECT_EQ(of_first(count).min_us, 1) << count;
    EXPECT_EQ(of_first(count).max_us, count) << count;
  }
}

// Whatever the marks, no window can hold more than a life, and no aggregate more than the sum.
TEST(StreamMeasure, HoldsForRandomTimelines) {
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<Timeline> timelines;
    const std::size_t count = 1 + random() % 6;
    for (std::size_t i = 0; i < count; ++i) {
      Timeline timeline;
      for (std::size_t part = 0; part < 1 + random() % 3; ++part) {
        auto& marks = timeline.parts.emplace_back();
        Mark mark{static_cast<std::int64_t>(random() % 1000), 0};
        marks.push_back(mark);
        for (std::size_t step = 0; step < 1 + random() % 20; ++step) {
          mark.at_ns += 1 + static_cast<std::int64_t>(random() % 500);
          mark.bytes += random() % 10'000;
          marks.push_back(mark);
        }
      }
      timelines.push_back(std::move(timeline));
    }
    std::vector<const Timeline*> all;
    for (const Timeline& timeline : timelines) all.push_back(&timeline);
    if (const auto window = common_window(timelines)) {
      for (const Timeline& timeline : timelines) {
        const double inside = window_rate(timeline, *window) * static_cast<double>(window->end_ns - window->begin_ns);
        EXPECT_GE(inside, -1e-6);
        EXPECT_LE(inside, static_cast<double>(timeline.bytes()) + 1e-6);
      }
    }
    if (const auto result = together(all)) {
      EXPECT_LE(result->aggregate_gb_per_s, result->sum_gb_per_s * (1 + 1e-9));
      EXPECT_GE(result->overlap_percent, 0);
      EXPECT_LE(result->overlap_percent, 100);
    }
  }
}

}  // namespace
}  // namespace gigabar
