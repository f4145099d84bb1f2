// SPDX-License-Identifier: Apache-2.0
#include "support/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gigabar::tool {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) widths_.push_back(column.heading.size());
}

void TextTable::add_row(std::vector<std::string> entries) {
  entries.resize(columns_.size());
  widen(entries);
  rows_.push_back(std::move(entries));
}

void TextTable::widen(const std::vector<std::string>& entries) {
  for (std::size_t i = 0; i < std::min(entries.size(), widths_.size()); ++i) widths_[i] = std::max(widths_[i], entries[i].size());
}

std::string TextTable::line_of(const std::vector<std::string>& entries) const {
  std::string line;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    line += i == 0 ? "" : "  ";
    line += columns_[i].is_left ? fmt::format("{:<{}}", entries[i], widths_[i]) : fmt::format("{:>{}}", entries[i], widths_[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string TextTable::take_headings(const std::vector<std::string>& example) {
  widen(example);
  has_headings_ = true;
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  return line_of(headings);
}

std::string TextTable::take_text() {
  std::string text = has_headings_ ? "" : take_headings({});
  for (const auto& row : rows_) text += line_of(row);
  rows_.clear();
  return text;
}

}  // namespace gigabar::tool
