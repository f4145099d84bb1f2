// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "streams/output.hpp"
#include "support/names.hpp"

namespace gigabar::tool::streams {
namespace {

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
  const bool is_timed = transfer.iterations == 0 || transfer.is_background;
  json["iterations"] = is_timed ? Json() : Json(transfer.iterations);
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

Json plan_json(const StreamPlan& plan) {
  return {{"repeats", plan.repeats}, {"is_verified", plan.is_verified}, {"timeout_seconds", plan.timeout_seconds}};
}

Json matrix_json(const Matrix& matrix) {
  const auto row_json = [](const auto& row) { return list_of(row, [](const CellValue& cell) { return or_null(cell.figure); }); };
  return {{"name", matrix.name},
          {"rows", list_of(matrix.cells, row_json)},
          {"sum", or_null(matrix.sum)},
          {"min", or_null(matrix.min)},
          {"max", or_null(matrix.max)}};
}

Json parameters(const Options& options) {
  const Transfer defaults = default_transfer(options);
  Json json = {{"bytes", defaults.bytes}};
  json["iterations"] = defaults.iterations == 0 ? Json() : Json(defaults.iterations);
  json["seconds"] = or_null(options.seconds);
  json["executor"] = options.executor.empty() ? Json(name_of(defaults.executor)) : Json(options.executor);
  json["pages"] = name_of(options.pages);
  json["has_numa_affinity"] = options.is_near;
  json["may_stage"] = options.may_stage;
  json["sweep_bytes"] = options.sweep_sizes;
  json["repeats"] = options.repeat_count;
  json["is_verified"] = options.is_verified;
  json["timeout_seconds"] = or_null(options.timeout_seconds);
  json["expected_ratio"] = or_null(options.expected_ratio);
  json["assumed_link_gb_per_s"] = or_null(options.link_gb_per_s);
  return json;
}

}  // namespace

void describe(const Options& options, Json& document) {
  document["gigabar_version"] = GIGABAR_VERSION;
  document["units"] = {{"*_us", "microseconds"}, {"*_ns", "nanoseconds"},
                       {"*seconds", "seconds"},  {"*_gb_per_s", "10^9 bytes per second"},
                       {"*_percent", "percent"}, {"ratio", "measured over the link's rate; 1 is all of it"},
                       {"bytes", "bytes"}};
  document["parameters"] = parameters(options);
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
  json["plan"] = plan_json(point.plan);
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

Json description_json(const StreamPreset& preset) {
  return {{"measure", "description"},        {"name", preset.name},          {"description", preset.description},
          {"is_latency", preset.is_latency}, {"cells", preset.cells.size()}, {"waived", preset.waived}};
}

}  // namespace gigabar::tool::streams
