// SPDX-License-Identifier: Apache-2.0
// What a command says, in two forms at once: text for people, and one JSON document for programs. Both name the machine, the device
// and the mapping's path, and both are labelled when the device is a stand-in.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "support/clock.hpp"
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/statistics.hpp"

// Compiled in report.cpp, not in each file that makes a document.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class nlohmann::detail::serializer<nlohmann::ordered_json>;

namespace gigabar::tool {

using Json = nlohmann::ordered_json;

// " [stand-in]" behind every heading of figures that do not come from a GPU; nothing for a real device.
std::string_view stand_in_label(bool is_stand_in) noexcept;
inline constexpr const char* kStandInNote = "stand-in: host memory plays the GPU, so the figures say nothing about a GPU";
// "device 0: NVIDIA H200 at 0000:3b:00.0", with the label and the end of the line.
std::string device_line(const DeviceInfo& device);

// null where there is nothing.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
template <class Number>
Json positive_or_null(Number value) {
  return value > 0 ? Json(value) : Json();
}
inline Json index_or_null(int index) { return index >= 0 ? Json(index) : Json(); }
inline Json text_or_null(std::string text) { return text.empty() ? Json() : Json(std::move(text)); }
// What `convert` makes of each element.
template <class All, class Convert>
Json list_of(const All& all, const Convert& convert) {
  Json list = Json::array();
  for (const auto& each : all) list.push_back(convert(each));
  return list;
}

Json to_json(const Availability& availability);
// With what it is of: {"backend": "dmabuf", "code": ...}.
Json to_json(const char* key, std::string_view name, const Availability& availability);
Json to_json(const DeviceInfo& device);
Json to_json(const Mapping& mapping);
Json to_json(const SampleClock& clock);
Json to_json(const Summary& summary);

// A document as it is written everywhere. What was measured has six significant digits: further ones would come from the
// arithmetic, not from the clock. Counts and sizes are whole.
std::string json_text(const Json& document);

// Columns as wide as their widest entry.
class TextTable {
 public:
  struct Column {
    std::string heading;
    bool is_left = false;  // text; numbers stand on the right
  };

  explicit TextTable(std::vector<Column> columns);

  // One entry per column.
  void add_row(std::vector<std::string> entries);
  bool is_empty() const noexcept { return rows_.size() == heading_count_; }

  // The rows that were added since the last call; before the first, the headings. Columns only ever grow, so that the groups of a
  // long table stand under one another.
  std::string take_text();

 private:
  std::vector<Column> columns_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;  // not taken yet, at first with the headings as a row
  std::size_t heading_count_ = 1;               // of these rows
};

// One result: each value is described once, and stands in the document, in a row of the table, or in both.
class Row {
 public:
  // In the document, under `key`.
  Row& add(const char* key, Json value);
  // And in the table, under `heading`. `form`: of fmt, with the least width of the column, "{:<10}", "{:>8.2f}"; what stands on
  // the left is text.
  Row& add(const char* key, Json value, std::string heading, std::string_view form = "{}");
  // In the table only.
  Row& show(std::string heading, const Json& value, std::string_view form = "{}");
  // All members of an object, in the document.
  Row& merge(const Json& members);

  const Json& document() const noexcept { return document_; }
  // As a table of one row, under its headings.
  std::string table_text() const;

 private:
  friend class Report;
  Json document_ = Json::object();
  std::vector<TextTable::Column> columns_;
  std::vector<std::string> entries_;
};

// The rows of the terminal that is standard error.
std::size_t terminal_rows();

// ", about 40 s left", after `done` of `count` equal steps; empty in the first second and before the first step is done.
std::string time_left(double elapsed_s, double done, double count);

class Report {
 public:
  // `tool` is the subcommand's name; `json_path` may be empty. Ends the command where nothing can be written there: made before the
  // work begins, it keeps the work from being done in vain.
  Report(std::string_view tool, const Invocation& invocation, std::string json_path);
  ~Report() { end_progress(); }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // Before the lines about device, mapping and clock and before notes: "# " in a text whose other lines are data.
  void set_line_prefix(std::string prefix) { line_prefix_ = std::move(prefix); }
  // From now on there is no text, only the document and the progress: what is printed is for another program.
  void end_text() { has_text_ = false; }
  // One line for the device, one for the mapping, one for the clock.
  void set_device(const DeviceInfo& device);
  void set_mapping(const Mapping& mapping);
  void set_clock(const SampleClock& clock);
  bool is_stand_in() const noexcept { return is_stand_in_; }
  // Whether the text may be coloured: it goes to a terminal, and NO_COLOR is not set.
  bool has_colours() const noexcept { return has_colours_; }

  template <class... Parts>
  void print(fmt::format_string<Parts...> format, Parts&&... parts) {
    end_progress();
    if (!has_text_) return;
    fmt::print(text_, format, std::forward<Parts>(parts)...);
    flush(text_);
  }
  // What is being done, until the next print(); before everything that may take a second or longer. On a terminal only, unless the
  // text goes there itself: written over again and again.
  template <class... Parts>
  void show_progress(fmt::format_string<Parts...> format, Parts&&... parts) {
    show_progress_lines({fmt::format(format, std::forward<Parts>(parts)...)});
  }
  // The same, of several lines.
  void show_progress_lines(const std::vector<std::string>& lines);
  // Leaves the terminal as if nothing had been shown.
  void end_progress();
  bool shows_progress() const noexcept { return shows_progress_; }
  // A heading, with the stand-in label.
  void heading(std::string_view line);
  // Something a reader of the figures has to know; also in JSON, under "notes".
  void note(const std::string& line);

  void add_result(Json result) { document_["results"].push_back(std::move(result)); }
  // The headings of a table whose rows take long to come, as wide as those of `example`.
  void begin_table(const Row& example);
  // In the table, whose headings stand above its first row. A heading() ends a table.
  void print_row(const Row& row);
  void end_table() { table_.reset(); }
  void add_row(const Row& row);
  Json& document() noexcept { return document_; }
  bool has_document() const noexcept { return !json_path_.empty(); }  // else nobody sees it: large results may be left out

  // Writes the JSON where it was asked for. Ends the command when that fails.
  void write();

 private:
  std::FILE* text_;
  std::string json_path_;
  std::string line_prefix_;
  bool shows_progress_;
  std::size_t progress_line_count_ = 0;  // that are shown, the cursor below them; of one: behind it
  bool is_stand_in_ = false;
  bool has_text_ = true;
  bool has_colours_ = false;
  Json document_;
  std::optional<TextTable> table_;
};

// What was wrong with data that were checked.
struct Complaint {
  std::uint64_t wrong_count = 0;
  std::string first_wrong;  // empty: nothing was

  // What `who`, "rank 1: ", found as well.
  void add(const Complaint& other, std::string_view who = {}) {
    if (wrong_count == 0 && other.wrong_count != 0) first_wrong = std::string(who) + other.first_wrong;
    wrong_count += other.wrong_count;
  }
};
// "Pass" or "Fail".
inline const char* verdict_of(std::uint64_t wrong_count) noexcept { return wrong_count == 0 ? "Pass" : "Fail"; }

// "64 KiB", "1 B": for headings and messages.
std::string bytes_text(std::size_t bytes);

}  // namespace gigabar::tool
