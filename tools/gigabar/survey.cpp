// SPDX-License-Identifier: Apache-2.0
// gigabar survey: the newcomer's page. What the machine is made of, what the doctor found, how long CPU-driven copies take, what
// each path carries alone and what it keeps when the others run; and the same as one JSON file, which 'gigabar compare' reads.
//
// A figure has its noise, under a key that is the same on every machine and day, so that two surveys can be compared. Everything is
// measured in several passes over the whole survey: what a machine does beside it changes within seconds, and samples that were
// taken within one of them all see the same of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "cuda/runtime.hpp"
#include "doctor/output.hpp"
#include "gigabar/device.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/streams.hpp"
#include "preflight/preflight.hpp"
#include "support/clock.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"
#include "support/workbench.hpp"
#include "topology/view.hpp"

namespace gigabar::tool {
namespace {

using preflight::Tell;
using preflight::TimeLeft;

struct Options {
  std::string json_path = "gigabar-survey.json";
  double budget_seconds = 50;
  bool with_probes = true;
};

// GCC warns of members without "= {}" that an initializer leaves out.  NOLINTBEGIN(readability-redundant-member-init)
struct Figure {
  std::string key = {};              // "gpu0 copy_to 8 B", "gpu0->host alone"
  std::string unit = {};             // "us" (less is better) or "GB/s" (more is better)
  std::vector<double> samples = {};  // of all passes: medians of the rounds, or rates of the repeats
  unsigned pass_count = 1;           // that the samples are of
  std::string path = {};             // how the bytes went
  std::string link = {};             // what they crossed; empty: does not apply
  double link_gb_per_s = 0;          // that link's theoretical rate; 0: unknown
  std::string failure = {};          // not empty: there are no samples, and why
  bool has_wrong_data = false;       // that is why
  // NOLINTEND(readability-redundant-member-init)

  double value() const {
    std::vector<double> sorted = samples;
    return median(sorted);
  }
  double least() const { return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end()); }
  double most() const { return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end()); }
  double ratio() const { return link_gb_per_s > 0 ? value() / link_gb_per_s : 0; }  // 0: unknown
};

Json to_json(const Figure& figure) {
  if (!figure.failure.empty()) return {{"key", figure.key}, {"unit", figure.unit}, {"failure", figure.failure}};
  Json json = {{"key", figure.key},    {"unit", figure.unit},       {"value", figure.value()},     {"min", figure.least()},
               {"max", figure.most()}, {"samples", figure.samples}, {"passes", figure.pass_count}, {"path", figure.path}};
  if (!figure.link.empty()) json["link"] = figure.link;
  if (figure.ratio() > 0) json["ratio"] = figure.ratio();
  return json;
}

// Everything that a survey measures, several times over.
constexpr unsigned kPasses = 3;

struct Figures {
  unsigned pass_count = 0;  // that were begun
  double seconds = 0;       // from the begin of the first to the end of the last
  std::vector<Figure> copies;
  // What one transfer reaches alone, and when others run beside it.
  std::vector<Figure> alone;       // each device to and from the host, and each ordered pair of devices
  std::vector<Figure> together;    // each transfer of each pattern: "all devices both ways: gpu0->host"
  std::vector<std::string> notes;  // warnings of the runs
  std::size_t left_out_count = 0;  // runs, for want of time
};
constexpr std::array kLists = {&Figures::copies, &Figures::alone, &Figures::together};

// Of one more pass, with the samples of the passes before. One that failed before, or fails now, has failed.
void add(std::vector<Figure>& figures, Figure more) {
  const auto known = std::ranges::find(figures, more.key, &Figure::key);
  if (known == figures.end()) {
    figures.push_back(std::move(more));
    return;
  }
  known->samples.insert(known->samples.end(), more.samples.begin(), more.samples.end());
  ++known->pass_count;
  if (known->failure.empty()) known->failure = std::move(more.failure);
  known->has_wrong_data = known->has_wrong_data || more.has_wrong_data;
}

// --- CPU-driven copies: latencies, in rounds that go over every kind of copy, so that drift hits all of them equally -----------

constexpr std::array<std::size_t, 2> kSizes = {8, std::size_t{64} << 10};
constexpr std::size_t kMaxBytes = kSizes.back();
constexpr std::size_t kRounds = 3;  // of a pass
constexpr double kRoundNs = 8e6;    // of one contender: 12 of them make about 0.6 s a device with their pauses
constexpr std::size_t kMaxSamples = 400;
constexpr std::uint64_t kPauseNs = 20'000;  // so that nothing of the copy before is still under way

struct Runner {
  CopyCase copied;
  Contender contender;
  Figure figure;
  bool is_checked;
};

// The copies of one device: each is timed, and those through the mapping are checked.
std::vector<Runner> copies_of(const Workbench& bench) {
  std::vector<Runner> runners;
  const bool has_cuda = !bench.device().is_stand_in && use_cuda_runtime(bench.device().index).is_ok();
  const Mapping* const mapping = &bench.mapping();
  std::byte* const host = bench.host();
  void* const device = bench.memory().address();
  const std::string through = fmt::format("CPU through {} ({})", name_of(mapping->backend()), name_of(mapping->type()));
  const auto add = [&](const CopyCase& copied, const char* name, const std::string& path, const auto& call) {
    Figure figure{
        .key = fmt::format("gpu{} {} {}", bench.device().index, name, bytes_text(copied.bytes)), .unit = "us", .path = path};
    runners.push_back({copied, make_contender(name, call, [] { spin(kPauseNs); }), std::move(figure), path == through});
  };
  for (const std::size_t bytes : kSizes) {
    const CopyCase to{CopyDirection::to_device, bytes}, from{CopyDirection::from_device, bytes};
    add(to, "copy_to", through, [=] { return copy_to(*mapping, 0, host, bytes).is_ok(); });
    add(from, "copy_from", through, [=] { return copy_from(*mapping, 0, host, bytes).is_ok(); });
    if (!has_cuda) continue;
    add(to, "cudaMemcpy to", "copy engine", [=] { return cuda_memcpy(device, host, bytes); });
    add(from, "cudaMemcpy from", "copy engine", [=] { return cuda_memcpy(host, device, bytes); });
  }
  return runners;
}

void run_round(Runner& runner, const SampleClock& clock) {
  const double call_ns = estimate_ns(runner.contender, clock) + static_cast<double>(kPauseNs);
  runner.contender.ticks.clear();
  if (!runner.contender.take_samples(clock, affordable_count(call_ns, kRoundNs, kMaxSamples))) {
    runner.figure.failure = "a copy failed while it was timed; GIGABAR_LOG=info tells why";
    return;
  }
  runner.figure.samples.push_back(summarize(runner.contender.ticks, clock.ns_per_tick()).p50_us);
}

void measure_device(const DeviceInfo& device, const SampleClock& clock, std::vector<Figure>& figures) {
  DeviceOptions options;
  options.device = device.index;
  const Workbench bench(options, kMaxBytes + kGuardBytes);
  std::vector<Runner> runners = copies_of(bench);
  const auto check = [&] {
    for (const Runner& runner : runners) {
      if (runner.is_checked) check_copy(bench, runner.copied, runner.contender);
    }
  };
  check();
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (Runner& runner : runners) {
      if (runner.figure.failure.empty()) run_round(runner, clock);
    }
  }
  check();
  for (Runner& runner : runners) add(figures, std::move(runner.figure));
}

// One pass over single copies through the mapping of each device, and over cudaMemcpy where there is one: 8 bytes and 64 KiB, both
// ways. Devices whose turn comes when that share of the time is over are left out.
void measure_copies(std::span<const DeviceInfo> devices, const TimeLeft& time, double share, std::vector<Figure>& figures) {
  const SampleClock clock = SampleClock::calibrate();
  for (const DeviceInfo& device : devices) {
    if (time.is_over(share)) break;
    try {
      measure_device(device, clock, figures);
    } catch (const CommandFailure& failure) {
      // One device that cannot be mapped must not hide the others.
      add(figures, {.key = fmt::format("gpu{} copies", device.index),
                    .unit = "us",
                    .failure = failure.what(),
                    .has_wrong_data = dynamic_cast<const WrongData*>(&failure) != nullptr});
    }
  }
}

// --- Paths: bandwidth of every one by itself, and of the patterns in which they meet -------------------------------------------

constexpr unsigned kRepeats = 2;  // of a pass
constexpr std::size_t kPathBytes = std::size_t{128} << 20;
constexpr double kTimeoutSeconds = 20;

std::string ends_text(const Transfer& transfer) {
  return preflight::path_name(transfer.source.device, transfer.destination.device);
}

Figure figure_of(const TransferReport& report, const std::string& name) {
  Figure figure;
  figure.key = fmt::format("{} {}", ends_text(report.transfer), name);
  figure.unit = "GB/s";
  figure.path = report.path;
  figure.link = report.link.name;
  // Beside others the common time counts; alone the two are the same.
  const StreamFigure& rate = report.window_gb_per_s.samples.empty() ? report.life_gb_per_s : report.window_gb_per_s;
  figure.samples = rate.samples;
  figure.link_gb_per_s = report.link.gb_per_s;
  if (report.error) {
    figure.failure = report.error->message();
    figure.has_wrong_data = report.error->status == Status::verification_failed;
  } else if (figure.samples.empty()) {
    figure.failure = "no copy was finished";
  }
  return figure;
}

// `name`: of the pattern in which the transfers run at once.
void run(const std::string& name, const std::vector<Transfer>& transfers, std::vector<Figure>& figures,
         std::vector<std::string>& notes) {
  StreamPlan plan;
  plan.transfers = transfers;
  plan.repeats = kRepeats;
  plan.timeout_seconds = kTimeoutSeconds;
  const Result<StreamReport> report = run_streams(plan);
  if (!report) {
    TransferReport failed;
    failed.error = report.error().record();
    for (const Transfer& transfer : transfers) {
      failed.transfer = transfer;
      add(figures, figure_of(failed, name));
    }
    return;
  }
  for (const TransferReport& one : report->transfers) add(figures, figure_of(one, name));
  // Fewer devices' own memory than the sum of parts is what a pattern is about; everything else is worth a line.
  for (const std::string& warning : report->warnings) {
    std::string note = fmt::format("{}: {}", name, warning);
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  }
}

// What the first pass has no time for, no other one has.
void measure_paths(std::span<const DeviceInfo> devices, const TimeLeft& time, const Tell& tell, Figures& figures) {
  // One transfer alone, or several together.
  const auto measure = [&](const std::string& name, const std::vector<Transfer>& transfers) {
    if (time.is_over()) {
      if (figures.pass_count == 1) ++figures.left_out_count;
      return;
    }
    const bool is_alone = transfers.size() == 1;
    tell(is_alone ? ends_text(transfers.front()) + " " + name : name);
    run(name, transfers, is_alone ? figures.alone : figures.together, figures.notes);
  };
  const auto add = [&](std::vector<Transfer>& transfers, int source, int destination) {
    transfers.push_back(preflight::path_transfer(source, destination, kPathBytes, devices.front().is_stand_in));
  };
  std::vector<Transfer> down, up, ring, pairs;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const int index = devices[i].index;
    add(down, StreamPlace::kHost, index);
    add(up, index, StreamPlace::kHost);
    if (devices.size() > 1) add(ring, index, devices[(i + 1) % devices.size()].index);
    for (const DeviceInfo& to : devices) {
      if (to.index != index) add(pairs, index, to.index);
    }
    measure("alone", {down.back()});
    measure("alone", {up.back()});
  }
  // The patterns before most pairs: on many devices these take the most time and say the least new.
  const auto first = std::min<std::size_t>(pairs.size(), 2);
  for (std::size_t i = 0; i < first; ++i) measure("alone", {pairs[i]});
  // In patterns paths share something: a link's two directions, the host's memory, a switch, the processors' own link.
  if (devices.size() > 1) {
    measure("all devices from the host", down);
    measure("all devices to the host", up);
  }
  std::vector<Transfer> all = down;
  all.insert(all.end(), up.begin(), up.end());
  measure("all devices both ways", all);
  if (devices.size() > 1) {
    measure("all devices to the next one", ring);
    all.insert(all.end(), ring.begin(), ring.end());
    measure("everything at once", all);
  }
  for (std::size_t i = first; i < pairs.size(); ++i) measure("alone", {pairs[i]});
}

// --- Passes --------------------------------------------------------------------------------------------------------------------

// From one begin to the next at least, so that the passes do not all see the same of what else the machine does.
constexpr double kPassSeconds = 3;
// The share of the time after which the first pass leaves out copies, so that paths get theirs.
constexpr double kCopiesEnd = 0.5;

void note_what_is_missing(Figures& all) {
  std::vector<std::string>& notes = all.notes;
  if (all.copies.empty()) notes.emplace_back("single copies were left out, since the time for the survey was over");
  if (all.left_out_count > 0) {
    notes.push_back(fmt::format("left out, since the time for the survey was over: {}", counted(all.left_out_count, "run")));
  }
  const auto is_partial = [](const Figure& figure) { return figure.failure.empty() && figure.pass_count < kPasses; };
  const auto has_partial = [&](const auto list) { return std::ranges::any_of(all.*list, is_partial); };
  if (all.pass_count < kPasses || std::ranges::any_of(kLists, has_partial)) {
    notes.push_back(
        fmt::format("not all was measured in {} passes, since the time for the survey was over; 'gigabar compare' does not judge "
                    "what was measured in one",
                    kPasses));
  }
}

// The first pass is made whatever the time; of it and of the others what comes too late is left out, which the notes say.
Figures measure(std::span<const DeviceInfo> devices, const TimeLeft& time, const Tell& tell) {
  Figures all;
  const double begin_s = time.elapsed_s();
  const auto tell_pass = [&](const std::string& what) { tell(fmt::format("pass {} of {}: {}", all.pass_count, kPasses, what)); };
  do {
    const double copies_end = all.pass_count == 0 ? kCopiesEnd : 1;
    ++all.pass_count;
    tell_pass("single copies");
    measure_copies(devices, time, copies_end, all.copies);
    measure_paths(devices, time, tell_pass, all);
    if (all.pass_count == kPasses) break;
    const double next_s = begin_s + all.pass_count * kPassSeconds;
    while (time.elapsed_s() < next_s && !time.is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (!time.is_over());
  all.seconds = time.elapsed_s() - begin_s;
  note_what_is_missing(all);
  return all;
}

// --- The page ------------------------------------------------------------------------------------------------------------------

// The share of the budget that the doctor, which comes first, may use.
constexpr double kDoctorShare = 0.3;
constexpr std::size_t kMaxFindings = 12;  // on the page; all are in the JSON

void tell_findings(Report& report, const Examination& examination) {
  report.print("\ndoctor: {}\n", doctor::counts_text(examination));
  std::vector<Finding> chosen = doctor::by_gravity(examination.findings);
  std::erase_if(chosen, [](const Finding& finding) { return !doctor::wants_reading(finding.verdict); });
  for (std::size_t i = 0; i < std::min(chosen.size(), kMaxFindings); ++i) {
    const Finding& finding = chosen[i];
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

// `more`: behind a rate.
void tell(Report& report, const Figure& figure, const std::string& more = "") {
  const bool is_time = figure.unit == "us";
  std::string text = figure.failure;
  if (text.empty() && is_time) {
    const std::string range = fmt::format("{:>10.3f}   {:.3f} to {:.3f}", figure.value(), figure.least(), figure.most());
    text = fmt::format("{:<36} {}", range, figure.path);
  } else if (text.empty()) {
    const std::string link = figure.link.empty() || figure.link == "unknown" ? "its link is unknown" : "over " + figure.link;
    const std::string ratio = figure.ratio() > 0 ? fmt::format("{:.0f} % of {}", figure.ratio() * 100, figure.link) : link;
    text = fmt::format("{:>8.1f} {}   {}{}", figure.value(), figure.unit, ratio, more);
  }
  report.print("  {:<{}} {}\n", figure.key, is_time ? 28 : 40, text);
}

// The pattern with the transfer that loses most of its own rate, whole.
void tell_worst(Report& report, const Figures& figures) {
  const Figure* worst = nullptr;
  double least_share = 1;
  for (const Figure& beside : figures.together) {
    const std::string ends = beside.key.substr(0, beside.key.find(' '));
    const auto alone = std::ranges::find(figures.alone, ends + " alone", &Figure::key);
    const bool has_both = beside.failure.empty() && alone != figures.alone.end() && alone->failure.empty();
    if (!has_both || alone->value() <= 0) continue;
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
    tell(report, figure, &figure == worst ? fmt::format("; keeps {:.0f} % of its own rate", least_share * 100) : "");
  }
}

// The page shows the patterns only in part.
void tell_failed_patterns(Report& report, const Figures& figures) {
  bool is_first = true;
  for (const Figure& figure : figures.together) {
    if (figure.failure.empty()) continue;
    if (std::exchange(is_first, false)) report.heading("failed among those that were run at once");
    tell(report, figure);
  }
}

void run_survey(const Options& options, const Invocation& invocation) {
  const TimeLeft time{.budget_s = options.budget_seconds};
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
  report.print("\ntopology\n");  // of the machine itself, whatever plays the GPU
  topology::print_matrix(report, examination.topology, false);
  report.document()["topology"] = doctor::to_json(examination.topology);
  doctor::tell_best_nics(report, examination.topology);
  tell_findings(report, examination);

  const Figures figures = measure(found, time, [&](const std::string& what) { report.show_progress("{}", what); });
  report.document()["passes"] = {{"count", figures.pass_count}, {"seconds", figures.seconds}};
  report.heading("single copies, microseconds (median; range of the rounds)");
  for (const Figure& figure : figures.copies) tell(report, figure);
  report.heading("each path alone");
  for (const Figure& figure : figures.alone) tell(report, figure);
  tell_worst(report, figures);
  tell_failed_patterns(report, figures);
  for (const std::string& note : figures.notes) report.note(note);
  std::string first_wrong;
  for (const auto list : kLists) {
    for (const Figure& figure : figures.*list) {
      report.add_result(to_json(figure));
      if (figure.has_wrong_data && first_wrong.empty()) first_wrong = fmt::format("{}: {}", figure.key, figure.failure);
    }
  }
  report.document()["elapsed_s"] = time.elapsed_s();
  report.write();
  report.print("\n{:.0f} s{}{}\n", time.elapsed_s(),
               options.json_path.empty() || options.json_path == "-" ? "" : "; everything is in " + options.json_path,
               stand_in_label(report.is_stand_in()));
  // What cannot be measured on this machine is told; bytes that arrive wrong are a fault of it. All has been told and written.
  if (!first_wrong.empty()) fail(first_wrong);
}

}  // namespace

void add_survey(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "survey", "This machine on one page: topology, findings, copy times, every path alone and together",
      run_survey);
  add_json_option(command, options.json_path);
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
