// SPDX-License-Identifier: Apache-2.0
// What `gigabar preflight` is made of: the paths between the devices and the host of this node, with bytes that are verified at the
// destination, and their rate; from what was found and measured to one answer: fit, unfit or unknown; and the forms of it, for
// people and for the programs that ask at the start of a job.
#pragma once

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "gigabar/device.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/status.hpp"
#include "gigabar/streams.hpp"
#include "support/names.hpp"
#include "support/report.hpp"
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

// A driver that hangs holds the thread that called it, whatever that thread's own limits are. This one calls a function in its
// stead.
class Watchdog {
 public:
  // After `seconds`, unless this object is gone by then, a thread of its own calls `expired` with what was done last.
  Watchdog(double seconds, std::function<void(const std::string& step)> expired)
      : thread_([this, seconds, expired = std::move(expired)](const std::stop_token& end) {
          std::unique_lock lock(mutex_);
          ended_.wait_for(lock, end, std::chrono::duration<double>(seconds), [] { return false; });
          if (!end.stop_requested()) expired(step_);
        }) {}

  void begin(std::string step) {
    const std::lock_guard lock(mutex_);
    step_ = std::move(step);
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::string step_ = "the start";
  std::jthread thread_;  // the last member: asked to end, and joined, before the others are gone
};

// --- Paths -----------------------------------------------------------------------------------------------------------------------

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

// --- The answer ------------------------------------------------------------------------------------------------------------------

enum class State : std::uint8_t {
  fit,
  unfit,
  unknown,  // could not be decided: not measured, not readable, or disturbed by other work
};
inline constexpr std::array<Named<State>, 3> kStates = {
    {{State::fit, "fit"}, {State::unfit, "unfit"}, {State::unknown, "unknown"}}};
inline std::string_view name_of(State state) noexcept { return name_in(kStates, state); }

// GCC warns of members without "= {}" that an initializer leaves out.  NOLINTBEGIN(readability-redundant-member-init)
struct Item {
  enum class Kind { check, path, requirement } kind = Kind::check;
  std::string name = {};     // "pci.acs", "host->gpu0", "nvlink>=18"
  std::string subject = {};  // the devices, as findings name them; empty: the machine
  State state = State::fit;
  bool is_decisive = true;  // counts for the answer
  bool is_warning = false;  // fit, but slower or less than it could be
  std::string statement = {};
  std::string remedy = {};
  int gravity = 0;                                // of what is unfit: the least is named first
  const Path* path = nullptr;                     // of a path
  std::vector<std::string> gpus = {}, nics = {};  // PCI addresses (or numbers of stand-ins), names: of what is not fit
  // NOLINTEND(readability-redundant-member-init)

  void say(State what, std::string why, std::string what_to_do) {
    state = what;
    statement = std::move(why);
    remedy = std::move(what_to_do);
  }
};

struct Evidence {
  const Examination& examination;
  std::span<const PathReport> availability;
  const Criteria& criteria;
  // As above.  NOLINTBEGIN(readability-redundant-member-init)
  std::span<const Path> paths = {};
  std::vector<std::string> ignored = {};  // checks and groups, by their names of today, whose findings do not count
  std::size_t device_count = 0;           // that were measured; 0: none were
  std::optional<Item> not_measured = {};  // in place of the paths: why none was measured, and what to do
  // NOLINTEND(readability-redundant-member-init)
  bool is_strict = false;  // what could not be read counts, although the paths were measured
};

// The check of a finding that says that no check could be run.
inline constexpr std::string_view kNothing = "preflight";

struct Judgement {
  State state = State::fit;
  std::vector<Item> items;
  std::string line;  // the answer on one line: the device that is not fit and the remedy, or what was found fit
};

Judgement judge(const Evidence& evidence);

// --- The forms of the answer ----------------------------------------------------------------------------------------------------

enum class Format : std::uint8_t {
  table,
  json,
  npd,         // Node Problem Detector's custom plugin monitor: a line, and 0, 1 or 2 for what is unknown
  nhc,         // LBNL Node Health Check: a line, and not 0 only for what is unfit
  prometheus,  // OpenMetrics, as node_exporter's textfile collector reads it
};

inline constexpr int kExitUnknown = 3;
int exit_status_of(State state, Format format, bool is_strict);

// The answer first, then what is not fit, each with its remedy, then every path.
void print_table(Report& report, const Judgement& judgement);
Json to_json(const Item& item);

struct Metrics {
  double elapsed_seconds = 0;
  double time_seconds = 0;  // since 1970
  bool is_stand_in = false;
};
std::string metrics_text(const Judgement& judgement, const Metrics& metrics);

}  // namespace gigabar::tool::preflight
