// SPDX-License-Identifier: Apache-2.0
// Barriers and reductions of groups: nobody leaves before all came, results are the same everywhere, a time-out loses nothing.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

// All ranks, the first and the last, all but the first, and this rank alone.
std::vector<Group> groups_of(const RankProcess& me) {
  const Rank last = me.rank_count() - 1;
  std::vector<Group> all{{}, {me.rank()}};
  Group everyone(me.rank_count());
  std::iota(everyone.begin(), everyone.end(), Rank{0});
  all.push_back(everyone);
  if (last > 0) all.push_back({0, last});
  if (last > 1) all.emplace_back(everyone.begin() + 1, everyone.end());
  std::erase_if(all, [&](const Group& group) { return !group.empty() && std::ranges::find(group, me.rank()) == group.end(); });
  return all;
}

RANK_BODY(barriers_of_groups) {
  for (std::uint64_t round = 0; round < me.setup().amount; ++round) {
    for (const Group& group : groups_of(me)) ASSERT_TRUE(is_ok(fabric.barrier(group, kPatience))) << "round " << round;
  }
}

// Rank 0 comes to the first barrier only when the others' has timed out, and all have met in another context.
RANK_BODY(contexts_are_independent) {
  std::array<std::int64_t, 1> own{me.rank()}, greatest{};
  if (me.rank() != 0) {
    EXPECT_TRUE(fails(fabric.barrier({}, Timeout::of(std::chrono::milliseconds(50)), 1), Status::timed_out));
    EXPECT_TRUE(fails(fabric.all_reduce({}, ReduceOperation::maximum, own, greatest, kPatience, 1), Status::busy));
  }
  ASSERT_TRUE(is_ok(fabric.all_reduce({}, ReduceOperation::maximum, own, greatest, kPatience, 2)));
  EXPECT_EQ(greatest[0], me.rank_count() - 1);
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience, 1)));
  ASSERT_TRUE(me.meet());
}

// Each rank counts itself before the barrier; after it the count is at least everybody's.
RANK_BODY(barrier_waits_for_all) {
  const std::uint64_t count = me.rank_count();
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  const std::uint64_t zero = 0;
  target.put(0, &zero, sizeof zero);
  ASSERT_TRUE(me.meet());
  for (std::uint64_t round = 1; round <= me.setup().amount; ++round) {
    ASSERT_TRUE(is_ok(fabric.fetch_add({0, kTarget, 0}, 1, kPatience)));
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "round " << round;
    const auto now = fabric.fetch_add({0, kTarget, 0}, 0, kPatience);
    ASSERT_TRUE(is_ok(now));
    ASSERT_GE(*now, round * count) << "round " << round;
    ASSERT_LT(*now, (round + 1) * count) << "round " << round;
  }
  ASSERT_TRUE(me.meet());
}

std::vector<Rank> members(const RankProcess& me, const Group& group) {
  if (!group.empty()) return group;
  std::vector<Rank> all(me.rank_count());
  std::iota(all.begin(), all.end(), Rank{0});
  return all;
}

std::int64_t whole_value(Rank rank, std::size_t element, std::uint64_t round) {
  return (std::int64_t(rank * 7 + element * 3 + round * 11) % 101 - 50) * 1'000'000'007;
}

template <class Number>
Number expected(const std::vector<Rank>& ranks, ReduceOperation operation, std::size_t element, std::uint64_t round, Number scale) {
  Number result = Number(whole_value(ranks[0], element, round)) * scale;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const Number value = Number(whole_value(ranks[i], element, round)) * scale;
    switch (operation) {
      case ReduceOperation::minimum: result = std::min(result, value); break;
      case ReduceOperation::maximum: result = std::max(result, value); break;
      case ReduceOperation::sum: result += value; break;
    }
  }
  return result;
}

// `scale` 0.5 keeps sums of doubles exact, so that they can be compared.
template <class Number>
void reduce_once(RankProcess& me, Fabric& fabric, const Group& group, ReduceOperation operation, std::size_t count,
                 std::uint64_t round, Number scale) {
  std::vector<Number> values(count), results(count + 2, Number(-12345));
  for (std::size_t i = 0; i < count; ++i) values[i] = Number(whole_value(me.rank(), i, round)) * scale;
  const std::span<Number> into = std::span(results).subspan(1, count);
  ASSERT_TRUE(is_ok(fabric.all_reduce(group, operation, std::span<const Number>(values), into, kPatience)));
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(into[i], expected(members(me, group), operation, i, round, scale)) << "element " << i << " of " << count;
  }
  EXPECT_EQ(results.front(), Number(-12345));
  EXPECT_EQ(results.back(), Number(-12345));
}

RANK_BODY(reduce_in_groups) {
  for (std::uint64_t round = 0; round < me.setup().amount; ++round) {
    const std::size_t count = round % 7 == 0 ? kMaxReduceElements : 1 + round % 40;
    const auto operation = ReduceOperation(round % 3);
    for (const Group& group : groups_of(me)) {
      ASSERT_NO_FATAL_FAILURE(reduce_once<std::int64_t>(me, fabric, group, operation, count, round, 1)) << "round " << round;
      ASSERT_NO_FATAL_FAILURE(reduce_once<double>(me, fabric, group, operation, count, round, 0.5)) << "round " << round;
    }
  }
}

// The extremes of both types come through as they are.
RANK_BODY(reduce_extreme_values) {
  using Whole = std::numeric_limits<std::int64_t>;
  const std::array<std::int64_t, 2> values{Whole::min() + me.rank(), Whole::max() - me.rank()};
  std::array<std::int64_t, 2> results{};
  ASSERT_TRUE(is_ok(fabric.all_reduce({}, ReduceOperation::minimum, values, results, kPatience)));
  EXPECT_EQ(results[0], Whole::min());
  ASSERT_TRUE(is_ok(fabric.all_reduce({}, ReduceOperation::maximum, values, results, kPatience)));
  EXPECT_EQ(results[1], Whole::max());
  using Real = std::numeric_limits<double>;
  const std::array<double, 2> reals{me.rank() == 0 ? -Real::infinity() : -1.0, me.rank() == 0 ? Real::denorm_min() : 0.0};
  std::array<double, 2> real_results{};
  ASSERT_TRUE(is_ok(fabric.all_reduce({}, ReduceOperation::minimum, reals, real_results, kPatience)));
  EXPECT_EQ(real_results[0], -Real::infinity());
  ASSERT_TRUE(is_ok(fabric.all_reduce({}, ReduceOperation::sum, reals, real_results, kPatience)));
  EXPECT_EQ(real_results[1], Real::denorm_min());
}

// The last rank comes late. The others time out, may not begin something else meanwhile, and go on.
RANK_BODY(resume_after_a_time_out) {
  const bool is_late = me.rank() == me.rank_count() - 1;
  const std::array<std::int64_t, 1> one{1};
  std::array<std::int64_t, 1> sum{0};
  for (std::int64_t round = 0; round < 5; ++round) {
    if (!is_late) {
      ASSERT_TRUE(fails(fabric.barrier({}, Timeout::test()), Status::timed_out));
      ASSERT_TRUE(fails(fabric.barrier({}, Timeout::of(std::chrono::milliseconds(30))), Status::timed_out));
      EXPECT_TRUE(fails(fabric.all_reduce({}, ReduceOperation::sum, one, sum, Timeout::test()), Status::busy));
    }
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "round " << round;
    ASSERT_TRUE(me.meet());
    if (!is_late) {
      ASSERT_TRUE(fails(fabric.all_reduce({}, ReduceOperation::sum, one, sum, Timeout::test()), Status::timed_out));
      EXPECT_TRUE(fails(fabric.barrier({}, Timeout::test()), Status::busy));
    }
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(is_ok(fabric.all_reduce({}, ReduceOperation::sum, one, sum, kPatience))) << "round " << round;
    EXPECT_EQ(sum[0], std::int64_t(me.rank_count()));
    ASSERT_TRUE(me.meet());
  }
}

// A collective of one group does not wait for that of another.
RANK_BODY(groups_are_independent) {
  const Group pair{0, 1};
  if (me.rank() == 0) {
    ASSERT_TRUE(fails(fabric.barrier({}, Timeout::test()), Status::timed_out));
    ASSERT_TRUE(is_ok(fabric.barrier(pair, kPatience)));
  } else if (me.rank() == 1) {
    ASSERT_TRUE(is_ok(fabric.barrier(pair, kPatience)));
  }
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
}

// What the last rank calls is not what the others call: another kind, type, operation, or another count of values. Everybody is
// told, and the group's next collective is a good one.
RANK_BODY(call_what_others_do_not) {
  const bool is_odd_one = me.rank() == me.rank_count() - 1;
  const std::array<std::int64_t, 2> wholes{5, 6};
  const std::array<double, 2> reals{5, 6};
  std::array<std::int64_t, 2> whole_results{};
  std::array<double, 2> real_results{};
  const auto reduce = [&](ReduceOperation operation, std::size_t count) {
    return fabric.all_reduce({}, operation, std::span(wholes).first(count), std::span(whole_results).first(count), kPatience);
  };
  const std::array<std::function<Result<void>()>, 4> odd_calls{
      [&] { return fabric.barrier({}, kPatience); },
      [&] { return fabric.all_reduce({}, ReduceOperation::sum, reals, real_results, kPatience); },
      [&] { return reduce(ReduceOperation::maximum, 2); },
      [&] { return reduce(ReduceOperation::sum, 1); },
  };
  for (std::size_t i = 0; i < odd_calls.size(); ++i) {
    whole_results = {-1, -1};
    const Result<void> outcome = is_odd_one ? odd_calls[i]() : reduce(ReduceOperation::sum, 2);
    EXPECT_TRUE(fails(outcome, Status::invalid_argument, "it called another collective, or with other values")) << "call " << i;
    EXPECT_EQ(whole_results, (std::array<std::int64_t, 2>{-1, -1})) << "call " << i;
    ASSERT_TRUE(is_ok(reduce(ReduceOperation::sum, 2))) << "behind call " << i;
    EXPECT_EQ(whole_results[1], std::int64_t(6 * me.rank_count()));
  }
}

std::vector<RankSetup> with_amount(std::vector<RankSetup> setups, std::uint64_t amount) {
  for (RankSetup& setup : setups) setup.amount = rounds(amount);
  return setups;
}

class FabricCollectives : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricCollectives, BarriersOfGroups) { run_ranks("barriers_of_groups", GetParam()); }
TEST_P(FabricCollectives, ContextsAreIndependent) { run_ranks("contexts_are_independent", GetParam()); }
TEST_P(FabricCollectives, BarrierWaitsForAll) { run_ranks("barrier_waits_for_all", GetParam()); }
TEST_P(FabricCollectives, ReductionsOfGroups) {
  RankSetup setup = GetParam();
  setup.amount = rounds(100);
  run_ranks("reduce_in_groups", setup);
}
TEST_P(FabricCollectives, ReductionsOfExtremes) { run_ranks("reduce_extreme_values", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricCollectives, testing::ValuesIn(with_amount(rank_setups(), 1000)), setup_name);

class FabricCollectivesLate : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricCollectivesLate, ResumeAfterATimeOut) { run_ranks("resume_after_a_time_out", GetParam()); }
INSTANTIATE_TEST_SUITE_P(TwoRanks, FabricCollectivesLate, testing::ValuesIn(each_transport(2)), setup_name);
INSTANTIATE_TEST_SUITE_P(FourRanks, FabricCollectivesLate, testing::ValuesIn(each_transport(4)), setup_name);

class FabricDisagreement : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDisagreement, IsToldToAll) { run_ranks("call_what_others_do_not", GetParam()); }
INSTANTIATE_TEST_SUITE_P(TwoRanks, FabricDisagreement, testing::ValuesIn(each_transport(2)), setup_name);
INSTANTIATE_TEST_SUITE_P(FourRanks, FabricDisagreement, testing::ValuesIn(each_transport(4)), setup_name);

class FabricGroups : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricGroups, AreIndependent) { run_ranks("groups_are_independent", GetParam()); }
INSTANTIATE_TEST_SUITE_P(ThreeRanks, FabricGroups, testing::ValuesIn(each_transport(3)), setup_name);

}  // namespace
}  // namespace gigabar::test
