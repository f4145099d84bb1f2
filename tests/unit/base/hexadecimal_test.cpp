// SPDX-License-Identifier: Apache-2.0
#include "base/hexadecimal.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace gigabar {
namespace {

TEST(Hexadecimal, IsTheWholeText) {
  EXPECT_EQ(hexadecimal<std::uint64_t>("00ff"), 255u);
  EXPECT_EQ(hexadecimal<std::uint64_t>("FfffFFFFffffFFFF"), ~std::uint64_t{0});
  for (const char* const word : {"", "0x1", "fg", "-1", " 1", "1 ", "10000000000000000"})
    EXPECT_EQ(hexadecimal<std::uint64_t>(word), std::nullopt) << word;
}

TEST(Hexadecimal, IsAtMostWhatItMayBe) {
  EXPECT_EQ((hexadecimal<std::uint8_t>("1f", 0x1f)), 0x1f);
  EXPECT_EQ((hexadecimal<std::uint8_t>("20", 0x1f)), std::nullopt);
  EXPECT_EQ(hexadecimal<std::uint8_t>("100"), std::nullopt) << "more than its type holds";
}

}  // namespace
}  // namespace gigabar
