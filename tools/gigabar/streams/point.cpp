// SPDX-License-Identifier: Apache-2.0
#include "streams/command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "base/options.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"

namespace gigabar::tool::streams {
namespace {

constexpr std::size_t kPresetBytes = std::size_t{512} << 20;
constexpr std::uint64_t kPresetIterations = 16;

int parse_device(std::string_view text, const std::string& pair) {
  const auto number = parse_number<int>(text, 0, 1023);
  if (!number) refuse_usage(fmt::format("-p {}: '{}' is not a device; write its number, as in -p 1,0", pair, text));
  return *number;
}

// Only the executor with its side and worker count may come out of the text.
void apply_executor(const std::string& text, Transfer& defaults) {
  if (text.empty()) return;
  const auto parsed = parse_transfers("gpu0->host " + text, Transfer{}, 1);
  const bool is_word = text.find_first_of(" \t\n;#=") == std::string::npos && parsed && parsed->size() == 1;
  const Transfer read = is_word ? parsed->front() : Transfer{};
  if (!is_word || read.is_background || read.may_stage || (read.is_latency && moves_data(read.executor))) {
    refuse_usage(
        fmt::format("--executor {}: give one word, ce, ce-push, ce-pull, sm, sm-push, sm-pull, sm:BLOCKS, cpu, cpu:THREADS, "
                    "flag or chase",
                    text));
  }
  defaults.executor = read.executor;
  defaults.side = read.side;
  defaults.worker_count = read.worker_count;
  defaults.is_latency = read.is_latency;
}

Transfer peer_transfer(Transfer transfer, const std::string& text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) refuse_usage(fmt::format("-p {}: give two devices, destination first, as in -p 1,0", text));
  transfer.destination.device = parse_device(text.substr(0, comma), text);
  transfer.source.device = parse_device(text.substr(comma + 1), text);
  if (transfer.side == StreamSide::automatic) transfer.side = StreamSide::destination;
  return transfer;
}

using Transfers = std::vector<Transfer>;

// `where` stands before what is wrong.
void append(Transfers& all, Result<Transfers> parsed, const std::string& where) {
  if (!parsed) {
    const ErrorRecord& error = parsed.error().record();
    refuse_usage(fmt::format("{}{}: {}{}{}", where, error.object, error.cause, error.remedy.empty() ? "" : "; ", error.remedy));
  }
  all.insert(all.end(), parsed->begin(), parsed->end());
}

void append_file(Transfers& all, const std::string& path, const Transfer& defaults, int device_count) {
  constexpr std::string_view kRemedy = "name a text file with a transfer on each line";
  const InputForm form{std::size_t{64} << 20, kRemedy, kRemedy};
  std::istringstream lines(path == "-" ? read_standard_input("-f -", form) : read_file("-f", path, form));
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    append(all, parse_transfers(line, defaults, device_count, ++number), (path == "-" ? "standard input" : path) + ":");
  }
}

// The transfers of -d, -h, -p, -t and -f, in the order of the command line.
std::vector<Transfer> collect_transfers(const Options& options, int device_count) {
  const Transfer defaults = default_transfer(options);
  Transfers transfers;
  for (const Argument& argument : options.arguments) {
    switch (argument.kind) {
      case Argument::Kind::device_to_host: transfers.emplace_back(defaults).source.device = std::stoi(argument.text); break;
      case Argument::Kind::host_to_device: transfers.emplace_back(defaults).destination.device = std::stoi(argument.text); break;
      case Argument::Kind::device_to_device: transfers.push_back(peer_transfer(defaults, argument.text)); break;
      case Argument::Kind::text:
        append(transfers, parse_transfers(argument.text, defaults, device_count), fmt::format("-t '{}': ", argument.text));
        break;
      case Argument::Kind::file: append_file(transfers, argument.text, defaults, device_count); break;
    }
  }
  return transfers;
}

// `swept_bytes`: the size of the sweep, which the cells of a preset have already.
void add_point(const Options& options, const StreamCell& cell, std::optional<std::size_t> swept_bytes, PresetRun& run) {
  Point& point = run.points.emplace_back();
  static_cast<StreamCell&>(point) = cell;
  point.plan.repeats = options.repeat_count;
  point.plan.is_verified = options.is_verified;
  // No option limits the default, so it must not end what was asked to last.
  double longest_seconds = 0;
  for (const Transfer& transfer : point.plan.transfers) {
    longest_seconds = std::max(longest_seconds, transfer.delay_seconds + (transfer.iterations == 0 ? transfer.seconds : 0));
  }
  point.plan.timeout_seconds = options.timeout_seconds.value_or(StreamPlan{}.timeout_seconds + longest_seconds);
  point.swept_bytes = swept_bytes;
  point.preset = run.preset.name;
  const bool is_cell = !point.preset.empty();
  if (is_cell) {
    point.title =
        fmt::format("{}{}{} row {}, column {}", point.preset, cell.matrix.empty() ? "" : " ", cell.matrix, cell.row, cell.column);
  }
  if (!swept_bytes) return;
  point.title += fmt::format("{}{} per copy", is_cell ? ", " : "", format_bytes(*swept_bytes));
  for (Transfer& transfer : point.plan.transfers) transfer.bytes = is_cell ? transfer.bytes : *swept_bytes;
}

}  // namespace

Transfer default_transfer(const Options& options) {
  const bool is_preset = !options.presets.empty();
  Transfer transfer;
  transfer.bytes = options.bytes.value_or(is_preset ? kPresetBytes : transfer.bytes);
  transfer.iterations = options.iterations.value_or(is_preset ? kPresetIterations : transfer.iterations);
  if (options.seconds) {
    transfer.iterations = 0;
    transfer.seconds = *options.seconds;
  }
  for (StreamPlace* const place : {&transfer.source, &transfer.destination}) {
    place->pages = options.pages;
    place->numa_node = options.is_near ? StreamPlace::kNearestNode : StreamPlace::kAnyNode;
  }
  transfer.may_stage = options.may_stage;
  apply_executor(options.executor, transfer);
  return transfer;
}

std::vector<PresetRun> make_runs(const Options& options, int device_count) {
  std::vector<std::optional<std::size_t>> sizes(options.sweep_sizes.begin(), options.sweep_sizes.end());
  if (sizes.empty()) sizes.emplace_back();
  std::vector<PresetRun> runs;
  if (options.presets.empty()) {
    StreamCell all;
    all.plan.transfers = collect_transfers(options, device_count);
    if (all.plan.transfers.empty()) refuse_usage("nothing to transfer; give -d, -h, -p, -t, -f or --preset");
    runs.emplace_back();
    for (const auto& bytes : sizes) add_point(options, all, bytes, runs.back());
  }
  for (const std::string& name : options.presets) {
    for (const auto& bytes : sizes) {
      Transfer defaults = default_transfer(options);
      defaults.bytes = bytes.value_or(defaults.bytes);
      auto preset = stream_preset(name, defaults, device_count);
      if (!preset) refuse_usage(fmt::format("--preset {}: {}; --list-presets lists them", name, preset.error().record().cause));
      PresetRun& run = runs.emplace_back();
      run.preset = std::move(preset).value();
      for (const StreamCell& cell : run.preset.cells) add_point(options, cell, bytes, run);
      check(run, device_count);
    }
  }
  return runs;
}

void check(const PresetRun& run, int device_count) {
  for (const Point& point : run.points) {
    if (const auto outcome = check_plan(point.plan, device_count); !outcome) refuse_usage(outcome.message());
  }
}

// --- What came of a point -------------------------------------------------------------------------------------------------------

std::string short_text(const Transfer& transfer) {
  const std::string whole = to_string(transfer);
  std::string text = whole.substr(0, whole.find(' '));
  text += fmt::format(" {}", name_of(transfer.executor));
  if (transfer.side == StreamSide::source) text += "-push";
  if (transfer.side == StreamSide::destination) text += "-pull";
  if (transfer.worker_count != 0) text += fmt::format(":{}", transfer.worker_count);
  if (transfer.is_background) text += " background";
  return text;
}

std::uint64_t copy_count(const TransferReport& report) noexcept {
  if (!moves_data(report.transfer.executor)) return report.latency ? report.latency->sample_count : 0;
  return report.transfer.bytes == 0 ? 0 : report.bytes_moved / report.transfer.bytes;
}

bool is_absent(const ErrorRecord& error) noexcept {
  return error.status == Status::not_supported || error.status == Status::unavailable;
}

}  // namespace gigabar::tool::streams
