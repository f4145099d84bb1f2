// SPDX-License-Identifier: Apache-2.0
// The Runtime over libcuda.
#include "memory/runtime.hpp"

#if GIGABAR_HAS_CUDA

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/rounding.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/nvml/nvml.hpp"
#include "memory/cuda_context.hpp"
#include "memory/cuda_copy_stream.hpp"
#include "memory/host_pages.hpp"
#include "platform/numa.hpp"

namespace gigabar::inline v0 {

ContextGuard::ContextGuard(const cuda::Functions& functions, CUcontext context) noexcept
    : functions_(&functions), result_(functions.cuCtxPushCurrent(context)) {
  functions_->cuThreadExchangeStreamCaptureMode(&capture_mode_);
}

ContextGuard::~ContextGuard() {
  if (functions_ == nullptr) return;
  functions_->cuThreadExchangeStreamCaptureMode(&capture_mode_);
  CUcontext popped = nullptr;
  if (result_ == CUDA_SUCCESS) functions_->cuCtxPopCurrent(&popped);
}

namespace {

// As cuda::failure(), for calls that make a descriptor: CUDA has no result for a full descriptor table, so one of our own is tried.
Error export_error(std::string object, CUresult result, std::string remedy) {
  const Descriptor probe(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int code = errno;
  if (probe.is_open() || (code != EMFILE && code != ENFILE))
    return cuda::failure("export memory", std::move(object), result, std::move(remedy));
  return make_error(Status::out_of_descriptors, "export memory", std::move(object), cuda::describe_result(result),
                    "raise the descriptor limit (ulimit -n)", errno_code(code));
}

// CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED of CUDA 13.3; older headers do not have the name.
constexpr auto kDmaBufMmapSupported = static_cast<CUdevice_attribute>(152);
constexpr int kDmaBufMmapVersion = 13030;

// What stays the same of a device for the life of the process.
struct CudaDevice {
  CUdevice handle = 0;
  DeviceInfo info;
  DeviceTraits traits;
  std::mutex context_mutex;
  CUcontext context = nullptr;  // the primary one, retained for the life of the process once it is needed
  CudaEngine engine;
};

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(const cuda::Driver& driver) : functions_(driver.functions), driver_version_(driver.version) {
    int count = 0;
    functions_.cuDeviceGetCount(&count);
    for (int index = 0; index < count; ++index) devices_.push_back(inspect(index));
  }

  Result<std::vector<DeviceInfo>> devices() override {
    std::vector<DeviceInfo> list;
    for (const auto& device : devices_) {
      list.push_back(device->info);
      if (device->info.pci) {
        if (const auto bar1 = nvml::bar1(device->info.pci->to_string())) {
          list.back().bar1_bytes = bar1->total_bytes;
          list.back().bar1_used_bytes = bar1->used_bytes;
        }
      }
    }
    return list;
  }

  Result<std::optional<PointerInfo>> describe(std::uintptr_t address) override;
  std::uint64_t buffer_id(std::uintptr_t address) override;
  Result<DeviceBlock> allocate(int device, std::size_t bytes, DeviceAllocator allocator) override;
  Result<void> release(const DeviceBlock& block) override;

  Result<void> pin_host(void* address, std::size_t bytes) override {
    auto guard = enter_any();
    if (!guard) return std::move(guard).error();
    const CUresult result = functions_.cuMemHostRegister(address, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    if (result == CUDA_SUCCESS) return {};
    return cuda::failure("pin host memory", range_text(reinterpret_cast<std::uintptr_t>(address), bytes), result,
                         "check the locked-memory limit (ulimit -l) and free memory");
  }

  Result<void> unpin_host(void* address, std::size_t bytes) override {
    auto guard = enter_any();
    if (!guard) return std::move(guard).error();
    const CUresult result = functions_.cuMemHostUnregister(address);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return {};
    return cuda::failure("unpin host memory", range_text(reinterpret_cast<std::uintptr_t>(address), bytes), result);
  }

  Result<void*> allocate_write_combined(std::size_t bytes) override {
    auto guard = enter_any();
    if (!guard) return std::move(guard).error();
    void* address = nullptr;
    const CUresult result = functions_.cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED);
    if (result == CUDA_SUCCESS) return address;
    return cuda::failure("allocate write-combined memory", counted(bytes, "byte"), result,
                         "check free memory and the locked-memory limit (ulimit -l)");
  }

  Result<void> release_write_combined(void* address, std::size_t bytes) override {
    auto guard = enter_any();
    if (!guard) return std::move(guard).error();
    const CUresult result = functions_.cuMemFreeHost(address);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return {};
    return cuda::failure("free write-combined memory", range_text(reinterpret_cast<std::uintptr_t>(address), bytes), result);
  }

  Result<void*> map_registers(int device, void* address, std::size_t bytes) override {
    auto guard = enter(device);
    if (!guard) return std::move(guard).error();
    constexpr unsigned kFlags = CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
    CUresult result = functions_.cuMemHostRegister(address, bytes, kFlags);
    if (result == CUDA_SUCCESS) {
      CUdeviceptr mapped = 0;
      result = functions_.cuMemHostGetDevicePointer(&mapped, address, 0);
      if (result == CUDA_SUCCESS) return reinterpret_cast<void*>(mapped);
      functions_.cuMemHostUnregister(address);
    }
    return cuda::failure("map registers", range_text(reinterpret_cast<std::uintptr_t>(address), bytes), result,
                         result == CUDA_ERROR_NOT_PERMITTED
                             ? "start the NVIDIA driver with NVreg_RegistryDwords=\"PeerMappingOverride=1;\", or let the CPU ring"
                             : "let the CPU ring");
  }

  Result<void> unmap_registers(int, void* address, std::size_t bytes) override { return unpin_host(address, bytes); }

  Result<void> engine_copy(int device, CopyWay way, std::span<const EngineCopy> pieces) override {
    auto guard = enter(device);
    if (!guard) return std::move(guard).error();
    return at(device).engine.copy(functions_, way, pieces);
  }

  Result<DeviceTraits> traits(int device) override {
    if (!is_device(device)) return no_such_device(device);
    return at(device).traits;
  }

  Result<IpcIdentity> ipc_identity(const PointerInfo& memory) override {
    auto guard = enter(memory.device);
    if (!guard) return std::move(guard).error();
    CUipcMemHandle handle{};
    if (const CUresult result = functions_.cuIpcGetMemHandle(&handle, memory.base); result != CUDA_SUCCESS) {
      return cuda::failure("identify memory", range_text(memory.base, memory.length_bytes), result);
    }
    IpcIdentity identity{};
    static_assert(sizeof identity == sizeof handle);
    std::memcpy(identity.data(), &handle, sizeof handle);
    return identity;
  }

  Result<int> export_descriptor(std::uintptr_t address) override;
  Result<int> export_dma_buf(std::uintptr_t address, std::size_t bytes) override;

  std::shared_ptr<const void> hold(std::uintptr_t) override { return nullptr; }

  Result<CUcontext> context(int index) {
    const auto guard = enter(index);
    if (!guard) return guard.error();
    return at(index).context;
  }

 private:
  std::unique_ptr<CudaDevice> inspect(int index) const;
  Result<DeviceBlock> allocate_vmm(int device, std::size_t bytes);
  bool has_vmm() const { return functions_.cuMemCreate != nullptr && functions_.cuMemRetainAllocationHandle != nullptr; }
  CudaDevice& at(int device) const { return *devices_[static_cast<std::size_t>(device)]; }
  bool is_device(int device) const { return device >= 0 && static_cast<std::size_t>(device) < devices_.size(); }

  Error no_such_device(int device) const {
    return make_error(Status::invalid_argument, "find device", text("device ", device),
                      text("this process sees ", devices_.size(), " GPU(s)"));
  }

  // Retained once and kept. A failure (no memory left on the GPU, say) is not remembered.
  CUresult retain_context(CudaDevice& device) {
    const std::lock_guard lock(device.context_mutex);
    return device.context != nullptr ? CUDA_SUCCESS : functions_.cuDevicePrimaryCtxRetain(&device.context, device.handle);
  }

  // The device's primary context, current until the guard goes.
  Result<ContextGuard> enter(int index) {
    if (!is_device(index)) return no_such_device(index);
    if (const CUresult result = retain_context(at(index)); result != CUDA_SUCCESS) {
      return cuda::failure("use device", text("device ", index), result);
    }
    ContextGuard guard(functions_, at(index).context);
    if (guard.result() != CUDA_SUCCESS) return cuda::failure("use device", text("device ", index), guard.result());
    return guard;
  }

  // To pin pages for all devices takes a context, always the same one: of a device that the program uses already, since a further
  // one takes hundreds of megabytes of its GPU, and may be refused.
  Result<ContextGuard> enter_any() {
    if (const int chosen = pinning_device_.load(std::memory_order_acquire); chosen >= 0) return enter(chosen);
    std::optional<Error> refused;  // of the first one
    for (const int index : active_devices_first()) {
      if (const CUresult result = retain_context(at(index)); result != CUDA_SUCCESS) {
        if (!refused) refused = cuda::failure("use device", text("device ", index), result);
        continue;
      }
      int chosen = -1;
      const bool is_first = pinning_device_.compare_exchange_strong(chosen, index, std::memory_order_acq_rel);
      return enter(is_first ? index : chosen);
    }
    return refused ? *std::move(refused) : no_such_device(0);
  }

  std::vector<int> active_devices_first() const {
    std::vector<int> active, others;
    for (std::size_t index = 0; index < devices_.size(); ++index) {
      unsigned flags = 0;
      int is_active = 0;
      const CUresult told = functions_.cuDevicePrimaryCtxGetState(devices_[index]->handle, &flags, &is_active);
      (told == CUDA_SUCCESS && is_active != 0 ? active : others).push_back(static_cast<int>(index));
    }
    active.insert(active.end(), others.begin(), others.end());
    return active;
  }

  const cuda::Functions& functions_;
  const int driver_version_;
  std::atomic<int> pinning_device_{-1};
  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

std::unique_ptr<CudaDevice> CudaRuntime::inspect(int index) const {
  auto device = std::make_unique<CudaDevice>();
  device->info.index = index;
  if (functions_.cuDeviceGet(&device->handle, index) != CUDA_SUCCESS) return device;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return functions_.cuDeviceGetAttribute(&value, which, device->handle) == CUDA_SUCCESS ? value : 0;
  };
  device->info.name = cuda::name_of(functions_, device->handle);
  device->info.uuid = cuda::uuid_of(functions_, device->handle);
  device->info.pci = cuda::address_of(functions_, device->handle);
  if (device->info.pci) device->info.numa_node = numa_node_of_device(*device->info.pci);
  std::size_t memory_bytes = 0;
  if (functions_.cuDeviceTotalMem(&memory_bytes, device->handle) == CUDA_SUCCESS) device->info.memory_bytes = memory_bytes;
  device->info.compute_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  device->info.compute_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  device->traits.driver_api_version = driver_version_;
  // Older drivers do not know attribute 152: asking them is an error, which counts as no.
  device->traits.can_mmap_dma_buf = driver_version_ >= kDmaBufMmapVersion &&
                                    attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0 && attribute(kDmaBufMmapSupported) != 0;
  device->traits.is_coherent = attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) != 0;
  device->traits.orders_nic_writes =
      attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  device->traits.pci = device->info.pci;
  return device;
}

Result<std::optional<PointerInfo>> CudaRuntime::describe(std::uintptr_t address) {
  unsigned memory_type = 0, is_managed = 0, is_ipc_capable = 0;
  int ordinal = -1;
  CUdeviceptr begin = 0;
  std::size_t length_bytes = 0;
  unsigned long long buffer_id = 0, handle_types = 0;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                 CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                 CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&memory_type,   &is_managed, &ordinal,      &begin,
                    &length_bytes,  &buffer_id,  &handle_types, static_cast<void*>(&pool),
                    &is_ipc_capable};
  const CUresult result = functions_.cuPointerGetAttributes(std::size(names), names, values, address);
  if (result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && memory_type == 0)) return std::optional<PointerInfo>{};
  if (result != CUDA_SUCCESS) return cuda::failure("describe", hex_text(address), result);

  PointerInfo info;
  info.address = address;
  info.base = begin;
  info.length_bytes = length_bytes;
  info.offset_bytes = address - begin;
  info.buffer_id = buffer_id;
  info.is_exportable = is_ipc_capable != 0 || (handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  if (is_managed != 0) {
    info.kind = MemoryKind::managed;
  } else if (memory_type == CU_MEMORYTYPE_HOST) {
    info.kind = MemoryKind::host_pinned;
    info.numa_node = numa_node_of_page(address);
    return std::optional<PointerInfo>{info};
  } else if (pool != nullptr) {
    info.kind = MemoryKind::device_pool;
  } else {
    info.kind = MemoryKind::device;
    CUmemGenericAllocationHandle handle = 0;
    if (is_ipc_capable == 0 && has_vmm() &&
        functions_.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) == CUDA_SUCCESS) {
      functions_.cuMemRelease(handle);
      info.kind = MemoryKind::device_vmm;
    }
  }
  info.device = ordinal;
  if (is_device(ordinal)) {
    info.pci = at(ordinal).info.pci;
    info.numa_node = at(ordinal).info.numa_node;
  }
  return std::optional<PointerInfo>{info};
}

std::uint64_t CudaRuntime::buffer_id(std::uintptr_t address) {
  unsigned long long id = 0;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  void* value = &id;
  return functions_.cuPointerGetAttributes(1, &name, &value, address) == CUDA_SUCCESS ? id : 0;
}

Result<DeviceBlock> CudaRuntime::allocate(int device, std::size_t bytes, DeviceAllocator allocator) {
  auto guard = enter(device);
  if (!guard) return std::move(guard).error();
  if (allocator == DeviceAllocator::vmm) return allocate_vmm(device, bytes);
  CUdeviceptr address = 0;
  if (const CUresult result = functions_.cuMemAlloc(&address, bytes); result != CUDA_SUCCESS) {
    return cuda::failure("allocate device memory", text(counted(bytes, "byte"), " on device ", device), result,
                         "ask for less, or free memory of this GPU");
  }
  return DeviceBlock{address, bytes, bytes, device, allocator};
}

Result<DeviceBlock> CudaRuntime::allocate_vmm(int device, std::size_t bytes) {
  const std::string object = text(counted(bytes, "byte"), " of VMM memory on device ", device);
  if (!has_vmm())
    return make_error(Status::not_supported, "allocate device memory", object, "the driver has no virtual memory management");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  int can_rdma = 0;
  functions_.cuDeviceGetAttribute(&can_rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, at(device).handle);
  properties.allocFlags.gpuDirectRDMACapable = can_rdma != 0 ? 1 : 0;

  std::size_t granularity = 0;
  CUresult result = functions_.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return cuda::failure("allocate device memory", object, result);
  const std::size_t reserved_bytes = round_up(bytes, granularity);
  CUmemGenericAllocationHandle handle = 0;
  result = functions_.cuMemCreate(&handle, reserved_bytes, &properties, 0);
  if (result != CUDA_SUCCESS)
    return cuda::failure("allocate device memory", object, result, "ask for less, or free memory of this GPU");

  CUdeviceptr address = 0;
  bool is_mapped = false;
  result = functions_.cuMemAddressReserve(&address, reserved_bytes, granularity, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = functions_.cuMemMap(address, reserved_bytes, 0, handle, 0);
    is_mapped = result == CUDA_SUCCESS;
  }
  if (is_mapped) {
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = functions_.cuMemSetAccess(address, reserved_bytes, &access, 1);
  }
  functions_.cuMemRelease(handle);  // the mapping keeps the memory
  if (result == CUDA_SUCCESS) return DeviceBlock{address, bytes, reserved_bytes, device, DeviceAllocator::vmm};
  if (is_mapped) functions_.cuMemUnmap(address, reserved_bytes);
  if (address != 0) functions_.cuMemAddressFree(address, reserved_bytes);
  return cuda::failure("allocate device memory", object, result);
}

Result<void> CudaRuntime::release(const DeviceBlock& block) {
  auto guard = enter(block.device);
  if (!guard) return std::move(guard).error();
  CUresult result;
  if (block.allocator == DeviceAllocator::vmm) {
    result = functions_.cuMemUnmap(block.address, block.reserved_bytes);
    const CUresult freed = functions_.cuMemAddressFree(block.address, block.reserved_bytes);
    if (result == CUDA_SUCCESS) result = freed;
  } else {
    result = functions_.cuMemFree(block.address);
  }
  // At exit the driver may be gone before a static object frees its memory; the memory went with it.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return {};
  return cuda::failure("free device memory", range_text(block.address, block.bytes), result);
}

Result<int> CudaRuntime::export_descriptor(std::uintptr_t address) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult result =
      has_vmm() ? functions_.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) : CUDA_ERROR_NOT_SUPPORTED;
  if (result != CUDA_SUCCESS)
    return cuda::failure("export memory", hex_text(address), result, "only VMM memory can be exported as a descriptor");
  int descriptor = -1;
  result = functions_.cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  functions_.cuMemRelease(handle);
  if (result == CUDA_SUCCESS) return descriptor;
  return export_error(hex_text(address), result, "create it with requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
}

Result<int> CudaRuntime::export_dma_buf(std::uintptr_t address, std::size_t bytes) {
  if (functions_.cuMemGetHandleForAddressRange == nullptr) {
    return make_error(Status::not_supported, "export dma-buf", hex_text(address), "the driver has no cuMemGetHandleForAddressRange",
                      "install a newer driver");
  }
  const auto known = describe(address);
  if (!known) return known.error();
  if (!known->has_value() || (*known)->device < 0) {
    return make_error(Status::not_supported, "export dma-buf", hex_text(address), "is not device memory");
  }
  auto guard = enter((*known)->device);
  if (!guard) return std::move(guard).error();
  const std::size_t page = host_page_bytes();
  const std::uintptr_t begin = address / page * page;
  const std::size_t length = round_up(address + bytes - begin, page);
  int descriptor = -1;
  const CUresult result =
      functions_.cuMemGetHandleForAddressRange(&descriptor, begin, length, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == CUDA_SUCCESS) return descriptor;
  return export_error(range_text(begin, length), result, "needs the open kernel modules and a kernel with dma-buf support");
}

CudaRuntime* the_runtime() {
  static auto* const instance = cuda::driver().availability.is_ok() ? new CudaRuntime(cuda::driver()) : nullptr;
  return instance;
}

}  // namespace

Runtime* cuda_runtime() { return the_runtime(); }

Result<CUcontext> primary_context(int device) {
  CudaRuntime* const runtime = the_runtime();
  if (runtime == nullptr) return make_error("use device", text("device ", device), cuda::driver().availability);
  return runtime->context(device);
}

}  // namespace gigabar::inline v0

#endif
