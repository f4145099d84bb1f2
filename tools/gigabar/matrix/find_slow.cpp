// SPDX-License-Identifier: Apache-2.0
#include "matrix/find_slow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "support/statistics.hpp"

namespace gigabar::tool::matrix {
namespace {

// A group behind a slow switch slows half of the paths between four groups: what is usual lies among the fast ones. More slow paths
// than this are no exception, but what is usual.
constexpr double kUsualQuantile = 0.8, kMaxSlow = 0.6;
constexpr double kSigmaOfMad = 1.4826;  // of a normal distribution

struct Path {
  int from = 0, to = 0;
  double share = 0;  // of what is usual for its kind
  bool is_slow = false;
  bool is_slow_alone = false;  // enough to be named by itself
  bool is_explained = false;
};

// Paths that cross different things cannot be compared.
int kind_of(const Placement& from, const Placement& to) {
  if (from.host >= 0 && from.host == to.host) return 0;
  return from.group == to.group ? 1 : 2;
}

// What the paths of a kind usually have, and below which share of it one is slow.
struct Usual {
  double gb_per_s = 0, limit = 0;
};

Usual usual_of(std::vector<double> rates, const FindOptions& options) {
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  const auto spread_around = [&](double usual) {
    // Of the faster ones only: the slow ones are what is looked for.
    std::vector<double> losses;
    for (const double rate : rates) {
      if (rate >= usual) losses.push_back(rate / usual - 1);
    }
    return kSigmaOfMad * median(losses);
  };
  const auto usual_at = [&](double quantile) {
    const double usual = rates[percentile_index(rates.size(), quantile)];
    return Usual{usual, 1 - std::max(options.floor, options.sigmas * spread_around(usual))};
  };
  const Usual usual = usual_at(kUsualQuantile);
  const auto slow = std::lower_bound(rates.begin(), rates.end(), usual.gb_per_s * usual.limit) - rates.begin();
  return static_cast<double>(slow) > kMaxSlow * static_cast<double>(rates.size()) ? usual_at(0.5) : usual;
}

std::vector<Path> paths_of(const Rates& rates, std::span<const Placement> ranks, const FindOptions& options) {
  std::vector<Path> paths;
  std::array<std::vector<double>, 3> samples;
  std::vector<std::size_t> kinds;
  for (std::size_t from = 0; from < rates.count; ++from) {
    for (std::size_t to = 0; to < rates.count; ++to) {
      const double rate = rates.at(from, to);
      if (from == to || !(rate > 0) || !std::isfinite(rate)) continue;
      paths.push_back({static_cast<int>(from), static_cast<int>(to), rate});
      kinds.push_back(static_cast<std::size_t>(kind_of(ranks[from], ranks[to])));
      samples[kinds.back()].push_back(rate);
    }
  }
  std::array<Usual, 3> usual{};
  for (std::size_t kind = 0; kind < samples.size(); ++kind) usual[kind] = usual_of(std::move(samples[kind]), options);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Usual& of_kind = usual[kinds[i]];
    paths[i].share /= of_kind.gb_per_s;
    paths[i].is_slow = paths[i].share < of_kind.limit;
    paths[i].is_slow_alone = paths[i].is_slow && paths[i].share < 1 - options.pair_floor;
  }
  return paths;
}

using Key = std::tuple<Part, int, Way>;

// Every part that a path crosses, but for the pair itself.
template <class Visit>
void visit_parts(const Path& path, std::span<const Placement> ranks, const Visit& visit) {
  const Placement& from = ranks[static_cast<std::size_t>(path.from)];
  const Placement& to = ranks[static_cast<std::size_t>(path.to)];
  const auto leave = [&](Part part, int sender, int receiver) {
    if (sender == receiver) return;
    for (const auto& [number, way] : {std::pair(sender, Way::sending), std::pair(receiver, Way::receiving)}) {
      if (number < 0) continue;
      visit(Key(part, number, way));
      visit(Key(part, number, Way::both));
    }
  };
  leave(Part::group, from.group, to.group);
  leave(Part::host, from.host, to.host);
  if (from.host != to.host) leave(Part::rail, from.rail, to.rail);
  leave(Part::rank, path.from, path.to);
}

struct Count {
  std::size_t all = 0, slow = 0, left = 0;  // of its paths: slow, and slow without an explanation
};

std::map<Key, Count> count_parts(const std::vector<Path>& paths, std::span<const Placement> ranks) {
  std::map<Key, Count> counts;
  for (const Path& path : paths) {
    visit_parts(path, ranks, [&](const Key& key) {
      Count& count = counts[key];
      ++count.all;
      if (path.is_slow) ++count.slow;
      if (path.is_slow && !path.is_explained) ++count.left;
    });
  }
  return counts;
}

// What explains most; of those that explain as much, the one with the fewest other paths, then one way rather than both, then the
// largest part, since all of its smaller parts being slow at once is less likely.
using Order = std::tuple<std::size_t, std::size_t, int, int>;
Order order_of(const Key& key, const Count& count) {
  return {count.left, std::size_t{} - count.all, std::get<Way>(key) == Way::both ? 0 : 1, -static_cast<int>(std::get<Part>(key))};
}

const std::pair<const Key, Count>* best_of(const std::map<Key, Count>& counts, double agreement) {
  const std::pair<const Key, Count>* best = nullptr;
  for (const auto& each : counts) {
    const Count& count = each.second;
    if (count.left == 0 || static_cast<double>(count.slow) < agreement * static_cast<double>(count.all)) continue;
    if (best == nullptr || order_of(best->first, best->second) < order_of(each.first, count)) best = &each;
  }
  return best;
}

// Explains its paths, and finds the parts of the same kind that exactly these paths cross as well.
Slow explain(const Key& key, std::vector<Path>& paths, std::span<const Placement> ranks) {
  Slow slow;
  std::tie(slow.part, slow.first, slow.way) = key;
  std::vector<double> shares;
  std::map<int, std::size_t> crossing;  // how many of its paths cross another part of its kind
  std::map<int, std::size_t> all;
  for (Path& path : paths) {
    std::set<int> crossed;
    visit_parts(path, ranks, [&](const Key& other) {
      if (std::get<Part>(other) == slow.part) crossed.insert(std::get<1>(other));
    });
    bool is_part = false;
    visit_parts(path, ranks, [&](const Key& other) { is_part = is_part || other == key; });
    for (const int number : crossed) {
      ++all[number];
      if (is_part) ++crossing[number];
    }
    if (!is_part) continue;
    shares.push_back(path.share);
    if (path.is_slow && !path.is_explained) ++slow.path_count;
    path.is_explained = true;
  }
  slow.share = median(shares);
  for (const auto& [number, count] : crossing) {
    const bool crosses_the_same = count == shares.size() && (slow.way != Way::both || all[number] == count);
    if (number != slow.first && crosses_the_same) slow.others.push_back(number);
  }
  return slow;
}

// The slow paths that no part explains: a pair, where both of its directions are among them.
void add_pairs(const std::vector<Path>& paths, std::vector<Slow>& found) {
  std::map<std::pair<int, int>, double> left;
  for (const Path& path : paths) {
    if (path.is_slow_alone && !path.is_explained) left.emplace(std::pair(path.from, path.to), path.share);
  }
  for (const auto& [ends, share] : left) {
    const auto back = left.find({ends.second, ends.first});
    const bool is_both = back != left.end();
    if (is_both && ends.second < ends.first) continue;  // named already
    const double both = is_both ? (share + back->second) / 2 : share;
    found.push_back({Part::pair, is_both ? Way::both : Way::sending, ends.first, ends.second, both, is_both ? 2U : 1U, {}});
  }
}

}  // namespace

std::string_view name_of(Part part) noexcept {
  switch (part) {
    case Part::group: return "group";
    case Part::host: return "host";
    case Part::rail: return "rail";
    case Part::rank: return "rank";
    case Part::pair: return "pair";
  }
  return "?";
}

std::string Slow::text() const {
  if (part == Part::pair) return fmt::format("pair {} {} {}", first, way == Way::both ? "and" : "to", second);
  const std::string_view what = way == Way::sending ? ", sending" : way == Way::receiving ? ", receiving" : "";
  std::string text = fmt::format("{} {}{}", name_of(part), first, what);
  for (const int other : others) text += fmt::format(", or {} {}, which the same paths cross", name_of(part), other);
  return text;
}

std::vector<Slow> find_slow(const Rates& rates, std::span<const Placement> ranks, const FindOptions& options) {
  std::vector<Slow> found;
  if (ranks.size() < rates.count) return found;
  std::vector<Path> paths = paths_of(rates, ranks, options);
  while (true) {
    const std::map<Key, Count> counts = count_parts(paths, ranks);
    const auto* const best = best_of(counts, options.agreement);
    if (best == nullptr) break;
    found.push_back(explain(best->first, paths, ranks));
  }
  add_pairs(paths, found);
  return found;
}

}  // namespace gigabar::tool::matrix
