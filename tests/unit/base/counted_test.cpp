// SPDX-License-Identifier: Apache-2.0
#include "base/counted.hpp"

#include <gtest/gtest.h>

namespace gigabar {
namespace {

TEST(Counted, OneIsNoPlural) {
  EXPECT_EQ(counted(1, "byte"), "1 byte");
  EXPECT_EQ(counted(1, "copy", "copies"), "1 copy");
}

TEST(Counted, NoneAndSeveralAre) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
  EXPECT_EQ(counted(18446744073709551615U, "byte"), "18446744073709551615 bytes");
  EXPECT_EQ(counted(0, "copy", "copies"), "0 copies");
  EXPECT_EQ(counted(3, "copy", "copies"), "3 copies");
}

}  // namespace
}  // namespace gigabar
