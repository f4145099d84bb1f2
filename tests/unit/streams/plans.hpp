// SPDX-License-Identifier: Apache-2.0
// Plans from lines of the long form, for runs on two devices.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

#include "gigabar/streams.hpp"

namespace gigabar::test {

// 20 copies of `bytes` where a line does not say it. A line that cannot be read fails the test.
inline StreamPlan plan_of(std::initializer_list<std::string_view> lines, unsigned repeats, std::size_t bytes) {
  StreamPlan plan;
  plan.repeats = repeats;
  Transfer defaults;
  defaults.bytes = bytes;
  defaults.iterations = 20;
  for (const std::string_view line : lines) {
    auto transfers = parse_transfers(line, defaults, 2);
    EXPECT_TRUE(transfers) << transfers.error().message();
    if (transfers) plan.transfers.insert(plan.transfers.end(), transfers->begin(), transfers->end());
  }
  return plan;
}

}  // namespace gigabar::test
