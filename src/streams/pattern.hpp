// SPDX-License-Identifier: Apache-2.0
// What sources are filled with: every 8-byte word tells transfer and place, so that a word that arrived elsewhere is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gigabar::inline v0 {

#if defined(__CUDACC__)
#define GIGABAR_HOST_DEVICE __host__ __device__
#else
#define GIGABAR_HOST_DEVICE
#endif

// Word `index` of the pattern with that seed; the last, partial word of a buffer holds its lower bytes.
GIGABAR_HOST_DEVICE inline std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U + seed * 0xbf58476d1ce4e5b9U;
  return mixed ^ (mixed >> 32);
}

// No pattern holds it everywhere: what destinations are filled with before a run.
inline constexpr unsigned char kPoison = 0xa5;

// The first word that is not the pattern's.
struct PatternMismatch {
  std::size_t offset_bytes = 0;
  std::uint64_t expected = 0;
  std::uint64_t found = 0;
};

// Host memory, `first_word` * 8 bytes into the whole buffer. By several threads when there is much.
void fill_pattern(void* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first_word = 0);
void fill_poison(void* memory, std::size_t bytes);
std::optional<PatternMismatch> check_pattern(const void* memory, std::size_t bytes, std::uint64_t seed,
                                             std::uint64_t first_word = 0);

}  // namespace gigabar::inline v0
