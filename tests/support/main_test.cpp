// SPDX-License-Identifier: Apache-2.0
// Tests for main_test.sh, which looks at the exit codes of a program with them.
#include <gtest/gtest.h>

TEST(MainPasses, Passes) { SUCCEED(); }
TEST(MainSkips, Skips) { GTEST_SKIP() << "as main_test.sh wants it"; }
