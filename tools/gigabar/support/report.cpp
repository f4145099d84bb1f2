// SPDX-License-Identifier: Apache-2.0
#include "support/report.hpp"

#include <pwd.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "platform/fingerprint.hpp"
#include "platform/stored_json.hpp"
#include "support/plain_text.hpp"

template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;

namespace gigabar::tool {
namespace {

Json machine() {
  utsname names{};
  uname(&names);
  const passwd* user = getpwuid(geteuid());
  return {{"host", names.nodename},
          {"cpu", processor_name()},
          {"kernel", names.release},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"user", user != nullptr ? std::string(user->pw_name) : std::to_string(geteuid())}};
}

// "CUDA 13.0, 2 device(s); driver 580.159.04"; nothing where there is none. 'gigabar info' tells why.
Json driver_json() {
  std::string text;
  for (const DriverReport& driver : drivers()) {
    if ((driver.name != "libcuda" && driver.name != "resource manager") || !driver.availability.is_ok()) continue;
    text += (text.empty() ? "" : "; ") + driver.availability.reason;
  }
  return text_or_null(std::move(text));
}

// The descriptor is a terminal on which lines can be written over.
bool can_redraw(int descriptor) {
  const char* const terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

// As https://no-color.org asks.
bool wants_colours(std::FILE* file) {
  const char* const refusal = std::getenv("NO_COLOR");
  return (refusal == nullptr || *refusal == '\0') && can_redraw(fileno(file));
}

winsize terminal_size() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col <= 1) size = {24, 80, 0, 0};
  return size;
}

// Six digits, as much as any of them was measured to. The library's own way of writing them is not always the shortest: 0.108813
// reads 0.10881299999999999.
std::string number_text(double number) {
  if (!std::isfinite(number)) return "null";
  std::string digits = fmt::format("{:.6g}", number);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

void write(const Json& json, std::size_t depth, std::string& out) {
  if (json.is_number_float()) {
    out += number_text(json.get<double>());
  } else if (json.is_structured() && !json.empty()) {
    out += json.is_object() ? '{' : '[';
    for (auto member = json.begin(); member != json.end(); ++member) {
      out += member == json.begin() ? "\n" : ",\n";
      out.append(2 * depth + 2, ' ');
      if (json.is_object()) out += Json(member.key()).dump(-1, ' ', false, Json::error_handler_t::replace) + ": ";
      write(*member, depth + 1, out);
    }
    out += '\n';
    out.append(2 * depth, ' ');
    out += json.is_object() ? '}' : ']';
  } else {
    // Arguments are in it as they were typed, which may be no UTF-8.
    out += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace

std::size_t terminal_rows() { return terminal_size().ws_row; }

std::string time_left(double elapsed_s, double done, double count) {
  if (done <= 0 || elapsed_s < 1) return {};
  return fmt::format(", about {:.0f} s left", std::ceil(elapsed_s * (count - std::min(done, count)) / done));
}

std::string_view stand_in_label(bool is_stand_in) noexcept { return is_stand_in ? " [stand-in]" : ""; }

std::string bytes_text(std::size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string device_line(const DeviceInfo& device) {
  return fmt::format("device {}: {}{}{}\n", device.index, device.name, device.pci ? " at " + device.pci->to_string() : "",
                     stand_in_label(device.is_stand_in));
}

Json to_json(const Availability& availability) {
  Json json = {{"code", name_of(availability.code)}, {"reason", availability.reason}};
  if (!availability.remedy.empty()) json["remedy"] = availability.remedy;
  if (!availability.check.empty()) json["check"] = availability.check;
  return json;
}

Json to_json(const char* key, std::string_view name, const Availability& availability) {
  Json json = {{key, name}};
  json.update(to_json(availability));
  return json;
}

Json to_json(const DeviceInfo& device) {
  const std::string capability = fmt::format("{}.{}", device.compute_major, device.compute_minor);
  return {{"index", device.index},
          {"name", device.name},
          {"uuid", text_or_null(device.uuid)},
          {"pci", device.pci ? Json(device.pci->to_string()) : Json()},
          {"is_stand_in", device.is_stand_in},
          {"numa_node", index_or_null(device.numa_node)},
          {"memory_bytes", device.memory_bytes},
          {"bar1_bytes", or_null(device.bar1_bytes)},
          {"bar1_used_bytes", or_null(device.bar1_used_bytes)},
          {"compute_capability", text_or_null(device.is_stand_in ? "" : capability)}};
}

Json to_json(const Mapping& mapping) {
  const auto passed_over = [](const PassedOver& each) { return to_json("backend", name_of(each.backend), each.why); };
  return {{"backend", name_of(mapping.backend())},
          {"type", name_of(mapping.type())},
          {"passed_over", list_of(mapping.report().passed_over, passed_over)}};
}

Json to_json(const SampleClock& clock) {
  return {
      {"name", clock.name()}, {"ns_per_tick", clock.ns_per_tick()}, {"cost_ns", clock.cost_ns()}, {"cost_is_subtracted", false}};
}

Json to_json(const Summary& summary) {
  return {{"samples", summary.sample_count}, {"min_us", summary.min_us}, {"p50_us", summary.p50_us},
          {"p99_us", summary.p99_us},        {"max_us", summary.max_us}, {"mean_us", summary.mean_us}};
}

std::string json_text(const Json& document) {
  std::string text;
  write(document, 0, text);
  return text + "\n";
}

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)), widths_(columns_.size()) {
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  add_row(std::move(headings));
}

void TextTable::add_row(std::vector<std::string> entries) {
  entries.resize(columns_.size());
  for (std::size_t i = 0; i < entries.size(); ++i) widths_[i] = std::max(widths_[i], entries[i].size());
  rows_.push_back(std::move(entries));
}

std::string TextTable::take_text() {
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? "" : "  ";
      text += columns_[i].is_left ? fmt::format("{:<{}}", row[i], widths_[i]) : fmt::format("{:>{}}", row[i], widths_[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  rows_.clear();
  heading_count_ = 0;
  return text;
}

Row& Row::add(const char* key, Json value) {
  document_[key] = std::move(value);
  return *this;
}

Row& Row::add(const char* key, Json value, std::string heading, std::string_view form) {
  show(std::move(heading), value, form);
  return add(key, std::move(value));
}

Row& Row::show(std::string heading, const Json& value, std::string_view form) {
  const auto text = [form](const auto& content) { return fmt::format(fmt::runtime(form), content); };
  columns_.push_back({std::move(heading), form.find('<') != std::string_view::npos});
  entries_.push_back(value.is_string()            ? text(value.get<std::string>())
                     : value.is_number_float()    ? text(value.get<double>())
                     : value.is_number_unsigned() ? text(value.get<std::uint64_t>())
                                                  : text(value.get<std::int64_t>()));
  return *this;
}

Row& Row::merge(const Json& members) {
  document_.update(members);
  return *this;
}

std::string Row::table_text() const {
  TextTable table(columns_);
  table.add_row(entries_);
  return table.take_text();
}

Report::Report(std::string_view tool, const Invocation& invocation, std::string json_path)
    : text_(json_path == "-" ? stderr : stdout),
      json_path_(std::move(json_path)),
      shows_progress_(text_ != stderr && can_redraw(STDERR_FILENO)),
      has_colours_(wants_colours(text_)) {
  if (!json_path_.empty() && json_path_ != "-") require_writable("--json", json_path_);
  document_ = {
      {"schema", 2},
      {"tool", tool},
      {"command", invocation.arguments},
      {"date", stored::date_now()},
      {"machine", machine()},
      {"device", Json()},
      {"mapping", Json()},
      {"units", {{"*_us", "microseconds"}, {"*_ns", "nanoseconds"}, {"*_gb_per_s", "10^9 bytes per second"}, {"bytes", "bytes"}}},
      {"notes", Json::array()},
      {"results", Json::array()}};
}

void Report::show_progress_lines(const std::vector<std::string>& lines) {
  if (!shows_progress_) return;
  std::string text = progress_line_count_ > 1 ? fmt::format("\x1b[{}A", progress_line_count_) : "";
  text += "\r\x1b[J";
  // A longer line would wrap, and its beginning could not be written over.
  const std::size_t columns = terminal_size().ws_col - std::size_t{1};
  // Behind one line stays what others say on a terminal, which a step upwards would write over.
  for (const std::string& line : lines) text += plain(line).substr(0, columns) + (lines.size() > 1 ? "\n" : "");
  progress_line_count_ = lines.size();
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void Report::end_progress() {
  if (progress_line_count_ != 0) show_progress_lines({});
}

void Report::set_device(const DeviceInfo& device) {
  is_stand_in_ = device.is_stand_in;
  document_["device"] = to_json(device);
  document_["device"]["driver"] = driver_json();
  print("{}{}", line_prefix_, device_line(device));
  if (is_stand_in_) note(kStandInNote);
}

void Report::set_mapping(const Mapping& mapping) {
  document_["mapping"] = to_json(mapping);
  print("{}mapping: {}, {}{}\n", line_prefix_, name_of(mapping.backend()), name_of(mapping.type()), stand_in_label(is_stand_in_));
  for (const PassedOver& backend : mapping.report().passed_over) {
    print("{}  not {}: {} ({})\n", line_prefix_, name_of(backend.backend), backend.why.reason, name_of(backend.why.code));
  }
}

void Report::set_clock(const SampleClock& clock) {
  document_["clock"] = to_json(clock);
  print("{}clock: {}; reading it costs {:.0f} ns, which every sample contains (not subtracted)\n", line_prefix_, clock.name(),
        clock.cost_ns());
}

void Report::heading(std::string_view line) {
  end_table();
  print("\n{}{}\n", line, stand_in_label(is_stand_in_));
}

void Report::begin_table(const Row& example) {
  table_.emplace(example.columns_);
  table_->add_row(example.entries_);
  const std::string text = table_->take_text();
  print("{}", text.substr(0, text.find('\n') + 1));
}

void Report::print_row(const Row& row) {
  if (!table_) table_.emplace(row.columns_);
  table_->add_row(row.entries_);
  print("{}", table_->take_text());
}

void Report::add_row(const Row& row) {
  print_row(row);
  add_result(row.document());
}

void Report::note(const std::string& line) {
  document_["notes"].push_back(line);
  print("{}note: {}\n", line_prefix_, line);
}

void Report::write() {
  if (json_path_.empty()) return;
  const std::string text = json_text(document_);
  if (json_path_ == "-") {
    write_standard_output(text);
  } else {
    write_file("--json", json_path_, text);
  }
}

}  // namespace gigabar::tool
