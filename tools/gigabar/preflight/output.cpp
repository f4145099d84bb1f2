// SPDX-License-Identifier: Apache-2.0
#include "preflight/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "support/failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::preflight {
namespace {

constexpr std::array<Named<Item::Kind>, 3> kKinds = {
    {{Item::Kind::check, "check"}, {Item::Kind::path, "path"}, {Item::Kind::requirement, "requirement"}}};

// As Node Problem Detector has them: 0 good, 1 bad, 2 unknown.
int number_of(State state) { return static_cast<int>(state); }

// The value of a label: backslash, quotation mark and line end are escaped.
std::string label_text(std::string_view value) { return replaced(plain(value, 200), {{'\\', "\\\\"}, {'"', "\\\""}}); }

// One family of metrics: its head, and a row for each set of labels, each set once.
class Family {
 public:
  Family(std::string name, std::string_view unit, std::string_view help) : name_("gigabar_preflight_" + std::move(name)) {
    text_ = fmt::format("# TYPE {} gauge\n", name_);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name_, unit);
    text_ += fmt::format("# HELP {} {}\n", name_, help);
  }
  Family& add(const std::vector<std::pair<std::string_view, std::string>>& labels, double value) {
    std::string set;
    for (const auto& [label, text] : labels) set += fmt::format("{}{}=\"{}\"", set.empty() ? "" : ",", label, label_text(text));
    if (!seen_.insert(set).second) return *this;
    text_ += fmt::format("{}{} {}\n", name_, set.empty() ? "" : "{" + set + "}", value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
  std::set<std::string> seen_;
};

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, " ")); }

std::string check_metrics(const std::vector<Item>& items) {
  Family checks("check_state", "", "The worst finding of each check that counts: 0 fit, 1 unfit, 2 unknown.");
  std::map<std::string, State> worst;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::path) continue;
    State& state = worst.try_emplace(item.name, State::fit).first->second;
    if (item.is_decisive && state != State::unfit && item.state != State::fit) state = item.state;
  }
  for (const auto& [name, state] : worst) checks.add({{"check", name}}, number_of(state));
  return checks.text();
}

std::string problem_metrics(const std::vector<Item>& items) {
  Family problems("problem", "", "What is not fit and counts, with its devices: 1 unfit, 2 unknown.");
  for (const Item& item : items) {
    if (item.state == State::fit || !item.is_decisive) continue;
    problems.add({{"check", item.path != nullptr ? "" : item.name},
                  {"gpu", joined(item.gpus)},
                  {"nic", joined(item.nics)},
                  {"path", item.path != nullptr ? item.name : ""}},
                 number_of(item.state));
  }
  return problems.text();
}

std::string path_metrics(const std::vector<Item>& items) {
  Family rates("path_bytes_per_second", "bytes_per_second", "Rate of the verified bytes on a path.");
  Family shares("path_utilization_ratio", "ratio", "That rate over the theoretical rate of the link.");
  for (const Item& item : items) {
    if (item.path == nullptr || !item.path->is_verified) continue;
    rates.add({{"path", item.name}, {"gpu", joined(item.gpus)}}, item.path->rate() * 1e9);
    if (item.path->share() > 0) shares.add({{"path", item.name}, {"gpu", joined(item.gpus)}}, item.path->share());
  }
  return rates.text() + shares.text();
}

void print_problem(Report& report, const Item& item) {
  report.print("  {:<8} {}{}{}: {}\n", item.is_warning ? "warning" : name_of(item.state), item.name,
               item.subject.empty() ? "" : ": ", plain(item.subject), plain(item.statement));
  if (!item.remedy.empty()) report.print("           remedy: {}\n", plain(item.remedy));
}

}  // namespace

int exit_status_of(State state, Format format, bool is_strict) {
  if (state == State::fit) return 0;
  if (state == State::unfit) return kExitFailed;
  if (format == Format::npd) return 2;
  if (format == Format::nhc) return is_strict ? kExitFailed : 0;
  return kExitUnknown;
}

void print_table(Report& report, const Judgement& judgement) {
  report.print("{}{}\n", judgement.line, stand_in_label(report.is_stand_in()));
  const auto print_those = [&](const char* heading, const auto& is_meant) {
    bool is_first = true;
    for (const State state : {State::unfit, State::unknown, State::fit}) {
      for (const Item& item : judgement.items) {
        if (item.state != state || !is_meant(item)) continue;
        if (std::exchange(is_first, false)) report.print("\n{}\n", heading);
        print_problem(report, item);
      }
    }
  };
  const auto is_fit = [](const Item& item) { return item.state == State::fit; };
  print_those("what decides", [&](const Item& item) { return !is_fit(item) && item.is_decisive; });
  print_those("what does not count", [&](const Item& item) { return !is_fit(item) && !item.is_decisive; });
  print_those("what works, slower or less than it could", [](const Item& item) { return item.is_warning; });
  bool is_first = true;
  for (const Item& item : judgement.items) {
    if (item.path == nullptr || item.state != State::fit) continue;
    if (std::exchange(is_first, false)) report.heading("paths that are fit");
    report.print("  {:<16} {}\n", item.name, plain(item.statement));
  }
}

Json to_json(const Item& item) {
  Json json = {{"kind", name_in(kKinds, item.kind)},
               {"name", plain(item.name)},
               {"subject", plain(item.subject)},
               {"state", name_of(item.state)},
               {"is_decisive", item.is_decisive},
               {"is_warning", item.is_warning},
               {"statement", plain(item.statement)},
               {"remedy", plain(item.remedy)},
               {"gpus", item.gpus},
               {"nics", list_of(item.nics, [](const std::string& name) { return Json(plain(name)); })}};
  if (item.path == nullptr) return json;
  const Path& path = *item.path;
  json["is_verified"] = path.is_verified;
  json["gb_per_s"] = positive_or_null(path.rate());
  json["link"] = path.link.name;
  json["link_gb_per_s"] = positive_or_null(path.link.gb_per_s);
  json["share_of_link"] = positive_or_null(path.share());
  json["how"] = path.path;
  json["load"] = plain(path.load);
  return json;
}

std::string metrics_text(const Judgement& judgement, const Metrics& metrics) {
  Family verdict("verdict", "", "The answer: 1 for the one that holds.");
  for (const auto& [state, name] : kStates) verdict.add({{"verdict", std::string(name)}}, judgement.state == state);
  Family stand_in("stand_in", "", "1 where host memory played the GPUs, whose rates say nothing about one.");
  Family seconds("duration_seconds", "seconds", "How long the whole run took.");
  Family time("time_seconds", "seconds", "When it ended, since 1970.");
  return verdict.text() + check_metrics(judgement.items) + problem_metrics(judgement.items) + path_metrics(judgement.items) +
         stand_in.add({}, metrics.is_stand_in).text() + seconds.add({}, metrics.elapsed_seconds).text() +
         time.add({}, metrics.time_seconds).text() + "# EOF\n";
}

}  // namespace gigabar::tool::preflight
