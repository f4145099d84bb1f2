// SPDX-License-Identifier: Apache-2.0
// Tables for people: a group of rows for each point, and the matrices of presets.
#include <fmt/format.h>

#include <algorithm>

#include "base/counted.hpp"
#include "base/options.hpp"
#include "streams/output.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool::streams {
namespace {

std::string rate_text(const StreamFigure& figure) { return figure.samples.empty() ? "-" : fmt::format("{:.3f}", figure.median); }

std::string range_text(const StreamFigure& figure) {
  return figure.samples.empty() ? "" : fmt::format("({:.3f}..{:.3f})", figure.min, figure.max);
}

std::string ratio_text(const TransferReport& report) {
  return report.ratio > 0 ? fmt::format("{:.1f} %", 100 * report.ratio) : "-";
}

std::string verified_text(const StreamPlan& plan, const TransferReport& report) {
  if (!moves_data(report.transfer.executor)) return "-";
  if (report.error) return report.error->status == Status::verification_failed ? "WRONG" : "failed";
  if (report.is_verified) return "yes";
  return plan.is_verified ? "no" : "off";
}

class TableOutput : public Output {
 public:
  using Output::Output;

  void begin(const StreamPlan& first) override {
    for (const DeviceInfo& device : machine_.devices) report_.print("{}", device_line(device));
    if (machine_.is_stand_in()) report_.print("note: {}\n", kStandInNote);
    report_.print("rates in 10^9 bytes per second (GB/s): median of {}, and the least and the most of them; {}{}\n",
                  counted(first.repeats, "run"), first.is_verified ? "data verified" : "data not verified", machine_.label());
  }

  void after(const Point& point) override {
    if (!point.preset.empty()) return after_cell(point);
    report_.print("\n");
    if (!point.title.empty()) report_.print("{}{}\n", point.title, machine_.label());
    if (point.error) return;  // the command ends with it
    add_rows(point);
    print(transfers_);
    print(latencies_);
    print(totals_);
    print_plain(point);
    print_paths(*point.report);
    print_problems(point);
  }

  void preset(const PresetRun& run) override {
    report_.print("\n{}: {}{}\n", run.preset.name, run.preset.description, machine_.label());
    if (!run.points.empty() && run.points.front().swept_bytes) {
      report_.print("{} per copy\n", format_bytes(*run.points.front().swept_bytes));
    }
    if (!run.preset.waived.empty()) report_.print("waived: {}\n", run.preset.waived);
    for (const Matrix& matrix : matrices_of(run)) print_matrix(run.preset, matrix);
    for (const std::string& line : cell_lines_) report_.print("{}\n", line);
    cell_lines_.clear();
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
                          report.link.gb_per_s > 0 ? fmt::format("{:.3f}", report.link.gb_per_s) : "-", ratio_text(report),
                          verified_text(point.plan, report)});
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

  void print(TextTable& table) const {
    if (!table.is_empty()) report_.print("{}", table.take_text());
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
      if (!point.plain[i]) continue;
      const StreamFigure& life = point.report->transfers[i].life_gb_per_s;
      report_.print("{}: plain cudaMemcpyAsync, alone: {} GB/s {}", i, rate_text(*point.plain[i]), range_text(*point.plain[i]));
      if (!life.samples.empty()) report_.print("; this transfer: {:.3f} of it", life.median / point.plain[i]->median);
      report_.print("\n");
    }
  }

  void print_problems(const Point& point) const {
    for (const std::string& line : problem_lines(point)) report_.print("{}\n", line);
    if (point.report->was_stopped) report_.print("interrupted: the figures are of what was done until then\n");
  }

  static std::vector<std::string> problem_lines(const Point& point) {
    std::vector<std::string> lines;
    for (const std::string& warning : point.report->warnings) lines.push_back("warning: " + warning);
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      const auto& error = point.report->transfers[i].error;
      if (error) lines.push_back(fmt::format("failed: transfer {}: {}", i, error->message()));
    }
    return lines;
  }

  void after_cell(const Point& point) {
    const std::string place = fmt::format("{}{}{},{}", point.matrix, point.matrix.empty() ? "" : " ", point.row, point.column);
    if (point.error) {
      cell_lines_.push_back(fmt::format("{} {}: {}", place, is_absent(*point.error) ? "N/A" : "failed", point.error->message()));
    } else {
      for (const std::string& line : problem_lines(point)) cell_lines_.push_back(fmt::format("{} {}", place, line));
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
      for (const CellValue& cell : matrix.cells[row])
        entries.push_back(cell.figure ? fmt::format("{:.2f}", *cell.figure) : cell.word);
      table.add_row(std::move(entries));
    }
    report_.print("{}", table.take_text());
    const std::string key = preset.name + (matrix.name.empty() ? "" : "_" + matrix.name);
    const auto print_line = [&](std::string_view word, const std::optional<double>& figure) {
      report_.print("{} {} {}{}\n", word, key, figure ? fmt::format("{:.2f}", *figure) : "N/A", machine_.label());
    };
    print_line("SUM", matrix.sum);
    print_line("MIN", matrix.min);
    print_line("MAX", matrix.max);
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
  std::vector<std::string> cell_lines_;  // of the preset that runs
};

}  // namespace

std::unique_ptr<Output> make_table_output(Report& report, const Machine& machine) {
  return std::make_unique<TableOutput>(report, machine);
}

}  // namespace gigabar::tool::streams
