// SPDX-License-Identifier: Apache-2.0
#include "support/fake_session.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "driver/system_calls.hpp"
#include "fakes/paths.hpp"
#include "platform/roots.hpp"

namespace gigabar::test {
namespace {

void* fake_library() {
  static void* const handle = [] {
    void* opened = ::dlopen(test::kFakeCudaLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (opened == nullptr) throw std::runtime_error(::dlerror());
    return opened;
  }();
  return handle;
}

void expect_success(CUresult result, const char* what) { EXPECT_EQ(result, CUDA_SUCCESS) << what; }

CUmemAllocationProp vmm_properties(int gpu, bool is_exportable) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = gpu;
  if (is_exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

void* FakeSession::address_of(const char* name) {
  void* address = ::dlsym(fake_library(), name);
  if (address == nullptr) throw std::runtime_error(std::string("the fake has no ") + name);
  return address;
}

FakeSession::FakeSession() : machine_(symbol<fake::MachineFunction>(fake::kMachineSymbol)()) {
  ::setenv("GIGABAR_CUDA_LIBRARY", test::kFakeCudaLibrary, 1);
  ::setenv("GIGABAR_NVML_LIBRARY", (folder() + "/no-nvml.so").c_str(), 1);
  ::unsetenv("GIGABAR_STAND_IN");
  ::unsetenv("GIGABAR_MAPPING");
  replace_system_calls(symbol<fake::CallsFunction>(fake::kCallsSymbol)());
  set_platform_roots({folder() + "/sys", folder() + "/proc", "/dev"});
}

FakeSession::~FakeSession() {
  if (has_context_) CUDA(cuCtxPopCurrent)(nullptr);
  const fake::Counts now = counts();
  const std::uint32_t kept_mappings = keeps_mapping_ ? 1 : 0;
  EXPECT_EQ(now.rm_memory_objects, kept_mappings);
  EXPECT_EQ(now.rm_mappings, kept_mappings);
  EXPECT_EQ(now.windows, kept_mappings);
  EXPECT_LE(now.device_descriptors, kept_mappings + now.rm_clients * machine_->gpu_count);
  EXPECT_EQ(now.dma_bufs, 0u);
  EXPECT_EQ(now.exports, 0u);
  EXPECT_EQ(now.gdrdrv_pins, 0u);
  EXPECT_LE(now.control_descriptors, 1u);
  EXPECT_LE(now.rm_clients, 1u);
  EXPECT_LE(now.gdrdrv_descriptors, 1u);
  EXPECT_TRUE(keeps_memory_ || now.device_allocations == 0) << now.device_allocations;
  EXPECT_EQ(now.vmm_handles, 0u);
  EXPECT_EQ(now.vmm_reservations, 0u);
  EXPECT_EQ(now.context_pushes, 0);
  for (std::size_t gpu = 0; gpu < machine_->gpu_count; ++gpu) {
    EXPECT_TRUE(keeps_mapping_ || now.bar1_used_bytes[gpu] == 0u) << "gpu " << gpu;
    EXPECT_TRUE(keeps_memory_ || now.memory_used_bytes[gpu] == 0) << "gpu " << gpu << ": " << now.memory_used_bytes[gpu];
  }
  EXPECT_EQ(now.violations, 0u) << now.last_violation;
  EXPECT_FALSE(machine_->was_capture_broken);
}

fake::Counts FakeSession::counts() {
  fake::Counts now;
  symbol<fake::CountsFunction>(fake::kCountsSymbol)(&now);
  return now;
}

void FakeSession::start(int current_gpu) {
  write_trees();
  if (machine_->gpu_count == 0) return;
  CUcontext context = nullptr;
  expect_success(CUDA(cuInit)(0), "cuInit");
  expect_success(CUDA(cuDevicePrimaryCtxRetain)(&context, current_gpu), "cuDevicePrimaryCtxRetain");
  expect_success(CUDA(cuCtxPushCurrent)(context), "cuCtxPushCurrent");
  has_context_ = true;
}

void FakeSession::write_trees() const {
  const std::string version = machine_->driver_version;
  folder_.write("sys/module/nvidia/version", version + "\n");
  folder_.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + version +
                                                  "  Release Build  (somebody)  Mon Jan  1 00:00:00 UTC 2024\n" +
                                                  "GCC version:  gcc version 12.2.0\n");
  for (std::uint32_t index = 0; index < machine_->gpu_count; ++index) {
    const fake::Gpu& gpu = machine_->gpus[index];
    const std::string pci = gpu.pci_address;
    folder_.write("proc/driver/nvidia/gpus/" + pci + "/information",
                  std::string("Model: \t\t ") + gpu.name + "\nIRQ:   \t\t 42\nGPU UUID: \t GPU-0\n" +
                      "Bus Type: \t PCIe\nBus Location: \t " + pci + "\nDevice Minor: \t " + std::to_string(gpu.told_proc_minor) +
                      "\n");
    folder_.write("sys/bus/pci/devices/" + pci + "/numa_node", std::to_string(gpu.numa_node) + "\n");
    folder_.write("sys/bus/pci/devices/" + pci + "/vendor", "0x10de\n");
  }
}

fake::Fault& FakeSession::plant(fake::Call call, const char* name, int error, std::uint32_t count, std::uint32_t skip) {
  for (fake::Fault& slot : machine_->faults) {
    if (slot.count != 0 || slot.hits != 0) continue;
    slot = {};
    slot.call = call;
    std::strncpy(slot.name, name, sizeof slot.name - 1);
    slot.error = error;
    slot.skip = skip;
    slot.count = count;
    return slot;
  }
  throw std::runtime_error("no slot for another fault");
}

fake::Fault& FakeSession::plant_ioctl(std::uint32_t number, std::uint32_t command, int error, std::uint32_t status,
                                      std::uint32_t count, std::uint32_t skip) {
  fake::Fault& fault = plant(fake::Call::ioctl, "", error, count, skip);
  fault.number = number;
  fault.command = command;
  fault.status = status;
  return fault;
}

void FakeSession::remove_faults() {
  for (fake::Fault& slot : machine_->faults) slot = {};
}

CUdeviceptr FakeSession::allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  expect_success(CUDA(cuMemAlloc)(&address, bytes), "cuMemAlloc");
  return address;
}

void FakeSession::free(CUdeviceptr address) { expect_success(CUDA(cuMemFree)(address), "cuMemFree"); }

CUdeviceptr FakeSession::allocate_vmm(int gpu, std::size_t bytes, bool is_exportable) {
  const CUmemAllocationProp properties = vmm_properties(gpu, is_exportable);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  expect_success(CUDA(cuMemCreate)(&handle, bytes, &properties, 0), "cuMemCreate");
  expect_success(CUDA(cuMemAddressReserve)(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
  expect_success(CUDA(cuMemMap)(address, bytes, 0, handle, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  expect_success(CUDA(cuMemSetAccess)(address, bytes, &access, 1), "cuMemSetAccess");
  expect_success(CUDA(cuMemRelease)(handle), "cuMemRelease");  // the mapping keeps the memory
  return address;
}

void FakeSession::free_vmm(CUdeviceptr address, std::size_t bytes) {
  expect_success(CUDA(cuMemUnmap)(address, bytes), "cuMemUnmap");
  expect_success(CUDA(cuMemAddressFree)(address, bytes), "cuMemAddressFree");
}

void FakeSession::write(CUdeviceptr destination, const void* source, std::size_t bytes) {
  expect_success(CUDA(cuMemcpyHtoD)(destination, source, bytes), "cuMemcpyHtoD");
  expect_success(CUDA(cuCtxSynchronize)(), "cuCtxSynchronize");
}

std::vector<unsigned char> FakeSession::read(CUdeviceptr source, std::size_t bytes) {
  std::vector<unsigned char> content(bytes);
  expect_success(CUDA(cuMemcpyDtoH)(content.data(), source, bytes), "cuMemcpyDtoH");
  return content;
}

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> content(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    content[i] = static_cast<unsigned char>((i * 131 + (i >> 8) * 31 + seed * 97 + 13) & 0xff);
  return content;
}

}  // namespace gigabar::test
