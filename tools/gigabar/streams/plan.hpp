// SPDX-License-Identifier: Apache-2.0
// From the command line to plans. Whatever cannot be followed ends the command as bad usage, naming the option or FILE:LINE:COLUMN.
#pragma once

#include <string>
#include <vector>

#include "streams/options.hpp"
#include "streams/point.hpp"

namespace gigabar::tool::streams {

// What a transfer is that says nothing but its ends: CUts' size and iterations, for presets those of nvbandwidth.
Transfer default_transfer(const Options& options);

// What is done with transfers: repeats, verification, and a time-out that leaves room for what is asked in seconds.
StreamPlan make_plan(const Options& options, std::vector<Transfer> transfers);

// One point, or one for each size of the sweep.
std::vector<Point> make_points(const Options& options, int device_count);

// The preset with its points, each named and with the command line's repeats. `swept_bytes`: a size of the sweep.
PresetRun make_preset(const Options& options, const std::string& name, int device_count, std::optional<std::size_t> swept_bytes);

// Lines that --file reads again, each with its number.
std::string plan_text(const Point& point);

}  // namespace gigabar::tool::streams
