// SPDX-License-Identifier: Apache-2.0
// Ids of checks that had another name in the version before: `probe.*` were `trial.*`.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "support/plain_text.hpp"

namespace gigabar::tool::doctor {

inline std::string current_id(std::string_view id) {
  constexpr std::string_view kOld = "trial";
  if (id != kOld && !id.starts_with("trial.")) return std::string(id);
  return fmt::format("probe{}", id.substr(kOld.size()));
}

// As it was typed.
inline std::string current_id_with_note(std::string_view id) {
  std::string current = current_id(id);
  if (current != id) fmt::print(stderr, "note: the check {} is called {} now\n", plain(id, 100), plain(current, 100));
  return current;
}

}  // namespace gigabar::tool::doctor
