// SPDX-License-Identifier: Apache-2.0
// Files of measurements in the user's cache folder: JSON, read with the suspicion that such a file deserves, and replaced as a
// whole.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "gigabar/status.hpp"

namespace gigabar::stored {

inline constexpr json::Limits kLimits{};

// How errors about a kind of file speak: "load calibration", what to do about a bad file; "save calibration".
struct Words {
  const char* load;
  const char* load_remedy;
  const char* save;
};

// Parses the file and calls `read`, which may throw json::Problem. Errors: bad_file with place and cause: missing, larger
// than 1 MiB, not JSON, beyond kLimits, what `read` refused.
Result<void> load(const Words& words, const std::string& path, const std::function<void(const json::Value& root)>& read);

// As write_output(); makes the folder. Errors: bad_file with errno.
Result<void> replace_file(const Words& words, const std::string& path, std::string_view content);

// $XDG_CACHE_HOME/gigabar, else ~/.cache/gigabar; empty when there is no such place. The environment is ignored when real and
// effective ids differ.
std::string cache_folder();

// ISO 8601, UTC.
std::string date_now();

}  // namespace gigabar::stored
