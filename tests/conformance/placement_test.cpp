// SPDX-License-Identifier: Apache-2.0
// Where the fabric's threads run and its staging memory lies, as the kernel shows it.
#include <cstdlib>
#include <fstream>
#include <ostream>

#include "conformance/rank_segment.hpp"
#include "platform/cpu_set.hpp"
#include "platform/numa.hpp"
#include "support/own_threads.hpp"

namespace gigabar::test {
namespace {

std::string shown(const Fabric& fabric, std::string_view name) {
  for (const Setting& setting : fabric.settings()) {
    if (setting.name == name) return setting.value + " by " + setting.source;
  }
  return "nothing";
}

// The policies of the staging memory's mappings, as "prefer:0"; empty: there is none, or the kernel has no NUMA.
std::vector<std::string> staging_policies() {
  std::vector<std::string> policies;
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("gigabar-staging") == std::string::npos) continue;
    const std::size_t begin = line.find(' ') + 1;
    policies.push_back(line.substr(begin, line.find(' ', begin) - begin));
  }
  return policies;
}

// A write that both ends stage, so that every thread has worked and all memory is there.
void write_staged(RankProcess& me, Fabric& fabric) {
  constexpr std::size_t kBytes = 1 << 20;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kBytes), target(fabric, kTarget, me.setup().target, kBytes);
  ASSERT_TRUE(me.meet());
  const Rank peer = 1 - me.rank();
  const auto posted = fabric.write({kOrigin, 0}, {peer, kTarget, 0}, kBytes);
  ASSERT_TRUE(is_ok(posted));
  EXPECT_TRUE(is_ok(fabric.flush(peer, kPatience)));
  EXPECT_EQ(fabric.report(*posted)->path, TransferPath::staged);
  ASSERT_TRUE(me.meet());
}

// The word: what the CPUs of the fabric's threads have to be; "any": those of the program.
BARE_RANK_BODY(look_at_threads_and_staging) {
  const std::string main_before = cpus_of_main_thread();
  const std::string word = me.setup().word;
  const bool is_bound = word != "any";
  FabricOptions options = me.options();
  options.stand_in_registration = false;
  options.policy.staged = Preference::require;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  const std::string by = std::string(" by ") + (std::getenv("GIGABAR_CPUS") == nullptr ? "default" : "GIGABAR_CPUS");
  const std::vector<int> nodes = numa_nodes();
  const std::string node = nodes.empty() ? "" : " (node 0)";
  if (nodes.size() < 2) {
    EXPECT_EQ(shown(*fabric, "cpus"), (is_bound ? word + node : word) + by);
  }
  EXPECT_EQ(cpu_list_text(fabric->cpus()), is_bound ? word : "");
  write_staged(me, *fabric);
  std::vector<OwnThread> threads = threads_named("gigabar-fabric");
  ASSERT_EQ(threads.size(), 1U);
  if (me.setup().transport == TransportKind::tcp) {
    const auto lanes = threads_named("gigabar-lane", 2);
    EXPECT_EQ(lanes.size(), 2U);
    threads.insert(threads.end(), lanes.begin(), lanes.end());
  }
  if (me.setup().transport == TransportKind::ucx) {
    const auto own_of_ucx = threads_named("async");
    EXPECT_EQ(own_of_ucx.size(), 1U);
    threads.insert(threads.end(), own_of_ucx.begin(), own_of_ucx.end());
  }
  for (const OwnThread& thread : threads) EXPECT_EQ(thread.cpus, is_bound ? word : main_before) << thread.name;
  EXPECT_EQ(cpus_of_main_thread(), main_before) << "the program's";
  EXPECT_GE(expect_signals_blocked_beside_main(), threads.size());
  if (nodes.size() == 1 && std::ifstream("/proc/self/numa_maps")) {
    const auto policies = staging_policies();
    EXPECT_GE(policies.size(), 2U) << "in and out";
    for (const std::string& policy : policies) EXPECT_EQ(policy, is_bound ? "prefer:0" : "default");
  }
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

class FabricPlacement : public testing::TestWithParam<RankSetup> {
 protected:
  static void run(RankSetup setup, const std::string& cpus) {
    setup.origin = setup.target = MemoryChoice::stand_in;
    setup.word = cpus;
    RankJob job("look_at_threads_and_staging", setup);
    for (const Rank rank : {0U, 1U}) {
      job.set_environment(rank, "GIGABAR_CPUS", cpus.c_str());
      job.set_environment(rank, "GIGABAR_TCP_CONNECTIONS", "2");
    }
    job.start_all();
    job.finish();
  }
};

TEST_P(FabricPlacement, OnTheCpusThatWereNamed) { run(GetParam(), std::to_string(usable_cpus().back())); }
TEST_P(FabricPlacement, AnyIsWhereTheProgramMayRun) { run(GetParam(), "any"); }
INSTANTIATE_TEST_SUITE_P(Transports, FabricPlacement, testing::ValuesIn(each_transport(2)), setup_name);

// Each rank has its own: it is no matter of both.
TEST_P(FabricPlacement, RanksMayDiffer) {
  RankSetup setup = GetParam();
  setup.origin = setup.target = MemoryChoice::stand_in;
  RankJob job("write_from_its_own_cpus", setup);
  job.set_environment(0, "GIGABAR_CPUS", std::to_string(usable_cpus().front()).c_str());
  job.set_environment(1, "GIGABAR_CPUS", std::to_string(usable_cpus().back()).c_str());
  job.start_all();
  job.finish();
}
BARE_RANK_BODY(write_from_its_own_cpus) {
  FabricOptions options = me.options();
  options.stand_in_registration = false;
  options.policy.staged = Preference::require;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  EXPECT_EQ(cpu_list_text(fabric->cpus()), std::getenv("GIGABAR_CPUS"));
  write_staged(me, *fabric);
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

BARE_RANK_BODY(open_on_wrong_cpus) {
  const auto fabric = Fabric::open(me.options());
  EXPECT_TRUE(fails(fabric, Status::invalid_argument, "GIGABAR_CPUS"));
  FabricOptions options = me.options();
  options.cpus = "0-";
  EXPECT_TRUE(fails(Fabric::open(options), Status::invalid_argument, "cpus: '0-'"));
  options.cpus = std::to_string(usable_cpus().front());
  EXPECT_TRUE(is_ok(Fabric::open(options))) << "the option stands above the variable";
}
TEST(FabricPlacementRefusal, NamesTheVariable) {
  RankSetup setup;
  setup.rank_count = 1;
  for (const char* wrong : {"60000", "0,", "nearby"}) {
    RankJob job("open_on_wrong_cpus", setup);
    job.set_environment(0, "GIGABAR_CPUS", wrong);
    job.start_all();
    job.finish();
  }
}

}  // namespace
}  // namespace gigabar::test
