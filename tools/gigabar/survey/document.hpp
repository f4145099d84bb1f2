// SPDX-License-Identifier: Apache-2.0
// A survey that was written before, as `gigabar survey --json` left it. The file may be anything.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace gigabar::tool::survey {

struct Measured {
  std::string unit;
  double value = 0, least = 0, most = 0;
  double pass_count = 1;
  // Why there is no value; empty: there is one. The initialiser allows records without it.
  std::string failure = {};  // NOLINT(readability-redundant-member-init)

  double range() const { return most - least; }
  // The samples of one pass show how a machine differs from itself within a second only, which does not tell the noise.
  bool has_noise() const { return failure.empty() && pass_count >= 2; }
};

struct Document {
  std::string label;   // host, date
  std::string passes;  // "3 passes over 12 s"
  std::map<std::string, Measured> figures;
  std::map<std::string, std::string> facts;     // what the machine is: CPU, kernel, driver, device, relations
  std::map<std::string, std::string> verdicts;  // "pci.acs GPU ... and ...": "FAIL"
};

// Each ends the command as bad usage when this is no survey; `path` is how the message names it, `option` what names the file.
Document read_document(std::string_view option, const std::string& path);
Document parse_document(const std::string& path, std::string_view text);

// Noise is never less than this share of the first median: on two H200, runs 20 s apart differed by up to 9.5 %.
inline constexpr double kNoiseFloor = 0.10;

}  // namespace gigabar::tool::survey
