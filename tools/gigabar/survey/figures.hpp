// SPDX-License-Identifier: Apache-2.0
// The figures of a survey: each with its noise, under a key that is the same on every machine and day, so that two surveys can be
// compared. Everything is measured in several passes over the whole survey: what a machine does beside it changes within seconds,
// and samples that were taken within one of them all see the same of it.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "gigabar/device.hpp"
#include "gigabar/streams.hpp"
#include "support/report.hpp"

namespace gigabar::tool::survey {

// GCC warns of members without "= {}" that an initializer leaves out.  NOLINTBEGIN(readability-redundant-member-init)
struct Figure {
  std::string key = {};              // "gpu0 copy_to 8 B", "gpu0->host alone"
  std::string unit = {};             // "us" (less is better) or "GB/s" (more is better)
  std::vector<double> samples = {};  // of all passes: medians of the rounds, or rates of the repeats
  unsigned pass_count = 1;           // that the samples are of
  std::string path = {};             // how the bytes went
  std::string link = {};             // what they crossed; empty: does not apply
  double link_gb_per_s = 0;          // that link's theoretical rate; 0: unknown
  std::string failure = {};          // not empty: there are no samples, and why
  bool has_wrong_data = false;       // that is why
  // NOLINTEND(readability-redundant-member-init)

  double value() const;  // median of the samples
  double least() const;
  double most() const;
  double ratio() const { return link_gb_per_s > 0 ? value() / link_gb_per_s : 0; }  // 0: unknown
};

Json to_json(const Figure& figure);

// What a survey has used of its time, which begins as this is made, and how much that is in all.
struct TimeLeft {
  std::function<double()> elapsed_s = [start_ns = now_ns()] { return static_cast<double>(now_ns() - start_ns) * 1e-9; };
  double budget_s = 0;

  bool is_over(double share = 1) const { return elapsed_s() > budget_s * share; }
};
// Called with what is measured, before it is.
using Tell = std::function<void(const std::string&)>;

// What a path is called, "host->gpu0", and a transfer over it that is timed. Stand-ins take fewer bytes: host memory pretends, and
// its caches and cores are shared by everything.
inline std::string path_name(int source, int destination) {
  const auto end = [](int device) { return device == StreamPlace::kHost ? std::string("host") : fmt::format("gpu{}", device); };
  return end(source) + "->" + end(destination);
}
inline Transfer path_transfer(int source, int destination, std::size_t bytes, bool is_stand_in) {
  constexpr std::size_t kStandInBytes = std::size_t{8} << 20;
  constexpr double kSeconds = 0.1;
  Transfer transfer;
  transfer.source.device = source;
  transfer.destination.device = destination;
  transfer.bytes = is_stand_in ? kStandInBytes : bytes;
  transfer.iterations = 0;
  transfer.seconds = kSeconds;
  return transfer;
}

// Everything that a survey measures, several times over.
inline constexpr unsigned kPasses = 3;

struct Figures {
  unsigned pass_count = 0;  // that were begun
  double seconds = 0;       // from the begin of the first to the end of the last
  std::vector<Figure> copies;
  // What one transfer reaches alone, and when others run beside it.
  std::vector<Figure> alone;       // each device to and from the host, and each ordered pair of devices
  std::vector<Figure> together;    // each transfer of each pattern: "all devices both ways: gpu0->host"
  std::vector<std::string> notes;  // warnings of the runs
  std::size_t left_out_count = 0;  // runs, for want of time
};
inline constexpr std::array kLists = {&Figures::copies, &Figures::alone, &Figures::together};

// The first pass is made whatever the time; of it and of the others what comes too late is left out, which the notes say.
Figures measure(std::span<const DeviceInfo> devices, const TimeLeft& time, const Tell& tell);

}  // namespace gigabar::tool::survey
