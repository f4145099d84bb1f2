// SPDX-License-Identifier: Apache-2.0
// Each backend maps what it can map, at every offset and length, and shows that memory and no other.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "mapping/access.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::expect_shows_memory;
using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBlock = 2 * kMiB;

constexpr MappingBackend kGpuBackends[] = {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm};

ISOLATED_TEST(Backends, SmallSharedBlockLargeAndVmm) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  for (const MappingBackend backend : kGpuBackends) {
    FakeSession::allocate(100);
    const CUdeviceptr small = FakeSession::allocate(5000);
    const CUdeviceptr large = FakeSession::allocate(3 * kBlock + 4097);
    const CUdeviceptr vmm = FakeSession::allocate_vmm(0, 2 * kBlock, true);
    for (const auto& [address, bytes] : {std::pair{small, std::size_t{5000}}, {large, 3 * kBlock + 4097}, {vmm, 2 * kBlock}}) {
      const Mapping mapping = must_map(address, bytes, require(backend));
      EXPECT_EQ(mapping.backend(), backend);
      EXPECT_EQ(mapping.type(), MappingType::write_combined);
      EXPECT_EQ(mapping.device(), 0);
      EXPECT_FALSE(mapping.is_stand_in());
      expect_shows_memory(mapping, static_cast<unsigned>(backend));
    }
    FakeSession::free(small);
    FakeSession::free(large);
    FakeSession::free_vmm(vmm, 2 * kBlock);
    FakeSession::free(small - 512);
    trim_mapping_cache(0);
  }
}

ISOLATED_TEST(Backends, EveryOffsetAndLength) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  for (const MappingBackend backend : kGpuBackends) {
    const CUdeviceptr address = FakeSession::allocate(kBlock + 12345);
    const std::vector<unsigned char> before = FakeSession::read(address, kBlock + 12345);
    for (const std::size_t offset : {0ul, 1ul, 7ul, 63ul, 4095ul, 4096ul, 65535ul, 65537ul, kBlock - 1, kBlock, kBlock + 12344}) {
      for (const std::size_t bytes : {1ul, 8ul, 4096ul, 65536ul, kBlock}) {
        if (bytes > kBlock + 12345 - offset) continue;
        const Mapping mapping = must_map(address + offset, bytes, require(backend));
        std::memset(mapping.address(), 0xa5, bytes);
        EXPECT_EQ(FakeSession::read(address + offset, bytes), std::vector<unsigned char>(bytes, 0xa5));
        std::memset(mapping.address(), 0, bytes);
      }
    }
    EXPECT_EQ(FakeSession::read(address, kBlock + 12345), before) << "nothing else was touched";
    FakeSession::free(address);
    trim_mapping_cache(0);
  }
}

ISOLATED_TEST(Backends, AllocationsAboveFourGiBAreMappedInPart) {
  MappingSession session;
  session.have_all_backends();
  session.machine().gpus[0].bar1_bytes = 64 * kMiB;  // far too small for all of it
  session.start();
  const std::size_t bytes = (std::size_t{5} << 30) + 4096;
  for (const MappingBackend backend : kGpuBackends) {
    const CUdeviceptr address = FakeSession::allocate(bytes);
    for (const std::size_t offset : {std::size_t{0}, (std::size_t{4} << 30) - 10, bytes - 1000}) {
      expect_shows_memory(must_map(address + offset, 1000, require(backend)), 3);
    }
    FakeSession::free(address);
    trim_mapping_cache(0);
  }
}

ISOLATED_TEST(Backends, PoolMemoryThroughThoseThatCan) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  CUdeviceptr address = 0;
  CUDA(cuMemAllocAsync)(&address, 100000, nullptr);
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv}) {
    expect_shows_memory(must_map(address + 3, 9999, require(backend)), 1);
  }
  EXPECT_EQ(map(pointer(address), 1, require(MappingBackend::rm)).status(), Status::not_supported);
  trim_mapping_cache(0);
  CUDA(cuMemFreeAsync)(address, nullptr);
}

ISOLATED_TEST(Backends, PinnedHostMemoryOnAGpuMachine) {
  MappingSession session;
  session.start();
  void* host = nullptr;
  CUDA(cuMemHostAlloc)(&host, 5000, 0);
  const auto mapping = map(static_cast<char*>(host) + 1, 4999);
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->backend(), MappingBackend::host);
  EXPECT_EQ(mapping->type(), MappingType::cached);
  EXPECT_EQ(mapping->address(), static_cast<std::byte*>(host) + 1);
  CUDA(cuMemFreeHost)(host);
}

ISOLATED_TEST(Backends, TwoGpusInEveryOrderOfMinorsAndInstances) {
  for (unsigned order = 0; order < 4; ++order) {
    const test::ChildEnd end = test::run_in_child([&] {
      {
        MappingSession session;
        session.machine().gpu_count = 2;
        for (unsigned gpu = 0; gpu < 2; ++gpu) {
          fake::Gpu& told = session.machine().gpus[gpu];
          told.minor = told.told_proc_minor = gpu ^ (order & 1);
          told.device_instance = told.told_instance = gpu ^ (order >> 1);
        }
        session.start();
        for (int device = 0; device < 2; ++device) {
          const auto memory = DeviceMemory::allocate(device, kBlock);
          const auto other = DeviceMemory::allocate(1 - device, kBlock);
          const auto address = reinterpret_cast<CUdeviceptr>(memory->address());
          const Mapping mapping = must_map(address, kBlock);
          EXPECT_EQ(mapping.backend(), MappingBackend::rm);
          EXPECT_EQ(mapping.device(), device);
          expect_shows_memory(mapping, order * 2 + static_cast<unsigned>(device));
          const auto untouched = FakeSession::read(reinterpret_cast<CUdeviceptr>(other->address()), kBlock);
          EXPECT_EQ(untouched, std::vector<unsigned char>(kBlock)) << "the other GPU's memory";
        }
      }
      return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_TRUE(end.is_exit(0)) << "order " << order << ": " << end.to_string();
  }
}

// Every branch that the resource manager code knows, and one from the future.
ISOLATED_TEST(Backends, RmWithEveryDriverBranch) {
  for (const char* version : {"515.43.04", "525.60.13", "535.54.03", "580.159.04", "595.45.04", "610.43.02", "999.1"}) {
    const test::ChildEnd end = test::run_in_child([&] {
      {
        MappingSession session;
        std::snprintf(session.machine().driver_version, sizeof session.machine().driver_version, "%s", version);
        session.start();
        const CUdeviceptr address = FakeSession::allocate(4096);
        expect_shows_memory(must_map(address, 4096, require(MappingBackend::rm)), 1);
        FakeSession::free(address);
      }
      return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_TRUE(end.is_exit(0)) << version << ": " << end.to_string();
  }
}

ISOLATED_TEST(Backends, PagesAroundASmallAllocation) {
  MappingSession session;
  session.start();
  FakeSession::allocate(1000);
  const CUdeviceptr address = FakeSession::allocate(1000);
  const auto mapping = map_pages(pointer(address), 1000, 65536, {});
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->device_address() % 65536, 0u);
  EXPECT_EQ(mapping->bytes(), 65536u);
  const std::size_t offset = address - mapping->device_address();
  const auto sent = test::pattern(1000, 4);
  std::memcpy(mapping->address() + offset, sent.data(), sent.size());
  EXPECT_EQ(FakeSession::read(address, 1000), sent);
  FakeSession::free(address);
  FakeSession::free(address - 1024);
}

ISOLATED_TEST(Backends, LeaveTheContextAndACaptureAlone) {
  MappingSession session;
  session.have_all_backends();
  session.machine().gpu_count = 2;
  session.start(1);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  CUcontext before = nullptr, after = nullptr;
  CUDA(cuCtxGetCurrent)(&before);
  session.machine().is_capturing = true;
  for (const MappingBackend backend : kGpuBackends) must_map(address, 100, require(backend));
  CUDA(cuCtxGetCurrent)(&after);
  session.machine().is_capturing = false;
  EXPECT_EQ(before, after);
  EXPECT_FALSE(session.machine().was_capture_broken);
  FakeSession::free(address);
}

ISOLATED_TEST(Backends, WorkWithoutACurrentContext) {
  MappingSession session;
  session.start();
  const auto memory = DeviceMemory::allocate(0, 4096);
  CUcontext popped = nullptr;
  CUDA(cuCtxPopCurrent)(&popped);
  EXPECT_TRUE(map(memory->address(), 4096));
  CUcontext current = nullptr;
  CUDA(cuCtxGetCurrent)(&current);
  EXPECT_EQ(current, nullptr);
  CUDA(cuCtxPushCurrent)(popped);
}

}  // namespace
}  // namespace gigabar
