// SPDX-License-Identifier: Apache-2.0
// libcuda: initialisation, devices, contexts, entry points.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fakes/entry.hpp"

namespace gigabar::fake {

Entry::Entry(const char* name, Needs needs) : lock(state().mutex) {
  if (needs != Needs::nothing && state().initialised_in != ::getpid()) {
    result = CUDA_ERROR_NOT_INITIALIZED;  // also in a forked child
    return;
  }
  if (const Fault* fault = planted_fault(Call::cuda, name)) {
    result = static_cast<CUresult>(fault->error);
    return;
  }
  if ((needs == Needs::context || needs == Needs::context_unsafe) && current_context() == nullptr) {
    result = CUDA_ERROR_INVALID_CONTEXT;
    return;
  }
  if (needs == Needs::context_unsafe && state().machine.is_capturing && capture_mode() != CU_STREAM_CAPTURE_MODE_RELAXED) {
    state().machine.was_capture_broken = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
}

namespace {

struct EntryPoint {
  const char* name;
  int version;  // CUDA version that brought it
  void* function;
};

const EntryPoint* find_entry_point(const char* name) {
#define GIGABAR_FAKE_SYMBOL(function, version) {#function, version, reinterpret_cast<void*>(&function)},
  static const EntryPoint entry_points[] = {
#include "fakes/entry_points.def"
  };
#undef GIGABAR_FAKE_SYMBOL
  for (const EntryPoint& entry_point : entry_points) {
    if (std::strcmp(entry_point.name, name) == 0) return &entry_point;
  }
  return nullptr;
}

bool is_device(CUdevice device) { return device >= 0 && static_cast<std::uint32_t>(device) < state().machine.gpu_count; }

const Gpu& gpu_at(CUdevice device) { return state().machine.gpus[device]; }

CUresult lookup(const char* name, void** address, int version, CUdriverProcAddressQueryResult* found) {
  const std::lock_guard lock(state().mutex);
  const EntryPoint* entry_point = find_entry_point(name);
  *address = nullptr;
  CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SUCCESS;
  const bool is_of_kernels = std::strncmp(name, "cuModule", 8) == 0 || std::strcmp(name, "cuLaunchKernel") == 0;
  if (entry_point == nullptr || std::strcmp(name, state().machine.hidden_symbol) == 0 ||
      (is_of_kernels && !state().machine.runs_kernels)) {
    why = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  } else if (version < entry_point->version) {
    why = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  } else {
    *address = entry_point->function;
  }
  if (found != nullptr) *found = why;
  return *address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

int attribute_of(const Machine& machine, const Gpu& gpu, CUdevice_attribute attribute) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  std::sscanf(gpu.pci_address, "%x:%x:%x.%x", &domain, &bus, &device, &function);
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return static_cast<int>(domain);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return static_cast<int>(bus);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return static_cast<int>(device);
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return gpu.numa_node;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: return 1;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: return machine.needs_rdma_flushes ? 0 : 100;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: return machine.dma_buf_supported;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: return machine.is_coherent ? 1 : 0;
    default: return 0;
  }
}

CUresult set_uuid(CUuuid* uuid, CUdevice device) {
  if (uuid == nullptr || !is_device(device)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < sizeof uuid->bytes; ++i)
    uuid->bytes[i] = static_cast<char>(0x10 * (device + 1) + static_cast<int>(i));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gigabar::fake

using gigabar::fake::attribute_of;
using gigabar::fake::context_stack;
using gigabar::fake::current_context;
using gigabar::fake::gpu_at;
using gigabar::fake::is_device;
using gigabar::fake::lookup;
using gigabar::fake::state;

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  GIGABAR_FAKE_ENTER(cuInit, nothing);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (s.machine.gpu_count == 0) return CUDA_ERROR_NO_DEVICE;
  if (s.initialised_in == ::getpid()) return CUDA_SUCCESS;
  if (s.initialised_in != 0) return CUDA_ERROR_NOT_INITIALIZED;  // forked after cuInit
  s.initialised_in = ::getpid();
  gigabar::fake::open_memory();
  s.contexts.assign(s.machine.gpu_count, {});
  s.default_pools.assign(s.machine.gpu_count, {});
  for (std::uint32_t gpu = 0; gpu < s.machine.gpu_count; ++gpu) {
    s.contexts[gpu].gpu = static_cast<int>(gpu);
    s.default_pools[gpu].gpu = static_cast<int>(gpu);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  GIGABAR_FAKE_ENTER(cuDriverGetVersion, nothing);
  *version = s.machine.cuda_version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  switch (static_cast<int>(error)) {
#define GIGABAR_FAKE_ERROR(code) \
  case code: *name = #code; return CUDA_SUCCESS;
    GIGABAR_FAKE_ERROR(CUDA_SUCCESS)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_INVALID_VALUE)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_OUT_OF_MEMORY)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_NOT_INITIALIZED)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_NO_DEVICE)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_INVALID_DEVICE)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_INVALID_CONTEXT)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_NOT_FOUND)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_NOT_PERMITTED)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_NOT_SUPPORTED)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    GIGABAR_FAKE_ERROR(CUDA_ERROR_UNKNOWN)
#undef GIGABAR_FAKE_ERROR
    default: *name = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** sentence) {
  const char* name = nullptr;
  const CUresult result = cuGetErrorName(error, &name);
  *sentence = result == CUDA_SUCCESS ? "a sentence of the fake driver" : nullptr;
  return result;
}

#undef cuGetProcAddress
CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** address, int version, cuuint64_t,
                                     CUdriverProcAddressQueryResult* found) {
  return lookup(name, address, version, found);
}
CUresult CUDAAPI cuGetProcAddress(const char* name, void** address, int version, cuuint64_t) {
  return lookup(name, address, version, nullptr);
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  GIGABAR_FAKE_ENTER(cuDeviceGetCount, init);
  *count = static_cast<int>(s.machine.gpu_count);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  GIGABAR_FAKE_ENTER(cuDeviceGet, init);
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int bytes, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDeviceGetName, init);
  if (!is_device(device) || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", gpu_at(device).name);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDeviceGetUuid, init);
  return gigabar::fake::set_uuid(uuid, device);
}

CUresult CUDAAPI cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDeviceTotalMem, init);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = gpu_at(device).memory_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDeviceGetAttribute, init);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int number = static_cast<int>(attribute);
  const int dma_buf_mmap = 152;
  if (number < 1 || number > dma_buf_mmap || (number == dma_buf_mmap && s.machine.dma_buf_mmap_supported < 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = number == dma_buf_mmap ? s.machine.dma_buf_mmap_supported : attribute_of(s.machine, gpu_at(device), attribute);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDeviceGetPCIBusId, init);
  if (!is_device(device) || bytes < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(bytes), "%s", gpu_at(device).pci_address);
  for (char* c = text; *c != '\0'; ++c) *c = static_cast<char>(*c >= 'a' && *c <= 'f' ? *c - 32 : *c);  // as the real one: capitals
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope) {
  GIGABAR_FAKE_ENTER(cuFlushGPUDirectRDMAWrites, context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDevicePrimaryCtxRetain, init);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &s.contexts[static_cast<std::size_t>(device)];
  ++(*context)->retain_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDevicePrimaryCtxRelease, init);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (s.contexts[static_cast<std::size_t>(device)].retain_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --s.contexts[static_cast<std::size_t>(device)].retain_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* is_active) {
  GIGABAR_FAKE_ENTER(cuDevicePrimaryCtxGetState, init);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *is_active = s.contexts[static_cast<std::size_t>(device)].retain_count > 0;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  GIGABAR_FAKE_ENTER(cuCtxPushCurrent, init);
  if (context == nullptr || context->retain_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  ++s.context_pushes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  GIGABAR_FAKE_ENTER(cuCtxPopCurrent, init);
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = context_stack().back();
  context_stack().pop_back();
  --s.context_pushes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  GIGABAR_FAKE_ENTER(cuCtxGetCurrent, init);
  *context = current_context();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  GIGABAR_FAKE_ENTER(cuCtxSetCurrent, init);
  if (!context_stack().empty()) {
    context_stack().pop_back();
    --s.context_pushes;
  }
  if (context != nullptr) {
    context_stack().push_back(context);
    ++s.context_pushes;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  GIGABAR_FAKE_ENTER(cuCtxGetDevice, context);
  *device = current_context()->gpu;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  GIGABAR_FAKE_ENTER(cuThreadExchangeStreamCaptureMode, init);
  std::swap(*mode, gigabar::fake::capture_mode());
  return CUDA_SUCCESS;
}

}  // extern "C"
