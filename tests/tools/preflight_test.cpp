// SPDX-License-Identifier: Apache-2.0
// What `gigabar preflight` makes of what it measured: faults of paths, each planted alone, and healthy nodes without an alarm.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "preflight/preflight.hpp"
#include "preflight_node.hpp"
#include "support/pair_rounds.hpp"

namespace gigabar::tool::preflight {
namespace {

using test::Node;

constexpr int kHost = StreamPlace::kHost;

std::string gpu(int index) { return "GPU " + Node::address_of(index); }

void require(Node& node, const std::string& text) {
  auto requirements = parse_requirements(text);
  ASSERT_TRUE(requirements) << requirements.message();
  node.criteria.requirements = std::move(*requirements);
}

void expect_line(const Judgement& judgement, State state, const std::vector<std::string>& parts) {
  EXPECT_EQ(judgement.state, state) << judgement.line;
  for (const std::string& part : parts)
    EXPECT_NE(judgement.line.find(part), std::string::npos) << part << " is not in " << judgement.line;
}

// ---- rounds of pairs

TEST(PairRounds, EveryPairMeetsOnceAndNobodyTwiceInARound) {
  for (int count = 0; count < 70; ++count) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < round_count_of(count); ++round) {
      const Pairing pairs = round_of_pairs(count, round);
      std::set<int> busy;
      EXPECT_EQ(static_cast<int>(pairs.size()), count / 2);
      for (const auto& [one, other] : pairs) {
        EXPECT_LT(one, other);
        EXPECT_TRUE(0 <= one && other < count);
        EXPECT_TRUE(busy.insert(one).second && busy.insert(other).second);
        EXPECT_TRUE(met.insert({one, other}).second) << one << " and " << other << " of " << count;
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(count * std::max(count - 1, 0) / 2));
  }
  EXPECT_EQ(round_count_of(2000), 1999);
}

// ---- healthy nodes

TEST(PreflightJudgement, ThousandHealthyRunsWithoutAnAlarm) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Node node(1 + static_cast<int>(seed % 8), seed);
    node.shared_uplink = seed % 3 == 0 ? 0.45 : 1;  // two GPUs below one switch share its link to the CPU
    node.are_links_known = seed % 5 != 0;
    const Judgement judgement = node.judge();
    ASSERT_EQ(judgement.state, State::fit) << seed << ": " << judgement.line;
    ASSERT_TRUE(judgement.line.starts_with("fit: "));
  }
}

TEST(PreflightJudgement, WhatCouldNotBeReadDoesNotDecideWhereBytesArrived) {
  Node node(2);
  node.find("pci.acs", gpu(0), Verdict::unknown, "the configuration space cannot be read");
  expect_line(node.judge(), State::fit, {"1 could not be read"});
  node.is_strict = true;
  expect_line(node.judge(), State::unknown, {gpu(0), "pci.acs"});
  node.is_strict = false;
  require(node, "pci.acs");
  expect_line(node.judge(), State::unknown, {gpu(0), "pci.acs"});
}

TEST(PreflightJudgement, ProbesThatCouldNotBeMadeAndChecksWithoutTimeDecide) {
  Node node(2);
  node.find("probe.dmabuf", gpu(1), Verdict::unknown, "no memory is left");
  expect_line(node.judge(), State::unknown, {gpu(1), "probe.dmabuf"});
  Node late(2);
  late.find("pci.acs", "", Verdict::unknown, "the time for the examination was over before this check");
  expect_line(late.judge(), State::unknown, {"pci.acs", "the time"});
  Node blind(2);
  blind.find(std::string(kNothing), "", Verdict::unknown, "nothing could be examined: hwloc died");
  expect_line(blind.judge(), State::unknown, {"preflight: nothing could be examined"});
  Node many(2);
  many.find("probe.loop", gpu(1) + " and mlx5_0", Verdict::unknown, "the time for all transfers had passed");
  expect_line(many.judge(), State::fit, {});
}

TEST(PreflightJudgement, IgnoredChecksDoNotCount) {
  Node node(2);
  node.find("lim.memlock", "", Verdict::fail);
  expect_line(node.judge(), State::unfit, {"lim.memlock", "a remedy"});
  node.ignored = {"lim"};
  expect_line(node.judge(), State::fit, {});
  require(node, "lim.memlock");
  expect_line(node.judge(), State::unfit, {"lim.memlock"});
}

// ---- planted faults of paths

TEST(PreflightFault, WrongBytesFromTheHost) {
  Node node(8);
  node.break_path(kHost, 3, Status::verification_failed);
  node.find("pci.acs", gpu(5), Verdict::fail);
  expect_line(node.judge(), State::unfit,
              {gpu(3) + ": host->gpu3: wrong bytes arrived", "byte 4096", "do not use this path", "1 more"});
}

TEST(PreflightFault, WrongBytesBetweenTwoGpusNameBoth) {
  Node node(8);
  node.break_path(2, 6, Status::verification_failed);
  expect_line(node.judge(), State::unfit, {gpu(2) + " and " + gpu(6), "gpu2->gpu6"});
}

TEST(PreflightFault, WrongBytesOnEveryPathOfOneGpuNameThatGpu) {
  for (int bad = 0; bad < 8; ++bad) {
    Node node(8);
    for (int other = 0; other < 8; ++other) {
      if (other == bad) continue;
      node.break_path(other, bad, Status::verification_failed);
      node.break_path(bad, other, Status::verification_failed);
    }
    expect_line(node.judge(), State::unfit, {"unfit: " + gpu(bad) + ": gpu", "13 more"});
  }
}

TEST(PreflightFault, WrongBytesAreNotExcusedByOtherWork) {
  Node node(2);
  node.break_path(0, 1, Status::verification_failed);
  node.loads[{0, 1}] = "30.0 GB/s cross the NVLinks of it";
  expect_line(node.judge(), State::unfit, {"wrong bytes"});
}

TEST(PreflightFault, WrongBytesBesideOthersStayAFault) {
  // The bytes are wrong while others run, and right alone: whoever measures alone only sees nothing.
  Node node(2);
  node.break_path(kHost, 1, Status::verification_failed);
  node.judge();
  EXPECT_EQ(node.run_count, 4) << "it was given a second chance";
}

TEST(PreflightFault, GpuThatDiesUnderTheTransfer) {
  Node node(4);
  node.break_path(2, kHost, Status::device_error);
  expect_line(node.judge(), State::unfit, {gpu(2), "gpu2->host", "planted device_error", "Xid"});
}

TEST(PreflightFault, TransferThatHangs) {
  Node node(4);
  node.break_path(1, 3, Status::timed_out);
  expect_line(node.judge(), State::unfit, {gpu(1) + " and " + gpu(3), "timed_out"});
}

TEST(PreflightFault, MemoryThatAnotherJobHoldsIsUnknown) {
  Node node(4);
  node.break_path(kHost, 1, Status::out_of_memory);
  const Judgement judgement = node.judge();
  expect_line(judgement, State::unknown, {gpu(1), "host->gpu1", "out_of_memory", "free the GPU's memory"});
  const auto unknown =
      std::count_if(judgement.items.begin(), judgement.items.end(), [](const Item& item) { return item.state != State::fit; });
  EXPECT_EQ(unknown, 1) << "the other paths of the round were measured alone";
}

TEST(PreflightFault, NoPeerAccessIsAFaultOnlyWhereItIsRequired) {
  Node node(2);
  node.break_path(0, 1, Status::not_supported);
  node.break_path(1, 0, Status::not_supported);
  expect_line(node.judge(), State::fit, {});
  require(node, "gpu->gpu>=0.5");
  expect_line(node.judge(), State::unfit, {gpu(0) + " and " + gpu(1), "not_supported"});
}

TEST(PreflightFault, LinkAtHalfItsRate) {
  for (int bad = 0; bad < 8; ++bad) {
    for (const bool is_to_host : {false, true}) {
      Node node(8, static_cast<std::uint64_t>(bad));
      node.slow_down(is_to_host ? bad : kHost, is_to_host ? kHost : bad, 0.5);
      expect_line(node.judge(), State::unfit,
                  {gpu(bad) + ": ", is_to_host ? "->host" : "host->", "% of PCIe 5.0 x16", "44.1 are expected"});
    }
  }
}

TEST(PreflightFault, TheCauseOfASlowLinkIsNamedWithItsRemedy) {
  Node node(4);
  node.slow_down(kHost, 2, 0.5);
  node.find("probe.link", gpu(1), Verdict::warn, "another GPU's");
  node.find("pci.link", gpu(2), Verdict::warn, "its link runs on 8 of 16 lanes", "reseat the card");
  expect_line(node.judge(), State::unfit, {gpu(2), "pci.link: its link runs on 8 of 16 lanes; reseat the card"});
}

TEST(PreflightFault, OneSlowNvLinkDirection) {
  Node node(8);
  node.slow_down(5, 0, 0.6);
  expect_line(node.judge(), State::unfit, {gpu(5) + " and " + gpu(0), "gpu5->gpu0", "NVLink 18"});
}

TEST(PreflightFault, GpuWhoseNvLinksAreAllSlow) {
  Node node(8);
  for (int other = 0; other < 7; ++other) {
    node.slow_down(7, other, 0.5);
    node.slow_down(other, 7, 0.5);
  }
  expect_line(node.judge(), State::unfit, {"unfit: " + gpu(7) + ": gpu"});
}

TEST(PreflightFault, LoadedLinkIsUnknownWithTheReason) {
  Node node(4);
  node.slow_down(kHost, 2, 0.5);
  node.loads[{kHost, 2}] = "23.1 GB/s cross the PCIe link of " + gpu(2) + " (process 4711 'train')";
  expect_line(node.judge(), State::unknown, {gpu(2), "other work uses the path", "process 4711 'train'", "run this again"});
}

TEST(PreflightFault, LoadOfAPathThatIsFastDoesNotMatter) {
  Node node(2);
  node.loads[{kHost, 1}] = "other work";
  expect_line(node.judge(), State::fit, {});
}

TEST(PreflightFault, RatesThatTheJobRequires) {
  Node node(2);
  node.slow_down(kHost, 1, 0.85);  // healthy by default
  expect_line(node.judge(), State::fit, {});
  require(node, "host->gpu>=0.78");
  expect_line(node.judge(), State::unfit, {gpu(1), "host->gpu1", "'host->gpu>=0.78' is required"});
  require(node, "host->gpu >= 60 GB/s");
  expect_line(node.judge(), State::unfit, {"60.0 are expected"});
  require(node, "host->gpu>=0.1");  // laxer than the default
  node.slow_down(kHost, 1, 0.3);
  expect_line(node.judge(), State::fit, {});
}

TEST(PreflightFault, ShareOfAnUnknownLinkIsUnknown) {
  Node node(2);
  node.are_links_known = false;
  require(node, "gpu->host>=0.5");
  expect_line(node.judge(), State::unknown, {"its link is not known: no file tells it", "GB/s"});
  require(node, "gpu->host>=40GB/s");
  expect_line(node.judge(), State::fit, {});
}

TEST(PreflightFault, SlowerThanTheBaseline) {
  Node node(2);
  node.criteria.baseline.emplace();
  for (const char* name : {"host->gpu0", "host->gpu1", "gpu0->host", "gpu1->host"})
    node.criteria.baseline->figures[std::string(name) + " alone"] = {"GB/s", 53, 52, 54, 3};
  expect_line(node.judge(), State::fit, {});
  node.slow_down(1, kHost, 0.75);  // some 40 GB/s, of which the link alone would not complain before 44.1
  node.are_links_known = false;
  expect_line(node.judge(), State::unfit, {gpu(1), "gpu1->host", "the baseline has 53.0 GB/s, with a noise of"});
  Path flapping;
  flapping.name = "gpu1->host";
  flapping.kind = "gpu->host";
  flapping.life_gb_per_s = {30, 10, 50, {10, 50}};
  EXPECT_GT(bound_of(flapping, node.criteria).gb_per_s, 47) << "its own scatter excuses nothing";
  node.criteria.baseline->figures["gpu1->host alone"].pass_count = 1;
  expect_line(node.judge(), State::fit, {});  // it does not know its noise
}

TEST(PreflightFault, PathsWithoutTimeAreUnknown) {
  Node node(4);
  node.plan_cost = 600;
  const Judgement judgement = node.judge();
  expect_line(judgement, State::unknown, {"not measured: the time was over", "--budget"});
  const auto fit = std::count_if(judgement.items.begin(), judgement.items.end(),
                                 [](const Item& item) { return item.path != nullptr && item.state == State::fit; });
  EXPECT_EQ(fit, 8) << "two rounds of four";
}

TEST(PreflightFault, SlowBesideOthersIsMeasuredAlone) {
  Node node(4);
  node.shared_uplink = 0.3;
  expect_line(node.judge(), State::fit, {"verified bytes on 20 paths"});
  EXPECT_EQ(node.run_count, 2 + 6 + 8) << "rounds, and eight paths alone";
}

TEST(PreflightFault, MissingGpu) {
  Node node(7);
  require(node, "gpus>=8");
  expect_line(node.judge(), State::unfit, {"gpus>=8: 7 GPUs where 8 are required"});
}

TEST(PreflightFault, NvLinkDown) {
  Node node(8);
  node.examination.topology.gpus[5].nvlinks_active = 17;
  require(node, "nvlink>=18");
  expect_line(node.judge(), State::unfit, {gpu(5) + ": nvlink>=18: 17 of 18 NVLinks are active"});
}

TEST(PreflightFault, PathThatIsNotAvailable) {
  Node node(1);
  node.available = {
      {"gdr.dmabuf", "", {AvailabilityCode::not_supported, "the kernel has no P2P", "a newer kernel", {}}, ""},
      {"gdr.peermem", "", {AvailabilityCode::no_device, "nvidia-peermem is not loaded", "modprobe nvidia-peermem", {}}, ""}};
  require(node, "gdr");
  expect_line(node.judge(), State::unfit, {"gdr: gdr.peermem: nvidia-peermem is not loaded; modprobe nvidia-peermem"});
  node.available[0].availability.code = AvailabilityCode::driver_unknown;
  expect_line(node.judge(), State::unknown, {"gdr.dmabuf"});
  node.available[1].availability.code = AvailabilityCode::ok;
  expect_line(node.judge(), State::fit, {});
}

TEST(PreflightRequirement, NamesOfPathsAreThoseThatThereAre) {
  std::vector<std::string> names;
  for (const PathReport& path : availability(Machine::here())) names.push_back(path.path);
  EXPECT_TRUE(std::equal(names.begin(), names.end(), available_names().begin(), available_names().end()));
}

// ---- what else uses a path

TEST(PreflightLoad, BusyShareOfTheCpus) {
  EXPECT_DOUBLE_EQ(busy_share("cpu 100 0 100 800 0 0 0 0 0 0", "cpu 150 0 150 900 0 0 0 0 0 0"), 0.5);
  EXPECT_DOUBLE_EQ(busy_share("cpu 100 0 100 800 0 0 0 0", "cpu 100 0 100 800 100 0 0 0"), 0);
  EXPECT_DOUBLE_EQ(busy_share("cpu 0 0 0 0 0 0 0 0", "cpu 0 0 0 0 0 0 0 100"), 1) << "stolen by another machine";
  for (const char* nothing : {"", "cpu", "cpu x y", "cpu 1 2 3"}) EXPECT_DOUBLE_EQ(busy_share(nothing, nothing), 0);
}

// ---- the watchdog

TEST(PreflightWatchdog, CallsForWhatHangs) {
  std::atomic<bool> was_called = false;
  std::string hung;
  {
    Watchdog watchdog(0.05, [&](const std::string& step) {
      hung = step;
      was_called = true;
    });
    watchdog.begin("the check probe.mapping");
    while (!was_called) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(hung, "the check probe.mapping");
}

TEST(PreflightWatchdog, IsQuietWhereNothingHangs) {
  const auto begin = std::chrono::steady_clock::now();
  {
    Watchdog watchdog(1000, [](const std::string&) { ADD_FAILURE(); });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(100));
}

// ---- exit status

TEST(PreflightStatus, IsWhatEachProgramExpects) {
  EXPECT_EQ(exit_status_of(State::fit, Format::npd, false), 0);
  EXPECT_EQ(exit_status_of(State::unfit, Format::npd, false), 1);
  EXPECT_EQ(exit_status_of(State::unknown, Format::npd, false), 2);
  EXPECT_EQ(exit_status_of(State::unknown, Format::nhc, false), 0);
  EXPECT_EQ(exit_status_of(State::unknown, Format::nhc, true), 1);
  EXPECT_EQ(exit_status_of(State::unknown, Format::table, false), 3);
  for (const Format format : {Format::table, Format::json, Format::npd, Format::nhc, Format::prometheus}) {
    EXPECT_EQ(exit_status_of(State::fit, format, true), 0);
    EXPECT_EQ(exit_status_of(State::unfit, format, false), 1);
  }
}

}  // namespace
}  // namespace gigabar::tool::preflight
