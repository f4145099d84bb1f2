// SPDX-License-Identifier: Apache-2.0
// Calibration files: JSON, read with the suspicion that a file from a cache folder deserves.
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "copy/kernels/kernels.hpp"
#include "gigabar/copy.hpp"
#include "platform/stored_json.hpp"

namespace gigabar {
namespace {

using stored::expect_format;
using stored::expect_object;
using stored::Json;
using stored::read_bool;
using stored::read_number;
using stored::read_text;
using stored::refuse;

constexpr std::size_t kMaxPoints = 4096;
constexpr std::uint64_t kMaxCopyBytes = std::uint64_t{1} << 40;
constexpr double kMaxUs = 1e9;
constexpr std::string_view kFormat = "gigabar calibration";
constexpr int kVersion = 1;
constexpr std::array<CopyMethod, 3> kMethods = {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::copy_engine};

constexpr stored::Words kWords = {"load calibration", "delete the file and measure again (Calibration::measure)",
                                  "save calibration"};

double read_us(const Json& value, const std::string& place) {
  if (value.is_null()) return std::numeric_limits<double>::infinity();
  if (!value.is_number()) refuse(place, "is neither a number nor null");
  const auto us = value.get<double>();
  if (!(us > 0 && us <= kMaxUs)) refuse(place, "is not a time above 0 and at most 1e9 us");
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
  point.bytes = static_cast<std::size_t>(read_number(value["bytes"], place + ".bytes", 1, kMaxCopyBytes));
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
  if (value.size() > kMaxPoints) refuse("points", text("has more than ", kMaxPoints, " entries"));
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

Calibration read_calibration(const Json& root) {
  expect_format(root, kFormat, kVersion);
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

}  // namespace

std::string Calibration::to_json() const try {
  stored::Document document;
  Json& root = document.root = stored::new_object();
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["is_measured"] = is_measured;
  root["device_name"] = device_name;
  root["device_uuid"] = device_uuid;
  root["cpu_name"] = cpu_name;
  root["driver_version"] = driver_version;
  root["date"] = date;
  root["thread_count"] = thread_count;
  Json& list = root["points"] = Json::array();
  for (const CalibrationPoint& point : points) {
    list.push_back(stored::new_object());
    Json& item = list.back();
    item["direction"] = name_of(point.direction);
    item["is_pinned"] = point.is_pinned;
    item["bytes"] = point.bytes;
    Json& times = item["median_us"] = stored::new_object();
    for (const CopyMethod method : kMethods) {
      const double us = point.median_us[static_cast<std::size_t>(method)];
      times[std::string(name_of(method))] = std::isfinite(us) ? Json(us) : Json();
    }
  }
  for (const auto& [name, kernels] : {std::pair("store_kernel", &store_kernel), std::pair("load_kernel", &load_kernel)}) {
    Json& names = root[name] = Json::array();
    for (const std::string& kernel : *kernels) names.push_back(kernel);
  }
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
} catch (...) {
  return {};
}

Result<Calibration> Calibration::load(const std::string& path) try {
  const Uncancelled uncancelled;
  Calibration calibration;
  const auto read = [](const Json& root, void* result) { *static_cast<Calibration*>(result) = read_calibration(root); };
  if (Result<void> loaded = stored::load(kWords, path, read, &calibration); !loaded) return std::move(loaded).error();
  return calibration;
} catch (...) {
  return error_of_exception("load");
}

Result<void> Calibration::save(const std::string& path) const try {
  const Uncancelled uncancelled;
  return stored::replace_file(kWords, path, to_json());
} catch (...) {
  return error_of_exception("save");
}

}  // namespace gigabar
