// SPDX-License-Identifier: Apache-2.0
// gigabar compare: what changed between two surveys, of two machines or of two days. Figures of one pass are not judged.
#include <array>
#include <map>
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

struct Counts {
  std::size_t same = 0, better = 0, worse = 0, unjudged = 0;
};

Counts compare_figures(Report& report, const Survey& first, const Survey& second, double floor) {
  Counts counts;
  for (const auto& [key, before] : first.figures) {
    const auto found = second.figures.find(key);
    if (found == second.figures.end()) {
      report.print("  {:<44} only in {}\n", key, first.path);
      continue;
    }
    const Measured& after = found->second;
    if (before.unit != after.unit) {
      report.print("  {:<44} units differ: {} and {}\n", key, before.unit, after.unit);
      continue;
    }
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
  for (const auto& [key, after] : second.figures) {
    if (!first.figures.contains(key)) report.print("  {:<44} only in {}\n", key, second.path);
  }
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
  report.print("  {} within the noise, {} better, {} worse\n", counts.same, counts.better, counts.worse);
  if (counts.unjudged > 0) {
    report.print(
        "  {} not judged: measured in one pass only, which does not tell the noise; give 'gigabar survey' a larger --budget\n",
        counts.unjudged);
  }
  const std::size_t facts = compare_texts(report, "machine", "machine_changes", first.facts, second.facts);
  const std::size_t verdicts = compare_texts(report, "verdicts", "verdict_changes", first.verdicts, second.verdicts);
  if (facts + verdicts == 0) report.print("\nmachine and verdicts are the same\n");
  report.document()["counts"] = {
      {"same", counts.same}, {"better", counts.better}, {"worse", counts.worse}, {"unjudged", counts.unjudged}};
  report.write();
  if (counts.worse > 0) invocation.exit_status = kExitFailed;
}

}  // namespace

void add_compare(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "compare", "What changed between two surveys, with their noise taken into account", run_compare);
  command->add_option("FIRST", options.first, "The JSON file of a survey: before, or one machine")->required()->type_name("FILE");
  command->add_option("SECOND", options.second, "The JSON file of another survey: after, or the other machine")
      ->required()
      ->type_name("FILE");
  add_json_option(command, options.json_path);
  command->add_option("--floor", options.floor, real_number(0, 1, "SHARE"),
                      "Differences below this share are noise, however quiet the samples were");
  command->footer("Exit status: 0 nothing is worse, 1 some figure is worse, 2 a file is no survey.");
}

}  // namespace gigabar::tool
