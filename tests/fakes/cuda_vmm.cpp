// SPDX-License-Identifier: Apache-2.0
// libcuda: virtual memory management.
#include "fakes/entry.hpp"

using namespace gigabar::fake;

namespace {

BlockRef find_handle(CUmemGenericAllocationHandle handle) {
  const auto place = state().vmm_handles.find(handle);
  return place == state().vmm_handles.end() ? nullptr : place->second;
}

CUmemGenericAllocationHandle add_handle(const BlockRef& block) {
  const CUmemGenericAllocationHandle handle = state().next_vmm_handle++;
  state().vmm_handles[handle] = block;
  ++block->vmm_references;
  return handle;
}

// CUDA lets go of the block with its last handle and its last mapping.
void drop_reference(const BlockRef& block) {
  if (--block->vmm_references == 0) release_from_cuda(block);
}

bool is_reserved(Address address, std::uint64_t bytes) {
  auto after = state().reservations.upper_bound(address);
  if (after == state().reservations.begin()) return false;
  const auto& [start, reserved] = *--after;
  return address - start <= reserved && bytes <= reserved - (address - start);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
  GIGABAR_FAKE_ENTER(cuMemGetAllocationGranularity, init);
  if (bytes == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kBlockBytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                             unsigned long long flags) {
  GIGABAR_FAKE_ENTER(cuMemCreate, init);
  if (handle == nullptr || properties == nullptr || flags != 0 || bytes == 0 || bytes % kBlockBytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int gpu = properties->location.id;
  if (gpu < 0 || static_cast<std::size_t>(gpu) >= s.memory.size()) return CUDA_ERROR_INVALID_DEVICE;
  BlockRef block = make_block(gpu, bytes);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  block->handle_types = properties->requestedHandleTypes;
  adopt_for_cuda(block);
  *handle = add_handle(block);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  GIGABAR_FAKE_ENTER(cuMemRelease, init);
  const BlockRef block = find_handle(handle);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  s.vmm_handles.erase(handle);
  drop_reference(block);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                                     unsigned long long) {
  GIGABAR_FAKE_ENTER(cuMemAddressReserve, init);
  if (bytes == 0 || bytes % kHostPage != 0) return CUDA_ERROR_INVALID_VALUE;
  Address start = 0;
  const std::uint64_t whole = round_up(bytes, kBlockBytes);
  if (!s.va.take(whole, alignment > kBlockBytes ? alignment : kBlockBytes, &start)) return CUDA_ERROR_OUT_OF_MEMORY;
  s.reservations[start] = bytes;
  *address = start;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  GIGABAR_FAKE_ENTER(cuMemAddressFree, init);
  const auto place = s.reservations.find(address);
  if (place == s.reservations.end() || place->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto range = s.ranges.lower_bound(address);
  if (range != s.ranges.end() && range->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;  // still mapped
  s.reservations.erase(place);
  s.va.give_back(address, round_up(bytes, kBlockBytes));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  GIGABAR_FAKE_ENTER(cuMemMap, init);
  const BlockRef block = find_handle(handle);
  if (!block || flags != 0 || offset != 0 || bytes == 0 || bytes % kBlockBytes != 0 || bytes > block->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_reserved(address, bytes) || s.ranges.contains(address)) return CUDA_ERROR_INVALID_VALUE;
  s.ranges[address] = {bytes, block, offset, false};
  ++block->vmm_references;
  Allocation allocation;
  allocation.kind = Kind::vmm;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.gpu = block->gpu;
  allocation.block = block;
  allocation.block_offset = offset;
  add_allocation(allocation);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  GIGABAR_FAKE_ENTER(cuMemUnmap, init);
  const auto place = s.ranges.find(address);
  const Allocation* allocation = find_allocation(address);
  if (place == s.ranges.end() || place->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  if (allocation == nullptr || allocation->kind != Kind::vmm) return CUDA_ERROR_INVALID_VALUE;
  for (const PendingCopy& copy : s.pending) copy.run();
  s.pending.clear();
  const BlockRef block = place->second.block;
  s.ranges.erase(place);
  s.allocations.erase(address);
  drop_reference(block);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
  GIGABAR_FAKE_ENTER(cuMemSetAccess, init);
  const auto place = s.ranges.find(address);
  if (place == s.ranges.end() || place->second.bytes != bytes || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool is_of_peer = access[0].location.id != place->second.block->gpu;
  if (is_of_peer && !s.machine.has_peer_access) return CUDA_ERROR_INVALID_DEVICE;
  place->second.has_access = access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                              unsigned long long flags) {
  GIGABAR_FAKE_ENTER(cuMemExportToShareableHandle, init);
  const BlockRef block = find_handle(handle);
  if (!block || shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (block->handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  File file;
  file.kind = File::Kind::vmm_export;
  file.gpu = block->gpu;
  file.block = block;
  const int descriptor = make_file(std::move(file), 0);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = descriptor;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                                CUmemAllocationHandleType type) {
  GIGABAR_FAKE_ENTER(cuMemImportFromShareableHandle, init);
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const File* const file = find_file(static_cast<int>(reinterpret_cast<std::uintptr_t>(shareable)));
  if (file == nullptr || file->kind != File::Kind::vmm_export) return CUDA_ERROR_INVALID_VALUE;
  *handle = add_handle(file->block);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  GIGABAR_FAKE_ENTER(cuMemRetainAllocationHandle, init);
  const Allocation* allocation = find_allocation(reinterpret_cast<Address>(address));
  if (allocation == nullptr || allocation->kind != Kind::vmm) return CUDA_ERROR_INVALID_VALUE;
  *handle = add_handle(allocation->block);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  GIGABAR_FAKE_ENTER(cuMemGetAllocationPropertiesFromHandle, init);
  const BlockRef block = find_handle(handle);
  if (!block || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(block->handle_types);
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = block->gpu;
  return CUDA_SUCCESS;
}

}  // extern "C"
