// SPDX-License-Identifier: Apache-2.0
#include "streams/pattern.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/rounding.hpp"
#include "copy/worker_pool.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kPartBytes = std::size_t{16} << 20;  // less is not worth waking a thread for
constexpr unsigned kMaxThreads = 8;

// Calls work(begin, end) for parts of [0, bytes) that begin at whole words.
template <class Work>
void in_parallel(std::size_t bytes, const Work& work) {
  const auto count = static_cast<unsigned>(std::clamp<std::size_t>(bytes / kPartBytes, 1, kMaxThreads));
  const std::size_t part_bytes = round_up<std::size_t>((bytes + count - 1) / count, 64);
  const auto run_part = [&](unsigned index) {
    const std::size_t begin = std::min(bytes, index * part_bytes);
    const std::size_t end = std::min(bytes, begin + part_bytes);
    if (begin < end) work(begin, end);
  };
  if (count > 1 && WorkerPool::of_process().run(count, run_part)) return;
  work(0, bytes);
}

std::optional<PatternMismatch> check_part(const std::byte* memory, std::size_t begin, std::size_t end, std::uint64_t seed,
                                          std::uint64_t first_word) {
  for (std::size_t at = begin; at < end; at += 8) {
    const std::size_t length = std::min<std::size_t>(8, end - at);
    const std::uint64_t expected = pattern_word(seed, first_word + at / 8);
    std::uint64_t found = expected;
    std::memcpy(&found, memory + at, length);
    if (found != expected) return PatternMismatch{first_word * 8 + at, expected, found};
  }
  return {};
}

}  // namespace

void fill_pattern(void* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first_word) {
  auto* const to = static_cast<std::byte*>(memory);
  in_parallel(bytes, [=](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; at += 8) {
      const std::uint64_t word = pattern_word(seed, first_word + at / 8);
      std::memcpy(to + at, &word, std::min<std::size_t>(8, end - at));
    }
  });
}

void fill_poison(void* memory, std::size_t bytes) {
  auto* const to = static_cast<std::byte*>(memory);
  in_parallel(bytes, [=](std::size_t begin, std::size_t end) { std::memset(to + begin, kPoison, end - begin); });
}

std::optional<PatternMismatch> check_pattern(const void* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first_word) {
  const auto* const from = static_cast<const std::byte*>(memory);
  std::mutex mutex;
  std::optional<PatternMismatch> first;
  in_parallel(bytes, [&](std::size_t begin, std::size_t end) {
    const auto mismatch = check_part(from, begin, end, seed, first_word);
    const std::lock_guard lock(mutex);
    if (mismatch && (!first || mismatch->offset_bytes < first->offset_bytes)) first = mismatch;
  });
  return first;
}

}  // namespace gigabar::inline v0
