// SPDX-License-Identifier: Apache-2.0
// Plans: what check_plan refuses and why, who works, and how transfers are written.
#include "streams/plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "platform/roots.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

constexpr int kHost = StreamPlace::kHost;

bool has(const std::string& line, std::string_view part) { return line.find(part) != std::string::npos; }

Transfer transfer_of(int from, int to, StreamExecutor executor = StreamExecutor::copy_engine) {
  Transfer transfer;
  transfer.source.device = from;
  transfer.destination.device = to;
  transfer.executor = executor;
  return transfer;
}

StreamPlan plan_of(std::vector<Transfer> transfers) {
  StreamPlan plan;
  plan.transfers = std::move(transfers);
  return plan;
}

// Two NUMA nodes, 0 and 2, or none.
class CheckPlan : public testing::Test {
 protected:
  CheckPlan() {
    tree_.write("sys/devices/system/node/has_memory", "0,2\n");
    set_platform_roots({tree_.path() + "/sys", "/proc", "/dev"});
  }
  ~CheckPlan() override { set_platform_roots({}); }

  void take_numa_away() { set_platform_roots({tree_.path() + "/none", "/proc", "/dev"}); }

  static Result<void> check(const Transfer& transfer) { return check_plan(plan_of({transfer}), 2); }

  static void accept(const Transfer& transfer) { EXPECT_TRUE(check(transfer).is_ok()) << check(transfer).message(); }

  // Refused, the cause has `part`, and there is a remedy.
  static void refuse(const Transfer& transfer, std::string_view part, Status status = Status::invalid_argument) {
    const Result<void> checked = check(transfer);
    ASSERT_FALSE(checked.is_ok()) << to_string(transfer);
    EXPECT_EQ(checked.status(), status) << checked.message();
    EXPECT_EQ(checked.record().operation, "check plan");
    EXPECT_EQ(checked.record().object, describe_transfer(0, transfer));
    EXPECT_TRUE(has(checked.record().cause, part)) << checked.message();
    EXPECT_FALSE(checked.record().remedy.empty()) << checked.message();
  }
  static void refuse_ends(const Transfer& transfer, std::string_view part) { refuse(transfer, part, Status::not_supported); }

  test::TemporaryFolder tree_;
};

TEST_F(CheckPlan, AcceptsOneOfEachExecutor) {
  accept(transfer_of(0, kHost));
  accept(transfer_of(0, 1));
  accept(transfer_of(1, 1));
  accept(transfer_of(kHost, 1, StreamExecutor::kernel));
  accept(transfer_of(kHost, 0, StreamExecutor::cpu));
  accept(transfer_of(kHost, kHost, StreamExecutor::cpu));
  accept(transfer_of(kHost, 0, StreamExecutor::flag));
  accept(transfer_of(0, kHost, StreamExecutor::flag));
  accept(transfer_of(kHost, 0, StreamExecutor::pointer_chase));
  accept(transfer_of(0, 1, StreamExecutor::pointer_chase));
  accept(transfer_of(0, 0, StreamExecutor::pointer_chase));
}

TEST_F(CheckPlan, RefusesPlansAsAWhole) {
  const auto refused = [](const StreamPlan& plan, std::string_view part) {
    const Result<void> checked = check_plan(plan, 2);
    EXPECT_EQ(checked.status(), Status::invalid_argument);
    EXPECT_TRUE(has(checked.message(), part)) << checked.message();
    EXPECT_TRUE(has(checked.message(), "plan of ")) << checked.message();
  };
  refused(plan_of({}), "no transfers");
  StreamPlan plan = plan_of({transfer_of(0, kHost)});
  for (const unsigned repeats : {0U, 1001U, ~0U}) {
    plan.repeats = repeats;
    refused(plan, "repeats");
  }
  plan.repeats = 1000;
  EXPECT_TRUE(check_plan(plan, 2).is_ok());
  for (const double timeout : {0.0, -1.0, 604800.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    plan.timeout_seconds = timeout;
    refused(plan, "timeout");
  }
  plan.timeout_seconds = 604800;
  EXPECT_TRUE(check_plan(plan, 2).is_ok());
  plan.transfers[0].is_background = true;
  refused(plan, "background");
  plan.transfers.push_back(transfer_of(1, kHost));
  EXPECT_TRUE(check_plan(plan, 2).is_ok());
}

TEST_F(CheckPlan, NamesTheTransferThatIsWrong) {
  const Result<void> checked = check_plan(plan_of({transfer_of(0, kHost), transfer_of(0, 1), transfer_of(kHost, 2)}), 2);
  EXPECT_EQ(checked.record().object, "transfer 2 (host->gpu2 ce bytes=1G)");
}

TEST_F(CheckPlan, RefusesDevicesThatAreNot) {
  refuse(transfer_of(0, 2), "device 2: this machine has gpu0 to gpu1");
  refuse(transfer_of(-2, kHost), "device -2");
  refuse(transfer_of(kHost, std::numeric_limits<int>::min()), "device -2147483648");
  const StreamPlan plan = plan_of({transfer_of(kHost, 0)});
  EXPECT_TRUE(has(check_plan(plan, 0).message(), "shows no GPUs"));
  EXPECT_TRUE(has(check_plan(plan_of({transfer_of(1, 0)}), 1).message(), "gpu0 only"));
  EXPECT_TRUE(check_plan(plan_of({transfer_of(kHost, kHost, StreamExecutor::cpu)}), 0).is_ok());
}

TEST_F(CheckPlan, RefusesNodesThatAreNot) {
  Transfer transfer = transfer_of(kHost, 0);
  for (const int node : {StreamPlace::kNearestNode, StreamPlace::kAnyNode, 0, 2}) {
    transfer.source.numa_node = node;
    accept(transfer);
  }
  transfer.source.numa_node = 1;
  refuse(transfer, "NUMA node 1: this machine's nodes with memory are 0, 2");
  transfer.source.numa_node = -3;
  refuse(transfer, "NUMA node -3");
  transfer.source.numa_node = 0;
  take_numa_away();
  refuse(transfer, "no NUMA");
  transfer.source.numa_node = StreamPlace::kNearestNode;
  accept(transfer);
  transfer.destination.numa_node = 7;  // of GPU memory, where it means nothing
  accept(transfer);
}

TEST_F(CheckPlan, RefusesSizesAndLengths) {
  Transfer transfer = transfer_of(0, kHost);
  transfer.bytes = 0;
  refuse(transfer, "0 bytes");
  transfer.bytes = (std::size_t{1} << 46) + 1;
  refuse(transfer, "bytes per copy");
  transfer.bytes = std::size_t{1} << 46;
  accept(transfer);
  transfer.iterations = std::numeric_limits<std::uint64_t>::max();
  refuse(transfer, "bytes in all");
  transfer.is_background = true;
  EXPECT_TRUE(check_plan(plan_of({transfer, transfer_of(0, kHost)}), 2).is_ok()) << "its iterations are not used";
}

TEST_F(CheckPlan, RefusesTransfersThatNothingEnds) {
  Transfer transfer = transfer_of(0, kHost);
  transfer.iterations = 0;
  for (const double seconds : {0.0, -1.0, 86401.0, std::nan("")}) {
    transfer.seconds = seconds;
    refuse(transfer, "seconds");
  }
  transfer.seconds = 0.001;
  accept(transfer);
  transfer.seconds = 0;
  transfer.is_background = true;
  EXPECT_TRUE(check_plan(plan_of({transfer, transfer_of(0, kHost)}), 2).is_ok());
  transfer = transfer_of(0, kHost);
  for (const double delay : {-0.1, 3600.5, std::nan("")}) {
    transfer.delay_seconds = delay;
    refuse(transfer, "delay");
  }
  transfer.delay_seconds = 3600;
  accept(transfer);
}

TEST_F(CheckPlan, RefusesWorkerCountsAndGroups) {
  Transfer transfer = transfer_of(0, kHost, StreamExecutor::kernel);
  transfer.worker_count = 65535;
  accept(transfer);
  transfer.worker_count = 65536;
  refuse(transfer, "65536 thread blocks");
  transfer.executor = StreamExecutor::cpu;
  transfer.worker_count = 256;
  accept(transfer);
  transfer.worker_count = 257;
  refuse(transfer, "257 CPU threads");
  transfer.worker_count = 0;
  for (const std::string& group : {std::string(65, 'g'), std::string("a b"), std::string("a;b"), std::string("a#b"),
                                   std::string("a\n"), std::string("\0", 1)}) {
    transfer.group = group;
    refuse(transfer, "group");
  }
  transfer.group = "n\u00e4her";
  accept(transfer);
}

TEST_F(CheckPlan, RefusesExecutorsThatCannotServeTheirEnds) {
  refuse_ends(transfer_of(kHost, kHost), "copy engine");
  refuse_ends(transfer_of(kHost, kHost, StreamExecutor::kernel), "kernel");
  refuse_ends(transfer_of(0, 1, StreamExecutor::cpu), "one GPU");
  refuse_ends(transfer_of(0, 0, StreamExecutor::cpu), "one GPU");
  refuse_ends(transfer_of(0, 1, StreamExecutor::flag), "flag");
  refuse_ends(transfer_of(kHost, kHost, StreamExecutor::flag), "flag");
  refuse_ends(transfer_of(0, kHost, StreamExecutor::pointer_chase), "destination");
  refuse_ends(transfer_of(kHost, kHost, StreamExecutor::pointer_chase), "destination");
  Transfer chase = transfer_of(0, 1, StreamExecutor::pointer_chase);
  chase.side = StreamSide::source;
  refuse_ends(chase, "destination's GPU");
  refuse(transfer_of(0, 1, static_cast<StreamExecutor>(200)), "executor 200");
}

TEST_F(CheckPlan, RefusesPageableMemoryWhereAGpuHasToReachIt) {
  for (const StreamExecutor executor : {StreamExecutor::kernel, StreamExecutor::flag, StreamExecutor::pointer_chase}) {
    Transfer transfer = transfer_of(kHost, 0, executor);
    transfer.source.pages = HostPages::pageable;
    refuse_ends(transfer, "pageable");
    EXPECT_TRUE(has(check(transfer).message(), "pages=pinned"));
    transfer.source.pages = HostPages::huge;
    accept(transfer);
    transfer.destination.pages = HostPages::pageable;  // of GPU memory, where it means nothing
    accept(transfer);
  }
  for (const StreamExecutor executor : {StreamExecutor::copy_engine, StreamExecutor::cpu}) {
    Transfer transfer = transfer_of(0, kHost, executor);
    transfer.destination.pages = HostPages::pageable;
    accept(transfer);
  }
}

TEST_F(CheckPlan, KnowsWhatLatenciesNeed) {
  Transfer flag = transfer_of(kHost, 0, StreamExecutor::flag);
  flag.bytes = 0;
  accept(flag);
  flag.is_background = true;
  EXPECT_TRUE(has(check_plan(plan_of({flag, transfer_of(0, kHost)}), 2).message(), "background"));
  Transfer chase = transfer_of(kHost, 0, StreamExecutor::pointer_chase);
  chase.bytes = 4095;
  refuse(chase, "4095 bytes");
  chase.bytes = 4096;
  accept(chase);
}

TEST(WorkingDevice, IsTheOnlyGpu) {
  for (const StreamSide side : {StreamSide::automatic, StreamSide::source, StreamSide::destination}) {
    for (const auto executor : {StreamExecutor::copy_engine, StreamExecutor::kernel, StreamExecutor::cpu}) {
      Transfer transfer = transfer_of(kHost, 3, executor);
      transfer.side = side;
      EXPECT_EQ(working_device(transfer), 3);
      EXPECT_EQ(nearest_device(transfer), 3);
      std::swap(transfer.source, transfer.destination);
      EXPECT_EQ(working_device(transfer), 3);
      EXPECT_EQ(nearest_device(transfer), 3);
    }
  }
  EXPECT_EQ(working_device(transfer_of(kHost, kHost, StreamExecutor::cpu)), -1);
  EXPECT_EQ(nearest_device(transfer_of(kHost, kHost, StreamExecutor::cpu)), -1);
}

TEST(WorkingDevice, BetweenGpusIsTheSideThatWasAsked) {
  Transfer transfer = transfer_of(1, 2);
  EXPECT_EQ(working_device(transfer), 2);
  transfer.side = StreamSide::source;
  EXPECT_EQ(working_device(transfer), 1);
  transfer.executor = StreamExecutor::kernel;
  EXPECT_EQ(working_device(transfer), 1);
  transfer.side = StreamSide::automatic;
  EXPECT_EQ(working_device(transfer), 2);
  transfer.side = StreamSide::destination;
  EXPECT_EQ(working_device(transfer), 2);
  EXPECT_EQ(working_device(transfer_of(1, 2, StreamExecutor::pointer_chase)), 2);
}

TEST(Names, OfExecutors) {
  EXPECT_EQ(name_of(StreamExecutor::copy_engine), "ce");
  EXPECT_EQ(name_of(StreamExecutor::kernel), "sm");
  EXPECT_EQ(name_of(StreamExecutor::cpu), "cpu");
  EXPECT_EQ(name_of(StreamExecutor::flag), "flag");
  EXPECT_EQ(name_of(StreamExecutor::pointer_chase), "chase");
  EXPECT_TRUE(moves_data(StreamExecutor::copy_engine));
  EXPECT_TRUE(moves_data(StreamExecutor::kernel));
  EXPECT_TRUE(moves_data(StreamExecutor::cpu));
  EXPECT_FALSE(moves_data(StreamExecutor::flag));
  EXPECT_FALSE(moves_data(StreamExecutor::pointer_chase));
}

TEST(ToString, WritesEndsExecutorSizeAndLength) {
  Transfer transfer = transfer_of(0, kHost);
  EXPECT_EQ(to_string(transfer), "gpu0->host ce bytes=1G iterations=100");
  transfer.side = StreamSide::source;
  transfer.destination.numa_node = 0;
  EXPECT_EQ(to_string(transfer), "gpu0->host:0 ce-push bytes=1G iterations=100");
  EXPECT_EQ(describe_transfer(3, transfer), "transfer 3 (gpu0->host:0 ce-push bytes=1G)");
}

TEST(ToString, WritesWhatIsNotDefault) {
  Transfer transfer = transfer_of(kHost, 1, StreamExecutor::kernel);
  transfer.source = {kHost, HostPages::huge, StreamPlace::kAnyNode};
  transfer.worker_count = 32;
  transfer.bytes = 1536;
  transfer.iterations = 0;
  transfer.seconds = 2.5;
  transfer.delay_seconds = 0.1;
  transfer.group = "up";
  transfer.is_background = transfer.is_latency = transfer.may_stage = true;
  EXPECT_EQ(to_string(transfer),
            "host:any->gpu1 sm:32 bytes=1536 seconds=2.5 delay=0.1 pages=huge group=up background latency stage");
  transfer = transfer_of(kHost, kHost, StreamExecutor::cpu);
  transfer.bytes = 3 << 20;
  transfer.destination.pages = HostPages::write_combined;
  EXPECT_EQ(to_string(transfer), "host->host cpu bytes=3M iterations=100 pages=pinned,wc");
}

TEST(ToString, LeavesAwayWhatIsNotUsed) {
  Transfer transfer = transfer_of(kHost, 0);
  transfer.is_background = true;
  EXPECT_EQ(to_string(transfer), "host->gpu0 ce bytes=1G background");
  transfer = transfer_of(kHost, 0, StreamExecutor::flag);
  EXPECT_EQ(to_string(transfer), "host->gpu0 flag iterations=100");
  EXPECT_EQ(describe_transfer(0, transfer), "transfer 0 (host->gpu0 flag)");
}

TEST(QuotedWord, IsPrintableAndShort) {
  EXPECT_EQ(quoted_word("gpu0"), "\"gpu0\"");
  EXPECT_EQ(quoted_word("\x1b[2J\n\xff"), "\"?[2J??\"");
  EXPECT_EQ(quoted_word(std::string(1000, 'x')), "\"" + std::string(48, 'x') + "...\"");
}

}  // namespace
}  // namespace gigabar
