// SPDX-License-Identifier: Apache-2.0
// Who a process is, by what its launcher left: find_job() of fabric/job/job.hpp.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/job/job.hpp"
#include "support/launched.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

using fabric::find_job;
using fabric::Launcher;
using test::Launched;
using test::Variable;

const std::string kKeyDigits(64, 'a');

FabricOptions options_of(Rank rank, Rank rank_count) {
  FabricOptions options;
  options.rank = rank;
  options.rank_count = rank_count;
  return options;
}

// The refusal names `object`; its whole message is given back.
std::string expect_refusal(const FabricOptions& options, const std::string& object, Status status = Status::invalid_argument) {
  const auto job = find_job(options);
  EXPECT_FALSE(job) << object;
  if (job) return {};
  EXPECT_EQ(job.status(), status) << job.error().message();
  EXPECT_EQ(job.error().record().object.substr(0, object.size()), object) << job.error().message();
  EXPECT_FALSE(job.error().record().remedy.empty()) << job.error().message();
  return job.error().message();
}

TEST(FindJob, WithoutALauncherThereIsOneRank) {
  const Launched nothing({});
  const auto job = find_job({});
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::none);
  EXPECT_EQ(job->rank, 0u);
  EXPECT_EQ(job->rank_count, 1u);
  EXPECT_FALSE(job->local_rank || job->key.is_set());
  EXPECT_FALSE(job->id.empty());
  EXPECT_NE(job->id, find_job({})->id) << "two jobs that run side by side";
}

TEST(FindJob, ReadsTheEnvironment) {
  const Launched launched({{"RANK", "3"},
                           {"WORLD_SIZE", "8"},
                           {"MASTER_ADDR", "node0"},
                           {"MASTER_PORT", "29500"},
                           {"LOCAL_RANK", "1"},
                           {"GIGABAR_JOB_KEY", kKeyDigits},
                           {"GIGABAR_JOB_ID", "blue"}});
  const auto job = find_job({});
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::environment);
  EXPECT_EQ(job->rank, 3u);
  EXPECT_EQ(job->rank_count, 8u);
  EXPECT_EQ(job->local_rank, 1u);
  EXPECT_EQ(job->id, "blue");
  EXPECT_EQ(job->key.bytes(), std::string(32, '\xaa'));
  EXPECT_EQ(job->master_address, "node0");
  EXPECT_EQ(job->master_port, 29500);
}

TEST(FindJob, RefusesHalfAnEnvironmentAndNamesWhatLacks) {
  const std::vector<std::pair<std::string, std::string>> whole = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  for (const auto& [missing, value] : whole) {
    const Launched launched({whole[0], whole[1], whole[2], whole[3]});
    const test::ScopedEnvironment without(missing.c_str(), nullptr);
    EXPECT_NE(expect_refusal({}, missing).find("is not"), std::string::npos);
  }
  for (const auto& only : whole) {
    const Launched launched({only});
    const std::string message = expect_refusal({}, only.first == "RANK" ? "WORLD_SIZE" : "RANK");
    EXPECT_NE(message.find(only.first + " is set"), std::string::npos) << message;
  }
}

TEST(FindJob, AnyPartOfTheEnvironmentNamesAllThatLacks) {
  const std::vector<std::pair<std::string, std::string>> whole = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  for (unsigned subset = 1; subset < 15; ++subset) {
    Launched launched({});
    for (unsigned i = 0; i < whole.size(); ++i) {
      if ((subset >> i & 1) != 0) launched.set(whole[i].first, whole[i].second);
    }
    const auto job = find_job({});
    ASSERT_FALSE(job) << subset;
    const ErrorRecord& record = job.error().record();
    for (unsigned i = 0; i < whole.size(); ++i) {
      const bool is_there = (subset >> i & 1) != 0;
      EXPECT_EQ(record.object.find(whole[i].first) == std::string::npos, is_there) << job.error().message();
      EXPECT_NE(record.cause.find(whole[i].first), std::string::npos) << job.error().message();
    }
  }
}

TEST(FindJob, RefusesMalformedNumbers) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"RANK", "-1"},
                                                                                    {"RANK", ""},
                                                                                    {"RANK", "0x1"},
                                                                                    {"RANK", " 1"},
                                                                                    {"RANK", "1 "},
                                                                                    {"RANK", "4294967296"},
                                                                                    {"WORLD_SIZE", "0"},
                                                                                    {"WORLD_SIZE", "two"},
                                                                                    {"WORLD_SIZE", "4294967297"},
                                                                                    {"MASTER_PORT", "0"},
                                                                                    {"MASTER_PORT", "65536"},
                                                                                    {"MASTER_PORT", "http"},
                                                                                    {"LOCAL_RANK", "2"},
                                                                                    {"LOCAL_RANK", "x"},
                                                                                    {"GIGABAR_MASTER_PORT", "0"}}) {
    const Launched launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {name, value}});
    EXPECT_NE(expect_refusal({}, name).find("'" + value + "'"), std::string::npos) << name << "=" << value;
  }
  const Launched launched({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  EXPECT_NE(expect_refusal({}, "RANK").find("not below WORLD_SIZE, 2"), std::string::npos);
}

TEST(FindJob, AJobOfOneRankNeedsNoMaster) {
  const Launched launched({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  const auto job = find_job({});
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::environment);
  EXPECT_EQ(job->rank_count, 1u);
}

TEST(FindJob, RefusesAMasterThatIsNoAddress) {
  for (const std::string& address : {std::string(), std::string(256, 'a')}) {
    const Launched launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address}, {"MASTER_PORT", "1"}});
    expect_refusal({}, "MASTER_ADDR");
  }
}

TEST(FindJob, TakesAnIpv6AddressWithAndWithoutBrackets) {
  const Launched launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}});
  std::set<std::string> ids;
  for (const auto& [written, address] : std::vector<std::pair<std::string, std::string>>{
           {"::1", "::1"}, {"[::1]", "::1"}, {"fe80::1%eth0", "fe80::1%eth0"}, {"[fe80::1%eth0]", "fe80::1%eth0"}}) {
    const test::ScopedEnvironment master("MASTER_ADDR", written.c_str());
    const auto job = find_job({});
    ASSERT_TRUE(job) << job.error().message();
    EXPECT_EQ(job->master_address, address);
    ids.insert(job->id);
    FabricOptions options = options_of(0, 2);
    options.master_address = written;
    EXPECT_EQ(find_job(options)->master_address, address);
  }
  EXPECT_EQ(ids.size(), 2u) << "ranks may write the same address in two ways";
  for (const char* wrong : {"[::1", "::1]", "[node0]", "[]", "[[::1]]", "[::1]:29500", "node[1-2]"}) {
    const test::ScopedEnvironment master("MASTER_ADDR", wrong);
    expect_refusal({}, "MASTER_ADDR");
  }
}

TEST(FindJob, OptionsComeBeforeTheEnvironment) {
  const Launched launched({{"RANK", "3"},
                           {"WORLD_SIZE", "8"},
                           {"MASTER_ADDR", "node0"},
                           {"MASTER_PORT", "29500"},
                           {"LOCAL_RANK", "3"},
                           {"GIGABAR_JOB_KEY", kKeyDigits}});
  FabricOptions options = options_of(1, 2);
  auto job = find_job(options);
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::options);
  EXPECT_EQ(job->rank, 1u);
  EXPECT_EQ(job->rank_count, 2u);
  EXPECT_FALSE(job->local_rank) << "LOCAL_RANK is of the other numbering";
  EXPECT_EQ(job->master_address, "node0");
  options.master_address = "10.0.0.1";
  options.master_port = 4000;
  options.job_key = "the options' own key";
  job = find_job(options);
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->master_address, "10.0.0.1");
  EXPECT_EQ(job->master_port, 4000);
  EXPECT_EQ(job->key.bytes(), "the options' own key");

  FabricOptions only_master;
  only_master.master_port = 4001;
  EXPECT_EQ(find_job(only_master)->master_port, 4001);
}

TEST(FindJob, RefusesHalfOfTheOptions) {
  const Launched nothing({});
  FabricOptions options;
  options.rank = 0;
  expect_refusal(options, "rank_count");
  options = {};
  options.rank_count = 2;
  expect_refusal(options, "rank");
  expect_refusal(options_of(2, 2), "rank");
  expect_refusal(options_of(0, 0), "rank_count");
  expect_refusal(options_of(0, kAnyRank), "rank_count");
  expect_refusal(options_of(0, 2), "MASTER_ADDR");
  options = options_of(0, 2);
  options.master_address = "h";
  expect_refusal(options, "MASTER_PORT");
  options.master_port = 0;
  expect_refusal(options, "master_port");
  EXPECT_EQ(find_job(options_of(0, 1))->rank_count, 1u);
}

TEST(FindJob, TorchrunsAgentKeepsThePort) {
  const Launched launched({{"RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "h"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RUN_ID", "run 7"}});
  EXPECT_EQ(find_job({})->master_port, 29501);
  EXPECT_EQ(find_job({})->id, "run 7");
  {
    const test::ScopedEnvironment own("GIGABAR_MASTER_PORT", "30000");
    EXPECT_EQ(find_job({})->master_port, 30000);
  }
  {
    const test::ScopedEnvironment last("MASTER_PORT", "65535");
    expect_refusal({}, "MASTER_PORT");
  }
  const test::ScopedEnvironment own_store("TORCHELASTIC_USE_AGENT_STORE", "False");
  EXPECT_EQ(find_job({})->master_port, 29500);
}

TEST(FindJob, TheIdIsTheSameAtEveryRankAndAnotherForEveryJob) {
  std::set<std::string> ids;
  for (const char* port : {"1000", "1001"}) {
    for (const char* rank : {"0", "1"}) {
      const Launched launched({{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", port}});
      ids.insert(find_job({})->id);
    }
  }
  EXPECT_EQ(ids.size(), 2u);
  const Launched none(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1000"}, {"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_TRUE(ids.contains(find_job({})->id)) << "torchrun's word for a job without a name";
  for (const std::string& id : {std::string(), std::string(257, 'x')}) {
    const test::ScopedEnvironment wrong("GIGABAR_JOB_ID", id.c_str());
    expect_refusal({}, "GIGABAR_JOB_ID");
  }
}

// --- The key ---------------------------------------------------------------------------------------------------------------------

TEST(JobKey, RefusesMalformedOnesAndNeverShowsThem) {
  for (const std::string& digits : {std::string(), std::string("deadbeefdeadbeef"), std::string(30, '7'), std::string(33, '7'),
                                    std::string(31, '7') + "g", "0x" + std::string(32, '7'), std::string(4096, '7')}) {
    const Launched launched({{"GIGABAR_JOB_KEY", digits}});
    const std::string message = expect_refusal({}, "GIGABAR_JOB_KEY");
    EXPECT_EQ(message.find("7777"), std::string::npos) << message;
    EXPECT_EQ(message.find("beef"), std::string::npos) << message;
  }
  const Launched nothing({});
  FabricOptions options;
  options.job_key = "fifteen bytes..";
  EXPECT_EQ(expect_refusal(options, "job_key").find("fifteen"), std::string::npos);
  options.job_key = "sixteen bytes...";
  EXPECT_TRUE(find_job(options)->key.is_set());
}

TEST(JobKey, IsReadFromAFileThatOnlyItsOwnerCanRead) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/key";
  folder.write("key", kKeyDigits + "\n");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const Launched launched({{"GIGABAR_JOB_KEY_FILE", path}});
  ASSERT_TRUE(find_job({})) << find_job({}).error().message();
  EXPECT_EQ(find_job({})->key.bytes(), std::string(32, '\xaa'));
  {
    const test::ScopedEnvironment direct("GIGABAR_JOB_KEY", std::string(64, 'b').c_str());
    EXPECT_EQ(find_job({})->key.bytes(), std::string(32, '\xbb'));
  }
  for (const mode_t mode : {0640U, 0604U, 0620U, 0601U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const std::string message = expect_refusal({}, "GIGABAR_JOB_KEY_FILE=" + path, Status::no_permission);
    EXPECT_NE(message.find("chmod 600"), std::string::npos) << message;
    EXPECT_EQ(message.find("aaaa"), std::string::npos) << message;
  }
}

TEST(JobKey, RefusesWhatIsNoKeyFile) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  folder.write("short", "abcd");
  folder.write("long", std::string(100'000, 'a'));
  folder.write("empty", "");
  for (const char* name : {"short", "long", "empty"}) ASSERT_EQ(::chmod((folder.path() + "/" + name).c_str(), 0600), 0);
  for (const char* name : {"short", "long", "empty", "pipe"}) {
    const Launched launched({{"GIGABAR_JOB_KEY_FILE", folder.path() + "/" + name}});
    expect_refusal({}, "GIGABAR_JOB_KEY_FILE");
  }
  const Launched missing({{"GIGABAR_JOB_KEY_FILE", folder.path() + "/missing"}});
  const auto job = find_job({});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.status(), Status::unavailable);
  EXPECT_EQ(job.error().record().native.name, "ENOENT");
}

TEST(JobKey, IsCopiedAndMoved) {
  fabric::JobKey key("some secret of many bytes");
  const fabric::JobKey copy = key;
  fabric::JobKey moved = std::move(key);
  EXPECT_EQ(copy.bytes(), moved.bytes());
  moved = copy;
  EXPECT_EQ(moved.bytes(), "some secret of many bytes");
  EXPECT_FALSE(fabric::JobKey().is_set());
  fabric::JobKey& same = moved;
  moved = same;
  EXPECT_EQ(moved.bytes(), copy.bytes());
}

// The kernel's words for the pages around an address. Source: proc(5), smaps.
std::string flags_of_page(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_there = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
      const auto where = reinterpret_cast<std::uintptr_t>(address);
      is_there = begin <= where && where < end;
    }
    if (is_there && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

TEST(JobKey, IsInNoCoreDump) {
  const fabric::JobKey key("some secret of many bytes");
  const fabric::JobKey copy = key;
  for (const fabric::JobKey* one : {&key, &copy})
    EXPECT_NE(flags_of_page(one->bytes().data()).find(" dd "), std::string::npos) << flags_of_page(one->bytes().data());
  const std::string plain = "what is not a secret, and long enough to have memory of its own";
  EXPECT_EQ(flags_of_page(plain.data()).find(" dd "), std::string::npos) << "the test sees nothing";
}

// --- How many hosts --------------------------------------------------------------------------------------------------------------

TEST(JobHosts, AreOneWhereTheAddressOrTheLauncherSaysSo) {
  const auto is_on_one = [](std::initializer_list<Variable> more) {
    Launched launched({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "4711"}});
    for (const auto& [name, value] : more) launched.set(name, value);
    const auto job = find_job({});
    EXPECT_TRUE(job) << job.error().message();
    return job && job->is_on_one_host;
  };
  const Variable key{"GIGABAR_JOB_KEY", kKeyDigits};
  for (const char* here : {"127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"})
    EXPECT_TRUE(is_on_one({{"MASTER_ADDR", here}, key})) << here;
  EXPECT_FALSE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}, key}));
  EXPECT_FALSE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}, key, {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_TRUE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}, key, {"LOCAL_WORLD_SIZE", "4"}}));
  // Who names interfaces has ranks that meet there, as containers of one host do.
  EXPECT_FALSE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}, key, {"LOCAL_WORLD_SIZE", "4"}, {"GIGABAR_INTERFACES", "lo"}}));
  EXPECT_TRUE(is_on_one({{"MASTER_ADDR", "127.0.0.1"}, key, {"LOCAL_WORLD_SIZE", "4"}, {"GIGABAR_INTERFACES", "lo"}}));
  // Without a key no other ranks are heard than this host's.
  EXPECT_TRUE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}, {"LOCAL_WORLD_SIZE", "4"}, {"GIGABAR_INTERFACES", "lo"}}));
  EXPECT_TRUE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}}));
  EXPECT_TRUE(is_on_one({{"MASTER_ADDR", "192.0.2.1"}, {"LOCAL_WORLD_SIZE", "4"}}));
}

TEST(JobHosts, OfWhichThereAreSeveralNeedAKey) {
  Launched launched(
      {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "192.0.2.1"}, {"MASTER_PORT", "4711"}});
  const auto refused = find_job({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(name_of(refused.status()), "no_permission");
  EXPECT_EQ(refused.error().record().object, "LOCAL_WORLD_SIZE");
  EXPECT_NE(refused.error().record().remedy.find("GIGABAR_JOB_KEY"), std::string::npos);
  launched.set("LOCAL_WORLD_SIZE", "5");
  EXPECT_EQ(find_job({}).status(), Status::invalid_argument) << "more than there are";
}

TEST(JobHosts, AnAddressThatMeansEveryOneIsNone) {
  for (const char* every : {"0.0.0.0", "::", "[::]"}) {
    const Launched launched({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", every}, {"MASTER_PORT", "4711"}});
    expect_refusal({}, "MASTER_ADDR");
  }
}

}  // namespace
}  // namespace gigabar
