// SPDX-License-Identifier: Apache-2.0
// Runs on a fake libcuda: gate, peers, faults in the middle, and that nothing is left behind.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "gigabar/mapping.hpp"
#include "gigabar/streams.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "unit/streams/plans.hpp"

namespace gigabar {
namespace {

StreamPlan plan_of(std::initializer_list<std::string_view> lines, unsigned repeats = 2) {
  StreamPlan plan = test::plan_of(lines, repeats, 256 << 10);
  plan.timeout_seconds = 20;
  return plan;
}

// What is in use once the library's own streams and windows, which it keeps, are made.
fake::Counts counts_after_first_use() {
  EXPECT_TRUE(run_streams(plan_of({"gpu0->gpu1", "gpu1->gpu0"}, 1)));
  trim_mapping_cache(0);
  return test::FakeSession::counts();
}

// Nothing of the run is left in the driver: memory, streams, pinned pages.
void expect_nothing_left(const fake::Counts& before) {
  trim_mapping_cache(0);
  const fake::Counts after = test::FakeSession::counts();
  EXPECT_EQ(after.device_allocations, before.device_allocations);
  EXPECT_EQ(after.host_registrations, before.host_registrations);
  EXPECT_EQ(after.host_allocations, before.host_allocations);
}

ISOLATED_TEST(StreamCuda, CopyEnginesMoveEverythingBehindOneGate) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  const fake::Counts before = counts_after_first_use();
  const auto report = run_streams(plan_of({"gpu0->host", "host->gpu1", "gpu0->gpu1 ce-push", "gpu1->gpu0 ce-pull", "gpu0->gpu0",
                                           "host->gpu0 cpu:2", "gpu0->host pages=pageable", "host->gpu1 latency bytes=4K"}));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->is_stand_in);
  for (const TransferReport& told : report->transfers) {
    EXPECT_FALSE(told.error) << told.error->message();
    EXPECT_TRUE(told.is_verified) << told.path;
    EXPECT_EQ(told.life_gb_per_s.samples.size(), 2u);
    EXPECT_EQ(told.bytes_moved, 2 * 20 * told.transfer.bytes) << told.path;
  }
  EXPECT_EQ(report->transfers[0].path, "copy engine of device 0");
  EXPECT_EQ(report->transfers[2].path, "copy engine of device 0 (push)");
  EXPECT_EQ(report->transfers[3].path, "copy engine of device 0 (pull)");
  EXPECT_EQ(report->transfers[7].latency->sample_count, 40u);
  expect_nothing_left(before);
}

// Streams share hardware queues: a copy that is waited for before the gate opens comes before those that wait behind it.
ISOLATED_TEST(StreamCuda, ALatencyIsNotHeldUpByStreamsBehindTheGate) {
  test::FakeSession session;
  session.machine().is_one_queue = true;
  session.start();
  StreamPlan plan =
      plan_of({"gpu0->host count=3", "host->gpu0 latency bytes=8M count=8 iterations=2", "gpu0->host pages=pageable"});
  plan.timeout_seconds = 10;
  const auto report = run_streams(plan);
  ASSERT_TRUE(report) << report.error().message();
  for (const TransferReport& told : report->transfers) {
    EXPECT_FALSE(told.error) << told.error->message();
    EXPECT_EQ(told.life_gb_per_s.samples.size(), 2u);
  }
}

ISOLATED_TEST(StreamCuda, OneFailsInTheMiddleAndTheOthersRunOn) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  const fake::Counts before = counts_after_first_use();
  constexpr std::uint32_t kWarmUps = 32;  // of a small transfer
  session.plant(fake::Call::cuda, "cuMemcpyPeerAsync", CUDA_ERROR_ECC_UNCORRECTABLE, 1, kWarmUps + 4);
  const auto report = run_streams(plan_of({"gpu0->host", "gpu0->gpu1", "host->gpu1"}));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->is_ok());
  ASSERT_TRUE(report->transfers[1].error);
  EXPECT_EQ(report->transfers[1].error->native.code, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_NE(report->transfers[1].error->object.find("transfer 1"), std::string::npos);
  EXPECT_FALSE(report->transfers[1].is_verified);
  for (const std::size_t other : {0U, 2U}) {
    EXPECT_FALSE(report->transfers[other].error);
    EXPECT_TRUE(report->transfers[other].is_verified);
    EXPECT_EQ(report->transfers[other].life_gb_per_s.samples.size(), 2u);
  }
  expect_nothing_left(before);
}

ISOLATED_TEST(StreamCuda, FailuresWhilePreparingLeaveNothing) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  const fake::Counts before = counts_after_first_use();
  for (const char* function : {"cuStreamCreate", "cuEventCreate", "cuMemAlloc", "cuMemHostRegister", "cuCtxEnablePeerAccess"}) {
    for (std::uint32_t skip = 0; skip < 4; ++skip) {
      session.plant(fake::Call::cuda, function, CUDA_ERROR_OUT_OF_MEMORY, 1, skip);
      const auto report = run_streams(plan_of({"gpu0->gpu1", "gpu1->host"}, 1));
      session.remove_faults();
      if (!report) {
        EXPECT_FALSE(report.error().record().cause.empty()) << function;
      }
      expect_nothing_left(before);
    }
  }
}

// Each transfer has a stream of its own, beside the one of each device.
ISOLATED_TEST(StreamCuda, WhatHasNoStreamIsNamed) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  const fake::Counts before = counts_after_first_use();
  constexpr std::uint32_t kMaxStreams = 40;
  std::string errors;
  for (std::uint32_t skip = 0; skip < kMaxStreams; ++skip) {
    const fake::Fault& fault = session.plant(fake::Call::cuda, "cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY, 1, skip);
    const auto report = run_streams(plan_of({"gpu0->gpu1", "gpu1->host"}, 1));
    const bool has_failed = fault.hits != 0;
    session.remove_faults();
    expect_nothing_left(before);
    if (!has_failed) break;
    ASSERT_FALSE(report) << skip;
    EXPECT_EQ(report.status(), Status::out_of_memory) << report.error().message();
    errors += report.error().message() + "\n";
  }
  for (const char* const part :
       {"prepare streams: device 0", "prepare streams: device 1", "make a stream: transfer 0", "make a stream: transfer 1"})
    EXPECT_NE(errors.find(part), std::string::npos) << part << " is not said of\n" << errors;
}

// Of two transfers between GPUs, the first question and the second.
ISOLATED_TEST(StreamCuda, AFailedQuestionForPeerAccessIsNamed) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  const fake::Counts before = counts_after_first_use();
  for (std::uint32_t skip = 0; skip < 2; ++skip) {
    session.plant(fake::Call::cuda, "cuDeviceCanAccessPeer", CUDA_ERROR_ECC_UNCORRECTABLE, 1, skip);
    const auto report = run_streams(plan_of({"gpu0->gpu1", "gpu1->gpu0"}, 1));
    session.remove_faults();
    ASSERT_FALSE(report) << skip;
    const ErrorRecord& said = report.error().record();
    EXPECT_EQ(said.operation, "run streams");
    EXPECT_TRUE(said.object.starts_with("transfer " + std::to_string(skip) + " (gpu")) << said.object;
    EXPECT_EQ(said.native.code, CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(said.cause, "CUDA error " + std::to_string(CUDA_ERROR_ECC_UNCORRECTABLE));
    expect_nothing_left(before);
  }
}

ISOLATED_TEST(StreamCuda, AFailedWaitForTheGateFailsThatTransferOnly) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  session.plant(fake::Call::cuda, "cuStreamWaitValue32", CUDA_ERROR_NOT_SUPPORTED, 1, 0);
  const auto report = run_streams(plan_of({"gpu0->host", "host->gpu1"}, 1));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_NE(report->transfers[0].error.has_value(), report->transfers[1].error.has_value()) << "one of the two";
}

ISOLATED_TEST(StreamCuda, ALostBitIsToldWithItsPlaceAndTheOthersRunOn) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.machine().is_peer_copy_wrong = true;
  session.start();
  const auto report = run_streams(plan_of({"gpu0->host", "gpu0->gpu1 bytes=100001", "host->gpu1"}, 3));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->is_ok());
  const TransferReport& wrong = report->transfers[1];
  ASSERT_TRUE(wrong.error);
  EXPECT_EQ(wrong.error->status, Status::verification_failed);
  EXPECT_NE(wrong.error->object.find("transfer 1"), std::string::npos) << wrong.error->message();
  EXPECT_NE(wrong.error->cause.find("byte 50000: expected 0x"), std::string::npos) << wrong.error->message();
  EXPECT_NE(wrong.error->cause.find("found 0x"), std::string::npos);
  EXPECT_FALSE(wrong.is_verified);
  for (const std::size_t other : {0U, 2U}) {
    EXPECT_TRUE(report->transfers[other].is_verified);
    EXPECT_EQ(report->transfers[other].life_gb_per_s.samples.size(), 3u) << "it runs in every repeat";
  }
}

// Another run, a fabric or the program may use it by now.
ISOLATED_TEST(StreamCuda, PeerAccessStaysWhenARunEnds) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(run_streams(plan_of({"gpu0->gpu1 ce-push"}, 1)));
    EXPECT_EQ(test::FakeSession::counts().peers, 1u);
  }
}

ISOLATED_TEST(StreamCuda, WithoutPeerAccess) {
  test::FakeSession session;
  session.machine().has_peer_access = false;
  session.machine().gpu_count = 2;
  session.start();
  const auto refused = run_streams(plan_of({"gpu0->gpu1"}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.error().record().cause.find("no peer access"), std::string::npos);
  EXPECT_NE(refused.error().record().remedy.find("stage"), std::string::npos);
  const auto staged = run_streams(plan_of({"gpu0->gpu1 stage"}));
  ASSERT_TRUE(staged) << staged.error().message();
  EXPECT_TRUE(staged->transfers[0].is_verified);
  EXPECT_NE(staged->transfers[0].path.find("staged through the host"), std::string::npos);
}

ISOLATED_TEST(StreamCuda, WithoutDeviceCodeKernelsAreRefused) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  const auto refused = run_streams(plan_of({"gpu0->host sm"}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_FALSE(refused.error().record().remedy.empty());
}

ISOLATED_TEST(StreamCuda, AnOlderDriverIsNamed) {
  test::FakeSession session;
  std::strcpy(session.machine().hidden_symbol, "cuStreamWaitValue32");
  session.machine().gpu_count = 2;
  session.start();
  const auto refused = run_streams(plan_of({"gpu0->host"}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_NE(refused.error().message().find("cuStreamWaitValue32"), std::string::npos);
}

// A GPU that never gets on: the run ends by its own deadline, and what may still be written to is not freed.
ISOLATED_TEST(StreamCuda, AGpuThatHangsDoesNotHangTheRun) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  session.plant(fake::Call::cuda, "cuEventQuery", CUDA_ERROR_NOT_READY, fake::kForEver, 18);
  StreamPlan plan = plan_of({"gpu0->host"}, 3);
  plan.timeout_seconds = 0.3;
  const auto report = run_streams(plan);
  if (!report) {
    EXPECT_EQ(report.status(), Status::device_error);  // the clock could not be read any more
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ASSERT_TRUE(report->transfers[0].error);
  EXPECT_EQ(report->transfers[0].error->status, Status::timed_out);
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);  // what was given up on purpose would be counted as left behind
}

}  // namespace
}  // namespace gigabar
