// SPDX-License-Identifier: Apache-2.0
// Runs what the options ask for.
#pragma once

#include "streams/document.hpp"
#include "streams/options.hpp"

namespace gigabar::tool::streams {

// Returns when all is well, and ends the command otherwise, after everything was printed and written.
void run(const Options& options, Document& document);

}  // namespace gigabar::tool::streams
