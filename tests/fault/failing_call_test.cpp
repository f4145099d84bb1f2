// SPDX-License-Identifier: Apache-2.0
// Every single call below map() fails once, in turn: each time there is an error with a cause and nothing is left behind, and the
// next attempt works.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

constexpr std::size_t kBlock = std::size_t{2} << 20;
constexpr std::uint32_t kMaxCalls = 200;

struct Failure {
  fake::Call call;
  const char* name;
  int error;
  std::uint32_t status;
};

void expect_nothing_held(std::size_t memory_bytes, const char* when) {
  trim_mapping_cache(0);  // what verifies devices is kept for the next attempt
  const fake::Counts now = FakeSession::counts();
  EXPECT_EQ(now.windows, 0u) << when;
  EXPECT_EQ(now.rm_memory_objects, 0u) << when;
  EXPECT_EQ(now.rm_mappings, 0u) << when;
  EXPECT_LE(now.device_descriptors, now.rm_clients) << when;
  EXPECT_EQ(now.dma_bufs + now.exports, 0u) << when;
  EXPECT_EQ(now.gdrdrv_pins, 0u) << when;
  EXPECT_EQ(now.device_allocations, 1u) << when << ": only the test's own";
  EXPECT_EQ(now.memory_used_bytes[0], memory_bytes) << when;
  EXPECT_EQ(now.violations, 0u) << when << ": " << now.last_violation;
}

// Fails the first, second, ... matching call of a first map() with `backend` until one succeeds. Answers how many calls failed it.
unsigned fail_each_in_turn(MappingSession& session, MappingBackend backend, const Failure& failure, bool is_vmm) {
  const std::size_t bytes = 2 * kBlock;
  const CUdeviceptr address = is_vmm ? FakeSession::allocate_vmm(0, bytes, true) : FakeSession::allocate(bytes);
  unsigned failures = 0;
  bool was_passed = false;
  for (std::uint32_t skip = 0; skip < kMaxCalls && !was_passed; ++skip) {
    session.remove_faults();
    fake::Fault& fault = session.plant(failure.call, failure.name, failure.error, 1, skip);
    fault.status = failure.status;
    const auto mapping = map(pointer(address), bytes, require(backend));
    was_passed = fault.hits == 0;
    session.remove_faults();
    if (!mapping) {
      ++failures;
      EXPECT_FALSE(mapping.error().record().cause.empty());
      expect_nothing_held(bytes, failure.name);
    }
  }
  EXPECT_TRUE(was_passed) << "the last attempt met no fault";
  must_map(address, bytes, require(backend));
  trim_mapping_cache(0);
  test::take_log();  // warnings about what could not be undone are allowed here
  if (is_vmm) {
    FakeSession::free_vmm(address, bytes);
  } else {
    FakeSession::free(address);
  }
  return failures;
}

// Only calls on the way up: what fails on the way down cannot be undone by anybody and is logged.
void expect_survives(MappingBackend backend, const Failure& failure, bool is_vmm = false) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  EXPECT_GT(fail_each_in_turn(session, backend, failure, is_vmm), 0u) << "the call is made";
}

ISOLATED_TEST(FailingCalls, RmOpen) { expect_survives(MappingBackend::rm, {fake::Call::open, "/dev/nvidia", EIO, 0}); }
ISOLATED_TEST(FailingCalls, RmMmap) { expect_survives(MappingBackend::rm, {fake::Call::mmap, "", ENOMEM, 0}); }
ISOLATED_TEST(FailingCalls, GdrdrvOpen) { expect_survives(MappingBackend::gdrdrv, {fake::Call::open, "/dev/gdrdrv", EIO, 0}); }
ISOLATED_TEST(FailingCalls, GdrdrvMmap) { expect_survives(MappingBackend::gdrdrv, {fake::Call::mmap, "", EINVAL, 0}); }
ISOLATED_TEST(FailingCalls, DmabufMmap) { expect_survives(MappingBackend::dmabuf, {fake::Call::mmap, "", ENODEV, 0}); }
ISOLATED_TEST(FailingCalls, DmabufExport) {
  expect_survives(MappingBackend::dmabuf, {fake::Call::cuda, "cuMemGetHandleForAddressRange", CUDA_ERROR_UNKNOWN, 0});
}
ISOLATED_TEST(FailingCalls, IpcIdentity) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuIpcGetMemHandle", CUDA_ERROR_UNKNOWN, 0});
}
ISOLATED_TEST(FailingCalls, VmmExport) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuMemExportToShareableHandle", CUDA_ERROR_UNKNOWN, 0}, true);
}
ISOLATED_TEST(FailingCalls, MemoryOfTheLibrarysOwn) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, 0});
}
ISOLATED_TEST(FailingCalls, CopyEngineWrites) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS, 0});
}
ISOLATED_TEST(FailingCalls, CopyEngineReads) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS, 0});
}
// At the first use of a device only; a failure there is not remembered.
ISOLATED_TEST(FailingCalls, Contexts) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, 0});
}
ISOLATED_TEST(FailingCalls, PointerAttributes) {
  expect_survives(MappingBackend::rm, {fake::Call::cuda, "cuPointerGetAttributes", CUDA_ERROR_UNKNOWN, 0});
}

// One escape or control at a time, by errno and by status.
void expect_survives_ioctl(std::uint32_t number, std::uint32_t command, bool is_vmm = false) {
  MappingSession session;
  session.start();
  const std::size_t bytes = 2 * kBlock;
  const CUdeviceptr address = is_vmm ? FakeSession::allocate_vmm(0, bytes, true) : FakeSession::allocate(bytes);
  for (const auto& [error, status] : {std::pair{EIO, 0u}, std::pair{EFAULT, 0u}, std::pair{0, 0x57u}, std::pair{0, 0xffffu}}) {
    const fake::Fault& fault = session.plant_ioctl(number, command, error, status, 1);
    const auto mapping = map(pointer(address), bytes, require(MappingBackend::rm));
    EXPECT_EQ(fault.hits, 1u);
    EXPECT_FALSE(mapping) << "escape 0x" << std::hex << number << " errno " << error << " status " << status;
    if (!mapping && error == 0) {
      EXPECT_EQ(mapping.error().record().native.domain, NativeDomain::resource_manager);
      EXPECT_EQ(mapping.error().record().native.code, status);
    }
    session.remove_faults();
    expect_nothing_held(bytes, "after a failed ioctl");
  }
  EXPECT_TRUE(map(pointer(address), bytes));
  trim_mapping_cache(0);
  if (is_vmm) {
    FakeSession::free_vmm(address, bytes);
  } else {
    FakeSession::free(address);
  }
}

ISOLATED_TEST(FailingEscapes, AllocateDevice) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  for (const std::uint32_t object_class : {0x41u, 0x80u, 0x2080u}) {
    for (const std::uint32_t status : {0x1fu, 0x57u, 0x1bu}) {
      session.plant_ioctl(0x2B, object_class, 0, status, 1);
      EXPECT_FALSE(map(pointer(address), kBlock, require(MappingBackend::rm))) << std::hex << object_class;
      session.remove_faults();
      EXPECT_EQ(FakeSession::counts().rm_devices + FakeSession::counts().rm_subdevices, 0u) << std::hex << object_class;
    }
  }
  EXPECT_TRUE(map(pointer(address), kBlock));
  FakeSession::free(address);
}
ISOLATED_TEST(FailingEscapes, Duplicate) { expect_survives_ioctl(0x34, 0); }
ISOLATED_TEST(FailingEscapes, Map) { expect_survives_ioctl(0x4E, 0); }
ISOLATED_TEST(FailingEscapes, ExportInfo) { expect_survives_ioctl(0x2A, 0x3d08, true); }
ISOLATED_TEST(FailingEscapes, Import) { expect_survives_ioctl(0x2A, 0x3d0c, true); }
ISOLATED_TEST(FailingEscapes, RegisterDescriptor) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  session.plant_ioctl(201, 0, EINVAL, 0, 1);
  EXPECT_FALSE(map(pointer(address), kBlock));
  session.remove_faults();
  expect_nothing_held(kBlock, "after REGISTER_FD failed");
  EXPECT_TRUE(map(pointer(address), kBlock));
  FakeSession::free(address);
  trim_mapping_cache(0);
}

// What cannot be undone is logged, and the mapping's memory is safe all the same.
ISOLATED_TEST(FailingEscapes, UndoingThatFailsIsLogged) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock);
  session.plant_ioctl(0x29, 0, 0, 0x1f, 1);
  trim_mapping_cache(0);
  session.remove_faults();
  const auto lines = test::take_log();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("0x1f"), std::string::npos) << lines[0];
  EXPECT_EQ(FakeSession::counts().rm_memory_objects, 1u) << "the fault was real";
  FakeSession::free(address);
  session.machine().gpu_count = 0;  // what was not freed on purpose is not counted against the test
  fake::Counts now = FakeSession::counts();
  EXPECT_EQ(now.rm_memory_objects, 1u);
  FakeSession::symbol<fake::ResetFunction>(fake::kResetSymbol)();
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace gigabar
