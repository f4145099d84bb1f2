// SPDX-License-Identifier: Apache-2.0
#include "streams/output.hpp"

#include <fmt/format.h>

namespace gigabar::tool::streams {

void Output::note(const std::string& line) { fmt::print(stderr, "note: {}\n", line); }

}  // namespace gigabar::tool::streams
