// SPDX-License-Identifier: Apache-2.0
// The JSON document of --json and --format json: as that of the other commands, with every parameter and every sample.
#pragma once

#include <string_view>

#include "streams/options.hpp"
#include "streams/point.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {

// What stands beside the results.
void describe(const Options& options, Json& document);
void describe(const Machine& machine, Json& document);

// A result. `measure`: its kind, "transfers".
Json point_json(const Point& point, std::string_view measure);
Json preset_json(const PresetRun& run);
Json description_json(const StreamPreset& preset);  // of a list

}  // namespace gigabar::tool::streams
