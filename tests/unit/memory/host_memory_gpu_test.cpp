// SPDX-License-Identifier: Apache-2.0
// Owned host memory on a machine with a GPU: what CUDA is asked for, and that it gets it back.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

ISOLATED_TEST(HostMemoryGpu, PinnedIsRegistered) {
  FakeSession session;
  session.start();
  {
    const auto memory = HostMemory::allocate(10000);
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(FakeSession::counts().host_registrations, 1u);
    EXPECT_EQ(describe(memory->address())->kind, MemoryKind::host_pinned);
  }
  EXPECT_EQ(FakeSession::counts().host_registrations, 0u);
}

ISOLATED_TEST(HostMemoryGpu, IsPinnedByADeviceThatIsInUse) {
  FakeSession session;
  session.machine().gpu_count = 3;
  session.start(2);
  const auto memory = HostMemory::allocate(10000);
  ASSERT_TRUE(memory) << memory.error().message();
  for (const int device : {0, 1}) {
    unsigned flags = 0;
    int is_active = 1;
    ASSERT_EQ(CUDA(cuDevicePrimaryCtxGetState)(device, &flags, &is_active), CUDA_SUCCESS);
    EXPECT_EQ(is_active, 0) << "device " << device;
  }
}

// In exclusive mode, or full: the next one pins, and goes on doing so.
ISOLATED_TEST(HostMemoryGpu, IsPinnedByAnotherDeviceWhereOneRefuses) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.start(1);
  ASSERT_TRUE(devices());
  session.plant(fake::Call::cuda, "cuDevicePrimaryCtxRetain", CUDA_ERROR_DEVICE_UNAVAILABLE, 1);
  for (int time = 0; time < 2; ++time) {
    const auto memory = HostMemory::allocate(10000);
    EXPECT_TRUE(memory) << memory.error().message();
  }
  session.plant(fake::Call::cuda, "cuDevicePrimaryCtxRetain", CUDA_ERROR_DEVICE_UNAVAILABLE, fake::kForEver);
  EXPECT_TRUE(HostMemory::allocate(10000)) << "the device that pins is retained";
}

ISOLATED_TEST(HostMemoryGpu, IsPinnedByNoDeviceWhereAllRefuseThenByOne) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.start(1);
  ASSERT_TRUE(devices());
  session.plant(fake::Call::cuda, "cuDevicePrimaryCtxRetain", CUDA_ERROR_DEVICE_UNAVAILABLE, 2);
  const auto refused = HostMemory::allocate(10000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().record().native.code, CUDA_ERROR_DEVICE_UNAVAILABLE) << refused.error().message();
  EXPECT_TRUE(HostMemory::allocate(10000));
}

ISOLATED_TEST(HostMemoryGpu, WriteCombinedIsCudasOwn) {
  FakeSession session;
  session.start();
  {
    const auto memory = HostMemory::allocate(10000, {.numa_node = -1, .pages = HostPages::write_combined});
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(FakeSession::counts().host_allocations, 1u);
    EXPECT_EQ(FakeSession::counts().host_registrations, 0u);
    unsigned flags = 0;
    ASSERT_EQ(CUDA(cuMemHostGetFlags)(&flags, memory->address()), CUDA_SUCCESS);
    EXPECT_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
    EXPECT_TRUE(memory->is_pinned());
    EXPECT_EQ(memory->bytes(), 10000u);
    const auto* bytes = static_cast<const unsigned char*>(memory->address());
    EXPECT_TRUE(std::all_of(bytes, bytes + 10000, [](unsigned char byte) { return byte == 0; }));
    EXPECT_EQ(describe(memory->address())->kind, MemoryKind::host_pinned);
  }
  EXPECT_EQ(FakeSession::counts().host_allocations, 0u);
}

ISOLATED_TEST(HostMemoryGpu, AFailureOfCudaIsItsOwn) {
  FakeSession session;
  session.start();
  session.plant(fake::Call::cuda, "cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  const auto refused = HostMemory::allocate(10000, {.numa_node = -1, .pages = HostPages::write_combined});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::out_of_memory);
  EXPECT_EQ(refused.error().record().native.name, "CUDA_ERROR_OUT_OF_MEMORY");
  session.remove_faults();
  session.plant(fake::Call::cuda, "cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(HostMemory::allocate(10000).status(), Status::out_of_memory);
  EXPECT_EQ(FakeSession::counts().host_registrations, 0u);
}

}  // namespace
}  // namespace gigabar
