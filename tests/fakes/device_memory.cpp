// SPDX-License-Identifier: Apache-2.0
// Physical and virtual memory of the fake GPUs.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fakes/state.hpp"

namespace gigabar::fake {

void RangeAllocator::reset(std::uint64_t start, std::uint64_t bytes) {
  free_ = {{start, bytes}};
  used_bytes_ = 0;
}

bool RangeAllocator::take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* start) {
  for (const auto& hole : free_) {
    const auto [free_start, free_bytes] = hole;  // a copy: the entry is erased below
    const std::uint64_t first = round_up(free_start, alignment);
    if (first - free_start > free_bytes || bytes > free_bytes - (first - free_start)) continue;
    free_.erase(free_start);
    if (first > free_start) free_[free_start] = first - free_start;
    if (first + bytes < free_start + free_bytes) free_[first + bytes] = free_start + free_bytes - first - bytes;
    used_bytes_ += bytes;
    *start = first;
    return true;
  }
  return false;
}

void RangeAllocator::give_back(std::uint64_t start, std::uint64_t bytes) {
  used_bytes_ -= bytes;
  auto [place, inserted] = free_.emplace(start, bytes);
  if (const auto next = std::next(place); next != free_.end() && start + bytes == next->first) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place != free_.begin()) {
    if (const auto before = std::prev(place); before->first + before->second == place->first) {
      before->second += place->second;
      free_.erase(place);
    }
  }
}

Block::~Block() {
  PhysicalMemory& memory = state().memory[static_cast<std::size_t>(gpu)];
  ::fallocate(memory.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  memory.ranges.give_back(offset, bytes);
}

void open_memory() {
  State& s = state();
  if (s.va_start == 0) {
    s.va_bytes = 64 * kGiB;
    // Never accessible: the CPU must not dereference a device pointer.
    void* reserved = ::mmap(nullptr, s.va_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s.va_start = reinterpret_cast<Address>(reserved);
  }
  const Address first = round_up(s.va_start, kBlockBytes);
  s.va.reset(first, (s.va_start + s.va_bytes - first) / kBlockBytes * kBlockBytes);
  for (std::size_t gpu = s.memory.size(); gpu < s.machine.gpu_count; ++gpu) {
    PhysicalMemory memory;
    memory.bytes = s.machine.gpus[gpu].memory_bytes;
    memory.memfd = ::memfd_create("gigabar-fake-gpu", MFD_CLOEXEC);
    // A little more than is handed out, so that a planted shift of a window still lands in the file.
    const std::uint64_t file_bytes = memory.bytes + 2 * kBlockBytes;
    [[maybe_unused]] const int resized = ::ftruncate(memory.memfd, static_cast<off_t>(file_bytes));
    memory.view =
        static_cast<std::byte*>(::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.memfd, 0));
    memory.ranges.reset(0, memory.bytes);
    s.memory.push_back(std::move(memory));
  }
  s.shared_blocks.resize(s.memory.size());
}

BlockRef make_block(int gpu, std::uint64_t bytes) {
  const std::uint64_t whole = round_up(bytes, kBlockBytes);
  std::uint64_t offset = 0;
  if (whole < bytes || !state().memory[static_cast<std::size_t>(gpu)].ranges.take(whole, kBlockBytes, &offset)) return {};
  auto block = std::make_shared<Block>();
  block->gpu = gpu;
  block->offset = offset;
  block->bytes = whole;
  return block;
}

std::byte* view_of(const Block& block) { return state().memory[static_cast<std::size_t>(block.gpu)].view + block.offset; }

void adopt_for_cuda(const BlockRef& block) {
  auto& objects = state().cuda_objects;
  std::uint32_t handle = 0x5c000001;
  while (objects.contains(handle)) ++handle;
  objects[handle] = block;
  block->rm_handle = handle;
}

void release_from_cuda(const BlockRef& block) {
  state().cuda_objects.erase(block->rm_handle);
  block->rm_handle = 0;
  revoke_pins(*block);
}

std::byte* translate(Address address, std::uint64_t* contiguous_bytes) {
  auto after = state().ranges.upper_bound(address);
  if (after == state().ranges.begin()) return nullptr;
  const auto& [start, range] = *--after;
  if (address - start >= range.bytes || !range.has_access) return nullptr;
  *contiguous_bytes = range.bytes - (address - start);
  return view_of(*range.block) + range.block_offset + (address - start);
}

Allocation* find_allocation(Address address) {
  auto after = state().allocations.upper_bound(address);
  if (after == state().allocations.begin()) return nullptr;
  Allocation& allocation = (--after)->second;
  return address - allocation.address < allocation.bytes ? &allocation : nullptr;
}

Allocation& add_allocation(Allocation allocation) {
  allocation.buffer_id = state().next_buffer_id++;
  const Address address = allocation.address;
  return state().allocations.insert_or_assign(address, std::move(allocation)).first->second;
}

}  // namespace gigabar::fake
