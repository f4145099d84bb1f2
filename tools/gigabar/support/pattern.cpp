// SPDX-License-Identifier: Apache-2.0
#include "support/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gigabar::tool {
namespace {

constexpr std::size_t kWord = 8;

// A word of the pattern: a mix whose every output bit depends on every input bit (splitmix64's finalizer).
std::uint64_t word_at(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t mixed = seed + (index + 1) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

void fill_words(std::span<std::byte> bytes, std::uint64_t seed, std::uint64_t flip) noexcept {
  for (std::size_t offset = 0; offset < bytes.size(); offset += kWord) {
    const std::uint64_t word = word_at(seed, offset / kWord) ^ flip;
    std::memcpy(bytes.data() + offset, &word, std::min(kWord, bytes.size() - offset));
  }
}

std::byte byte_at(std::uint64_t seed, std::size_t offset_bytes, std::uint64_t flip) noexcept {
  const std::uint64_t word = word_at(seed, offset_bytes / kWord) ^ flip;
  std::byte bytes[kWord];
  std::memcpy(bytes, &word, kWord);
  return bytes[offset_bytes % kWord];
}

std::optional<Mismatch> first_difference(std::span<const std::byte> bytes, std::size_t from, std::uint64_t seed,
                                         std::uint64_t flip) noexcept {
  std::size_t index = 0;
  while (index < bytes.size()) {
    const std::size_t offset = from + index;
    if (offset % kWord == 0 && bytes.size() - index >= kWord) {
      const std::uint64_t word = word_at(seed, offset / kWord) ^ flip;
      if (std::memcmp(bytes.data() + index, &word, kWord) == 0) {
        index += kWord;
        continue;
      }
    }
    const std::byte expected = byte_at(seed, offset, flip);
    if (bytes[index] != expected) return Mismatch{offset, expected, bytes[index]};
    ++index;
  }
  return {};
}

}  // namespace

std::string Mismatch::to_string() const {
  return fmt::format("offset {}: expected 0x{:02x}, found 0x{:02x}", offset_bytes, std::to_integer<unsigned>(expected),
                     std::to_integer<unsigned>(found));
}

std::byte Pattern::at(std::size_t offset_bytes) const noexcept { return byte_at(seed_, offset_bytes, 0); }

void Pattern::fill(std::span<std::byte> bytes) const noexcept { fill_words(bytes, seed_, 0); }

void Pattern::poison(std::span<std::byte> bytes) const noexcept { fill_words(bytes, seed_, ~std::uint64_t{0}); }

std::optional<Mismatch> Pattern::compare(std::span<const std::byte> bytes, std::size_t from) const noexcept {
  return first_difference(bytes, from, seed_, 0);
}

std::optional<Mismatch> Pattern::compare_poison(std::span<const std::byte> bytes, std::size_t from) const noexcept {
  return first_difference(bytes, from, seed_, ~std::uint64_t{0});
}

}  // namespace gigabar::tool
