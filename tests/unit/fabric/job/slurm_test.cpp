// SPDX-License-Identifier: Apache-2.0
// Slurm's node lists, and the ports of its steps: fabric/job/launchers.hpp.
#include "fabric/job/launchers.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/launched.hpp"

namespace gigabar {
namespace {

using fabric::first_node;
using test::Launched;

std::string first_of(const std::string& list) {
  const auto name = first_node("SLURM_STEP_NODELIST", list);
  EXPECT_TRUE(name) << list << ": " << name.error().message();
  return name ? *name : std::string();
}

TEST(NodeList, FirstNames) {
  for (const auto& [list, first] :
       std::vector<std::pair<std::string, std::string>>{{"localhost", "localhost"},
                                                        {"n1,n2", "n1"},
                                                        {"login1,gpu[003-010,12]", "login1"},
                                                        {"gpu[003-010,12],login1", "gpu003"},
                                                        {"gpu[12,003-010]", "gpu12"},
                                                        {"gpu[7]", "gpu7"},
                                                        {"gpu[9-11]", "gpu9"},
                                                        {"gpu[08-10]", "gpu08"},
                                                        {"gpu[5-5]", "gpu5"},
                                                        {"r[1-2]n[01-04]", "r1n01"},
                                                        {"r[1-2]n[01-04]-ib,r3n01", "r1n01-ib"},
                                                        {"rack[0-3]-[00-15].cluster.example", "rack0-00.cluster.example"},
                                                        {"[1-4]", "1"},
                                                        {"node_a.example", "node_a.example"},
                                                        {"n[000000000000000000001]", "n000000000000000000001"},
                                                        {"n[0-999999999999999999]", "n0"},
                                                        {std::string(255, 'n'), std::string(255, 'n')}})
    EXPECT_EQ(first_of(list), first);
}

TEST(NodeList, MalformedOnesAreRefusedWithTheirVariable) {
  for (const std::string& list : {std::string(),
                                  std::string(","),
                                  std::string("n1,"),
                                  std::string(",n1"),
                                  std::string("n1,,n2"),
                                  std::string("n["),
                                  std::string("n[1"),
                                  std::string("n[1-"),
                                  std::string("n[1-2"),
                                  std::string("n[]"),
                                  std::string("n[1-]"),
                                  std::string("n[-2]"),
                                  std::string("n[1,]"),
                                  std::string("n[,1]"),
                                  std::string("n[1--2]"),
                                  std::string("n[1-2-3]"),
                                  std::string("n[3-1]"),
                                  std::string("n[a-b]"),
                                  std::string("n[1 ]"),
                                  std::string("n[[1]]"),
                                  std::string("n]"),
                                  std::string("n1]"),
                                  std::string("n[1]]"),
                                  std::string("n 1"),
                                  std::string("n1 n2"),
                                  std::string("n1;n2"),
                                  std::string("n1\n"),
                                  std::string("n1\0n2", 5),
                                  std::string("n1,r[1-2]n["),
                                  std::string("n[1-1000000000000000000]"),
                                  std::string("n[1]/2"),
                                  std::string("(null)"),
                                  std::string(256, 'n'),
                                  std::string("n1,") + std::string(256, 'n')}) {
    const auto name = first_node("SLURM_JOB_NODELIST", list);
    ASSERT_FALSE(name) << list;
    EXPECT_EQ(name.status(), Status::invalid_argument);
    EXPECT_EQ(name.error().record().object, "SLURM_JOB_NODELIST");
    EXPECT_NE(name.error().record().cause.find("no list of nodes"), std::string::npos) << name.error().message();
    EXPECT_NE(name.error().record().remedy.find("MASTER_ADDR"), std::string::npos);
  }
}

// Lists that are made from their first name: whatever follows, it is found again.
TEST(NodeList, AnyListGivesTheNameItWasMadeFrom) {
  std::mt19937 random(20240607);
  const auto up_to = [&](unsigned max) { return std::uniform_int_distribution<unsigned>(0, max)(random); };
  const auto number = [&](unsigned value, unsigned width) {
    std::string digits = std::to_string(value);
    return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
  };
  for (int round = 0; round < 2000; ++round) {
    std::string list, first;
    for (unsigned names = up_to(3) + 1, name = 0; name < names; ++name) {
      std::string written = name == 0 ? "" : ",", meant;
      for (unsigned parts = up_to(3) + 1, part = 0; part < parts; ++part) {
        const std::string literal(1 + up_to(4), static_cast<char>('a' + up_to(25)));
        written += literal;
        meant += literal;
        if (up_to(1) == 0) continue;
        const unsigned width = up_to(5);
        written += '[';
        for (unsigned ranges = up_to(3) + 1, range = 0; range < ranges; ++range) {
          const unsigned low = up_to(2000);
          if (range > 0) written += ',';
          written += number(low, width);
          if (range == 0) meant += number(low, width);
          if (up_to(1) == 0) written += '-' + number(low + up_to(100), width);
        }
        written += ']';
      }
      list += written;
      if (name == 0) first = meant;
    }
    ASSERT_EQ(first_of(list), first) << list;
    // Without its last bracket it is none.
    const std::size_t bracket = list.rfind(']');
    if (bracket == std::string::npos) continue;
    list.erase(bracket, 1);
    EXPECT_FALSE(first_node("SLURM_STEP_NODELIST", list)) << list;
  }
}

TEST(SlurmMaster, IsReadFromTheStepFirst) {
  Launched launched({{"SLURM_NODELIST", "old1"}});
  EXPECT_EQ(*fabric::slurm_master(), "old1");
  launched.set("SLURM_JOB_NODELIST", "job[1-4]");
  EXPECT_EQ(*fabric::slurm_master(), "job1");
  launched.set("SLURM_STEP_NODELIST", "job[3-4]");
  EXPECT_EQ(*fabric::slurm_master(), "job3");
  for (const char* distribution : {"block", "cyclic", "plane=2", "block:cyclic"}) {
    launched.set("SLURM_DISTRIBUTION", distribution);
    EXPECT_EQ(*fabric::slurm_master(), "job3") << distribution;
  }
  launched.set("SLURM_STEP_NODELIST", "job[3-");
  EXPECT_EQ(fabric::slurm_master().error().record().object, "SLURM_STEP_NODELIST") << "what is wrong is not passed over";
}

TEST(SlurmPort, DiffersForStepsSideBySideAndLiesBelowTheKernelsOwn) {
  std::set<unsigned> ports;
  for (unsigned job = 0; job < 84; ++job) {
    for (unsigned step = 0; step <= 96; ++step) {
      const Launched launched({{"SLURM_JOB_ID", std::to_string(4'000'000'000U + job)}, {"SLURM_STEP_ID", std::to_string(step)}});
      const auto port = fabric::slurm_port();
      ASSERT_TRUE(port) << port.error().message();
      EXPECT_GE(*port, 21000);
      EXPECT_LT(*port, 21000 + 8191);
      EXPECT_TRUE(ports.insert(*port).second) << job << "." << step;
    }
  }
}

// A step of the kinds that srun does not make, and variables that are not there although a step is.
TEST(SlurmStep, WhatIsMissingOrReservedIsNamed) {
  const auto expect_refusal = [](const auto& result, const char* part) {
    ASSERT_FALSE(result) << part;
    EXPECT_EQ(result.status(), Status::invalid_argument) << result.error().message();
    EXPECT_NE(result.error().message().find(part), std::string::npos) << result.error().message();
  };
  Launched launched({{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "1"}});
  expect_refusal(fabric::slurm_step(), "SLURM_STEP_ID is not that of a step of srun");
  expect_refusal(fabric::slurm_port(), "the port of rank 0 follows from it");
  expect_refusal(fabric::slurm_master(), "the list of the step's nodes is not");
  launched.set("SLURM_PROCID", "0");
  const auto outside = fabric::slurm_step();
  ASSERT_TRUE(outside) << outside.error().message();
  EXPECT_FALSE(outside->has_value());
}

}  // namespace
}  // namespace gigabar
