// SPDX-License-Identifier: Apache-2.0
// Transfer streams on real GPUs: everything verified, and really at once.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/streams.hpp"
#include "gpu/gpu_fixture.hpp"
#include "memory/runtime.hpp"
#include "streams/cuda_session.hpp"

namespace gigabar::test {
namespace {

using Lines = std::initializer_list<std::string>;

class StreamsTest : public GpuTest {
 protected:
  StreamPlan plan_of(Lines lines, unsigned repeats = 5, std::size_t bytes = std::size_t{1} << 30,
                     std::uint64_t iterations = 10) const {
    StreamPlan plan;
    plan.repeats = repeats;
    Transfer defaults;
    defaults.bytes = bytes;
    defaults.iterations = iterations;
    for (const std::string& line : lines) {
      const auto transfers = parse_transfers(line, defaults, device_count_);
      EXPECT_TRUE(transfers) << transfers.error().message();
      if (transfers) plan.transfers.insert(plan.transfers.end(), transfers->begin(), transfers->end());
    }
    return plan;
  }

  // Runs, prints one line per transfer, and expects that everything arrived.
  static StreamReport run(const StreamPlan& plan) {
    auto report = run_streams(plan);
    EXPECT_TRUE(report) << report.error().message();
    if (!report) return {};
    for (const TransferReport& told : report->transfers) {
      EXPECT_FALSE(told.error) << told.error->message();
      EXPECT_TRUE(told.is_verified || told.life_gb_per_s.samples.empty()) << told.path;
      std::printf("    %-58s %8.2f GB/s life, %8.2f window | %s %.1f | %s\n", to_string(told.transfer).c_str(),
                  told.life_gb_per_s.median, told.window_gb_per_s.median, told.link.name.c_str(), told.link.gb_per_s,
                  told.host_placement.c_str());
      if (told.latency) std::printf("      p50 %.3f us, p99 %.3f us\n", told.latency->p50_us, told.latency->p99_us);
    }
    for (const StreamTotal& total : report->totals) {
      std::printf("    total '%s': %.2f GB/s, parts %.2f, overlap %.1f %%\n", total.group.c_str(), total.aggregate_gb_per_s.median,
                  total.sum_gb_per_s.median, total.overlap_percent.median);
    }
    for (const std::string& warning : report->warnings) std::printf("    warning: %s\n", warning.c_str());
    return std::move(report).value();
  }

  static double overlap(const StreamReport& report) { return report.totals.empty() ? 0 : report.totals[0].overlap_percent.median; }
  static double rate(const StreamReport& report, std::size_t index) {
    return index < report.transfers.size() ? report.transfers[index].life_gb_per_s.median : 0;
  }
};

TEST_F(StreamsTest, EveryExecutorDeliversEverySize) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{13}, std::size_t{4097}, (std::size_t{3} << 20) + 5}) {
    StreamPlan plan = plan_of({"gpu0->host", "host->gpu0", "gpu0->gpu0", "gpu0->host sm:4", "host->gpu0 sm", "host->gpu0 cpu:3",
                               "gpu0->host cpu:2", "host->gpu0 pages=pageable", "gpu0->host pages=pageable", "host->gpu0 pages=wc",
                               "gpu0->host pages=wc", "gpu0->host latency", "host->gpu0 sm latency"},
                              2, bytes, 20);
    if (device_count_ > 1) {
      const StreamPlan more =
          plan_of({"gpu0->gpu1", "gpu1->gpu0 ce-push", "gpu0->gpu1 sm-push", "gpu0->gpu1 sm-pull"}, 1, bytes, 20);
      plan.transfers.insert(plan.transfers.end(), more.transfers.begin(), more.transfers.end());
    }
    run(plan);
  }
}

TEST_F(StreamsTest, AFlippedBitIsFoundWhereItIs) {
  constexpr std::size_t kBytes = (std::size_t{64} << 20) + 3;
  const StreamPlan plan = plan_of({"host->gpu0"});
  const auto list = devices();
  ASSERT_TRUE(list);
  const auto session = open_cuda_session(*list, plan);
  ASSERT_TRUE(session) << session.error().message();
  DeviceCode& code = *session.value();
  const GiveUp never = [] { return false; };
  const auto memory = DeviceMemory::allocate(0, kBytes);
  ASSERT_TRUE(memory);
  const auto address = reinterpret_cast<std::uintptr_t>(memory->address());
  ASSERT_TRUE(code.fill(0, address, kBytes, 5, never));
  std::vector<std::byte> copy(kBytes);
  ASSERT_TRUE(engine_copy_from(0, copy.data(), address, kBytes));
  EXPECT_FALSE(check_pattern(copy.data(), kBytes, 5)) << "the GPU's pattern is the CPU's";
  ASSERT_TRUE(code.check(0, address, kBytes, 5, never));
  EXPECT_FALSE(code.check(0, address, kBytes, 5, never)->has_value());
  for (const std::size_t at : {std::size_t{0}, std::size_t{12345677}, kBytes - 1}) {
    const std::byte wrong = copy[at] ^ std::byte{0x10};
    ASSERT_TRUE(engine_copy_to(0, address + at, &wrong, 1));
    const auto found = code.check(0, address, kBytes, 5, never);
    ASSERT_TRUE(found);
    ASSERT_TRUE(found->has_value()) << at;
    EXPECT_EQ((*found)->offset_bytes, at / 8 * 8);
    EXPECT_EQ(((*found)->expected ^ (*found)->found) >> (at % 8 * 8), 0x10u);
    ASSERT_TRUE(engine_copy_to(0, address + at, &copy[at], 1));
  }
  ASSERT_TRUE(code.poison(0, address, kBytes, never));
  EXPECT_EQ((*code.check(0, address, kBytes, 5, never))->offset_bytes, 0u);
}

// Transfers that take turns overlap by nothing, those behind one gate by nearly all of the shorter one's time. How near, and how
// fast each is, are figures: bench/results has them.
constexpr double kAtOncePercent = 50;

TEST_F(StreamsTest, BothDirectionsOfOneGpuRunAtOnce) {
  EXPECT_GE(overlap(run(plan_of({"gpu0->host", "host->gpu0"}))), kAtOncePercent);
}

TEST_F(StreamsTest, EightStreamsOfSmallCopiesAreNotSerialised) {
  const StreamReport report = run(plan_of({"gpu0->host count=4", "host->gpu0 count=4"}, 5, 4096, 1000));
  EXPECT_GE(overlap(report), kAtOncePercent);
}

// Copies that are waited for before the gate opens are not held up by streams that wait behind it.
TEST_F(StreamsTest, MoreStreamsThanHardwareQueues) {
  for (const unsigned before : {9U, 10U, 11U, 12U}) {
    StreamPlan plan = plan_of({"gpu0->host count=" + std::to_string(before), "gpu0->host latency count=8",
                               "host->gpu0 sm latency count=4", "host->gpu0 count=12"},
                              2, 4097, 20);
    plan.timeout_seconds = 20;
    run(plan);
  }
}

TEST_F(StreamsTest, CpuThreadsBesideACopyEngine) {
  const StreamReport report = run(plan_of({"host->gpu0 cpu:4 bytes=64M iterations=100", "gpu0->host background bytes=1G"}));
  EXPECT_GT(rate(report, 0), 0);
}

TEST_F(StreamsTest, LatencyUnderLoad) {
  const StreamReport idle = run(plan_of({"host->gpu0 flag iterations=2000", "host->gpu0 chase bytes=2M iterations=20"}, 3));
  const StreamReport busy = run(plan_of({"host->gpu0 flag iterations=2000", "gpu0->host background", "host->gpu0 background"}, 3));
  ASSERT_TRUE(idle.transfers[0].latency && busy.transfers[0].latency && idle.transfers[1].latency);
  EXPECT_EQ(idle.transfers[0].latency->sample_count, busy.transfers[0].latency->sample_count);
  EXPECT_GT(idle.transfers[1].latency->p50_us, 0);
}

class TwoGpus : public StreamsTest {
 protected:
  void SetUp() override {
    StreamsTest::SetUp();
    if (!IsSkipped() && device_count_ < 2) GTEST_SKIP() << "one GPU";
  }
};

TEST_F(TwoGpus, ToTheHostAtOnce) { EXPECT_GE(overlap(run(plan_of({"gpu0->host", "gpu1->host"}))), kAtOncePercent); }

TEST_F(TwoGpus, NvlinkByCopyEnginesAndKernels) {
  for (const char* const way : {"ce-pull", "ce-push", "sm-push", "sm-pull"})
    EXPECT_GT(rate(run(plan_of({"gpu0->gpu1 " + std::string(way) + " iterations=30"})), 0), 0) << way;
  EXPECT_GE(overlap(run(plan_of({"gpu0->gpu1 iterations=30", "gpu1->gpu0 iterations=30"}))), kAtOncePercent);
}

TEST_F(TwoGpus, SixMixedTransfersAtOnce) {
  const StreamReport report = run(
      plan_of({"gpu0->host", "host->gpu0", "gpu1->host", "host->gpu1", "gpu0->gpu1 iterations=80", "gpu1->gpu0 iterations=80"}));
  EXPECT_GE(overlap(report), kAtOncePercent);
}

}  // namespace
}  // namespace gigabar::test
