// SPDX-License-Identifier: Apache-2.0
// One line per transfer and repeat, after one line of names; quoted as RFC 4180 says.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "streams/output.hpp"
#include "support/output.hpp"

namespace gigabar::tool::streams {
namespace {

constexpr std::string_view kNames =
    "preset,matrix,row,column,transfer,what,executor,group,is_background,bytes,repeat,seconds,life_gb_per_s,window_gb_per_s,"
    "bytes_moved_all_repeats,latency_samples,latency_min_us,latency_p50_us,latency_p99_us,latency_max_us,link,link_gb_per_s,ratio,"
    "host_numa_node,host_placement,is_verified,is_stand_in,error";

std::string quote(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
}

std::string sample(const StreamFigure& figure, std::size_t repeat) {
  return repeat < figure.samples.size() ? fmt::format("{:.9g}", figure.samples[repeat]) : "";
}

std::string index_text(int index) { return index < 0 ? "" : std::to_string(index); }

std::string rate_text(double value) { return value > 0 ? fmt::format("{:.6g}", value) : ""; }

class CsvOutput : public Output {
 public:
  explicit CsvOutput(std::FILE* text) : text_(text) {}

  void begin(const Machine& machine, const StreamPlan&) override {
    is_stand_in_ = machine.is_stand_in;
    fmt::print(text_, "{}\r\n", kNames);
    flush(text_);
  }

  void after(const Point& point) override {
    if (point.error) return print_error(point);
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      const TransferReport& report = point.report->transfers[i];
      const std::size_t count = std::max(report.life_gb_per_s.samples.size(), report.seconds.samples.size());
      for (std::size_t repeat = 0; repeat < std::max<std::size_t>(count, 1); ++repeat) print(point, i, repeat, repeat < count);
    }
    for (const std::string& warning : point.report->warnings) fmt::print(stderr, "warning: {}\n", warning);
    flush(text_);
  }

 private:
  void print_line(std::initializer_list<std::string_view> entries) const {
    std::string line;
    std::string_view comma;
    for (const std::string_view entry : entries) {
      line += comma;
      line += quote(entry);
      comma = ",";
    }
    fmt::print(text_, "{}\r\n", line);
  }

  void print(const Point& point, std::size_t index, std::size_t repeat, bool has_repeat) const {
    const TransferReport& report = point.report->transfers[index];
    const StreamLatency latency = report.latency.value_or(StreamLatency{});
    const auto latency_text = [&](double value) { return report.latency ? fmt::format("{:.6g}", value) : std::string(); };
    print_line({point.preset,
                point.matrix,
                index_text(point.row),
                index_text(point.column),
                std::to_string(index),
                short_text(report.transfer),
                name_of(report.transfer.executor),
                report.transfer.group,
                report.transfer.is_background ? "true" : "false",
                std::to_string(report.transfer.bytes),
                has_repeat ? std::to_string(repeat) : "",
                sample(report.seconds, repeat),
                sample(report.life_gb_per_s, repeat),
                sample(report.window_gb_per_s, repeat),
                std::to_string(report.bytes_moved),
                report.latency ? std::to_string(latency.sample_count) : "",
                latency_text(latency.min_us),
                latency_text(latency.p50_us),
                latency_text(latency.p99_us),
                latency_text(latency.max_us),
                report.link.name,
                rate_text(report.link.gb_per_s),
                rate_text(report.ratio),
                index_text(report.host_numa_node),
                report.host_placement,
                report.is_verified ? "true" : "false",
                is_stand_in_ ? "true" : "false",
                report.error ? report.error->message() : ""});
  }

  // A plan that did not run at all: its transfers, each with the reason.
  void print_error(const Point& point) const {
    for (std::size_t i = 0; i < point.plan.transfers.size(); ++i) {
      const Transfer& transfer = point.plan.transfers[i];
      print_line({point.preset,
                  point.matrix,
                  index_text(point.row),
                  index_text(point.column),
                  std::to_string(i),
                  short_text(transfer),
                  name_of(transfer.executor),
                  transfer.group,
                  transfer.is_background ? "true" : "false",
                  std::to_string(transfer.bytes),
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "",
                  "false",
                  is_stand_in_ ? "true" : "false",
                  point.error->message()});
    }
    flush(text_);
  }

  std::FILE* text_;
  bool is_stand_in_ = false;
};

}  // namespace

std::unique_ptr<Output> make_csv_output(std::FILE* text) { return std::make_unique<CsvOutput>(text); }

}  // namespace gigabar::tool::streams
