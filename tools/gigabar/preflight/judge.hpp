// SPDX-License-Identifier: Apache-2.0
// From what was found and measured to one answer: fit, unfit or unknown; and the forms of it, for people and for the programs that
// ask at the start of a job.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gigabar/doctor.hpp"
#include "preflight/paths.hpp"
#include "support/names.hpp"
#include "support/report.hpp"

namespace gigabar::tool::preflight {

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
