// SPDX-License-Identifier: Apache-2.0
// What a pointer is, on a machine with GPUs: describe() for every kind of memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "gigabar/memory.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

constexpr std::size_t kBlock = std::size_t{2} << 20;

const void* pointer(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

PointerInfo described(CUdeviceptr address) {
  const auto info = describe(pointer(address));
  EXPECT_TRUE(info) << info.error().message();
  return info ? *info : PointerInfo{};
}

void expect_range(const PointerInfo& info, CUdeviceptr base, std::size_t length, std::size_t offset) {
  EXPECT_EQ(info.base, base);
  EXPECT_EQ(info.length_bytes, length);
  EXPECT_EQ(info.offset_bytes, offset);
  EXPECT_EQ(info.address, base + offset);
}

ISOLATED_TEST(DescribeGpu, CudaMalloc) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.machine().gpus[1].numa_node = 1;
  session.start(1);
  FakeSession::allocate(1000);  // so that the next one does not start its block
  const CUdeviceptr address = FakeSession::allocate(10001);
  const PointerInfo info = described(address + 10000);
  EXPECT_EQ(info.kind, MemoryKind::device);
  expect_range(info, address, 10001, 10000);
  EXPECT_EQ(info.device, 1);
  ASSERT_TRUE(info.pci);
  EXPECT_EQ(info.pci->to_string(), session.machine().gpus[1].pci_address);
  EXPECT_EQ(info.numa_node, 1);
  EXPECT_NE(info.buffer_id, 0u);
  EXPECT_TRUE(info.is_exportable);
  EXPECT_EQ(described(address + 10001 + 511).kind, MemoryKind::host_pageable) << "nobody's";
  FakeSession::free(address);
  FakeSession::free(address - 1024);
}

ISOLATED_TEST(DescribeGpu, Vmm) {
  FakeSession session;
  session.start();
  const CUdeviceptr exportable = FakeSession::allocate_vmm(0, kBlock, true);
  const CUdeviceptr closed = FakeSession::allocate_vmm(0, 2 * kBlock, false);
  EXPECT_EQ(described(exportable).kind, MemoryKind::device_vmm);
  EXPECT_TRUE(described(exportable).is_exportable);
  const PointerInfo info = described(closed + 5);
  EXPECT_EQ(info.kind, MemoryKind::device_vmm);
  EXPECT_FALSE(info.is_exportable);
  expect_range(info, closed, 2 * kBlock, 5);
  EXPECT_EQ(info.device, 0);
  EXPECT_EQ(FakeSession::counts().vmm_handles, 0u) << "asking keeps no handle";
  FakeSession::free_vmm(exportable, kBlock);
  FakeSession::free_vmm(closed, 2 * kBlock);
}

ISOLATED_TEST(DescribeGpu, Pool) {
  FakeSession session;
  session.start();
  CUdeviceptr address = 0;
  ASSERT_EQ(CUDA(cuMemAllocAsync)(&address, 5000, nullptr), CUDA_SUCCESS);
  const PointerInfo info = described(address + 1);
  EXPECT_EQ(info.kind, MemoryKind::device_pool);
  expect_range(info, address, 5000, 1);
  EXPECT_FALSE(info.is_exportable);
  CUDA(cuMemFreeAsync)(address, nullptr);
}

ISOLATED_TEST(DescribeGpu, Managed) {
  FakeSession session;
  session.start();
  CUdeviceptr address = 0;
  ASSERT_EQ(CUDA(cuMemAllocManaged)(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(described(address + 1).kind, MemoryKind::managed);
  expect_range(described(address + 1), address, 5000, 1);
  CUDA(cuMemFree)(address);
}

ISOLATED_TEST(DescribeGpu, PinnedHost) {
  FakeSession session;
  session.start();
  void* allocated = nullptr;
  ASSERT_EQ(CUDA(cuMemHostAlloc)(&allocated, 5000, 0), CUDA_SUCCESS);
  const PointerInfo info = *describe(static_cast<char*>(allocated) + 4999);
  EXPECT_EQ(info.kind, MemoryKind::host_pinned);
  EXPECT_EQ(info.length_bytes, 5000u);
  EXPECT_EQ(info.offset_bytes, 4999u);
  EXPECT_EQ(info.device, -1);
  CUDA(cuMemFreeHost)(allocated);

  std::vector<char> mine(8192);
  EXPECT_EQ(describe(mine.data())->kind, MemoryKind::host_pageable);
  ASSERT_EQ(CUDA(cuMemHostRegister)(mine.data(), mine.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(describe(mine.data())->kind, MemoryKind::host_pinned);
  CUDA(cuMemHostUnregister)(mine.data());
  EXPECT_EQ(describe(mine.data())->kind, MemoryKind::host_pageable);
}

ISOLATED_TEST(DescribeGpu, HostMemoryOfTheLibraryIsKnownToCuda) {
  FakeSession session;
  session.start();
  {
    const auto memory = HostMemory::allocate(10000);
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_TRUE(memory->is_pinned());
    EXPECT_EQ(FakeSession::counts().host_registrations, 1u);
    EXPECT_EQ(describe(memory->address())->kind, MemoryKind::host_pinned);
  }
  EXPECT_EQ(FakeSession::counts().host_registrations, 0u);
}

ISOLATED_TEST(DescribeGpu, FreedAndReusedAddresses) {
  FakeSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  const std::uint64_t first_id = described(first).buffer_id;
  FakeSession::free(first);
  EXPECT_EQ(described(first).kind, MemoryKind::host_pageable);
  EXPECT_EQ(described(first).length_bytes, 0u);
  const CUdeviceptr second = FakeSession::allocate(kBlock);
  ASSERT_EQ(first, second);
  EXPECT_NE(described(second).buffer_id, first_id);
  FakeSession::free(second);
}

ISOLATED_TEST(DescribeGpu, ADriverThatFailsIsAnError) {
  FakeSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  session.plant(fake::Call::cuda, "cuPointerGetAttributes", CUDA_ERROR_UNKNOWN);
  const auto info = describe(pointer(address));
  EXPECT_EQ(info.status(), Status::device_error);
  EXPECT_EQ(info.error().record().native.code, CUDA_ERROR_UNKNOWN);
  session.remove_faults();
  EXPECT_TRUE(describe(pointer(address)));
  FakeSession::free(address);
}

ISOLATED_TEST(DescribeGpu, LeavesTheContextAndACaptureAlone) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.start(0);
  const CUdeviceptr address = FakeSession::allocate(4096);
  CUcontext before = nullptr, after = nullptr;
  CUDA(cuCtxGetCurrent)(&before);
  session.machine().is_capturing = true;
  described(address);
  {
    const auto memory = DeviceMemory::allocate(1, 4096);
    EXPECT_TRUE(memory) << memory.error().message();
    const auto host = HostMemory::allocate(4096);
    EXPECT_TRUE(host) << host.error().message();
  }
  session.machine().is_capturing = false;
  CUDA(cuCtxGetCurrent)(&after);
  EXPECT_EQ(before, after);
  EXPECT_FALSE(session.machine().was_capture_broken);
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
