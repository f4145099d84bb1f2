// SPDX-License-Identifier: Apache-2.0
#include "preflight/paths.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/pair_rounds.hpp"

namespace gigabar::tool::preflight {
namespace {

constexpr unsigned kRepeats = 2;
constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr double kTimeoutSeconds = 5;

using Round = std::vector<std::size_t>;  // indexes of paths

std::string subject_of(const DeviceInfo& device) {
  return device.pci ? "GPU " + device.pci->to_string() : fmt::format("device {}", device.index);
}

Path path_of(const DeviceInfo* source, const DeviceInfo* destination) {
  Path path;
  if (source != nullptr) path.source = source->index;
  if (destination != nullptr) path.destination = destination->index;
  path.name = survey::path_name(path.source, path.destination);
  path.kind = source == nullptr ? "host->gpu" : destination == nullptr ? "gpu->host" : "gpu->gpu";
  path.subject = source == nullptr ? subject_of(*destination) : subject_of(*source);
  if (source != nullptr && destination != nullptr) path.subject += " and " + subject_of(*destination);
  path.rate.unit = "GB/s";
  return path;
}

// The paths, and which of them run side by side.
std::vector<Round> plan(std::span<const DeviceInfo> devices, std::vector<Path>& paths) {
  std::vector<Round> rounds(2);
  const auto add = [&paths](Round& round, const DeviceInfo* source, const DeviceInfo* destination) {
    round.push_back(paths.size());
    paths.push_back(path_of(source, destination));
  };
  for (const DeviceInfo& device : devices) add(rounds[0], nullptr, &device);
  for (const DeviceInfo& device : devices) add(rounds[1], &device, nullptr);
  for (const Pairing& pairs : rounds_of_pairs(static_cast<int>(devices.size()))) {
    for (const bool is_forward : {true, false}) {
      Round& round = rounds.emplace_back();
      for (const auto& [one, other] : pairs) {
        const DeviceInfo& first = devices[static_cast<std::size_t>(is_forward ? one : other)];
        add(round, &first, &devices[static_cast<std::size_t>(is_forward ? other : one)]);
      }
    }
  }
  return rounds;
}

StreamPlan plan_of(const std::vector<Path>& paths, const Round& round, bool is_stand_in) {
  StreamPlan plan;
  plan.repeats = kRepeats;
  plan.timeout_seconds = kTimeoutSeconds;
  for (const std::size_t index : round) {
    const std::size_t bytes = is_stand_in ? survey::kStandInBytes : kBytes;
    plan.transfers.push_back(survey::path_transfer(paths[index].source, paths[index].destination, bytes));
  }
  return plan;
}

void take(const TransferReport& report, Path& path) {
  path.was_run = true;
  path.is_verified = report.is_verified;
  path.error = report.error;
  path.link = report.link;
  path.how = report.path;
  const StreamFigure& rate = report.life_gb_per_s;
  path.rate.value = rate.median;
  path.rate.least = rate.min;
  path.rate.most = rate.max;
}

// Whether the round ran; where it did not, a path that is alone has the error.
bool run_round(const Measurement& measurement, std::vector<Path>& paths, const Round& round) {
  const Result<StreamReport> report = measurement.run(plan_of(paths, round, measurement.devices.front().is_stand_in));
  if (report) {
    for (std::size_t i = 0; i < round.size() && i < report->transfers.size(); ++i) take(report->transfers[i], paths[round[i]]);
  } else if (round.size() == 1) {
    Path& path = paths[round.front()];
    path.was_run = true;
    path.error = report.error().record();
  }
  return report.is_ok();
}

bool is_corrupt(const Path& path) { return path.error && path.error->status == Status::verification_failed; }

// Wrong bytes stay a fault however the path does alone.
bool needs_another_look(const Path& path, const Criteria& criteria) {
  return !path.was_run || (!is_corrupt(path) && (path.error || is_slow(path, criteria)));
}

void measure_alone(const Measurement& measurement, std::vector<Path>& paths, std::size_t index) {
  Path& path = paths[index];
  measurement.tell(path.name + " alone");
  const std::string before = measurement.load_of(path);
  run_round(measurement, paths, {index});
  if (!needs_another_look(path, measurement.criteria)) return;
  path.load = measurement.load_of(path);
  if (path.load.empty()) path.load = before;
}

std::string round_text(const std::vector<Path>& paths, const Round& round) {
  return round.size() == 1 ? paths[round.front()].name : fmt::format("{} and {} more", paths[round.front()].name, round.size() - 1);
}

Bound required_bound(const Path& path, const Criteria& criteria) {
  Bound bound;
  for (const Requirement& requirement : criteria.requirements) {
    if (requirement.kind != Requirement::Kind::rate || requirement.name != path.kind) continue;
    bound.is_required = true;
    const double least = requirement.is_gb_per_s ? requirement.least : requirement.least * path.link.gb_per_s;
    // A share of an unknown rate: nothing can be said, whatever else is required.
    if (least <= 0) return {0, "the rate of its link is not known: " + path.link.reason, true};
    if (least > bound.gb_per_s) bound = {least, fmt::format("'{}' is required", requirement.text), true};
  }
  return bound;
}

std::optional<Bound> baseline_bound(const Path& path, const Criteria& criteria) {
  if (!criteria.baseline) return {};
  const auto found = criteria.baseline->figures.find(path.name + " alone");
  if (found == criteria.baseline->figures.end() || found->second.unit != "GB/s" || !found->second.has_noise()) return {};
  const survey::Measured& before = found->second;
  // The survey's alone: of the rates that were measured now the scatter is what is looked for.
  const double noise = std::max(before.range() / before.value, survey::kNoiseFloor);
  return Bound{before.value * std::max(1 - noise, 0.0),
               fmt::format("the baseline has {:.1f} GB/s, with a noise of {:.0f} %", before.value, noise * 100), false};
}

}  // namespace

Bound bound_of(const Path& path, const Criteria& criteria) {
  if (Bound bound = required_bound(path, criteria); bound.is_required) return bound;
  if (std::optional<Bound> bound = baseline_bound(path, criteria)) return *std::move(bound);
  if (path.link.gb_per_s <= 0) return {0, "the rate of its link is not known: " + path.link.reason, false};
  return {kPoorShare * path.link.gb_per_s,
          fmt::format("{:.0f} % of {} ({:.1f} GB/s) are the least of a healthy path", kPoorShare * 100, path.link.name,
                      path.link.gb_per_s),
          false};
}

bool is_slow(const Path& path, const Criteria& criteria) { return path.rate.value < bound_of(path, criteria).gb_per_s; }

std::vector<Path> measure_paths(const Measurement& measurement) {
  std::vector<Path> paths;
  for (const Round& round : plan(measurement.devices, paths)) {
    if (round.empty()) continue;
    if (measurement.time.is_over()) break;
    measurement.tell(round_text(paths, round));
    run_round(measurement, paths, round);
    for (const std::size_t index : round) {
      if (needs_another_look(paths[index], measurement.criteria) && !measurement.time.is_over())
        measure_alone(measurement, paths, index);
    }
  }
  return paths;
}

}  // namespace gigabar::tool::preflight
