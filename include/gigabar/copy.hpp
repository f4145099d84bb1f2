// SPDX-License-Identifier: Apache-2.0
// CPU-driven copies through a Mapping, and `copy`, which chooses between the CPU and the copy engine.
//
// Ordering, by mapping type. "Visible to the GPU" means: a load of a running kernel that bypasses its L1 (volatile, or an
// atomic of system scope), or any later kernel or copy.
//
// | promise                                                       | write_combined        | uncached | cached           |
// |---------------------------------------------------------------|-----------------------|----------|------------------|
// | copy_to, fill return: stores have left this CPU's buffers      | sfence / dsb st       | same     | release fence    |
// | two copy_to calls of one thread become visible in call order   | yes, by that fence    | yes      | yes              |
// | bytes inside one copy_to become visible in address order       | no                    | no       | no               |
// | publish: the flag is never visible before the data             | yes                   | yes      | yes (release)    |
// | a naturally aligned 1, 2, 4 or 8-byte copy is a single access   | yes                   | yes      | yes              |
// | copy_from reads GPU memory, never a line kept by an earlier one | mfence or lfence / dsb before | yes      | coherent         |
// | two copy_from calls of one thread read in call order           | lfence / dsb after    | same     | acquire fence    |
// | Batch: stores before commit() are visible in order             | no, only after commit | no       | no               |
//
// A store that has left the CPU is posted: it reaches the GPU a little later, before anything that the same CPU sends after it.
// Source: Intel SDM vol. 1 §10.4.6 and §12.10.3 (WC, streaming loads), vol. 3 §8.2 (fences); Arm ARM B2.3; PCIe Base 5.0 §2.4
// (posted writes stay in order); measured in tests/gpu/ordering_test.cu.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// Raw copy kernels: no bounds check, no fence. Both sides may have any alignment and length; a naturally aligned 1, 2, 4 or 8-byte
// copy is one access of the mapped side. Stores never touch a byte outside [destination, +bytes). Loads may read the rest of an
// aligned 64-byte line of the mapped side that holds a requested byte.
using StoreKernel = void (*)(void* mapped_destination, const void* source, std::size_t bytes) noexcept;
using LoadKernel = void (*)(void* destination, const void* mapped_source, std::size_t bytes) noexcept;

struct CopyKernel {
  std::string_view name;  // "sse2", "avx2", "avx512", "movdir64b", "neon", "generic"
  bool is_supported;      // by this CPU and operating system
  StoreKernel store;
  LoadKernel load;
};

// Returns every kernel of this build, best first. Threads: any. Source: CPUID / XGETBV, HWCAP.
GIGABAR_API std::span<const CopyKernel> copy_kernels() noexcept;

namespace detail {

// Kernels in use, by mapping type and by bit width of the byte count. They start as resolvers, which detect the CPU and store the
// real kernels. Calibration replaces them per size. Relaxed atomics are enough, because each value is complete in itself.
struct ActiveKernels {
  static constexpr std::size_t kSizeClasses = 32;
  std::array<std::atomic<StoreKernel>, kSizeClasses> store;
  std::array<std::atomic<LoadKernel>, kSizeClasses> load;
};
// Data of the library that programs change would be data of its interface, so they ask for its place, which never changes.
[[gnu::const]] GIGABAR_API ActiveKernels& active_kernels(MappingType type) noexcept;

inline std::size_t size_class(std::size_t bytes) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(bytes));
  return width < ActiveKernels::kSizeClasses ? width : ActiveKernels::kSizeClasses - 1;
}

inline void fence_stores() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Whether every load kernel uses one plain load: for a naturally aligned 1, 2, 4 or 8-byte word.
inline bool is_single_load(const std::byte* mapped, std::size_t bytes) noexcept {
  return bytes <= 8 && ((bytes & (bytes - 1)) | (reinterpret_cast<std::uintptr_t>(mapped) & (bytes - 1))) == 0;
}

// Before loads of `bytes` at `mapped`. For streaming loads it drops lines that an earlier load left in a fill buffer. A single
// plain load is never filled from such a buffer, and only has to stay after earlier loads.
inline void fence_before_loads([[maybe_unused]] const std::byte* mapped, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (is_single_load(mapped, bytes)) {
    __builtin_ia32_lfence();
  } else {
    __builtin_ia32_mfence();
  }
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb sy" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void fence_after_loads() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb ld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Error returned when a copy is rejected: names the argument, the range and the mapping's length.
GIGABAR_API Result<void> refuse_copy(std::string_view operation, const Mapping& mapping, std::size_t offset_bytes, const void* host,
                                     std::size_t bytes);

inline bool may_copy(const Mapping& mapping, std::size_t offset_bytes, const void* host, std::size_t bytes) noexcept {
  return mapping.is_usable() && mapping.covers(offset_bytes, bytes) && (host != nullptr || bytes == 0);
}

inline void store(const Mapping& mapping, std::size_t offset_bytes, const void* source, std::size_t bytes) noexcept {
  const ActiveKernels& active = active_kernels(mapping.type());
  active.store[size_class(bytes)].load(std::memory_order_relaxed)(mapping.address() + offset_bytes, source, bytes);
}

}  // namespace detail

// Copies `bytes` from host memory at `source` to `mapping` at `offset_bytes`; any alignment; 0 bytes is allowed.
// Errors: out_of_range (the range leaves the mapping), invalid_argument (null source, a mapping that was moved from),
// foreign_process (forked child).
// Ordering: table above. Threads: any; ranges written at the same time must not overlap. Cost: stores to MMIO and one fence;
// never blocks, allocates or enters the kernel.
inline Result<void> copy_to(const Mapping& mapping, std::size_t offset_bytes, const void* source, std::size_t bytes) {
  if (!detail::may_copy(mapping, offset_bytes, source, bytes)) [[unlikely]] {
    return detail::refuse_copy("copy_to", mapping, offset_bytes, source, bytes);
  }
  detail::store(mapping, offset_bytes, source, bytes);
  detail::fence_stores();
  return {};
}

// Copies `bytes` from `mapping` at `offset_bytes` to host memory at `destination`: the current content of GPU memory, never a stale
// line.
// Errors, threads: as copy_to. Cost: one round trip over PCIe (about 1 µs) per 64 bytes, several in flight.
inline Result<void> copy_from(const Mapping& mapping, std::size_t offset_bytes, void* destination, std::size_t bytes) {
  if (!detail::may_copy(mapping, offset_bytes, destination, bytes)) [[unlikely]] {
    return detail::refuse_copy("copy_from", mapping, offset_bytes, destination, bytes);
  }
  detail::fence_before_loads(mapping.address() + offset_bytes, bytes);
  const detail::ActiveKernels& active = detail::active_kernels(mapping.type());
  active.load[detail::size_class(bytes)].load(std::memory_order_relaxed)(destination, mapping.address() + offset_bytes, bytes);
  detail::fence_after_loads();
  return {};
}

// Sets `bytes` bytes at `offset_bytes` to `value`. Errors, ordering, threads, cost: as copy_to.
GIGABAR_API Result<void> fill(const Mapping& mapping, std::size_t offset_bytes, std::byte value, std::size_t bytes);

// Every earlier store of this thread through any mapping leaves the CPU before any later one. Cost: about 0.1 µs after stores.
inline void fence() noexcept { detail::fence_stores(); }

// Stores `value` at `flag_offset_bytes` (a multiple of sizeof(Value), 4 or 8 bytes) as one access, after everything that this
// thread stored before through any mapping: a reader that sees the flag also sees the data. On a cached mapping the store is a
// release: a reader that acquires the flag sees the data.
// Errors: as copy_to; invalid_argument when the flag's address is not aligned. Threads: any. Cost: two fences and a store.
GIGABAR_API Result<void> publish(const Mapping& mapping, std::size_t flag_offset_bytes, std::uint32_t value);
GIGABAR_API Result<void> publish(const Mapping& mapping, std::size_t flag_offset_bytes, std::uint64_t value);

// Does copy_to of the data, then stores the flag, in that order. Stores nothing when either range is rejected.
template <class Value>
Result<void> publish(const Mapping& mapping, std::size_t data_offset_bytes, const void* source, std::size_t bytes,
                     std::size_t flag_offset_bytes, Value value) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "a flag has 4 or 8 bytes");
  if (!detail::may_copy(mapping, data_offset_bytes, source, bytes)) [[unlikely]] {
    return detail::refuse_copy("publish", mapping, data_offset_bytes, source, bytes);
  }
  if (!mapping.covers(flag_offset_bytes, sizeof(Value))) [[unlikely]] {
    return detail::refuse_copy("publish (flag)", mapping, flag_offset_bytes, &value, sizeof(Value));
  }
  if ((mapping.device_address() + flag_offset_bytes) % sizeof(Value) == 0) [[likely]] {
    detail::store(mapping, data_offset_bytes, source, bytes);
  }
  return publish(mapping, flag_offset_bytes, value);
}

// Many stores with one fence: no store is guaranteed to be visible before commit() has returned. Threads: one at a time.
class Batch {
 public:
  explicit Batch(const Mapping& mapping) noexcept : mapping_(&mapping) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  // Commits the stores that are not committed yet.
  ~Batch() { commit(); }

  // As copy_to without the fence. A rejected copy stores nothing and leaves the batch usable.
  Result<void> copy_to(std::size_t offset_bytes, const void* source, std::size_t bytes) {
    if (!detail::may_copy(*mapping_, offset_bytes, source, bytes)) [[unlikely]] {
      return detail::refuse_copy("batch copy_to", *mapping_, offset_bytes, source, bytes);
    }
    detail::store(*mapping_, offset_bytes, source, bytes);
    is_dirty_ = true;
    return {};
  }

  void commit() noexcept {
    if (is_dirty_) detail::fence_stores();
    is_dirty_ = false;
  }

 private:
  const Mapping* mapping_;
  bool is_dirty_ = false;
};

// copy_to / copy_from with several CPU threads, each with a contiguous part cut at 64-byte lines of the mapped side.
// `thread_count` 1..64, including the caller; 0: the number that the calibration found best. The library starts its threads at
// first use; they sleep between calls. When another call uses them, this call waits for them, and after 1 s it copies alone.
// Errors: as copy_to; invalid_argument (more than 64 threads); out_of_memory or no_permission when a thread cannot be started
// (nothing was copied).
// Ordering: as one copy_to. Threads: any. Cost: at least one hand-over between threads, 1 µs to a running thread and up to 50 µs to
// a sleeping one.
GIGABAR_API Result<void> copy_to_parallel(const Mapping& mapping, std::size_t offset_bytes, const void* source, std::size_t bytes,
                                          unsigned thread_count = 0);
GIGABAR_API Result<void> copy_from_parallel(const Mapping& mapping, std::size_t offset_bytes, void* destination, std::size_t bytes,
                                            unsigned thread_count = 0);

enum class CopyDirection : std::uint8_t { to_device, from_device };
enum class CopyMethod : std::uint8_t {
  cpu,           // copy_to / copy_from
  cpu_parallel,  // several threads
  copy_engine,   // the GPU's DMA engine, on the library's own stream; on a stand-in device memcpy
  readback,      // from the device only, up to kMaxReadbackBytes: a kernel that stays for a while; see use_readback_kernel
};
inline constexpr std::size_t kCopyMethodCount = 4;
inline constexpr std::size_t kMaxReadbackBytes = 32768;
GIGABAR_API std::string_view name_of(CopyDirection direction) noexcept;
GIGABAR_API std::string_view name_of(CopyMethod method) noexcept;

// One side of copy(): an offset in a mapping. The mapping must outlive it.
struct MappedPlace {
  const Mapping& mapping;
  std::size_t offset_bytes = 0;
};

namespace detail {
// The CPU makes copies of fewer bytes, for every kind of host memory. 0 until the device's calibration has been loaded, and for
// other devices. A hint: a stale value costs time, never correctness.
inline constexpr std::size_t kMaxDevices = 64;
GIGABAR_API std::size_t cpu_below_bytes(CopyDirection direction, int device) noexcept;

inline bool is_for_cpu(CopyDirection direction, const Mapping& mapping, std::size_t bytes,
                       std::optional<CopyMethod> required) noexcept {
  if (required) return *required == CopyMethod::cpu;
  return bytes < cpu_below_bytes(direction, mapping.device());
}

// copy() when the CPU is not chosen, nothing is known yet, or the copy is rejected.
GIGABAR_API Result<CopyMethod> copy_chosen(MappedPlace destination, const void* source, std::size_t bytes,
                                           std::optional<CopyMethod> required);
GIGABAR_API Result<CopyMethod> copy_chosen(void* destination, MappedPlace source, std::size_t bytes,
                                           std::optional<CopyMethod> required);
}  // namespace detail

// Copies `bytes` by the method that the current calibration found fastest for this direction, size and kind of host memory (pinned
// or pageable), or by `required`. The copy is complete when it returns; it is not ordered with the caller's CUDA streams.
// Returns the method that was used: the CPU's where the mapped memory was freed, or in a forked child that inherited the mapping.
// Errors: as copy_to; device_error (the copy engine failed); timed_out (it has not ended, and may still write: both buffers have to
// stay); invalid_argument (`required` needs the GPU's address, and the memory was freed). With `required` readback:
// not_supported (to the device, more than kMaxReadbackBytes, memory that was not allocated in the device's primary context, a
// forked child), timed_out (the kernel does not start within 1 s, because other kernels fill the GPU), and those of
// use_readback_kernel; nothing was copied.
// Ordering: as copy_to / copy_from. Threads: any. Cost: that of the method; the copy engine enters the driver and waits.
inline Result<CopyMethod> copy(MappedPlace destination, const void* source, std::size_t bytes,
                               std::optional<CopyMethod> required = {}) {
  const auto& [mapping, offset_bytes] = destination;
  if (detail::is_for_cpu(CopyDirection::to_device, mapping, bytes, required) &&
      copy_to(mapping, offset_bytes, source, bytes).is_ok()) {
    return CopyMethod::cpu;
  }
  return detail::copy_chosen(destination, source, bytes, required);
}
inline Result<CopyMethod> copy(void* destination, MappedPlace source, std::size_t bytes, std::optional<CopyMethod> required = {}) {
  const auto& [mapping, offset_bytes] = source;
  if (detail::is_for_cpu(CopyDirection::from_device, mapping, bytes, required) &&
      copy_from(mapping, offset_bytes, destination, bytes).is_ok()) {
    return CopyMethod::cpu;
  }
  return detail::copy_chosen(destination, source, bytes, required);
}

// One measurement on this machine.
struct CalibrationPoint {
  CopyDirection direction;
  bool is_pinned;  // host side
  std::size_t bytes;
  std::array<double, kCopyMethodCount> median_us;  // by CopyMethod; infinity, or 0, where the method was not measured
};

struct Calibration {
  bool is_measured = false;  // false: the documented defaults (H200, PCIe 5.0 x16)
  std::string device_name;
  std::string device_uuid;  // empty for a stand-in
  std::string cpu_name;
  std::string driver_version;
  std::string date;                                                           // ISO 8601, UTC
  unsigned thread_count = 4;                                                  // for cpu_parallel
  std::vector<CalibrationPoint> points;                                       // by direction, pinned, ascending bytes
  std::array<std::string, detail::ActiveKernels::kSizeClasses> store_kernel;  // by bit width of the size; empty: default
  std::array<std::string, detail::ActiveKernels::kSizeClasses> load_kernel;

  // Returns the fastest method at that size. Times between measured sizes are interpolated linearly in the logarithms; sizes beyond
  // the first or last point use that point. Several threads are chosen only when they are 20 % faster than one. The copy engine
  // leaves the CPU free, so it is chosen even when it is up to 3 % slower than the better of both. `with_readback`: the readback
  // kernel too, where it is 10 % faster than all others. Without points: cpu.
  // Threads: any, const.
  GIGABAR_API CopyMethod choose(CopyDirection direction, bool is_pinned, std::size_t bytes,
                                bool with_readback = false) const noexcept;
  GIGABAR_API std::string to_text() const;  // an aligned table
  GIGABAR_API std::string to_json() const;

  // The defaults, used when nothing was measured.
  GIGABAR_API static const Calibration& defaults();

  // Measures `device` for at most about `budget_seconds` (0.5..600) and returns the result without using it. A kernel other than
  // the default is named only where it is more than 5 % faster. Host memory is in the state in which the calling thread just wrote
  // it. Errors: invalid_argument (also: a device from number 64 on), those of map(), DeviceMemory and HostMemory,
  // verification_failed (a copy delivered other bytes), timed_out (the budget is too short for one pass).
  GIGABAR_API static Result<Calibration> measure(int device, double budget_seconds = 5.0);

  // Reads a file that save() wrote. Errors: bad_file with position and cause (missing, truncated, larger than 1 MiB, wrong version,
  // numbers out of range, unknown kernel). Nothing is used from a file that is not completely valid.
  GIGABAR_API static Result<Calibration> load(const std::string& path);
  // Writes JSON to a temporary file and renames it, so that a reader never sees a partial file. Errors: bad_file with errno.
  GIGABAR_API Result<void> save(const std::string& path) const;

  // $GIGABAR_CALIBRATION, else $XDG_CACHE_HOME/gigabar/calibration-<uuid or stand-in>.json, else ~/.cache/gigabar/...; the
  // environment is ignored when real and effective ids differ. Empty when no such path exists.
  GIGABAR_API static std::string default_path(int device);
};

// copy() and copy_to_parallel use `calibration` for `device` from now on. The CPU's kernels are chosen per process, not per device:
// every write-combined mapping uses those of the calibration that was set last. Errors: invalid_argument (no
// such device, or one from number 64 on, a kernel this CPU does not have, a thread count that is not 1..64), on which nothing has
// changed. Threads: any; copies in flight finish with the old one. Cost: a few KiB until the process ends.
GIGABAR_API Result<void> use_calibration(int device, const Calibration& calibration);
// Lets copy() read from `device` by the readback kernel, or no longer. It is off until then, unless GIGABAR_READBACK_KERNEL is 1,
// which has the effect of this call before the first copy from a device; a failure is then a warning in the log.
// The kernel is one block of 512 threads. copy() starts it when copies for which it is the fastest method follow each other within
// 1 ms, and asks it only while it runs: a GPU full of other work never holds a copy up. One thread at a time asks it. Every other
// copy uses the next best method. It ends when it was not asked for 1 ms, and after 10 ms at the latest; then it is started again.
// So it holds up, for 1 ms after the last copy and for 10 ms at most, what waits for the whole device: cudaDeviceSynchronize,
// cudaFree, cudaMalloc, the legacy default stream (but not the library's stream), cooperative kernels that need every
// multiprocessor, kernels of another process that share the GPU in turns, and kernels of another stream that shares a hardware
// queue with the library's (CUDA_DEVICE_MAX_CONNECTIONS). Therefore a program has to ask for it.
// Memory: of cudaMalloc or cuMemAlloc in the device's primary context. Other memory is copied by the next best method.
// Errors: invalid_argument (no such device, or one from number 64 on), unavailable (a stand-in, no device code in this build, an
// old driver, launches that wait for kernels: CUDA_LAUNCH_BLOCKING, compute-sanitizer), verification_failed (it delivered other
// bytes), those of DeviceMemory, HostMemory and map(), timed_out (the GPU is full of other work), device_error. Threads: any. Cost:
// the first call loads the kernel, which waits for kernels that run, and takes milliseconds.
GIGABAR_API Result<void> use_readback_kernel(int device, bool is_used = true);
// Returns the calibration in use for `device`; defaults() when there is no such device. The first copy() on a device loads
// default_path() when that file exists. A file that cannot be used is logged as a warning and ignored. A stand-in that was not
// measured has no points.
GIGABAR_API Calibration calibration_in_use(int device);

}  // namespace gigabar::inline v0
