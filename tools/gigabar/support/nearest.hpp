// SPDX-License-Identifier: Apache-2.0
// What a user may have meant by a name that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gigabar::tool {

// The candidate that is nearest to `wanted`, dashes at their beginnings left aside; empty when none is similar, or `wanted` has
// fewer than three letters.
std::string nearest(std::string_view wanted, const std::vector<std::string>& candidates);

}  // namespace gigabar::tool
