// SPDX-License-Identifier: Apache-2.0
#include "platform/stored_json.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/output_file.hpp"

namespace gigabar::stored {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

Error bad_load(const Words& words, const std::string& path, std::string cause, NativeCode native = {}) {
  return make_error(Status::bad_file, words.load, path, std::move(cause), words.load_remedy, std::move(native));
}

Error bad_save(const Words& words, const std::string& path, std::string cause, int code) {
  return make_error(Status::bad_file, words.save, path, std::move(cause), "name a place that can be written", errno_code(code));
}

}  // namespace

Result<void> load(const Words& words, const std::string& path, const std::function<void(const json::Value& root)>& read) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) return bad_load(words, path, "cannot be opened", errno_code(errno));
  if (!S_ISREG(found.st_mode)) return bad_load(words, path, "is not a regular file");
  const auto content = read_small_file(path, kMaxFileBytes);
  if (!content) {
    const int code = errno;
    return bad_load(words, path, code == EFBIG ? "is larger than 1 MiB" : "cannot be read", errno_code(code));
  }
  try {
    json::parse(*content, kLimits, read);
    return {};
  } catch (const json::Problem& problem) {
    return bad_load(words, path, problem.text());
  }
}

Result<void> replace_file(const Words& words, const std::string& path, std::string_view content) {
  std::error_code folder_error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, folder_error);
  if (folder_error) return bad_save(words, path, "its folder cannot be made", folder_error.value());
  if (const auto fault = write_output(path, content)) return bad_save(words, path, fault->cause, fault->code);
  return {};
}

std::string cache_folder() {
  const auto cache = environment("XDG_CACHE_HOME");
  if (cache && cache->starts_with('/')) return *cache + "/gigabar";
  const auto home = environment("HOME");
  return home && home->starts_with('/') ? *home + "/.cache/gigabar" : std::string();
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char date[32];
  return std::string(date, std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

}  // namespace gigabar::stored
