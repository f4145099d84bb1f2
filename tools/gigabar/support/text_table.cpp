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
  for (std::size_t i = 0; i < entries.size(); ++i) widths_[i] = std::max(widths_[i], entries[i].size());
  rows_.push_back(std::move(entries));
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

std::string TextTable::take_text() {
  std::string text;
  if (!has_headings_) {
    std::vector<std::string> headings;
    for (const Column& column : columns_) headings.push_back(column.heading);
    text = line_of(headings);
    has_headings_ = true;
  }
  for (const auto& row : rows_) text += line_of(row);
  rows_.clear();
  return text;
}

}  // namespace gigabar::tool
