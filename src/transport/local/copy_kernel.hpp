// SPDX-License-Identifier: Apache-2.0
// What the persistent copy kernel and the CPU agree upon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gigabar::transport::local {

inline constexpr unsigned kKernelThreads = 512;    // of a block
inline constexpr unsigned kKernelBlocks = 32;      // a quarter of an H200; 16 are 0.4 µs slower at 1 MiB, 64 no faster
inline constexpr unsigned kKernelLoads = 4;        // of 16 bytes, in flight per thread
inline constexpr std::uint32_t kKernelSlots = 64;  // requests that can wait; a power of two

// One copy. In GPU memory, where the CPU stores it through a mapping. Its three words arrive in any order: each says which request
// it belongs to. Request n lies in slot n modulo kKernelSlots.
struct alignas(64) CopyRequest {
  std::uint64_t to = 0;    // address of 52 bits, above it the low 12 bits of the number
  std::uint64_t from = 0;  // likewise; the addresses differ by a multiple of 16
  std::uint64_t size = 0;  // bytes of 32 bits, above them the number; no bytes: the kernel is to end
};
inline constexpr unsigned kAddressBits = 52;

struct KernelMemory {
  CopyRequest requests[kKernelSlots];
};

// In pinned host memory: each block stores a word of its own, the CPU loads.
struct KernelWords {
  alignas(128) std::uint32_t done[kKernelBlocks];     // its part of every request up to this one is where it belongs, for everybody
  alignas(128) std::uint32_t started[kKernelBlocks];  // number of the launch that it is of
  alignas(128) std::uint32_t ended[kKernelBlocks];    // number of the launch that it was of: it touches nothing any more
};

struct KernelLaunch {
  const KernelMemory* memory;
  KernelWords* words;
  std::uint32_t launch;         // number of this one
  std::uint32_t first_request;  // that it waits for
  std::uint64_t most_ns;        // a block ends when it has run for so long
  std::uint64_t most_idle_ns;   // or has waited for so long
};

}  // namespace gigabar::transport::local
