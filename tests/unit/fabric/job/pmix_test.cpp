// SPDX-License-Identifier: Apache-2.0
// What a launcher's store says that cannot be: sizes of jobs, keys and addresses.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "fabric/job/job.hpp"
#include "fabric/job/launchers.hpp"
#include "support/isolated.hpp"
#include "support/launched.hpp"
#include "unit/driver/fake_pmix.hpp"

namespace gigabar {
namespace {

using test::FakePmix;

template <class T>
void expect_error(const Result<T>& result, Status status, const std::string& part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.error().message();
  EXPECT_NE(result.error().message().find(part), std::string::npos) << result.error().message();
}

ISOLATED_TEST(PmixJob, WhatTheStoreHolds) {
  const FakePmix server;
  const test::Launched launched({{"GIGABAR_LAUNCHER", "pmix"}});
  FabricOptions options;
  options.connect_timeout = Timeout::of(std::chrono::milliseconds(100));
  FakePmix::answer(FakePmix::kJobSize, FakePmix::number(fabric::kMaxRanks + 1));
  expect_error(fabric::find_job(options), Status::invalid_argument, "are the most");
  FakePmix::answer(FakePmix::kJobSize, FakePmix::number(2));
  expect_error(fabric::find_job(options), Status::timed_out, "rank 0 did not put it before the deadline");
  constexpr const char* kKey = "gigabar.key";
  FakePmix::answer(kKey, FakePmix::bytes("too short a one"));
  expect_error(fabric::find_job(options), Status::bad_file, "its size is not that of a key");
  FakePmix::answer(kKey, FakePmix::bytes(std::string(32, 'k')));
  const auto job = fabric::find_job(options);
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(job->rank, 1U);

  const std::int64_t deadline_ns = now_ns() + 5'000'000'000;
  const auto directory = fabric::open_directory(*job, deadline_ns);
  ASSERT_TRUE(directory) << directory.error().message();
  constexpr const char* kAddress = "gigabar.address.1";
  FakePmix::answer(kAddress, FakePmix::bytes("no address"));
  expect_error((*directory)->rank_address(0), Status::bad_file, "is no address");
  FakePmix::answer(kAddress, FakePmix::bytes("chere"));
  auto address = (*directory)->rank_address(0);
  while (address && !address->has_value() && now_ns() < deadline_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    address = (*directory)->rank_address(0);
  }
  ASSERT_TRUE(address && address->has_value());
  EXPECT_EQ(**address, "here");
}

}  // namespace
}  // namespace gigabar
