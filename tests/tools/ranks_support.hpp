// SPDX-License-Identifier: Apache-2.0
// What the tests of the commands between ranks share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ranks/measure.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::ranks {

using Sizes = std::vector<std::uint64_t>;
using Words = std::vector<std::string>;

// The message of the refusal, which must end the command with this status; empty when nothing was refused.
template <class Call>
std::string refusal_of(Call&& call, int exit_status = kExitBadUsage) {
  try {
    call();
  } catch (const CommandFailure& failure) {
    EXPECT_EQ(failure.exit_status(), exit_status) << failure.what();
    return failure.what();
  }
  return {};
}

inline void expect_words(const std::string& message, const Words& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << "'" << message << "' lacks " << word;
}

inline Options options_of(Measure measure) {
  Options options;
  options.measure = measure;
  return options;
}

inline Plan plan_of(Measure measure, Kind kind = Kind::send) {
  Options options = options_of(measure);
  options.kind = kind;
  return make_plan(options);
}

}  // namespace gigabar::tool::ranks
