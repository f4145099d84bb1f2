// SPDX-License-Identifier: Apache-2.0
#include "platform/stored_json.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
constexpr std::size_t kMaxTextBytes = 256;
constexpr int kMaxDepth = 8;

Error bad_load(const Words& words, const std::string& path, std::string cause, NativeCode native = {}) {
  return make_error(Status::bad_file, words.load, path, std::move(cause), words.load_remedy, std::move(native));
}

Error bad_save(const Words& words, const std::string& path, std::string cause, int code) {
  return make_error(Status::bad_file, words.save, path, std::move(cause), "name a place that can be written", errno_code(code));
}

// Makes a document of what a parser finds. Refuses what it accepts and nobody means: a name given twice, objects with more names
// and nesting deeper than any format has.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Json& root) : root_(root) {}

  bool null() override { return add({}) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(Json::number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(Json::number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(Json::number_float_t value, const std::string&) override { return add(value) != nullptr; }
  bool string(std::string& value) override { return add(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) override { refuse("", "has bytes that are no text"); }
  bool start_object(std::size_t) override { return enter(new_object()); }
  bool start_array(std::size_t) override { return enter(Json::array()); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    const Json& object = *inside_.back();
    if (object.contains(name)) refuse("", "has the name \"" + name.substr(0, 64) + "\" twice in one object");
    if (object.size() == kMaxMembers) refuse("", text("has an object with more than ", kMaxMembers, " names"));
    name_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    if (const auto* const syntax = dynamic_cast<const Json::parse_error*>(&error)) throw *syntax;
    refuse("", text("has a value that JSON cannot hold: ", error.what()));
  }

 private:
  Json* add(Json value) {
    if (inside_.size() > static_cast<std::size_t>(kMaxDepth)) refuse("", text("is nested deeper than ", kMaxDepth));
    if (inside_.empty()) return &(root_ = std::move(value));
    Json& above = *inside_.back();
    if (above.is_object()) return &(above[name_] = std::move(value));
    above.push_back(std::move(value));
    return &above.back();
  }
  bool enter(Json value) {
    inside_.push_back(add(std::move(value)));
    return true;
  }
  bool leave() {
    inside_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> inside_;  // the objects and arrays that have begun
  std::string name_;           // of the value that comes next in an object
};

// The whole file, or why not. Not blocked by a pipe or a device with that name.
Result<std::string> read_file(const Words& words, const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return bad_load(words, path, "cannot be opened", errno_code(errno));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return bad_load(words, path, "is not a regular file");
  std::string content;
  char chunk[16384];
  for (;;) {
    const ssize_t count = ::read(file.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return bad_load(words, path, "cannot be read", errno_code(errno));
    if (count == 0) return content;
    content.append(chunk, static_cast<std::size_t>(count));
    if (content.size() > kMaxFileBytes) return bad_load(words, path, "is larger than 1 MiB");
  }
}

}  // namespace

void Document::take_down(Json& value) noexcept {
  if (!value.is_structured()) return;
  for (Json& nested : value) take_down(nested);
  value.clear();
}

Json new_object() {
  Json object = Json::object();
  object.get_ref<Json::object_t&>().reserve(kMaxMembers);
  return object;
}

void refuse(const std::string& place, const std::string& cause) {
  throw Problem{(place.empty() ? std::string("the file") : place) + ": " + cause};
}

void expect_object(const Json& value, const std::string& place, const std::vector<std::string>& names) {
  if (!value.is_object()) refuse(place, "is not an object");
  for (const std::string& name : names) {
    if (!value.contains(name)) refuse(place, "has no \"" + name + "\"");
  }
  for (const auto& item : value.items()) {
    if (std::find(names.begin(), names.end(), item.key()) == names.end()) {
      refuse(place, "has an unknown name \"" + item.key().substr(0, 64) + "\"");
    }
  }
}

void expect_format(const Json& root, std::string_view format, int version) {
  if (!root.is_object() || !root.contains("format") || root["format"] != format) refuse("format", text("is not \"", format, "\""));
  if (!root.contains("version") || root["version"] != version) refuse("version", text("is not ", version));
}

bool read_bool(const Json& value, const std::string& place) {
  if (!value.is_boolean()) refuse(place, "is neither true nor false");
  return value.get<bool>();
}

std::string read_text(const Json& value, const std::string& place) {
  if (!value.is_string()) refuse(place, "is not a text");
  auto content = value.get<std::string>();
  if (content.size() > kMaxTextBytes) refuse(place, text("is longer than ", kMaxTextBytes, " bytes"));
  for (const char c : content) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) refuse(place, "has a control character");
  }
  return content;
}

std::uint64_t read_number(const Json& value, const std::string& place, std::uint64_t least, std::uint64_t most) {
  const bool is_within = value.is_number_unsigned() && value.get<std::uint64_t>() >= least && value.get<std::uint64_t>() <= most;
  if (!is_within) refuse(place, text("is not a whole number from ", least, " to ", most));
  return value.get<std::uint64_t>();
}

Result<void> load(const Words& words, const std::string& path, void (*read)(const Json& root, void* result), void* result) {
  auto content = read_file(words, path);
  if (!content) return std::move(content).error();
  try {
    Document document;
    Builder builder(document.root);
    Json::sax_parse(content.value(), &builder);
    read(document.root, result);
    return {};
  } catch (const Problem& problem) {
    return bad_load(words, path, problem.text);
  } catch (const Json::parse_error& error) {
    return bad_load(words, path, text("is not JSON from byte ", error.byte, " on of ", content.value().size()));
  } catch (const Json::exception& error) {
    return bad_load(words, path, text("has a value that JSON cannot hold: ", error.what()));
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
