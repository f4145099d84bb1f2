// SPDX-License-Identifier: Apache-2.0
// The figures of a survey: each with its noise, under a key that is the same on every machine and day, so that two surveys can be
// compared. Everything is measured in several passes over the whole survey: what a machine does beside it changes within seconds,
// and samples that were taken within one of them all see the same of it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gigabar/device.hpp"
#include "support/report.hpp"

namespace gigabar::tool::survey {

struct Figure {
  std::string key;              // "gpu0 copy_to 8 B", "gpu0->host alone"
  std::string unit;             // "us" (less is better) or "GB/s" (more is better)
  std::vector<double> samples;  // of all passes: medians of the rounds, or rates of the repeats
  unsigned pass_count = 1;      // that the samples are of
  std::string path;             // how the bytes went
  std::string link;             // what they crossed; empty: does not apply
  double link_gb_per_s = 0;     // that link's theoretical rate; 0: unknown
  std::string failure;          // not empty: there are no samples, and why

  double value() const;  // median of the samples
  double least() const;
  double most() const;
  double ratio() const { return link_gb_per_s > 0 ? value() / link_gb_per_s : 0; }  // 0: unknown
};

// Adds the samples of one more pass to those of the passes before. Figures that are new are added as well; one that failed before,
// or fails now, has failed.
void add_pass(std::vector<Figure>& figures, std::vector<Figure> pass);

Json to_json(const Figure& figure);

// Ends the survey's long parts early: true when the time that may be used is over.
using IsOver = std::function<bool()>;

// One pass over single copies through the mapping of each device, and over cudaMemcpy where there is one: 8 bytes and 64 KiB, both
// ways. Devices whose turn comes when the time is over are left out.
std::vector<Figure> measure_copies(std::span<const DeviceInfo> devices, const IsOver& is_over);

// What one transfer reaches alone, and when others run beside it.
struct PathFigures {
  std::vector<Figure> alone;       // each device to and from the host, and each ordered pair of devices
  std::vector<Figure> together;    // each transfer of each pattern: "all devices both ways: gpu0->host"
  std::vector<std::string> notes;  // warnings of the runs
  std::size_t left_out_count = 0;  // runs, for want of time
};

// The transfer that loses most of its own rate: its place in `together` and the share it keeps.
struct Worst {
  std::size_t index = 0;
  double share = 1;
};
// Nothing when there is nothing to compare.
std::optional<Worst> find_worst(const PathFigures& figures);

// One pass. `tell` is called with the name of each run before it begins.
PathFigures measure_paths(std::span<const DeviceInfo> devices, const IsOver& is_over,
                          const std::function<void(const std::string&)>& tell);

}  // namespace gigabar::tool::survey
