// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels of several components do alike. For device code only.
#pragma once

#include <cstddef>

namespace gigabar::inline v0 {

// One of `threads` copies its share of `count` times 16 bytes, with `kLoads` loads in flight. `load` reads 16 bytes. No byte is
// used twice, so what is stored stays in no cache.
template <std::size_t kLoads, class Load>
__device__ void copy_quads(uint4* to, const uint4* from, std::size_t count, std::size_t thread, std::size_t threads, Load load) {
  std::size_t i = thread;
  for (; i + (kLoads - 1) * threads < count; i += kLoads * threads) {
    uint4 words[kLoads];
#pragma unroll
    for (std::size_t j = 0; j < kLoads; ++j) words[j] = load(from + i + j * threads);
#pragma unroll
    for (std::size_t j = 0; j < kLoads; ++j) __stcs(to + i + j * threads, words[j]);
  }
  for (; i < count; i += threads) __stcs(to + i, load(from + i));
}

}  // namespace gigabar::inline v0
