// SPDX-License-Identifier: Apache-2.0
// libcuda: allocation, and what a pointer is.
#include <sys/mman.h>

#include <cstring>

#include "fakes/entry.hpp"

namespace gigabar::fake {
namespace {

constexpr std::uint64_t kMaxShared = kMiB;  // larger allocations have blocks of their own
constexpr std::uint64_t kAlignment = 512;

CUresult allocate_shared(int gpu, std::uint64_t bytes, Allocation* allocation) {
  auto& pool = state().shared_blocks[static_cast<std::size_t>(gpu)];
  const std::uint64_t whole = round_up(bytes, kAlignment);
  std::uint64_t offset = 0;
  std::shared_ptr<SharedBlock> home;
  for (const auto& candidate : pool) {
    if (candidate->ranges.take(whole, kAlignment, &offset)) home = candidate;
    if (home) break;
  }
  if (!home) {
    home = std::make_shared<SharedBlock>();
    home->block = make_block(gpu, kBlockBytes);
    if (!home->block || !state().va.take(kBlockBytes, kBlockBytes, &home->address)) return CUDA_ERROR_OUT_OF_MEMORY;
    adopt_for_cuda(home->block);
    state().ranges[home->address] = {kBlockBytes, home->block, 0, true};
    home->ranges.reset(0, kBlockBytes);
    home->ranges.take(whole, kAlignment, &offset);
    pool.push_back(home);
  }
  allocation->block = home->block;
  allocation->block_offset = offset;
  allocation->address = home->address + offset;
  allocation->shared = home;
  return CUDA_SUCCESS;
}

CUresult allocate_own(int gpu, std::uint64_t bytes, Allocation* allocation) {
  allocation->block = make_block(gpu, bytes);
  if (!allocation->block || !state().va.take(allocation->block->bytes, kBlockBytes, &allocation->address))
    return CUDA_ERROR_OUT_OF_MEMORY;
  adopt_for_cuda(allocation->block);
  state().ranges[allocation->address] = {allocation->block->bytes, allocation->block, 0, true};
  return CUDA_SUCCESS;
}

void release_block(Address address, const BlockRef& block) {
  state().ranges.erase(address);
  state().va.give_back(address, block->bytes);
  release_from_cuda(block);
}

// Physical pages that others still hold stay with them.
void free_device(const Allocation& allocation) {
  if (!allocation.shared) {
    release_block(allocation.address, allocation.block);
    return;
  }
  SharedBlock& home = *allocation.shared;
  home.ranges.give_back(allocation.block_offset, round_up(allocation.bytes, kAlignment));
  if (home.ranges.used_bytes() != 0) return;
  release_block(home.address, home.block);
  std::erase(state().shared_blocks[static_cast<std::size_t>(home.block->gpu)], allocation.shared);
}

void run_all_pending() {
  for (const PendingCopy& copy : state().pending) copy.run();
  state().pending.clear();
}

CUresult free_allocation(CUdeviceptr address, bool is_pool_call) {
  const auto place = state().allocations.find(address);
  if (place == state().allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = place->second;
  run_all_pending();
  switch (allocation.kind) {
    case Kind::device:
      if (is_pool_call) return CUDA_ERROR_INVALID_VALUE;
      free_device(allocation);
      break;
    case Kind::pool: free_device(allocation); break;
    case Kind::managed: ::munmap(reinterpret_cast<void*>(address), round_up(allocation.bytes, kHostPage)); break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  state().allocations.erase(address);
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* address, std::uint64_t bytes, Kind kind, int gpu, CUmemoryPool pool) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation allocation;
  allocation.kind = kind;
  allocation.bytes = bytes;
  allocation.gpu = gpu;
  allocation.pool = pool;
  allocation.context = &state().contexts[static_cast<std::size_t>(gpu)];
  // Pools and small allocations do not share blocks with each other.
  const bool is_small = kind == Kind::device && bytes <= kMaxShared;
  const CUresult result = is_small ? allocate_shared(gpu, bytes, &allocation) : allocate_own(gpu, bytes, &allocation);
  if (result != CUDA_SUCCESS) return result;
  *address = allocation.address;
  add_allocation(allocation);
  return CUDA_SUCCESS;
}

CUresult allocate_host_pages(void** address, std::uint64_t bytes, Kind kind) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* pages = ::mmap(nullptr, round_up(bytes, kHostPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation;
  allocation.kind = kind;
  allocation.address = reinterpret_cast<Address>(pages);
  allocation.bytes = bytes;
  allocation.gpu = current_context()->gpu;
  allocation.context = current_context();
  add_allocation(allocation);
  *address = pages;
  return CUDA_SUCCESS;
}

template <class T>
CUresult put(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

bool is_host(const Allocation& allocation) {
  return allocation.kind == Kind::host_allocated || allocation.kind == Kind::host_registered;
}

bool is_legacy_ipc_capable(const Allocation& allocation) { return allocation.kind == Kind::device; }

std::uint64_t handle_types_of(const Allocation& allocation) {
  if (allocation.kind == Kind::vmm) return allocation.block->handle_types;
  if (allocation.kind == Kind::pool && allocation.pool->is_exportable) return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return 0;
}

CUresult attribute_of(const Allocation& allocation, CUpointer_attribute attribute, CUdeviceptr pointer, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(data, allocation.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, static_cast<unsigned>(is_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!is_host(allocation) && allocation.kind != Kind::managed) return CUDA_ERROR_INVALID_VALUE;
      return put(data, pointer);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(data, static_cast<unsigned long long>(allocation.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(data, static_cast<int>(allocation.kind == Kind::managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, allocation.gpu);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put(data, static_cast<int>(is_legacy_ipc_capable(allocation)));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(data, allocation.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(data, static_cast<std::size_t>(allocation.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put(data, handle_types_of(allocation));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(data, allocation.pool);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes answers for memory it does not know.
CUresult nothing_known(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, -2);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 0);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(data, std::uint64_t{0});
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// The allocation of this process whose IPC handle that is; null for anything else.
const Allocation* find_by_ipc_words(const std::uint32_t (&words)[16]) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, &words[4], sizeof bytes);
  for (const auto& [address, allocation] : state().allocations) {
    if (is_legacy_ipc_capable(allocation) && words[12] == kCudaClient && words[13] == allocation.block->rm_handle &&
        words[7] == allocation.block_offset && bytes == allocation.bytes)
      return &allocation;
  }
  return nullptr;
}

// The sixteen words that name an allocation to the resource manager.
void fill_ipc_words(const Allocation& allocation, std::uint32_t (&words)[16]) {
  for (std::uint32_t i = 0; i < 16; ++i) words[i] = 0x01010101 * i;
  std::memcpy(&words[4], &allocation.bytes, sizeof allocation.bytes);
  words[6] = static_cast<std::uint32_t>(allocation.block->bytes / kHostPage);
  words[7] = static_cast<std::uint32_t>(allocation.block_offset);
  words[8] = state().machine.gpus[allocation.gpu].gpu_id;
  words[9] = words[10] = words[11] = 0;
  words[12] = kCudaClient;
  words[13] = allocation.block->rm_handle;
  words[14] = words[15] = 0;
  if (allocation.bytes >= 4 * kGiB) {
    words[14] = 0x5c000003;
    words[15] = 0x5c0000a7;
  }
  if (state().machine.has_scrambled_ipc_words) {
    for (std::uint32_t i = 0; i < 8; ++i) std::swap(words[i], words[15 - i]);
  }
}

}  // namespace
}  // namespace gigabar::fake

using namespace gigabar::fake;

extern "C" {

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  GIGABAR_FAKE_ENTER(cuMemAlloc, context_unsafe);
  return allocate(address, bytes, Kind::device, current_context()->gpu, nullptr);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  GIGABAR_FAKE_ENTER(cuMemFree, context_unsafe);
  entry.wait_for_kernels();
  return address == 0 ? CUDA_SUCCESS : free_allocation(address, false);
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  GIGABAR_FAKE_ENTER(cuDeviceGetDefaultMemPool, init);
  if (device < 0 || static_cast<std::size_t>(device) >= s.default_pools.size()) return CUDA_ERROR_INVALID_DEVICE;
  *pool = &s.default_pools[static_cast<std::size_t>(device)];
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  GIGABAR_FAKE_ENTER(cuMemPoolCreate, init);
  *pool = new CUmemPoolHandle_st{properties->location.id, properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  GIGABAR_FAKE_ENTER(cuMemPoolDestroy, init);
  delete pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool, CUstream) {
  GIGABAR_FAKE_ENTER(cuMemAllocFromPoolAsync, context);
  return allocate(address, bytes, Kind::pool, pool->gpu, pool);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream) {
  GIGABAR_FAKE_ENTER(cuMemAllocAsync, context);
  const int gpu = current_context()->gpu;
  return allocate(address, bytes, Kind::pool, gpu, &s.default_pools[static_cast<std::size_t>(gpu)]);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream) {
  GIGABAR_FAKE_ENTER(cuMemFreeAsync, context);
  return free_allocation(address, true);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned int) {
  GIGABAR_FAKE_ENTER(cuMemAllocManaged, context_unsafe);
  void* pages = nullptr;
  const CUresult result = allocate_host_pages(&pages, bytes, Kind::managed);
  *address = reinterpret_cast<CUdeviceptr>(pages);
  return result;
}

CUresult CUDAAPI cuMemHostAlloc(void** address, std::size_t bytes, unsigned int flags) {
  GIGABAR_FAKE_ENTER(cuMemHostAlloc, context_unsafe);
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = allocate_host_pages(address, bytes, Kind::host_allocated);
  if (result != CUDA_SUCCESS) return result;
  s.allocations[reinterpret_cast<Address>(*address)].host_flags = flags;
  std::memset(*address, 0xa5, bytes);  // nobody promises zeros
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* address) {
  GIGABAR_FAKE_ENTER(cuMemHostGetFlags, context);
  const Allocation* allocation = find_allocation(reinterpret_cast<Address>(address));
  if (flags == nullptr || allocation == nullptr || allocation->kind != Kind::host_allocated) return CUDA_ERROR_INVALID_VALUE;
  *flags = allocation->host_flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeHost(void* address) {
  GIGABAR_FAKE_ENTER(cuMemFreeHost, context_unsafe);
  const auto place = s.allocations.find(reinterpret_cast<Address>(address));
  if (place == s.allocations.end() || place->second.kind != Kind::host_allocated) return CUDA_ERROR_INVALID_VALUE;
  run_all_pending();
  ::munmap(address, round_up(place->second.bytes, kHostPage));
  s.allocations.erase(place);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister(void* address, std::size_t bytes, unsigned int) {
  GIGABAR_FAKE_ENTER(cuMemHostRegister, context_unsafe);
  const auto start = reinterpret_cast<Address>(address);
  if (start == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (find_allocation(start) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Allocation allocation;
  allocation.kind = Kind::host_registered;
  allocation.address = start;
  allocation.bytes = bytes;
  allocation.gpu = current_context()->gpu;
  allocation.context = current_context();
  add_allocation(allocation);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* address) {
  GIGABAR_FAKE_ENTER(cuMemHostUnregister, context_unsafe);
  const auto place = s.allocations.find(reinterpret_cast<Address>(address));
  if (place == s.allocations.end() || place->second.kind != Kind::host_registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  run_all_pending();
  s.allocations.erase(place);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* device_address, void* address, unsigned int) {
  GIGABAR_FAKE_ENTER(cuMemHostGetDevicePointer, context);
  const Allocation* allocation = find_allocation(reinterpret_cast<Address>(address));
  if (allocation == nullptr || !is_host(*allocation)) return CUDA_ERROR_INVALID_VALUE;
  *device_address = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  GIGABAR_FAKE_ENTER(cuMemGetAddressRange, context);
  const Allocation* allocation = find_allocation(address);
  if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation->address;
  if (bytes != nullptr) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  GIGABAR_FAKE_ENTER(cuPointerGetAttribute, init);
  const Allocation* allocation = find_allocation(pointer);
  return allocation == nullptr || data == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute_of(*allocation, attribute, pointer, data);
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  GIGABAR_FAKE_ENTER(cuPointerGetAttributes, init);
  const Allocation* allocation = find_allocation(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (allocation == nullptr) {
      if (nothing_known(attributes[i], data[i]) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    } else if (attribute_of(*allocation, attributes[i], pointer, data[i]) != CUDA_SUCCESS) {
      put(data[i], std::uint64_t{0});
    }
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  GIGABAR_FAKE_ENTER(cuIpcGetMemHandle, context);
  const Allocation* allocation = find_allocation(address);
  if (handle == nullptr || allocation == nullptr || !is_legacy_ipc_capable(*allocation)) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t words[16];
  fill_ipc_words(*allocation, words);
  static_assert(sizeof words == sizeof handle->reserved);
  std::memcpy(handle->reserved, words, sizeof words);
  return CUDA_SUCCESS;
}

// Tests play the other process in the one that owns the memory, which the real driver refuses. Like the real one it hands out one
// address per allocation, context and process: whoever opens a handle twice has to share it.
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  GIGABAR_FAKE_ENTER(cuIpcOpenMemHandle, context_unsafe);
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t words[16];
  std::memcpy(words, handle.reserved, sizeof words);
  const Allocation* const source = find_by_ipc_words(words);
  if (source == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (source->gpu != current_context()->gpu && !s.machine.has_peer_access) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  for (const auto& [start, known] : s.allocations) {
    if (known.kind == Kind::ipc_opened && known.block == source->block && known.block_offset == source->block_offset &&
        known.context == current_context())
      return CUDA_ERROR_ALREADY_MAPPED;
  }
  Allocation opened = *source;
  Address start = 0;
  if (!s.va.take(opened.block->bytes, kBlockBytes, &start)) return CUDA_ERROR_OUT_OF_MEMORY;
  s.ranges[start] = {opened.block->bytes, opened.block, 0, true};
  opened.kind = Kind::ipc_opened;
  opened.shared = nullptr;
  opened.context = current_context();
  opened.address = start + opened.block_offset;
  *address = opened.address;
  add_allocation(opened);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  GIGABAR_FAKE_ENTER(cuIpcCloseMemHandle, context_unsafe);
  const auto place = s.allocations.find(address);
  if (place == s.allocations.end() || place->second.kind != Kind::ipc_opened) return CUDA_ERROR_INVALID_VALUE;
  if (place->second.context != current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  run_all_pending();
  const Allocation opened = place->second;
  s.allocations.erase(place);
  s.ranges.erase(address - opened.block_offset);
  s.va.give_back(address - opened.block_offset, opened.block->bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, std::size_t bytes, CUmemRangeHandleType type,
                                               unsigned long long) {
  GIGABAR_FAKE_ENTER(cuMemGetHandleForAddressRange, context);
  std::uint64_t contiguous = 0;
  if (handle == nullptr || bytes == 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_INVALID_VALUE;
  if (address % kHostPage != 0 || bytes % kHostPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (s.machine.dma_buf_supported == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (translate(address, &contiguous) == nullptr || bytes > contiguous) return CUDA_ERROR_INVALID_VALUE;
  const auto& [start, range] = *std::prev(s.ranges.upper_bound(address));
  File file;
  file.kind = File::Kind::dma_buf;
  file.gpu = range.block->gpu;
  file.block = range.block;
  file.physical_offset = range.block->offset + range.block_offset + (address - start);
  file.bytes = bytes;
  const int descriptor = make_file(std::move(file), bytes);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  ++s.totals.total_dma_bufs;
  *static_cast<int*>(handle) = descriptor;
  return CUDA_SUCCESS;
}

}  // extern "C"
