// SPDX-License-Identifier: Apache-2.0
// The fake machine is strict in the ways that other tests rely on: each planted fault really changes what happens.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "driver/gdrdrv/gdrdrv.hpp"
#include "support/fake_session.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

constexpr std::size_t kBlock = std::size_t{2} << 20;

ISOLATED_TEST(FakeMachine, SmallPageableCopiesArriveLate) {
  FakeSession session;
  session.machine().has_gdrdrv = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto module = gdrdrv::Module::open("/dev");
  const auto mapping = (*module)->map(address, kBlock);
  const auto* window = static_cast<volatile const unsigned char*>(mapping->address);
  const unsigned char value = 5;
  CUDA(cuMemcpyHtoD)(address, &value, 1);
  EXPECT_EQ(window[0], 0) << "not there yet";
  CUDA(cuCtxSynchronize)();
  EXPECT_EQ(window[0], 5);
  (*module)->unmap(*mapping);
  FakeSession::free(address);
}

ISOLATED_TEST(FakeMachine, DevicePointersCannotBeDereferenced) {
  FakeSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto store = [&] {
    *reinterpret_cast<volatile unsigned char*>(address) = 1;
    return 0;
  };
  EXPECT_TRUE(test::run_in_child(store).is_fault());
  FakeSession::free(address);
}

ISOLATED_TEST(FakeMachine, ReusesAddressesButNeverBufferIds) {
  FakeSession session;
  session.start();
  const auto buffer_id = [](CUdeviceptr address) {
    unsigned long long id = 0;
    EXPECT_EQ(CUDA(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address), CUDA_SUCCESS);
    return id;
  };
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  const auto first_id = buffer_id(first);
  FakeSession::free(first);
  const CUdeviceptr second = FakeSession::allocate(kBlock);
  EXPECT_EQ(first, second);
  EXPECT_NE(first_id, buffer_id(second));
  FakeSession::free(second);
}

ISOLATED_TEST(FakeMachine, CapturesBreakOnCallsThatCudaForbids) {
  FakeSession session;
  session.start();
  session.machine().is_capturing = true;
  CUdeviceptr address = 0;
  EXPECT_EQ(CUDA(cuMemAlloc)(&address, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_TRUE(session.machine().was_capture_broken);
  session.machine().was_capture_broken = false;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUDA(cuThreadExchangeStreamCaptureMode)(&mode);
  EXPECT_EQ(CUDA(cuMemAlloc)(&address, 4096), CUDA_SUCCESS);
  EXPECT_FALSE(session.machine().was_capture_broken);
  FakeSession::free(address);
  CUDA(cuThreadExchangeStreamCaptureMode)(&mode);
}

ISOLATED_TEST(FakeMachine, CudaIsGoneInAForkedChild) {
  FakeSession session;
  session.start();
  CUcontext context = nullptr;
  EXPECT_TRUE(test::run_in_child([&] { return CUDA(cuCtxGetCurrent)(&context) == CUDA_ERROR_NOT_INITIALIZED ? 3 : 4; }).is_exit(3));
}

ISOLATED_TEST(FakeMachine, CountsWhatIsHeld) {
  FakeSession session;
  session.start();
  const CUdeviceptr small = FakeSession::allocate(4096);
  const CUdeviceptr large = FakeSession::allocate(5 * kBlock);
  EXPECT_EQ(FakeSession::counts().device_allocations, 2u);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], 6 * kBlock);
  int descriptor = -1;
  EXPECT_EQ(CUDA(cuMemGetHandleForAddressRange)(&descriptor, large, kBlock, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0), CUDA_SUCCESS);
  EXPECT_EQ(FakeSession::counts().dma_bufs, 1u);
  EXPECT_EQ(system_calls().mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), MAP_FAILED);
  EXPECT_EQ(errno, 524) << "as drivers before CUDA 13.3";
  FakeSession::free(large);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], 6 * kBlock) << "the dma-buf keeps the pages";
  ::close(descriptor);  // behind the table
  EXPECT_EQ(FakeSession::counts().dma_bufs, 0u);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], kBlock);
  FakeSession::free(small);
}

}  // namespace
}  // namespace gigabar
