// SPDX-License-Identifier: Apache-2.0
#include "support/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gigabar::tool {
namespace {

constexpr std::size_t kWord = 8;

}  // namespace

std::string Mismatch::to_string() const {
  return fmt::format("offset {}: expected 0x{:02x}, found 0x{:02x}", offset_bytes, std::to_integer<unsigned>(expected),
                     std::to_integer<unsigned>(found));
}

// A mix whose every output bit depends on every input bit (splitmix64's finalizer).
std::uint64_t Pattern::word_at(std::uint64_t index) const noexcept {
  std::uint64_t mixed = seed_ + (index + 1) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31) ^ flip_;
}

std::byte Pattern::at(std::size_t offset_bytes) const noexcept {
  const std::uint64_t word = word_at(offset_bytes / kWord);
  std::byte bytes[kWord];
  std::memcpy(bytes, &word, kWord);
  return bytes[offset_bytes % kWord];
}

void Pattern::fill(std::span<std::byte> bytes) const noexcept {
  for (std::size_t offset = 0; offset < bytes.size(); offset += kWord) {
    const std::uint64_t word = word_at(offset / kWord);
    std::memcpy(bytes.data() + offset, &word, std::min(kWord, bytes.size() - offset));
  }
}

std::optional<Mismatch> Pattern::compare(std::span<const std::byte> bytes, std::size_t from) const noexcept {
  std::size_t index = 0;
  while (index < bytes.size()) {
    const std::size_t offset = from + index;
    if (offset % kWord == 0 && bytes.size() - index >= kWord) {
      const std::uint64_t word = word_at(offset / kWord);
      if (std::memcmp(bytes.data() + index, &word, kWord) == 0) {
        index += kWord;
        continue;
      }
    }
    if (bytes[index] != at(offset)) return Mismatch{offset, at(offset), bytes[index]};
    ++index;
  }
  return {};
}

}  // namespace gigabar::tool
