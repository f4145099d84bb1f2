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

namespace gigabar::inline v0 {
namespace {

constexpr std::uint64_t kMaxCopyBytes = std::uint64_t{1} << 40;
constexpr double kMaxUs = 1e9;

constexpr stored::Words kWords = {"load calibration", "delete the file and measure again (Calibration::measure)",
                                  "save calibration"};

// A time in microseconds; null: none.
struct Time {
  void read(const json::Value& from, double& us) const {
    us = from.is_null() ? std::numeric_limits<double>::infinity() : from.real();
    if (!from.is_null() && !(us > 0 && us <= kMaxUs)) from.refuse("is not a time above 0 and at most 1e9 us");
  }
  void write(json::Writer& to, double us) const { std::isfinite(us) && us > 0 ? to.value(us) : to.null(); }
};

// Names of kernels by size; empty: the default.
struct Kernels {
  template <std::size_t kCount>
  void read(const json::Value& from, std::array<std::string, kCount>& names) const {
    if (from.entry_count() != kCount) from.refuse(text("is not an array of ", kCount, " names"));
    for (std::size_t i = 0; i < kCount; ++i) {
      const json::Value entry = from.entry(i);
      names[i] = entry.text();
      if (!names[i].empty() && !kernels::is_kernel_name(names[i])) entry.refuse("is an unknown kernel, \"" + names[i] + "\"");
    }
  }
  template <std::size_t kCount>
  void write(json::Writer& to, const std::array<std::string, kCount>& names) const {
    to.begin('[');
    for (const std::string& name : names) json::write(to, name);
    to.end(']');
  }
};

using Times = decltype(CalibrationPoint::median_us);

}  // namespace

template <>
struct json::Fields<Times> {
  static void each(auto& field, auto& times) {
    for (const CopyMethod method : {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::copy_engine, CopyMethod::readback})
      field(name_of(method), times[static_cast<std::size_t>(method)], Time());
  }
};

template <>
struct json::Fields<CalibrationPoint> {
  static void each(auto& field, auto& point) {
    field("direction", point.direction, OneOf{std::array{CopyDirection::to_device, CopyDirection::from_device}});
    field("is_pinned", point.is_pinned);
    field("bytes", point.bytes, Between{1, kMaxCopyBytes});
    field("median_us", point.median_us);
  }
};

template <>
struct json::Fields<Calibration> {
  static void each(auto& field, auto& calibration) {
    field.constant("format", std::string_view("gigabar calibration"));
    field.constant("version", std::uint64_t{2});
    field("is_measured", calibration.is_measured);
    field("device_name", calibration.device_name);
    field("device_uuid", calibration.device_uuid);
    field("cpu_name", calibration.cpu_name);
    field("driver_version", calibration.driver_version);
    field("date", calibration.date);
    field("thread_count", calibration.thread_count, Between{1, 64});
    field("points", calibration.points);
    field("store_kernel", calibration.store_kernel, Kernels());
    field("load_kernel", calibration.load_kernel, Kernels());
  }
};

namespace {

void check_points(const std::vector<CalibrationPoint>& points) {
  const auto order = [](const CalibrationPoint& p) { return std::tuple(p.direction, p.is_pinned, p.bytes); };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Times& times = points[i].median_us;
    if (std::none_of(times.begin(), times.end(), [](double us) { return std::isfinite(us); }))
      throw json::Problem{text("points[", i, "].median_us"), "has no time at all"};
    if (i > 0 && order(points[i - 1]) >= order(points[i]))
      throw json::Problem{text("points[", i, "]"), "is not after the point before it (by direction, is_pinned, bytes)"};
  }
}

}  // namespace

std::string Calibration::to_json() const try { return json::to_text(*this, stored::kLimits); } catch (...) {
  return {};
}

Result<Calibration> Calibration::load(const std::string& path) try {
  const Uncancelled uncancelled;
  Calibration calibration;
  const auto read = [&](const json::Value& root) {
    json::read(root, calibration);
    check_points(calibration.points);
  };
  if (Result<void> loaded = stored::load(kWords, path, read); !loaded) return std::move(loaded).error();
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

}  // namespace gigabar::inline v0
