// SPDX-License-Identifier: Apache-2.0
// gigabar compare: what changed between two surveys, of two machines or of two days. Figures of one pass are not judged; one that
// failed in the second survey only is worse.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "commands.hpp"
#include "support/failure.hpp"
#include "support/names.hpp"
#include "support/option_checks.hpp"
#include "support/report.hpp"
#include "survey/document.hpp"

namespace gigabar::tool {
namespace {

using survey::Change;
using survey::Difference;
using survey::difference_of;
using survey::Measured;
using Survey = survey::Document;

struct Options {
  std::string first, second;
  std::string json_path;
  double floor = survey::kNoiseFloor;
};

constexpr std::array<Named<Change>, 3> kChanges = {{{Change::none, "same"}, {Change::better, "better"}, {Change::worse, "WORSE"}}};

// Why the two have no values of a figure that could be compared, and whether that is a change.
struct Unmatched {
  const char* why;
  Change change = Change::none;
};

struct Counts {
  std::size_t same = 0, better = 0, worse = 0, unjudged = 0;
  std::size_t failed = 0;     // in the second survey
  std::size_t unmatched = 0;  // of every kind
};

// What a survey says of a figure: a value, why there is none, or nothing.
struct Said {
  const Measured* value = nullptr;
  const std::string* failure = nullptr;

  std::string text() const {
    if (failure != nullptr) return "failed: " + *failure;
    return value != nullptr ? fmt::format("{:.3f} {}", value->value, value->unit) : "-";
  }
};

template <class Value>
const Value* find_in(const std::map<std::string, Value>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

Said said_in(const Survey& survey, const std::string& key) { return {find_in(survey.figures, key), find_in(survey.failures, key)}; }

std::set<std::string> keys_of(const Survey& first, const Survey& second) {
  std::set<std::string> keys;
  for (const Survey* const survey : {&first, &second}) {
    for (const auto& [key, figure] : survey->figures) keys.insert(key);
    for (const auto& [key, failure] : survey->failures) keys.insert(key);
  }
  return keys;
}

// Nothing: both have a value, of one unit.
std::optional<Unmatched> why_unmatched(const Said& before, const Said& after) {
  if (after.failure != nullptr) return before.failure != nullptr ? Unmatched{"fails in both"} : Unmatched{"fails", Change::worse};
  if (after.value == nullptr) return Unmatched{"only first"};
  if (before.failure != nullptr) return Unmatched{"works again", Change::better};
  if (before.value == nullptr) return Unmatched{"only second"};
  if (before.value->unit != after.value->unit) return Unmatched{"units differ"};
  return {};
}

// A failure that is new is worse also where the first survey has nothing under that key: a device that cannot be mapped has one
// failure in place of all its copies.
void tell_unmatched(Report& report, Counts& counts, Json& list, const std::string& key, const Unmatched& unmatched,
                    const std::array<Said, 2>& said) {
  ++counts.unmatched;
  if (said[1].failure != nullptr) ++counts.failed;
  if (unmatched.change == Change::worse) ++counts.worse;
  if (unmatched.change == Change::better) ++counts.better;
  const std::string before = said[0].text(), after = said[1].text();
  const std::string mark = unmatched.change == Change::none ? "" : fmt::format("  {}", name_in(kChanges, unmatched.change));
  report.print("  {:<44} {}: {} -> {}{}\n", key, unmatched.why, before, after, mark);
  list.push_back({{"key", key}, {"why", unmatched.why}, {"first", before}, {"second", after}});
}

Counts compare_figures(Report& report, const Survey& first, const Survey& second, double floor) {
  Counts counts;
  Json unmatched = Json::array();
  for (const std::string& key : keys_of(first, second)) {
    const std::array<Said, 2> said = {said_in(first, key), said_in(second, key)};
    if (const auto why = why_unmatched(said[0], said[1])) {
      tell_unmatched(report, counts, unmatched, key, *why, said);
      continue;
    }
    const Measured& before = *said[0].value;
    const Measured& after = *said[1].value;
    if (!before.has_noise() || !after.has_noise()) {
      ++counts.unjudged;
      continue;
    }
    const Difference difference = difference_of(before, after, floor);
    ++(difference.change == Change::none ? counts.same : difference.change == Change::better ? counts.better : counts.worse);
    report.add_result({{"key", key},
                       {"unit", before.unit},
                       {"first", before.value},
                       {"second", after.value},
                       {"relative", difference.relative},
                       {"noise", difference.noise},
                       {"change", name_in(kChanges, difference.change)}});
    if (difference.change == Change::none) continue;
    report.print("  {:<44} {:>10.3f} -> {:>10.3f} {}  {:+.1f} % (noise {:.1f} %)  {}\n", key, before.value, after.value,
                 before.unit, difference.relative * 100, difference.noise * 100, name_in(kChanges, difference.change));
  }
  report.document()["unmatched"] = std::move(unmatched);
  return counts;
}

// `what`: the heading; `name`: in the document.
std::size_t compare_texts(Report& report, const char* what, const char* name, const std::map<std::string, std::string>& first,
                          const std::map<std::string, std::string>& second) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [key, value] : first) both[key].first = value;
  for (const auto& [key, value] : second) both[key].second = value;
  Json list = Json::array();
  for (const auto& [key, values] : both) {
    const std::string before = values.first.empty() ? "-" : values.first;
    const std::string after = values.second.empty() ? "-" : values.second;
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
  const Survey first = survey::read_document("FIRST", options.first);
  const Survey second = survey::read_document("SECOND", options.second);
  Report report("compare", invocation, options.json_path);
  report.print("first  {} ({})\nsecond {} ({})\n", options.first, first.label, options.second, second.label);
  report.print("noise: the ranges of both surveys' samples together ({}; {}), and at least {:g} %\n\nfigures\n", first.passes,
               second.passes, options.floor * 100);
  const Counts counts = compare_figures(report, first, second, options.floor);
  report.print("  {} within the noise, {} better, {} worse{}\n", counts.same, counts.better, counts.worse,
               counts.failed > 0 ? fmt::format("; {} failed in {}", counts.failed, second.path) : "");
  if (counts.unjudged > 0) {
    report.print(
        "  {} not judged: measured in one pass only, which does not tell the noise; give 'gigabar survey' a larger --budget\n",
        counts.unjudged);
  }
  const std::size_t facts = compare_texts(report, "machine", "machine_changes", first.facts, second.facts);
  const std::size_t verdicts = compare_texts(report, "verdicts", "verdict_changes", first.verdicts, second.verdicts);
  if (facts + verdicts == 0) report.print("\nmachine and verdicts are the same\n");
  report.document()["counts"] = {{"same", counts.same},         {"better", counts.better}, {"worse", counts.worse},
                                 {"unjudged", counts.unjudged}, {"failed", counts.failed}, {"unmatched", counts.unmatched}};
  report.write();
  if (counts.worse > 0) invocation.exit_status = kExitFailed;
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
