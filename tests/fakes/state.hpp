// SPDX-License-Identifier: Apache-2.0
// Everything the fake machine holds, behind one lock. Internal to the shared object.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/fake_machine.hpp"

struct CUctx_st {
  int gpu = 0;
  std::uint32_t retain_count = 0;
};
struct CUstream_st {
  int gpu = 0;
};
struct CUevent_st {
  bool is_recorded = false;
  bool has_happened = false;
  std::int64_t at_ns = 0;
};
struct CUmemPoolHandle_st {
  int gpu = 0;
  bool is_exportable = false;
};

namespace gigabar::fake {

using Address = std::uint64_t;
inline constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
inline constexpr std::uint64_t kBlockBytes = 2 * kMiB;  // GPU memory is handed out in multiples of it
inline constexpr std::uint64_t kHostPage = 4 * kKiB;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Gives out ranges, lowest first, so that what is freed is reused at once.
class RangeAllocator {
 public:
  void reset(std::uint64_t start, std::uint64_t bytes);
  bool take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* start);
  void give_back(std::uint64_t start, std::uint64_t bytes);
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // start -> bytes
  std::uint64_t used_bytes_ = 0;
};

// One GPU's memory: a sparse memfd, seen by the "GPU" through `view`, by the CPU only through windows onto the same pages.
struct PhysicalMemory {
  int memfd = -1;
  std::byte* view = nullptr;
  std::uint64_t bytes = 0;
  RangeAllocator ranges;
};

// Physical memory with an owner: CUDA, and each RM duplicate, pin, dma-buf and export that keeps it alive.
struct Block {
  int gpu = 0;
  std::uint64_t offset = 0;  // in the GPU's memory
  std::uint64_t bytes = 0;
  std::uint32_t rm_handle = 0;  // under CUDA's RM client; 0 once CUDA freed it
  unsigned handle_types = 0;    // VMM
  std::uint32_t vmm_references = 0;
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
};
using BlockRef = std::shared_ptr<Block>;

// GPU virtual addresses of one block.
struct VirtualRange {
  std::uint64_t bytes = 0;
  BlockRef block;
  std::uint64_t block_offset = 0;
  bool has_access = true;
};

// A 2 MiB block that small allocations share.
struct SharedBlock {
  Address address = 0;
  BlockRef block;
  RangeAllocator ranges;
};

enum class Kind { device, vmm, pool, managed, host_allocated, host_registered, ipc_opened };

struct Allocation {
  Kind kind = Kind::device;
  Address address = 0;
  std::uint64_t bytes = 0;
  int gpu = 0;
  BlockRef block;                  // device kinds
  std::uint64_t block_offset = 0;  // of the allocation
  std::shared_ptr<SharedBlock> shared;
  std::uint64_t buffer_id = 0;
  CUmemoryPool pool = nullptr;
  CUcontext context = nullptr;
  unsigned host_flags = 0;  // of cuMemHostAlloc
};

struct PendingCopy {
  CUstream stream;
  std::function<void()> run;
  std::function<bool()> may_run = {};  // a wait: what follows in its stream stays while this is false
};

// A descriptor that the fake kernel gave out. The number belongs to a memfd of its own, so that limits count it and a number that
// was closed and reused by something else is noticed.
struct File {
  enum class Kind { control, device, gdrdrv, dma_buf, vmm_export } kind = Kind::control;
  std::uint64_t inode = 0;
  int opener = 0;                       // process
  int gpu = -1;                         // device, dma_buf
  bool is_registered = false;           // device: REGISTER_FD was done
  BlockRef block;                       // dma_buf, vmm_export
  std::uint64_t offset = 0, bytes = 0;  // dma_buf: in the block; device: what MAP_MEMORY prepared
  std::uint64_t physical_offset = 0;
  bool has_mapping = false;       // device: MAP_MEMORY was done
  std::uint64_t next_handle = 0;  // gdrdrv, in host pages
};

struct RmObject {
  std::uint32_t parent = 0, object_class = 0;
  std::uint32_t device_instance = 0;  // device, subdevice, memory: of the device object above
  BlockRef block;                     // memory
};
struct RmClient {
  std::uint64_t file_inode = 0;
  std::map<std::uint32_t, RmObject> objects;
};
struct RmMapping {
  std::uint32_t client = 0, device = 0, memory = 0;
  int gpu = 0;
  std::uint64_t bytes = 0;
  BlockRef block;
};
struct Pin {
  std::uint64_t file_inode = 0;
  Address address = 0;  // as asked
  std::uint64_t bytes = 0;
  BlockRef block;
  std::uint64_t physical_offset = 0;
  int gpu = 0;
  std::uint32_t mapping_type = 0;
  void* window = nullptr;
  bool was_revoked = false;
};
struct Window {
  std::uint64_t bytes = 0;
  std::uint64_t linear_address = 0;  // RM
  std::uint64_t pin_inode = 0, pin_handle = 0;
  BlockRef block;
};

struct State {
  std::mutex mutex;
  Machine machine{};
  // CUDA side.
  int initialised_in = 0;  // process that called cuInit
  Address va_start = 0;
  std::uint64_t va_bytes = 0;
  RangeAllocator va;
  std::vector<PhysicalMemory> memory;  // by GPU
  std::map<Address, VirtualRange> ranges;
  std::map<Address, Allocation> allocations;
  std::vector<std::vector<std::shared_ptr<SharedBlock>>> shared_blocks;  // by GPU
  std::map<CUmemGenericAllocationHandle, BlockRef> vmm_handles;
  std::map<Address, std::uint64_t> reservations;
  std::set<CUstream> streams;
  std::set<std::pair<CUcontext, CUcontext>> peers;  // from, to
  std::vector<PendingCopy> pending;
  std::vector<CUctx_st> contexts;  // primary, by GPU; never resized after cuInit
  std::map<std::thread::id, std::vector<CUcontext>> context_stacks;
  std::vector<CUmemPoolHandle_st> default_pools;
  std::map<std::uint32_t, std::weak_ptr<Block>> cuda_objects;  // RM handles under CUDA's own client
  std::uint64_t next_buffer_id = 1;
  std::uint64_t next_vmm_handle = 0x1000;
  std::int64_t context_pushes = 0;
  std::uint32_t module_count = 0;
  // Kernel side.
  std::map<int, File> files;
  std::map<std::uint32_t, RmClient> clients;
  std::map<std::uint64_t, RmMapping> mappings;                  // by linear address
  std::map<std::pair<std::uint64_t, std::uint64_t>, Pin> pins;  // by file and handle
  std::map<Address, Window> windows;
  std::uint32_t next_client = 0xc1d00100;
  std::uint64_t next_linear_address = 0x380000000000;
  Counts totals{};  // only the totals are used
};

inline constexpr std::uint32_t kCudaClient = 0xc1d0000a;

State& state();

// Lives while a thread is inside the machine, whose own allocations a test must not fail.
class Inside {
 public:
  Inside() noexcept;
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// A fault planted for this call, or null. Counts it.
Fault* planted_fault(Call call, const char* name, std::uint32_t number = 0, std::uint32_t command = 0);
// Notes a wrong call that the real kernel would let pass. Seen by the parent when a forked child makes it.
void note_violation(const std::string& text);

// Physical memory (device_memory.cpp). All of these need the lock.
void open_memory();
BlockRef make_block(int gpu, std::uint64_t bytes);
std::byte* view_of(const Block& block);
void adopt_for_cuda(const BlockRef& block);  // gives it an RM handle, the lowest that is free
void release_from_cuda(const BlockRef& block);
// The GPU's view of an address, and how many bytes follow in the same range; null when nothing accessible is there.
std::byte* translate(Address address, std::uint64_t* contiguous_bytes);
Allocation* find_allocation(Address address);
Allocation& add_allocation(Allocation allocation);

std::uint32_t kernels_running();  // cuda_kernel.cpp

// What gdrdrv does when CUDA frees memory (kernel_gdrdrv.cpp).
void revoke_pins(const Block& block);

// Files and windows of the kernel side (kernel.cpp).
int make_file(File file, std::uint64_t bytes);
File* find_file(int descriptor);
void* open_window(void* hint, std::size_t bytes, int protection, int flags, int gpu, std::uint64_t physical_offset, Window window);
int rm_ioctl(File& file, unsigned long request, void* argument);
void close_rm_file(const File& file);
void* mmap_device(File& file, void* hint, std::size_t bytes, int protection, int flags, off_t offset);
int gdrdrv_ioctl(File& file, unsigned long request, void* argument);
void* mmap_gdrdrv(File& file, void* hint, std::size_t bytes, int protection, int flags, off_t offset);
void close_gdrdrv_file(const File& file);

}  // namespace gigabar::fake
