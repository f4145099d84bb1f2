// SPDX-License-Identifier: Apache-2.0
// Words that only threads of one GPU share. The cost of an access depends on which threads share the word.
#pragma once

#include <cstdint>

#include "gigabar/device/memory.hpp"

#if !defined(__CUDA_ARCH__)
#include <thread>
#endif

namespace gigabar::inline v0::device {

// Which threads use an object at the same time.
enum class Sharing : std::uint8_t {
  exclusive,  // one thread; others may use it later, after a barrier
  block,      // threads of one block
  device,     // threads of one GPU
};

// Atomic words of 8 bytes: plain accesses, or the scopes .cta and .gpu. On a CPU block and device are the same.
// A release covers what its thread did before and what it has seen of other threads; scopes may differ along such a chain.
// Source: PTX ISA, "Memory Consistency Model", causality order.
template <Sharing S>
struct Shared {
  GIGABAR_DEVICE static std::uint64_t load(const std::uint64_t* word) {
    if constexpr (S == Sharing::exclusive) {
      return *word;
    } else {
#if defined(__CUDA_ARCH__)
      std::uint64_t value;
      if constexpr (S == Sharing::block) {
        asm volatile("ld.acquire.cta.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
      } else {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
      }
      return value;
#else
      return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
    }
  }

  GIGABAR_DEVICE static void store(std::uint64_t* word, std::uint64_t value) {
    if constexpr (S == Sharing::exclusive) {
      *word = value;
    } else {
#if defined(__CUDA_ARCH__)
      if constexpr (S == Sharing::block) {
        asm volatile("st.release.cta.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
      } else {
        asm volatile("st.release.gpu.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
      }
#else
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
    }
  }

  // Replaces `expected` by `desired`; true when the word was `expected`. Orders nothing.
  GIGABAR_DEVICE static bool compare_swap(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired) {
    if constexpr (S == Sharing::exclusive) {
      if (*word != expected) return false;
      *word = desired;
      return true;
    } else {
#if defined(__CUDA_ARCH__)
      std::uint64_t old;
      if constexpr (S == Sharing::block) {
        asm volatile("atom.relaxed.cta.global.cas.b64 %0, [%1], %2, %3;"
                     : "=l"(old)
                     : "l"(word), "l"(expected), "l"(desired)
                     : "memory");
      } else {
        asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                     : "=l"(old)
                     : "l"(word), "l"(expected), "l"(desired)
                     : "memory");
      }
      return old == expected;
#else
      return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
    }
  }

  // Raises the word to at least `value`. A release.
  GIGABAR_DEVICE static void raise(std::uint64_t* word, std::uint64_t value) {
    if constexpr (S == Sharing::exclusive) {
      if (*word < value) *word = value;
    } else {
#if defined(__CUDA_ARCH__)
      if constexpr (S == Sharing::block) {
        asm volatile("{ .reg .u64 old; atom.release.cta.global.max.u64 old, [%0], %1; }" : : "l"(word), "l"(value) : "memory");
      } else {
        asm volatile("{ .reg .u64 old; atom.release.gpu.global.max.u64 old, [%0], %1; }" : : "l"(word), "l"(value) : "memory");
      }
#else
      std::uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
      while (old < value && !__atomic_compare_exchange_n(word, &old, value, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
      }
#endif
    }
  }

  GIGABAR_DEVICE static bool try_lock(std::uint32_t* lock) {
    if constexpr (S == Sharing::exclusive)
      return true;
    else
      return try_lock_device(lock);
  }
  GIGABAR_DEVICE static void unlock(std::uint32_t* lock) {
    if constexpr (S != Sharing::exclusive) unlock_device(lock);
  }
};

// Called between two polls of a word that another thread is about to change.
GIGABAR_DEVICE void cpu_relax() {
#if !defined(__CUDA_ARCH__)
  std::this_thread::yield();
#endif
}

}  // namespace gigabar::inline v0::device
