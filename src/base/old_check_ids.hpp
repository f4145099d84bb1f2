// SPDX-License-Identifier: Apache-2.0
// Ids of the doctor's checks that had another name in the version before: `probe.*` were `trial.*`.
#pragma once

#include <string>
#include <string_view>

namespace gigabar::inline v0 {

inline std::string current_check_id(std::string_view id) {
  constexpr std::string_view kOld = "trial";
  if (id != kOld && !id.starts_with("trial.")) return std::string(id);
  return "probe" + std::string(id.substr(kOld.size()));
}

}  // namespace gigabar::inline v0
