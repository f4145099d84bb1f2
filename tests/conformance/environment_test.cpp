// SPDX-License-Identifier: Apache-2.0
// Joining and leaving: what launchers leave in the environment, ranks in any order of start, options that are wrong, settings.
#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <thread>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

// --- The environment of a launcher ----------------------------------------------------------------------------------------------

// Half of it: the word names the variable that has to be named.
BARE_RANK_BODY(open_with_half_an_environment) {
  FabricOptions options = me.options();
  options.connect_timeout = Timeout::of(std::chrono::seconds(3));
  const auto fabric = Fabric::open(options);
  ASSERT_FALSE(fabric.is_ok());
  // A file that is named and is not there may also be called unavailable.
  const bool is_file = me.setup().word == "GIGABAR_JOB_KEY_FILE";
  EXPECT_TRUE(fails(fabric, is_file ? fabric.status() : Status::invalid_argument, me.setup().word));
}

struct Half {
  const char* name;                 // of the test
  const char* variable;             // that is wrong
  const char* value;                // null: unset
  const char* named;                // what the error has to name
  const char* more_name = nullptr;  // a second one
  const char* more_value = nullptr;
};
// GoogleTest prints parameters of failed tests.
void PrintTo(const Half& half, std::ostream* out) { *out << half.name; }

std::string half_name(const testing::TestParamInfo<Half>& info) { return info.param.name; }

class FabricEnvironment : public testing::TestWithParam<Half> {};
TEST_P(FabricEnvironment, HalfOfItIsRefused) {
  RankSetup setup;
  setup.rank_count = 1;
  setup.word = GetParam().named;
  RankJob job("open_with_half_an_environment", setup, std::chrono::seconds(20));
  job.set_environment(0, "WORLD_SIZE", "2");
  job.set_environment(0, GetParam().variable, GetParam().value);
  if (GetParam().more_name != nullptr) job.set_environment(0, GetParam().more_name, GetParam().more_value);
  job.start_all();
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(
    Variables, FabricEnvironment,
    testing::Values(
        Half{"no_rank", "RANK", nullptr, "RANK"}, Half{"no_world_size", "WORLD_SIZE", nullptr, "WORLD_SIZE"},
        Half{"no_master_address", "MASTER_ADDR", nullptr, "MASTER_ADDR"},
        Half{"no_master_port", "MASTER_PORT", nullptr, "MASTER_PORT"}, Half{"rank_is_text", "RANK", "one", "RANK"},
        Half{"rank_is_empty", "RANK", "", "RANK"}, Half{"rank_is_negative", "RANK", "-1", "RANK"},
        Half{"rank_is_too_large", "RANK", "2", "RANK"}, Half{"rank_overflows", "RANK", "18446744073709551617", "RANK"},
        Half{"world_of_none", "WORLD_SIZE", "0", "WORLD_SIZE"}, Half{"world_is_text", "WORLD_SIZE", "2x", "WORLD_SIZE"},
        Half{"port_is_zero", "MASTER_PORT", "0", "MASTER_PORT"}, Half{"port_is_too_large", "MASTER_PORT", "65536", "MASTER_PORT"},
        Half{"port_is_text", "MASTER_PORT", "http", "MASTER_PORT"}, Half{"local_rank_is_text", "LOCAL_RANK", "x", "LOCAL_RANK"},
        Half{"key_is_not_hexadecimal", "GIGABAR_JOB_KEY", "this is not hexadecimal", "GIGABAR_JOB_KEY"},
        Half{"key_is_odd", "GIGABAR_JOB_KEY", "00112233445566778899aabbccddeeff0", "GIGABAR_JOB_KEY"},
        Half{"key_is_short", "GIGABAR_JOB_KEY", "0011223344", "GIGABAR_JOB_KEY"},
        Half{"no_key_file", "GIGABAR_JOB_KEY", nullptr, "GIGABAR_JOB_KEY_FILE", "GIGABAR_JOB_KEY_FILE", "/nowhere/key"}),
    half_name);

// Without a launcher: a job of one rank.
BARE_RANK_BODY(open_alone) {
  auto fabric = Fabric::open({});
  ASSERT_TRUE(is_ok(fabric));
  EXPECT_EQ(fabric->rank(), 0U);
  EXPECT_EQ(fabric->rank_count(), 1U);
  EXPECT_EQ(fabric->local_rank(), 0U);
  RankSegment target(*fabric, kTarget, MemoryChoice::host, 64);
  EXPECT_TRUE(is_ok(fabric->notify(0, kTarget, 4, 9)));
  EXPECT_TRUE(is_ok(fabric->notification_wait(kTarget, 4, 1, kPatience)));
  EXPECT_TRUE(is_ok(fabric->wait(0, kPatience)));
  EXPECT_TRUE(is_ok(fabric->barrier({}, kPatience)));
}
TEST(FabricLaunch, WithoutALauncher) {
  RankSetup setup;
  setup.rank_count = 1;
  RankJob job("open_alone", setup);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "GIGABAR_JOB_KEY", "GIGABAR_JOB_ID"}) {
    job.set_environment(0, name, nullptr);
  }
  job.start_all();
  job.finish();
}

// No key, no job id: loopback is enough for ranks of one host.
RANK_BODY(only_meet_at_a_barrier) { EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience))); }
TEST(FabricLaunch, WithoutAKey) {
  RankSetup setup;
  RankJob job("only_meet_at_a_barrier", setup);
  for (const Rank rank : {0U, 1U}) {
    for (const char* name : {"GIGABAR_JOB_KEY", "GIGABAR_JOB_ID", "LOCAL_RANK"}) job.set_environment(rank, name, nullptr);
  }
  job.start_all();
  job.finish();
}

// Options stand above the environment, and are judged as it is.
BARE_RANK_BODY(open_by_options) {
  const std::string port = std::getenv("OTHER_PORT");
  FabricOptions options = me.options();
  options.rank = 1 - me.rank();
  options.rank_count = 2;
  options.master_address = "localhost";
  options.master_port = std::uint16_t(std::atoi(port.c_str()));
  options.job_key = "another key of at least sixteen bytes";
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  EXPECT_EQ(fabric->rank(), 1 - me.rank());
  EXPECT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}
TEST(FabricLaunch, OptionsStandAboveTheEnvironment) {
  const RankSetup setup;
  RankJob job("open_by_options", setup);
  for (const Rank rank : {0U, 1U}) {
    job.set_environment(rank, "OTHER_PORT", std::to_string(job.master_port()).c_str());
    job.set_environment(rank, "MASTER_PORT", "1");
  }
  job.start_all();
  job.finish();
}

BARE_RANK_BODY(open_with_wrong_options) {
  const auto refused = [&](std::string_view name, const auto& change) {
    FabricOptions options = me.options();
    options.connect_timeout = Timeout::of(std::chrono::seconds(3));
    change(options);
    const auto fabric = Fabric::open(options);
    EXPECT_FALSE(fabric.is_ok()) << name;
    if (fabric) return;
    EXPECT_TRUE(fabric.status() == Status::invalid_argument || fabric.status() == Status::out_of_range) << fabric.error().message();
    EXPECT_NE(fabric.error().message().find(name), std::string::npos) << fabric.error().message();
  };
  refused("rank", [](FabricOptions& options) {
    options.rank = 5;
    options.rank_count = 2;
  });
  refused("rank_count", [](FabricOptions& options) { options.rank_count = 0; });
  refused("job_key", [](FabricOptions& options) { options.job_key = "short"; });
  refused("require", [](FabricOptions& options) { options.policy = {.gdr = Preference::require, .bar = Preference::require}; });
  refused("device", [](FabricOptions& options) { options.device = 1000; });
  refused("rail_count", [](FabricOptions& options) { options.rail_count = 0; });
  refused("chunk", [](FabricOptions& options) { options.limits.chunk_bytes = 0; });
  refused("chunk", [](FabricOptions& options) { options.limits.chunk_count = 0; });
  refused("transport",
          [](FabricOptions& options) { options.transports = {TransportKind::local, TransportKind::local, TransportKind(9)}; });
}
TEST(FabricLaunch, WrongOptionsAreNamed) {
  RankSetup setup;
  setup.rank_count = 1;
  run_ranks("open_with_wrong_options", setup);
}

// --- Order of start and end -----------------------------------------------------------------------------------------------------

RANK_BODY(talk_to_everyone) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  for (Rank rank = 0; rank < me.rank_count(); ++rank) {
    const std::uint32_t greeting = me.rank();
    EXPECT_TRUE(is_ok(fabric.post_send(rank, me.rank(), &greeting, 0)));
  }
  for (Rank rank = 0; rank < me.rank_count(); ++rank) EXPECT_TRUE(is_ok(fabric.recv(rank, rank, nullptr, 0, kPatience)));
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience)));
}

class FabricStart : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricStart, InAnyOrder) {
  std::vector<Rank> order{0, 1, 2, 3};
  for (const unsigned rotation : {0U, 1U, 3U}) {
    std::vector<Rank> rotated = order;
    std::rotate(rotated.begin(), rotated.begin() + rotation, rotated.end());
    if (rotation == 3) std::reverse(rotated.begin(), rotated.end());
    RankJob job("talk_to_everyone", GetParam());
    for (const Rank rank : rotated) {
      job.start(rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    job.finish();
  }
}
TEST_P(FabricStart, AllAtOnce) { run_ranks("talk_to_everyone", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Transports, FabricStart, testing::ValuesIn(each_transport(4)), setup_name);

// A rank that has done its part may leave before the others begin to; what it posted has arrived.
void leave_one_after_the_other(RankProcess& me, Fabric& fabric) {
  RankMemory memory(MemoryChoice::host, 64 * me.rank_count());
  ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, memory.address(), memory.bytes())));
  const Rank last = me.rank_count() - 1;
  // Rank 0 keeps the directory, and may be the first to leave.
  if (me.rank() != last) {
    ASSERT_TRUE(is_ok(fabric.connect(last, kPatience)));
  }
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  if (me.rank() != last) {
    RankMemory data(MemoryChoice::host, 64);
    data.put_pattern(0, 64, me.rank(), 0);
    ASSERT_TRUE(is_ok(fabric.register_segment(kOrigin, data.address(), 64)));
    EXPECT_TRUE(is_ok(fabric.write_notify({kOrigin, 0}, {last, kTarget, 64 * me.rank()}, 64, me.rank(), 1)));
    EXPECT_TRUE(is_ok(fabric.close(kPatience))) << "it completes what was posted";
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (Rank rank = 0; rank + 1 < me.rank_count(); ++rank) {
    EXPECT_TRUE(is_ok(fabric.notification_wait(kTarget, rank, 1, kPatience))) << "from " << rank;
    EXPECT_TRUE(memory.holds_pattern(64 * rank, 64, rank, 0)) << "from " << rank;
  }
  EXPECT_TRUE(is_ok(fabric.close(kPatience)));
}

// --- What can be asked ----------------------------------------------------------------------------------------------------------

RANK_BODY(tell_settings_and_peers) {
  EXPECT_EQ(fabric.rank(), me.rank());
  EXPECT_EQ(fabric.rank_count(), me.rank_count());
  EXPECT_EQ(fabric.local_rank(), me.rank());
  ASSERT_TRUE(is_ok(fabric.connect((me.rank() + 1) % me.rank_count(), kPatience)));
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  const std::string key = std::getenv("GIGABAR_JOB_KEY");
  std::string raw;
  for (std::size_t i = 0; i < key.size(); i += 2) raw += char(std::stoi(key.substr(i, 2), nullptr, 16));
  const auto settings = fabric.settings();
  EXPECT_FALSE(settings.empty());
  for (const Setting& setting : settings) {
    EXPECT_FALSE(setting.name.empty());
    EXPECT_FALSE(setting.source.empty()) << setting.name;
    for (const std::string& secret : {key, raw}) {
      EXPECT_EQ(setting.value.find(secret), std::string::npos) << setting.name << " shows the key";
    }
  }
  for (const PeerState& peer : fabric.peers()) {
    EXPECT_LT(peer.rank, me.rank_count());
    EXPECT_FALSE(peer.is_broken) << peer.why;
    if (peer.rank == me.rank()) continue;
    EXPECT_TRUE(peer.is_connected);
    EXPECT_EQ(peer.transport, me.setup().transport);
    EXPECT_FALSE(peer.rails.empty());
    // Sockets' buffers are UCX's and the kernel's; the others have rings or message buffers for each link.
    EXPECT_GT(peer.memory_bytes, is_by_sockets(me.setup().transport) ? 0U : 65536U);
  }
  if (me.rank_count() > 1) {
    EXPECT_FALSE(fabric.peers().empty());
    EXPECT_TRUE(fails(fabric.forget((me.rank() + 1) % me.rank_count()), Status::busy)) << "the connection stands";
  }
  EXPECT_EQ(fabric.statistics().refused_strangers, 0U);
}

// A variable of the environment stands in for a member that is not set; who set a value is told.
RANK_BODY(tell_who_set_a_value) {
  const auto settings = fabric.settings();
  const auto found = std::ranges::find_if(settings, [](const Setting& setting) { return setting.source == "GIGABAR_GDR_LIMIT"; });
  ASSERT_NE(found, settings.end());
  EXPECT_NE(found->value.find("12345"), std::string::npos) << found->name << " = " << found->value;
  EXPECT_TRUE(std::ranges::any_of(settings, [](const Setting& setting) { return setting.source == "default"; }));
  EXPECT_TRUE(std::ranges::any_of(settings, [](const Setting& setting) { return setting.source == "option"; })) << "the transports";
}
TEST(FabricLaunch, SettingsTellWhoSetThem) {
  const RankSetup setup;
  RankJob job("tell_who_set_a_value", setup);
  job.set_environment(0, "GIGABAR_GDR_LIMIT", "12345");
  job.set_environment(1, "GIGABAR_GDR_LIMIT", "12345");
  job.start_all();
  job.finish();
}

class FabricJob : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricJob, TellsSettingsAndPeers) { run_ranks("tell_settings_and_peers", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricJob, testing::ValuesIn(rank_setups()), setup_name);

// Without the harness's meeting before close().
BARE_RANK_BODY(leave_in_order) {
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  leave_one_after_the_other(me, *fabric);
}
class FabricEnd : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricEnd, CompletesWhatWasPosted) { run_ranks("leave_in_order", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Transports, FabricEnd, testing::ValuesIn(each_transport(3)), setup_name);

// Opened and closed many times in one process: nothing stays.
BARE_RANK_BODY(open_many_times) {
  std::size_t descriptors = 0;
  for (int round = 0; round < 20; ++round) {
    auto fabric = Fabric::open(me.options());
    ASSERT_TRUE(is_ok(fabric)) << "round " << round;
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience))) << "round " << round;
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(is_ok(fabric->close(kPatience))) << "round " << round;
    ASSERT_TRUE(me.meet());
    if (round == 4) descriptors = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), descriptors + 1);
}
class FabricAgain : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricAgain, OpensAndClosesManyTimes) { run_ranks("open_many_times", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Transports, FabricAgain, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
