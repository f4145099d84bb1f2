// SPDX-License-Identifier: Apache-2.0
// CPU mappings of GPU memory: after `map`, ordinary loads and stores of the CPU access the GPU's memory through BAR1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// What makes the mapping, in order of preference.
enum class MappingBackend : std::uint8_t {
  dmabuf,  // mmap of the driver's dma-buf: CUDA driver 13.3 or newer
  gdrdrv,  // GDRCopy's kernel module, version 2.5 or newer in persistent mode
  rm,      // the resource manager interface of the NVIDIA driver: no kernel module, no root
  host,    // pinned host memory and stand-in devices: the memory's own address
};
inline constexpr std::size_t kMappingBackendCount = 4;

// How the CPU's caches treat the mapping.
enum class MappingType : std::uint8_t {
  write_combined,  // WC: stores gather in 64-byte lines, which leave the CPU in any order until a fence; loads are not cached
  uncached,        // UC / device: every access leaves the CPU as it is written; only naturally aligned accesses
  cached,          // coherent: ordinary memory
};
inline constexpr std::size_t kMappingTypeCount = 3;

GIGABAR_API std::string_view name_of(MappingBackend backend) noexcept;  // "dmabuf", "gdrdrv", "rm", "host"
GIGABAR_API std::string_view name_of(MappingType type) noexcept;        // "write_combined", ...
// The backend with that name; nothing for any other text.
GIGABAR_API std::optional<MappingBackend> mapping_backend_from_name(std::string_view name) noexcept;

// How a new mapping is verified before the caller gets it. Every device is also verified once per process with memory of the
// library's own (a nonce in each direction). This option applies to the caller's memory.
enum class Verification : std::uint8_t {
  compare,  // first, middle and last page are read through the mapping and by the copy engine; nothing is written
  nonce,    // as compare; where the bytes are too uniform to prove anything, the copy engine writes 8 bytes, which are read through
            // the mapping and restored. The caller's kernels and copies must not access those pages meanwhile.
};

struct MapOptions {
  std::optional<MappingBackend> backend;  // require this one: any other path is an error. Default: GIGABAR_MAPPING, then ranking
  Verification verification = Verification::compare;
  bool inherit_on_fork = false;  // false: a forked child does not have the mapping (touching it is SIGSEGV)
};

// A backend that was not used, and why.
struct PassedOver {
  MappingBackend backend;
  Availability why;
};

// The path of a mapping, and why no better one was used.
struct MappingReport {
  MappingBackend backend = MappingBackend::host;
  std::vector<PassedOver> passed_over;  // backends ranked above the one that was used
  bool came_from_cache = false;         // an existing window was shared
};

namespace detail {
// Another number in every forked child. A Mapping stores the one under which it was made, or kEveryGeneration.
GIGABAR_API std::uint32_t process_generation() noexcept;
inline constexpr std::uint32_t kEveryGeneration = 0;
}  // namespace detail

// A view of `bytes()` bytes of GPU memory in this process's address space. Move-only; the destructor unmaps.
// Threads: any number may use one Mapping at once. Nothing else may use it while it is moved or destroyed.
// Freed memory: when the GPU memory is freed under a mapping, access stays safe (no signal) with `rm`, `dmabuf` and persistent
// `gdrdrv`, because the mapping keeps the physical pages. Accesses then reach the old allocation's pages, to which no live CUDA
// pointer points. The pages return to the GPU when the last mapping of their block is gone (see trim_mapping_cache).
// Exception: a small cudaMalloc shares a 2 MiB block with others. CUDA keeps that block and may allocate the freed bytes again, so
// a mapping that outlives them reads and writes the new owner's data. Destroy mappings before, or with, the memory.
// Fork: a forked child has no usable Mapping, unless inherit_on_fork is set; copy functions in the child return foreign_process.
class Mapping {
 public:
  GIGABAR_API Mapping(Mapping&&) noexcept;
  GIGABAR_API Mapping& operator=(Mapping&&) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  GIGABAR_API ~Mapping();

  std::byte* address() const noexcept { return address_; }  // CPU address of the first requested byte
  std::size_t bytes() const noexcept { return bytes_; }
  MappingType type() const noexcept { return type_; }
  std::uintptr_t device_address() const noexcept { return device_address_; }  // GPU address of the first byte
  int device() const noexcept { return device_; }                             // -1 after a move
  GIGABAR_API bool is_stand_in() const noexcept;
  GIGABAR_API MappingBackend backend() const noexcept;
  GIGABAR_API const MappingReport& report() const noexcept;

  // False in a forked child that did not inherit the mapping, and after a move.
  bool is_usable() const noexcept {
    return address_ != nullptr && (generation_ == detail::process_generation() || generation_ == detail::kEveryGeneration);
  }

  // True when [offset_bytes, offset_bytes + length_bytes) lies inside the mapping; never overflows.
  bool covers(std::size_t offset_bytes, std::size_t length_bytes) const noexcept {
    return offset_bytes <= bytes_ && length_bytes <= bytes_ - offset_bytes;
  }

 private:
  friend struct MappingAccess;
  struct State;
  Mapping() noexcept;
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
  std::uintptr_t device_address_ = 0;
  MappingType type_ = MappingType::cached;
  std::uint32_t generation_ = 0;
  int device_ = -1;
  std::unique_ptr<State> state_;
};

// Makes [address, address + bytes) accessible for the CPU, and verifies it before it returns.
// `address` is a device pointer at any byte offset of its allocation; `bytes` is at least 1 and lies within it.
// Many mappings of one block of GPU memory can share one window. An unused window is kept for a while (trim_mapping_cache).
// Errors; nothing has changed after any of them:
//   invalid_argument     null, zero bytes, memory this process does not own, GIGABAR_MAPPING holds an unknown name
//   out_of_range         the range leaves its allocation
//   not_supported        memory that no backend can map: managed, pageable host, pool, or VMM memory that is not exportable
//   unavailable          no backend works here, or the required one does not; the cause lists each with its reason
//   out_of_bar1, out_of_descriptors, out_of_memory, no_permission, device_error
//   verification_failed  a backend's mapping showed other memory; it was undone
//   foreign_process      called in a forked child of the process that opened the driver
// Threads: any number at once. The calling thread's current CUDA context is left as it was; stream capture is not disturbed.
// Cost: the first mapping of a block 50-100 µs (enters the kernel, copies a few bytes with the copy engine); of a mapped block a
// few µs. The first mapping on a device opens and verifies the device (ms); 4 MiB of GPU memory that it takes for that stay taken,
// where there is room for them. It waits for no kernel.
GIGABAR_API Result<Mapping> map(const void* address, std::size_t bytes, const MapOptions& options = {});

// Returns whether each backend can be used with `device` (a CUDA ordinal or stand-in number), in order of preference.
// Errors: invalid_argument (no such device). Threads: any. Cost: opens the drivers on the first call.
struct BackendReport {
  MappingBackend backend;
  Availability availability;
};
GIGABAR_API Result<std::vector<BackendReport>> mapping_backends(int device);

struct MappingCacheStatistics {
  std::size_t window_count = 0;  // windows that are mapped now
  std::size_t idle_count = 0;    // of these, without a Mapping
  std::size_t idle_bytes = 0;    // GPU memory that stays allocated for them even when the application frees it
  std::uint64_t hit_count = 0;   // since the start of the process
  std::uint64_t miss_count = 0;
  std::uint64_t stale_count = 0;  // entries whose memory had been freed
};
// Threads: any. Cost: takes the cache's lock.
GIGABAR_API MappingCacheStatistics mapping_cache_statistics();

// Unmaps idle windows until at most `keep_bytes` of them remain. Idle windows never exceed GIGABAR_CACHE_BYTES (default 32 MiB).
// Returns the bytes released. With 0 the memory by which map() verified devices is freed too, unless a segment of that device is
// there; CUDA waits for that until the kernels that run there have ended. Threads: any. Cost: enters the kernel per window.
GIGABAR_API std::size_t trim_mapping_cache(std::size_t keep_bytes = 0);

}  // namespace gigabar::inline v0
