// SPDX-License-Identifier: Apache-2.0
// Calibration without measuring: the choice that follows from the numbers, the documented numbers, the table, the file.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/uncancelled.hpp"
#include "copy/kernels/kernels.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "platform/stored_json.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// By what each CopyMethod must beat those before it. Several threads occupy the machine, and near the size where they begin to pay
// their times scatter by half: they must win clearly. The copy engine occupies no CPU: a tie is its. The readback kernel occupies a
// part of the GPU.
constexpr std::array<double, kCopyMethodCount> kMustWinBy = {1, 0.8, 1.03, 0.9};

// Microseconds of one method at `bytes`: a straight line in the logarithms between the two nearest of the points at which it was
// measured; infinity outside of them.
template <class IsOne>
double time_at(std::span<const CalibrationPoint> points, const IsOne& is_one, std::size_t method, double bytes) {
  const CalibrationPoint* below = nullptr;
  for (const CalibrationPoint& point : points) {
    const double us = point.median_us[method];
    if (!is_one(point) || !std::isfinite(us) || us <= 0) continue;
    const auto point_bytes = static_cast<double>(point.bytes);
    if (point_bytes == bytes) return us;
    if (point_bytes < bytes) {
      below = &point;
      continue;
    }
    if (below == nullptr) return kInfinity;
    const auto below_bytes = static_cast<double>(below->bytes);
    const double part = std::log(bytes / below_bytes) / std::log(point_bytes / below_bytes);
    return below->median_us[method] * std::pow(us / below->median_us[method], part);
  }
  return kInfinity;
}

std::string time_text(double us) {
  if (!std::isfinite(us) || us <= 0) return "-";
  char number[32];
  std::snprintf(number, sizeof number, us < 100 ? "%.3f" : "%.1f", us);
  return number;
}

std::string bytes_text(std::size_t bytes) {
  if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return text(bytes >> 20, " MiB");
  if (bytes >= (1U << 10) && bytes % (1U << 10) == 0) return text(bytes >> 10, " KiB");
  return text(bytes, " B");
}

// "8 B..4 KiB avx2", one entry per run of equal names; the sizes are those of the classes.
std::string kernels_text(const std::array<std::string, detail::ActiveKernels::kSizeClasses>& names) {
  std::string line;
  for (std::size_t begin = 1; begin < names.size();) {
    std::size_t end = begin;
    while (end < names.size() && names[end] == names[begin]) ++end;
    if (!line.empty()) line += ", ";
    line += text("from ", bytes_text(std::size_t{1} << (begin - 1)), " ", names[begin].empty() ? "default" : names[begin]);
    begin = end;
  }
  return line;
}

// One row of the documented figures: bytes, then microseconds by CopyMethod.
struct DocumentedTime {
  std::size_t bytes;
  double cpu_us;
  double cpu_parallel_us;
  double copy_engine_us;
  double readback_us = kInfinity;
};

// NVIDIA H200 (PCIe 5.0 x16, driver 580.159.04, open kernel module) behind a Xeon with AVX-512 and MOVDIR64B; medians, pinned host
// memory, four threads where there are several; where a size was not measured, infinity.
constexpr DocumentedTime kToDevice[] = {{1, 0.13, kInfinity, 7.4},     {64, 0.13, kInfinity, kInfinity},
                                        {256, 0.14, kInfinity, 8.1},   {1024, 0.16, kInfinity, kInfinity},
                                        {4096, 0.30, kInfinity, 9.0},  {16384, 0.85, kInfinity, kInfinity},
                                        {65536, 3.0, kInfinity, 10.1}, {1048576, 48, 36, 28},
                                        {16777216, 853, 529, 335}};
constexpr DocumentedTime kFromDevice[] = {{1, 1.0, kInfinity, 7.7},
                                          {256, 1.0, kInfinity, 7.7, 2.3},
                                          {1024, 1.1, kInfinity, kInfinity, 2.4},
                                          {4096, 4.4, kInfinity, 7.8, 2.7},
                                          {16384, 18, kInfinity, kInfinity, 4.2},
                                          {32768, kInfinity, kInfinity, kInfinity, 6.2},
                                          {65536, 67, kInfinity, 8.9},
                                          {1048576, 1200, 403, 27},
                                          {16777216, kInfinity, kInfinity, 305}};

Calibration documented() {
  Calibration calibration;
  calibration.device_name = "NVIDIA H200 (documented defaults)";
  calibration.driver_version = "580.159.04";
  const auto add = [&](CopyDirection direction, bool is_pinned, std::span<const DocumentedTime> times) {
    for (const auto& [bytes, cpu, parallel, engine, readback] : times) {
      calibration.points.push_back({direction, is_pinned, bytes, {cpu, parallel, engine, readback}});
    }
  };
  // Pageable memory was not measured: the driver copies it through a buffer of its own, which moves the crossover up, never down.
  for (const bool is_pinned : {false, true}) add(CopyDirection::to_device, is_pinned, kToDevice);
  for (const bool is_pinned : {false, true}) add(CopyDirection::from_device, is_pinned, kFromDevice);
  return calibration;
}

// A UUID comes from a driver; only what can be part of a file name is taken.
std::string file_name_of(const std::string& uuid) {
  std::string name;
  for (const char c : uuid) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    if (is_plain && name.size() < 64) name += c;
  }
  return name.empty() ? "stand-in" : name;
}

}  // namespace

CopyMethod Calibration::choose(CopyDirection direction, bool is_pinned, std::size_t bytes, bool with_readback) const noexcept {
  const auto is_one = [&](const CalibrationPoint& point) {
    return point.direction == direction && point.is_pinned == is_pinned && point.bytes != 0;
  };
  const auto first = std::ranges::find_if(points, is_one);
  if (first == points.end()) return CopyMethod::cpu;
  const auto last = std::find_if(points.rbegin(), points.rend(), is_one);
  const std::size_t within = std::clamp(bytes, first->bytes, std::max(first->bytes, last->bytes));
  auto best = CopyMethod::cpu;
  double best_us = kInfinity;
  for (const CopyMethod method : {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::copy_engine, CopyMethod::readback}) {
    if (method == CopyMethod::readback && (!with_readback || bytes > kMaxReadbackBytes)) continue;
    const auto index = static_cast<std::size_t>(method);
    const double us = time_at(points, is_one, index, static_cast<double>(within));
    if (us < best_us * kMustWinBy[index]) {
      best = method;
      best_us = us;
    }
  }
  return best;
}

const Calibration& Calibration::defaults() try {
  static const Calibration& calibration = *new Calibration(documented());
  return calibration;
} catch (...) {
  static const Calibration without_points;  // takes no memory; asked again later
  return without_points;
}

std::string Calibration::to_text() const try {
  std::string out = text("device   ", device_name, device_uuid.empty() ? "" : " ", device_uuid, "\n",  //
                         "cpu      ", cpu_name.empty() ? "-" : cpu_name, "\n",                         //
                         "driver   ", driver_version.empty() ? "-" : driver_version, "\n",             //
                         "measured ", is_measured ? date : "no: documented defaults", "\n",            //
                         "threads  ", thread_count, "\n",                                              //
                         "store    ", kernels_text(store_kernel), "\n",                                //
                         "load     ", kernels_text(load_kernel), "\n");
  if (points.empty()) return out + "no copies measured: the CPU copies every size\n";
  char line[160];
  std::snprintf(line, sizeof line, "%-12s %-9s %10s %12s %12s %12s %12s  %s\n", "direction", "host", "size", "cpu us",
                "parallel us", "engine us", "readback us", "choice");
  out += line;
  for (const CalibrationPoint& point : points) {
    const auto choice = [&](bool with_readback) { return choose(point.direction, point.is_pinned, point.bytes, with_readback); };
    std::string choices(name_of(choice(false)));
    if (choice(true) != choice(false)) choices += text(", or ", name_of(choice(true)));
    std::snprintf(line, sizeof line, "%-12s %-9s %10s %12s %12s %12s %12s  %s\n", std::string(name_of(point.direction)).c_str(),
                  point.is_pinned ? "pinned" : "pageable", bytes_text(point.bytes).c_str(), time_text(point.median_us[0]).c_str(),
                  time_text(point.median_us[1]).c_str(), time_text(point.median_us[2]).c_str(),
                  time_text(point.median_us[3]).c_str(), choices.c_str());
    out += line;
  }
  return out;
} catch (...) {
  return {};
}

std::string Calibration::default_path(int device) try {
  const Uncancelled uncancelled;
  if (const auto path = environment("GIGABAR_CALIBRATION"); path && !path->empty()) return *path;
  const std::string folder = stored::cache_folder();
  if (folder.empty()) return {};
  const auto known = devices();
  if (!known) return {};
  for (const DeviceInfo& info : known.value()) {
    if (info.index == device) return folder + "/calibration-" + file_name_of(info.uuid) + ".json";
  }
  return {};
} catch (...) {
  return {};
}

// ---- The file: JSON, read with the suspicion that a file from a cache folder deserves. ----

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
