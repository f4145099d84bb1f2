// Calibration files: JSON, read with the suspicion that a file from a cache folder deserves.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "copy/kernels/kernels.hpp"
#include "gigabar/copy.hpp"

namespace gigabar {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMostTextBytes = 256;
constexpr std::size_t kMostPoints = 4096;
constexpr std::uint64_t kMostCopyBytes = std::uint64_t{1} << 40;
constexpr double kMostUs = 1e9;
constexpr int kMostDepth = 8;
constexpr std::string_view kFormat = "gigabar calibration";
constexpr int kVersion = 1;
constexpr std::array<CopyMethod, 3> kMethods = {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::copy_engine};

Error bad_file(const char* operation, const std::string& path, std::string cause, NativeCode native = {}) {
  return make_error(Status::bad_file, operation, path, std::move(cause),
                    operation == std::string_view("load calibration") ? "delete the file and measure again (Calibration::measure)"
                                                                      : "name a place that can be written",
                    std::move(native));
}

// What is wrong with a value, and where: "points[3].bytes: is not a whole number from 1 to 1099511627776".
struct Problem {
  std::string text;
};

[[noreturn]] void refuse(const std::string& place, const std::string& cause) {
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

bool read_bool(const Json& value, const std::string& place) {
  if (!value.is_boolean()) refuse(place, "is neither true nor false");
  return value.get<bool>();
}

std::string read_text(const Json& value, const std::string& place) {
  if (!value.is_string()) refuse(place, "is not a text");
  auto content = value.get<std::string>();
  if (content.size() > kMostTextBytes) refuse(place, text("is longer than ", kMostTextBytes, " bytes"));
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

double read_us(const Json& value, const std::string& place) {
  if (value.is_null()) return std::numeric_limits<double>::infinity();
  if (!value.is_number()) refuse(place, "is neither a number nor null");
  const auto us = value.get<double>();
  if (!(us > 0 && us <= kMostUs)) refuse(place, "is not a time above 0 and at most 1e9 us");
  return us;
}

CopyDirection read_direction(const Json& value, const std::string& place) {
  const std::string name = read_text(value, place);
  for (const CopyDirection direction : {CopyDirection::to_device, CopyDirection::from_device}) {
    if (name == name_of(direction)) return direction;
  }
  refuse(place, "is neither \"to_device\" nor \"from_device\"");
}

CalibrationPoint read_point(const Json& value, const std::string& place) {
  expect_object(value, place, {"direction", "is_pinned", "bytes", "median_us"});
  CalibrationPoint point{};
  point.direction = read_direction(value["direction"], place + ".direction");
  point.is_pinned = read_bool(value["is_pinned"], place + ".is_pinned");
  point.bytes = static_cast<std::size_t>(read_number(value["bytes"], place + ".bytes", 1, kMostCopyBytes));
  const Json& times = value["median_us"];
  std::vector<std::string> names;
  for (const CopyMethod method : kMethods) names.emplace_back(name_of(method));
  expect_object(times, place + ".median_us", names);
  bool is_any_measured = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    point.median_us[i] = read_us(times[names[i]], place + ".median_us." + names[i]);
    is_any_measured = is_any_measured || std::isfinite(point.median_us[i]);
  }
  if (!is_any_measured) refuse(place + ".median_us", "has no time at all");
  return point;
}

std::vector<CalibrationPoint> read_points(const Json& value) {
  if (!value.is_array()) refuse("points", "is not an array");
  if (value.size() > kMostPoints) refuse("points", text("has more than ", kMostPoints, " entries"));
  std::vector<CalibrationPoint> points;
  const auto order = [](const CalibrationPoint& p) { return std::tuple(p.direction, p.is_pinned, p.bytes); };
  for (const Json& item : value) {
    const std::string place = text("points[", points.size(), "]");
    points.push_back(read_point(item, place));
    if (points.size() > 1 && order(points[points.size() - 2]) >= order(points.back())) {
      refuse(place, "is not after the point before it (by direction, is_pinned, bytes)");
    }
  }
  return points;
}

template <std::size_t kCount>
void read_kernels(const Json& value, const std::string& place, std::array<std::string, kCount>& names) {
  if (!value.is_array() || value.size() != kCount) refuse(place, text("is not an array of ", kCount, " names"));
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::string here = text(place, "[", i, "]");
    names[i] = read_text(value[i], here);
    if (!names[i].empty() && !kernels::is_kernel_name(names[i])) refuse(here, "is an unknown kernel, \"" + names[i] + "\"");
  }
}

// Refuses what a parser accepts and nobody means: a name given twice, and nesting deeper than the format has.
class StrictEvents {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMostDepth) refuse("", text("is nested deeper than ", kMostDepth));
    switch (event) {
      case Json::parse_event_t::object_start: names_.emplace_back(); break;
      case Json::parse_event_t::object_end: names_.pop_back(); break;
      case Json::parse_event_t::key:
        if (const auto name = value.get<std::string>(); !names_.back().insert(name).second) {
          refuse("", "has the name \"" + name.substr(0, 64) + "\" twice in one object");
        }
        break;
      default: break;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> names_;
};

Calibration read_calibration(const std::string& content) {
  StrictEvents events;
  const Json root =
      Json::parse(content, [&](int depth, Json::parse_event_t event, Json& value) { return events(depth, event, value); });
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat) {
    refuse("format", text("is not \"", kFormat, "\""));
  }
  if (!root.contains("version") || root["version"] != kVersion) refuse("version", text("is not ", kVersion));
  expect_object(root, "",
                {"format", "version", "is_measured", "device_name", "device_uuid", "cpu_name", "driver_version", "date",
                 "thread_count", "points", "store_kernel", "load_kernel"});
  Calibration calibration;
  calibration.is_measured = read_bool(root["is_measured"], "is_measured");
  calibration.device_name = read_text(root["device_name"], "device_name");
  calibration.device_uuid = read_text(root["device_uuid"], "device_uuid");
  calibration.cpu_name = read_text(root["cpu_name"], "cpu_name");
  calibration.driver_version = read_text(root["driver_version"], "driver_version");
  calibration.date = read_text(root["date"], "date");
  calibration.thread_count = static_cast<unsigned>(read_number(root["thread_count"], "thread_count", 1, 64));
  calibration.points = read_points(root["points"]);
  read_kernels(root["store_kernel"], "store_kernel", calibration.store_kernel);
  read_kernels(root["load_kernel"], "load_kernel", calibration.load_kernel);
  return calibration;
}

// The whole file, or why not. Not blocked by a pipe or a device with that name.
Result<std::string> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return bad_file("load calibration", path, "cannot be opened", errno_code(errno));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return bad_file("load calibration", path, "is not a regular file");
  }
  std::string content;
  char chunk[16384];
  for (;;) {
    const ssize_t count = ::read(file.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return bad_file("load calibration", path, "cannot be read", errno_code(errno));
    if (count == 0) return content;
    content.append(chunk, static_cast<std::size_t>(count));
    if (content.size() > kMostFileBytes) return bad_file("load calibration", path, "is larger than 1 MiB");
  }
}

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(file, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

std::string Calibration::to_json() const {
  Json root;
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["is_measured"] = is_measured;
  root["device_name"] = device_name;
  root["device_uuid"] = device_uuid;
  root["cpu_name"] = cpu_name;
  root["driver_version"] = driver_version;
  root["date"] = date;
  root["thread_count"] = thread_count;
  root["points"] = Json::array();
  for (const CalibrationPoint& point : points) {
    Json times;
    for (const CopyMethod method : kMethods) {
      const double us = point.median_us[static_cast<std::size_t>(method)];
      times[std::string(name_of(method))] = std::isfinite(us) ? Json(us) : Json();
    }
    root["points"].push_back(
        {{"direction", name_of(point.direction)}, {"is_pinned", point.is_pinned}, {"bytes", point.bytes}, {"median_us", times}});
  }
  root["store_kernel"] = store_kernel;
  root["load_kernel"] = load_kernel;
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Calibration> Calibration::load(const std::string& path) {
  auto content = read_file(path);
  if (!content) return std::move(content).error();
  try {
    return read_calibration(content.value());
  } catch (const Problem& problem) {
    return bad_file("load calibration", path, problem.text);
  } catch (const Json::parse_error& error) {
    return bad_file("load calibration", path, text("is not JSON from byte ", error.byte, " on of ", content.value().size()));
  } catch (const Json::exception& error) {
    return bad_file("load calibration", path, text("has a value that JSON cannot hold: ", error.what()));
  }
}

Outcome Calibration::save(const std::string& path) const {
  static std::atomic<unsigned> save_count{0};
  constexpr const char* kOperation = "save calibration";
  std::error_code folder_error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, folder_error);
  if (folder_error) return bad_file(kOperation, path, "its folder cannot be made", errno_code(folder_error.value()));

  const std::string temporary = text(path, ".", ::getpid(), "-", save_count.fetch_add(1), ".tmp");
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open()) return bad_file(kOperation, temporary, "cannot be created", errno_code(errno));
  if (!write_all(file.get(), to_json()) || ::fsync(file.get()) != 0) {
    const int code = errno;
    ::unlink(temporary.c_str());
    return bad_file(kOperation, temporary, "cannot be written", errno_code(code));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary.c_str());
    return bad_file(kOperation, path, "cannot be replaced", errno_code(code));
  }
  return {};
}

}  // namespace gigabar
