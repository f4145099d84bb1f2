// SPDX-License-Identifier: Apache-2.0
// gdrapi.h over the fake GPU machine: every backend, what memory is refused with which code, and drivers that are missing or fail.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "copy/readback/readback.hpp"
#include "gdrapi.h"
#include "gigabar/mapping.hpp"
#include "support/expect_log.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kBlock = std::size_t{2} << 20;

// An open session on a machine that the test has set up; leaves nothing behind in the machine.
class Gdr {
 public:
  Gdr() : g(gdr_open()) { EXPECT_NE(g, nullptr); }
  Gdr(const Gdr&) = delete;
  Gdr& operator=(const Gdr&) = delete;
  ~Gdr() {
    EXPECT_EQ(gdr_close(g), 0);
    trim_mapping_cache(0);
  }

  int attribute(gdr_attr_t name) const {
    int value = -1;
    EXPECT_EQ(gdr_get_attribute(g, name, &value), 0);
    return value;
  }
  int pin_code(CUdeviceptr address, std::size_t bytes, std::uint32_t flags = 0) const {
    gdr_mh_t handle = {0};
    const int code = gdr_pin_buffer_v2(g, address, bytes, flags, &handle);
    if (code == 0) {
      EXPECT_EQ(gdr_unpin_buffer(g, handle), 0);
    }
    return code;
  }

  gdr_t g;
};

// Pins and maps [address, +bytes), copies through it and compares with what the GPU has.
void expect_works(const Gdr& gdr, CUdeviceptr address, std::size_t bytes, unsigned long pinned_address, std::size_t pinned_bytes,
                  std::size_t mapped_bytes, gdr_mapping_type_t type = GDR_MAPPING_TYPE_WC) {
  SCOPED_TRACE(testing::Message() << std::hex << pinned_address << " +" << pinned_bytes);
  gdr_mh_t handle = {0};
  ASSERT_EQ(gdr_pin_buffer(gdr.g, pinned_address, pinned_bytes, 0, 0, &handle), 0);
  void* va = nullptr;
  ASSERT_EQ(gdr_map(gdr.g, handle, &va, mapped_bytes), 0);
  gdr_info_t info = {};
  ASSERT_EQ(gdr_get_info(gdr.g, handle, &info), 0);
  EXPECT_LE(info.va, address);
  EXPECT_GE(info.va + info.mapped_size, address + bytes);
  EXPECT_EQ(info.mapping_type, type);
  EXPECT_EQ(info.wc_mapping, type == GDR_MAPPING_TYPE_WC ? 1U : 0U);
  char* const place = static_cast<char*>(va) + (address - info.va);
  const auto data = pattern(bytes, static_cast<unsigned>(bytes));
  EXPECT_EQ(gdr_copy_to_mapping(handle, place, data.data(), bytes), 0);
  EXPECT_EQ(FakeSession::read(address, bytes), data);
  std::vector<unsigned char> back(bytes);
  EXPECT_EQ(gdr_copy_from_mapping(handle, back.data(), place, bytes), 0);
  EXPECT_EQ(back, data);
  EXPECT_EQ(gdr_unmap(gdr.g, handle, va, mapped_bytes), 0);
  EXPECT_EQ(gdr_unpin_buffer(gdr.g, handle), 0);
}

// What every backend must do with cudaMalloc memory.
void expect_whole_flow() {
  const CUdeviceptr large = FakeSession::allocate(3 * kBlock);
  const CUdeviceptr small = FakeSession::allocate(1000);
  const CUdeviceptr neighbour = FakeSession::allocate(70000);
  {
    const Gdr gdr;
    expect_works(gdr, large, 3 * kBlock, large, 3 * kBlock, 3 * kBlock);
    expect_works(gdr, large + 12345, 777, large + 12345, 777, 777);
    expect_works(gdr, small, 1000, small, 1000, 1000);
    expect_works(gdr, neighbour, 70000, neighbour, 70000, 70000);
    // Rounded to GPU pages by the caller, which begins before and ends behind the allocation.
    for (const auto& [address, bytes] : {std::pair{small, std::size_t{1000}}, std::pair{neighbour, std::size_t{70000}}}) {
      const unsigned long first = address & GPU_PAGE_MASK;
      const std::size_t rounded = ((address + bytes + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - first;
      expect_works(gdr, address, bytes, first, rounded, rounded);
    }
  }
  for (const CUdeviceptr address : {large, small, neighbour}) FakeSession::free(address);
}

ISOLATED_TEST(GdrFakes, ResourceManager) {
  FakeSession session;
  session.start();
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.attribute(GDR_ATTR_USING_DMA_BUF_MMAP), 0);
    EXPECT_EQ(gdr.attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 1);
  }
  expect_whole_flow();
  EXPECT_GT(FakeSession::counts().total_rm_maps, 0U);
}

ISOLATED_TEST(GdrFakes, KernelModule) {
  FakeSession session;
  session.machine().has_gdrdrv = true;
  session.start();
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.attribute(GDR_ATTR_USING_DMA_BUF_MMAP), 0);
  }
  expect_whole_flow();
  EXPECT_GT(FakeSession::counts().total_gdrdrv_pins, 0U);
}

void make_dma_buf_mappable(fake::Machine& machine) {
  machine.cuda_version = 13030;
  machine.dma_buf_mmap_supported = 1;
  machine.is_dma_buf_mappable = true;
}

ISOLATED_TEST(GdrFakes, DmaBuf) {
  FakeSession session;
  make_dma_buf_mappable(session.machine());
  session.start();
  const ScopedEnvironment required("GDRCOPY_USE_DMABUF_MMAP", "1");
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.attribute(GDR_ATTR_USING_DMA_BUF_MMAP), 1);
  }
  expect_whole_flow();
  EXPECT_GT(FakeSession::counts().total_dma_bufs, 0U);
  EXPECT_EQ(FakeSession::counts().total_rm_maps, 0U);
}

ISOLATED_TEST(GdrFakes, AnotherBackendCanBeRequired) {
  FakeSession session;
  make_dma_buf_mappable(session.machine());
  session.start();
  const ScopedEnvironment required("GIGABAR_MAPPING", "rm");
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.attribute(GDR_ATTR_USING_DMA_BUF_MMAP), 0);
  }
  expect_whole_flow();
  EXPECT_EQ(FakeSession::counts().total_dma_bufs, 0U);
}

ISOLATED_TEST(GdrFakes, RequiredDmaBufIsNotReplaced) {
  FakeSession session;
  session.machine().has_gdrdrv = true;
  session.start();
  const ScopedEnvironment required("GDRCOPY_USE_DMABUF_MMAP", "1");
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr);
  EXPECT_EQ(errno, ENODEV);
}

ISOLATED_TEST(GdrFakes, ForcePcieIsWhatThereIs) {
  FakeSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(kBlock);
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.pin_code(memory, kBlock, GDR_PIN_FLAG_FORCE_PCIE), 0);
    EXPECT_EQ(gdr.pin_code(memory, kBlock, 2), EINVAL);
  }
  FakeSession::free(memory);
}

// The CPU's accesses to a coherent GPU go through its caches, not over PCIe.
ISOLATED_TEST(GdrFakes, ForcePcieIsRefusedByACoherentGpu) {
  FakeSession session;
  make_dma_buf_mappable(session.machine());
  session.machine().is_coherent = true;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(kBlock);
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 0);
    EXPECT_EQ(gdr.pin_code(memory, kBlock, GDR_PIN_FLAG_FORCE_PCIE), EINVAL);
    expect_works(gdr, memory, kBlock, memory, kBlock, kBlock, GDR_MAPPING_TYPE_CACHING);
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(GdrFakes, RequestedType) {
  FakeSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(kBlock);
  {
    const Gdr gdr;
    gdr_mh_t handle = {0};
    ASSERT_EQ(gdr_pin_buffer(gdr.g, memory, kBlock, 0, 0, &handle), 0);
    void* va = nullptr;
    EXPECT_EQ(gdr_map_v2(gdr.g, handle, &va, kBlock, GDR_MAP_FLAG_REQ_CACHE_MAPPING), EOPNOTSUPP);
    EXPECT_EQ(gdr_map_v2(gdr.g, handle, &va, kBlock, GDR_MAP_FLAG_REQ_DEVICE_MAPPING), EOPNOTSUPP);
    EXPECT_EQ(gdr_map_v2(gdr.g, handle, &va, kBlock, GDR_MAP_FLAG_REQ_WC_MAPPING), 0);
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(GdrFakes, RefusesOtherMemory) {
  FakeSession session;
  session.start();
  CUdeviceptr managed = 0;
  ASSERT_EQ(CUDA(cuMemAllocManaged)(&managed, kBlock, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  void* pinned = nullptr;
  ASSERT_EQ(CUDA(cuMemHostAlloc)(&pinned, kBlock, 0), CUDA_SUCCESS);
  const CUdeviceptr closed_vmm = FakeSession::allocate_vmm(0, kBlock, false);
  const CUdeviceptr open_vmm = FakeSession::allocate_vmm(0, kBlock, true);
  const CUdeviceptr freed = FakeSession::allocate(kBlock);
  FakeSession::free(freed);
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.pin_code(managed, kBlock), EINVAL);
    EXPECT_EQ(gdr.pin_code(reinterpret_cast<CUdeviceptr>(pinned), kBlock), EINVAL);
    EXPECT_EQ(gdr.pin_code(closed_vmm, kBlock), EINVAL);
    EXPECT_EQ(gdr.pin_code(freed, kBlock), EINVAL);
    EXPECT_EQ(gdr.pin_code(open_vmm, kBlock + 1), EINVAL);
    EXPECT_EQ(gdr.pin_code(open_vmm, kBlock), 0);
  }
  FakeSession::free_vmm(closed_vmm, kBlock);
  FakeSession::free_vmm(open_vmm, kBlock);
  EXPECT_EQ(CUDA(cuMemFree)(managed), CUDA_SUCCESS);
  EXPECT_EQ(CUDA(cuMemFreeHost)(pinned), CUDA_SUCCESS);
}

ISOLATED_TEST(GdrFakes, StandInMemoryIsNotGpuMemory) {
  FakeSession session;
  session.start();
  {
    const ScopedEnvironment stand_ins("GIGABAR_STAND_IN", "1");
    const auto memory = DeviceMemory::allocate(0, kBlock);
    ASSERT_TRUE(memory);
    ::unsetenv("GIGABAR_STAND_IN");
    const Gdr gdr;
    EXPECT_EQ(gdr.pin_code(reinterpret_cast<CUdeviceptr>(memory->address()), kBlock), EINVAL);
  }
}

ISOLATED_TEST(GdrFakes, FreedMemoryStaysAndItsAddressCanBePinnedAnew) {
  FakeSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock);
  CUdeviceptr second = 0;
  {
    const Gdr gdr;
    gdr_mh_t handle = {0};
    void* va = nullptr;
    ASSERT_EQ(gdr_pin_buffer(gdr.g, first, kBlock, 0, 0, &handle), 0);
    ASSERT_EQ(gdr_map(gdr.g, handle, &va, kBlock), 0);
    FakeSession::free(first);
    second = FakeSession::allocate(kBlock);
    ASSERT_EQ(second, first) << "the machine reuses addresses at once";
    const auto data = pattern(4096, 5);
    std::vector<unsigned char> zero(4096, 0);
    FakeSession::write(second, zero.data(), zero.size());
    EXPECT_EQ(gdr_copy_to_mapping(handle, va, data.data(), data.size()), 0);
    EXPECT_EQ(FakeSession::read(second, zero.size()), zero) << "the old mapping reached the new memory";
    expect_works(gdr, second, kBlock, second, kBlock, kBlock);
    int flag = 7;
    EXPECT_EQ(gdr_get_callback_flag(gdr.g, handle, &flag), 0);
    EXPECT_EQ(flag, 0);
  }
  FakeSession::free(second);
}

ISOLATED_TEST(GdrFakes, ExhaustedBar1AndDescriptors) {
  FakeSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(kBlock);
  {
    const Gdr gdr;
    EXPECT_EQ(gdr.pin_code(memory, kBlock), 0);
    trim_mapping_cache(0);
    session.plant_ioctl(0x4E, 0, 0, session.machine().bar1_status);
    EXPECT_EQ(gdr.pin_code(memory, kBlock), ENOMEM);
    session.remove_faults();
    session.plant(fake::Call::open, "/dev/nvidia", EMFILE);
    EXPECT_EQ(gdr.pin_code(memory, kBlock), EMFILE);
    session.remove_faults();
    EXPECT_EQ(gdr.pin_code(memory, kBlock), 0) << "nothing of the failures remains";
  }
  FakeSession::free(memory);
}

ISOLATED_TEST(GdrFakes, AWindowThatShowsOtherMemoryIsNeverHandedOut) {
  FakeSession session;
  session.start();
  const CUdeviceptr memory = FakeSession::allocate(kBlock);
  const auto data = pattern(kBlock, 8);
  FakeSession::write(memory, data.data(), data.size());
  {
    const Gdr gdr;
    session.machine().is_rm_window_wrong = true;
    EXPECT_EQ(gdr.pin_code(memory, kBlock), EIO);
    session.machine().is_rm_window_wrong = false;
  }
  take_log();
  FakeSession::free(memory);
}

ISOLATED_TEST(GdrFakes, DeviceFilesWithoutPermission) {
  FakeSession session;
  session.start();
  session.plant(fake::Call::open, "/dev/nvidia", EACCES);
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr);
  EXPECT_EQ(errno, EACCES);
}

ISOLATED_TEST(GdrFakes, NoLibrary) {
  FakeSession session;
  session.start();
  const ScopedEnvironment missing("GIGABAR_CUDA_LIBRARY", (session.folder() + "/libcuda.so.1").c_str());
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr) << "a stand-in was used without being asked for";
  EXPECT_EQ(errno, ENODEV);
}

ISOLATED_TEST(GdrFakes, NoDevice) {
  FakeSession session;
  session.machine().gpu_count = 0;
  session.start();
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr);
  EXPECT_EQ(errno, ENODEV);
}

ISOLATED_TEST(GdrFakes, DriverThatFails) {
  FakeSession session;
  session.start();
  session.plant(fake::Call::cuda, "cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr);
  EXPECT_EQ(errno, EIO);
}

ISOLATED_TEST(GdrFakes, TwoGpus) {
  FakeSession session;
  session.machine().gpu_count = 2;
  std::swap(session.machine().gpus[0].minor, session.machine().gpus[1].minor);
  std::swap(session.machine().gpus[0].told_proc_minor, session.machine().gpus[1].told_proc_minor);
  session.start();
  const CUdeviceptr first = FakeSession::allocate_vmm(0, kBlock, true);
  const CUdeviceptr second = FakeSession::allocate_vmm(1, kBlock, true);
  {
    const Gdr gdr;
    expect_works(gdr, first, kBlock, first, kBlock, kBlock);
    expect_works(gdr, second, kBlock, second, kBlock, kBlock);
  }
  FakeSession::free_vmm(first, kBlock);
  FakeSession::free_vmm(second, kBlock);
}

// The first read opens the kernel where it may be used, which launches it.
void expect_reads(const char* wish, bool is_by_kernel) {
  const ScopedEnvironment asked("GIGABAR_READBACK_KERNEL", wish);
  FakeSession session;
  session.machine().runs_kernels = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto content = pattern(kBlock, 4);
  FakeSession::write(address, content.data(), kBlock);
  {
    const Gdr gdr;
    gdr_mh_t handle = {0};
    void* va = nullptr;
    ASSERT_EQ(gdr_pin_buffer(gdr.g, address, kBlock, 0, 0, &handle), 0);
    ASSERT_EQ(gdr_map(gdr.g, handle, &va, kBlock), 0);
    std::vector<unsigned char> got(8192);
    const auto is_right = [&] {
      EXPECT_EQ(gdr_copy_from_mapping(handle, got.data(), va, got.size()), 0);
      return std::equal(got.begin(), got.end(), content.begin());
    };
    EXPECT_EQ(FakeSession::counts().total_launches, 0U);
    for (unsigned i = 0; i < 100; ++i) EXPECT_TRUE(is_right());
    EXPECT_EQ(FakeSession::counts().total_launches > 0, is_by_kernel) << wish;
    EXPECT_EQ(gdr_unpin_buffer(gdr.g, handle), 0);
  }
  EXPECT_EQ(take_log().size(), wish[0] == '1' && !is_by_kernel ? 1U : 0U) << "a build without device code says so";
  FakeSession::free(address);
  if (is_by_kernel) session.expect_kept_mapping();
}

ISOLATED_TEST(GdrFakes, ReadsByTheReadbackKernelWhereTheUserAsksForIt) { expect_reads("1", readback_kernel_image() != nullptr); }

ISOLATED_TEST(GdrFakes, ReadsByTheCpuOtherwise) { expect_reads("0", false); }

}  // namespace
}  // namespace gigabar::test
