// SPDX-License-Identifier: Apache-2.0
// The pattern tells where a word belongs, and every wrong byte is found.
#include "streams/pattern.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace gigabar {
namespace {

TEST(StreamPattern, NoTwoPlacesOrTransfersAreAlike) {
  std::set<std::uint64_t> words;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    for (std::uint64_t index = 0; index < 4096; ++index) words.insert(pattern_word(seed, index));
  }
  EXPECT_EQ(words.size(), 16u * 4096);
}

TEST(StreamPattern, FillsAndChecksEveryLength) {
  for (std::size_t bytes = 1; bytes <= 200; ++bytes) {
    std::vector<std::byte> memory(bytes + 8, std::byte{0x11});
    fill_pattern(memory.data(), bytes, 7);
    EXPECT_FALSE(check_pattern(memory.data(), bytes, 7)) << bytes;
    for (std::size_t i = bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0x11}) << "wrote past " << bytes;
  }
}

TEST(StreamPattern, FindsTheFirstWrongByte) {
  constexpr std::size_t kBytes = (std::size_t{48} << 20) + 5;  // several threads, and a partial word
  std::vector<std::byte> memory(kBytes);
  fill_pattern(memory.data(), kBytes, 3);
  ASSERT_FALSE(check_pattern(memory.data(), kBytes, 3));
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 20; ++turn) {
    const std::size_t at = turn == 0 ? kBytes - 1 : turn == 1 ? 0 : random() % kBytes;
    memory[at] ^= std::byte{0x40};
    memory[kBytes - 1] ^= std::byte{turn > 0};
    const auto mismatch = check_pattern(memory.data(), kBytes, 3);
    ASSERT_TRUE(mismatch) << at;
    EXPECT_EQ(mismatch->offset_bytes, at / 8 * 8);
    EXPECT_NE(mismatch->expected, mismatch->found);
    EXPECT_EQ(mismatch->expected, pattern_word(3, at / 8));
    memory[at] ^= std::byte{0x40};
    memory[kBytes - 1] ^= std::byte{turn > 0};
  }
  EXPECT_TRUE(check_pattern(memory.data(), kBytes, 4)) << "another transfer's pattern";
  fill_poison(memory.data(), kBytes);
  EXPECT_EQ(check_pattern(memory.data(), kBytes, 3)->offset_bytes, 0u);
}

TEST(StreamPattern, PiecesMakeAWhole) {
  std::vector<std::byte> whole(4096), pieces(4096);
  fill_pattern(whole.data(), 4096, 9);
  for (std::size_t at = 0; at < 4096; at += 512) fill_pattern(pieces.data() + at, 512, 9, at / 8);
  EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), 4096), 0);
  EXPECT_FALSE(check_pattern(whole.data() + 1024, 1024, 9, 128));
  EXPECT_EQ(check_pattern(whole.data() + 1024, 1024, 9, 129)->offset_bytes, 129u * 8);
}

}  // namespace
}  // namespace gigabar
