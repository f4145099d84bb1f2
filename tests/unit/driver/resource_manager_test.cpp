// SPDX-License-Identifier: Apache-2.0
// The resource manager's ioctls: driver/rm/resource_manager.hpp against the fake kernel, which refuses what the real one refuses.
#include "driver/rm/resource_manager.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "driver/rm/abi.hpp"
#include "driver/system_calls.hpp"
#include "support/changed_answer.hpp"
#include "support/expect_log.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar {
namespace {

using rm::ResourceManager;
using test::FakeSession;

constexpr std::size_t kBlock = std::size_t{2} << 20;

std::unique_ptr<ResourceManager> open_manager(const std::string& version = "580.159.04") {
  auto opened = ResourceManager::open("/dev", version);
  EXPECT_TRUE(opened) << (opened ? "" : opened.error().message());
  return opened ? std::move(*opened) : nullptr;
}

std::array<std::uint32_t, 16> identity_of(CUdeviceptr address) {
  CUipcMemHandle handle;
  EXPECT_EQ(CUDA(cuIpcGetMemHandle)(&handle, address), CUDA_SUCCESS);
  std::array<std::uint32_t, 16> words;
  std::memcpy(words.data(), &handle, sizeof words);
  return words;
}

// Duplicates and maps a cudaMalloc block, checks that both sides show the same bytes, and undoes everything.
void map_and_check(ResourceManager& manager, const rm::Device& device, CUdeviceptr address, std::size_t bytes) {
  const auto words = identity_of(address);
  const auto handle = manager.duplicate(device, words[12], words[13]);
  ASSERT_TRUE(handle) << handle.error().message();
  const std::uint64_t block_bytes = std::uint64_t{words[6]} * 4096;
  const auto mapping = manager.map(device, *handle, 0, block_bytes);
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->bytes, block_bytes);
  auto* window = static_cast<unsigned char*>(mapping->address) + words[7];
  const auto content = test::pattern(bytes, words[13]);
  std::copy(content.begin(), content.end(), window);
  EXPECT_EQ(FakeSession::read(address, bytes), content);
  const auto other = test::pattern(bytes, words[13] + 1);
  FakeSession::write(address, other.data(), bytes);
  EXPECT_TRUE(std::equal(other.begin(), other.end(), window));
  manager.unmap(device, *handle, *mapping);
  manager.free(device.device, *handle);
}

TEST(ResourceManagerNames, StatusesAndBranches) {
  EXPECT_NE(rm::status_name(0x1f).find("NV_ERR_INVALID_ARGUMENT"), std::string::npos);
  EXPECT_NE(rm::status_name(0x1f).find("0x1f"), std::string::npos);
  EXPECT_NE(rm::status_name(0xabc).find("0xabc"), std::string::npos);
  EXPECT_EQ(rm::branch_of("580.159.04"), 580);
  EXPECT_EQ(rm::branch_of("515"), 515);
  for (const char* bad : {"", ".", "abc", "-580.1", " 580.1", "580x.1", "99999999999.1"}) EXPECT_EQ(rm::branch_of(bad), 0) << bad;
}

ISOLATED_TEST(ResourceManagerMap, SmallAndLargeAllocations) {
  FakeSession session;
  session.start();
  {
    const auto manager = open_manager();
    const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
    ASSERT_TRUE(device) << device.error().message();
    const CUdeviceptr first = FakeSession::allocate(4096);
    const CUdeviceptr second = FakeSession::allocate(100000);
    const CUdeviceptr large = FakeSession::allocate(3 * kBlock + 1);
    EXPECT_EQ(identity_of(first)[13], identity_of(second)[13]) << "small ones share a block";
    map_and_check(*manager, *device, first, 4096);
    map_and_check(*manager, *device, second, 100000);
    map_and_check(*manager, *device, large, 3 * kBlock + 1);
    for (const CUdeviceptr address : {first, second, large}) FakeSession::free(address);
    manager->close_device(*device);
    EXPECT_EQ(FakeSession::counts().rm_devices, 0u);
    EXPECT_EQ(FakeSession::counts().rm_subdevices, 0u);
  }
  EXPECT_EQ(FakeSession::counts().rm_clients, 0u);
  EXPECT_EQ(FakeSession::counts().control_descriptors, 0u);
}

ISOLATED_TEST(ResourceManagerMap, PartOfABlock) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate(4 * kBlock);
  const auto words = identity_of(address);
  const auto handle = manager->duplicate(*device, words[12], words[13]);
  const auto mapping = manager->map(*device, *handle, kBlock, 2 * kBlock);
  ASSERT_TRUE(mapping) << mapping.error().message();
  const auto content = test::pattern(2 * kBlock, 5);
  std::copy(content.begin(), content.end(), static_cast<unsigned char*>(mapping->address));
  EXPECT_EQ(FakeSession::read(address + kBlock, 2 * kBlock), content);
  EXPECT_EQ(FakeSession::read(address, 16), std::vector<unsigned char>(16)) << "nothing before the range was touched";
  manager->unmap(*device, *handle, *mapping);
  EXPECT_EQ(manager->map(*device, *handle, 3 * kBlock, 2 * kBlock).status(), Status::device_error) << "past the block's end";
  manager->free(device->device, *handle);
  FakeSession::free(address);
}

// A duplicate keeps the memory, whatever CUDA frees.
ISOLATED_TEST(ResourceManagerMap, DuplicateKeepsFreedMemory) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto words = identity_of(address);
  const auto handle = manager->duplicate(*device, words[12], words[13]);
  const auto mapping = manager->map(*device, *handle, 0, kBlock);
  auto* window = static_cast<volatile unsigned char*>(mapping->address);
  window[7] = 42;
  FakeSession::free(address);
  EXPECT_EQ(window[7], 42);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], kBlock);
  EXPECT_EQ(manager->duplicate(*device, words[12], words[13]).status(), Status::device_error) << "CUDA's handle is gone";
  manager->unmap(*device, *handle, *mapping);
  manager->free(device->device, *handle);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], 0u);
}

ISOLATED_TEST(ResourceManagerMap, SameMemoryIsRecognisedEvenWhenHandlesAreReused) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto before = identity_of(address);
  const auto first = manager->duplicate(*device, before[12], before[13]);
  const auto again = manager->duplicate(*device, before[12], before[13]);
  const auto same = manager->are_same_memory(*first, *again);
  ASSERT_TRUE(same) << same.error().message();
  EXPECT_TRUE(*same);
  FakeSession::free(address);
  address = FakeSession::allocate(kBlock);
  const auto after = identity_of(address);
  ASSERT_EQ(before[13], after[13]) << "the machine reuses handles at once";
  const auto other = manager->duplicate(*device, after[12], after[13]);
  const auto still_same = manager->are_same_memory(*first, *other);
  ASSERT_TRUE(still_same);
  EXPECT_FALSE(*still_same);
  EXPECT_FALSE(manager->are_same_memory(*first, 0x12345)) << "an unknown handle is an error, not a no";
  for (const rm::Handle handle : {*first, *again, *other}) manager->free(device->device, handle);
  FakeSession::free(address);
}

void import_exported_memory(const char* driver_version) {
  FakeSession session;
  std::snprintf(session.machine().driver_version, sizeof session.machine().driver_version, "%s", driver_version);
  session.start();
  const auto manager = open_manager(driver_version);
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate_vmm(0, 2 * kBlock, true);
  CUmemGenericAllocationHandle allocation = 0;
  CUDA(cuMemRetainAllocationHandle)(&allocation, reinterpret_cast<void*>(address));
  int descriptor = -1;
  ASSERT_EQ(CUDA(cuMemExportToShareableHandle)(&descriptor, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  CUDA(cuMemRelease)(allocation);
  const auto handle = manager->import(*device, descriptor);
  ASSERT_TRUE(handle) << handle.error().message();
  ::close(descriptor);
  const auto mapping = manager->map(*device, *handle, 0, 2 * kBlock);
  ASSERT_TRUE(mapping) << mapping.error().message();
  const auto content = test::pattern(2 * kBlock, 9);
  std::copy(content.begin(), content.end(), static_cast<unsigned char*>(mapping->address));
  EXPECT_EQ(FakeSession::read(address, 2 * kBlock), content);
  manager->unmap(*device, *handle, *mapping);
  manager->free(device->device, *handle);
  EXPECT_FALSE(manager->import(*device, ::fileno(stdin))) << "a descriptor that is no export";
  FakeSession::free_vmm(address, 2 * kBlock);
}

template <class T>
void expect_error(const Result<T>& result, Status status, const std::string& part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.error().message();
  EXPECT_NE(result.error().message().find(part), std::string::npos) << result.error().message();
}

// What is no memory of that device is never mapped as if it were.
ISOLATED_TEST(ResourceManagerMap, ImportOfSomethingElseIsRefused) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate_vmm(0, kBlock, true);
  CUmemGenericAllocationHandle allocation = 0;
  CUDA(cuMemRetainAllocationHandle)(&allocation, reinterpret_cast<void*>(address));
  int descriptor = -1;
  ASSERT_EQ(CUDA(cuMemExportToShareableHandle)(&descriptor, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  CUDA(cuMemRelease)(allocation);
  session.machine().gpus[0].told_instance = 5;
  expect_error(manager->import(*device, descriptor), Status::verification_failed, "exported from device instance 5, expected 0");
  session.machine().gpus[0].told_instance = 0;
  std::uint8_t type = 2;
  std::uint16_t count = 1;
  {
    const test::ChangedAnswer answer([&](unsigned number, void* argument) {
      if (number != rm::kControl) return;
      const auto& call = *static_cast<const rm::Control*>(argument);
      if (call.command != rm::kImportObjectsFromFd) return;
      auto& imported = *reinterpret_cast<rm::ImportObjects*>(call.parameters);
      imported.types[0] = type;
      imported.count = count;
    });
    expect_error(manager->import(*device, descriptor), Status::not_supported, "it holds 1 objects, the first of type 2");
    type = rm::kTypeVideoMemory;
    count = 3;
    expect_error(manager->import(*device, descriptor), Status::not_supported, "it holds 3 objects, the first of type 1");
  }
  EXPECT_EQ(FakeSession::counts().rm_memory_objects, 0u) << "what was imported is freed";
  const auto handle = manager->import(*device, descriptor);
  ASSERT_TRUE(handle) << handle.error().message();
  manager->free(device->device, *handle);
  ::close(descriptor);
  FakeSession::free_vmm(address, kBlock);
}

// The device's file and the client have to know each other first.
ISOLATED_TEST(ResourceManagerMap, ADeviceFileThatIsNotRegistered) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto words = identity_of(address);
  const auto handle = manager->duplicate(*device, words[12], words[13]);
  session.plant_ioctl(rm::kRegisterFd, 0, EACCES);
  expect_error(manager->map(*device, *handle, 0, kBlock), Status::no_permission,
               "register device file: /dev/nvidia0: Permission denied");
  EXPECT_EQ(FakeSession::counts().device_descriptors, 1u) << "the device's own";
  session.remove_faults();
  manager->free(device->device, *handle);
  FakeSession::free(address);
}

// What it asks of the export has another size before branch 545.
ISOLATED_TEST(ResourceManagerMap, ImportOfExportedMemory) { import_exported_memory("580.159.04"); }
ISOLATED_TEST(ResourceManagerMap, ImportOfExportedMemoryOnBranch535) { import_exported_memory("535.183.01"); }
ISOLATED_TEST(ResourceManagerMap, ImportOfExportedMemoryOnBranch545) { import_exported_memory("545.23.06"); }

ISOLATED_TEST(ResourceManagerDevices, EveryOrderOfMinorsAndInstances) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.start();
  CUcontext contexts[2];
  CUdeviceptr memory[2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    CUDA(cuDevicePrimaryCtxRetain)(&contexts[gpu], gpu);
    CUDA(cuCtxPushCurrent)(contexts[gpu]);
    memory[gpu] = FakeSession::allocate(kBlock);
    CUDA(cuCtxPopCurrent)(nullptr);
  }
  for (unsigned order = 0; order < 4; ++order) {
    for (unsigned gpu = 0; gpu < 2; ++gpu) {
      fake::Gpu& told = session.machine().gpus[gpu];
      told.minor = gpu ^ (order & 1);
      told.device_instance = told.told_instance = gpu ^ (order >> 1);
    }
    const auto manager = open_manager();
    for (unsigned gpu = 0; gpu < 2; ++gpu) {
      const fake::Gpu& told = session.machine().gpus[gpu];
      const auto device = manager->open_device(told.gpu_id, told.minor);
      ASSERT_TRUE(device) << "order " << order << ": " << device.error().message();
      EXPECT_EQ(device->instance, told.device_instance);
      map_and_check(*manager, *device, memory[gpu], kBlock);
      manager->close_device(*device);
      // The other GPU's device file does not take this GPU's memory: the machine is strict, so the test above means something.
      const auto wrong = manager->open_device(told.gpu_id, told.minor ^ 1);
      ASSERT_TRUE(wrong);
      const auto words = identity_of(memory[gpu]);
      const auto handle = manager->duplicate(*wrong, words[12], words[13]);
      const auto mapping = manager->map(*wrong, *handle, 0, kBlock);
      EXPECT_FALSE(mapping);
      EXPECT_EQ(mapping.error().record().native.domain, NativeDomain::resource_manager);
      EXPECT_EQ(mapping.error().record().native.code, 0x1f);
      manager->free(wrong->device, *handle);
      manager->close_device(*wrong);
    }
  }
  for (const CUdeviceptr address : memory) FakeSession::free(address);
}

ISOLATED_TEST(ResourceManagerDevices, AWrongInstanceIsRefused) {
  FakeSession session;
  session.machine().gpu_count = 2;
  session.machine().gpus[0].told_instance = 1;  // planted: control 0x202 names the other GPU
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  EXPECT_EQ(device.status(), Status::verification_failed);
  EXPECT_EQ(FakeSession::counts().rm_devices, 0u) << "the wrong device object is not kept";
  EXPECT_TRUE(manager->open_device(session.machine().gpus[1].gpu_id, 1)) << "the honest one works";
}

ISOLATED_TEST(ResourceManagerDevices, UnknownGpuId) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(0xdead00, 0);
  EXPECT_EQ(device.status(), Status::device_error);
  EXPECT_EQ(device.error().record().native.domain, NativeDomain::resource_manager);
}

ISOLATED_TEST(ResourceManagerOpen, DriverBranches) {
  FakeSession session;
  session.start();
  for (const char* too_old : {"510.85.02", "470.42", "1.0"}) {
    const auto opened = ResourceManager::open("/dev", too_old);
    EXPECT_EQ(opened.status(), Status::unavailable) << too_old;
    EXPECT_FALSE(opened.error().record().remedy.empty());
    EXPECT_NE(opened.error().message().find("515"), std::string::npos) << opened.error().message();
  }
  for (const char* unreadable : {"", "?", "five"}) {
    const auto opened = ResourceManager::open("/dev", unreadable);
    EXPECT_EQ(opened.status(), Status::unavailable) << unreadable;
    EXPECT_FALSE(opened.error().record().remedy.empty());
  }
  // Each branch has its own RM_ALLOC: the machine answers as that branch does.
  for (const char* known : {"515.43.04", "525.60.13", "530.30.02", "535.54.03", "580.159.04", "595.45.04", "610.43.02"}) {
    std::snprintf(session.machine().driver_version, sizeof session.machine().driver_version, "%s", known);
    const auto opened = ResourceManager::open("/dev", known);
    ASSERT_TRUE(opened) << known << ": " << opened.error().message();
    EXPECT_TRUE((*opened)->open_device(session.machine().gpus[0].gpu_id, 0)) << known;
  }
}

// The structure before branch 535 has its status elsewhere: read at the wrong place it would look like success.
ISOLATED_TEST(ResourceManagerOpen, OldBranchFailuresAreSeen) {
  FakeSession session;
  std::snprintf(session.machine().driver_version, sizeof session.machine().driver_version, "525.60.13");
  session.start();
  const auto manager = open_manager("525.60.13");
  session.machine().gpus[0].told_instance = 7;  // no GPU has it: RM_ALLOC of the device is refused
  EXPECT_EQ(manager->open_device(session.machine().gpus[0].gpu_id, 0).status(), Status::device_error);
}

ISOLATED_TEST(ResourceManagerOpen, ANewerBranchWorksWithAHint) {
  FakeSession session;
  session.start();
  std::vector<std::string> lines;
  const LogHandler before = set_log_handler([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::info) lines.emplace_back(line);
  });
  const auto opened = ResourceManager::open("/dev", "999.10");
  set_log_handler(before);
  ASSERT_TRUE(opened);
  EXPECT_TRUE((*opened)->open_device(session.machine().gpus[0].gpu_id, 0));
  EXPECT_TRUE(
      std::any_of(lines.begin(), lines.end(), [](const std::string& line) { return line.find("999") != std::string::npos; }));
}

ISOLATED_TEST(ResourceManagerOpen, DeviceFileAbsentOrForbidden) {
  FakeSession session;
  session.start();
  const auto expect_open_fails = [&](int error, Status status) {
    session.plant(fake::Call::open, "/dev/nvidiactl", error);
    const auto opened = ResourceManager::open("/dev", "580.159.04");
    EXPECT_EQ(opened.status(), status) << std::strerror(error);
    EXPECT_EQ(opened.error().record().native.code, error);
    EXPECT_FALSE(opened.error().record().remedy.empty()) << std::strerror(error);
    EXPECT_NE(opened.error().message().find("/dev/nvidiactl"), std::string::npos);
    session.remove_faults();
  };
  expect_open_fails(ENOENT, Status::unavailable);
  expect_open_fails(EACCES, Status::no_permission);
  expect_open_fails(EPERM, Status::no_permission);
  expect_open_fails(EMFILE, Status::out_of_descriptors);
  EXPECT_TRUE(ResourceManager::open("/dev", "580.159.04")) << "and works again when the cause is gone";
}

ISOLATED_TEST(ResourceManagerOpen, AnswersOddly) {
  FakeSession session;
  session.start();
  session.machine().has_other_rm_structs = true;
  const auto opened = ResourceManager::open("/dev", "580.159.04");
  EXPECT_EQ(opened.status(), Status::device_error);
  EXPECT_EQ(opened.error().record().native.code, EINVAL);
  EXPECT_EQ(FakeSession::counts().control_descriptors, 0u);
}

// A client of the null handle would be every client.
ISOLATED_TEST(ResourceManagerOpen, AnswersWithTheNullHandle) {
  FakeSession session;
  session.start();
  session.plant_ioctl(rm::kAlloc, rm::kClassRoot, 0);  // it succeeds, and makes nothing
  expect_error(ResourceManager::open("/dev", "580.159.04"), Status::device_error,
               "make client: /dev/nvidiactl: the resource manager answered with the null handle");
  EXPECT_EQ(FakeSession::counts().control_descriptors, 0u);
}

ISOLATED_TEST(ResourceManagerOpen, InterruptedCallsAreRepeated) {
  FakeSession session;
  session.start();
  const fake::Fault& fault = session.plant_ioctl(0x2B, 0, EINTR, 0, 2);
  EXPECT_TRUE(ResourceManager::open("/dev", "580.159.04"));
  EXPECT_EQ(fault.hits, 2u);
}

ISOLATED_TEST(ResourceManagerLimits, Bar1Exhausted) {
  FakeSession session;
  session.machine().gpus[0].bar1_bytes = 3 * kBlock;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate(2 * kBlock);
  const auto words = identity_of(address);
  const auto handle = manager->duplicate(*device, words[12], words[13]);
  const auto first = manager->map(*device, *handle, 0, 2 * kBlock);
  ASSERT_TRUE(first);
  for (const std::uint32_t status : {0x1au, 0x51u}) {
    session.machine().bar1_status = status;
    const auto second = manager->map(*device, *handle, 0, 2 * kBlock);
    EXPECT_EQ(second.status(), Status::out_of_bar1);
    EXPECT_NE(second.error().record().cause.find("BAR1"), std::string::npos);
    EXPECT_FALSE(second.error().record().remedy.empty());
    EXPECT_EQ(second.error().record().native.code, status);
  }
  EXPECT_EQ(FakeSession::counts().device_descriptors, 2u) << "the refused ones closed theirs; one is the device's own";
  manager->unmap(*device, *handle, *first);
  const auto third = manager->map(*device, *handle, 0, 2 * kBlock);
  ASSERT_TRUE(third) << "there is room again";
  manager->unmap(*device, *handle, *third);
  manager->free(device->device, *handle);
  FakeSession::free(address);
}

// Every call that a mapping makes fails once; each time there is an error with a cause, and nothing is left behind.
ISOLATED_TEST(ResourceManagerLimits, EachFailingCallLeavesNothing) {
  FakeSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto words = identity_of(address);
  const struct {
    fake::Call call;
    int error;
    std::uint32_t status;
  } kinds[] = {
      {fake::Call::open, EMFILE, 0}, {fake::Call::ioctl, EIO, 0}, {fake::Call::ioctl, 0, 0x57}, {fake::Call::mmap, ENOMEM, 0}};
  for (const auto& kind : kinds) {
    unsigned failures = 0;
    for (std::uint32_t skip = 0; skip < 20; ++skip) {
      session.remove_faults();
      fake::Fault& fault = session.plant(kind.call, "", kind.error, 1, skip);
      fault.status = kind.status;
      Status status = Status::ok;
      {
        auto opened = ResourceManager::open("/dev", "580.159.04");
        status = opened.status();
        if (opened) {
          const auto device = (*opened)->open_device(session.machine().gpus[0].gpu_id, 0);
          status = device.status();
          if (device) {
            const auto handle = (*opened)->duplicate(*device, words[12], words[13]);
            status = handle.status();
            if (handle) {
              const auto mapping = (*opened)->map(*device, *handle, 0, kBlock);
              status = mapping.status();
              session.remove_faults();
              if (mapping) (*opened)->unmap(*device, *handle, *mapping);
              (*opened)->free(device->device, *handle);
            }
          }
        }
        session.remove_faults();
      }
      const fake::Counts left = FakeSession::counts();
      EXPECT_EQ(left.rm_clients + left.rm_devices + left.rm_memory_objects + left.rm_mappings + left.windows, 0u)
          << "call " << skip;
      EXPECT_EQ(left.control_descriptors + left.device_descriptors, 0u) << "call " << skip;
      if (status == Status::ok) break;
      ++failures;
    }
    EXPECT_GT(failures, 0u) << "the fault was hit";
    EXPECT_LT(failures, 20u) << "and was passed at last";
  }
  FakeSession::free(address);
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
ISOLATED_TEST(ResourceManagerLimits, DescriptorLimitOfTheProcess) {
  FakeSession session;
  session.start();
  const auto manager = open_manager();
  const auto device = manager->open_device(session.machine().gpus[0].gpu_id, 0);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto words = identity_of(address);
  const auto handle = manager->duplicate(*device, words[12], words[13]);
  const auto refused = test::without_descriptors([&] { return manager->map(*device, *handle, 0, kBlock); });
  EXPECT_EQ(refused.status(), Status::out_of_descriptors);
  EXPECT_NE(refused.error().record().remedy.find("ulimit -n"), std::string::npos) << refused.error().message();
  const auto mapping = manager->map(*device, *handle, 0, kBlock);
  ASSERT_TRUE(mapping);
  manager->unmap(*device, *handle, *mapping);
  manager->free(device->device, *handle);
  FakeSession::free(address);
}
#endif

}  // namespace
}  // namespace gigabar
