// SPDX-License-Identifier: Apache-2.0
// What the components need of a GPU's driver, twice: CUDA, and host memory playing a GPU. Nothing above this header knows which.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptor.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"
#include "memory/copy_stream.hpp"

namespace gigabar::inline v0 {

// One allocation made by a Runtime; owned by whoever got it, until release().
struct DeviceBlock {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;           // as asked
  std::size_t reserved_bytes = 0;  // as taken
  int device = 0;
  DeviceAllocator allocator = DeviceAllocator::cuda_malloc;
};

// Bytes to move between host and device by the copy engine.
struct EngineCopy {
  void* host = nullptr;
  std::uintptr_t device = 0;
  std::size_t bytes = 0;
};

// The sixteen words of a CUDA IPC handle, which name the allocation to the resource manager.
using IpcIdentity = std::array<std::uint32_t, 16>;

// What of a device decides about mapping backends and adapters.
struct DeviceTraits {
  bool can_mmap_dma_buf = false;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED
  bool is_coherent = false;       // the CPU caches GPU memory (Grace)
  int driver_api_version = 0;     // 13000 is CUDA 13.0
  bool orders_nic_writes = true;  // kernels that run see a NIC's writes in the order in which they came
  std::optional<PciAddress> pci;
};

// Threads: any. No function changes the calling thread's current context or disturbs a stream capture.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual Result<std::vector<DeviceInfo>> devices() = 0;
  // Nothing when this runtime does not know the address.
  virtual Result<std::optional<PointerInfo>> describe(std::uintptr_t address) = 0;
  // What describe() would tell as buffer_id, in a fraction of its time; 0: not known to this runtime.
  virtual std::uint64_t buffer_id(std::uintptr_t address) = 0;

  virtual Result<DeviceBlock> allocate(int device, std::size_t bytes, DeviceAllocator allocator) = 0;
  // A stand-in knows a block by its address. Errors: invalid_argument (it has none there), foreign_process (of the parent).
  virtual Result<void> release(const DeviceBlock& block) = 0;

  virtual Result<void> pin_host(void* address, std::size_t bytes) = 0;
  virtual Result<void> unpin_host(void* address, std::size_t bytes) = 0;
  // Pinned memory of whole pages that the CPU does not cache (stand-in: ordinary locked memory), on the node that the calling
  // thread's memory policy names. The content is not defined.
  virtual Result<void*> allocate_write_combined(std::size_t bytes) = 0;
  virtual Result<void> release_write_combined(void* address, std::size_t bytes) = 0;

  // Maps whole pages of another device's registers for kernels of `device`: where those find them. The CPU must have mapped them.
  virtual Result<void*> map_registers(int device, void* address, std::size_t bytes) = 0;
  virtual Result<void> unmap_registers(int device, void* address, std::size_t bytes) = 0;

  // Copies every piece to or from the device and waits. Not ordered with any stream of the caller.
  virtual Result<void> engine_copy(int device, CopyWay way, std::span<const EngineCopy> pieces) = 0;

  virtual Result<DeviceTraits> traits(int device) = 0;
  virtual Result<IpcIdentity> ipc_identity(const PointerInfo& memory) = 0;
  // Descriptors for the whole allocation (VMM, stand-in) and for a range (dma-buf); the caller closes them.
  virtual Result<int> export_descriptor(std::uintptr_t address) = 0;
  virtual Result<int> export_dma_buf(std::uintptr_t address, std::size_t bytes) = 0;

  // Keeps host-side pages of the memory valid while it is held, whatever is freed; null where the runtime needs nothing.
  virtual std::shared_ptr<const void> hold(std::uintptr_t address) = 0;
};

// CUDA's, or null when libcuda cannot be used (cuda::driver() says why).
Runtime* cuda_runtime();
Runtime& stand_in_runtime();

// How many stand-ins GIGABAR_STAND_IN asks for; 0 when it is unset. Errors: invalid_argument.
Result<int> forced_stand_in_count();

// The runtime whose devices this process sees: CUDA's, or the stand-ins when they are asked for or there is no GPU.
// Errors: invalid_argument (GIGABAR_STAND_IN), device_error (a driver that is there but cannot be initialised).
Result<Runtime*> active_runtime();

// Copies `bytes` between host memory (of any kind) and device memory and waits until they have arrived. On a stream of the
// library's own: not ordered with streams of the caller. Errors: device_error, timed_out. Threads: any.
inline Result<void> engine_copy(int device, CopyWay way, const EngineCopy& piece) {
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  return (*runtime)->engine_copy(device, way, {&piece, 1});
}
inline Result<void> engine_copy_to(int device, std::uintptr_t device_destination, const void* source, std::size_t bytes) {
  return engine_copy(device, CopyWay::to_device, {const_cast<void*>(source), device_destination, bytes});
}
inline Result<void> engine_copy_from(int device, void* destination, std::uintptr_t device_source, std::size_t bytes) {
  return engine_copy(device, CopyWay::from_device, {destination, device_source, bytes});
}

// Waits until all work that this process gave the device before the call has ended, of every stream and library. At most
// `timeout_ns` (negative: no limit). A stand-in has no work. Errors: timed_out, device_error.
// Threads: any. Cost: a thread for as long as the work lasts, also beyond the call.
Result<void> wait_until_idle(int device, std::int64_t timeout_ns);

// Of a GPU, allocated by CUDA, and nowhere else.
constexpr bool is_cuda_device_memory(MemoryKind kind) noexcept {
  return kind == MemoryKind::device || kind == MemoryKind::device_vmm || kind == MemoryKind::device_pool;
}

// The runtime that memory belongs to.
Runtime& runtime_of(const PointerInfo& memory);

// The allocation of HostMemory that holds `address`, if it is pinned: on a machine without CUDA nobody else remembers it.
std::optional<PointerInfo> find_pinned_host_memory(std::uintptr_t address);

// The memfd that holds [address, address + bytes) from `offset_bytes` on; null: they are not in one shared allocation of
// HostMemory.
struct SharedPages {
  std::shared_ptr<const Descriptor> file;
  std::uint64_t offset_bytes = 0;
};
SharedPages find_shared_host_memory(std::uintptr_t address, std::size_t bytes);

}  // namespace gigabar::inline v0
