// SPDX-License-Identifier: Apache-2.0
// gigabar compare: what changed between two surveys, of two machines or of two days. Figures of one pass are not judged; one that
// failed in the second survey only is worse.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "commands.hpp"
#include "support/failure.hpp"
#include "support/names.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "survey/document.hpp"

namespace gigabar::tool {
namespace {

using survey::Measured;
using Surveys = std::array<survey::Document, 2>;  // the first, and the second

struct Options {
  std::string first, second;
  std::string json_path;
  double floor = survey::kNoiseFloor;
};

enum class Change { none, better, worse };
constexpr std::array<Named<Change>, 3> kChanges = {{{Change::none, "same"}, {Change::better, "better"}, {Change::worse, "WORSE"}}};

// Why the two have no values of a figure that could be compared, and whether that is a change.
struct Unmatched {
  const char* why;
  Change change = Change::none;
};

struct Counts {
  std::map<Change, std::size_t> of;
  std::size_t unjudged = 0;
  std::size_t failed = 0;  // in the second survey
};

template <class Value>
using Pair = std::array<const Value*, 2>;  // in the first survey, and in the second; null: it is not there

// What both surveys have, under its key.
template <class Value>
std::map<std::string, Pair<Value>> side_by_side(const Surveys& surveys, std::map<std::string, Value> survey::Document::* part) {
  std::map<std::string, Pair<Value>> both;
  for (std::size_t i = 0; i < surveys.size(); ++i) {
    for (const auto& [key, value] : surveys[i].*part) both[key][i] = &value;
  }
  return both;
}

bool has_failed(const Measured* figure) { return figure != nullptr && !figure->failure.empty(); }

std::string text_of(const Measured* figure) {
  if (figure == nullptr) return "-";
  return has_failed(figure) ? "failed: " + figure->failure : fmt::format("{:.3f} {}", figure->value, figure->unit);
}

// Nothing: both have a value, of one unit.
std::optional<Unmatched> why_unmatched(const Measured* before, const Measured* after) {
  if (has_failed(after)) return has_failed(before) ? Unmatched{"fails in both"} : Unmatched{"fails", Change::worse};
  if (after == nullptr) return Unmatched{"only first"};
  if (has_failed(before)) return Unmatched{"works again", Change::better};
  if (before == nullptr) return Unmatched{"only second"};
  if (before->unit != after->unit) return Unmatched{"units differ"};
  return {};
}

// A failure that is new is worse also where the first survey has nothing under that key: a device that cannot be mapped has one
// failure in place of all its copies.
void tell_unmatched(Report& report, Counts& counts, const std::string& key, const Unmatched& unmatched,
                    const Pair<Measured>& both) {
  if (has_failed(both[1])) ++counts.failed;
  if (unmatched.change != Change::none) ++counts.of[unmatched.change];
  const std::string before = text_of(both[0]), after = text_of(both[1]);
  const std::string mark = unmatched.change == Change::none ? "" : fmt::format("  {}", name_in(kChanges, unmatched.change));
  report.print("  {:<44} {}: {} -> {}{}\n", key, unmatched.why, before, after, mark);
  report.document()["unmatched"].push_back({{"key", key}, {"why", unmatched.why}, {"first", before}, {"second", after}});
}

// A figure has changed when the medians differ by more than the noise: both ranges of its samples together, and never less than
// `floor`.
void compare_figure(Report& report, Counts& counts, const std::string& key, const Measured& before, const Measured& after,
                    double floor) {
  const double relative = after.value / before.value - 1;
  const double noise = std::max((before.range() + after.range()) / before.value, floor);
  const bool is_less_better = before.unit == "us";
  const Change change = std::abs(relative) <= noise        ? Change::none
                        : (relative < 0) == is_less_better ? Change::better
                                                           : Change::worse;
  ++counts.of[change];
  report.add_result({{"key", key},
                     {"unit", before.unit},
                     {"first", before.value},
                     {"second", after.value},
                     {"relative", relative},
                     {"noise", noise},
                     {"change", name_in(kChanges, change)}});
  if (change == Change::none) return;
  report.print("  {:<44} {:>10.3f} -> {:>10.3f} {}  {:+.1f} % (noise {:.1f} %)  {}\n", key, before.value, after.value, before.unit,
               relative * 100, noise * 100, name_in(kChanges, change));
}

Counts compare_figures(Report& report, const Surveys& surveys, double floor) {
  Counts counts;
  report.document()["unmatched"] = Json::array();
  for (const auto& [key, both] : side_by_side(surveys, &survey::Document::figures)) {
    if (const auto why = why_unmatched(both[0], both[1])) {
      tell_unmatched(report, counts, key, *why, both);
    } else if (both[0]->has_noise() && both[1]->has_noise()) {
      compare_figure(report, counts, key, *both[0], *both[1], floor);
    } else {
      ++counts.unjudged;
    }
  }
  return counts;
}

// `what`: the heading; `name`: in the document.
std::size_t compare_texts(Report& report, const char* what, const char* name, const Surveys& surveys,
                          std::map<std::string, std::string> survey::Document::* texts) {
  const auto said = [](const std::string* text) { return text == nullptr || text->empty() ? "-" : *text; };
  Json list = Json::array();
  for (const auto& [key, both] : side_by_side(surveys, texts)) {
    const std::string before = said(both[0]), after = said(both[1]);
    if (before == after) continue;
    if (list.empty()) report.print("\n{}\n", what);
    report.print("  {}: {} -> {}\n", key, before, after);
    list.push_back({{"key", key}, {"first", before}, {"second", after}});
  }
  const std::size_t count = list.size();
  report.document()[name] = std::move(list);
  return count;
}

void run_compare(const Options& options, Invocation& invocation) {
  const Surveys surveys = {survey::read_document("FIRST", options.first), survey::read_document("SECOND", options.second)};
  const auto& [first, second] = surveys;
  Report report("compare", invocation, options.json_path);
  report.print("first  {} ({})\nsecond {} ({})\n", options.first, first.label, options.second, second.label);
  report.print("noise: the ranges of both surveys' samples together ({}; {}), and at least {:g} %\n\nfigures\n", first.passes,
               second.passes, options.floor * 100);
  Counts counts = compare_figures(report, surveys, options.floor);
  report.print("  {} within the noise, {} better, {} worse{}\n", counts.of[Change::none], counts.of[Change::better],
               counts.of[Change::worse], counts.failed > 0 ? fmt::format("; {} failed in {}", counts.failed, options.second) : "");
  if (counts.unjudged > 0) {
    report.print(
        "  {} not judged: measured in one pass only, which does not tell the noise; give 'gigabar survey' a larger --budget\n",
        counts.unjudged);
  }
  const std::size_t facts = compare_texts(report, "machine", "machine_changes", surveys, &survey::Document::facts);
  const std::size_t verdicts = compare_texts(report, "verdicts", "verdict_changes", surveys, &survey::Document::verdicts);
  if (facts + verdicts == 0) report.print("\nmachine and verdicts are the same\n");
  report.document()["counts"] = {{"same", counts.of[Change::none]},   {"better", counts.of[Change::better]},
                                 {"worse", counts.of[Change::worse]}, {"unjudged", counts.unjudged},
                                 {"failed", counts.failed},           {"unmatched", report.document()["unmatched"].size()}};
  report.write();
  if (counts.of[Change::worse] > 0) invocation.exit_status = kExitFailed;
}

}  // namespace

void add_compare(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "compare", "What changed between two surveys, with their noise taken into account", run_compare);
  command->add_option("FIRST", options.first, Value{"FILE"}, "The JSON file of a survey: before, or one machine")->required();
  command->add_option("SECOND", options.second, Value{"FILE"}, "The JSON file of another survey: after, or the other machine")
      ->required();
  add_json_option(command, options.json_path);
  command->add_option("--floor", options.floor, real_number(0, 1, "SHARE"),
                      "Differences below this share are noise, however quiet the samples were");
  command->footer("Exit status: 0 nothing is worse, 1 some figure is worse, or failed in SECOND only, 2 a file is no survey.");
}

}  // namespace gigabar::tool
