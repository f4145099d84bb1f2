// SPDX-License-Identifier: Apache-2.0
// latency, bw, bibw, multi-lat, mbw-mr without ranks: what the command line means, and the checker of the data with planted faults.
#include <CLI/CLI.hpp>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gigabar/copy.hpp"
#include "ranks/job.hpp"
#include "ranks/measure.hpp"
#include "support/launched.hpp"
#include "tools/ranks_support.hpp"

namespace gigabar::tool::ranks {
namespace {

// --- Sizes and counts ------------------------------------------------------------------------------------------------------------

TEST(RanksSizes, AreReadAsOsuReadsThem) {
  const SizeRange standard = {1, 4096};
  const auto parse = [&](const char* text) {
    const auto range = parse_size_range(text, standard);
    return range ? std::pair(range->least_bytes, range->most_bytes) : std::pair(std::uint64_t{7}, std::uint64_t{7});
  };
  EXPECT_EQ(parse("64"), std::pair(std::uint64_t{1}, std::uint64_t{64}));
  EXPECT_EQ(parse("8:1K"), std::pair(std::uint64_t{8}, std::uint64_t{1024}));
  EXPECT_EQ(parse("8:"), std::pair(std::uint64_t{8}, std::uint64_t{4096}));
  EXPECT_EQ(parse(":2M"), std::pair(std::uint64_t{1}, std::uint64_t{2} << 20));
  EXPECT_EQ(parse("0:0"), std::pair(std::uint64_t{0}, std::uint64_t{0}));
  EXPECT_EQ(parse("16G"), std::pair(std::uint64_t{1}, kMaxBytes));
}

TEST(RanksSizes, RefuseWhatIsNoRange) {
  for (const char* text : {":", "8:4", "1:2:3", "x", "1:x", "-1", "1:-4", "17G", "1.5K", " 4", "8K:"}) {
    EXPECT_FALSE(parse_size_range(text, {1, 4096}).has_value()) << text;
  }
}

TEST(RanksSizes, DoubleAndStartWithNothingWhereAsked) {
  EXPECT_EQ(sizes_of({0, 8}), (Sizes{0, 1, 2, 4, 8}));
  EXPECT_EQ(sizes_of({3, 20}), (Sizes{3, 6, 12}));
  EXPECT_EQ(sizes_of({0, 0}), Sizes{0});
  EXPECT_EQ(sizes_of(default_sizes(Measure::latency)).size(), 24U);
  EXPECT_EQ(sizes_of(default_sizes(Measure::both_ways)).front(), 1U);
  EXPECT_EQ(sizes_of(default_sizes(Measure::many_latencies)).back(), std::uint64_t{4} << 20);
  EXPECT_EQ(sizes_of({kMaxBytes, kMaxBytes}), Sizes{kMaxBytes});
}

TEST(RanksCounts, AreOsusAndFewerAbove8K) {
  const auto counts = [](Measure measure, std::uint64_t bytes) {
    const Counts each = counts_for(options_of(measure), bytes);
    return std::pair(each.iterations, each.warm_up);
  };
  EXPECT_EQ(counts(Measure::latency, 8192), std::pair(10000U, 100U));
  EXPECT_EQ(counts(Measure::latency, 8193), std::pair(1000U, 10U));
  EXPECT_EQ(counts(Measure::bandwidth, 8192), std::pair(100U, 10U));
  EXPECT_EQ(counts(Measure::many_bandwidths, 16384), std::pair(20U, 2U));
  Options options = options_of(Measure::latency);
  options.iteration_count = 7;
  options.warm_up_count = 0;
  EXPECT_EQ(counts_for(options, 1).iterations, 7U);
  EXPECT_EQ(counts_for(options, 1 << 20).iterations, 7U);
  EXPECT_EQ(counts_for(options, 1 << 20).warm_up, 0U);
}

// --- Options ---------------------------------------------------------------------------------------------------------------------

TEST(RanksPlan, KnowsWhoseMemoryIsWhere) {
  Options options = options_of(Measure::latency);
  EXPECT_EQ(make_plan(options).first_place, Place::host);
  options.accelerator = "cuda";
  EXPECT_EQ(make_plan(options).second_place, Place::device) << "-d cuda alone: D D";
  options.places = {"D", "H"};
  const Plan plan = make_plan(options);
  EXPECT_EQ(plan.first_place, Place::device);
  EXPECT_EQ(plan.second_place, Place::host);
}

TEST(RanksPlan, RefusesWhatContradictsItself) {
  const auto refuse = [](auto&& change, Measure measure = Measure::latency) {
    Options options = options_of(measure);
    change(options);
    return refusal_of([&] { make_plan(options); });
  };
  expect_words(refuse([](Options& o) { o.places = {"D", "D"}; }), {"'D'", "-d cuda"});
  expect_words(refuse([](Options& o) { o.accelerator = "rocm"; }), {"-d rocm", "cuda", "host"});
  expect_words(refuse([](Options& o) { o.places = {"H"}; }), {"1 kind of buffer", "two"});
  expect_words(refuse([](Options& o) {
                 o.accelerator = "cuda";
                 o.places = {"M", "D"};
               }),
               {"'M'", "H", "D"});
  expect_words(refuse([](Options& o) { o.sizes = "8:4"; }), {"-m 8:4", "MIN:MAX"});
  expect_words(refuse([](Options& o) { o.sizes = "0:4"; }, Measure::bandwidth), {"-m 0:4", "start at 1"});
  expect_words(refuse([](Options& o) {
                 o.is_compared = true;
                 o.fabric.required = {"gdr"};
               }),
               {"--compare", "--require gdr"});
}

TEST(RanksPlan, NeedsTheRightNumberOfRanks) {
  EXPECT_EQ(pair_count_for(options_of(Measure::latency), 2), 1U);
  for (const Rank rank_count : {0U, 1U, 3U}) {
    expect_words(refusal_of([&] { pair_count_for(options_of(Measure::bandwidth), rank_count); }),
                 {"bw", "exactly 2", std::to_string(rank_count) + " rank"});
  }
  EXPECT_EQ(pair_count_for(options_of(Measure::many_latencies), 6), 3U);
  expect_words(refusal_of([&] { pair_count_for(options_of(Measure::many_bandwidths), 5); }), {"mbw-mr", "5 ranks", "even"});
  expect_words(refusal_of([&] { pair_count_for(options_of(Measure::many_bandwidths), 1); }), {"1 rank,", "even"});
  Options options = options_of(Measure::many_bandwidths);
  options.pair_count = 2;
  EXPECT_EQ(pair_count_for(options, 5), 2U);
  expect_words(refusal_of([&] { pair_count_for(options, 3); }), {"--pairs 2", "4 ranks", "3"});
}

TEST(RanksPlan, KnowsWhetherThereIsALauncher) {
  {
    const test::Launched nothing({});
    EXPECT_FALSE(is_under_launcher());
    EXPECT_EQ(rank_by_environment(), "0");
  }
  test::Launched launched({{"RANK", "1"}});
  EXPECT_TRUE(is_under_launcher()) << "the fabric says what is missing";
  EXPECT_EQ(rank_by_environment(), "1");
  launched.set("PMIX_RANK", "0");
  EXPECT_EQ(rank_by_environment(), "0") << "PMIx goes before";
  const test::Launched refused({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}});
  expect_words(refusal_of([] { is_under_launcher(); }, kExitFailed), {"PMI_RANK", "GIGABAR_LAUNCHER"});
  EXPECT_EQ(rank_by_environment(), "2");
}

TEST(RanksPlan, SeatsTheFirstHalfOppositeTheSecond) {
  EXPECT_EQ(seat_of(1, 2).partner, 3U);
  EXPECT_TRUE(seat_of(1, 2).is_active);
  EXPECT_EQ(seat_of(3, 2).partner, 1U);
  EXPECT_FALSE(seat_of(3, 2).is_active);
  EXPECT_FALSE(seat_of(3, 2).is_idle);
  EXPECT_TRUE(seat_of(4, 2).is_idle);
}

TEST(RanksPlan, DigestsDifferWhereRanksWouldWaitInVain) {
  const Plan plan = plan_of(Measure::latency);
  const std::uint64_t digest = digest_of(plan);
  EXPECT_EQ(digest, digest_of(plan_of(Measure::latency)));
  EXPECT_NE(digest, digest_of(plan_of(Measure::latency, Kind::write)));
  EXPECT_NE(digest, digest_of(plan_of(Measure::many_latencies)));
  Plan other = plan;
  other.range.most_bytes = 8;
  EXPECT_NE(digest, digest_of(other));
  other = plan;
  other.options.is_checked = true;
  EXPECT_NE(digest, digest_of(other));
  other = plan;
  other.options.is_shared = true;
  EXPECT_NE(digest, digest_of(other));
  other = plan;
  other.options.thread_count = 2;
  EXPECT_NE(digest, digest_of(other)) << "each thread waits for one of the partner's";
  other = plan;
  other.options.fabric.timeout_seconds = 1;
  EXPECT_EQ(digest, digest_of(other)) << "each may have its own deadlines";
}

class RanksFabricOptions : public testing::Test {
 protected:
  FabricOptions parse(const Words& words) {
    CLI::App app("test");
    settings_ = {};
    add_fabric_options(Command(&app), settings_);
    Words reversed(words.rbegin(), words.rend());
    app.parse(reversed);
    return fabric_options(settings_);
  }
  FabricSettings settings_;
};

TEST_F(RanksFabricOptions, ReachTheFabricUnderTheirNames) {
  const FabricOptions options = parse({"--transport",
                                       "verbs,UCX",
                                       "--ucx-trust-network",
                                       "--forbid",
                                       "bar",
                                       "--forbid=gdr",
                                       "--prefer",
                                       "staged",
                                       "--gdr-limit",
                                       "8K",
                                       "--gdr-read-limit",
                                       "0",
                                       "--eager-limit=unlimited",
                                       "--kernel-limit",
                                       "16K",
                                       "--chunk",
                                       "1M",
                                       "--chunks",
                                       "8",
                                       "--stripe",
                                       "64K",
                                       "--rails",
                                       "mlx5_0,mlx5_1/1",
                                       "--rail-policy",
                                       "round_robin",
                                       "--cpus",
                                       "any",
                                       "--timeout",
                                       "2.5"});
  EXPECT_EQ(options.transports, (std::vector{TransportKind::verbs, TransportKind::ucx}));
  EXPECT_EQ(options.ucx_trust_network, true);
  EXPECT_EQ(options.policy.bar, Preference::forbid);
  EXPECT_EQ(options.policy.gdr, Preference::forbid);
  EXPECT_EQ(options.policy.staged, Preference::prefer);
  EXPECT_EQ(options.policy.p2p, Preference::allow);
  EXPECT_EQ(options.limits.gdr_bytes, 8192U);
  EXPECT_EQ(options.limits.gdr_read_bytes, 0U);
  EXPECT_EQ(options.limits.eager_bytes, std::uint64_t{1} << 62);
  EXPECT_EQ(options.limits.kernel_bytes, 16384U);
  EXPECT_EQ(options.limits.chunk_bytes, std::uint64_t{1} << 20);
  EXPECT_EQ(options.limits.chunk_count, 8U);
  EXPECT_EQ(options.limits.stripe_bytes, 65536U);
  EXPECT_EQ(options.rails, (Words{"mlx5_0", "mlx5_1/1"}));
  EXPECT_EQ(options.rail_policy, RailPolicy::round_robin);
  EXPECT_EQ(options.rail_count, 2U) << "who names two rails wants both";
  EXPECT_EQ(options.cpus, "any");
  EXPECT_EQ(settings_.timeout().ns(), 2'500'000'000);
}

TEST_F(RanksFabricOptions, LeaveEverythingElseToTheEnvironment) {
  const FabricOptions options = parse({});
  EXPECT_TRUE(options.transports.empty() && options.rails.empty());
  EXPECT_EQ(options.policy, PathPolicy{});
  EXPECT_FALSE(options.limits.gdr_bytes || options.limits.chunk_bytes || options.rail_count || options.rail_policy || options.cpus);
  EXPECT_FALSE(parse({"--rails", "a,b", "--rail-policy", "fixed"}).rail_count) << "each rank takes one of the list";
  EXPECT_EQ(parse({"--rails", "a,b", "--rail-count", "1"}).rail_count, 1U);
}

TEST_F(RanksFabricOptions, RefuseWhatCannotBe) {
  expect_words(refusal_of([&] { parse({"--require", "gdr", "--require", "p2p"}); }), {"--require p2p", "gdr"});
  expect_words(refusal_of([&] { parse({"--require", "gdr", "--forbid", "gdr"}); }), {"--forbid gdr"});
  expect_words(refusal_of([&] { parse({"--rails", "a,b,c,d,e,f,g,h,i"}); }), {"--rails", "9", "8"});
  expect_words(refusal_of([&] { parse({"--cpus", "0-"}); }), {"--cpus", "'0-'", "near, any"});
  expect_words(refusal_of([&] { parse({"--cpus", "60000"}); }), {"--cpus", "CPU 60000", "give CPUs of"});
  for (const Words& words : std::vector<Words>{{"--require", "nvlink"},
                                               {"--transport", "mpi"},
                                               {"--gdr-limit", "-1"},
                                               {"--gdr-limit", "many"},
                                               {"--chunk", "1K"},
                                               {"--chunks", "0"},
                                               {"--rail-policy", "best"},
                                               {"--rail-count", "9"},
                                               {"--timeout", "0"}}) {
    EXPECT_THROW(parse(words), CLI::ParseError) << words.front() << " " << words.back();
  }
}

// --- Data ------------------------------------------------------------------------------------------------------------------------

TEST(RanksSlots, ShareOnePlaceOnlyWhereNothingIsChecked) {
  EXPECT_EQ(slots_for(4096, 64, false).count, 1U);
  EXPECT_EQ(slots_for(4096, 64, false).area_bytes(), 4096U);
  const Slots small = slots_for(8, 64, true);
  EXPECT_EQ(small.count, 64U);
  EXPECT_EQ(small.offset_of(63), 63 * kSlotBytes);
  EXPECT_EQ(small.offset_of(64), 0U);
  EXPECT_GE(slots_for(kSlotBytes, 64, true).stride_bytes, kSlotBytes + kGuardBytes);
  EXPECT_LE(slots_for(std::uint64_t{4} << 20, 64, true).area_bytes(), kMaxCheckedBytes);
  EXPECT_EQ(slots_for(std::uint64_t{64} << 20, 64, true).count, 1U) << "one is always there";
}

class RanksBuffers : public testing::TestWithParam<Place> {
 protected:
  RanksBuffers() {
    Options options = options_of(Measure::bandwidth);
    options.is_checked = true;
    options.window = 4;
    options.sizes = "1:5000";
    plan_ = make_plan(options);
    buffers_.emplace(plan_, GetParam(), DeviceInfo{});
  }

  // What a transport would do: this rank's data to where it receives.
  void deliver(const Slots& slots) {
    for (std::uint32_t slot = 0; slot < slots.count; ++slot) move(slots.offset_of(slot), slots.offset_of(slot), slots.bytes);
  }
  void move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    std::vector<std::byte> staging(bytes);
    if (GetParam() == Place::host) {
      std::memcpy(buffers_->at(buffers_->receive_offset_bytes() + to), buffers_->at(from), bytes);
      return;
    }
    const Mapping mapping = take(map(buffers_->address(), buffers_->bytes()));
    take(copy(staging.data(), MappedPlace{mapping, from}, bytes));
    take(copy(MappedPlace{mapping, buffers_->receive_offset_bytes() + to}, staging.data(), bytes));
  }

  Plan plan_;
  std::optional<Buffers> buffers_;
};

TEST_P(RanksBuffers, FindNothingInDataThatArrived) {
  for (const std::uint64_t bytes : {0U, 1U, 7U, 8U, 4096U, 5000U}) {
    const Slots slots = slots_for(bytes, 4, true);
    buffers_->fill_to_send(slots, 1, 5);
    buffers_->poison_to_receive(slots, 1, 5);
    deliver(slots);
    const auto wrong = buffers_->check_received(slots, 1, 5, 4);
    EXPECT_FALSE(wrong.has_value()) << *wrong;
  }
}

TEST_P(RanksBuffers, FindAPlantedFaultAtItsPlace) {
  const Slots slots = slots_for(4096, 4, true);
  buffers_->fill_to_send(slots, 1, 5);
  deliver(slots);
  buffers_->poison_to_receive(slots, 9, 0);
  buffers_->poison_to_receive(slots, 1, 5);
  deliver(slots);
  buffers_->plant_fault(slots);
  const auto wrong = buffers_->check_received(slots, 1, 5, 4);
  ASSERT_TRUE(wrong.has_value());
  expect_words(*wrong, {"4096 bytes", "rank 1", "round 5", "message 0", "offset 2048"});
}

TEST_P(RanksBuffers, FindWhatWasNotWritten) {
  const Slots slots = slots_for(100, 4, true);
  buffers_->fill_to_send(slots, 1, 5);
  buffers_->poison_to_receive(slots, 1, 5);
  for (const std::uint32_t slot : {0U, 1U, 3U}) move(slots.offset_of(slot), slots.offset_of(slot), slots.bytes);
  expect_words(buffers_->check_received(slots, 1, 5, 4).value_or(""), {"message 2", "offset 0"});
  EXPECT_FALSE(buffers_->check_received(slots, 1, 5, 2)) << "only two were sent";
  move(slots.offset_of(2), slots.offset_of(2), slots.bytes - 1);
  expect_words(buffers_->check_received(slots, 1, 5, 4).value_or(""), {"message 2", "offset 99"});
}

TEST_P(RanksBuffers, FindWhatWasWrittenBeyondTheEnd) {
  const Slots slots = slots_for(100, 4, true);
  buffers_->fill_to_send(slots_for(101, 4, true), 1, 5);
  buffers_->poison_to_receive(slots, 1, 5);
  for (std::uint32_t slot = 0; slot < 4; ++slot) move(slots.offset_of(slot), slots.offset_of(slot), 101);
  expect_words(buffers_->check_received(slots, 1, 5, 4).value_or(""), {"beyond", "offset 100"});
}

TEST_P(RanksBuffers, FindDataOfAnotherRoundRankOrMessage) {
  const Slots slots = slots_for(64, 4, true);
  for (const auto& [sender, round] : {std::pair(1U, 4U), std::pair(0U, 5U), std::pair(1U, 6U)}) {
    buffers_->fill_to_send(slots, sender, round);
    buffers_->poison_to_receive(slots, 1, 5);
    deliver(slots);
    EXPECT_TRUE(buffers_->check_received(slots, 1, 5, 4).has_value()) << "rank " << sender << " round " << round;
  }
  buffers_->fill_to_send(slots, 1, 5);
  buffers_->poison_to_receive(slots, 1, 5);
  for (std::uint32_t slot = 0; slot < 4; ++slot) move(slots.offset_of(0), slots.offset_of(slot), slots.bytes);
  expect_words(buffers_->check_received(slots, 1, 5, 4).value_or(""), {"message 1"});
}

INSTANTIATE_TEST_SUITE_P(Places, RanksBuffers, testing::Values(Place::host, Place::device),
                         [](const auto& place) { return place.param == Place::host ? "host" : "device"; });

}  // namespace
}  // namespace gigabar::tool::ranks
