// SPDX-License-Identifier: Apache-2.0
// gigabar compare: what changed between two surveys, of two machines or of two days. A figure has changed when the medians
// differ by more than the noise: both ranges of its samples together, and never less than a floor. The samples are of passes over a
// whole survey; those of one pass would show how a machine differs from itself within a second only, so they are not judged.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/old_check_ids.hpp"
#include "commands.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr double kMinPasses = 2;
constexpr double kFloor = 0.10;  // of the first median: on two H200, runs 20 s apart differed by up to 9.5 %

struct Options {
  std::string first, second;
  std::string json_path;
  double floor = kFloor;
};

struct Measured {
  std::string unit;
  double value = 0, least = 0, most = 0;
  double pass_count = 1;
  double range() const { return most - least; }
};

struct Survey {
  std::string path;
  std::string label;   // host, date
  std::string passes;  // "3 passes over 12 s"
  std::map<std::string, Measured> figures;
  std::map<std::string, std::string> facts;     // what the machine is: CPU, kernel, driver, device, relations
  std::map<std::string, std::string> verdicts;  // "pci.acs GPU ... and ...": "FAIL"
};

// Not the ordered kind of Json, which is slow with many keys.
using Document = nlohmann::json;

const Document& member(const Document& object, const char* key) {
  static const Document* const nothing = new Document();
  return object.is_object() && object.contains(key) ? object[key] : *nothing;
}

Document read_document(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_usage(fmt::format("{}: cannot be opened; give two files that 'gigabar survey --json FILE' wrote", path));
  std::string text;
  std::vector<char> part(std::size_t{1} << 20);
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxBytes) refuse_usage(fmt::format("{}: larger than {}; this is no survey", path, bytes_text(kMaxBytes)));
  }
  // What is nested deeper than any survey is dropped as it is read.
  constexpr int kMaxDepth = 32;
  const auto is_kept = [](int depth, Document::parse_event_t, Document&) { return depth < kMaxDepth; };
  Document document = Document::parse(text, is_kept, false);
  if (document.is_discarded() || !document.is_object()) refuse_usage(fmt::format("{}: is not JSON", path));
  if (member(document, "tool") != "survey") {
    refuse_usage(fmt::format("{}: was not written by 'gigabar survey'", path));
  }
  return document;
}

std::string word(const Document& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return {};
  const Document& value = object[key];
  if (value.is_null()) return {};
  return plain(value.is_string() ? value.get<std::string>() : value.dump());
}

void read_facts(const Document& document, Survey& survey) {
  const Document& machine = member(document, "machine");
  for (const char* key : {"cpu", "kernel", "cores"}) survey.facts[key] = word(machine, key);
  const Document& device = member(document, "device");
  for (const char* key : {"name", "driver", "is_stand_in"}) survey.facts[fmt::format("device {}", key)] = word(device, key);
  for (const Document& route : member(member(document, "topology"), "routes")) {
    const auto end = [&route](const char* key) { return word(member(route, key), "kind") + word(member(route, key), "index"); };
    survey.facts[fmt::format("route {}-{}", end("first"), end("second"))] =
        fmt::format("{} {}", word(route, "relation"), word(route, "bottleneck"));
  }
}

void read_figures(const Document& document, Survey& survey) {
  for (const Document& figure : member(document, "results")) {
    const auto number = [&figure](const char* key) {
      const Document& value = member(figure, key);
      return value.is_number() ? value.get<double>() : std::nan("");
    };
    const Measured measured{word(figure, "unit"), number("value"), number("min"), number("max"), std::fmax(number("passes"), 1)};
    const bool is_good = std::isfinite(measured.value) && measured.value > 0 && std::isfinite(measured.least + measured.most);
    const std::string key = word(figure, "key");
    if (is_good && !key.empty()) survey.figures[key] = measured;
  }
}

std::string passes_text(const Document& passes) {
  const Document& count = member(passes, "count");
  const Document& seconds = member(passes, "seconds");
  if (!count.is_number() || !seconds.is_number()) return "of an older Gigabar, in one pass";
  const auto number = count.get<double>();
  return fmt::format("{} {} over {:.0f} s", number, number == 1 ? "pass" : "passes", seconds.get<double>());
}

Survey read_survey(const std::string& path) {
  const Document document = read_document(path);
  Survey survey;
  survey.path = path;
  survey.passes = passes_text(member(document, "passes"));
  survey.label = fmt::format("{}, {}", word(member(document, "machine"), "host"), word(document, "date"));
  read_facts(document, survey);
  read_figures(document, survey);
  for (const Document& finding : member(document, "findings")) {
    survey.verdicts[current_check_id(word(finding, "check")) + " " + word(finding, "subject")] = word(finding, "verdict");
  }
  if (survey.figures.empty()) refuse_usage(fmt::format("{}: holds no figures; run 'gigabar survey' again", path));
  return survey;
}

enum class Change { none, better, worse };

struct Difference {
  double relative = 0;  // of the second over the first, minus 1
  double noise = 0;
  Change change = Change::none;
};

Difference difference_of(const Measured& first, const Measured& second, double floor) {
  Difference difference;
  difference.relative = second.value / first.value - 1;
  difference.noise = std::max((first.range() + second.range()) / first.value, floor);
  if (std::abs(difference.relative) <= difference.noise) return difference;
  const bool is_less_better = first.unit == "us";
  difference.change = (difference.relative < 0) == is_less_better ? Change::better : Change::worse;
  return difference;
}

std::string_view name_of(Change change) {
  switch (change) {
    case Change::none: return "same";
    case Change::better: return "better";
    case Change::worse: return "WORSE";
  }
  return "?";
}

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
    if (std::min(before.pass_count, after.pass_count) < kMinPasses) {
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
                       {"change", name_of(difference.change)}});
    if (difference.change == Change::none) continue;
    report.print("  {:<44} {:>10.3f} -> {:>10.3f} {}  {:+.1f} % (noise {:.1f} %)  {}\n", key, before.value, after.value,
                 before.unit, difference.relative * 100, difference.noise * 100, name_of(difference.change));
  }
  for (const auto& [key, after] : second.figures) {
    if (!first.figures.contains(key)) report.print("  {:<44} only in {}\n", key, second.path);
  }
  return counts;
}

// `what`: the heading; `name`: in the document.
std::size_t compare_texts(Report& report, const char* what, const char* name, const std::map<std::string, std::string>& first,
                          const std::map<std::string, std::string>& second) {
  std::set<std::string> keys;
  for (const auto& [key, value] : first) keys.insert(key);
  for (const auto& [key, value] : second) keys.insert(key);
  std::size_t count = 0;
  Json list = Json::array();
  for (const std::string& key : keys) {
    const auto in = [&key](const std::map<std::string, std::string>& all) {
      const auto found = all.find(key);
      return found == all.end() || found->second.empty() ? std::string("-") : found->second;
    };
    const std::string before = in(first);
    const std::string after = in(second);
    if (before == after) continue;
    if (count++ == 0) report.print("\n{}\n", what);
    report.print("  {}: {} -> {}\n", key, before, after);
    list.push_back({{"key", key}, {"first", before}, {"second", after}});
  }
  report.document()[name] = std::move(list);
  return count;
}

void run_compare(const Options& options, Invocation& invocation) {
  const Survey first = read_survey(options.first);
  const Survey second = read_survey(options.second);
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
