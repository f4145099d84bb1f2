// SPDX-License-Identifier: Apache-2.0
// What cannot be mapped is refused with its own reason; each refusal stands beside something like it that works.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

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

constexpr std::size_t kBlock = std::size_t{2} << 20;

void expect_refused(const Result<Mapping>& mapping, Status status, const char* reason_part) {
  ASSERT_FALSE(mapping);
  EXPECT_EQ(name_of(mapping.status()), name_of(status)) << mapping.error().message();
  EXPECT_NE(mapping.error().message().find(reason_part), std::string::npos) << mapping.error().message();
  EXPECT_EQ(mapping.error().message().find('\n'), std::string::npos);
}

ISOLATED_TEST(Refusals, ManagedMemory) {
  MappingSession session;
  session.start();
  CUdeviceptr address = 0;
  CUDA(cuMemAllocManaged)(&address, 4096, CU_MEM_ATTACH_GLOBAL);
  expect_refused(map(pointer(address), 4096), Status::not_supported, "managed");
  CUDA(cuMemFree)(address);
}

ISOLATED_TEST(Refusals, PageableHostMemory) {
  MappingSession session;
  session.start();
  std::vector<char> host(4096);
  expect_refused(map(host.data(), 4096), Status::not_supported, "host memory");
  CUDA(cuMemHostRegister)(host.data(), host.size(), 0);
  EXPECT_TRUE(map(host.data(), 4096)) << "pinned, it works";
  CUDA(cuMemHostUnregister)(host.data());
  expect_refused(map(host.data(), 4096), Status::not_supported, "host memory");
}

ISOLATED_TEST(Refusals, VmmMemoryThatIsNotExportable) {
  MappingSession session;
  session.start();
  const CUdeviceptr closed = FakeSession::allocate_vmm(0, kBlock, false);
  const CUdeviceptr open = FakeSession::allocate_vmm(0, kBlock, true);
  const auto refused = map(pointer(closed), kBlock);
  expect_refused(refused, Status::not_supported, "POSIX");
  EXPECT_NE(refused.error().message().find("requestedHandleTypes"), std::string::npos) << refused.error().message();
  expect_shows_memory(must_map(open, kBlock), 1);
  FakeSession::free_vmm(closed, kBlock);
  FakeSession::free_vmm(open, kBlock);
}

ISOLATED_TEST(Refusals, PoolMemory) {
  MappingSession session;
  session.start();
  CUdeviceptr pool = 0;
  CUDA(cuMemAllocAsync)(&pool, 4096, nullptr);
  expect_refused(map(pointer(pool), 4096), Status::not_supported, "pool");
  CUDA(cuMemFreeAsync)(pool, nullptr);
}

ISOLATED_TEST(Refusals, NullZeroAndRanges) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(5000);
  expect_refused(map(nullptr, 1), Status::invalid_argument, "null");
  expect_refused(map(pointer(address), 0), Status::invalid_argument, "0");
  expect_refused(map(pointer(address), 5001), Status::out_of_range, "5000");
  expect_refused(map(pointer(address + 4999), 2), Status::out_of_range, "map at most 1 byte from");
  expect_refused(map(pointer(address + 1), SIZE_MAX), Status::out_of_range, "allocation");
  expect_refused(map(pointer(address), SIZE_MAX - address + 1), Status::out_of_range, "allocation");
  EXPECT_TRUE(map(pointer(address + 4999), 1));
  EXPECT_TRUE(map(pointer(address), 5000));
  FakeSession::free(address);
}

ISOLATED_TEST(Refusals, MemoryOfNobody) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  EXPECT_TRUE(map(pointer(address), 1));
  trim_mapping_cache(0);  // what verified the device may lie behind it
  expect_refused(map(pointer(address + kBlock), 1), Status::invalid_argument, "no memory of this process");
  FakeSession::free(address);
  expect_refused(map(pointer(address), 1), Status::invalid_argument, "freed");
  // An address that means something in another process only.
  expect_refused(map(reinterpret_cast<void*>(0x7fff'dead'0000), 4096), Status::invalid_argument, "another process");
}

// The IPC identity is not documented: whatever does not look as it should is refused, never used.
ISOLATED_TEST(Refusals, AnIdentityInAnotherOrder) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  EXPECT_TRUE(map(pointer(address), 4096));
  trim_mapping_cache(0);
  session.machine().has_scrambled_ipc_words = true;
  const std::uint64_t dups = FakeSession::counts().total_rm_dups;
  const auto refused = map(pointer(address), 4096);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("IPC identity"), std::string::npos) << refused.error().message();
  EXPECT_EQ(FakeSession::counts().total_rm_dups, dups) << "nothing was duplicated from it";
  session.machine().has_scrambled_ipc_words = false;
  EXPECT_TRUE(map(pointer(address), 4096));
  FakeSession::free(address);
}

// From the first use on: the device's proof meets the odd identity.
ISOLATED_TEST(Refusals, AnIdentityInAnotherOrderFromTheBeginning) {
  MappingSession session;
  session.machine().has_scrambled_ipc_words = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("IPC identity"), std::string::npos) << refused.error().message();
  EXPECT_EQ(FakeSession::counts().total_rm_dups, 0u);
  FakeSession::free(address);
}

ISOLATED_TEST(Refusals, AResourceManagerWithOtherStructures) {
  MappingSession session;
  session.machine().has_other_rm_structs = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096);
  expect_refused(refused, Status::unavailable, "driver_unknown");
  EXPECT_NE(refused.error().message().find("rm"), std::string::npos);
  FakeSession::free(address);
}

ISOLATED_TEST(Refusals, DriversThatAreTooOld) {
  MappingSession session;
  std::snprintf(session.machine().driver_version, sizeof session.machine().driver_version, "510.85.02");
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096);
  expect_refused(refused, Status::unavailable, "driver_too_old");
  EXPECT_NE(refused.error().message().find("515"), std::string::npos) << refused.error().message();
  FakeSession::free(address);
}

ISOLATED_TEST(Refusals, AVersionThatCannotBeRead) {
  MappingSession session;
  std::snprintf(session.machine().driver_version, sizeof session.machine().driver_version, "unknown");
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  expect_refused(map(pointer(address), 4096), Status::unavailable, "version");
  FakeSession::free(address);
}

// The resource manager knows a GPU by its PCI address, and CUDA does not tell it.
ISOLATED_TEST(Refusals, AGpuWithoutAPciAddress) {
  MappingSession session;
  session.plant(fake::Call::cuda, "cuDeviceGetPCIBusId", CUDA_ERROR_NOT_SUPPORTED);
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  expect_refused(map(pointer(address), 4096, require(MappingBackend::rm)), Status::unavailable,
                 "device 0: its PCI address is not known");
  FakeSession::free(address);
}

// Neither the driver's files nor NVML, of which this machine has none, say which /dev/nvidia<n> it has.
ISOLATED_TEST(Refusals, AGpuWithoutADeviceFile) {
  MappingSession session;
  session.start();
  const std::string pci = session.machine().gpus[0].pci_address;
  ASSERT_TRUE(std::filesystem::remove(session.folder() + "/proc/driver/nvidia/gpus/" + pci + "/information"));
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096, require(MappingBackend::rm));
  expect_refused(refused, Status::unavailable, "device 0: no device file is known for PCI address ");
  EXPECT_NE(refused.message().find(pci + "; "), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("/proc/driver/nvidia"), std::string::npos) << refused.message();
  FakeSession::free(address);
}

ISOLATED_TEST(Refusals, AFailedMapLeavesTheOthersAlone) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const Mapping good = must_map(address, kBlock);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(map(pointer(address), kBlock + 1));
    EXPECT_FALSE(map(pointer(address), kBlock, require(MappingBackend::gdrdrv)));
  }
  expect_shows_memory(good, 5);
  EXPECT_EQ(FakeSession::counts().windows, 1u);
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
