// SPDX-License-Identifier: Apache-2.0
// Bandwidth of every path by itself, and of the patterns in which paths meet.
#include <fmt/format.h>

#include <algorithm>

#include "gigabar/streams.hpp"
#include "survey/figures.hpp"

namespace gigabar::tool::survey {
namespace {

constexpr unsigned kRepeats = 2;  // of a pass
constexpr double kSeconds = 0.1;
constexpr std::size_t kBytes = std::size_t{128} << 20;
constexpr std::size_t kStandInBytes = std::size_t{8} << 20;  // host memory pretends; its caches and cores are shared by everything
constexpr double kTimeoutSeconds = 20;

Transfer transfer(int source, int destination, bool is_stand_in) {
  Transfer transfer;
  transfer.source.device = source;
  transfer.destination.device = destination;
  transfer.bytes = is_stand_in ? kStandInBytes : kBytes;
  transfer.iterations = 0;
  transfer.seconds = kSeconds;
  return transfer;
}

std::string ends_text(const Transfer& transfer) {
  const auto place = [](const StreamPlace& end) { return end.is_host() ? std::string("host") : fmt::format("gpu{}", end.device); };
  return place(transfer.source) + "->" + place(transfer.destination);
}

struct Pattern {
  std::string name;
  std::vector<Transfer> transfers;
};

Figure figure_of(const TransferReport& report, const std::string& name) {
  Figure figure;
  figure.key = fmt::format("{} {}", ends_text(report.transfer), name);
  figure.unit = "GB/s";
  figure.path = report.path;
  figure.link = report.link.name;
  // Beside others the common time counts; alone the two are the same.
  const StreamFigure& rate = report.window_gb_per_s.samples.empty() ? report.life_gb_per_s : report.window_gb_per_s;
  figure.samples = rate.samples;
  figure.link_gb_per_s = report.link.gb_per_s;
  if (report.error) {
    figure.failure = report.error->message();
    figure.has_wrong_data = report.error->status == Status::verification_failed;
  } else if (figure.samples.empty()) {
    figure.failure = "no copy was finished";
  }
  return figure;
}

std::vector<Figure> failed(const Pattern& pattern, const std::string& why) {
  std::vector<Figure> figures;
  for (const Transfer& transfer : pattern.transfers) {
    figures.push_back({.key = fmt::format("{} {}", ends_text(transfer), pattern.name), .unit = "GB/s", .failure = why});
  }
  return figures;
}

std::vector<Figure> run(const Pattern& pattern, std::vector<std::string>& notes) {
  StreamPlan plan;
  plan.transfers = pattern.transfers;
  plan.repeats = kRepeats;
  plan.timeout_seconds = kTimeoutSeconds;
  const Result<StreamReport> report = run_streams(plan);
  if (!report) return failed(pattern, report.error().message());
  std::vector<Figure> figures;
  for (const TransferReport& one : report->transfers) figures.push_back(figure_of(one, pattern.name));
  // Fewer devices' own memory than the sum of parts is what a pattern is about; everything else is worth a line.
  for (const std::string& warning : report->warnings) notes.push_back(fmt::format("{}: {}", pattern.name, warning));
  return figures;
}

std::vector<Pattern> single_paths(std::span<const DeviceInfo> devices) {
  std::vector<Pattern> patterns;
  const auto add = [&](int source, int destination, bool is_stand_in) {
    patterns.push_back({"alone", {transfer(source, destination, is_stand_in)}});
  };
  for (const DeviceInfo& device : devices) {
    add(StreamPlace::kHost, device.index, device.is_stand_in);
    add(device.index, StreamPlace::kHost, device.is_stand_in);
  }
  for (const DeviceInfo& from : devices) {
    for (const DeviceInfo& to : devices) {
      if (from.index != to.index) add(from.index, to.index, from.is_stand_in);
    }
  }
  return patterns;
}

// The patterns in which paths share something: a link's two directions, the host's memory, a switch, the processors' own link.
std::vector<Pattern> meeting_paths(std::span<const DeviceInfo> devices) {
  Pattern down{"all devices from the host", {}};
  Pattern up{"all devices to the host", {}};
  Pattern ring{"all devices to the next one", {}};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const DeviceInfo& device = devices[i];
    down.transfers.push_back(transfer(StreamPlace::kHost, device.index, device.is_stand_in));
    up.transfers.push_back(transfer(device.index, StreamPlace::kHost, device.is_stand_in));
    if (devices.size() > 1) {
      ring.transfers.push_back(transfer(device.index, devices[(i + 1) % devices.size()].index, device.is_stand_in));
    }
  }
  Pattern both{"all devices both ways", down.transfers};
  both.transfers.insert(both.transfers.end(), up.transfers.begin(), up.transfers.end());
  Pattern everything{"everything at once", both.transfers};
  everything.transfers.insert(everything.transfers.end(), ring.transfers.begin(), ring.transfers.end());
  if (devices.size() == 1) return {both};
  return {down, up, both, ring, everything};
}

const Figure* find_alone(const std::vector<Figure>& alone, const std::string& key) {
  const std::string ends = key.substr(0, key.find(' '));
  for (const Figure& figure : alone) {
    if (figure.failure.empty() && figure.key.substr(0, figure.key.find(' ')) == ends) return &figure;
  }
  return nullptr;
}

}  // namespace

std::optional<Worst> find_worst(const PathFigures& figures) {
  std::optional<Worst> worst;
  for (std::size_t i = 0; i < figures.together.size(); ++i) {
    const Figure& beside = figures.together[i];
    const Figure* const alone = find_alone(figures.alone, beside.key);
    if (!beside.failure.empty() || alone == nullptr || alone->value() <= 0) continue;
    const double share = beside.value() / alone->value();
    if (!worst || share < worst->share) worst = Worst{i, share};
  }
  return worst;
}

PathFigures measure_paths(std::span<const DeviceInfo> devices, const TimeLeft& time, const Tell& tell) {
  PathFigures figures;
  const auto measure = [&](const Pattern& pattern, std::vector<Figure>& into) {
    if (time.is_over()) {
      ++figures.left_out_count;
      return;
    }
    tell(pattern.transfers.size() == 1 ? ends_text(pattern.transfers.front()) + " " + pattern.name : pattern.name);
    std::vector<Figure> more = run(pattern, figures.notes);
    into.insert(into.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  // The host's paths and the patterns first: on many devices the pairs take the most time and say the least new.
  const std::vector<Pattern> single = single_paths(devices);
  const auto first_pair = std::min(single.size(), 2 * devices.size());
  for (std::size_t i = 0; i < first_pair; ++i) measure(single[i], figures.alone);
  for (std::size_t i = first_pair; i < single.size() && i < first_pair + 2; ++i) measure(single[i], figures.alone);
  for (const Pattern& pattern : meeting_paths(devices)) measure(pattern, figures.together);
  for (std::size_t i = first_pair + 2; i < single.size(); ++i) measure(single[i], figures.alone);
  return figures;
}

}  // namespace gigabar::tool::survey
