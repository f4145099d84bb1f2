// SPDX-License-Identifier: Apache-2.0
// Groups and collectives: results, codes, and time-outs after which the same call goes on.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "conformance/gaspi_ranks.hpp"
#include "support/cancellable.hpp"

namespace gigabar::test {
namespace {

gaspi_group_t group_of(const std::vector<gaspi_rank_t>& ranks) {
  gaspi_group_t group = 255;
  EXPECT_DONE(gaspi_group_create(&group));
  for (const gaspi_rank_t rank : ranks) EXPECT_DONE(gaspi_group_add(group, rank));
  return group;
}

GASPI_BODY(gaspi_groups) {
  const auto ranks = gaspi_rank_t(me.rank_count());
  gaspi_number_t number = 0;
  ASSERT_DONE(gaspi_group_num(&number));
  EXPECT_EQ(number, 1U);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_group_num(nullptr));
  ASSERT_DONE(gaspi_group_size(GASPI_GROUP_ALL, &number));
  EXPECT_EQ(number, ranks);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_group_create(nullptr));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_delete(GASPI_GROUP_ALL));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_add(GASPI_GROUP_ALL, 0)) << "it is committed";
  for (const gaspi_group_t none : {gaspi_group_t(5), gaspi_group_t(255)}) {
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_delete(none));
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_add(none, 0));
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_commit(none, kLong));
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_size(none, &number));
    gaspi_rank_t rank = 0;
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_ranks(none, &rank));
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_barrier(none, kLong));
  }
  const gaspi_group_t group = group_of({gaspi_rank_t(ranks - 1), 0});
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_group_add(group, ranks));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_group_add(group, 0)) << "it is in it";
  std::vector<gaspi_rank_t> members(2, 99);
  ASSERT_DONE(gaspi_group_ranks(group, members.data()));
  EXPECT_EQ(members, (std::vector<gaspi_rank_t>{0, gaspi_rank_t(ranks - 1)}));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_group_ranks(group, nullptr));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_group_size(group, nullptr));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_barrier(group, kLong)) << "it is not committed";
  const bool is_member = me.rank() == 0 || me.rank() == ranks - 1U;
  if (is_member) {
    ASSERT_DONE(gaspi_group_commit(group, kLong));
    ASSERT_DONE(gaspi_barrier(group, kLong));
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_add(group, 1));
  } else {
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_commit(group, kLong)) << "this rank is not in it";
  }
  ASSERT_DONE(gaspi_group_num(&number));
  EXPECT_EQ(number, 2U);
  ASSERT_DONE(gaspi_group_delete(group));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_delete(group));
  std::vector<gaspi_group_t> made;
  gaspi_group_t one = 0;
  gaspi_return_t created = GASPI_SUCCESS;
  while ((created = gaspi_group_create(&one)) == GASPI_SUCCESS) made.push_back(one);
  EXPECT_CODE(GASPI_ERR_MANY_GRP, created);
  EXPECT_EQ(made.size(), 31U);
  for (const gaspi_group_t each : made) EXPECT_DONE(gaspi_group_delete(each));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

template <class Number>
void reduce_all(const RankProcess& me, gaspi_datatype_t type, Number low, Number high) {
  constexpr gaspi_number_t kCount = 255;
  const Rank ranks = me.rank_count();
  const auto value = [&](Rank rank, gaspi_number_t i) {
    if (i == 0) return rank == 0 ? low : Number(1);
    if (i == 1) return rank == 0 ? high : Number(1);
    return Number(Number(rank * 3 + i % 50) - Number(std::is_signed_v<Number> ? 20 : 0));
  };
  std::vector<Number> own(kCount), result(kCount);
  for (gaspi_number_t i = 0; i < kCount; ++i) own[i] = value(me.rank(), i);
  for (const gaspi_operation_t operation : {GASPI_OP_MIN, GASPI_OP_MAX, GASPI_OP_SUM}) {
    ASSERT_DONE(gaspi_allreduce(own.data(), result.data(), kCount, operation, type, GASPI_GROUP_ALL, kLong));
    for (gaspi_number_t i = operation == GASPI_OP_SUM ? 2 : 0; i < kCount; ++i) {
      Number expected = value(0, i);
      for (Rank rank = 1; rank < ranks; ++rank) {
        const Number other = value(rank, i);
        expected = operation == GASPI_OP_MIN   ? std::min(expected, other)
                   : operation == GASPI_OP_MAX ? std::max(expected, other)
                                               : Number(expected + other);
      }
      ASSERT_EQ(result[i], expected) << "element " << i << " of type " << type << ", operation " << operation;
    }
  }
  ASSERT_DONE(gaspi_allreduce(own.data(), own.data(), 5, GASPI_OP_MAX, type, GASPI_GROUP_ALL, kLong)) << "in place";
  EXPECT_EQ(own[1], std::max(high, Number(ranks > 1 ? 1 : high)));
}

template <class Number>
void reduce_all(const RankProcess& me, gaspi_datatype_t type) {
  reduce_all<Number>(me, type, std::numeric_limits<Number>::lowest(), std::numeric_limits<Number>::max());
}

GASPI_BODY(gaspi_reductions) {
  reduce_all<gaspi_int>(me, GASPI_TYPE_INT);
  reduce_all<gaspi_uint>(me, GASPI_TYPE_UINT);
  reduce_all<gaspi_float>(me, GASPI_TYPE_FLOAT);
  reduce_all<gaspi_double>(me, GASPI_TYPE_DOUBLE);
  reduce_all<gaspi_long>(me, GASPI_TYPE_LONG);
  reduce_all<gaspi_ulong>(me, GASPI_TYPE_ULONG);
  int in = 1, out = 0;
  const auto reduce = [&](void* from, void* to, gaspi_number_t number, gaspi_operation_t operation, gaspi_datatype_t type,
                          gaspi_group_t group) { return gaspi_allreduce(from, to, number, operation, type, group, kLong); };
  EXPECT_CODE(GASPI_ERR_NULLPTR, reduce(nullptr, &out, 1, GASPI_OP_SUM, GASPI_TYPE_INT, 0));
  EXPECT_CODE(GASPI_ERR_NULLPTR, reduce(&in, nullptr, 1, GASPI_OP_SUM, GASPI_TYPE_INT, 0));
  EXPECT_CODE(GASPI_ERR_INV_NUM, reduce(&in, &out, 0, GASPI_OP_SUM, GASPI_TYPE_INT, 0));
  EXPECT_CODE(GASPI_ERR_INV_NUM, reduce(&in, &out, 256, GASPI_OP_SUM, GASPI_TYPE_INT, 0));
  EXPECT_CODE(GASPI_ERROR, reduce(&in, &out, 1, gaspi_operation_t(3), GASPI_TYPE_INT, 0));
  EXPECT_CODE(GASPI_ERR_INV_SIZE, reduce(&in, &out, 1, GASPI_OP_SUM, gaspi_datatype_t(6), 0));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, reduce(&in, &out, 1, GASPI_OP_SUM, GASPI_TYPE_INT, 9));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// The largest, and at which rank: 16 bytes an element.
struct Place {
  double value;
  std::int64_t rank;
};
gaspi_return_t join_places(gaspi_pointer_t const one, gaspi_pointer_t const two, gaspi_pointer_t const result,
                           gaspi_reduce_state_t const state, const gaspi_number_t number, const gaspi_size_t size,
                           const gaspi_timeout_t /*timeout_ms*/) {
  if (size != sizeof(Place)) return GASPI_ERR_INV_SIZE;
  ++*static_cast<int*>(state);
  for (gaspi_number_t i = 0; i < number; ++i) {
    const Place &first = static_cast<const Place*>(one)[i], &second = static_cast<const Place*>(two)[i];
    static_cast<Place*>(result)[i] = second.value > first.value ? second : first;
  }
  return GASPI_SUCCESS;
}
gaspi_return_t join_never(gaspi_pointer_t const, gaspi_pointer_t const, gaspi_pointer_t const, gaspi_reduce_state_t const,
                          const gaspi_number_t, const gaspi_size_t, const gaspi_timeout_t) {
  return GASPI_ERR_DEVICE;
}

GASPI_BODY(gaspi_own_reductions) {
  constexpr gaspi_number_t kCount = 127;
  std::vector<Place> own(kCount), result(kCount);
  for (gaspi_number_t i = 0; i < kCount; ++i) own[i] = {double((me.rank() + i) % me.rank_count()), std::int64_t(me.rank())};
  int calls = 0;
  ASSERT_DONE(gaspi_allreduce_user(own.data(), result.data(), kCount, sizeof(Place), join_places, &calls, GASPI_GROUP_ALL, kLong));
  for (gaspi_number_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(result[i].value, me.rank_count() - 1);
    EXPECT_EQ((result[i].rank + i) % me.rank_count(), me.rank_count() - 1);
  }
  EXPECT_EQ(calls, int(me.rank_count()) - 1);
  const auto reduce = [&](void* from, void* to, gaspi_number_t number, gaspi_size_t size, gaspi_reduce_operation_t join,
                          gaspi_group_t group) { return gaspi_allreduce_user(from, to, number, size, join, &calls, group, kLong); };
  EXPECT_CODE(GASPI_ERR_NULLPTR, reduce(nullptr, result.data(), 1, 16, join_places, 0));
  EXPECT_CODE(GASPI_ERR_NULLPTR, reduce(own.data(), nullptr, 1, 16, join_places, 0));
  EXPECT_CODE(GASPI_ERR_NULLPTR, reduce(own.data(), result.data(), 1, 16, nullptr, 0));
  EXPECT_CODE(GASPI_ERR_INV_NUM, reduce(own.data(), result.data(), 0, 16, join_places, 0));
  EXPECT_CODE(GASPI_ERR_INV_NUM, reduce(own.data(), result.data(), 256, 1, join_places, 0));
  EXPECT_CODE(GASPI_ERR_INV_SIZE, reduce(own.data(), result.data(), 128, 16, join_places, 0)) << "2048 bytes";
  EXPECT_CODE(GASPI_ERR_INV_SIZE, reduce(own.data(), result.data(), 1, 0, join_places, 0));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, reduce(own.data(), result.data(), 1, 16, join_places, 9));
  const gaspi_return_t failed = reduce(own.data(), result.data(), 1, 16, join_never, 0);
  EXPECT_CODE(me.rank_count() > 1 ? GASPI_ERR_DEVICE : GASPI_SUCCESS, failed) << "the operation's own code";
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

gaspi_return_t join_throws(gaspi_pointer_t const, gaspi_pointer_t const, gaspi_pointer_t const, gaspi_reduce_state_t const,
                           const gaspi_number_t, const gaspi_size_t, const gaspi_timeout_t) {
  throw std::length_error("of the program");
}
gaspi_return_t join_exits(gaspi_pointer_t const, gaspi_pointer_t const, gaspi_pointer_t const, gaspi_reduce_state_t const state,
                          const gaspi_number_t, const gaspi_size_t, const gaspi_timeout_t) {
  ::pthread_exit(state);
}

// The operation of rank 0 throws, then ends its thread: the other ranks get their result each time, and the group goes on.
GASPI_BODY(gaspi_operation_ends) {
  const auto last = std::int64_t(me.rank_count()) - 1;
  Place own{double(me.rank()), std::int64_t(me.rank())}, best{};
  int calls = 0;
  const auto reduce = [&](gaspi_reduce_operation_t join) {
    best = {};
    return gaspi_allreduce_user(&own, &best, 1, sizeof own, join, &calls, GASPI_GROUP_ALL, kLong);
  };
  if (me.rank() == 0) {
    EXPECT_CODE(GASPI_ERROR, reduce(join_throws));
    Cancellable([&] { reduce(join_exits); }).expect_ended_inside(&calls);
    EXPECT_EQ(best.rank, 0) << "it has no result";
  } else {
    for (int i = 0; i < 2; ++i) {
      ASSERT_DONE(reduce(join_places));
      EXPECT_EQ(best.rank, last);
    }
  }
  ASSERT_DONE(reduce(join_places));
  EXPECT_EQ(best.rank, last);
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// Each rank adds the members in an order of its own, to a group of an id of its own.
GASPI_BODY(gaspi_orders_of_members) {
  const auto ranks = gaspi_rank_t(me.rank_count());
  for (Rank i = 0; i < me.rank(); ++i) group_of({});
  std::vector<gaspi_rank_t> members(ranks), found(ranks, 99);
  std::iota(members.begin(), members.end(), gaspi_rank_t{0});
  const std::vector<gaspi_rank_t> ascending = members;
  std::ranges::rotate(members, members.begin() + me.rank());
  const gaspi_group_t group = group_of(members);
  EXPECT_EQ(group, 1 + me.rank());
  ASSERT_DONE(gaspi_group_commit(group, kLong));
  ASSERT_DONE(gaspi_group_commit(group, kLong)) << "it is committed";
  ASSERT_DONE(gaspi_group_ranks(group, found.data()));
  EXPECT_EQ(found, ascending);
  // A part of it, of the last rank and the first.
  const bool is_member = me.rank() == 0 || me.rank() == ranks - 1U;
  long own = long(me.rank()) + 1, sum = 0;
  if (is_member) {
    const gaspi_group_t ends = me.rank() == 0 ? group_of({0, gaspi_rank_t(ranks - 1)}) : group_of({gaspi_rank_t(ranks - 1), 0});
    ASSERT_DONE(gaspi_group_commit(ends, kLong));
    ASSERT_DONE(gaspi_allreduce(&own, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_LONG, ends, kLong));
    EXPECT_EQ(sum, 1 + ranks);
  }
  ASSERT_DONE(gaspi_allreduce(&own, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_LONG, group, kLong));
  EXPECT_EQ(sum, long(ranks) * (ranks + 1) / 2);
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// A thread that waits for another one's collective of the group is cancelled: it takes its turn, and ends behind the call.
GASPI_BODY(gaspi_cancelled_while_it_waits) {
  const auto meet = [] { ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, GASPI_BLOCK)); };
  if (me.rank() == 0) {
    ASSERT_TRUE(me.meet());
    meet();
    meet();
  } else {
    const Cancellable one(meet), two(meet);
    one.cancel();
    two.cancel();
    // One of them yields first, then sleeps: it sleeps when this thread has yielded more often.
    for (int i = 0; i < 200; ++i) ::sched_yield();
    ::usleep(50'000);
    ASSERT_TRUE(me.meet());
    one.expect_cancelled_behind_it();
    two.expect_cancelled_behind_it();
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// Rank 0 comes late: the others time out, may not call anything else, and go on with the same call.
GASPI_BODY(gaspi_collectives_go_on) {
  const bool is_late = me.rank() == 0;
  const std::vector<gaspi_rank_t> everyone = [&] {
    std::vector<gaspi_rank_t> ranks(me.rank_count());
    std::iota(ranks.begin(), ranks.end(), gaspi_rank_t{0});
    return ranks;
  }();
  const gaspi_group_t group = group_of(everyone);
  if (!is_late) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_group_commit(group, 50));
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_group_commit(group, GASPI_TEST));
    EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_group_add(group, 0)) << "its commit is under way";
  }
  ASSERT_TRUE(me.meet());
  ASSERT_DONE(gaspi_group_commit(group, kLong));
  long in = long(me.rank()) + 1, out = 0;
  const long total = long(me.rank_count()) * (me.rank_count() + 1) / 2;
  if (!is_late) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_barrier(group, 50));
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_barrier(group, GASPI_TEST));
    EXPECT_CODE(GASPI_ERR_ACTIVE_COLL, gaspi_allreduce(&in, &out, 1, GASPI_OP_SUM, GASPI_TYPE_LONG, group, 50));
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_barrier(GASPI_GROUP_ALL, 50)) << "another group of the same ranks";
  }
  ASSERT_TRUE(me.meet());
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_barrier(group, kLong));
  if (!is_late) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_allreduce(&in, &out, 1, GASPI_OP_SUM, GASPI_TYPE_LONG, group, 50));
    EXPECT_CODE(GASPI_ERR_ACTIVE_COLL, gaspi_barrier(group, 50));
    EXPECT_CODE(GASPI_ERR_ACTIVE_COLL, gaspi_allreduce(&in, &out, 1, GASPI_OP_MAX, GASPI_TYPE_LONG, group, 50));
    EXPECT_CODE(GASPI_ERR_ACTIVE_COLL, gaspi_allreduce(&in, &out, 1, GASPI_OP_SUM, GASPI_TYPE_ULONG, group, 50));
  }
  ASSERT_TRUE(me.meet());
  ASSERT_DONE(gaspi_allreduce(&in, &out, 1, GASPI_OP_SUM, GASPI_TYPE_LONG, group, kLong));
  EXPECT_EQ(out, total);
  int calls = 0;
  Place place{double(me.rank()), std::int64_t(me.rank())}, best{};
  if (!is_late) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_allreduce_user(&place, &best, 1, sizeof place, join_places, &calls, group, 50));
  }
  ASSERT_TRUE(me.meet());
  ASSERT_DONE(gaspi_allreduce_user(&place, &best, 1, sizeof place, join_places, &calls, group, kLong));
  EXPECT_EQ(best.rank, std::int64_t(me.rank_count()) - 1);
  ASSERT_DONE(gaspi_group_delete(group));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// Without an infrastructure GASPI_GROUP_ALL is committed by the program.
BARE_RANK_BODY(gaspi_no_infrastructure) {
  gaspi_config_t config{};
  ASSERT_DONE(gaspi_config_get(&config));
  config.build_infrastructure = GASPI_TOPOLOGY_NONE;
  ASSERT_DONE(gaspi_config_set(config));
  ASSERT_DONE(gaspi_proc_init(kLong));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_group_commit(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

std::vector<RankSetup> one_to_four() {
  std::vector<RankSetup> all;
  for (const Rank count : {1U, 2U, 3U, 4U}) {
    for (const RankSetup& setup : each_transport(count)) all.push_back(setup);
  }
  return all;
}

class GaspiCollectives : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiCollectives, Reductions) { run_gaspi("gaspi_reductions", GetParam()); }
TEST_P(GaspiCollectives, OwnReductions) { run_gaspi("gaspi_own_reductions", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, GaspiCollectives, testing::ValuesIn(one_to_four()), setup_name);

class GaspiGroups : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiGroups, MembersAndCodes) { run_gaspi("gaspi_groups", GetParam()); }
TEST_P(GaspiGroups, CollectivesGoOnAfterATimeOut) { run_gaspi("gaspi_collectives_go_on", GetParam()); }
TEST_P(GaspiGroups, MembersInAnyOrder) { run_gaspi("gaspi_orders_of_members", GetParam()); }
TEST_P(GaspiGroups, AnOperationMayEndItsThread) { run_gaspi("gaspi_operation_ends", GetParam()); }
TEST_P(GaspiGroups, AThreadIsCancelledWhileItWaits) { run_gaspi("gaspi_cancelled_while_it_waits", GetParam()); }
TEST_P(GaspiGroups, WithoutInfrastructure) { run_gaspi("gaspi_no_infrastructure", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Three, GaspiGroups, testing::ValuesIn(each_transport(3)), setup_name);

}  // namespace
}  // namespace gigabar::test
