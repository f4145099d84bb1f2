// SPDX-License-Identifier: Apache-2.0
#include "support/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gigabar::tool {

std::string Mismatch::to_string() const {
  return fmt::format("offset {}: expected 0x{:02x}, found 0x{:02x}", offset_bytes, std::to_integer<unsigned>(expected),
                     std::to_integer<unsigned>(found));
}

// A mix whose every output bit depends on every input bit (splitmix64's finalizer).
Pattern::Word Pattern::word_at(std::uint64_t index) const noexcept {
  std::uint64_t mixed = seed_ + (index + 1) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return std::bit_cast<Word>(mixed ^ (mixed >> 31) ^ flip_);
}

void Pattern::fill(std::span<std::byte> bytes) const noexcept {
  for (std::size_t offset = 0; offset < bytes.size(); offset += kWord) {
    std::memcpy(bytes.data() + offset, word_at(offset / kWord).data(), std::min(kWord, bytes.size() - offset));
  }
}

std::optional<Mismatch> Pattern::compare(std::span<const std::byte> bytes, std::size_t from) const noexcept {
  for (std::size_t index = 0; index < bytes.size(); ++index) {
    const std::size_t offset = from + index;
    const Word word = word_at(offset / kWord);
    if (offset % kWord == 0 && bytes.size() - index >= kWord && std::memcmp(bytes.data() + index, word.data(), kWord) == 0) {
      index += kWord - 1;
    } else if (bytes[index] != word[offset % kWord]) {
      return Mismatch{offset, word[offset % kWord], bytes[index]};
    }
  }
  return {};
}

}  // namespace gigabar::tool
