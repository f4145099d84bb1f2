// SPDX-License-Identifier: Apache-2.0
// gigabar survey: the newcomer's page. What the machine is made of, what the doctor found, how long CPU-driven copies take, what
// each path carries alone and what it keeps when the others run; and the same as one JSON file, which 'gigabar compare' reads.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "commands.hpp"
#include "doctor/output.hpp"
#include "gigabar/doctor.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"
#include "survey/figures.hpp"
#include "topology/view.hpp"

namespace gigabar::tool {
namespace {

using survey::Figure;
using survey::Figures;

struct Options {
  std::string json_path = "gigabar-survey.json";
  double budget_seconds = 50;
  bool with_probes = true;
};

// The share of the budget that the doctor, which comes first, may use.
constexpr double kDoctorShare = 0.3;
constexpr std::size_t kMaxFindings = 12;  // on the page; all are in the JSON

void tell_findings(Report& report, const Examination& examination) {
  report.print("\ndoctor: {}\n", doctor::counts_text(examination));
  std::vector<const Finding*> chosen = doctor::by_gravity(examination.findings);
  std::erase_if(chosen, [](const Finding* finding) { return !doctor::wants_reading(finding->verdict); });
  for (std::size_t i = 0; i < std::min(chosen.size(), kMaxFindings); ++i) {
    const Finding& finding = *chosen[i];
    report.print("  {:<7} {:<16} {}{}{}\n", name_of(finding.verdict), finding.check, plain(finding.subject),
                 finding.subject.empty() ? "" : ": ", plain(finding.statement));
    if (!finding.remedy.empty()) {
      report.print("          remedy: {}{}\n", plain(finding.remedy), finding.needs_reboot ? " (needs a reboot)" : "");
    }
  }
  if (chosen.size() > kMaxFindings) {
    report.print("  {} more: 'gigabar doctor' shows all\n", chosen.size() - kMaxFindings);
  }
  if (!chosen.empty()) report.print("  'gigabar explain CHECK' tells what is behind one of them\n");
  report.document()["findings"] = list_of(examination.findings, [](const Finding& finding) { return doctor::to_json(finding); });
}

void tell_copies(Report& report, const std::vector<Figure>& figures) {
  report.heading("single copies, microseconds (median; range of the rounds)");
  for (const Figure& figure : figures) {
    if (!figure.failure.empty()) {
      report.print("  {:<28} {}\n", figure.key, figure.failure);
    } else {
      const std::string range = fmt::format("{:>10.3f}   {:.3f} to {:.3f}", figure.value(), figure.least(), figure.most());
      report.print("  {:<28} {:<36} {}\n", figure.key, range, figure.path);
    }
  }
}

void tell_rate(Report& report, const Figure& figure, const std::string& more) {
  if (!figure.failure.empty()) {
    report.print("  {:<40} {}\n", figure.key, figure.failure);
    return;
  }
  const std::string link = figure.link.empty() || figure.link == "unknown" ? "its link is unknown" : "over " + figure.link;
  const std::string ratio = figure.ratio() > 0 ? fmt::format("{:.0f} % of {}", figure.ratio() * 100, figure.link) : link;
  report.print("  {:<40} {:>8.1f} {}   {}{}\n", figure.key, figure.value(), figure.unit, ratio, more);
}

// What the transfer of this figure reaches alone; null: nothing.
const Figure* find_alone(const Figures& figures, const Figure& beside) {
  const auto ends = [](const Figure& figure) { return figure.key.substr(0, figure.key.find(' ')); };
  const auto found = std::find_if(figures.alone.begin(), figures.alone.end(),
                                  [&](const Figure& each) { return each.failure.empty() && ends(each) == ends(beside); });
  return found == figures.alone.end() ? nullptr : &*found;
}

// The pattern with the transfer that loses most of its own rate, whole.
void tell_worst(Report& report, const Figures& figures) {
  const Figure* worst = nullptr;
  double least_share = 1;
  for (const Figure& beside : figures.together) {
    const Figure* const alone = find_alone(figures, beside);
    if (!beside.failure.empty() || alone == nullptr || alone->value() <= 0) continue;
    const double share = beside.value() / alone->value();
    if (worst != nullptr && !(share < least_share)) continue;
    worst = &beside;
    least_share = share;
  }
  if (worst == nullptr) return;  // there is nothing to compare
  report.document()["worst"] = {{"key", worst->key}, {"share_of_own_rate", least_share}};
  const std::string pattern = worst->key.substr(worst->key.find(' ') + 1);
  report.heading(fmt::format("the worst pattern of those that were run at once: {}", pattern));
  for (const Figure& figure : figures.together) {
    if (!figure.key.ends_with(" " + pattern)) continue;
    tell_rate(report, figure, &figure == worst ? fmt::format("; keeps {:.0f} % of its own rate", least_share * 100) : "");
  }
}

// The page shows the patterns only in part.
void tell_failed_patterns(Report& report, const Figures& figures) {
  bool is_first = true;
  for (const Figure& figure : figures.together) {
    if (figure.failure.empty()) continue;
    if (std::exchange(is_first, false)) report.heading("failed among those that were run at once");
    tell_rate(report, figure, "");
  }
}

// What cannot be measured on this machine is told; bytes that arrive wrong are a fault of it. All has been told and written before.
void require_right_data(const Figures& figures) {
  for (const auto list : survey::kLists) {
    for (const Figure& figure : figures.*list) {
      if (figure.has_wrong_data) fail(fmt::format("{}: {}", figure.key, figure.failure));
    }
  }
}

void run_survey(const Options& options, const Invocation& invocation) {
  const survey::TimeLeft time{.budget_s = options.budget_seconds};
  Report report("survey", invocation, options.json_path);
  const std::vector<DeviceInfo> found = take(devices());
  report.set_device(found.front());
  for (std::size_t i = 1; i < found.size(); ++i) report.print("{}", device_line(found[i]));

  report.print("this takes up to {:.0f} s (--budget)\n", options.budget_seconds);
  ExamineOptions examine_options;
  examine_options.with_probes = options.with_probes;
  examine_options.on_begin = [&report](const CheckInfo& check) { report.show_progress("{}: {}", check.id, check.title); };
  examine_options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.budget_seconds * kDoctorShare * 1000));
  const Examination examination = take(examine(Machine::here(), examine_options));
  const topology::View view(examination.topology);
  report.print("\ntopology\n");  // of the machine itself, whatever plays the GPU
  topology::print_matrix(report, view, false);
  report.document()["topology"] = doctor::to_json(view.topology());
  doctor::tell_best_nics(report, examination.topology);
  tell_findings(report, examination);

  const Figures figures = survey::measure(found, time, [&](const std::string& what) { report.show_progress("{}", what); });
  report.document()["passes"] = {{"count", figures.pass_count}, {"seconds", figures.seconds}};
  tell_copies(report, figures.copies);
  report.heading("each path alone");
  for (const Figure& figure : figures.alone) tell_rate(report, figure, "");
  tell_worst(report, figures);
  tell_failed_patterns(report, figures);
  for (const std::string& note : figures.notes) report.note(note);
  for (const auto list : survey::kLists) {
    for (const Figure& figure : figures.*list) report.add_result(to_json(figure));
  }
  report.document()["elapsed_s"] = time.elapsed_s();
  report.write();
  report.print("\n{:.0f} s{}{}\n", time.elapsed_s(),
               options.json_path.empty() || options.json_path == "-" ? "" : "; everything is in " + options.json_path,
               stand_in_label(report.is_stand_in()));
  require_right_data(figures);
}

}  // namespace

void add_survey(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "survey", "This machine on one page: topology, findings, copy times, every path alone and together",
      run_survey);
  add_json_option(command, options.json_path)->capture_default_str();
  add_budget_option(command, options.budget_seconds, 3600, "About this long in all; what does not fit is left out and named");
  command->add_flag_that_clears("--no-probes,--no-trials", options.with_probes,
                                "Leave out the doctor's probes: only read; register, map and copy nothing");
  command->footer(
      "'gigabar compare' compares the JSON files of two surveys.\n"
      "Everything is measured in 3 passes over the whole survey, whose spread is the noise that 'gigabar compare' goes by.\n"
      "Data is verified in every copy and transfer. Rates of patterns are of the time in which all their transfers ran.\n"
      "Exit status: 0 done; 1 wrong data arrived, which the page and the file name; 2 the command line cannot be followed.");
}

}  // namespace gigabar::tool
