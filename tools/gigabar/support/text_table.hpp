// SPDX-License-Identifier: Apache-2.0
// Columns as wide as their widest entry.
#pragma once

#include <string>
#include <vector>

namespace gigabar::tool {

class TextTable {
 public:
  struct Column {
    std::string heading;
    bool is_left = false;  // text; numbers stand on the right
  };

  explicit TextTable(std::vector<Column> columns);

  // One entry per column.
  void add_row(std::vector<std::string> entries);
  bool is_empty() const noexcept { return rows_.empty(); }

  // The headings, above rows as wide as `example`.
  std::string take_headings(const std::vector<std::string>& example);

  // The rows that were added since the last call, under the headings where these have not been taken. Columns only ever grow, so
  // that the groups of a long table stand under one another.
  std::string take_text();

 private:
  void widen(const std::vector<std::string>& entries);
  std::string line_of(const std::vector<std::string>& entries) const;

  std::vector<Column> columns_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
  bool has_headings_ = false;
};

}  // namespace gigabar::tool
