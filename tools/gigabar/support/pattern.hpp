// SPDX-License-Identifier: Apache-2.0
// Data that can be checked: every byte follows from its offset and a seed. The poison of a pattern differs from it in every byte,
// so a byte that a copy left out never passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gigabar::tool {

struct Mismatch {
  std::size_t offset_bytes;
  std::byte expected;
  std::byte found;

  // "offset 12: expected 0x3a, found 0xc5".
  std::string to_string() const;
};

class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) noexcept : seed_(seed) {}

  std::byte at(std::size_t offset_bytes) const noexcept { return word_at(offset_bytes / kWord)[offset_bytes % kWord]; }
  void fill(std::span<std::byte> bytes) const noexcept;
  // At every offset the complement of the pattern.
  void poison(std::span<std::byte> bytes) const noexcept { complement().fill(bytes); }
  // The first byte that is not the pattern's; with `from`, bytes[0] stands at that offset.
  std::optional<Mismatch> compare(std::span<const std::byte> bytes, std::size_t from = 0) const noexcept;
  std::optional<Mismatch> compare_poison(std::span<const std::byte> bytes, std::size_t from = 0) const noexcept {
    return complement().compare(bytes, from);
  }

 private:
  Pattern(std::uint64_t seed, std::uint64_t flip) noexcept : seed_(seed), flip_(flip) {}
  Pattern complement() const noexcept { return {seed_, ~flip_}; }
  static constexpr std::size_t kWord = 8;
  using Word = std::array<std::byte, kWord>;
  Word word_at(std::uint64_t index) const noexcept;

  std::uint64_t seed_, flip_ = 0;
};

}  // namespace gigabar::tool
