// SPDX-License-Identifier: Apache-2.0
// Copies that the threads of a scope make together, by loads and stores of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/memory.hpp"

#if !defined(__CUDA_ARCH__)
#include <cstring>
#endif

namespace gigabar::inline v0::device {

struct alignas(16) Quad {
  std::uint32_t words[4];
};

namespace detail {

// Loads memory that others write while the kernel runs: bypasses the first-level cache, which does not see their stores.
GIGABAR_DEVICE Quad load_quad(const Quad* from) {
#if defined(__CUDA_ARCH__)
  Quad quad;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(quad.words[0]), "=r"(quad.words[1]), "=r"(quad.words[2]), "=r"(quad.words[3])
               : "l"(from)
               : "memory");
  return quad;
#else
  return *from;
#endif
}

// Not volatile: the compiler keeps many under way.
GIGABAR_DEVICE void store_quad(Quad* to, const Quad& quad) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(quad.words[0]), "r"(quad.words[1]), "r"(quad.words[2]), "r"(quad.words[3])
               : "memory");
#else
  *to = quad;
#endif
}

// One element of `T` per step; for parts that 16-byte accesses do not fit.
template <class T, class Scope>
GIGABAR_DEVICE void copy_elements(const Scope& scope, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  auto* const out = reinterpret_cast<T*>(to);
  const auto* const in = reinterpret_cast<const volatile T*>(from);
  for (std::uint64_t i = scope.rank(); i < bytes / sizeof(T); i += scope.size()) out[i] = in[i];
}

// Moves `Count` quads, `step` apart: all loads are in flight before the first store.
template <std::uint64_t Count>
GIGABAR_DEVICE void move_quads(Quad* to, const Quad* from, std::uint64_t step) {
  Quad quads[Count];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (std::uint64_t j = 0; j < Count; ++j) quads[j] = load_quad(from + j * step);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (std::uint64_t j = 0; j < Count; ++j) store_quad(to + j * step, quads[j]);
}

template <class Scope>
GIGABAR_DEVICE void copy_quads(const Scope& scope, std::byte* to, const std::byte* from, std::uint64_t count) {
  auto* const out = reinterpret_cast<Quad*>(to);
  const auto* const in = reinterpret_cast<const Quad*>(from);
  const std::uint64_t step = scope.size();
  std::uint64_t i = scope.rank();
  for (; i + 7 * step < count; i += 8 * step) move_quads<8>(out + i, in + i, step);
  // The rest in a few steps; each waits once for its loads.
  if (i + 3 * step < count) {
    move_quads<4>(out + i, in + i, step);
    i += 4 * step;
  }
  if (i + step < count) {
    move_quads<2>(out + i, in + i, step);
    i += 2 * step;
  }
  if (i < count) move_quads<1>(out + i, in + i, step);
}

// Copies by the widest element that fits both addresses and the size.
template <class Scope>
GIGABAR_DEVICE void copy_fitting(const Scope& scope, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t misfit = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
  if (misfit % 8 == 0) {
    copy_elements<std::uint64_t>(scope, to, from, bytes);
  } else if (misfit % 4 == 0) {
    copy_elements<std::uint32_t>(scope, to, from, bytes);
  } else {
    copy_elements<std::uint8_t>(scope, to, from, bytes);
  }
}

}  // namespace detail

// Copies `bytes` from `from` to `to`: any addresses and sizes; the ranges must not overlap. Fastest where both addresses have the
// same offset in 16 bytes. When it returns, every thread has issued its own part; scope.sync() waits for the others.
template <class Scope>
GIGABAR_DEVICE void copy_bytes(const Scope& scope, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(to);
  // A word or a quad for each thread: most small messages.
  const std::uint64_t misfit = begin | reinterpret_cast<std::uintptr_t>(from) | bytes;
  const std::uint32_t i = scope.rank();
  if (bytes <= 8 * scope.size() && misfit % 8 == 0) {
    if (i < bytes / 8) reinterpret_cast<std::uint64_t*>(to)[i] = load_relaxed(reinterpret_cast<const std::uint64_t*>(from) + i);
    return;
  }
  if (bytes <= 16 * scope.size() && misfit % 16 == 0) {
    if (i < bytes / 16) detail::move_quads<1>(reinterpret_cast<Quad*>(to) + i, reinterpret_cast<const Quad*>(from) + i, 1);
    return;
  }
  const bool is_wide = (begin ^ reinterpret_cast<std::uintptr_t>(from)) % 16 == 0;
  const std::uint64_t unit = is_wide ? 16 : 8;
  const std::uint64_t to_line = is_wide ? (16 - begin % 16) % 16 : 0;
  const std::uint64_t head = to_line < bytes ? to_line : bytes;
  const std::uint64_t body = (bytes - head) / unit * unit;
  const std::uint64_t tail = bytes - head - body;
  if (head != 0) detail::copy_fitting(scope, to, from, head);
  if (is_wide) {
    detail::copy_quads(scope, to + head, from + head, body / 16);
  } else {
    detail::copy_fitting(scope, to + head, from + head, body);
  }
  if (tail != 0) detail::copy_fitting(scope, to + head + body, from + head + body, tail);
}

}  // namespace gigabar::inline v0::device
