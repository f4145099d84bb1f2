// SPDX-License-Identifier: Apache-2.0
// Checks of what is typed behind an option.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "support/command_line.hpp"

namespace gigabar::tool {

// A size in bytes ("4096", "64K", "2M", "1G", powers of 1024), turned into digits.
Value byte_count(std::uint64_t least, std::uint64_t most = std::uint64_t{1} << 40);
Value whole_number(std::uint64_t least, std::uint64_t most, const char* name = "N");
// A number from `least` to `most`, both included.
Value real_number(double least, double most, const char* name);
// Seconds, with fractions, above 0.
Value seconds(double most);

// The whole text as a number; false when it is none.
bool read_number(const std::string& text, double& value);

// Reads one of the names of `choices`, in any case of letters, into `target`, which must live as long as the command line is read.
template <class T, class Target>
Check choice(const std::map<std::string, T>& choices, Target& target) {
  return [choices, &target](std::string& text) -> std::string {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) {
      names.push_back(name);
      if (!is_same_name(name, text)) continue;
      target = value;
      return {};
    }
    return unknown_name(text, names);
  };
}

}  // namespace gigabar::tool
