// SPDX-License-Identifier: Apache-2.0
// Owned device memory and the copy engine, on a machine with GPUs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "support/expect_log.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

constexpr std::size_t kBlock = std::size_t{2} << 20;

std::uintptr_t address_of(const DeviceMemory& memory) { return reinterpret_cast<std::uintptr_t>(memory.address()); }

ISOLATED_TEST(DeviceMemoryGpu, BothAllocatorsOnEachDevice) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  for (int device = 0; device < 2; ++device) {
    for (const DeviceAllocator allocator : {DeviceAllocator::cuda_malloc, DeviceAllocator::vmm}) {
      const auto memory = DeviceMemory::allocate(device, 5000, allocator);
      ASSERT_TRUE(memory) << memory.error().message();
      EXPECT_EQ(memory->device(), device);
      EXPECT_EQ(memory->bytes(), 5000u);
      EXPECT_FALSE(memory->is_stand_in());
      const auto info = describe(memory->address());
      EXPECT_EQ(info->kind, allocator == DeviceAllocator::vmm ? MemoryKind::device_vmm : MemoryKind::device);
      EXPECT_EQ(info->device, device);
      EXPECT_TRUE(info->is_exportable);
      const auto sent = test::pattern(5000, 1);
      ASSERT_TRUE(engine_copy_to(device, address_of(*memory), sent.data(), sent.size()));
      EXPECT_EQ(FakeSession::read(address_of(*memory), 5000), sent);
    }
  }
}

ISOLATED_TEST(DeviceMemoryGpu, MoreThanFourGiB) {
  FakeSession session;
  session.start();
  const std::size_t bytes = (std::size_t{5} << 30) + 3;
  const auto memory = DeviceMemory::allocate(0, bytes);
  ASSERT_TRUE(memory) << memory.error().message();
  const auto info = describe(static_cast<std::byte*>(memory->address()) + bytes - 1);
  EXPECT_EQ(info->length_bytes, bytes);
  EXPECT_EQ(info->offset_bytes, bytes - 1);
}

ISOLATED_TEST(DeviceMemoryGpu, BadRequestsAreRefused) {
  FakeSession session;
  session.start();
  EXPECT_EQ(DeviceMemory::allocate(0, 0).status(), Status::invalid_argument);
  EXPECT_EQ(DeviceMemory::allocate(1, 4096).status(), Status::invalid_argument);
  EXPECT_EQ(DeviceMemory::allocate(-1, 4096).status(), Status::invalid_argument);
  for (const DeviceAllocator allocator : {DeviceAllocator::cuda_malloc, DeviceAllocator::vmm}) {
    const auto refused = DeviceMemory::allocate(0, std::size_t{40} << 30, allocator);
    EXPECT_EQ(refused.status(), Status::out_of_memory);
    EXPECT_EQ(refused.error().record().native.code, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(refused.error().record().remedy.empty());
  }
}

// Each step of a VMM allocation fails once; nothing may be kept.
ISOLATED_TEST(DeviceMemoryGpu, FailingVmmStepsKeepNothing) {
  FakeSession session;
  session.start();
  for (const char* step : {"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    const fake::Fault& fault = session.plant(fake::Call::cuda, step, CUDA_ERROR_UNKNOWN, 1);
    const auto refused = DeviceMemory::allocate(0, kBlock, DeviceAllocator::vmm);
    EXPECT_EQ(refused.status(), Status::device_error) << step;
    EXPECT_EQ(fault.hits, 1u) << step;
    const fake::Counts counts = FakeSession::counts();
    EXPECT_EQ(counts.vmm_handles + counts.vmm_reservations + counts.device_allocations, 0u) << step;
    EXPECT_EQ(counts.memory_used_bytes[0], 0u) << step;
    session.remove_faults();
  }
  EXPECT_TRUE(DeviceMemory::allocate(0, kBlock, DeviceAllocator::vmm));
}

ISOLATED_TEST(DeviceMemoryGpu, Exports) {
  FakeSession session;
  session.start();
  const auto vmm = DeviceMemory::allocate(0, kBlock, DeviceAllocator::vmm);
  const auto plain = DeviceMemory::allocate(0, 5000);
  const auto descriptor = vmm->export_descriptor();
  ASSERT_TRUE(descriptor) << descriptor.error().message();
  EXPECT_EQ(FakeSession::counts().exports, 1u);
  EXPECT_EQ(FakeSession::counts().vmm_handles, 0u);
  ::close(*descriptor);
  const auto refused = plain->export_descriptor();
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.error().record().remedy.find("export_dma_buf"), std::string::npos);
  for (const auto* memory : {&*vmm, &*plain}) {
    const auto dma_buf = memory->export_dma_buf();
    ASSERT_TRUE(dma_buf) << dma_buf.error().message();
    EXPECT_EQ(FakeSession::counts().dma_bufs, 1u);
    ::close(*dma_buf);
  }
}

ISOLATED_TEST(DeviceMemoryGpu, ExportsThatTheDriverCannotMake) {
  FakeSession session;
  session.machine().dma_buf_supported = 0;
  session.start();
  const auto memory = DeviceMemory::allocate(0, kBlock);
  const auto refused = memory->export_dma_buf();
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_FALSE(refused.error().record().remedy.empty());
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
ISOLATED_TEST(DeviceMemoryGpu, ExportWithoutDescriptorsLeft) {
  FakeSession session;
  session.start();
  const auto plain = DeviceMemory::allocate(0, kBlock);
  const auto vmm = DeviceMemory::allocate(0, kBlock, DeviceAllocator::vmm);
  EXPECT_EQ(test::without_descriptors([&] { return plain->export_dma_buf(); }).status(), Status::out_of_descriptors);
  EXPECT_EQ(test::without_descriptors([&] { return vmm->export_descriptor(); }).status(), Status::out_of_descriptors);
}
#endif

ISOLATED_TEST(CopyEngineGpu, WaitsUntilTheBytesHaveArrived) {
  FakeSession session;
  session.start();
  const auto memory = DeviceMemory::allocate(0, kBlock);
  const std::uintptr_t address = address_of(*memory);
  // The machine delays every copy until somebody waits for it; pageable and pinned, small and large.
  void* pinned = nullptr;
  CUDA(cuMemHostAlloc)(&pinned, kBlock, 0);
  std::vector<unsigned char> pageable(kBlock);
  for (unsigned char* host : {static_cast<unsigned char*>(pinned), pageable.data()}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{64}, std::size_t{65}, std::size_t{4096}, kBlock}) {
      const auto sent = test::pattern(bytes, static_cast<unsigned>(bytes));
      std::memcpy(host, sent.data(), bytes);
      ASSERT_TRUE(engine_copy_to(0, address, host, bytes));
      std::memset(host, 0, bytes);  // the source may be used again at once
      ASSERT_TRUE(engine_copy_from(0, host, address, bytes));
      EXPECT_EQ(std::memcmp(host, sent.data(), bytes), 0) << bytes;
    }
  }
  CUDA(cuMemFreeHost)(pinned);
}

ISOLATED_TEST(CopyEngineGpu, FailuresAreDeviceErrors) {
  FakeSession session;
  session.start();
  const auto memory = DeviceMemory::allocate(0, 4096);
  int value = 0;
  for (const char* step : {"cuMemHostRegister", "cuStreamCreate", "cuMemcpyDtoHAsync", "cuStreamQuery"}) {
    const fake::Fault& fault = session.plant(fake::Call::cuda, step, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
    const Result<void> copied = engine_copy_from(0, &value, address_of(*memory), sizeof value);
    EXPECT_EQ(copied.status(), Status::device_error) << step;
    EXPECT_EQ(copied.record().native.code, CUDA_ERROR_ILLEGAL_ADDRESS) << step;
    EXPECT_EQ(fault.hits, 1u) << step;
    session.remove_faults();
  }
  EXPECT_TRUE(engine_copy_from(0, &value, address_of(*memory), sizeof value));
  EXPECT_FALSE(engine_copy_from(3, &value, address_of(*memory), sizeof value)) << "no such device";
}

// A stream is used again as soon as what it was given is over, and only so many can be at work for ever.
ISOLATED_TEST(CopyEngineGpu, FailuresTakeNoMoreThanTheyMust) {
  FakeSession session;
  session.start();
  const auto memory = DeviceMemory::allocate(0, 4096);
  int value = 0;
  const auto copy = [&] { return engine_copy_from(0, &value, address_of(*memory), sizeof value); };
  ASSERT_TRUE(copy());
  const fake::Counts before = FakeSession::counts();
  const auto fail_often = [&](const char* step) {
    session.plant(fake::Call::cuda, step, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int turn = 0; turn < 40; ++turn) EXPECT_EQ(copy().status(), Status::device_error) << step;
    session.remove_faults();
  };
  fail_often("cuMemcpyDtoHAsync");
  EXPECT_EQ(FakeSession::counts().streams, before.streams);
  EXPECT_EQ(FakeSession::counts().host_registrations, before.host_registrations);
  fail_often("cuStreamQuery");
  const fake::Counts most = FakeSession::counts();
  EXPECT_LE(most.streams, before.streams + 16);
  EXPECT_LE(most.host_registrations, before.host_registrations + 16);
  fail_often("cuMemcpyDtoHAsync");
  EXPECT_TRUE(copy()) << "those that had failed are over";
  EXPECT_EQ(FakeSession::counts().streams, most.streams);
}

ISOLATED_TEST(CopyEngineGpu, ManyThreadsAtOnce) {
  FakeSession session;
  session.start();
  const auto memory = DeviceMemory::allocate(0, kBlock);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      const std::uintptr_t place = address_of(*memory) + id * 4096;
      for (unsigned turn = 0; turn < 100; ++turn) {
        const auto sent = test::pattern(32 + turn * 8, id * 1000 + turn);
        std::vector<unsigned char> got(sent.size());
        if (!engine_copy_to(0, place, sent.data(), sent.size()) || !engine_copy_from(0, got.data(), place, got.size()) ||
            got != sent)
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

ISOLATED_TEST(DeviceMemoryGpu, AFailureToFreeIsLogged) {
  FakeSession session;
  session.start();
  void* address = nullptr;
  {
    const auto memory = DeviceMemory::allocate(0, 4096);
    address = memory->address();
    session.plant(fake::Call::cuda, "cuMemFree", CUDA_ERROR_UNKNOWN, 1);
  }
  const std::vector<std::string> lines = test::take_log();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("CUDA_ERROR_UNKNOWN"), std::string::npos) << lines[0];
  FakeSession::free(reinterpret_cast<CUdeviceptr>(address));
}

}  // namespace
}  // namespace gigabar
