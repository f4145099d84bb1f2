// SPDX-License-Identifier: Apache-2.0
#include "matrix/find_slow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/names.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::matrix {
namespace {

// A group behind a slow switch slows half of the paths between four groups: what is usual lies among the fast ones. More slow paths
// than this are no exception, but what is usual.
constexpr double kUsualQuantile = 0.8, kMaxSlow = 0.6;
constexpr double kFloor = 0.25;         // a path that loses less is not slow, however quiet the others are
constexpr double kPairFloor = 0.35;     // of a path alone: among thousands of paths one is disturbed by chance
constexpr double kSigmas = 6;           // nor is one that loses less than so many robust standard deviations of its kind
constexpr double kAgreement = 0.8;      // a part is slow when this share of the paths that cross it are
constexpr double kSigmaOfMad = 1.4826;  // of a normal distribution
constexpr double kBelowUsual = 1.39;    // of one, too: from its 0.8 quantile to the 0.9 it is so many times as far as to the 0.7
// More of a kind that so many pairs of ranks or of hosts alone would explain are paths of another kind.
constexpr double kMaxInPairs = 0.3;
constexpr std::size_t kMinPairs = 4;

struct Path {
  int from = 0, to = 0;
  double share = 0;       // of what is usual for its kind
  std::size_t index = 0;  // in the comparison
  bool is_slow = false;
  bool is_explained = false;
};

Usual usual_of(std::vector<double> rates) {
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  // Of the faster ones, since the slow ones are what is looked for; or of as many just below, since a few may be much faster.
  const auto spread_around = [&](std::size_t index) {
    const double usual = rates[index];
    std::vector<double> losses;
    for (std::size_t faster = index; faster < rates.size(); ++faster) losses.push_back(rates[faster] / usual - 1);
    const double below = 1 - rates[index - std::min(index, losses.size() / 2)] / usual;
    return kSigmaOfMad * std::min(median(losses), kBelowUsual * below);
  };
  const auto usual_at = [&](double quantile) {
    const std::size_t index = percentile_index(rates.size(), quantile);
    return Usual{.gb_per_s = rates[index], .limit = 1 - std::max(kFloor, kSigmas * spread_around(index))};
  };
  const Usual usual = usual_at(kUsualQuantile);
  const auto slow = std::lower_bound(rates.begin(), rates.end(), usual.gb_per_s * usual.limit) - rates.begin();
  return static_cast<double>(slow) > kMaxSlow * static_cast<double>(rates.size()) ? usual_at(0.5) : usual;
}

std::vector<Path> paths_of(const Comparison& comparison, std::size_t rank_count) {
  std::vector<Path> paths;
  for (std::size_t index = 0; index < comparison.shares.size(); ++index) {
    const double share = comparison.shares[index];
    if (!(share > 0)) continue;
    paths.push_back({static_cast<int>(index / rank_count), static_cast<int>(index % rank_count), share, index});
    paths.back().is_slow = comparison.is_slow[index] != 0;
  }
  return paths;
}

bool is_unexplained(const Path& path) { return path.is_slow && !path.is_explained; }

using Key = std::tuple<Part, int, int, Way>;  // as Slow has them; of both ways between two hosts the lesser one is the first

// Every part that a path crosses, but for the pair itself.
template <class Visit>
void visit_parts(const Path& path, std::span<const Placement> ranks, const Visit& visit) {
  const Placement& from = ranks[static_cast<std::size_t>(path.from)];
  const Placement& to = ranks[static_cast<std::size_t>(path.to)];
  const auto leave = [&](Part part, int sender, int receiver) {
    if (sender == receiver) return;
    for (const auto& [number, way] : {std::pair(sender, Way::sending), std::pair(receiver, Way::receiving)}) {
      if (number < 0) continue;
      visit(Key(part, number, -1, way));
      visit(Key(part, number, -1, Way::both));
    }
  };
  leave(Part::group, from.group, to.group);
  leave(Part::host, from.host, to.host);
  if (from.host != to.host) leave(Part::rail, from.rail, to.rail);
  leave(Part::rank, path.from, path.to);
  if (from.host == to.host || std::min(from.host, to.host) < 0) return;
  visit(Key(Part::host_pair, from.host, to.host, Way::sending));
  const auto [lesser, greater] = std::minmax(from.host, to.host);
  visit(Key(Part::host_pair, lesser, greater, Way::both));
}

bool is_of_part(const Path& path, std::span<const Placement> ranks, const Key& part) {
  bool is_part = false;
  visit_parts(path, ranks, [&](const Key& other) { is_part = is_part || other == part; });
  return is_part;
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
      if (is_unexplained(path)) ++count.left;
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

// Hosts of one rank each are paths of their own: that pair of ranks is named.
bool is_pair_of_ranks(const Key& key, const Count& count) {
  return std::get<Part>(key) == Part::host_pair && count.all <= (std::get<Way>(key) == Way::both ? 2U : 1U);
}

const std::pair<const Key, Count>* best_of(const std::map<Key, Count>& counts) {
  const std::pair<const Key, Count>* best = nullptr;
  for (const auto& each : counts) {
    const Count& count = each.second;
    if (count.left == 0 || is_pair_of_ranks(each.first, count) ||
        static_cast<double>(count.slow) < kAgreement * static_cast<double>(count.all))
      continue;
    if (best == nullptr || order_of(best->first, best->second) < order_of(each.first, count)) best = &each;
  }
  return best;
}

// Explains its paths, and finds the parts of the same kind that exactly these paths cross as well.
Slow explain(const Key& key, const std::map<Key, Count>& counts, std::vector<Path>& paths, std::span<const Placement> ranks) {
  Slow slow;
  std::tie(slow.part, slow.first, slow.second, slow.way) = key;
  std::vector<double> shares;
  double least = 0;
  std::map<int, std::size_t> crossing;  // how many of its paths cross another part of its kind
  for (Path& path : paths) {
    if (!is_of_part(path, ranks, key)) continue;
    visit_parts(path, ranks, [&](const Key& other) {
      if (std::get<Part>(other) == slow.part && std::get<Way>(other) == Way::both) ++crossing[std::get<1>(other)];
    });
    if (shares.empty() || path.share < least) {
      least = path.share;
      slow.worst = path.index;
    }
    shares.push_back(path.share);
    if (is_unexplained(path)) ++slow.path_count;
    path.is_explained = true;
  }
  slow.share = median(shares);
  if (slow.part == Part::host_pair) return slow;
  for (const auto& [number, count] : crossing) {
    const bool crosses_the_same =
        count == shares.size() && (slow.way != Way::both || counts.at(Key(slow.part, number, -1, Way::both)).all == count);
    if (number != slow.first && crosses_the_same) slow.others.push_back(number);
  }
  return slow;
}

// The slow paths that no part explains: a pair, where both of its directions are among them.
void add_pairs(const std::vector<Path>& paths, std::vector<Slow>& found) {
  std::map<std::pair<int, int>, Path> left;
  for (const Path& path : paths) {
    if (is_unexplained(path) && path.share < 1 - kPairFloor) left.emplace(std::pair(path.from, path.to), path);
  }
  for (const auto& [ends, path] : left) {
    const auto back = left.find({ends.second, ends.first});
    const bool is_both = back != left.end();
    if (is_both && ends.second < ends.first) continue;  // named already
    const Path& other = is_both ? back->second : path;
    const std::size_t worst = other.share < path.share ? other.index : path.index;
    const double share = (path.share + other.share) / 2;
    found.push_back({Part::pair, is_both ? Way::both : Way::sending, ends.first, ends.second, share, is_both ? 2U : 1U, worst, {}});
  }
}

// Where many paths of a kind are slow and nothing larger than a pair explains them, the kind has two speeds, such as those of two
// sockets, or of switches that nobody has named: no pair of it is broken. Such paths are left out; false: there are none.
bool leave_out_second_speeds(std::vector<Path>& paths, std::span<const Placement> ranks) {
  const auto kind_number = [&](const Path& path) {
    return static_cast<std::size_t>(kind_of(ranks[static_cast<std::size_t>(path.from)], ranks[static_cast<std::size_t>(path.to)]));
  };
  std::array<std::size_t, kKinds> all{}, left{};
  std::array<std::set<std::pair<int, int>>, kKinds> pairs;  // the first few: of hosts, or of ranks of one host
  for (const Path& path : paths) {
    const std::size_t kind = kind_number(path);
    ++all[kind];
    if (!is_unexplained(path)) continue;
    ++left[kind];
    const int from = ranks[static_cast<std::size_t>(path.from)].host, to = ranks[static_cast<std::size_t>(path.to)].host;
    if (pairs[kind].size() < kMinPairs) pairs[kind].insert(from != to ? std::minmax(from, to) : std::minmax(path.from, path.to));
  }
  bool is_any = false;
  for (Path& path : paths) {
    const std::size_t kind = kind_number(path);
    const bool has_two =
        pairs[kind].size() >= kMinPairs && static_cast<double>(left[kind]) > kMaxInPairs * static_cast<double>(all[kind]);
    if (!has_two || !is_unexplained(path)) continue;
    path.is_explained = is_any = true;
  }
  return is_any;
}

}  // namespace

std::string_view name_of(Part part) noexcept {
  static constexpr std::array<std::string_view, 6> kParts = {"group", "host", "rail", "rank", "hosts", "pair"};
  return name_at(kParts, part);
}

std::string Slow::text(std::string_view what, const std::function<std::string(int number)>& name) const {
  if (is_pair(part)) return fmt::format("{} {} {} {}", what, name(first), way == Way::both ? "and" : "to", name(second));
  const std::string_view one_way = way == Way::sending ? ", sending" : way == Way::receiving ? ", receiving" : "";
  std::string text = fmt::format("{} {}{}", what, name(first), one_way);
  for (const int other : others) text += fmt::format(", or {} {}, which the same paths cross", what, name(other));
  return text;
}

bool crosses(const Slow& slow, std::span<const Placement> ranks, std::size_t from, std::size_t to) noexcept {
  const Path path{static_cast<int>(from), static_cast<int>(to)};
  if (slow.part == Part::pair) {
    return (path.from == slow.first && path.to == slow.second) ||
           (slow.way == Way::both && path.from == slow.second && path.to == slow.first);
  }
  return is_of_part(path, ranks, Key(slow.part, slow.first, slow.second, slow.way));
}

Kind kind_of(const Placement& from, const Placement& to) noexcept {
  if (from.host >= 0 && from.host == to.host) return Kind::within_host;
  return from.group == to.group ? Kind::within_group : Kind::between_groups;
}

Comparison compare_paths(std::span<const double> gb_per_s, std::span<const Placement> ranks) {
  Comparison comparison;
  const std::size_t count = ranks.size();
  if (gb_per_s.size() != count * count) return comparison;
  std::array<std::vector<double>, kKinds> samples;
  const auto visit = [&](const auto& see) {
    for (std::size_t index = 0; index < gb_per_s.size(); ++index) {
      const std::size_t from = index / count, to = index % count;
      const double rate = gb_per_s[index];
      if (from == to || !(rate > 0) || !std::isfinite(rate)) continue;
      see(index, static_cast<std::size_t>(kind_of(ranks[from], ranks[to])), rate);
    }
  };
  visit([&](std::size_t, std::size_t kind, double rate) { samples[kind].push_back(rate); });
  for (std::size_t kind = 0; kind < kKinds; ++kind) comparison.usual[kind] = usual_of(std::move(samples[kind]));
  comparison.shares.resize(gb_per_s.size());
  comparison.is_slow.resize(gb_per_s.size());
  visit([&](std::size_t index, std::size_t kind, double rate) {
    Usual& usual = comparison.usual[kind];
    const double share = rate / usual.gb_per_s;
    comparison.shares[index] = static_cast<float>(share);
    comparison.is_slow[index] = share < usual.limit ? 1 : 0;
    usual.slow_count += comparison.is_slow[index];
    if (usual.path_count++ == 0 || comparison.shares[index] < comparison.shares[usual.worst]) usual.worst = index;
  });
  return comparison;
}

std::vector<Slow> explain_slow(const Comparison& comparison, std::span<const Placement> ranks) {
  std::vector<Slow> found;
  std::vector<Path> paths = paths_of(comparison, ranks.size());
  while (std::any_of(paths.begin(), paths.end(), is_unexplained)) {
    const std::map<Key, Count> counts = count_parts(paths, ranks);
    const auto* const best = best_of(counts);
    if ((best == nullptr || is_pair(std::get<Part>(best->first))) && leave_out_second_speeds(paths, ranks)) continue;
    if (best == nullptr) break;
    found.push_back(explain(best->first, counts, paths, ranks));
  }
  add_pairs(paths, found);
  return found;
}

}  // namespace gigabar::tool::matrix
