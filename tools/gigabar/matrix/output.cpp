// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/counted.hpp"
#include "matrix/job.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool::matrix {
namespace {

constexpr std::array<Kind, kKinds> kAllKinds = {Kind::within_host, Kind::within_group, Kind::between_groups};

constexpr const char* kTwoSpeeds =
    "# paths of one kind have two speeds, and no part of the job explains it: sockets, bridges, or switches that --switches can "
    "tell\n";

std::string figure_text(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value);
}

// Where no switch is known there are only hosts.
std::string_view name_of(Kind kind, const Places& places) noexcept {
  switch (kind) {
    case Kind::within_host: return "paths within a host";
    case Kind::within_group: return places.groups.empty() ? "paths between hosts" : "paths behind one switch";
    case Kind::between_groups: return "paths between switches";
  }
  return "?";
}

const Usual& paths_of(const Shown& shown, Kind kind) { return shown.judgement.comparison.usual[static_cast<std::size_t>(kind)]; }

Kind kind_at(const Shown& shown, std::size_t index) {
  return kind_of(shown.places.ranks[index / shown.figures.count], shown.places.ranks[index % shown.figures.count]);
}

std::string path_between(const Shown& shown, std::size_t index) {
  return fmt::format("rank {} to rank {}", index / shown.figures.count, index % shown.figures.count);
}

const std::string& path_text_of(const Shown& shown, std::size_t index) {
  static const std::string none;
  const PathIndex path = shown.figures.paths[index];
  return path < shown.path_texts.size() ? shown.path_texts[path] : none;
}

Json rows_of(const Figures& figures, const auto& value_at) {
  Json rows = Json::array();
  for (std::size_t from = 0; from < figures.count; ++from) {
    Json row = Json::array();
    for (std::size_t to = 0; to < figures.count; ++to) {
      const std::size_t index = figures.index(from, to);
      row.push_back(figures.values[index] > 0 ? Json(value_at(index)) : Json());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

constexpr std::array<Named<Way>, 3> kWays = {{{Way::both, "both"}, {Way::sending, "sending"}, {Way::receiving, "receiving"}}};

Json slow_json(const Shown& shown, std::size_t slow_index) {
  const Slow& slow = shown.judgement.slow[slow_index];
  const std::size_t worst = slow.worst;
  const char* const key = shown.is_latency() ? "us" : "gb_per_s";
  return {{"part", label_of(slow.part)},
          {"number", slow.first},
          {"second", index_or_null(slow.second)},
          {"way", name_in(kWays, slow.way)},
          {"text", shown.places.text(slow)},
          {"share", slow.share},
          {"paths", slow.path_count},
          {"others", slow.others},
          {"worst",
           {{"from", worst / shown.figures.count},
            {"to", worst % shown.figures.count},
            {key, shown.figures.values[worst]},
            {"path", path_text_of(shown, worst)}}}};
}

}  // namespace

std::string line_of(const Shown& shown, std::size_t slow_index) {
  const Slow& slow = shown.judgement.slow[slow_index];
  const std::size_t worst = slow.worst;
  const std::string share = shown.is_latency() ? fmt::format("{:.2f} times the latency", slow.share > 0 ? 1 / slow.share : 0.0)
                                               : fmt::format("{:.2f} of the bandwidth", slow.share);
  return fmt::format("{}: {} of such paths ({}); {}: {} {} instead of {}, {}", shown.places.text(slow), share,
                     counted(slow.path_count, "path"), path_between(shown, worst), figure_text(shown.figures.values[worst]),
                     shown.unit(), figure_text(shown.judgement.usual(kind_at(shown, worst))), path_text_of(shown, worst));
}

std::string table_of(const Shown& shown) {
  std::vector<TextTable::Column> columns = {{"from\\to", true}};
  for (std::size_t to = 0; to < shown.figures.count; ++to) columns.push_back({std::to_string(to)});
  TextTable table(std::move(columns));
  for (std::size_t from = 0; from < shown.figures.count; ++from) {
    std::vector<std::string> row = {std::to_string(from)};
    for (std::size_t to = 0; to < shown.figures.count; ++to) {
      const std::size_t index = shown.figures.index(from, to);
      const bool is_slow = index < shown.judgement.comparison.is_slow.size() && shown.judgement.comparison.is_slow[index] != 0;
      row.push_back(shown.figures.values[index] > 0 ? figure_text(shown.figures.values[index]) + (is_slow ? "!" : "") : "-");
    }
    table.add_row(std::move(row));
  }
  return table.take_text();
}

std::string summary_of(const Shown& shown) {
  const std::string unit = fmt::format(" ({})", shown.unit());
  TextTable table({{fmt::format("# {}", shown.measure()), true},
                   {"paths"},
                   {"usual" + unit},
                   {"worst" + unit},
                   {"slow"},
                   {"the worst path", true}});
  bool has_two_speeds = false;
  for (const Kind kind : kAllKinds) {
    const Usual& paths = paths_of(shown, kind);
    if (paths.path_count == 0) continue;
    has_two_speeds |= 10 * paths.slow_count > 3 * paths.path_count;
    table.add_row({fmt::format("# {}", name_of(kind, shown.places)), std::to_string(paths.path_count),
                   figure_text(shown.judgement.usual(kind)), figure_text(shown.figures.values[paths.worst]),
                   std::to_string(paths.slow_count),
                   fmt::format("{}, {}", path_between(shown, paths.worst), path_text_of(shown, paths.worst))});
  }
  return table.take_text() + (has_two_speeds && shown.judgement.slow.empty() ? kTwoSpeeds : "");
}

Json document_of(const Shown& shown) {
  Json kinds = Json::array();
  const bool is_latency = shown.is_latency();
  for (const Kind kind : kAllKinds) {
    const Usual& paths = paths_of(shown, kind);
    if (paths.path_count == 0) continue;
    kinds.push_back({{"kind", name_of(kind, shown.places)},
                     {"paths", paths.path_count},
                     {"slow_paths", paths.slow_count},
                     {is_latency ? "usual_us" : "usual_gb_per_s", shown.judgement.usual(kind)},
                     {"slow_below_share", paths.limit}});
  }
  Json slow = Json::array();
  for (std::size_t i = 0; i < shown.judgement.slow.size(); ++i) slow.push_back(slow_json(shown, i));
  return {{"kinds", std::move(kinds)},
          {"slow", std::move(slow)},
          {is_latency ? "us" : "gb_per_s", rows_of(shown.figures, [&](std::size_t index) { return shown.figures.values[index]; })},
          {"paths", rows_of(shown.figures, [&](std::size_t index) { return shown.figures.paths[index]; })}};
}

std::string csv_of(const Shown* latency, const Shown* bandwidth) {
  const Shown& any = bandwidth != nullptr ? *bandwidth : *latency;
  const std::size_t count = any.figures.count;
  const auto host_of = [&](std::size_t rank) {
    return csv_quoted(any.places.hosts[static_cast<std::size_t>(any.places.ranks[rank].host)]);
  };
  const auto add = [](std::string& text, const Shown* shown, std::size_t index) {
    if (shown == nullptr || !(shown->figures.values[index] > 0)) {
      text += ",,,";
      return;
    }
    fmt::format_to(std::back_inserter(text), ",{:.6g},{:.4g},{}", shown->figures.values[index],
                   shown->judgement.comparison.shares[index], csv_quoted(path_text_of(*shown, index)));
  };
  std::string text = "from,to,from_host,to_host,latency_us,latency_share,latency_path,gb_per_s,share,path\n";
  for (std::size_t from = 0; from < count; ++from) {
    for (std::size_t to = 0; to < count; ++to) {
      if (from == to) continue;
      const std::size_t index = any.figures.index(from, to);
      fmt::format_to(std::back_inserter(text), "{},{},{},{}", from, to, host_of(from), host_of(to));
      add(text, latency, index);
      add(text, bandwidth, index);
      text += '\n';
    }
  }
  return text;
}

// --- The heat map --------------------------------------------------------------------------------------------------------------

namespace {

constexpr double kWidth = 720, kMargin = 48, kMapWidth = 512, kLine = 18, kMaxCellWidth = 40, kMinCrossWidth = 7;
constexpr std::size_t kMaxRanksWithTitles = 32, kMaxLines = 24, kMaxColumns = 100;
constexpr std::size_t kShades = 8;  // of shares from 0 to 1

// Light where a path has what is usual, dark where it is slow; the other way round on a dark page.
constexpr const char* kStyle = R"(<style>
  .page { fill: #ffffff } text { fill: #1f2328; font: 12px sans-serif } .heading { font-weight: bold; font-size: 14px }
  .none { fill: #e4e7eb } .frame { fill: none; stroke: #59636e } .cross { stroke: #ffffff; stroke-width: 1.5 }
  .c0 { fill: #5c1a00 } .c1 { fill: #862700 } .c2 { fill: #b03a00 } .c3 { fill: #cf5a14 } .c4 { fill: #e08244 } .c5 { fill: #ecb184 }
  .c6 { fill: #d3e3f4 } .c7 { fill: #b6d4f2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .none { fill: #21262d } .frame { stroke: #8b949e } .cross { stroke: #0d1117 }
    .c0 { fill: #ffd8b5 } .c1 { fill: #ffc28a } .c2 { fill: #ffa657 } .c3 { fill: #e5832f } .c4 { fill: #bd6420 } .c5 { fill: #8a4817 }
    .c6 { fill: #1d4a7a } .c7 { fill: #143861 }
  }
</style>
)";

class Drawing {
 public:
  explicit Drawing(const std::string& title) { write(title, "heading"); }

  void add(const Shown& shown) {
    const std::size_t per_cell = (shown.figures.count + kMaxCells - 1) / kMaxCells;
    const std::size_t cells = per_cell == 0 ? 0 : (shown.figures.count + per_cell - 1) / per_cell;
    y_ += kLine / 2;
    write(fmt::format("{}: share of what such paths have; rows send, columns receive{}", shown.measure(),
                      per_cell > 1 ? fmt::format(", {} in a cell, which shows their slowest path", counted(per_cell, "rank")) : ""),
          "heading");
    if (cells > 0) add_map(shown, per_cell, cells);
    add_legend();
    add_lines(shown);
  }

  std::string text() const {
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" "
        "width=\"{0:g}\" height=\"{1:g}\" role=\"img\">\n{2}<rect class=\"page\" width=\"{0:g}\" height=\"{1:g}\"/>\n{3}</svg>\n",
        kWidth, y_ + kLine, kStyle, body_);
  }

 private:
  template <class... Parts>
  void print(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Parts>(parts)...);
  }

  void write(std::string_view text, const char* kind) {
    const std::string lines = wrapped(plain(text), kMaxColumns, 0);
    for (std::string_view left = lines; !left.empty();) {
      const std::string_view line = left.substr(0, left.find('\n'));
      left.remove_prefix(std::min(left.size(), line.size() + 1));
      y_ += kLine;
      print("<text x=\"12\" y=\"{:g}\" class=\"{}\">{}</text>\n", y_, kind,
            replaced(line, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}}));
    }
  }

  void add_map(const Shown& shown, std::size_t per_cell, std::size_t cells) {
    const double width = std::min(kMaxCellWidth, kMapWidth / static_cast<double>(cells));
    const double top = y_ + kLine * 1.5;
    const auto at = [&](std::size_t cell) { return static_cast<double>(cell) * width; };
    for (std::size_t row = 0; row < cells; ++row) {
      for (std::size_t column = 0; column < cells; ++column) {
        add_cell(shown, per_cell, row, column, kMargin + at(column), top + at(row), width);
      }
    }
    print("<rect class=\"frame\" x=\"{0:g}\" y=\"{1:g}\" width=\"{2:g}\" height=\"{2:g}\"/>\n", kMargin, top, at(cells));
    const std::size_t step = (cells + 15) / 16;  // cells from one number to the next
    for (std::size_t cell = 0; cell < cells; cell += step) {
      const double middle = at(cell) + width / 2;
      print("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\">{}</text>\n", kMargin + middle, top - 5, cell * per_cell);
      print("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n", kMargin - 5, top + middle + 4, cell * per_cell);
    }
    y_ = top + at(cells);
  }

  // A cell shows the slowest path of the ranks that share it.
  void add_cell(const Shown& shown, std::size_t per_cell, std::size_t row, std::size_t column, double x, double y, double width) {
    double least = 0;  // 0: nothing was measured
    bool is_slow = false;
    const Comparison& comparison = shown.judgement.comparison;
    const auto end_of = [&](std::size_t first) { return std::min(shown.figures.count, (first + 1) * per_cell); };
    for (std::size_t from = row * per_cell; from < end_of(row); ++from) {
      for (std::size_t to = column * per_cell; to < end_of(column); ++to) {
        const std::size_t index = shown.figures.index(from, to);
        const double share = index < comparison.shares.size() ? static_cast<double>(comparison.shares[index]) : 0.0;
        if (!(share > 0)) continue;
        if (least == 0 || share < least) least = share;
        is_slow = is_slow || comparison.is_slow[index] != 0;
      }
    }
    const auto shade_number = std::min(kShades - 1, static_cast<std::size_t>(least * static_cast<double>(kShades)));
    const std::string shade = least > 0 ? fmt::format("c{}", shade_number) : "none";
    print("<rect class=\"{0}\" x=\"{1:.6g}\" y=\"{2:.6g}\" width=\"{3:.6g}\" height=\"{3:.6g}\"", shade, x, y, width);
    if (per_cell == 1 && shown.figures.count <= kMaxRanksWithTitles && least > 0) {
      print("><title>rank {} to rank {}: {:.3g} {}</title></rect>\n", row, column,
            shown.figures.values[shown.figures.index(row, column)], shown.unit());
    } else {
      print("/>\n");
    }
    if (!is_slow || width < kMinCrossWidth) return;
    const double near = width * 0.3, far = width * 0.7;
    print("<path class=\"cross\" d=\"M{0:.6g} {2:.6g}L{1:.6g} {3:.6g}M{1:.6g} {2:.6g}L{0:.6g} {3:.6g}\"/>\n", x + near, x + far,
          y + near, y + far);
  }

  void add_legend() {
    y_ += kLine * 0.5;
    for (std::size_t shade = 0; shade < kShades; ++shade) {
      print("<rect class=\"c{}\" x=\"{:g}\" y=\"{:g}\" width=\"32\" height=\"12\"/>\n", shade,
            kMargin + 32 * static_cast<double>(shade), y_);
    }
    const double end = kMargin + 32 * static_cast<double>(kShades);
    print("<text x=\"{:g}\" y=\"{:g}\">0 to 1 and above; a cross: slow; grey: not measured</text>\n", end + 8, y_ + 11);
    y_ += kLine * 0.75;
  }

  void add_lines(const Shown& shown) {
    const std::size_t count = shown.judgement.slow.size();
    if (count == 0) write("nothing is slow", "line");
    for (std::size_t i = 0; i < std::min(count, kMaxLines); ++i) write("slow: " + line_of(shown, i), "line");
    if (count > kMaxLines) write(fmt::format("and {} more", count - kMaxLines), "line");
  }

  std::string body_;
  double y_ = 4;
};

}  // namespace

std::string svg_of(const std::vector<const Shown*>& all, const std::string& title) {
  Drawing drawing(title);
  for (const Shown* const shown : all) drawing.add(*shown);
  return drawing.text();
}

}  // namespace gigabar::tool::matrix
