// The figures of a survey: each with its noise, under a key that is the same on every machine and day, so that two surveys can be
// compared.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gigabar/device.hpp"
#include "support/report.hpp"

namespace gigabar::tool::survey {

struct Figure {
  std::string key;              // "gpu0 copy_to 8 B", "gpu0->host alone"
  std::string unit;             // "us" (less is better) or "GB/s" (more is better)
  std::vector<double> samples;  // medians of the rounds, or rates of the repeats
  std::string path;             // how the bytes went
  std::string link;             // what they crossed; empty: does not apply
  double ratio = 0;             // over the link's theoretical rate; 0: unknown
  std::string failure;          // not empty: there are no samples, and why

  double value() const;  // median of the samples
  double least() const;
  double most() const;
};

Json to_json(const Figure& figure);

// Ends the survey's long parts early: true when the time that may be used is over.
using IsOver = std::function<bool()>;

// Time of single copies through the mapping of each device, and of cudaMemcpy where there is one: 8 bytes and 64 KiB, both ways.
std::vector<Figure> measure_copies(std::span<const DeviceInfo> devices, const IsOver& is_over);

// What one transfer reaches alone, and when others run beside it.
struct PathFigures {
  std::vector<Figure> alone;     // each device to and from the host, and each ordered pair of devices
  std::vector<Figure> together;  // each transfer of each pattern: "all devices both ways: gpu0->host"
  // The transfer that loses most of its own rate: index into `together`, the share it keeps; -1: nothing to compare.
  int worst = -1;
  double worst_share = 1;
  std::vector<std::string> notes;  // pairs left out for want of time, warnings of the runs
};

// `tell` is called with the name of each run before it begins.
PathFigures measure_paths(std::span<const DeviceInfo> devices, const IsOver& is_over,
                          const std::function<void(const std::string&)>& tell);

}  // namespace gigabar::tool::survey
