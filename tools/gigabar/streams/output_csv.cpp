// SPDX-License-Identifier: Apache-2.0
// One line per transfer and repeat, after one line of names; quoted as RFC 4180 says.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

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

// Empty behind the last repeat of the figure.
std::string sample(const StreamFigure& figure, std::optional<std::size_t> repeat) {
  return repeat && *repeat < figure.samples.size() ? fmt::format("{:.9g}", figure.samples[*repeat]) : "";
}

std::string index_text(int index) { return index < 0 ? "" : std::to_string(index); }

std::string bool_text(bool value) { return value ? "true" : "false"; }

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
    if (point.error) {  // a plan that did not run at all: its transfers, each with the reason
      TransferReport none;
      none.link.name.clear();
      none.error = point.error;
      for (std::size_t i = 0; i < point.plan.transfers.size(); ++i) {
        none.transfer = point.plan.transfers[i];
        print(point, i, none, {});
      }
      return flush(text_);
    }
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      const TransferReport& report = point.report->transfers[i];
      const std::size_t count = std::max(report.life_gb_per_s.samples.size(), report.seconds.samples.size());
      if (count == 0) print(point, i, report, {});
      for (std::size_t repeat = 0; repeat < count; ++repeat) print(point, i, report, repeat);
    }
    for (const std::string& warning : point.report->warnings) fmt::print(stderr, "warning: {}\n", warning);
    flush(text_);
  }

 private:
  void print(const Point& point, std::size_t index, const TransferReport& report, std::optional<std::size_t> repeat) const {
    const Transfer& transfer = report.transfer;
    const StreamLatency latency = report.latency.value_or(StreamLatency{});
    const auto latency_text = [&](double value) { return report.latency ? fmt::format("{:.6g}", value) : std::string(); };
    const std::initializer_list<std::string> entries = {point.preset,
                                                        point.matrix,
                                                        index_text(point.row),
                                                        index_text(point.column),
                                                        std::to_string(index),
                                                        short_text(transfer),
                                                        std::string(name_of(transfer.executor)),
                                                        transfer.group,
                                                        bool_text(transfer.is_background),
                                                        std::to_string(transfer.bytes),
                                                        repeat ? std::to_string(*repeat) : "",
                                                        sample(report.seconds, repeat),
                                                        sample(report.life_gb_per_s, repeat),
                                                        sample(report.window_gb_per_s, repeat),
                                                        point.error ? "" : std::to_string(report.bytes_moved),
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
                                                        bool_text(report.is_verified),
                                                        bool_text(is_stand_in_),
                                                        report.error ? report.error->message() : ""};
    const char* separator = "";
    for (const std::string& entry : entries) fmt::print(text_, "{}{}", std::exchange(separator, ","), quote(entry));
    fmt::print(text_, "\r\n");
  }

  std::FILE* text_;
  bool is_stand_in_ = false;
};

}  // namespace

std::unique_ptr<Output> make_csv_output(std::FILE* text) { return std::make_unique<CsvOutput>(text); }

}  // namespace gigabar::tool::streams
