// SPDX-License-Identifier: Apache-2.0
// Loads, stores and fences of words that other GPUs, CPUs and NICs also access, and the clock, for kernels and for threads of the
// CPU that play them. The names say the purpose of an access.
//
// Ordering: acquire and release have the scope of the whole system. A release covers what its thread did before, and what the
// thread has seen of others (after a barrier, or by an acquire).
// Source: PTX ISA, "Memory Consistency Model", causality order.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define GIGABAR_DEVICE __host__ __device__ inline
#else
#define GIGABAR_DEVICE inline
#endif

// A kernel's module has one copy of such a function. For long functions that begin with a fence or a wait: there the call costs
// nothing in comparison. Inlined at every place they would multiply the compile time of a kernel.
#if defined(__CUDA_ARCH__)
#define GIGABAR_DEVICE_CALLED __host__ __device__ __noinline__ inline
#else
#define GIGABAR_DEVICE_CALLED GIGABAR_DEVICE
#endif

#if !defined(__CUDA_ARCH__)
#include <bit>
#include <ctime>
#include <thread>
#endif

namespace gigabar::inline v0::device {

// --- Words -----------------------------------------------------------------------------------------------------------------------

// Of a std::uint32_t or std::uint64_t, at once.
template <bool IsAcquire, class Value>
GIGABAR_DEVICE Value load(const Value* word) {
#if defined(__CUDA_ARCH__)
  constexpr bool kIsLong = sizeof(Value) == sizeof(std::uint64_t);
  Value value;
  if constexpr (!kIsLong && !IsAcquire) asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  if constexpr (!kIsLong && IsAcquire) asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  if constexpr (kIsLong && !IsAcquire) asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  if constexpr (kIsLong && IsAcquire) asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
#else
  return __atomic_load_n(word, IsAcquire ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED);
#endif
}

template <bool IsRelease, class Value>
GIGABAR_DEVICE void store(Value* word, Value value) {
#if defined(__CUDA_ARCH__)
  constexpr bool kIsLong = sizeof(Value) == sizeof(std::uint64_t);
  if constexpr (!kIsLong && !IsRelease) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
  if constexpr (!kIsLong && IsRelease) asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
  if constexpr (kIsLong && !IsRelease) asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
  if constexpr (kIsLong && IsRelease) asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
#else
  __atomic_store_n(word, value, IsRelease ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
#endif
}

GIGABAR_DEVICE std::uint32_t load_relaxed(const std::uint32_t* word) { return load<false>(word); }
GIGABAR_DEVICE std::uint64_t load_relaxed(const std::uint64_t* word) { return load<false>(word); }
GIGABAR_DEVICE std::uint32_t load_acquire(const std::uint32_t* word) { return load<true>(word); }
GIGABAR_DEVICE std::uint64_t load_acquire(const std::uint64_t* word) { return load<true>(word); }
GIGABAR_DEVICE void store_relaxed(std::uint32_t* word, std::uint32_t value) { store<false>(word, value); }
GIGABAR_DEVICE void store_relaxed(std::uint64_t* word, std::uint64_t value) { store<false>(word, value); }
GIGABAR_DEVICE void store_release(std::uint32_t* word, std::uint32_t value) { store<true>(word, value); }
GIGABAR_DEVICE void store_release(std::uint64_t* word, std::uint64_t value) { store<true>(word, value); }

// Stores to a device's register by exactly one access of 8 bytes, neither torn nor merged. Release earlier stores before it.
GIGABAR_DEVICE void store_register(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
#else
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

// A thread that sees anything after the fence also sees everything before it: any thread of the system, or only threads of this
// GPU. The latter fence is five times cheaper.
GIGABAR_DEVICE void fence_system() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.acq_rel.sys;" : : : "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

GIGABAR_DEVICE void fence_device() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.acq_rel.gpu;" : : : "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// --- Read-modify-write functions return the value before. Atomic among all threads of the GPUs that access the word (on a CPU: of
// the process). Not ordered with anything else unless the name says so.

GIGABAR_DEVICE std::uint64_t fetch_add_system(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  std::uint64_t old;
  asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(word), "l"(value) : "memory");
  return old;
#else
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
#endif
}

// Adds behind a fence_system(): who loads the sum, or a later one that other additions made of it, by an acquire sees what was
// before the fence. PTX: a chain of read-modify-writes carries a release pattern.
GIGABAR_DEVICE void add_system(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
#else
  __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
}

GIGABAR_DEVICE std::uint64_t compare_swap_system(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired) {
#if defined(__CUDA_ARCH__)
  std::uint64_t old;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(word), "l"(expected), "l"(desired) : "memory");
  return old;
#else
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
#endif
}

// Afterwards the thread sees everything that was released before the value that it returns.
GIGABAR_DEVICE std::uint32_t exchange_acquire(std::uint32_t* word, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  std::uint32_t old;
  asm volatile("atom.acquire.sys.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(word), "r"(value) : "memory");
  return old;
#else
  return __atomic_exchange_n(word, value, __ATOMIC_ACQUIRE);
#endif
}

// Replaces `expected` by `desired`; true when the word was `expected`: as exchange_acquire.
GIGABAR_DEVICE bool compare_swap_acquire(std::uint32_t* word, std::uint32_t expected, std::uint32_t desired) {
#if defined(__CUDA_ARCH__)
  std::uint32_t old;
  asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(word), "r"(expected), "r"(desired) : "memory");
  return old == expected;
#else
  return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
#endif
}

// The following functions are atomic among threads of one GPU only.
GIGABAR_DEVICE std::uint64_t fetch_add_device(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  std::uint64_t old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(word), "l"(value) : "memory");
  return old;
#else
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
#endif
}

// Acquires and releases.
GIGABAR_DEVICE std::uint64_t fetch_add_acq_rel_device(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  std::uint64_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(word), "l"(value) : "memory");
  return old;
#else
  return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
#endif
}

// Releases: what the thread did before comes before the change.
GIGABAR_DEVICE void set_bits_device(std::uint64_t* word, std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.release.gpu.global.or.b64 [%0], %1;" : : "l"(word), "l"(bits) : "memory");
#else
  __atomic_fetch_or(word, bits, __ATOMIC_RELEASE);
#endif
}

GIGABAR_DEVICE void clear_bits_device(std::uint64_t* word, std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.release.gpu.global.and.b64 [%0], %1;" : : "l"(word), "l"(~bits) : "memory");
#else
  __atomic_fetch_and(word, ~bits, __ATOMIC_RELEASE);
#endif
}

// try_lock_device takes the lock if it is free; unlock_device releases it. The next holder sees what was done before the release.
GIGABAR_DEVICE bool try_lock_device(std::uint32_t* lock) {
#if defined(__CUDA_ARCH__)
  std::uint32_t old;
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(lock) : "memory");
  return old == 0;
#else
  std::uint32_t expected = 0;
  return __atomic_compare_exchange_n(lock, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
#endif
}

GIGABAR_DEVICE void unlock_device(std::uint32_t* lock) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.gpu.global.u32 [%0], 0;" : : "l"(lock) : "memory");
#else
  __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
#endif
}

// Returns the number of the lowest set bit; undefined for 0.
GIGABAR_DEVICE std::uint32_t lowest_bit(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__ffsll(static_cast<long long>(bits)) - 1);
#else
  return static_cast<std::uint32_t>(std::countr_zero(bits));
#endif
}

// Has a value computed here: a compiler would do so where it is used, which may be behind a wait, where it costs time.
GIGABAR_DEVICE void compute_now([[maybe_unused]] std::uint32_t& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#endif
}
template <class T>
GIGABAR_DEVICE void compute_now([[maybe_unused]] T*& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(value));
#endif
}

// --- Time ------------------------------------------------------------------------------------------------------------------------

// The clock of this GPU, or of the CPU, for durations only. Its resolution may be 1 us.
GIGABAR_DEVICE std::uint64_t now_ns() {
#if defined(__CUDA_ARCH__)
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
#else
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
#endif
}

// How long a call may wait; 0 tests once.
struct Timeout {
  std::uint64_t ns = 0;
};
inline constexpr Timeout kForever{~std::uint64_t{0}};

// The deadline of a wait. Reading the clock costs as much as one or two polls. Therefore one poll in kPollsPerLook reads it, and
// the time begins at the first reading, some microseconds after the wait began: short waits never read the clock.
class Deadline {
 public:
  static constexpr std::uint32_t kPollsPerLook = 32;
  // A CPU gives way to other threads only then, after some 3 us: a call of the system takes as long as many polls.
  static constexpr std::uint32_t kPollsBeforeYield = 32 * kPollsPerLook;

  GIGABAR_DEVICE explicit Deadline(Timeout timeout) : timeout_ns_(timeout.ns) {}
  // Call after an unsuccessful poll. Returns whether the wait is over.
  GIGABAR_DEVICE bool has_passed() {
    note_poll();
    return has_looked() && look();
  }
  // Its parts, for a loop that counts polls by itself: kPollsPerLook, or one if tests_once(); then look(), the moment for other
  // loads too, which would slow down a normal poll. A CPU notes each poll, and gives way to others.
  GIGABAR_DEVICE bool tests_once() const { return timeout_ns_ == 0; }
  GIGABAR_DEVICE void note_poll() {
    ++polls_;
#if !defined(__CUDA_ARCH__)
    if (timeout_ns_ != 0 && polls_ >= kPollsBeforeYield) std::this_thread::yield();
#endif
  }
  GIGABAR_DEVICE bool look() {
    if (timeout_ns_ == 0) return true;
    if (begin_ns_ == 0) {
      begin_ns_ = now_ns();
      return false;
    }
    return timeout_ns_ != kForever.ns && now_ns() - begin_ns_ >= timeout_ns_;
  }
  // Whether this poll read the clock.
  GIGABAR_DEVICE bool has_looked() const { return timeout_ns_ == 0 || polls_ % kPollsPerLook == 0; }

 private:
  std::uint64_t timeout_ns_;
  std::uint64_t begin_ns_ = 0;
  std::uint32_t polls_ = 0;
};

}  // namespace gigabar::inline v0::device
