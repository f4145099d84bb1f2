// SPDX-License-Identifier: Apache-2.0
// What the command line of `gigabar streams` asks for; one plan that is run, what came of it, and what is said of that: the only
// one, a size of a sweep, or a cell of a preset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/in_place.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/streams.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {

enum class Format : std::uint8_t { table, cuts, json, csv };

// One of the options that add transfers. Their order on the command line is that of the transfers.
struct Argument {
  enum class Kind : std::uint8_t { device_to_host, host_to_device, device_to_device, text, file };
  Kind kind;
  std::string text;  // as typed; one device has been checked
};

struct Options {
  std::vector<Argument> arguments;
  std::vector<std::string> presets;
  bool lists_presets = false;

  // Of transfers that do not say it themselves. Nothing: CUts' value, for presets nvbandwidth's.
  std::optional<std::size_t> bytes;
  std::optional<std::uint64_t> iterations;
  std::optional<double> seconds;
  std::string executor;
  HostPages pages = HostPages::pinned;
  bool is_near = true;  // host memory on the GPU's node
  bool may_stage = false;

  std::vector<std::size_t> sweep_sizes;  // bytes; empty: no sweep
  unsigned repeat_count = 5;
  bool is_verified = true;
  std::optional<double> timeout_seconds;

  bool is_dry_run = false;
  std::optional<int> device_count;  // of a dry run
  std::optional<double> expected_ratio;
  std::optional<double> link_gb_per_s;  // of links whose rate the machine does not tell
  bool times_plain_copies = false;
  Format format = Format::table;
  std::string json_path;
};

// Does what the options ask for. Returns when all is well, and ends the command otherwise, after everything was printed and
// written.
void run(const Options& options, const Invocation& invocation);

inline constexpr int kExitBelowExpectation = 3;  // behind kExitFailed and kExitBadUsage

// --- A plan and what came of it -------------------------------------------------------------------------------------------------

struct Machine {
  int device_count = 0;
  std::vector<DeviceInfo> devices;  // empty in a dry run for assumed devices

  bool is_stand_in() const noexcept { return !devices.empty() && devices.front().is_stand_in; }
  std::string_view label() const noexcept { return stand_in_label(is_stand_in()); }
};

// Without a preset only the plan of the cell counts.
struct Point : StreamCell {
  std::string title;  // "64K per copy"; empty for the only one
  std::optional<std::size_t> swept_bytes;
  std::string preset;  // whose cell it is
  // One of both once it has been run; neither before, or when an interrupt came first.
  std::optional<StreamReport> report;
  std::optional<ErrorRecord> error;
  // With --plain, by the plan's index: cudaMemcpyAsync instead, alone.
  std::vector<StreamFigure> plain;
};

// A preset's matrices, run as far as the points tell; without a name: the transfers of the command line.
struct PresetRun {
  StreamPreset preset;
  std::vector<Point> points;  // one per cell, in the cells' order; without a name: the only one, or one for each size of the sweep
};

// --- From the command line to points. What cannot be followed ends the command as bad usage, naming the option or FILE:LINE:COLUMN

// What a transfer is that says nothing but its ends: CUts' size and iterations, for presets those of nvbandwidth.
Transfer default_transfer(const Options& options);

// Each preset, or each size of it, with its points, each named and with the command line's repeats. Presets are checked.
std::vector<PresetRun> make_runs(const Options& options, int device_count);

// What is wrong with a plan before anything has been run is the command line's fault.
void check(const PresetRun& run, int device_count);

// --- What came of them ----------------------------------------------------------------------------------------------------------

// Not there on this machine, which is the matrix' "N/A" and no failure.
bool is_absent(const ErrorRecord& error) noexcept;

// "gpu0->host:1 sm-push:8": the ends and who moves the bytes.
std::string short_text(const Transfer& transfer);
// All copies of all repeats; for executors that move no data, the samples.
std::uint64_t copy_count(const TransferReport& report) noexcept;

// --- What is said of them -------------------------------------------------------------------------------------------------------

// What is printed as text: one class for each --format. This one, of --format json, prints nothing.
class Output : InPlace {
 public:
  Output(Report& report, const Machine& machine) : report_(report), machine_(machine) {}
  virtual ~Output() = default;

  // Around each point, and now and then in it.
  virtual void before(const Point& /*point*/) {}
  virtual void during() {}
  virtual void after(const Point& /*point*/) {}
  // A whole preset, after its points.
  virtual void preset(const PresetRun& /*run*/) {}

 protected:
  Report& report_;
  const Machine& machine_;
};

// Before anything is run; prints what stands above all.
std::unique_ptr<Output> make_output(const Options& options, Report& report, const Machine& machine);

// --- The document of --json and --format json: as that of the other commands, with every parameter and every sample --------------

// What stands beside the results.
void describe(const Options& options, Json& document);
void describe(const Machine& machine, Json& document);

// A result. `measure`: its kind, "transfers".
Json point_json(const Point& point, std::string_view measure);
Json preset_json(const PresetRun& run);

}  // namespace gigabar::tool::streams
