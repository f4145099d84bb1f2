// SPDX-License-Identifier: Apache-2.0
// Files of measurements in the user's cache folder: JSON, read with the suspicion that such a file deserves, and replaced as a
// whole.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"

namespace gigabar::stored {

using Json = nlohmann::ordered_json;

// A document that is taken down without memory. The destructor of a Json lists what is nested in it, and ends the program where
// there is no memory for the list. So a Json with something nested belongs to a Document, and is made in its place: no temporary of
// it, and no object that grows beyond what new_object() has room for, whose members would be copied.
class Document {
 public:
  Document() = default;
  ~Document() { take_down(root); }
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Json root;

 private:
  static void take_down(Json& value) noexcept;
};
inline constexpr std::size_t kMaxMembers = 32;
Json new_object();

// How errors about a kind of file speak: "load calibration", what to do about a bad file; "save calibration".
struct Words {
  const char* load;
  const char* load_remedy;
  const char* save;
};

// What is wrong with a value, and where: "points[3].bytes: is not a whole number from 1 to 1099511627776". Thrown by the readers.
struct Problem {
  std::string text;
};
[[noreturn]] void refuse(const std::string& place, const std::string& cause);

// Exactly these names, each of them.
void expect_object(const Json& value, const std::string& place, const std::vector<std::string>& names);
// `format` and `version` of the whole document.
void expect_format(const Json& root, std::string_view format, int version);
bool read_bool(const Json& value, const std::string& place);
// At most 256 bytes, no control characters.
std::string read_text(const Json& value, const std::string& place);
std::uint64_t read_number(const Json& value, const std::string& place, std::uint64_t least, std::uint64_t most);

// Parses the file and calls `read`, which may throw Problem. Errors: bad_file with place and cause: missing, no regular file,
// larger than 1 MiB, not JSON, a name twice, more than 32 in an object, nested deeper than 8, what `read` refused.
Result<void> load(const Words& words, const std::string& path, void (*read)(const Json& root, void* result), void* result);

// As write_output(); makes the folder. Errors: bad_file with errno.
Result<void> replace_file(const Words& words, const std::string& path, std::string_view content);

// $XDG_CACHE_HOME/gigabar, else ~/.cache/gigabar; empty when there is no such place. The environment is ignored when real and
// effective ids differ.
std::string cache_folder();

// ISO 8601, UTC.
std::string date_now();

}  // namespace gigabar::stored
