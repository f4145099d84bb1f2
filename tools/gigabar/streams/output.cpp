// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/options.hpp"
#include "streams/command.hpp"
#include "streams/plan.hpp"
#include "support/names.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {
namespace {

// --- The matrices of presets ----------------------------------------------------------------------------------------------------

struct Matrix {
  std::string name;  // empty, or "read1", ...
  // By row, then column: GB/s, or ns of a latency preset; or the word in its place: "N/A", "failed", "-" (not run, or interrupted).
  std::vector<std::vector<Json>> cells;
  // Over the cells with a figure. No values: there was none.
  std::optional<double> sum, min, max;
};

// The cell's figure is the sum over the transfers of this group.
constexpr std::string_view kMeasuredGroup = "measured";

// A total is there as soon as one transfer of its group has a rate.
Json cell_of(const Point& point, bool is_latency) {
  if (point.error) return is_absent(*point.error) ? "N/A" : "failed";
  if (!point.report) return "-";
  if (!point.report->is_ok()) return "failed";
  for (const TransferReport& each : point.report->transfers) {
    if (is_latency && each.transfer.group == kMeasuredGroup && each.latency) return each.latency->p50_us * 1000.0;
  }
  for (const StreamTotal& total : point.report->totals) {
    if (!is_latency && total.group == kMeasuredGroup) return total.sum_gb_per_s.median;
  }
  return point.report->was_stopped ? "-" : "failed";
}

// As far as the points have been run.
std::vector<Matrix> matrices_of(const PresetRun& run) {
  std::vector<Matrix> matrices;
  const std::vector<Json> blank(static_cast<std::size_t>(run.preset.column_count), "N/A");
  for (const Point& point : run.points) {
    const auto found = std::ranges::find(matrices, point.matrix, &Matrix::name);
    Matrix& matrix = found == matrices.end() ? matrices.emplace_back() : *found;
    matrix.name = point.matrix;
    matrix.cells.resize(static_cast<std::size_t>(run.preset.row_count), blank);
    Json& cell = matrix.cells.at(static_cast<std::size_t>(point.row)).at(static_cast<std::size_t>(point.column));
    cell = cell_of(point, run.preset.is_latency);
    if (!cell.is_number()) continue;
    const auto figure = cell.get<double>();
    matrix.sum = matrix.sum.value_or(0) + figure;
    matrix.min = std::min(matrix.min.value_or(figure), figure);
    matrix.max = std::max(matrix.max.value_or(figure), figure);
  }
  return matrices;
}

// --- Tables for people: a group of rows for each point, and the matrices of presets ---------------------------------------------

std::string rate_text(const StreamFigure& figure) { return figure.samples.empty() ? "-" : fmt::format("{:.3f}", figure.median); }

std::string range_text(const StreamFigure& figure) {
  return figure.samples.empty() ? "" : fmt::format("({:.3f}..{:.3f})", figure.min, figure.max);
}

std::string verified_text(const StreamPlan& plan, const TransferReport& report) {
  if (!moves_data(report.transfer.executor)) return "-";
  if (report.error) return report.error->status == Status::verification_failed ? "WRONG" : "failed";
  if (report.is_verified) return "yes";
  return plan.is_verified ? "no" : "off";
}

class TableOutput : public Output {
 public:
  TableOutput(const Options& options, Report& report, const Machine& machine) : Output(report, machine) {
    for (const DeviceInfo& device : machine_.devices) report_.print("{}", device_line(device));
    if (machine_.is_stand_in()) report_.print("note: {}\n", kStandInNote);
    report_.print("rates in 10^9 bytes per second (GB/s): median of {}, and the least and the most of them; {}{}\n",
                  counted(options.repeat_count, "run"), options.is_verified ? "data verified" : "data not verified",
                  machine_.label());
  }

  void after(const Point& point) override {
    if (!point.preset.empty()) return;  // preset() shows it
    report_.print("\n");
    if (!point.title.empty()) report_.print("{}{}\n", point.title, machine_.label());
    if (point.error) return;  // the command ends with it
    add_rows(point);
    for (TextTable* const table : {&transfers_, &latencies_, &totals_}) {
      if (!table->is_empty()) report_.print("{}", table->take_text());
    }
    print_plain(point);
    print_paths(*point.report);
    print_problems(*point.report, "");
    if (point.report->was_stopped) report_.print("interrupted: the figures are of what was done until then\n");
  }

  void preset(const PresetRun& run) override {
    report_.print("\n{}: {}{}\n", run.preset.name, run.preset.description, machine_.label());
    if (!run.points.empty() && run.points.front().swept_bytes) {
      report_.print("{} per copy\n", format_bytes(*run.points.front().swept_bytes));
    }
    if (!run.preset.waived.empty()) report_.print("waived: {}\n", run.preset.waived);
    for (const Matrix& matrix : matrices_of(run)) print_matrix(run.preset, matrix);
    for (const Point& point : run.points) {
      const std::string place = fmt::format("{}{}{},{} ", point.matrix, point.matrix.empty() ? "" : " ", point.row, point.column);
      if (point.error) report_.print("{}{}: {}\n", place, is_absent(*point.error) ? "N/A" : "failed", point.error->message());
      if (point.report) print_problems(*point.report, place);
    }
  }

 private:
  void add_rows(const Point& point) {
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      const TransferReport& report = point.report->transfers[i];
      const Transfer& transfer = report.transfer;
      transfers_.add_row({std::to_string(i), short_text(transfer),
                          transfer.executor == StreamExecutor::flag ? "-" : format_bytes(transfer.bytes),
                          std::to_string(copy_count(report)), rate_text(report.window_gb_per_s), rate_text(report.life_gb_per_s),
                          range_text(report.life_gb_per_s), report.link.name,
                          report.link.gb_per_s > 0 ? fmt::format("{:.3f}", report.link.gb_per_s) : "-",
                          report.ratio > 0 ? fmt::format("{:.1f} %", 100 * report.ratio) : "-", verified_text(point.plan, report)});
      if (report.latency) {
        const StreamLatency& latency = *report.latency;
        latencies_.add_row({std::to_string(i), short_text(transfer), std::to_string(latency.sample_count),
                            fmt::format("{:.3f}", latency.min_us), fmt::format("{:.3f}", latency.p50_us),
                            fmt::format("{:.3f}", latency.p99_us), fmt::format("{:.3f}", latency.max_us)});
      }
    }
    for (const StreamTotal& total : point.report->totals) {
      if (total.aggregate_gb_per_s.samples.empty()) continue;
      const std::string overlap =
          total.overlap_percent.samples.empty() ? "-" : fmt::format("{:.1f} %", total.overlap_percent.median);
      totals_.add_row({total.group.empty() ? "all" : "group " + total.group, rate_text(total.aggregate_gb_per_s),
                       range_text(total.aggregate_gb_per_s), rate_text(total.sum_gb_per_s), overlap});
    }
  }

  // Who moved the bytes, where the pages are, why a link is unknown; not said again while it stays so.
  void print_paths(const StreamReport& report) {
    std::string text;
    for (std::size_t i = 0; i < report.transfers.size(); ++i) {
      const TransferReport& transfer = report.transfers[i];
      text += fmt::format("{}: {}", i, transfer.path);
      if (!transfer.host_placement.empty()) text += "; host pages: " + transfer.host_placement;
      if (!transfer.link.reason.empty()) text += "; link: " + transfer.link.reason;
      text += '\n';
    }
    if (text == paths_) return;
    paths_ = text;
    report_.print("{}", text);
  }

  void print_plain(const Point& point) const {
    for (std::size_t i = 0; i < point.plain.size(); ++i) {
      if (point.plain[i].samples.empty()) continue;
      const StreamFigure& life = point.report->transfers[i].life_gb_per_s;
      report_.print("{}: plain cudaMemcpyAsync, alone: {} GB/s {}", i, rate_text(point.plain[i]), range_text(point.plain[i]));
      if (!life.samples.empty()) report_.print("; this transfer: {:.3f} of it", life.median / point.plain[i].median);
      report_.print("\n");
    }
  }

  // Each line behind `place`, that of a cell.
  void print_problems(const StreamReport& report, std::string_view place) const {
    for (const std::string& warning : report.warnings) report_.print("{}warning: {}\n", place, warning);
    for (std::size_t i = 0; i < report.transfers.size(); ++i) {
      const auto& error = report.transfers[i].error;
      if (error) report_.print("{}failed: transfer {}: {}\n", place, i, error->message());
    }
  }

  void print_matrix(const StreamPreset& preset, const Matrix& matrix) const {
    report_.print("{}{}{}\n", matrix.name, matrix.name.empty() ? "" : " ",
                  preset.is_latency ? "latency, ns (median)" : "bandwidth, GB/s");
    std::vector<TextTable::Column> columns = {{""}};
    for (int column = 0; column < preset.column_count; ++column) columns.push_back({fmt::format("{:>10}", column)});
    TextTable table(columns);
    for (std::size_t row = 0; row < matrix.cells.size(); ++row) {
      std::vector<std::string> entries = {std::to_string(row)};
      for (const Json& cell : matrix.cells[row])
        entries.push_back(cell.is_number() ? fmt::format("{:.2f}", cell.get<double>()) : cell.get<std::string>());
      table.add_row(std::move(entries));
    }
    report_.print("{}", table.take_text());
    const std::string key = preset.name + (matrix.name.empty() ? "" : "_" + matrix.name);
    for (const auto& [word, figure] : {std::pair("SUM", matrix.sum), std::pair("MIN", matrix.min), std::pair("MAX", matrix.max)}) {
      report_.print("{} {} {}{}\n", word, key, figure ? fmt::format("{:.2f}", *figure) : "N/A", machine_.label());
    }
  }

  TextTable transfers_ = TextTable({{"#"},
                                    {"transfer", true},
                                    {"bytes"},
                                    {"copies"},
                                    {"window GB/s"},
                                    {"life GB/s"},
                                    {"(least..most)", true},
                                    {"link", true},
                                    {"link GB/s"},
                                    {"ratio"},
                                    {"verified", true}});
  TextTable latencies_ = TextTable({{"#"}, {"latency, us", true}, {"samples"}, {"least"}, {"p50"}, {"p99"}, {"most"}});
  TextTable totals_ = TextTable({{"total", true}, {"aggregate GB/s"}, {"(least..most)", true}, {"sum GB/s"}, {"overlap"}});
  std::string paths_;
};

// --- CSV: one line per transfer and repeat, after one line of names; quoted as RFC 4180 says -------------------------------------

// Of a field; nothing for null.
std::string text_of(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (!value.is_string()) return value.dump();
  auto text = value.get<std::string>();
  return text.find_first_of(",\"\r\n") == std::string::npos ? text : csv_quoted(text);
}

// Null behind the last repeat of the figure.
Json sample(const StreamFigure& figure, std::optional<std::size_t> repeat) {
  return repeat && *repeat < figure.samples.size() ? Json(fmt::format("{:.9g}", figure.samples[*repeat])) : Json();
}

// A line: one transfer, all repeats of it or one.
Json fields_of(const Point& point, std::size_t index, const TransferReport& report, std::optional<std::size_t> repeat,
               bool is_stand_in) {
  const Transfer& transfer = report.transfer;
  const auto latency = [&](auto member) { return report.latency ? Json((*report.latency).*member) : Json(); };
  return {{"preset", point.preset},
          {"matrix", point.matrix},
          {"row", point.preset.empty() ? Json() : Json(point.row)},
          {"column", point.preset.empty() ? Json() : Json(point.column)},
          {"transfer", index},
          {"what", short_text(transfer)},
          {"executor", name_of(transfer.executor)},
          {"group", transfer.group},
          {"is_background", transfer.is_background},
          {"bytes", transfer.bytes},
          {"repeat", or_null(repeat)},
          {"seconds", sample(report.seconds, repeat)},
          {"life_gb_per_s", sample(report.life_gb_per_s, repeat)},
          {"window_gb_per_s", sample(report.window_gb_per_s, repeat)},
          {"bytes_moved_all_repeats", point.error ? Json() : Json(report.bytes_moved)},
          {"latency_samples", latency(&StreamLatency::sample_count)},
          {"latency_min_us", latency(&StreamLatency::min_us)},
          {"latency_p50_us", latency(&StreamLatency::p50_us)},
          {"latency_p99_us", latency(&StreamLatency::p99_us)},
          {"latency_max_us", latency(&StreamLatency::max_us)},
          {"link", report.link.name},
          {"link_gb_per_s", positive_or_null(report.link.gb_per_s)},
          {"ratio", positive_or_null(report.ratio)},
          {"host_numa_node", index_or_null(report.host_numa_node)},
          {"host_placement", report.host_placement},
          {"is_verified", report.is_verified},
          {"is_stand_in", is_stand_in},
          {"error", report.error ? report.error->message() : ""}};
}

class CsvOutput : public Output {
 public:
  CsvOutput(Report& report, const Machine& machine) : Output(report, machine) {
    std::vector<std::string> names;
    const Json fields = fields_of({}, 0, {}, {}, false);
    for (const auto& field : fields.items()) names.push_back(field.key());
    report_.print("{}\r\n", fmt::join(names, ","));
  }

  void after(const Point& point) override {
    for (std::size_t i = 0; i < point.plan.transfers.size(); ++i) {
      TransferReport report;
      if (point.report) {
        report = point.report->transfers[i];
      } else {  // a plan that did not run at all: its transfers, each with the reason
        report.transfer = point.plan.transfers[i];
        report.link.name.clear();
        report.error = point.error;
      }
      const std::size_t count = std::max(report.life_gb_per_s.samples.size(), report.seconds.samples.size());
      if (count == 0) print(point, i, report, {});
      for (std::size_t repeat = 0; repeat < count; ++repeat) print(point, i, report, repeat);
    }
    if (!point.report) return;
    for (const std::string& warning : point.report->warnings) fmt::print(stderr, "warning: {}\n", warning);
  }

 private:
  void print(const Point& point, std::size_t index, const TransferReport& report, std::optional<std::size_t> repeat) const {
    std::vector<std::string> texts;
    for (const Json& value : fields_of(point, index, report, repeat, machine_.is_stand_in())) texts.push_back(text_of(value));
    report_.print("{}\r\n", fmt::join(texts, ","));
  }
};

// --- The lines of CUts, for scripts that read them. A device without a PCI address (a stand-in) says so instead of the bus -------

class CutsOutput : public Output {
 public:
  using Output::Output;

  void before(const Point& point) override {
    if (!point.title.empty()) report_.print("# {}\n", point.title);
    for (const Transfer& transfer : point.plan.transfers) report_.print("{}\n", words_of(transfer).launch);
    next_dot_ = Clock::time_point::min();
  }

  // A dot each second.
  void during() override {
    if (Clock::now() < next_dot_) return;
    next_dot_ = Clock::now() + std::chrono::seconds(1);
    report_.print(".");
  }

  void after(const Point& point) override {
    report_.print("\n");
    if (point.error) return;  // the command ends with it
    report_.print("{}\n", point.report->was_stopped ? "Interrupted." : "Completed.");
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) print(point, i);
    for (const std::string& warning : point.report->warnings) fmt::print(stderr, "warning: {}\n", warning);
  }

 private:
  const DeviceInfo& info_of(int device) const { return machine_.devices[static_cast<std::size_t>(device)]; }
  static std::string bus_of(const DeviceInfo& device) {
    if (device.is_stand_in) return "stand-in";
    if (!device.pci) return "unknown";
    if (device.pci->domain != 0) return fmt::format("0x{:04x}:0x{:02x}", device.pci->domain, device.pci->bus);
    return fmt::format("0x{:02x}", device.pci->bus);
  }
  std::string device_text(int device) const { return fmt::format("Device {} ({})", device, bus_of(info_of(device))); }

  // When a transfer begins, and in front of what came of it. What CUts cannot say is named in the long form.
  struct Words {
    std::string launch, result;
  };
  Words words_of(const Transfer& transfer) const {
    if (!moves_data(transfer.executor) || (transfer.source.is_host() && transfer.destination.is_host())) {
      const std::string text = fmt::format("{}{}", short_text(transfer), machine_.label());
      return {"Launching transfers " + text, "Transfers " + text};
    }
    if (!transfer.source.is_host() && !transfer.destination.is_host()) {
      const std::string text =
          fmt::format("from {} to {}", device_text(transfer.source.device), device_text(transfer.destination.device));
      return {"Launching P2P PCIe transfers " + text, "P2P transfers " + text};
    }
    const std::string_view direction = transfer.source.is_host() ? "Host to Device" : "Device to Host";
    const std::string device = device_text(working_device(transfer));
    // Where the host's pages are bound to; negative: nowhere. The report warns when they are elsewhere.
    int node = transfer.source.is_host() ? transfer.source.numa_node : transfer.destination.numa_node;
    if (node == StreamPlace::kNearestNode) node = info_of(working_device(transfer)).numa_node;
    return {fmt::format("Launching {} transfers with {}{}", direction, device,
                        node >= 0 ? fmt::format(" - Host buffer allocated on NUMA node {}", node) : ""),
            fmt::format("Direct transfers ({}) with {}", direction, device)};
  }

  void print(const Point& point, std::size_t index) const {
    const TransferReport& report = point.report->transfers[index];
    std::string figure;
    if (report.latency && !moves_data(report.transfer.executor)) {
      figure = fmt::format("{:.3f} us", report.latency->p50_us);
    } else if (report.life_gb_per_s.samples.empty()) {
      figure = "nothing measured";
    } else {
      figure = fmt::format("{:.3f} GB/s  ({:.2f} seconds)", report.life_gb_per_s.median, report.seconds.median);
    }
    report_.print("Transfer {} - {}: {}{}\n", index, words_of(report.transfer).result, figure,
                  report.error ? " - failed: " + report.error->message() : "");
  }

  using Clock = std::chrono::steady_clock;
  Clock::time_point next_dot_;
};

// --- The document ---------------------------------------------------------------------------------------------------------------

Json figure_json(const StreamFigure& figure) {
  if (figure.samples.empty()) return {};
  return {{"median", figure.median}, {"min", figure.min}, {"max", figure.max}, {"samples", figure.samples}};
}

Json place_json(const StreamPlace& place) {
  if (!place.is_host()) return {{"kind", "device"}, {"device", place.device}};
  Json json = {{"kind", "host"}, {"pages", name_of(place.pages)}};
  json["numa_node"] = place.numa_node >= 0                           ? Json(place.numa_node)
                      : place.numa_node == StreamPlace::kNearestNode ? Json("nearest")
                                                                     : Json("any");
  return json;
}

constexpr std::array<Named<StreamSide>, 3> kSides = {
    {{StreamSide::source, "push"}, {StreamSide::destination, "pull"}, {StreamSide::automatic, "automatic"}}};

Json transfer_json(const Transfer& transfer) {
  Json json = {{"text", to_string(transfer)},
               {"source", place_json(transfer.source)},
               {"destination", place_json(transfer.destination)},
               {"executor", name_of(transfer.executor)},
               {"side", name_in(kSides, transfer.side)},
               {"worker_count", transfer.worker_count},
               {"lanes", transfer.worker_count},  // its former name
               {"bytes", transfer.bytes}};
  json["iterations"] = transfer.is_background ? Json() : positive_or_null(transfer.iterations);
  json["seconds"] = transfer.iterations == 0 && !transfer.is_background ? Json(transfer.seconds) : Json();
  json["delay_seconds"] = transfer.delay_seconds;
  json["group"] = transfer.group;
  json["is_background"] = transfer.is_background;
  json["is_latency"] = transfer.is_latency;
  json["may_stage"] = transfer.may_stage;
  return json;
}

Json error_json(const ErrorRecord& error) {
  return {{"status", name_of(error.status)},
          {"message", error.message()},
          {"native_name", error.native.name},
          {"native_code", error.native.code}};
}

Json latency_json(const std::optional<StreamLatency>& latency) {
  if (!latency) return {};
  return {{"samples", latency->sample_count},
          {"min_us", latency->min_us},
          {"p50_us", latency->p50_us},
          {"p99_us", latency->p99_us},
          {"max_us", latency->max_us}};
}

Json report_json(const TransferReport& report) {
  Json json = transfer_json(report.transfer);
  json["path"] = report.path;
  json["link"] = {{"name", report.link.name}, {"gb_per_s", positive_or_null(report.link.gb_per_s)}, {"reason", report.link.reason}};
  json["host_numa_node"] = index_or_null(report.host_numa_node);
  json["host_placement"] = report.host_placement;
  json["life_gb_per_s"] = figure_json(report.life_gb_per_s);
  json["window_gb_per_s"] = figure_json(report.window_gb_per_s);
  json["life_seconds"] = figure_json(report.seconds);
  json["latency"] = latency_json(report.latency);
  json["copies_done"] = copy_count(report);
  json["bytes_moved"] = report.bytes_moved;
  json["is_verified"] = report.is_verified;
  json["ratio"] = positive_or_null(report.ratio);
  json["error"] = report.error ? error_json(*report.error) : Json();
  return json;
}

Json total_json(const StreamTotal& total) {
  return {{"group", total.group},
          {"aggregate_gb_per_s", figure_json(total.aggregate_gb_per_s)},
          {"sum_gb_per_s", figure_json(total.sum_gb_per_s)},
          {"overlap_percent", figure_json(total.overlap_percent)}};
}

Json matrix_json(const Matrix& matrix) {
  const auto row_json = [](const auto& row) {
    return list_of(row, [](const Json& cell) { return cell.is_number() ? cell : Json(); });
  };
  return {{"name", matrix.name},
          {"rows", list_of(matrix.cells, row_json)},
          {"sum", or_null(matrix.sum)},
          {"min", or_null(matrix.min)},
          {"max", or_null(matrix.max)}};
}

}  // namespace

std::unique_ptr<Output> make_output(const Options& options, Report& report, const Machine& machine) {
  switch (options.format) {
    case Format::table: return std::make_unique<TableOutput>(options, report, machine);
    case Format::cuts: return std::make_unique<CutsOutput>(report, machine);
    case Format::csv: return std::make_unique<CsvOutput>(report, machine);
    case Format::json: break;
  }
  return std::make_unique<Output>(report, machine);
}

void describe(const Options& options, Json& document) {
  document["gigabar_version"] = GIGABAR_VERSION;
  document["units"] = {{"*_us", "microseconds"}, {"*_ns", "nanoseconds"},
                       {"*seconds", "seconds"},  {"*_gb_per_s", "10^9 bytes per second"},
                       {"*_percent", "percent"}, {"ratio", "measured over the link's rate; 1 is all of it"},
                       {"bytes", "bytes"}};
  const Transfer defaults = default_transfer(options);
  document["parameters"] = {{"bytes", defaults.bytes},
                            {"iterations", positive_or_null(defaults.iterations)},
                            {"seconds", or_null(options.seconds)},
                            {"executor", options.executor.empty() ? name_of(defaults.executor) : options.executor},
                            {"pages", name_of(options.pages)},
                            {"has_numa_affinity", options.is_near},
                            {"may_stage", options.may_stage},
                            {"sweep_bytes", options.sweep_sizes},
                            {"repeats", options.repeat_count},
                            {"is_verified", options.is_verified},
                            {"timeout_seconds", or_null(options.timeout_seconds)},
                            {"expected_ratio", or_null(options.expected_ratio)},
                            {"assumed_link_gb_per_s", or_null(options.link_gb_per_s)}};
}

void describe(const Machine& machine, Json& document) {
  document["is_stand_in"] = machine.is_stand_in();
  document["devices"] = list_of(machine.devices, [](const DeviceInfo& device) { return to_json(device); });
  document["drivers"] =
      list_of(drivers(), [](const DriverReport& driver) { return to_json("name", driver.name, driver.availability); });
  if (machine.is_stand_in()) document["notes"].push_back(kStandInNote);
}

Json point_json(const Point& point, std::string_view measure) {
  Json json = {{"measure", measure}};
  json["swept_bytes"] = or_null(point.swept_bytes);
  json["plan"] = {
      {"repeats", point.plan.repeats}, {"is_verified", point.plan.is_verified}, {"timeout_seconds", point.plan.timeout_seconds}};
  json["error"] = point.error ? error_json(*point.error) : Json();
  if (point.report) {
    Json transfers = Json::array();
    json["is_stand_in"] = point.report->is_stand_in;
    json["was_stopped"] = point.report->was_stopped;
    json["warnings"] = point.report->warnings;
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      transfers.push_back(report_json(point.report->transfers[i]));
      if (i < point.plain.size() && !point.plain[i].samples.empty())
        transfers.back()["plain_cudaMemcpyAsync_gb_per_s"] = figure_json(point.plain[i]);
    }
    json["transfers"] = std::move(transfers);
    json["totals"] = list_of(point.report->totals, total_json);
  } else {
    json["transfers"] = list_of(point.plan.transfers, transfer_json);
    json["totals"] = Json::array();
  }
  return json;
}

Json preset_json(const PresetRun& run) {
  const auto cell_json = [](const Point& point) {
    Json cell = point_json(point, "cell");
    cell.update(Json{{"matrix", point.matrix}, {"row", point.row}, {"column", point.column}});
    return cell;
  };
  return {{"measure", "preset"},
          {"name", run.preset.name},
          {"description", run.preset.description},
          {"unit", run.preset.is_latency ? "ns" : "GB/s"},
          {"waived", run.preset.waived},
          {"matrices", list_of(matrices_of(run), matrix_json)},
          {"cells", list_of(run.points, cell_json)}};
}

}  // namespace gigabar::tool::streams
