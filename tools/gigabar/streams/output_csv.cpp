// SPDX-License-Identifier: Apache-2.0
// One line per transfer and repeat, after one line of names; quoted as RFC 4180 says.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "streams/output.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::streams {
namespace {

using Field = std::pair<std::string_view, std::string>;  // its name, and what stands in it

std::string quote(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  return csv_quoted(text);
}

// Empty behind the last repeat of the figure.
std::string sample(const StreamFigure& figure, std::optional<std::size_t> repeat) {
  return repeat && *repeat < figure.samples.size() ? fmt::format("{:.9g}", figure.samples[*repeat]) : "";
}

std::string index_text(int index) { return index < 0 ? "" : std::to_string(index); }

std::string bool_text(bool value) { return value ? "true" : "false"; }

std::string rate_text(double value) { return value > 0 ? fmt::format("{:.6g}", value) : ""; }

// A line: one transfer, all repeats of it or one.
std::vector<Field> fields_of(const Point& point, std::size_t index, const TransferReport& report, std::optional<std::size_t> repeat,
                             bool is_stand_in) {
  const Transfer& transfer = report.transfer;
  const StreamLatency latency = report.latency.value_or(StreamLatency{});
  const auto latency_text = [&](double value) { return report.latency ? fmt::format("{:.6g}", value) : std::string(); };
  return {{"preset", point.preset},
          {"matrix", point.matrix},
          {"row", index_text(point.row)},
          {"column", index_text(point.column)},
          {"transfer", std::to_string(index)},
          {"what", short_text(transfer)},
          {"executor", std::string(name_of(transfer.executor))},
          {"group", transfer.group},
          {"is_background", bool_text(transfer.is_background)},
          {"bytes", std::to_string(transfer.bytes)},
          {"repeat", repeat ? std::to_string(*repeat) : ""},
          {"seconds", sample(report.seconds, repeat)},
          {"life_gb_per_s", sample(report.life_gb_per_s, repeat)},
          {"window_gb_per_s", sample(report.window_gb_per_s, repeat)},
          {"bytes_moved_all_repeats", point.error ? "" : std::to_string(report.bytes_moved)},
          {"latency_samples", report.latency ? std::to_string(latency.sample_count) : ""},
          {"latency_min_us", latency_text(latency.min_us)},
          {"latency_p50_us", latency_text(latency.p50_us)},
          {"latency_p99_us", latency_text(latency.p99_us)},
          {"latency_max_us", latency_text(latency.max_us)},
          {"link", report.link.name},
          {"link_gb_per_s", rate_text(report.link.gb_per_s)},
          {"ratio", rate_text(report.ratio)},
          {"host_numa_node", index_text(report.host_numa_node)},
          {"host_placement", report.host_placement},
          {"is_verified", bool_text(report.is_verified)},
          {"is_stand_in", bool_text(is_stand_in)},
          {"error", report.error ? report.error->message() : ""}};
}

class CsvOutput : public Output {
 public:
  using Output::Output;

  void begin(const StreamPlan&) override {
    print_line(fields_of({}, 0, {}, {}, false), [](const Field& field) { return std::string(field.first); });
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
      return;
    }
    for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
      const TransferReport& report = point.report->transfers[i];
      const std::size_t count = std::max(report.life_gb_per_s.samples.size(), report.seconds.samples.size());
      if (count == 0) print(point, i, report, {});
      for (std::size_t repeat = 0; repeat < count; ++repeat) print(point, i, report, repeat);
    }
    for (const std::string& warning : point.report->warnings) fmt::print(stderr, "warning: {}\n", warning);
  }

 private:
  void print(const Point& point, std::size_t index, const TransferReport& report, std::optional<std::size_t> repeat) const {
    print_line(fields_of(point, index, report, repeat, machine_.is_stand_in()),
               [](const Field& field) { return quote(field.second); });
  }

  template <class Text>
  void print_line(const std::vector<Field>& fields, const Text& text_of) const {
    std::string line;
    const char* separator = "";
    for (const Field& field : fields) line += std::exchange(separator, ",") + text_of(field);
    report_.print("{}\r\n", line);
  }
};

}  // namespace

std::unique_ptr<Output> make_csv_output(Report& report, const Machine& machine) {
  return std::make_unique<CsvOutput>(report, machine);
}

}  // namespace gigabar::tool::streams
