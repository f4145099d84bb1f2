// SPDX-License-Identifier: Apache-2.0
#include "preflight/preflight.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "base/old_check_ids.hpp"
#include "doctor/check.hpp"
#include "doctor/words.hpp"
#include "driver/nvml/nvml.hpp"
#include "gigabar/doctor.hpp"
#include "support/options.hpp"
#include "support/pair_rounds.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::preflight {
namespace {

constexpr unsigned kRepeats = 2;
constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr double kTimeoutSeconds = 5;

using Round = std::vector<Path>;  // that run side by side

std::string subject_of(const DeviceInfo& device) {
  return device.pci ? "GPU " + device.pci->to_string() : fmt::format("device {}", device.index);
}

Path path_of(const DeviceInfo* source, const DeviceInfo* destination) {
  Path path;
  if (source != nullptr) path.source = source->index;
  if (destination != nullptr) path.destination = destination->index;
  path.name = path_name(path.source, path.destination);
  path.kind = source == nullptr ? "host->gpu" : destination == nullptr ? "gpu->host" : "gpu->gpu";
  path.subject = source == nullptr ? subject_of(*destination) : subject_of(*source);
  if (source != nullptr && destination != nullptr) path.subject += " and " + subject_of(*destination);
  return path;
}

std::vector<Round> rounds_of(std::span<const DeviceInfo> devices) {
  std::vector<Round> rounds(2);
  for (const DeviceInfo& device : devices) {
    rounds[0].push_back(path_of(nullptr, &device));
    rounds[1].push_back(path_of(&device, nullptr));
  }
  const int count = static_cast<int>(devices.size());
  for (int number = 0; number < round_count_of(count); ++number) {
    Round there, back;
    for (const auto& [one, other] : round_of_pairs(count, number)) {
      const DeviceInfo* const first = &devices[static_cast<std::size_t>(one)];
      const DeviceInfo* const second = &devices[static_cast<std::size_t>(other)];
      there.push_back(path_of(first, second));
      back.push_back(path_of(second, first));
    }
    rounds.push_back(std::move(there));
    rounds.push_back(std::move(back));
  }
  return rounds;
}

// Where nothing could be run, a path that is alone has the error.
void run_together(const Measurement& measurement, std::span<Path> paths) {
  StreamPlan plan;
  plan.repeats = kRepeats;
  plan.timeout_seconds = kTimeoutSeconds;
  for (const Path& path : paths) {
    plan.transfers.push_back(path_transfer(path.source, path.destination, kBytes, measurement.devices.front().is_stand_in));
  }
  const Result<StreamReport> report = measurement.run(plan);
  if (!report && paths.size() > 1) return;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    paths[i].was_run = true;
    if (report) {
      static_cast<TransferReport&>(paths[i]) = report->transfers[i];
    } else {
      paths[i].error = report.error().record();
    }
  }
}

bool is_corrupt(const Path& path) { return path.error && path.error->status == Status::verification_failed; }

// Wrong bytes stay a fault however the path does alone.
bool needs_another_look(const Path& path, const Criteria& criteria) {
  return !path.was_run || (!is_corrupt(path) && (path.error || is_slow(path, criteria)));
}

void measure_alone(const Measurement& measurement, Path& path) {
  measurement.tell(path.name + " alone");
  const std::string before = measurement.load_of(path);
  run_together(measurement, {&path, 1});
  if (!needs_another_look(path, measurement.criteria)) return;
  path.load = measurement.load_of(path);
  if (path.load.empty()) path.load = before;
}

void measure_round(const Measurement& measurement, Round& round) {
  const std::string& first = round.front().name;
  measurement.tell(round.size() == 1 ? first : fmt::format("{} and {} more", first, round.size() - 1));
  run_together(measurement, round);
  for (Path& path : round) {
    if (needs_another_look(path, measurement.criteria) && !measurement.time.is_over()) measure_alone(measurement, path);
  }
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

bool is_slow(const Path& path, const Criteria& criteria) { return path.rate() < bound_of(path, criteria).gb_per_s; }

std::vector<Path> measure_paths(const Measurement& measurement) {
  std::vector<Path> paths;
  for (Round& round : rounds_of(measurement.devices)) {
    if (!measurement.time.is_over()) measure_round(measurement, round);
    std::ranges::move(round, std::back_inserter(paths));
  }
  return paths;
}

// --- What other work uses a path -----------------------------------------------------------------------------------------------

namespace {

constexpr auto kSampleTime = std::chrono::milliseconds(50);
constexpr double kLoadShare = 0.05;  // of the path's rate: less can be what the driver itself does
constexpr double kMinLoad = 0.5;     // in GB/s, where that rate is not known
constexpr double kBusyShare = 0.5;   // of the CPUs

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// " (process 4711 'train')"; empty when NVML names none.
std::string processes_text(const std::string& address) {
  std::string text;
  for (const unsigned pid : nvml::compute_processes(address)) {
    if (pid == static_cast<unsigned>(getpid())) continue;
    const std::string name = plain(first_line(fmt::format("/proc/{}/comm", pid)), 40);
    text += fmt::format("{}process {}{}", text.empty() ? " (" : ", ", pid, name.empty() ? "" : " '" + name + "'");
  }
  return text.empty() ? text : text + ")";
}

// 0: it is not told.
double nvlink_gb_per_s(const std::string& address) {
  const auto begin = std::chrono::steady_clock::now();
  const auto before = nvml::nvlink_carried_bytes(address);
  if (!before) return 0;
  std::this_thread::sleep_for(kSampleTime);
  const auto after = nvml::nvlink_carried_bytes(address);
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
  return after && *after > *before ? static_cast<double>(*after - *before) / passed.count() : 0;
}

std::string link_load(const Path& path, const std::string& address) {
  const bool is_nvlink = path.link.name.starts_with("NVLink");
  const double gb_per_s = is_nvlink ? nvlink_gb_per_s(address) : nvml::pcie_traffic_gb_per_s(address).value_or(0);
  if (gb_per_s < (path.link.gb_per_s > 0 ? kLoadShare * path.link.gb_per_s : kMinLoad)) return {};
  return fmt::format("{:.1f} GB/s cross the {} of GPU {}{}", gb_per_s, is_nvlink ? "NVLinks" : "PCIe link", address,
                     processes_text(address));
}

std::string cpu_load() {
  const std::string before = first_line("/proc/stat");
  std::this_thread::sleep_for(kSampleTime * 2);
  const double share = busy_share(before, first_line("/proc/stat"));
  if (share < kBusyShare) return {};
  return fmt::format("other processes keep the CPUs, which move a stand-in's bytes, busy for {:.0f} % of their time", share * 100);
}

}  // namespace

double busy_share(std::string_view before, std::string_view after) {
  // cpu user nice system idle iowait irq softirq steal ...: ticks since the start of the machine.
  const auto read = [](std::string_view text) {
    std::istringstream words{std::string(text)};
    std::string name;
    words >> name;
    double all = 0, idle = 0, ticks = 0;
    for (int i = 0; i < 8 && words >> ticks; ++i) {
      all += ticks;
      if (i == 3 || i == 4) idle += ticks;
    }
    return std::pair{all, idle};
  };
  const auto [all_before, idle_before] = read(before);
  const auto [all_after, idle_after] = read(after);
  const double passed = all_after - all_before;
  return passed > 0 ? std::clamp(1 - (idle_after - idle_before) / passed, 0.0, 1.0) : 0;
}

std::string load_of(const Path& path, std::span<const DeviceInfo> devices) {
  for (const DeviceInfo& device : devices) {
    if (device.index != path.source && device.index != path.destination) continue;
    if (!device.pci) return cpu_load();
    std::string load = link_load(path, device.pci->to_string());
    if (!load.empty()) return load;
  }
  return {};
}

// --- What `--require` asks for --------------------------------------------------------------------------------------------------

namespace {

using gigabar::doctor::trimmed;
using std::string_view_literals::operator""sv;

constexpr std::array kAvailable = {"mapping.dmabuf"sv, "mapping.gdrdrv"sv, "mapping.rm"sv, "gdr.dmabuf"sv, "gdr.peermem"sv, "p2p"sv,
                                   "nvlink"sv,         "rdma"sv,           "gin"sv};
constexpr std::array kCounts = {"gpus"sv, "nics"sv, "nvlink"sv};
constexpr std::array kRates = {"host->gpu"sv, "gpu->host"sv, "gpu->gpu"sv};
constexpr double kMaxNumber = 1e6;
constexpr std::string_view kUnit = "GB/s";

bool has(std::span<const std::string_view> list, std::string_view name) { return std::ranges::find(list, name) != list.end(); }

bool is_available_name(std::string_view name) {
  return std::any_of(kAvailable.begin(), kAvailable.end(), [name](std::string_view each) { return is_of(each, name); });
}

std::vector<std::string> all_names() {
  std::vector<std::string> names(kRates.begin(), kRates.end());
  names.insert(names.end(), kCounts.begin(), kCounts.end());
  names.insert(names.end(), kAvailable.begin(), kAvailable.end());
  for (const CheckInfo& check : checks()) names.emplace_back(check.id);
  return names;
}

// What is wrong with a term: what was seen, and what to write. Thrown.
struct Fault {
  std::string cause, remedy;
};

void read_least(std::string_view typed, Requirement& requirement) {
  std::string_view number = typed;
  if (requirement.kind == Requirement::Kind::rate && number.ends_with(kUnit)) {
    requirement.is_gb_per_s = true;
    number = trimmed(number.substr(0, number.size() - kUnit.size()));
  }
  requirement.least = read_number(number).value_or(0);
  if (!(requirement.least > 0 && requirement.least <= kMaxNumber)) {
    throw Fault{fmt::format("'{}' is no number above 0 and at most {:.0f}", plain(typed, 40), kMaxNumber),
                "write, for example, nvlink>=18 or host->gpu>=0.8"};
  }
  if (requirement.kind == Requirement::Kind::rate && !requirement.is_gb_per_s && requirement.least > 1) {
    throw Fault{fmt::format("'{}' is more than the whole rate of the link", plain(typed, 40)),
                fmt::format("a share is at most 1; write {}{} for a rate", plain(number, 40), kUnit)};
  }
  if (requirement.kind == Requirement::Kind::count && requirement.least != std::floor(requirement.least))
    throw Fault{fmt::format("'{}' is no whole number", plain(typed, 40)), "write, for example, nvlink>=18"};
}

void read_word(std::string_view name, Requirement& requirement) {
  if (has(kRates, name) || (has(kCounts, name) && !is_available_name(name))) {
    throw Fault{fmt::format("'{}' needs a number", name),
                fmt::format("write, for example, {}>={}", name, has(kRates, name) ? "0.8" : "8")};
  }
  requirement.name = current_check_id(name);
  if (is_available_name(name)) {
    requirement.kind = Requirement::Kind::available;
  } else if (!gigabar::doctor::require_checks({requirement.name})) {
    const std::string near = nearest(name, all_names());
    throw Fault{fmt::format("nothing is called '{}'", plain(name, 40)),
                near.empty() ? "'gigabar doctor --list' names the checks" : fmt::format("did you mean '{}'?", near)};
  }
}

Requirement read_term(std::string_view term) {
  // The arrow of a path ends with the sign that begins the bound.
  const auto bound = term.find(">=");
  const std::string_view name = trimmed(term.substr(0, bound));
  Requirement requirement{.text = std::string(term), .name = std::string(name)};
  if (name.empty()) throw Fault{"a term is empty", "separate terms by one comma"};
  if (bound == std::string_view::npos) {
    read_word(name, requirement);
  } else if (has(kRates, name) || has(kCounts, name)) {
    requirement.kind = has(kRates, name) ? Requirement::Kind::rate : Requirement::Kind::count;
    read_least(trimmed(term.substr(bound + 2)), requirement);
  } else {
    throw Fault{fmt::format("'{}' has no number", plain(name, 40)),
                fmt::format("numbers have {}, {}", fmt::join(kCounts, ", "), fmt::join(kRates, ", "))};
  }
  return requirement;
}

}  // namespace

std::span<const std::string_view> available_names() { return kAvailable; }

Result<std::vector<Requirement>> parse_requirements(std::string_view text) {
  std::vector<Requirement> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    try {
      all.push_back(read_term(trimmed(text.substr(begin, end - begin))));
    } catch (const Fault& fault) {
      const std::string place = fmt::format("--require:{}", begin + 1);
      return Error(ErrorRecord{Status::invalid_argument, "preflight", place, {}, fault.cause, fault.remedy, {}});
    }
    begin = end + 1;
  }
  return all;
}

}  // namespace gigabar::tool::preflight
