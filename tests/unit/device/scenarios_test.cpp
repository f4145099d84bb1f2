// SPDX-License-Identifier: Apache-2.0
// The scenarios of `gigabar softhca`: threads post, proxies execute, something goes wrong, and each operation ends as documented.
#include <atomic>
#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/soft_hca/run.hpp"
#include "scenarios/soft_hca/verdict.hpp"

namespace gigabar::tool::softhca {
namespace {

using Ends = std::map<std::string, std::uint64_t>;

Options few(Op op, const std::string& fault = {}) {
  Options options;
  options.op = op;
  if (!fault.empty()) options.faults = {fault};
  options.iteration_count = 10;
  options.warm_up_count = 2;
  options.timeout_seconds = 20;  // waits that are to end ok
  return options;
}

template <class Change>
Options with(Options options, const Change& change) {
  change(options);
  return options;
}

// Where waits are to end by their deadline; long enough for a machine that does other work.
Options brief(Options options) {
  options.timeout_seconds = 0.2;
  return options;
}

CaseResult run(const Plan& plan, const Case& one) {
  static const std::atomic<bool> is_interrupted{false};
  CaseResult result = run_case(plan, one, is_interrupted);
  const auto add = [](std::uint64_t sum, const auto& end) { return sum + end.second; };
  EXPECT_EQ(std::accumulate(result.ends.begin(), result.ends.end(), std::uint64_t{0}, add), result.operations);
  return result;
}

// Of a plan that has one case.
CaseResult run_one(const Options& options) {
  const Plan plan = make_plan(options);
  EXPECT_EQ(plan.cases.size(), 1U);
  CaseResult result = run(plan, plan.cases.at(0));
  EXPECT_EQ(judge(plan, result), "");
  EXPECT_EQ(result.wrong_count, 0U) << result.first_wrong;
  return result;
}

struct Row {
  std::string name;
  Options options;
  Ends ends;
  std::uint64_t effect;  // how often the fault took effect; 0: the scenario's judge knows
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> rows() {
  const auto ordinary = [](Options& options) { options.is_collapsed = false; };
  const auto block_of_3 = [](Options& options) { options.thread_count = 3, options.scope = ScopeKind::block; };
  const auto confirmed = [](Options& options) { options.confirms_reads = true; };
  const auto slots_16 = [](Options& options) { options.slot_count = 16; };
  const auto window_4 = [](Options& options) { options.window = 4; };
  const auto three_rounds = [](Options& options) { options.iteration_count = 3; };
  const auto two_queues = [](Options& options) { options.queue_count = 2, options.iteration_count = 60; };
  const auto sixteen_bits = [](Options& options) { options.window = 4096, options.sizes = "1:1", options.slot_count = 16384; };
  const Ends two_late{{"ok", 8}, {"timed_out, then ok", 2}};
  std::vector<Row> all = {
      {"LateRecord", few(Op::write, "late-record:5"), {{"ok", 10}}, 10},
      {"LostRecord", brief(few(Op::fetch_add, "lost-record:2")), two_late, 2},
      {"LostDoorbell", brief(few(Op::fetch_add, "lost-doorbell:2")), two_late, 2},
      // The last doorbell of all is lost: there is one more.
      {"LastDoorbells", brief(with(few(Op::write, "lost-doorbell:3"), three_rounds)), {{"timed_out, then ok", 3}}, 3},
      {"Reordering", with(few(Op::write, "reorder"), two_queues), {{"ok", 120}}, 0},
      // A collapsed CQ may have lost the first failure; the data are those of one request all the same.
      {"FlushedCollapsed", with(few(Op::write, "error:2"), window_4), {}, 1},
      {"FailedBlock", with(few(Op::write, "error:5"), block_of_3), {}, 1},
      {"Wrap", few(Op::compare_swap, "wrap:5"), {{"ok", 10}}, 0},
      {"WrapOfManyRounds", with(with(few(Op::write, "wrap:60"), ordinary), slots_16), {{"ok", 61}}, 0},
      {"WrapOfAll16Bits", with(few(Op::write, "wrap:65536"), sixteen_bits), {{"ok", 69632}}, 0},
      {"FullRing", brief(with(few(Op::write, "full-ring"), slots_16)), {{"ok", 16}, {"timed_out (not posted)", 1}}, 0},
      {"FullRingOfConfirmedReads",
       brief(with(with(few(Op::read, "full-ring"), slots_16), confirmed)),
       {{"ok", 8}, {"timed_out (not posted)", 1}},
       0},
      {"FullRingOfThree",
       brief(with(with(few(Op::write, "full-ring"), slots_16), [](Options& options) { options.thread_count = 3; })),
       {{"ok", 16}, {"timed_out (not posted)", 3}},
       0},
      {"LateRead", few(Op::read, "late-read"), {{"ok", 10}}, 10},
      {"LateConfirmedRead", with(few(Op::read, "late-read"), confirmed), {{"ok", 10}}, 0},
      {"StalledHca",
       brief(with(few(Op::write, "stalled-hca"), [](Options& options) { options.window = 3; })),
       {{"timed_out, then ok", 3}},
       0},
  };
  for (const bool is_collapsed : {true, false}) {
    const std::string kind = is_collapsed ? "Collapsed" : "Ordinary";
    const auto completions = [&](Options& options) { options.is_collapsed = is_collapsed; };
    const auto slots_64 = [](Options& options) { options.slot_count = 64; };
    all.push_back({"StalledConsumer" + kind,
                   brief(with(with(few(Op::write, "stalled-consumer:1"), slots_64), completions)),
                   {{"ok", 64}},
                   0});
    for (const auto& [syndrome, status] :
         {std::pair{Syndrome::remote_access, "peer_lost"}, std::pair{Syndrome::local_protection, "device_error"}}) {
      const std::string failed = status + std::string(" (") + std::string(name_of(syndrome)) + ")";
      all.push_back({"Error_" + std::string(name_of(syndrome)) + kind,
                     with(with(few(Op::read, "error:4"), completions), [&](Options& options) { options.syndrome = syndrome; }),
                     {{"ok", 3}, {failed, 1}, {std::string(status) + " (not posted)", 1}},
                     1});
    }
  }
  return all;
}

class SoftHcaFaults : public testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Scenario, SoftHcaFaults, testing::ValuesIn(rows()), [](const auto& row) { return row.param.name; });

TEST_P(SoftHcaFaults, EndAsDocumented) {
  const Row& row = GetParam();
  const CaseResult result = run_one(row.options);
  EXPECT_TRUE(row.ends.empty() || result.ends == row.ends) << ends_text(result);
  EXPECT_TRUE(row.effect == 0 || effect_of(result.is.fault.kind, result.faults) == row.effect);
  EXPECT_TRUE(!row.options.confirms_reads || result.stale_count == 0);
}

// What is told of each operation that did not end ok at once.
TEST(SoftHcaScenario, NamesTheOperations) {
  const CaseResult late = run_one(brief(few(Op::fetch_add, "lost-record:2")));
  ASSERT_EQ(late.not_ok.size(), 2U);
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(late.not_ok[i].operation.number, 2 + i) << "the first two behind the warm-up";
  const CaseResult failed = run_one(few(Op::read, "error:4"));
  EXPECT_EQ(failed.failed_count, 2U);
  ASSERT_EQ(failed.not_ok.size(), 2U);
  EXPECT_EQ(failed.not_ok[0].operation.number, 5U);
  EXPECT_EQ(failed.not_ok[0].operation.last, Status::peer_lost);
  EXPECT_EQ(failed.not_ok[0].operation.syndrome, Syndrome::retries_exceeded);
  EXPECT_FALSE(failed.not_ok[1].operation.is_posted);
  EXPECT_EQ(failed.not_ok[1].operation.first, Status::peer_lost);
}

TEST(SoftHcaScenario, RequestsBehindAnErrorAreFlushed) {
  const CaseResult result = run_one(with(few(Op::write, "error:2"), [](Options& o) { o.window = 4, o.is_collapsed = false; }));
  EXPECT_EQ(result.ends,
            (Ends{{"ok", 1}, {"peer_lost (retries_exceeded)", 1}, {"peer_lost (flushed)", 2}, {"peer_lost (not posted)", 1}}));
  EXPECT_EQ(result.queues.at(0).statistics.error_cqes, 3U);
}

TEST(SoftHcaScenario, ThreadsQueuesAndWindows) {
  struct Shape {
    void (*change)(Options& options);
    Sharing sharing;
    std::uint64_t operations;
  };
  const Shape kShapes[] = {
      {[](Options& o) { o.thread_count = 3, o.queue_count = 2; }, Sharing::device, 90},
      {[](Options& o) { o.thread_count = 2, o.queue_count = 2, o.proxy_count = 2; }, Sharing::exclusive, 60},
      {[](Options& o) { o.queue_count = 3, o.is_collapsed = false; }, Sharing::exclusive, 90},
      {[](Options& o) { o.thread_count = 3, o.scope = ScopeKind::block, o.queue_count = 2, o.slot_count = 8; }, Sharing::exclusive,
       180},
      {[](Options& o) { o.thread_count = 2, o.sharing = Sharing::block, o.is_collapsed = false; }, Sharing::block, 60}};
  for (const Shape& shape : kShapes) {
    for (const Op op : {Op::write, Op::compare_swap}) {
      Options options = with(few(op), shape.change);
      options.window = 3;
      if (op == Op::write) options.sizes = "100:100";
      EXPECT_EQ(make_plan(options).sharing, shape.sharing);
      const CaseResult result = run_one(options);
      EXPECT_EQ(result.ends, (Ends{{"ok", shape.operations}}));
      std::uint64_t requests = 0;
      for (const QueueFacts& queue : result.queues) requests += queue.statistics.work_requests;
      EXPECT_EQ(requests, shape.operations * 12 / 10) << "with the warm-up";
    }
  }
}

TEST(SoftHcaScenario, ConfirmedReadsTakeTwoRequests) {
  const CaseResult result = run_one(with(few(Op::read), [](Options& o) { o.confirms_reads = true, o.sizes = "8:8"; }));
  EXPECT_EQ(result.queues.at(0).statistics.work_requests, 2U * 12);
}

// That the checks can fail, and that a fault does not hide what else is wrong.
TEST(SoftHcaScenario, FindsWhatIsWrong) {
  const auto complaint_of = [](const Options& options, Plant plant) {
    const Plan plan = make_plan(with(options, [&](Options& changed) { changed.plant = plant; }));
    return judge(plan, run(plan, plan.cases.at(0)));
  };
  EXPECT_NE(complaint_of(few(Op::write, "wrap:3"), Plant::data).find("wrong data"), std::string::npos);
  EXPECT_NE(complaint_of(few(Op::write, "late-record:2"), Plant::guard).find("nothing was to write"), std::string::npos);
  EXPECT_NE(complaint_of(few(Op::read, "late-record:2"), Plant::error).find("retries_exceeded"), std::string::npos);
  EXPECT_NE(complaint_of(brief(few(Op::fetch_add)), Plant::stall).find("timed_out"), std::string::npos);
}

}  // namespace
}  // namespace gigabar::tool::softhca
