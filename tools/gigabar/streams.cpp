// SPDX-License-Identifier: Apache-2.0
// gigabar streams: many transfers at once, between GPUs and between GPUs and the host, with CUts' command lines, transfers in
// words, nvbandwidth's matrices, and sweeps over sizes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/counted.hpp"
#include "commands.hpp"
#include "cuda/runtime.hpp"
#include "streams/command.hpp"
#include "streams/ends.hpp"
#include "streams/measure.hpp"
#include "streams/plan.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace streams {
namespace {

Machine find_machine(const Options& options) {
  if (options.is_dry_run && options.device_count) return {*options.device_count, {}};
  // CUDA reads it when it starts: with its 8 queues, streams beyond the eighth would wait for each other.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  std::vector<DeviceInfo> found = take(devices());
  const int count = static_cast<int>(found.size());
  return {count, std::move(found)};
}

void check_options(const Options& options) {
  const bool has_presets = !options.presets.empty();
  if (has_presets && !options.arguments.empty()) refuse_usage("--preset stands alone; leave out -d, -h, -p, -t and -f");
  if (has_presets && options.format == Format::cuts) refuse_usage("--format cuts: CUts has no presets; choose table, json or csv");
  if (has_presets && !options.executor.empty()) refuse_usage("--executor: a preset's name says who moves the bytes");
  if (options.device_count && !options.is_dry_run) refuse_usage("--devices: only a --dry-run can assume devices");
}

std::string first_of(const std::vector<std::string>& lines) {
  return lines.size() == 1 ? lines.front() : fmt::format("{} (and {} more)", lines.front(), lines.size() - 1);
}

// --- How far the transfers are, while they run ----------------------------------------------------------------------------------

std::string sum_of(std::span<const StreamProgress> transfers) {
  double done_gb = 0;
  double gb_per_s = 0;
  std::size_t done_count = 0;
  for (const StreamProgress& transfer : transfers) {
    done_gb += static_cast<double>(transfer.bytes_done) / 1e9;
    gb_per_s += transfer.is_done ? 0 : transfer.gb_per_s;
    done_count += transfer.is_done ? 1 : 0;
  }
  return fmt::format("  {:.3f} GB  {:.3f} GB/s, {} of {} done", done_gb, gb_per_s, done_count,
                     counted(transfers.size(), "transfer"));
}

std::string line_of(const StreamProgress& transfer, std::string_view name, std::size_t name_width) {
  const auto done = static_cast<double>(transfer.bytes_done), total = static_cast<double>(transfer.bytes_total);
  const std::string part = transfer.bytes_total != 0 ? fmt::format(" {:>4.0f} %", 100.0 * done / total) : "       ";
  return fmt::format("  {:>3}  {:<{}}  {:>10.3f} GB{}{}", transfer.index, name, name_width, done / 1e9, part,
                     transfer.is_done ? "  done" : fmt::format("  {:>9.3f} GB/s", transfer.gb_per_s));
}

// The part of a repeat that the slowest transfer has done; above 1 where no transfer has an end.
double part_done(std::span<const StreamProgress> transfers) {
  double part = 2;
  for (const StreamProgress& transfer : transfers) {
    if (transfer.bytes_total == 0) continue;
    part = std::min(part, static_cast<double>(transfer.bytes_done) / static_cast<double>(transfer.bytes_total));
  }
  return part;
}

// --- --plain: cudaMemcpyAsync over memory of the same kind and place, what a transfer's figure is compared with ------------------

// Copies of a GPU's engine between it and the host.
bool has_plain_form(const Transfer& transfer) {
  return transfer.executor == StreamExecutor::copy_engine && transfer.source.is_host() != transfer.destination.is_host();
}

// In GB/s, over memory as run_streams() allocates and places it: two copies that are not timed, then as many as one repeat has (at
// most 100), between two events. Ends the command when the memory cannot be had or CUDA's run-time is not built in.
double plain_rate(const Machine& machine, std::size_t index, const Transfer& transfer) {
  constexpr std::uint64_t kMaxCopies = 100;
  std::vector<std::string> warnings;  // the run has the same
  const Ends ends = take(Ends::allocate(index, transfer, machine.devices, warnings, [] { return false; }));
  const std::uint64_t count = std::clamp<std::uint64_t>(transfer.iterations, 1, kMaxCopies);
  return take(
      plain_copy_rate(working_device(transfer), ends.destination().address(), ends.source().address(), transfer.bytes, count));
}

// --- The command ----------------------------------------------------------------------------------------------------------------

class Session {
 public:
  Session(const Options& options, const Invocation& invocation)
      : options_(options), report_("streams", invocation, options.json_path) {
    describe(options, report_.document());
    check_options(options);
    machine_ = find_machine(options);
    describe(machine_, report_.document());
    if (options.format == Format::json) report_.end_text();
  }

  void run_all() {
    std::vector<PresetRun> runs = make_runs(options_, machine_.device_count);
    for (const PresetRun& one : runs) check(one, machine_.device_count);
    {
      const Interrupt interrupt;
      output_ = make_output(options_, report_, machine_);
      for (PresetRun& one : runs) {
        if (Interrupt::is_set()) break;
        run_points(one);
      }
    }
    write();
    conclude();
  }

  void print_plan() {
    const std::vector<PresetRun> runs = make_runs(options_, machine_.device_count);
    for (const PresetRun& run : runs) {
      if (!run.preset.waived.empty()) report_.print("# {}: waived: {}\n", run.preset.name, run.preset.waived);
    }
    for (const PresetRun& run : runs) {
      for (const Point& point : run.points) {
        if (!point.title.empty()) report_.print("# {}\n", point.title);
        // Lines that --file reads again, each with its number.
        std::size_t index = 0;
        for (const Transfer& transfer : point.plan.transfers) report_.print("{}  # {}\n", to_string(transfer), index++);
        Json result = point_json(point, "plan");
        result["title"] = point.title;
        report_.add_result(std::move(result));
      }
    }
    write();
    for (const PresetRun& run : runs) check(run, machine_.device_count);
  }

  void list_presets() {
    for (const std::string_view name : stream_preset_names()) {
      const StreamPreset preset = take(stream_preset(name, default_transfer(options_), machine_.device_count));
      report_.print("{:<48} {}{}\n", name, preset.description, preset.waived.empty() ? "" : "; not here: " + preset.waived);
      report_.add_result({{"measure", "description"},
                          {"name", preset.name},
                          {"description", preset.description},
                          {"is_latency", preset.is_latency},
                          {"cells", preset.cells.size()},
                          {"waived", preset.waived}});
    }
    write();
  }

 private:
  void note(const std::string& line) {
    if (options_.format == Format::table) return report_.note(line);
    fmt::print(stderr, "note: {}\n", line);
    report_.document()["notes"].push_back(line);
  }

  // To the file of --json, and to standard output for --format json.
  void write() {
    if (options_.format == Format::json && options_.json_path != "-") write_standard_output(json_text(report_.document()));
    report_.write();
  }

  // `position`: "3 of 12", or empty.
  void run(Point& point, const std::string& position) {
    using Clock = std::chrono::steady_clock;
    output_->before(point);
    const bool is_shown = options_.format != Format::cuts && report_.shows_progress();
    const std::string title = point.title + (point.title.empty() || position.empty() ? "" : ", ") + position;
    if (is_shown) report_.show_progress("{}preparing", title.empty() ? "" : title + ": ");
    std::vector<std::string> names;
    std::size_t name_width = 0;
    for (const Transfer& transfer : point.plan.transfers) {
      name_width = std::max(name_width, names.emplace_back(short_text(transfer)).size());
    }
    std::optional<Clock::time_point> began;  // the first repeat's first report
    StreamOptions options;
    options.progress = [&](unsigned repeat, std::span<const StreamProgress> transfers) {
      output_->during();
      if (!is_shown) return;
      if (!began) began = Clock::now();
      const double part = part_done(transfers);
      const double elapsed_s = std::chrono::duration<double>(Clock::now() - *began).count();
      const std::string left = part > 1 ? "" : time_left(elapsed_s, repeat + part, point.plan.repeats);
      std::vector<std::string> lines = {fmt::format("{}{}repeat {} of {}{}", title, title.empty() ? "" : ", ", repeat + 1,
                                                    point.plan.repeats,
                                                    Interrupt::is_set() ? "; ending after the copies in flight" : left)};
      if (transfers.size() + 1 < terminal_rows()) {
        for (const StreamProgress& transfer : transfers) lines.push_back(line_of(transfer, names[transfer.index], name_width));
      } else {
        lines.push_back(sum_of(transfers));
      }
      report_.show_progress_lines(lines);
    };
    options.stop = &Interrupt::flag();
    auto result = run(point, options);
    report_.end_progress();
    if (result) {
      point.report = std::move(result).value();
      assume_links(*point.report);
    } else {
      point.error = result.error().record();
    }
    output_->after(point);
    judge(point);
  }

  // With --plain half of the plain copies are timed before the run and half after it, so that a drift of the machine shows in both.
  Result<StreamReport> run(Point& point, const StreamOptions& options) {
    if (!options_.times_plain_copies) return run_streams(point.plan, options);
    if (machine_.is_stand_in()) refuse_usage("--plain: cudaMemcpyAsync needs a GPU; a stand-in has none");
    const std::vector<Transfer>& transfers = point.plan.transfers;
    std::vector<std::vector<double>> samples(transfers.size());
    const auto sample = [&] {
      for (unsigned i = 0; i < point.plan.repeats && !Interrupt::is_set(); ++i) {
        for (std::size_t one = 0; one < transfers.size(); ++one) {
          if (has_plain_form(transfers[one])) samples[one].push_back(plain_rate(machine_, one, transfers[one]));
        }
      }
    };
    sample();
    auto result = run_streams(point.plan, options);
    sample();
    for (std::vector<double>& each : samples) point.plain.push_back(figure_of(std::move(each)));
    return result;
  }

  // What --link says of links whose rate the machine does not tell.
  void assume_links(StreamReport& report) const {
    if (!options_.link_gb_per_s) return;
    for (TransferReport& transfer : report.transfers) {
      if (transfer.link.gb_per_s > 0 || !moves_data(transfer.transfer.executor)) continue;
      transfer.link.gb_per_s = *options_.link_gb_per_s;
      transfer.link.reason = "the rate is that of --link" + (transfer.link.reason.empty() ? "" : "; " + transfer.link.reason);
      const StreamFigure& rate = transfer.transfer.is_background ? transfer.window_gb_per_s : transfer.life_gb_per_s;
      transfer.ratio = rate.samples.empty() ? 0 : rate.median / transfer.link.gb_per_s;
    }
  }

  // What the exit status says of a point.
  void judge(const Point& point) {
    const std::string title = point.title.empty() ? "" : point.title + ": ";
    // A cell that this machine cannot have is the matrix' N/A.
    if (point.error && (point.preset.empty() || !is_absent(*point.error))) {
      is_bad_usage_ |= point.error->status == Status::invalid_argument;
      failures_.push_back(title + point.error->message());
    }
    if (!point.report) return;
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      const TransferReport& report = point.report->transfers[i];
      const std::string name = fmt::format("transfer {} ({})", i, short_text(report.transfer));
      if (report.error) {
        failures_.push_back(title + report.error->message());
      } else if (copy_count(report) == 0 && !report.transfer.is_background && !point.report->was_stopped) {
        failures_.push_back(fmt::format("{}{}: nothing was measured", title, name));
      } else if (options_.expected_ratio) {
        judge_ratio(title, name, report);
      }
    }
  }

  // Transfers that --expect does not judge are each noted once.
  void judge_ratio(const std::string& title, const std::string& name, const TransferReport& report) {
    const Transfer& transfer = report.transfer;
    if (transfer.is_background || transfer.is_latency || !moves_data(transfer.executor) || report.life_gb_per_s.samples.empty())
      return;
    if (!(report.ratio > 0)) {
      const std::string line = fmt::format("{}: its link's rate is unknown{}{}, so --expect does not judge it", name,
                                           report.link.reason.empty() ? "" : ": ", report.link.reason);
      if (noted_.insert(line).second) note(line);
    } else if (report.ratio < *options_.expected_ratio) {
      misses_.push_back(fmt::format("{}{}: {:.3f} GB/s is {:.1f} % of the {:.3f} GB/s of its link ({}); --expect {}", title, name,
                                    report.life_gb_per_s.median, 100 * report.ratio, report.link.gb_per_s, report.link.name,
                                    *options_.expected_ratio));
    }
  }

  // Ends the command unless all is well: interrupted, then failed, then below what was expected.
  void conclude() const {
    if (Interrupt::is_set()) throw CommandFailure(kExitInterrupted, "interrupted; the figures are of what was done until then");
    if (!failures_.empty()) throw CommandFailure(is_bad_usage_ ? kExitBadUsage : kExitFailed, first_of(failures_));
    if (!misses_.empty()) throw CommandFailure(kExitBelowExpectation, first_of(misses_));
  }

  void run_points(PresetRun& all) {
    const bool is_preset = !all.preset.name.empty();
    const std::size_t count = all.points.size();
    for (std::size_t i = 0; i < count && !Interrupt::is_set(); ++i) {
      Point& point = all.points[i];
      run(point, count == 1 && !is_preset ? "" : fmt::format("{} of {}", i + 1, count));
      if (is_preset) continue;
      report_.add_result(point_json(point, "transfers"));
      if (point.error) break;  // larger sizes will not do better
    }
    if (!is_preset) return;
    output_->preset(all);
    report_.add_result(preset_json(all));
  }

  const Options& options_;
  Report report_;
  Machine machine_;
  std::unique_ptr<Output> output_;
  std::vector<std::string> failures_;
  bool is_bad_usage_ = false;
  std::vector<std::string> misses_;  // below --expect
  std::set<std::string> noted_;
};

// --- Options --------------------------------------------------------------------------------------------------------------------

// FROM:TO[:FACTOR] into the sizes. Returns what is wrong with it.
std::string read_sweep(const std::string& text, std::vector<std::size_t>& sizes) {
  const std::size_t first = std::min(text.find(':'), text.size());
  const std::size_t second = std::min(text.find(':', first + 1), text.size());
  if (first == text.size()) return fmt::format("'{}' has no second size; write FROM:TO[:FACTOR], as in 64K:1G or 1M:1G:4", text);
  const auto from = parse_size(text.substr(0, first));
  const auto to = parse_size(text.substr(first + 1, second - first - 1));
  const auto factor = second == text.size() ? 2 : parse_size(text.substr(second + 1));
  if (!from || !to) return fmt::format("'{}' needs two sizes: bytes, or numbers with K, M or G (powers of 1024)", text);
  if (*from == 0 || *from > *to) return fmt::format("'{}': the first size is above 0 and not larger than the second", text);
  if (!factor || *factor < 2) return fmt::format("'{}': the factor is a whole number from 2", text);
  sizes.clear();
  for (std::size_t bytes = *from; bytes <= *to; bytes *= *factor) {
    sizes.push_back(bytes);
    if (bytes > std::numeric_limits<std::size_t>::max() / *factor) break;
  }
  return {};
}

void add_transfer_options(const Command& command, Options& options) {
  using Kind = Argument::Kind;
  // Read at once, so that they keep the order of the command line.
  const auto add = [&](const std::string& names, Kind kind, const std::string& value, const std::string& description) {
    return command
        .add_option_function(
            names, [&options, kind](const std::string& text) { options.arguments.push_back({kind, text}); }, description)
        ->trigger_on_parse()
        ->type_name(value)
        ->group("Transfers (each may be repeated; they are numbered in this order)");
  };
  add("-d,--dtoh", Kind::device_to_host, "ID", "GPU to host")->check(whole_number(0, 1023));
  add("-h,--htod", Kind::host_to_device, "ID", "Host to GPU")->check(whole_number(0, 1023));
  add("-p,--dtod", Kind::device_to_device, "DST,SRC", "GPU to GPU; the destination comes first, and reads");
  add("-t,--transfer", Kind::text, "WORDS", "In words, as 'gpu0->host:1 ce bytes=64M', several with ';'");
  add("-f,--file", Kind::file, "FILE", "A file with a transfer on each line, '#' before comments; '-': standard input");
  command
      .add_option("--preset", options.presets, Value{"NAME"},
                  "One of nvbandwidth's test cases, run cell by cell; 'list' lists them")
      ->allow_extra_args(false)
      ->group("Instead of transfers");
  command.add_flag("--list-presets", options.lists_presets, "List the presets")->group("Instead of transfers");
}

void add_default_options(const Command& command, Options& options) {
  std::vector<Named<HostPages>> pages;
  for (const HostPages one : {HostPages::pinned, HostPages::pageable, HostPages::write_combined, HostPages::huge}) {
    pages.push_back({one, name_of(one)});
  }
  const auto grouped = [](const Option& option) { return option.group("What transfers do that do not say it themselves"); };
  grouped(command.add_option("-s,--size", options.bytes, byte_count(1, std::uint64_t{1} << 50),
                             "Bytes of one copy (default: 1G; presets: 512M)"));
  const Option iterations =
      grouped(command.add_option("-i,--iter,--iterations", options.iterations, whole_number(1, std::uint64_t{1} << 40),
                                 "Copies of each transfer (default: 100; presets: 16)"));
  grouped(command.add_option("--seconds", options.seconds, seconds(86400), "Copy for this long instead of --iter times"))
      ->excludes(iterations);
  grouped(command.add_option("--executor", options.executor, Value{"NAME"},
                             "Who moves the bytes: ce, sm or cpu, with -push, -pull, :BLOCKS or :THREADS (default: ce)"));
  grouped(command.add_choice("--pages", options.pages, pages, "Host memory: pinned (default), pageable, wc or huge"))
      ->type_name("KIND")
      ->default_str("");
  grouped(command.add_flag("!-n,!--no-numa-affinity", options.is_near,
                           "Host memory where the system puts it, not on the GPU's NUMA node"));
  grouped(command.add_flag("--stage", options.may_stage,
                           "Let the driver stage copies between GPUs without peer access through the host"));
}

void add_run_and_output_options(const Command& command, Options& options) {
  command
      .add_option_function(
          "--sweep", [](const std::string&) {}, "Run all for each size FROM, FROM*FACTOR, ... up to TO (default: factor 2)")
      ->check([&options](std::string& text) { return read_sweep(text, options.sweep_sizes); })
      ->type_name("FROM:TO[:FACTOR]");
  command.add_option("--repeats", options.repeat_count, whole_number(1, 1000), "Whole runs, over which medians are taken");
  command.add_flag("!--no-verify", options.is_verified, "Do not compare what arrived");
  command.add_option("--timeout", options.timeout_seconds, seconds(604800),
                     "Of one repeat: one that takes longer is ended (default: 300, and the seconds that were asked for)");
  command.add_flag("--dry-run", options.is_dry_run, "Print the transfers as lines for --file, and run nothing");
  command.add_option("--devices", options.device_count, whole_number(1, 1024), "Devices that a dry run assumes");
  command.add_option("--expect", options.expected_ratio, number_above_0(1.5, "RATIO"),
                     "Fail when a transfer has less than this of its link's rate, as in 0.8");
  command.add_flag("--plain", options.times_plain_copies,
                   "Also time plain cudaMemcpyAsync, alone, over the same kind of memory, for copies between a GPU and the host");
  command.add_option("--link", options.link_gb_per_s, number_above_0(1e6, "GB_PER_S"),
                     "Rate of links that the machine does not tell, for --expect");
  constexpr std::array<Named<Format>, 4> kFormats = {
      {{Format::table, "table"}, {Format::cuts, "cuts"}, {Format::json, "json"}, {Format::csv, "csv"}}};
  command
      .add_choice("--format", options.format, kFormats,
                  "table (default), cuts (the lines of CUts), json, or csv (a line for each repeat)")
      ->type_name("NAME")
      ->default_str("");
  add_json_option(command, options.json_path);
}

}  // namespace

void run(const Options& options, const Invocation& invocation) {
  Session session(options, invocation);
  if (options.lists_presets) return session.list_presets();
  if (options.is_dry_run) return session.print_plan();
  session.run_all();
}

}  // namespace streams

void add_streams(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<streams::Options>(
      program, invocation, "streams",
      "Many transfers at once, GPU-GPU and GPU-host: rates together and alone, against their links, data verified",
      [](streams::Options& chosen, const Invocation& invoked) {
        if (std::erase(chosen.presets, "list") > 0) chosen.lists_presets = true;
        streams::run(chosen, invoked);
      });
  command->set_version_flag("-V,--version", "gigabar " GIGABAR_VERSION);
  command->add_help_flag("--usage", "As --help");
  command->set_help_flag("-?,--help", "Print this help (-h is CUts' host to GPU)");
  streams::add_transfer_options(command, options);
  streams::add_default_options(command, options);
  streams::add_run_and_output_options(command, options);
  command->footer(
      "In words: ENDS [EXECUTOR] [KEY=VALUE | WORD]...\n"
      "  ENDS      PLACE->PLACE; PLACE is gpuN, gpu[A,B], gpu[A..B], gpu*, or host, host:NODE, host:any\n"
      "  EXECUTOR  ce, ce-push, ce-pull, sm, sm-push, sm-pull, cpu, flag, chase; sm:BLOCKS, cpu:THREADS\n"
      "  KEY       bytes (K, M, G), iterations, seconds, delay, pages, group, count\n"
      "  WORD      background, latency, stage\n"
      "\n"
      "Exit status: 0 done; 1 a transfer failed, or its data was wrong; 2 the command line cannot be followed;\n"
      "3 a transfer is below --expect (not those in the background, latencies, and links of unknown rate, which are\n"
      "told); 130 interrupted by SIGINT or SIGTERM, after what was measured until then was printed.");
}

}  // namespace gigabar::tool
