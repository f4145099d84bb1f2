// SPDX-License-Identifier: Apache-2.0
// Lines of a message ring, each with the number that shows that it is there: how a GPU and how a CPU stores and loads one.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__CUDA_ARCH__)
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#endif

#include "gigabar/device/fabric.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"

// Two lines at once, by accesses of 16 aligned bytes: whole on each processor with AVX (Intel SDM volume 3, "Guaranteed Atomic
// Operations"; AMD APM volume 2, 7.3.2), and in no processor cut within 8 bytes, as which a line needs them. ThreadSanitizer knows
// accesses of up to 8 bytes.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GIGABAR_MESSAGE_TSAN
#endif
#elif defined(__SANITIZE_THREAD__)
#define GIGABAR_MESSAGE_TSAN
#endif
#if !defined(__CUDA_ARCH__) && defined(__SSE2__) && !defined(GIGABAR_MESSAGE_TSAN)
#define GIGABAR_MESSAGE_SSE2
#endif

namespace gigabar::inline v0::device {

// 12 bytes of data and one number. For writers and readers that access 16 bytes at once: GPUs.
struct WholeLine {
  static constexpr std::uint32_t kWords = 3;  // of data

  GIGABAR_DEVICE static void store(MessageLine* to, const std::uint32_t (&words)[kWords], std::uint32_t number) {
#if defined(__CUDA_ARCH__)
    asm volatile(
        "{ .reg .b64 low, high; .reg .b128 all; mov.b64 low, {%1, %2}; mov.b64 high, {%3, %4}; mov.b128 all, {low, high}; "
        "st.relaxed.sys.global.b128 [%0], all; }"
        :
        : "l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(number)
        : "memory");
#else
    store_relaxed(&to->halves[0], words[0] | std::uint64_t{words[1]} << 32);
    store_release(&to->halves[1], words[2] | std::uint64_t{number} << 32);
#endif
  }
  // Returns whether the line carries the number. Everything released before the line is visible then, if `O` is after_writes.
  // The load is volatile, which PTX defines as relaxed.sys that is performed as it stands: of a relaxed one of 16 bytes whose words
  // are not all looked at, the assembler (CUDA 13.0) makes one load for each of the others, and a line of two laps is seen.
  template <Order O>
  GIGABAR_DEVICE static bool load(const MessageLine* from, std::uint32_t number, std::uint32_t (&words)[kWords]) {
#if defined(__CUDA_ARCH__)
    std::uint32_t found;
    if constexpr (O == Order::after_writes) {
      asm volatile(
          "{ .reg .b64 low, high; .reg .b128 all; ld.acquire.sys.global.b128 all, [%4]; mov.b128 {low, high}, all; "
          "mov.b64 {%0, %1}, low; mov.b64 {%2, %3}, high; }"
          : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(found)
          : "l"(from)
          : "memory");
    } else {
      asm volatile(
          "{ .reg .b64 low, high; .reg .b128 all; ld.volatile.global.b128 all, [%4]; mov.b128 {low, high}, all; "
          "mov.b64 {%0, %1}, low; mov.b64 {%2, %3}, high; }"
          : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(found)
          : "l"(from)
          : "memory");
    }
    return found == number;
#else
    const std::uint64_t high = load_acquire(&from->halves[1]);
    const std::uint64_t low = load_relaxed(&from->halves[0]);
    words[0] = static_cast<std::uint32_t>(low);
    words[1] = static_cast<std::uint32_t>(low >> 32);
    words[2] = static_cast<std::uint32_t>(high);
    return static_cast<std::uint32_t>(high >> 32) == number;
#endif
  }
  // After the lines of a piece.
  GIGABAR_DEVICE static void flush() {}
};

// 8 bytes of data; each half carries the number. For a CPU as writer or reader: it accesses 8 aligned bytes at once, but its
// write-combining buffers may write a line in parts and in any order (Intel SDM volume 3, "Write Combining (WC) Memory Type").
struct SplitLine {
  static constexpr std::uint32_t kWords = 2;

  GIGABAR_DEVICE static void store(MessageLine* to, const std::uint32_t (&words)[kWords], std::uint32_t number) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(to), "l"(words[0] | std::uint64_t{number} << 32), "l"(words[1] | std::uint64_t{number} << 32)
                 : "memory");
#else
    store_release(&to->halves[0], words[0] | std::uint64_t{number} << 32);
    store_release(&to->halves[1], words[1] | std::uint64_t{number} << 32);
#endif
  }
  template <Order O>
  GIGABAR_DEVICE static bool load(const MessageLine* from, std::uint32_t number, std::uint32_t (&words)[kWords]) {
    std::uint64_t low, high;
#if defined(__CUDA_ARCH__)
    if constexpr (O == Order::after_writes) {
      low = load_acquire(&from->halves[0]);
      high = load_acquire(&from->halves[1]);
    } else {
      asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
    }
#else
    low = load_acquire(&from->halves[0]);
    high = load_acquire(&from->halves[1]);
#endif
    words[0] = static_cast<std::uint32_t>(low);
    words[1] = static_cast<std::uint32_t>(high);
    return static_cast<std::uint32_t>(low >> 32) == number && static_cast<std::uint32_t>(high >> 32) == number;
  }
#if !defined(__CUDA_ARCH__)
  static constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);

  // Stores `count` lines behind each other, with the data at `from`.
  static void store_run(MessageLine* to, const std::byte* from, std::uint32_t count, std::uint32_t number) {
#if defined(GIGABAR_MESSAGE_SSE2)
    const __m128i numbers = _mm_set1_epi32(static_cast<int>(number));
    for (; count >= 2; count -= 2, to += 2, from += 2 * kBytes) {
      const __m128i data = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(data, numbers));
      _mm_store_si128(reinterpret_cast<__m128i*>(to + 1), _mm_unpackhi_epi32(data, numbers));
    }
#endif
    for (; count != 0; --count, ++to, from += kBytes) {
      std::uint32_t words[kWords];
      std::memcpy(words, from, kBytes);
      store(to, words, number);
    }
  }
  // Loads up to `count` lines behind each other, whose data go to `to`. Returns how many carry the number, up to the first that
  // does not.
  static std::uint32_t load_run(const MessageLine* from, std::uint32_t number, std::uint32_t count, std::byte* to) {
    std::uint32_t taken = 0;
#if defined(GIGABAR_MESSAGE_SSE2)
    const __m128 numbers = _mm_castsi128_ps(_mm_set1_epi32(static_cast<int>(number)));
    for (; count - taken >= 2; taken += 2, to += 2 * kBytes) {
      // volatile, and whole: a compiler may load a plain one by words, those that are looked at first behind the others.
      const auto* const lines = reinterpret_cast<const volatile __m128*>(from + taken);
      const __m128 low = lines[0], high = lines[1];
      const __m128 found = _mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1));
      if (_mm_movemask_epi8(_mm_cmpeq_epi32(_mm_castps_si128(found), _mm_castps_si128(numbers))) != 0xffff) break;
      _mm_storeu_ps(reinterpret_cast<float*>(to), _mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
    }
#endif
    for (std::uint32_t words[kWords]; taken < count && load<Order::none>(from + taken, number, words); ++taken, to += kBytes) {
      std::memcpy(to, words, kBytes);
    }
    return taken;
  }
#endif
  // Empties the write-combining buffers of a CPU.
  GIGABAR_DEVICE static void flush() {
#if !defined(__CUDA_ARCH__)
    fence_system();
#endif
  }
};

}  // namespace gigabar::inline v0::device

#undef GIGABAR_MESSAGE_TSAN
#undef GIGABAR_MESSAGE_SSE2
