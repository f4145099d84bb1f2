// SPDX-License-Identifier: Apache-2.0
// The properties of a pointer, and memory that can be mapped, exported and pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gigabar/device.hpp"
#include "gigabar/export.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

enum class MemoryKind : std::uint8_t {
  host_pageable,  // ordinary memory of this process, or an address that CUDA does not know
  host_pinned,    // allocated or registered with CUDA, or by HostMemory
  device,         // cudaMalloc / cuMemAlloc
  device_vmm,     // cuMemCreate + cuMemMap
  device_pool,    // cudaMallocAsync
  managed,        // cudaMallocManaged
  stand_in,       // host memory of a stand-in device
};

// "device", "device_vmm", ... Any thread; never fails.
GIGABAR_API std::string_view name_of(MemoryKind kind) noexcept;

// Everything that the driver and the system report about one address.
struct PointerInfo {
  MemoryKind kind = MemoryKind::host_pageable;
  std::uintptr_t address = 0;     // the argument
  std::uintptr_t base = 0;        // of the allocation; equals address when it is unknown (pageable host memory)
  std::size_t length_bytes = 0;   // of the allocation; 0 when it is unknown
  std::size_t offset_bytes = 0;   // address - base
  int device = -1;                // CUDA ordinal or stand-in number; -1 for host memory
  std::optional<PciAddress> pci;  // of the device
  int numa_node = -1;             // of the page (host) or of the device; -1: unknown, or the page is not present yet
  std::uint64_t buffer_id = 0;    // CUDA's id, unique within the process and never reused; 0 when there is none
  bool is_exportable = false;     // a POSIX descriptor or an IPC handle can be made of it
};

// Returns what `address` is. Works for any value: an unknown address is reported as host_pageable without a length.
// Errors: invalid_argument (null), device_error. Threads: any. Cost: a few driver calls, about 1 µs.
// Source: CUDA driver API, "Unified Addressing", cuPointerGetAttributes.
GIGABAR_API Result<PointerInfo> describe(const void* address);

enum class DeviceAllocator : std::uint8_t {
  cuda_malloc,  // cuMemAlloc: any size; small allocations share a 2 MiB block
  vmm,          // cuMemCreate with a POSIX descriptor: sizes rounded up to the granularity (2 MiB), exportable
};

// Owned device memory. Move-only; the destructor frees and logs a failure.
class DeviceMemory {
 public:
  // Allocates `bytes` (> 0) on `device`; on a stand-in device the memory is page-aligned host memory.
  // Errors: invalid_argument (no such device, zero bytes), out_of_memory, device_error; nothing is kept on failure.
  // Threads: any; the calling thread's current context is left as it was. Cost: enters the kernel.
  GIGABAR_API static Result<DeviceMemory> allocate(int device, std::size_t bytes,
                                                   DeviceAllocator allocator = DeviceAllocator::cuda_malloc);

  GIGABAR_API DeviceMemory(DeviceMemory&&) noexcept;
  GIGABAR_API DeviceMemory& operator=(DeviceMemory&&) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  GIGABAR_API ~DeviceMemory();

  GIGABAR_API void* address() const noexcept;  // a device address; not to be dereferenced by the CPU
  GIGABAR_API std::size_t bytes() const noexcept;
  GIGABAR_API int device() const noexcept;
  GIGABAR_API bool is_stand_in() const noexcept;

  // Returns a descriptor for another process or API: CUDA's POSIX descriptor for vmm memory (cuMemImportFromShareableHandle), a
  // memfd for stand-in memory. The caller closes it.
  // Errors: not_supported (cuda_malloc memory: use CUDA's IPC handles or export_dma_buf), out_of_descriptors, device_error.
  GIGABAR_API Result<int> export_descriptor() const;

  // Returns a dma-buf descriptor for a NIC or another driver; the size is rounded up to host pages. The caller closes it.
  // Errors: not_supported (stand-in; the driver or kernel cannot export), out_of_descriptors, device_error.
  // Source: CUDA driver API, cuMemGetHandleForAddressRange.
  GIGABAR_API Result<int> export_dma_buf() const;

 private:
  struct State;
  explicit DeviceMemory(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

enum class HostPages : std::uint8_t {
  pinned,          // registered with CUDA where there is a GPU, locked with mlock(2) otherwise
  pageable,        // ordinary memory
  write_combined,  // pinned, not cached by the CPU: fast for sequential writes and for the GPU's reads, very slow for the CPU's
                   // reads
  huge,            // pinned, on huge pages: reserved ones (vm.nr_hugepages) when there are enough, else transparent ones
};
GIGABAR_API std::string_view name_of(HostPages pages) noexcept;  // "pinned", "pageable", "wc", "huge"

struct HostMemoryOptions {
  int numa_node = -1;  // pages are bound (not preferred) to this node; -1: the system's choice
  HostPages pages = HostPages::pinned;
  // Ranks of this host that a fabric connects load and store a segment of it directly, in place of a message or the kernel: its
  // pages are those of a memfd. Pinned or pageable; a child of fork() does not have it.
  bool is_shared = false;
};

// Owned host memory: page-aligned, zeroed, with all pages present. Move-only.
class HostMemory {
 public:
  // Allocates `bytes` (> 0).
  // Errors: invalid_argument (zero bytes, no such node, shared and neither pinned nor pageable), out_of_memory (more than the
  // machine, the node or the control group has free; the locked-memory limit; no huge pages), out_of_descriptors (shared),
  // no_permission, device_error; nothing is kept on failure.
  // Threads: any. Cost: touches every page.
  GIGABAR_API static Result<HostMemory> allocate(std::size_t bytes, const HostMemoryOptions& options = {});

  GIGABAR_API HostMemory(HostMemory&&) noexcept;
  GIGABAR_API HostMemory& operator=(HostMemory&&) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  GIGABAR_API ~HostMemory();

  GIGABAR_API void* address() const noexcept;
  GIGABAR_API std::size_t bytes() const noexcept;
  GIGABAR_API bool is_pinned() const noexcept;
  GIGABAR_API HostPages pages() const noexcept;
  // The node of the first page, as the kernel reported it at allocation; -1 on a machine without NUMA.
  GIGABAR_API int numa_node() const noexcept;

 private:
  struct State;
  explicit HostMemory(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gigabar::inline v0
