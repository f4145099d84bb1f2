// SPDX-License-Identifier: Apache-2.0
// What the command line of `gigabar doctor` asks for.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gigabar::tool::doctor {

inline constexpr const char* kFromList = "from a list";  // what --symptom without a text stands for

struct Options {
  std::string sysroot;
  std::vector<std::string> only;
  bool is_list = false;
  std::optional<std::string> symptom;  // kFromList: chosen from the list
  bool is_strict = false;
  bool has_probes = true;
  std::string json_path;
  bool is_verbose = false;  // whole blocks for PASS and SKIP too, and every reading
  bool shows_all = false;   // a line for PASS and SKIP
  double most_seconds = 30;
};

}  // namespace gigabar::tool::doctor
