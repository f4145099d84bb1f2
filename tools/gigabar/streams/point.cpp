// SPDX-License-Identifier: Apache-2.0
#include "streams/point.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gigabar::tool::streams {

const DeviceInfo* Machine::find(int device) const noexcept {
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const DeviceInfo& one) { return one.index == device; });
  return found == devices.end() ? nullptr : &*found;
}

int Machine::node_of_host(const Transfer& transfer) const noexcept {
  const int node = host_of(transfer).numa_node;
  if (node != StreamPlace::kNearestNode) return node;
  const DeviceInfo* const info = find(device_of(transfer).device);
  return info == nullptr ? -1 : info->numa_node;
}

const StreamPlace& host_of(const Transfer& transfer) noexcept {
  return transfer.source.is_host() ? transfer.source : transfer.destination;
}

const StreamPlace& device_of(const Transfer& transfer) noexcept {
  return transfer.source.is_host() ? transfer.destination : transfer.source;
}

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

namespace {

// The cell's figure is the sum over the transfers of this group.
constexpr std::string_view kMeasuredGroup = "measured";

CellValue nothing_of(const StreamReport& report) { return {{}, report.was_stopped ? "-" : "failed"}; }

CellValue bandwidth_of(const StreamReport& report) {
  double sum = 0;
  bool has_figure = false;
  for (const TransferReport& transfer : report.transfers) {
    if (transfer.transfer.group != kMeasuredGroup || transfer.life_gb_per_s.samples.empty()) continue;
    sum += transfer.life_gb_per_s.median;
    has_figure = true;
  }
  for (const StreamTotal& total : report.totals) {
    if (total.group == kMeasuredGroup && !total.sum_gb_per_s.samples.empty()) sum = total.sum_gb_per_s.median;
  }
  return has_figure ? CellValue{sum, ""} : nothing_of(report);
}

CellValue latency_of(const StreamReport& report) {
  for (const TransferReport& transfer : report.transfers) {
    if (transfer.transfer.group == kMeasuredGroup && transfer.latency) return {transfer.latency->p50_us * 1000.0, ""};
  }
  return nothing_of(report);
}

CellValue value_of(const Point& point, bool is_latency) {
  if (point.error) return {{}, is_absent(*point.error) ? "N/A" : "failed"};
  if (!point.report) return {{}, "-"};
  if (!point.report->is_ok()) return {{}, "failed"};
  return is_latency ? latency_of(*point.report) : bandwidth_of(*point.report);
}

void sum_up(Matrix& matrix) {
  for (const auto& row : matrix.cells) {
    for (const CellValue& cell : row) {
      if (!cell.figure) continue;
      matrix.sum = matrix.sum.value_or(0) + *cell.figure;
      matrix.min = std::min(matrix.min.value_or(*cell.figure), *cell.figure);
      matrix.max = std::max(matrix.max.value_or(*cell.figure), *cell.figure);
    }
  }
}

}  // namespace

std::vector<Matrix> matrices_of(const PresetRun& run) {
  std::vector<Matrix> matrices;
  const auto row_count = static_cast<std::size_t>(std::max(run.preset.row_count, 0));
  const auto column_count = static_cast<std::size_t>(std::max(run.preset.column_count, 0));
  for (const Point& point : run.points) {
    auto found = std::find_if(matrices.begin(), matrices.end(), [&](const Matrix& one) { return one.name == point.matrix; });
    if (found == matrices.end()) {
      const std::vector<CellValue> blank(column_count, CellValue{{}, "N/A"});
      matrices.push_back({point.matrix, std::vector<std::vector<CellValue>>(row_count, blank), {}, {}, {}});
      found = matrices.end() - 1;
    }
    const auto row = static_cast<std::size_t>(point.row);
    const auto column = static_cast<std::size_t>(point.column);
    if (row < row_count && column < column_count) found->cells[row][column] = value_of(point, run.preset.is_latency);
  }
  for (Matrix& matrix : matrices) sum_up(matrix);
  return matrices;
}

}  // namespace gigabar::tool::streams
