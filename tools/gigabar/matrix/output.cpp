// SPDX-License-Identifier: Apache-2.0
#include "matrix/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/counted.hpp"
#include "support/plain_text.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool::matrix {
namespace {

constexpr std::array<Kind, kKinds> kAllKinds = {Kind::within_host, Kind::within_group, Kind::between_groups};

constexpr const char* kTwoSpeeds =
    "# paths of one kind have two speeds, and no part of the job explains it: sockets, bridges, or switches that --switches can "
    "tell\n";

std::string figure_text(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value);
}

struct PathsOfKind {
  std::size_t count = 0, slow_count = 0;
  double least_share = 0;
  std::size_t worst = 0;  // index of its path
};

Kind kind_at(const Shown& shown, std::size_t index) {
  return kind_of(shown.places.ranks[index / shown.figures.count], shown.places.ranks[index % shown.figures.count]);
}

PathsOfKind paths_of(const Shown& shown, Kind kind) {
  PathsOfKind paths;
  const Comparison& comparison = shown.judgement.comparison;
  for (std::size_t index = 0; index < comparison.shares.size(); ++index) {
    const double share = comparison.shares[index];
    if (!(share > 0) || kind_at(shown, index) != kind) continue;
    paths.slow_count += comparison.is_slow[index];
    if (paths.count++ > 0 && share >= paths.least_share) continue;
    paths.least_share = share;
    paths.worst = index;
  }
  return paths;
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
  const std::size_t worst = shown.judgement.worst[slow_index];
  const char* const key = shown.is_latency() ? "us" : "gb_per_s";
  return {{"part", slow.part == Part::group ? "switch" : name_of(slow.part)},
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

std::string_view name_of(Kind kind, const Places& places) noexcept {
  switch (kind) {
    case Kind::within_host: return "paths within a host";
    case Kind::within_group: return places.groups.empty() ? "paths between hosts" : "paths behind one switch";
    case Kind::between_groups: return "paths between switches";
  }
  return "?";
}

std::string line_of(const Shown& shown, std::size_t slow_index) {
  const Slow& slow = shown.judgement.slow[slow_index];
  const std::size_t worst = shown.judgement.worst[slow_index];
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
    const PathsOfKind paths = paths_of(shown, kind);
    if (paths.count == 0) continue;
    has_two_speeds |= 10 * paths.slow_count > 3 * paths.count;
    table.add_row({fmt::format("# {}", name_of(kind, shown.places)), std::to_string(paths.count),
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
    const PathsOfKind paths = paths_of(shown, kind);
    if (paths.count == 0) continue;
    const double limit = shown.judgement.comparison.usual[static_cast<std::size_t>(kind)].limit;
    kinds.push_back({{"kind", name_of(kind, shown.places)},
                     {"paths", paths.count},
                     {"slow_paths", paths.slow_count},
                     {is_latency ? "usual_us" : "usual_gb_per_s", shown.judgement.usual(kind)},
                     {"slow_below_share", limit}});
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

}  // namespace gigabar::tool::matrix
