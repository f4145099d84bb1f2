// SPDX-License-Identifier: Apache-2.0
// Each launcher of the table in docs/fabric.md, by the variables that it leaves: find_job(), find_launcher() and stated_rank().
#include "fabric/job/launchers.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "support/launched.hpp"

namespace gigabar {
namespace {

using fabric::find_job;
using fabric::find_launcher;
using fabric::Launcher;
using fabric::stated_rank;
using test::Launched;

// What a refusal says; a test failure when there is none.
ErrorRecord refusal() {
  const auto job = find_job({});
  EXPECT_FALSE(job);
  if (job) return {};
  const auto launcher = find_launcher();
  EXPECT_TRUE(launcher || launcher.error().message() == job.error().message()) << "a command that starts ranks says the same";
  EXPECT_EQ(job.status(), Status::invalid_argument) << job.error().message();
  return job.error().record();
}

void expect_alone() {
  const auto job = find_job({});
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::none);
  EXPECT_EQ(job->rank_count, 1u);
  EXPECT_EQ(*find_launcher(), Launcher::none);
}

// --- Launchers that are refused --------------------------------------------------------------------------------------------------

struct Refused {
  const char* name;  // of the test
  const char* rank;  // the variables
  const char* count;
  const char* called;  // how the error calls it
  const char* remedy;  // a part of what the error advises
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class RefusedLauncher : public testing::TestWithParam<Refused> {};

TEST_P(RefusedLauncher, IsNamedWithItsVariableAndARemedy) {
  const Refused& row = GetParam();
  const Launched launched({{row.rank, "3"}, {row.count, "4"}});
  const ErrorRecord record = refusal();
  EXPECT_EQ(record.object, row.rank);
  EXPECT_NE(record.cause.find(row.called), std::string::npos) << record.cause;
  EXPECT_NE(record.cause.find("rank 3 of 4"), std::string::npos) << record.cause;
  for (const char* word : {row.remedy, "WORLD_SIZE", "GIGABAR_LAUNCHER=none"})
    EXPECT_NE(record.remedy.find(word), std::string::npos) << record.remedy;
  EXPECT_EQ(stated_rank(), "3");
}

TEST_P(RefusedLauncher, RankZeroIsNoExceptionAndNeitherIsHalfOfIt) {
  const Refused& row = GetParam();
  {
    const Launched launched({{row.rank, "0"}, {row.count, "2"}});
    EXPECT_EQ(refusal().object, row.rank);
  }
  {
    const Launched launched({{row.rank, "0"}});
    const ErrorRecord record = refusal();
    EXPECT_EQ(record.object, row.rank);
    EXPECT_NE(record.cause.find("unknown number"), std::string::npos) << record.cause;
  }
  const Launched launched({{row.count, "2"}});
  EXPECT_EQ(refusal().object, row.count);
}

TEST_P(RefusedLauncher, AJobOfOneProcessStaysOne) {
  const Launched launched({{GetParam().rank, "0"}, {GetParam().count, "1"}});
  expect_alone();
}

TEST_P(RefusedLauncher, NumbersThatCannotBeNameTheirVariable) {
  const Refused& row = GetParam();
  for (const char* wrong : {"", "x", "-1", "4", "1 ", "18446744073709551617"}) {
    const Launched launched({{row.rank, wrong}, {row.count, "4"}});
    EXPECT_EQ(refusal().object, row.rank) << wrong;
  }
  for (const char* wrong : {"", "x", "-1", "0", "18446744073709551617"}) {
    const Launched launched({{row.rank, "0"}, {row.count, wrong}});
    EXPECT_EQ(refusal().object, row.count) << wrong;
  }
}

TEST_P(RefusedLauncher, CanBePassedOverByTheUser) {
  const Refused& row = GetParam();
  Launched launched({{row.rank, "3"}, {row.count, "4"}});
  launched.set("GIGABAR_LAUNCHER", "none");
  expect_alone();
  EXPECT_EQ(stated_rank(), "0") << "each is a job of its own";
  const Launched own(
      {{row.rank, "3"}, {row.count, "4"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  const auto job = find_job({});
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::environment);
  EXPECT_EQ(job->rank, 1u);
  EXPECT_EQ(stated_rank(), "1");
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedLauncher,
    testing::Values(Refused{"open_mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI", "built with PMIx"},
                    Refused{"hydra", "PMI_RANK", "PMI_SIZE", "Hydra", "PMIx (Open MPI)"},
                    Refused{"hydra_with_a_port", "PMI_ID", "PMI_SIZE", "PMI", "PMIx (Open MPI)"},
                    Refused{"pals", "PALS_RANKID", "PMI_SIZE", "PALS", "PMIx (Open MPI)"},
                    Refused{"mvapich2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH2", "PMIx (Open MPI)"},
                    Refused{"mvapich", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVAPICH", "PMIx (Open MPI)"},
                    Refused{"flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux", "pmi=pmix"},
                    Refused{"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "jsrun", "PMIx"}),
    [](const auto& tested) { return tested.param.name; });

// --- srun without PMIx -----------------------------------------------------------------------------------------------------------

const test::Variable kStep = {"SLURM_STEP_ID", "2"}, kJob = {"SLURM_JOB_ID", "4711"}, kTask = {"SLURM_PROCID", "3"},
                     kTasks = {"SLURM_NTASKS", "4"}, kLocal = {"SLURM_LOCALID", "1"},
                     kNodes = {"SLURM_STEP_NODELIST", "gpu[07-08]"};

TEST(SlurmLauncher, TellsRankNodeAndPort) {
  const Launched launched({kStep, kJob, kTask, kTasks, kLocal, kNodes, {"GIGABAR_JOB_KEY", std::string(64, 'a')}});
  const auto job = find_job({});
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->launcher, Launcher::slurm);
  EXPECT_EQ(*find_launcher(), Launcher::slurm);
  EXPECT_EQ(job->rank, 3u);
  EXPECT_EQ(job->rank_count, 4u);
  EXPECT_EQ(job->local_rank, 1u);
  EXPECT_EQ(job->master_address, "gpu07");
  EXPECT_EQ(job->master_port, 21000 + (97 * 4711 + 2) % 8191);
  EXPECT_EQ(job->key.bytes(), std::string(32, '\xaa'));
  EXPECT_EQ(stated_rank(), "3");
  {
    const Launched first({kStep, kJob, kTasks, kNodes, {"SLURM_PROCID", "0"}, {"GIGABAR_JOB_KEY", std::string(64, 'a')}});
    EXPECT_EQ(find_job({})->id, job->id);
    EXPECT_FALSE(find_job({})->local_rank);
  }
  const Launched other({{"SLURM_STEP_ID", "3"}, kJob, kTask, kTasks, kNodes, {"GIGABAR_JOB_KEY", std::string(64, 'a')}});
  EXPECT_NE(find_job({})->id, job->id) << "two steps of one job side by side";
}

TEST(SlurmLauncher, TheUsersAddressAndPortGoFirst) {
  Launched launched(
      {kStep, kJob, kTask, kTasks, kNodes, {"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "1"}, {"GIGABAR_MASTER_PORT", "2222"}});
  EXPECT_EQ(find_job({})->master_address, "::1");
  EXPECT_EQ(find_job({})->master_port, 2222);
  FabricOptions options;
  options.master_address = "node";
  options.master_port = 3333;
  EXPECT_EQ(find_job(options)->master_address, "node");
  EXPECT_EQ(find_job(options)->master_port, 3333);
}

TEST(SlurmLauncher, StepsCountTheirOwnTasks) {
  Launched launched({kStep, kJob, kTask, kTasks, kNodes});
  launched.set("SLURM_STEP_NUM_TASKS", "8");
  EXPECT_EQ(find_job({})->rank_count, 8u) << "srun --preserve-env leaves the allocation's SLURM_NTASKS";
}

TEST(SlurmLauncher, SeveralNodesNeedAKey) {
  Launched launched({kStep, kJob, kTask, kTasks, kNodes, {"SLURM_STEP_NUM_NODES", "2"}});
  const auto job = find_job({});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.status(), Status::no_permission);
  EXPECT_NE(job.error().message().find("GIGABAR_JOB_KEY"), std::string::npos) << job.error().message();
  launched.set("GIGABAR_JOB_KEY", std::string(64, 'a'));
  EXPECT_TRUE(find_job({}));
}

TEST(SlurmLauncher, HalfOfItIsRefusedAndNamesWhatIsMissing) {
  for (const auto& [missing, named] : std::vector<test::Variable>{{"SLURM_STEP_ID", "SLURM_STEP_ID"},
                                                                  {"SLURM_PROCID", "SLURM_PROCID"},
                                                                  {"SLURM_NTASKS", "SLURM_NTASKS"},
                                                                  {"SLURM_STEP_NODELIST", "SLURM_STEP_NODELIST"},
                                                                  {"SLURM_JOB_ID", "SLURM_JOB_ID"}}) {
    const Launched launched({kStep, kJob, kTask, kTasks, kNodes});
    const test::ScopedEnvironment without(missing.c_str(), nullptr);
    const ErrorRecord record = refusal();
    EXPECT_EQ(record.object, named);
    EXPECT_FALSE(record.remedy.empty());
  }
}

// Every subset with a sign of a step but without all that makes one: the error names each that is missing, and none that is there.
TEST(SlurmLauncher, AnyPartOfItNamesAllThatIsMissing) {
  const std::vector<test::Variable> whole = {kStep, kTask, kTasks, kJob, kNodes};
  for (unsigned subset = 0; subset < 32; ++subset) {
    const bool has_sign = (subset & 3) != 0;
    if (!has_sign || subset == 31) continue;
    Launched launched({});
    for (unsigned i = 0; i < whole.size(); ++i) {
      if ((subset >> i & 1) != 0) launched.set(whole[i].first, whole[i].second);
    }
    SCOPED_TRACE(subset);
    const ErrorRecord record = refusal();
    for (unsigned i = 0; i < whole.size(); ++i) {
      const bool is_there = (subset >> i & 1) != 0;
      EXPECT_EQ(record.object.find(whole[i].first) == std::string::npos, is_there)
          << record.object << " lacks or has " << whole[i].first;
      EXPECT_NE(record.cause.find(whole[i].first), std::string::npos) << record.cause;
    }
    EXPECT_FALSE(record.remedy.empty());
  }
}

TEST(SlurmLauncher, TaskNumber0WithoutAJobIsNoBatchScript) {
  {
    const Launched passed_on({{"SLURM_PROCID", "0"}, kTasks});
    EXPECT_EQ(refusal().object, "SLURM_STEP_ID, SLURM_JOB_ID and SLURM_STEP_NODELIST");
  }
  {
    const Launched counted({{"SLURM_STEP_NUM_TASKS", "4"}, kJob, kNodes});
    EXPECT_EQ(refusal().object, "SLURM_STEP_ID and SLURM_PROCID");
  }
  {
    const Launched one({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
    expect_alone();
  }
  const Launched wish_for_srun({kTasks});
  expect_alone();
}

TEST(SlurmLauncher, NumbersThatCannotBeNameTheirVariable) {
  for (const auto& [name, wrong] : std::vector<test::Variable>{{"SLURM_PROCID", "4"},
                                                               {"SLURM_PROCID", "-1"},
                                                               {"SLURM_PROCID", ""},
                                                               {"SLURM_PROCID", "x"},
                                                               {"SLURM_NTASKS", "0"},
                                                               {"SLURM_NTASKS", "-4"},
                                                               {"SLURM_NTASKS", "4(x2)"},
                                                               {"SLURM_STEP_NUM_TASKS", "x"},
                                                               {"SLURM_LOCALID", "4"},
                                                               {"SLURM_LOCALID", "x"},
                                                               {"SLURM_STEP_ID", "batch"},
                                                               {"SLURM_STEP_ID", "-1"},
                                                               {"SLURM_JOB_ID", "1_2"},
                                                               {"SLURM_STEP_NUM_NODES", "0"}}) {
    Launched launched({kStep, kJob, kTask, kTasks, kLocal, kNodes});
    launched.set(name, wrong);
    EXPECT_EQ(refusal().object, name) << wrong;
  }
}

TEST(SlurmLauncher, ProcessesOutsideOfAStepAreAlone) {
  const std::vector<std::pair<const char*, std::vector<test::Variable>>> shells = {
      {"salloc", {kJob, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "n[1-4]"}}},
      {"a batch script", {kJob, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}},
      {"a batch script without a number of tasks", {kJob, {"SLURM_PROCID", "0"}}},
      {"a batch script that knows its step", {kJob, kTasks, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967291"}}},
      {"the same of older versions", {kJob, kTasks, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967294"}}},
      {"the interactive step of salloc", {kJob, kTasks, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967290"}}},
      {"srun --pty bash", {kJob, kStep, kNodes, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}}};
  for (const auto& [name, variables] : shells) {
    SCOPED_TRACE(name);
    Launched launched({});
    for (const auto& [variable, value] : variables) launched.set(variable, value);
    expect_alone();
  }
}

TEST(SlurmLauncher, InnerLaunchersGoFirst) {
  {
    const Launched torchrun(
        {kStep, kJob, kTask, kTasks, kNodes, {"RANK", "9"}, {"WORLD_SIZE", "16"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
    EXPECT_EQ(find_job({})->launcher, Launcher::environment);
    EXPECT_EQ(find_job({})->rank, 9u);
  }
  {
    // mpiexec of Hydra starts one of its own processes on each node by srun, and the ranks from those.
    const Launched hydra({kStep, kJob, kNodes, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
    EXPECT_EQ(refusal().object, "PMI_RANK");
  }
  {
    const Launched one_node(
        {kStep, kJob, kNodes, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "8"}});
    EXPECT_EQ(refusal().object, "PMI_RANK");
  }
  const Launched pmix({kStep, kJob, kTask, kTasks, kNodes, {"PMIX_RANK", "3"}, {"PMIX_SERVER_URI4", "x"}});
  EXPECT_EQ(*find_launcher(), Launcher::pmix) << "srun --mpi=pmix, and mpirun in a batch script";
}

TEST(SlurmLauncher, ItsOwnPmiIsNoOtherLauncher) {
  // As --mpi=pmi2 and --mpi=cray_shasta set them.
  Launched launched({kStep, kJob, kTask, kTasks, kNodes, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(*find_launcher(), Launcher::slurm);
  launched.set("PALS_RANKID", "3");
  EXPECT_EQ(*find_launcher(), Launcher::slurm);
}

TEST(SlurmLauncher, ArbitraryOrderNeedsAnAddress) {
  Launched launched({kStep, kJob, kTask, kTasks, kNodes, {"SLURM_DISTRIBUTION", "arbitrary"}});
  const ErrorRecord record = refusal();
  EXPECT_EQ(record.object, "SLURM_DISTRIBUTION");
  EXPECT_NE(record.remedy.find("MASTER_ADDR"), std::string::npos) << record.remedy;
  launched.set("MASTER_ADDR", "n1");
  EXPECT_EQ(find_job({})->master_address, "n1");
}

// --- The rest of the table -------------------------------------------------------------------------------------------------------

TEST(OtherLaunchers, PmixIsKnownByItsServer) {
  const Launched launched(
      {{"PMIX_RANK", "1"}, {"PMIX_SERVER_URI41", "x"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(*find_launcher(), Launcher::pmix);
  EXPECT_EQ(stated_rank(), "1");
}

TEST(OtherLaunchers, PmixWithoutItsServerIsHalfAnEnvironment) {
  {
    const Launched launched({{"PMIX_RANK", "0"}});
    EXPECT_EQ(refusal().object, "PMIX_SERVER_URI");
  }
  const Launched both({{"PMIX_RANK", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(find_job({})->launcher, Launcher::environment);
}

TEST(OtherLaunchers, VariablesSetByHandOrByTorchrun) {
  for (const char* sign : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const Launched launched({{sign, "1"}});
    EXPECT_EQ(*find_launcher(), Launcher::environment) << sign << ": the job's error says what is missing";
  }
}

TEST(OtherLaunchers, NoVariablesAreAJobOfOne) {
  const Launched nothing({});
  expect_alone();
  EXPECT_EQ(stated_rank(), "0");
}

// --- GIGABAR_LAUNCHER ------------------------------------------------------------------------------------------------------------

TEST(ChosenLauncher, IsTheOnlyOneAsked) {
  const Launched launched(
      {kStep, kJob, kTask, kTasks, kNodes, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  {
    const test::ScopedEnvironment none("GIGABAR_LAUNCHER", "none");
    expect_alone();
  }
  for (const auto& [name, rank] : std::vector<std::pair<const char*, Rank>>{{"environment", 1}, {"slurm", 3}}) {
    const test::ScopedEnvironment chosen("GIGABAR_LAUNCHER", name);
    const auto job = find_job({});
    ASSERT_TRUE(job) << job.error().message();
    EXPECT_EQ(fabric::name_of(job->launcher), name);
    EXPECT_EQ(job->rank, rank);
  }
  const test::ScopedEnvironment pmix("GIGABAR_LAUNCHER", "pmix");
  EXPECT_EQ(*find_launcher(), Launcher::pmix);
}

TEST(ChosenLauncher, HasToBeThere) {
  {
    const Launched launched({kJob, kTasks, {"SLURM_PROCID", "0"}, {"GIGABAR_LAUNCHER", "slurm"}});
    EXPECT_EQ(refusal().object, "SLURM_STEP_ID") << "a batch script is no task";
  }
  const Launched launched({{"GIGABAR_LAUNCHER", "environment"}});
  EXPECT_EQ(refusal().object, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

TEST(ChosenLauncher, MayBeAStepOfOneTask) {
  const Launched launched({kStep, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"GIGABAR_LAUNCHER", "slurm"}});
  EXPECT_EQ(find_job({})->launcher, Launcher::slurm);
  EXPECT_EQ(find_job({})->rank_count, 1u);
}

TEST(ChosenLauncher, UnknownNamesAreRefusedWithTheLegalOnes) {
  for (const char* name : {"options", "unsupported", "Slurm", "", "mpirun"}) {
    const Launched launched({{"GIGABAR_LAUNCHER", name}});
    const ErrorRecord record = refusal();
    EXPECT_EQ(record.object, "GIGABAR_LAUNCHER");
    EXPECT_NE(record.cause.find("none, environment, pmix, slurm"), std::string::npos) << record.cause;
  }
}

}  // namespace
}  // namespace gigabar
