// SPDX-License-Identifier: Apache-2.0
#include "base/edit_distance.hpp"

#include <gtest/gtest.h>

namespace gigabar {
namespace {

TEST(EditDistance, CountsWhatIsAddedTakenAwayAndChanged) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("nvlink", "nvlink"), 0u);
  EXPECT_EQ(edit_distance("", "gdr"), 3u);
  EXPECT_EQ(edit_distance("gdr", ""), 3u);
  EXPECT_EQ(edit_distance("nvlnik", "nvlink"), 2u) << "two that changed places are two";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3u);
}

}  // namespace
}  // namespace gigabar
