// SPDX-License-Identifier: Apache-2.0
// How the CPU takes an answer of the readback kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "copy/readback/protocol.hpp"

namespace gigabar::readback {

#if defined(__x86_64__) && !defined(GIGABAR_SANITIZE_THREAD)  // which knows atomic accesses only
// Four lines at once, of one line of the CPU's cache: few instructions, so that many cache lines are under way. A CPU that has AVX
// loads 16 aligned bytes by one access (Intel SDM volume 3, "Guaranteed Atomic Operations"; AMD APM volume 2, "Access Atomicity").
// The last store writes 4 bytes behind the 48. False: they are not all there.
inline bool copy_quad(std::byte* destination, const device::MessageLine* lines, std::uint32_t number) {
  asm volatile("" ::: "memory");  // they are loaded again each time
  const auto* const from = reinterpret_cast<const __m128i*>(lines);
  const __m128i a = _mm_load_si128(from), b = _mm_load_si128(from + 1), c = _mm_load_si128(from + 2), d = _mm_load_si128(from + 3);
  const __m128i numbers = _mm_unpackhi_epi64(_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
  const __m128i is_there = _mm_cmpeq_epi32(numbers, _mm_set1_epi32(static_cast<int>(number)));
  if (_mm_movemask_epi8(is_there) != 0xffff) return false;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination), a);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + kLineBytes), b);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + std::size_t{2} * kLineBytes), c);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + std::size_t{3} * kLineBytes), d);
  return true;
}
inline bool can_copy_quads() { return __builtin_cpu_supports("avx") != 0; }
#else
inline bool copy_quad(std::byte*, const device::MessageLine*, std::uint32_t) { return false; }
inline bool can_copy_quads() { return false; }
#endif

// Copies an answer's bytes from `skip` on, as its lines come. Asks `gives_up` once in 64 polls of a line that is not there. False:
// it said so, and some bytes may be copied. It says so when the kernel has ended: then every line is there, or none.
template <class GivesUp>
bool take_answer(const HostSide& host, const Request& request, std::uint32_t skip, std::byte* destination, GivesUp gives_up) {
  constexpr std::uint32_t kPollsPerQuestion = 64;
  constexpr std::uint32_t kQuadLines = 4;
  constexpr std::uint32_t kQuadBytes = kQuadLines * kLineBytes;
  constexpr std::uint32_t kLinesAhead = 64;  // 16 lines of the CPU's cache, each about 50 ns away
  const bool copies_quads = can_copy_quads();
  const device::MessageLine* next_line = host.lines;
  bool has_given_up = false;
  for (std::uint32_t begin = 0, poll = 0; begin < request.bytes;) {
    if (copies_quads && begin >= skip && begin % kQuadBytes == 0) {
      // What a quad writes behind its end belongs to the next line.
      while (begin + kQuadBytes + kWordBytes <= request.bytes &&
             copy_quad(destination + (begin - skip), next_line, request.number)) {
        __builtin_prefetch(next_line + kLinesAhead);
        begin += kQuadBytes;
        next_line += kQuadLines;
      }
    }
    std::uint32_t words[device::WholeLine::kWords];
    if (!device::WholeLine::load<device::Order::none>(next_line, request.number, words)) [[unlikely]] {
      if (has_given_up) return false;
      if (++poll % kPollsPerQuestion == 0) has_given_up = gives_up();
      continue;
    }
    const std::uint32_t first = begin < skip ? skip - begin : 0;
    const std::uint32_t end = std::min(request.bytes - begin, kLineBytes);
    if (first == 0 && end == kLineBytes) [[likely]] {
      std::memcpy(destination + (begin - skip), words, kLineBytes);
    } else if (first < end) {
      std::memcpy(destination + (begin + first - skip), reinterpret_cast<const std::byte*>(words) + first, end - first);
    }
    begin += kLineBytes;
    ++next_line;
  }
  return true;
}

}  // namespace gigabar::readback
