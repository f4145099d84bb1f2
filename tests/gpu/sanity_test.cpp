// SPDX-License-Identifier: Apache-2.0
// The scenarios of `gigabar sanity` on a GPU.
#include "scenarios/sanity/as_tests.hpp"

namespace gigabar::test {
namespace {

constexpr unsigned kLimitSeconds = 110;

TEST_P(Sanity, HoldsOnGpus) {
  run_isolated(
      [] {
        if (first_device().is_stand_in) GTEST_SKIP() << "no GPU";
        const tool::Verdict verdict = judge();
        if (verdict.word == "waived") GTEST_SKIP() << verdict.reason;
        EXPECT_EQ(verdict.word, "pass") << verdict.reason;
      },
      kLimitSeconds);
}

}  // namespace
}  // namespace gigabar::test
