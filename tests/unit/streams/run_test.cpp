// SPDX-License-Identifier: Apache-2.0
// Whole runs on stand-in devices: what is measured, verified, refused, stopped.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "gigabar/streams.hpp"
#include "platform/numa.hpp"
#include "platform/roots.hpp"
#include "support/own_threads.hpp"
#include "support/scoped_environment.hpp"
#include "unit/streams/plans.hpp"

namespace gigabar {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class StreamRun : public testing::Test {
 protected:
  static StreamPlan plan_of(std::initializer_list<std::string_view> lines, unsigned repeats = 2) {
    return test::plan_of(lines, repeats, 1 << 20);
  }

  test::ScopedEnvironment two_{"GIGABAR_STAND_IN", "2"};
};

TEST_F(StreamRun, EveryExecutorMovesWhatItShould) {
  const StreamPlan plan = plan_of({"gpu0->host", "host->gpu1", "gpu0->gpu1 ce-push", "gpu1->gpu0 sm:8", "host->gpu0 cpu:3",
                                   "gpu1->host cpu", "host->host cpu:2", "gpu0->gpu0"});
  const auto report = run_streams(plan);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->is_ok());
  EXPECT_TRUE(report->is_stand_in);
  EXPECT_FALSE(report->was_stopped);
  ASSERT_EQ(report->transfers.size(), plan.transfers.size());
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    const TransferReport& told = report->transfers[i];
    EXPECT_EQ(told.transfer, plan.transfers[i]);
    EXPECT_TRUE(told.is_verified) << told.path;
    EXPECT_EQ(told.bytes_moved, std::uint64_t{2} * 20 * (1 << 20)) << told.path;
    EXPECT_EQ(told.life_gb_per_s.samples.size(), 2u);
    EXPECT_GT(told.life_gb_per_s.median, 0);
    EXPECT_NE(told.path.find("stand-in"), std::string::npos) << told.path;
    EXPECT_EQ(told.link.name, "unknown") << "nothing may be guessed for host memory";
    EXPECT_EQ(told.ratio, 0);
  }
  EXPECT_NE(report->transfers[4].path.find("3 CPU threads"), std::string::npos);
  ASSERT_EQ(report->totals.size(), 1u);
  EXPECT_LE(report->totals[0].aggregate_gb_per_s.median, report->totals[0].sum_gb_per_s.median * 1.0001);
}

TEST_F(StreamRun, HostPagesAreWhereTheyAreSaidToBe) {
  const auto report = run_streams(plan_of({"gpu0->host", "gpu0->host pages=pageable"}, 1));
  ASSERT_TRUE(report);
  for (const TransferReport& told : report->transfers) {
    EXPECT_FALSE(told.host_placement.empty());
    if (numa_nodes().empty()) {
      EXPECT_EQ(told.host_numa_node, -1);
      EXPECT_EQ(told.host_placement, "this machine has no NUMA");
    } else {
      EXPECT_NE(std::find(numa_nodes().begin(), numa_nodes().end(), told.host_numa_node), numa_nodes().end());
      EXPECT_NE(told.host_placement.find("256 of 256 pages"), std::string::npos) << told.host_placement;
    }
  }
}

TEST_F(StreamRun, WithoutNumaItSaysSo) {
  struct Roots {
    explicit Roots(PlatformRoots changed) : before(platform_roots()) { set_platform_roots(std::move(changed)); }
    ~Roots() { set_platform_roots(before); }
    const PlatformRoots before;
  };
  const Roots none({.sys = "/nonexistent"});
  const auto report = run_streams(plan_of({"gpu0->host"}, 1));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->transfers[0].host_numa_node, -1);
  EXPECT_EQ(report->transfers[0].host_placement, "this machine has no NUMA");
  EXPECT_EQ(run_streams(plan_of({"gpu0->host:0"}, 1)).status(), Status::invalid_argument) << "there is no node to bind to";
}

TEST_F(StreamRun, OddSizesArriveWhole) {
  for (const std::string_view bytes : {"1", "7", "63", "257", "320", "576", "4097", "1000003"}) {
    const std::string size = std::string(" bytes=") + std::string(bytes);
    const StreamPlan plan =
        plan_of({"gpu0->host" + size, "host->gpu0 cpu:4" + size, "gpu0->gpu1 sm" + size, "gpu1->host cpu:4" + size});
    const auto report = run_streams(plan);
    ASSERT_TRUE(report) << report.error().message();
    for (const TransferReport& told : report->transfers) EXPECT_TRUE(told.is_verified) << to_string(told.transfer);
  }
}

TEST_F(StreamRun, ForASetTime) {
  const std::int64_t begin_ns = now_ns();
  const auto report = run_streams(plan_of({"gpu0->host seconds=0.2", "host->gpu1 cpu:2 seconds=0.2"}, 1));
  ASSERT_TRUE(report) << report.error().message();
  for (const TransferReport& told : report->transfers) {
    EXPECT_GT(told.seconds.median, 0);
    EXPECT_TRUE(told.is_verified);
  }
  EXPECT_GE(now_ns() - begin_ns, 200'000'000) << "both went on for that time, however often a busy machine let them copy";
}

TEST_F(StreamRun, ADelayedTransferBeginsLater) {
  // Both copy often enough that a busy machine gives them about the same rate: a single copy may wait longer than it takes.
  const auto report = run_streams(plan_of({"gpu0->host seconds=1", "host->gpu1 seconds=0.4 delay=0.1"}, 1));
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->is_ok());
  EXPECT_GT(report->transfers[0].seconds.median, 0.9);
  EXPECT_GT(report->totals[0].overlap_percent.median, 99) << "the short one ran inside the long one";
  ASSERT_EQ(report->warnings.size(), 1u);
  EXPECT_TRUE(has(report->warnings[0], "the shortest ran beside the others for 100.0 % of its time")) << report->warnings[0];
  EXPECT_TRUE(has(report->warnings[0], "the longest went on without it")) << report->warnings[0];
  EXPECT_FALSE(has(report->warnings[0], "took turns")) << report->warnings[0];
}

TEST_F(StreamRun, TransfersOneAfterTheOther) {
  const auto report = run_streams(plan_of({"gpu0->host iterations=1", "host->gpu1 iterations=1 delay=0.2"}, 1));
  ASSERT_TRUE(report);
  ASSERT_EQ(report->warnings.size(), 1u);
  EXPECT_TRUE(has(report->warnings[0], "beside all others for only 0.0 % of its time: they took turns")) << report->warnings[0];
  EXPECT_FALSE(has(report->warnings[0], "went on without it")) << report->warnings[0];
}

// A background load runs as long as what is measured, however long it would take by itself.
TEST_F(StreamRun, LatencyUnderLoad) {
  const auto report = run_streams(plan_of({"host->gpu0 flag iterations=300", "gpu1->host background group=load",
                                           "gpu0->host bytes=4K latency iterations=300 group=small"}));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->is_ok());
  const TransferReport& flag = report->transfers[0];
  ASSERT_TRUE(flag.latency);
  EXPECT_EQ(flag.latency->sample_count, 600u);
  EXPECT_GT(flag.latency->p50_us, 0);
  EXPECT_LE(flag.latency->p50_us, flag.latency->p99_us);
  EXPECT_EQ(flag.bytes_moved, 0u);
  EXPECT_FALSE(flag.is_verified) << "there is no data to verify";
  const TransferReport& load = report->transfers[1];
  EXPECT_FALSE(load.latency);
  EXPECT_GT(load.life_gb_per_s.median, 0);
  EXPECT_TRUE(load.is_verified);
  ASSERT_TRUE(report->transfers[2].latency);
  EXPECT_EQ(report->transfers[2].latency->sample_count, 600u);
  ASSERT_EQ(report->totals.size(), 3u) << "all, load, small";
  EXPECT_EQ(report->totals[1].group, "load");
  EXPECT_EQ(report->totals[2].group, "small");
}

TEST_F(StreamRun, PointerChase) {
  const auto report = run_streams(plan_of({"gpu1->gpu0 chase bytes=2M iterations=5", "host->gpu0 chase bytes=4K iterations=5"}, 1));
  ASSERT_TRUE(report) << report.error().message();
  for (const TransferReport& told : report->transfers) {
    ASSERT_TRUE(told.latency) << told.path;
    EXPECT_EQ(told.latency->sample_count, 5u);
    EXPECT_GT(told.latency->min_us, 0);
  }
  EXPECT_TRUE(report->totals.empty()) << "no bytes were moved";
}

TEST_F(StreamRun, StoppedInTheMiddle) {
  std::atomic<bool> stop{false};
  StreamOptions options;
  options.stop = &stop;
  options.progress_interval_ms = 10;
  // Not after some time: a slow machine would still be preparing memory then.
  std::chrono::steady_clock::time_point stopped_at;
  options.progress = [&](unsigned, std::span<const StreamProgress> all) {
    if (stop || all[0].bytes_done == 0 || all[1].bytes_done == 0) return;
    stopped_at = std::chrono::steady_clock::now();
    stop = true;
  };
  const auto report =
      run_streams(plan_of({"gpu0->host seconds=60", "host->gpu1 cpu:2 seconds=60", "host->gpu0 flag seconds=60"}, 3), options);
  ASSERT_TRUE(stop) << "both moved bytes";
  EXPECT_LT(std::chrono::steady_clock::now() - stopped_at, std::chrono::seconds(10));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->was_stopped);
  EXPECT_TRUE(report->is_ok());
  EXPECT_EQ(report->transfers[0].seconds.samples.size(), 1u) << "no repeat begins after it";
  EXPECT_EQ(report->transfers[1].seconds.samples.size(), 1u);
  EXPECT_LE(report->transfers[2].seconds.samples.size(), 1u) << "none when the stop came before its first flag";
  EXPECT_GT(report->transfers[0].bytes_moved, 0u);
  EXPECT_TRUE(report->transfers[0].is_verified);
}

TEST_F(StreamRun, StoppedBeforeItBegan) {
  const std::atomic<bool> stop{true};
  StreamOptions options;
  options.stop = &stop;
  const auto report = run_streams(plan_of({"gpu0->host"}), options);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->transfers[0].life_gb_per_s.samples.empty());
}

TEST_F(StreamRun, OneThatIsNotDoneInTimeFailsAndTheOthersRunOn) {
  StreamPlan plan = plan_of({"gpu0->host iterations=3", "host->gpu1 seconds=600"}, 1);
  plan.timeout_seconds = 0.4;
  const auto report = run_streams(plan);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->is_ok());
  EXPECT_FALSE(report->transfers[0].error);
  EXPECT_TRUE(report->transfers[0].is_verified);
  ASSERT_TRUE(report->transfers[1].error);
  EXPECT_EQ(report->transfers[1].error->status, Status::timed_out);
  EXPECT_NE(report->transfers[1].error->object.find("transfer 1"), std::string::npos);
}

TEST_F(StreamRun, ProgressIsToldAndEndsAtAll) {
  StreamOptions options;
  options.progress_interval_ms = 10;
  std::vector<StreamProgress> last;
  unsigned calls = 0;
  std::uint64_t before = 0;
  options.progress = [&](unsigned repeat, std::span<const StreamProgress> all) {
    EXPECT_EQ(repeat, 0u);
    ++calls;
    ASSERT_EQ(all.size(), 2u);
    EXPECT_GE(all[0].bytes_done, before);
    before = all[0].bytes_done;
    last.assign(all.begin(), all.end());
  };
  const auto report = run_streams(plan_of({"gpu0->host iterations=400", "host->gpu1 seconds=0.2"}, 1), options);
  ASSERT_TRUE(report);
  EXPECT_GT(calls, 2u);
  EXPECT_TRUE(last[0].is_done);
  EXPECT_EQ(last[0].bytes_done, std::uint64_t{400} << 20);
  EXPECT_EQ(last[0].bytes_total, std::uint64_t{400} << 20);
  EXPECT_EQ(last[1].bytes_total, 0u) << "nobody knows how much fits into a time";
}

TEST_F(StreamRun, ItsThreadsLeaveSignalsToTheProgram) {
  std::atomic<bool> stop{false};
  StreamOptions options;
  options.stop = &stop;
  options.progress_interval_ms = 10;
  std::size_t threads = 0;
  options.progress = [&](unsigned, std::span<const StreamProgress> all) {
    if (stop || all[0].bytes_done == 0 || all[1].bytes_done == 0) return;
    threads = test::expect_signals_blocked_beside_main();
    stop = true;
  };
  ASSERT_TRUE(
      run_streams(plan_of({"gpu0->host seconds=60", "host->gpu1 cpu:2 seconds=60", "host->gpu0 flag seconds=60"}, 1), options));
  EXPECT_GE(threads, 5u) << "of the flag there are two";
}

TEST_F(StreamRun, WhatDoesNotFitIsRefusedByName) {
  StreamPlan plan = plan_of({"gpu0->host", "host->gpu1 bytes=4096G"}, 1);
  const auto report = run_streams(plan);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.status(), Status::out_of_memory);
  EXPECT_NE(report.error().record().object.find("transfer 1"), std::string::npos) << report.error().message();
}

TEST_F(StreamRun, BadPlansAreRefused) {
  EXPECT_EQ(run_streams(StreamPlan{}).status(), Status::invalid_argument);
  StreamPlan plan = plan_of({"gpu0->host"});
  plan.transfers[0].bytes = 0;
  EXPECT_EQ(run_streams(plan).status(), Status::invalid_argument);
  plan = plan_of({"gpu0->host"});
  plan.transfers[0].source.device = 7;
  EXPECT_EQ(run_streams(plan).status(), Status::invalid_argument);
  plan = plan_of({"gpu0->host"});
  plan.repeats = 0;
  EXPECT_EQ(run_streams(plan).status(), Status::invalid_argument);
  plan = plan_of({"gpu0->host"});
  plan.transfers[0].destination.numa_node = 900;
  EXPECT_EQ(run_streams(plan).status(), Status::invalid_argument);
}

}  // namespace
}  // namespace gigabar
