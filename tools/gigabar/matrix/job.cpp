// SPDX-License-Identifier: Apache-2.0
#include "matrix/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <sstream>

#include "base/options.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::matrix {

// --- Batches --------------------------------------------------------------------------------------------------------------------

namespace {

// Each pair in the first batch in which neither of its hosts is.
std::vector<Pairing> without_shared_hosts(std::span<const int> hosts, const Pairing& round) {
  const auto host_count = static_cast<std::size_t>(*std::max_element(hosts.begin(), hosts.end())) + 1;
  std::vector<Pairing> batches;
  std::vector<std::vector<bool>> has_host;
  for (const auto& [first, second] : round) {
    const auto one = static_cast<std::size_t>(hosts[static_cast<std::size_t>(first)]);
    const auto other = static_cast<std::size_t>(hosts[static_cast<std::size_t>(second)]);
    std::size_t batch = 0;
    while (batch < batches.size() && (has_host[batch][one] || has_host[batch][other])) ++batch;
    if (batch == batches.size()) {
      batches.emplace_back();
      has_host.emplace_back(host_count);
    }
    batches[batch].emplace_back(first, second);
    has_host[batch][one] = has_host[batch][other] = true;
  }
  return batches;
}

}  // namespace

void visit_batches(std::span<const int> hosts, AtOnce at_once, const std::function<void(const Pairing& pairs)>& visit) {
  const int count = static_cast<int>(hosts.size());
  for (int number = 0; number < round_count_of(count); ++number) {
    const Pairing round = round_of_pairs(count, number);
    switch (at_once) {
      case AtOnce::all: visit(round); break;
      case AtOnce::host:
        for (const Pairing& batch : without_shared_hosts(hosts, round)) visit(batch);
        break;
      case AtOnce::one:
        for (const auto& pair : round) visit({pair});
        break;
    }
  }
}

std::vector<std::pair<int, int>> Turns::take(const std::pair<int, int>& pair) {
  std::vector<std::pair<int, int>> all;
  const auto turn_of = [&](int rank) { return at_once_ == AtOnce::one ? 0 : hosts_[static_cast<std::size_t>(rank)]; };
  const auto take_over = [&](int rank) {
    const int from = std::exchange(holders_.try_emplace(turn_of(rank), rank).first->second, rank);
    if (from != rank) all.emplace_back(from, rank);
  };
  take_over(pair.first);
  if (turn_of(pair.first) != turn_of(pair.second)) take_over(pair.second);
  return all;
}

// --- Where the ranks are --------------------------------------------------------------------------------------------------------

namespace {

// Numbers of texts, in the order of their first appearance.
using Numbers = std::map<std::string, int>;

// An empty text has none. `names`: of all numbers.
int number_of(Numbers& numbers, std::vector<std::string>& names, const std::string& key, const std::string& name) {
  if (key.empty()) return -1;
  const auto [known, is_new] = numbers.emplace(key, static_cast<int>(numbers.size()));
  if (is_new) names.push_back(name);
  return known->second;
}

// Empty ones too: levels without a switch, of a node that is less deep than others.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (const auto part : std::views::split(text, '.')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

// Of a host by its whole name, or by what stands before the first dot.
std::string switch_of(const std::string& host, const Switches& switches) {
  for (const std::string& name : {host, short_name(host)}) {
    if (const auto found = switches.find(name); found != switches.end()) return found->second;
  }
  return {};
}

}  // namespace

Switches parse_switches(std::string_view text, const std::string& path) {
  Switches switches;
  std::istringstream lines{std::string(text)};
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string_view> words = words_of(std::string_view(line).substr(0, line.find('#')));
    if (words.empty()) continue;
    const std::string name(words.front());
    if (words.size() == 1) {
      refuse_usage(
          fmt::format("--switches {}: line {}: no host behind {}; write its hosts behind it", plain(path), number, plain(name)));
    }
    for (const std::string_view host : std::span(words).subspan(1)) {
      const auto [known, is_new] = switches.emplace(host, name);
      if (!is_new && known->second != name) {
        refuse_usage(fmt::format("--switches {}: line {}: host {} is behind {} and {}; name it once", plain(path), number,
                                 plain(host), plain(known->second), plain(name)));
      }
    }
  }
  return switches;
}

Switches read_switches(const std::string& path) {
  constexpr std::string_view kRemedy = "name a text file of switches";
  return parse_switches(read_file("--switches", path, {std::size_t{16} << 20, kRemedy, kRemedy}), path);
}

std::string switch_of_slurm(const char* address, const char* pattern) {
  if (address == nullptr || pattern == nullptr) return {};
  const std::vector<std::string_view> names = parts_of(address), levels = parts_of(pattern);
  // A switch may stand for several ("s[1-2]"): the ones next to the node, then.
  if (levels.size() < 2 || names.size() < levels.size() || levels[levels.size() - 2] != "switch") return {};
  return std::string(names[levels.size() - 2]);
}

std::string Places::name_of(Part part, int number) const {
  const auto index = static_cast<std::size_t>(number);  // of none: beyond all
  if (part == Part::rank)
    return index < ranks.size() && ranks[index].host >= 0 ? "on " + name_of(Part::host, ranks[index].host) : "";
  const std::vector<std::string>& names = part == Part::rail ? rails : part == Part::group ? groups : hosts;
  return index < names.size() ? names[index] : std::string();
}

std::string_view label_of(Part part) noexcept { return part == Part::group ? "switch" : name_of(part); }

std::string Places::text(const Slow& slow) const {
  std::string text = slow.text(label_of(slow.part), [&](int number) {
    if (slow.part == Part::pair) return std::to_string(number);
    const std::string name = name_of(slow.part, number);
    return slow.part == Part::rank ? fmt::format("{} {}", number, name) : name;
  });
  if (slow.part == Part::pair) text += fmt::format(" ({}, {})", name_of(Part::rank, slow.first), name_of(Part::rank, slow.second));
  return text;
}

Places places_of(std::span<const Whereabouts> ranks, const Switches& switches) {
  Places places;
  Numbers hosts, rails, groups;
  std::map<std::string, int> namesakes;
  std::map<std::string, std::string> name_of_machine;
  for (const Whereabouts& rank : ranks) {
    const std::string machine = rank.host + '\n' + rank.machine;
    if (!name_of_machine.contains(machine)) {
      const int count = ++namesakes[rank.host];
      name_of_machine[machine] = count == 1 ? rank.host : fmt::format("{} ({})", rank.host, count);
    }
    const std::string& host = name_of_machine[machine];
    const std::string behind = switches.empty() ? rank.tree : switch_of(rank.host, switches);
    Placement placement;
    placement.host = number_of(hosts, places.hosts, machine, host);
    if (!rank.rails.empty())
      placement.rail = number_of(rails, places.rails, machine + '\n' + rank.rails, fmt::format("{} of {}", rank.rails, host));
    placement.group = number_of(groups, places.groups, behind, behind);
    places.ranks.push_back(placement);
  }
  return places;
}

// --- What they have measured ----------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kMaxText = 256;       // bytes of a path or a complaint
constexpr std::size_t kMaxNumberBytes = 9;  // in CBOR

std::optional<RankRow> row_from(const Json& values, const Json& paths, std::size_t rank_count, std::size_t text_count) {
  if (!values.is_array() || !paths.is_array() || values.size() != rank_count || paths.size() != rank_count) return {};
  RankRow row(rank_count);
  for (std::size_t peer = 0; peer < rank_count; ++peer) {
    if (!values[peer].is_number() || !paths[peer].is_number_unsigned()) return {};
    const float value = values[peer].get<float>();
    const auto path = paths[peer].get<std::uint64_t>();
    if (!std::isfinite(value) || value < 0 || (value > 0 && path >= text_count)) return {};
    row.values[peer] = value;
    row.paths[peer] = static_cast<PathIndex>(path);
  }
  return row;
}

}  // namespace

PathIndex PathTexts::index_of(const std::string& text) {
  const auto known = std::find(texts_.begin(), texts_.end(), text);
  if (known == texts_.end() && texts_.size() < most_) {
    texts_.push_back(text);
    return static_cast<PathIndex>(texts_.size() - 1);
  }
  return static_cast<PathIndex>(std::min<std::ptrdiff_t>(known - texts_.begin(), static_cast<std::ptrdiff_t>(most_ - 1)));
}

void RankRow::keep_less(std::size_t peer, double value, PathIndex path) {
  if (values[peer] > 0 && values[peer] <= value) return;
  values[peer] = static_cast<float>(value);
  paths[peer] = path;
}

void RankRow::keep_more(std::size_t peer, double value, PathIndex path) {
  if (values[peer] >= value) return;
  values[peer] = static_cast<float>(value);
  paths[peer] = path;
}

std::string encode(const RankFigures& figures) {
  const Json json = {{"latency_us", figures.latency_us.values},
                     {"latency_paths", figures.latency_us.paths},
                     {"gb_per_s", figures.gb_per_s.values},
                     {"paths", figures.gb_per_s.paths},
                     {"path_texts", list_of(figures.path_texts, [](const std::string& text) { return plain(text, kMaxText); })},
                     {"rails", plain(figures.rails, kMaxText)},
                     {"wrong_count", figures.wrong_count},
                     {"first_wrong", plain(figures.first_wrong, kMaxText)}};
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

std::size_t most_encoded_bytes(std::size_t rank_count) noexcept {
  return 4 * kMaxNumberBytes * rank_count + (kMaxPathTextsOfRank + 8) * (kMaxText + 64);
}

std::optional<RankFigures> decode(std::string_view bytes, std::size_t rank_count) {
  try {
    const Json json = Json::from_cbor(bytes);
    if (!json.is_object() || !json.at("path_texts").is_array()) return {};
    RankFigures figures;
    for (const Json& text : json.at("path_texts")) figures.path_texts.push_back(plain(text.get<std::string>(), kMaxText));
    const std::size_t text_count = figures.path_texts.size();
    auto latency = row_from(json.at("latency_us"), json.at("latency_paths"), rank_count, text_count);
    auto rate = row_from(json.at("gb_per_s"), json.at("paths"), rank_count, text_count);
    if (!latency || !rate || text_count > kMaxPathTextsOfRank) return {};
    figures.latency_us = std::move(*latency);
    figures.gb_per_s = std::move(*rate);
    figures.rails = plain(json.at("rails").get<std::string>(), kMaxText);
    figures.wrong_count = json.at("wrong_count").get_ref<const Json::number_unsigned_t&>();
    figures.first_wrong = plain(json.at("first_wrong").get<std::string>(), kMaxText);
    return figures;
  } catch (const Json::exception&) {
    return {};
  }
}

void JobFigures::set_row(std::size_t rank, const RankFigures& row) {
  std::vector<PathIndex> own;  // of the rank's texts
  for (const std::string& text : row.path_texts) own.push_back(paths.index_of(text));
  const auto path_of = [&](const RankRow& from, std::size_t peer) { return own[from.paths[peer]]; };
  for (std::size_t peer = 0; peer < gb_per_s.count; ++peer) {
    if (peer == rank) continue;
    if (const double value = row.gb_per_s.values[peer]; value > 0) gb_per_s.set(rank, peer, value, path_of(row.gb_per_s, peer));
    if (const double value = row.latency_us.values[peer]; value > 0) {
      latency_us.set(rank, peer, value, path_of(row.latency_us, peer));
      latency_us.set(peer, rank, value, path_of(row.latency_us, peer));
    }
  }
}

double Judgement::usual(Kind kind) const noexcept {
  const double rate = comparison.usual[static_cast<std::size_t>(kind)].gb_per_s;
  return is_latency && rate > 0 ? 1 / rate : rate;
}

Judgement judge(const Figures& figures, bool is_latency, std::span<const Placement> ranks) {
  Judgement judgement;
  judgement.is_latency = is_latency;
  std::vector<double> rates = figures.values;
  for (double& value : rates) value = is_latency && value > 0 ? 1 / value : value;
  judgement.comparison = compare_paths(rates, ranks);
  judgement.slow = explain_slow(judgement.comparison, ranks);
  return judgement;
}

}  // namespace gigabar::tool::matrix
