// SPDX-License-Identifier: Apache-2.0
// Waiting until a GPU has nothing to do.
#include "memory/runtime.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/refused_threads.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

constexpr std::int64_t kMsNs = 1'000'000;

ISOLATED_TEST(DeviceIdle, EndsWithTheWorkOrAtItsDeadline) {
  FakeSession session;
  session.start();
  EXPECT_TRUE(wait_until_idle(0, 20'000 * kMsNs));
  EXPECT_TRUE(wait_until_idle(0, -1));
  std::atomic_ref is_busy(session.machine().is_busy);
  const std::int64_t pushes = FakeSession::counts().context_pushes;
  is_busy = true;
  const Result<void> late = wait_until_idle(0, 20 * kMsNs);
  EXPECT_EQ(late.status(), Status::timed_out);
  EXPECT_NE(late.message().find("device 0"), std::string::npos) << late.message();
  is_busy = false;
  EXPECT_TRUE(wait_until_idle(0, -1));
  // The thread of the call that gave up ends with the work.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       FakeSession::counts().context_pushes != pushes && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(FakeSession::counts().context_pushes, pushes);
}

ISOLATED_TEST(DeviceIdle, FailuresOfTheDriverAreItsAnswer) {
  FakeSession session;
  session.start();
  session.plant(fake::Call::cuda, "cuCtxSynchronize", CUDA_ERROR_LAUNCH_FAILED);
  const Result<void> failed = wait_until_idle(0, -1);
  EXPECT_EQ(failed.status(), Status::device_error);
  EXPECT_EQ(failed.record().native.code, CUDA_ERROR_LAUNCH_FAILED) << failed.message();
}

ISOLATED_TEST(DeviceIdle, OnlyADeviceThatIsThere) {
  FakeSession session;
  session.start();
  for (const int device : {-1, static_cast<int>(session.machine().gpu_count)})
    EXPECT_EQ(wait_until_idle(device, -1).status(), Status::invalid_argument) << device;
}

ISOLATED_TEST(DeviceIdle, ADriverThatCannotWait) {
  FakeSession session;
  std::strcpy(session.machine().hidden_symbol, "cuCtxSynchronize");
  session.start();
  const Result<void> refused = wait_until_idle(0, -1);
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_NE(refused.message().find("cuCtxSynchronize"), std::string::npos) << refused.message();
}

ISOLATED_TEST(DeviceIdle, AThreadThatCannotBeStarted) {
  FakeSession session;
  session.start();
  ASSERT_NO_FATAL_FAILURE(test::refuse_threads());
  const Result<void> refused = wait_until_idle(0, -1);
  EXPECT_EQ(refused.status(), Status::no_permission);
  EXPECT_NE(refused.message().find("a thread cannot be started"), std::string::npos) << refused.message();
}

// It would wait for kernels that are threads of the CPU.
ISOLATED_TEST(DeviceIdle, AStandInHasNoWork) {
  const test::ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  EXPECT_TRUE(wait_until_idle(0, 0));
}

}  // namespace
}  // namespace gigabar
