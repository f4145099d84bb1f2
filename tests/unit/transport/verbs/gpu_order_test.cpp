// SPDX-License-Identifier: Apache-2.0
// Flushes of what NICs wrote into GPU memory: where they are needed, whether the driver can, and what it answers.
#include "transport/verbs/gpu_order.hpp"

#include <string>

#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::transport::rdma {
namespace {

using gigabar::test::FakeSession;

void expect_error(const Result<void>& result, Status status, const char* part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.message();
  EXPECT_NE(result.message().find(part), std::string::npos) << result.message();
}

ISOLATED_TEST(VerbsGpuOrder, WithoutADriver) {
  const gigabar::test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  expect_error(GpuOrder().add(0), Status::unavailable, "order NIC writes: device 0");
}

ISOLATED_TEST(VerbsGpuOrder, EachCallThatFails) {
  FakeSession session;
  session.machine().needs_rdma_flushes = true;
  session.start();
  GpuOrder order;
  for (const std::uint32_t skip : {0U, 1U}) {  // the order of its writes, and its flushes
    session.plant(fake::Call::cuda, "cuDeviceGetAttribute", CUDA_ERROR_UNKNOWN, 1, skip);
    expect_error(order.add(0), Status::device_error, "cuDeviceGetAttribute: device 0");
    session.remove_faults();
  }
  EXPECT_TRUE(order.flush()) << "nothing was added";
  ASSERT_TRUE(order.add(0));
  EXPECT_TRUE(order.flush());
  for (const auto& [call, skip] : {std::pair{"cuCtxPushCurrent", 1U}, std::pair{"cuFlushGPUDirectRDMAWrites", 0U}}) {
    session.plant(fake::Call::cuda, call, CUDA_ERROR_UNKNOWN, 1, skip);
    expect_error(order.flush(), Status::device_error, call);
    session.remove_faults();
  }
  EXPECT_TRUE(order.flush());
  ASSERT_TRUE(order.add(0));
  order.remove(0);
  const fake::Fault& flushed = session.plant(fake::Call::cuda, "cuFlushGPUDirectRDMAWrites", CUDA_ERROR_UNKNOWN, 1);
  EXPECT_FALSE(order.flush()) << "one of two is left";
  order.remove(0);
  EXPECT_TRUE(order.flush());
  EXPECT_EQ(flushed.hits, 1U);
}

ISOLATED_TEST(VerbsGpuOrder, ADriverThatCannotFlush) {
  FakeSession session;
  session.machine().needs_rdma_flushes = true;
  std::strcpy(session.machine().hidden_symbol, "cuFlushGPUDirectRDMAWrites");
  session.start();
  expect_error(GpuOrder().add(0), Status::not_supported, "the driver cannot flush them");
}

}  // namespace
}  // namespace gigabar::transport::rdma
