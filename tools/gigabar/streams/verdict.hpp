// SPDX-License-Identifier: Apache-2.0
// What the exit status says of all that was run.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "streams/options.hpp"
#include "streams/point.hpp"

namespace gigabar::tool::streams {

class Verdict {
 public:
  explicit Verdict(std::optional<double> expected_ratio) : expected_ratio_(expected_ratio) {}

  // Returns what a reader has to know: transfers that --expect does not judge, each said once.
  std::vector<std::string> judge(const Point& point);

  // Ends the command unless all is well: interrupted, then failed, then below what was expected.
  void conclude(bool is_interrupted) const;

 private:
  void judge_ratio(const Point& point, std::size_t index, std::vector<std::string>& notes);

  std::optional<double> expected_ratio_;
  std::vector<std::string> failures_;
  bool is_bad_usage_ = false;
  std::vector<std::string> misses_;  // below --expect
  std::set<std::string> noted_;
};

}  // namespace gigabar::tool::streams
