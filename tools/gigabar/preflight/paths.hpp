// SPDX-License-Identifier: Apache-2.0
// The paths between the devices and the host of this node: bytes that are verified at the destination, and their rate.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "gigabar/device.hpp"
#include "gigabar/status.hpp"
#include "gigabar/streams.hpp"
#include "survey/document.hpp"

namespace gigabar::tool::preflight {

// What a command has used of its time, which begins as this is made, and how much that is in all.
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

// With what was reported of its transfer, where it was run.
struct Path : TransferReport {
  int source = StreamPlace::kHost, destination = StreamPlace::kHost;
  std::string name;       // "host->gpu0"
  std::string_view kind;  // "host->gpu"
  std::string subject;    // "GPU 0000:3b:00.0 and GPU 0000:5e:00.0"

  bool was_run = false;
  std::string load;  // a clause: what else uses the path now, looked for where the rate is poor; empty: nothing was seen

  double rate() const { return life_gb_per_s.median; }                             // in GB/s; 0: there is none
  double share() const { return link.gb_per_s > 0 ? rate() / link.gb_per_s : 0; }  // of the link's rate; 0: unknown
};

// --- What a path is held against ------------------------------------------------------------------------------------------------

// What a job needs of a node, as `--require` has it:
//
//   LIST   TERM, separated by commas
//   TERM   NAME              a check of the doctor or a group of them, which must pass; or a path that must be available
//          NAME>=NUMBER      gpus, nics, nvlink (active links of each GPU)
//          KIND>=SHARE       host->gpu, gpu->host, gpu->gpu: of the link's rate, above 0 and at most 1
//          KIND>=NUMBERGB/s  the same as a rate
struct Requirement {
  enum class Kind { check, available, count, rate } kind = Kind::check;
  std::string text;          // as typed, without spaces around it
  std::string name;          // "pci.acs", "gdr", "nvlink", "host->gpu"
  double least = 0;          // of a count or a rate
  bool is_gb_per_s = false;  // `least` of a rate; otherwise it is a share of the link's rate
};

// Whether a name of several parts ("pci.acs") is that one, or of the group ("pci").
inline bool is_of(std::string_view name, std::string_view wanted) {
  return name == wanted || (name.starts_with(wanted) && name.substr(wanted.size()).starts_with('.'));
}

// The names of availability(), which a requirement may also name by their first part.
std::span<const std::string_view> available_names();

// Errors: invalid_argument; the object is "--require:COLUMN", the cause quotes the term, the remedy says what can stand there.
Result<std::vector<Requirement>> parse_requirements(std::string_view text);

// What a rate is held against.
struct Criteria {
  std::vector<Requirement> requirements;
  std::optional<survey::Document> baseline;
};

// A path that gets less of its link has a fault: a healthy one gets 0.82 (NVLink) to 0.88 (PCIe).
inline constexpr double kPoorShare = 0.7;

// The rate that a path must have, and why. 0: nothing is known to hold it against, and `because` says why not.
struct Bound {
  double gb_per_s = 0;
  std::string because;       // "55.2 GB/s in the baseline, whose noise is 10 %"
  bool is_required = false;  // by the command line
};
// The strictest of what the command line requires, else the baseline's, else kPoorShare of the link's rate.
Bound bound_of(const Path& path, const Criteria& criteria);
bool is_slow(const Path& path, const Criteria& criteria);

// --- Measuring ------------------------------------------------------------------------------------------------------------------

struct Measurement {
  std::span<const DeviceInfo> devices;
  const Criteria& criteria;
  TimeLeft time;
  Tell tell;
  std::function<Result<StreamReport>(const StreamPlan&)> run;
  std::function<std::string(const Path&)> load_of;  // as Path::load, at this moment
};

// Every path once, those of different devices side by side: the host to all devices, all devices to the host, then the pairs of
// devices in rounds. A path that is slow or fails beside others is measured alone, since paths may share a link. What does not
// begin before the time is over was not run.
std::vector<Path> measure_paths(const Measurement& measurement);

// --- What other work uses a path at this moment, so that a link that is shared is told from one that is broken -----------------

// A clause, "23.1 GB/s cross the PCIe link of GPU 0000:3b:00.0 (process 4711 'train')"; empty: no such work was seen. This process
// must be idle. Takes about 0.1 s. For stand-ins, whose bytes the CPUs move: what else the CPUs do.
std::string load_of(const Path& path, std::span<const DeviceInfo> devices);

// The share of their time that the CPUs work, between two texts of /proc/stat; 0 when they say nothing.
double busy_share(std::string_view before, std::string_view after);

}  // namespace gigabar::tool::preflight
