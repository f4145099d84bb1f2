// SPDX-License-Identifier: Apache-2.0
#include "matrix/figures.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/plain_text.hpp"

namespace gigabar::tool::matrix {
namespace {

constexpr std::size_t kMaxText = 256;            // bytes of a path or a complaint
constexpr std::size_t kMaxNumberBytes = 9;       // in CBOR
constexpr std::size_t kMaxPathTextsOfRank = 64;  // on its way to rank 0

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

std::size_t worst_of(const Slow& slow, const Comparison& comparison, std::span<const Placement> ranks, std::size_t count) {
  if (slow.part == Part::pair) {  // of which there may be thousands
    const std::size_t there = static_cast<std::size_t>(slow.first) * count + static_cast<std::size_t>(slow.second);
    const std::size_t back = static_cast<std::size_t>(slow.second) * count + static_cast<std::size_t>(slow.first);
    return slow.way == Way::both && comparison.shares[back] < comparison.shares[there] ? back : there;
  }
  std::size_t worst = 0;
  float least = -1;
  for (std::size_t index = 0; index < comparison.shares.size(); ++index) {
    const float share = comparison.shares[index];
    if (!(share > 0) || (least >= 0 && share >= least) || !crosses(slow, ranks, index / count, index % count)) continue;
    least = share;
    worst = index;
  }
  return worst;
}

}  // namespace

PathIndex PathTexts::index_of(const std::string& text) {
  const auto known = std::find(texts_.begin(), texts_.end(), text);
  if (known == texts_.end() && texts_.size() < kMaxPathTexts) {
    texts_.push_back(text);
    return static_cast<PathIndex>(texts_.size() - 1);
  }
  return static_cast<PathIndex>(std::min<std::ptrdiff_t>(known - texts_.begin(), static_cast<std::ptrdiff_t>(kMaxPathTexts - 1)));
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
  std::vector<std::string> texts(
      figures.path_texts.begin(),
      figures.path_texts.begin() + static_cast<std::ptrdiff_t>(std::min(figures.path_texts.size(), kMaxPathTextsOfRank)));
  for (std::string& text : texts) text = plain(text, kMaxText);
  const auto paths = [&](const RankRow& row) {
    std::vector<PathIndex> within = row.paths;
    for (PathIndex& path : within) path = static_cast<PathIndex>(std::min<std::size_t>(path, kMaxPathTextsOfRank - 1));
    return within;
  };
  const Json json = {{"latency_us", figures.latency_us.values},
                     {"latency_paths", paths(figures.latency_us)},
                     {"gb_per_s", figures.gb_per_s.values},
                     {"paths", paths(figures.gb_per_s)},
                     {"path_texts", texts},
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
  Rates rates{figures.count, figures.values};
  for (double& value : rates.gb_per_s) value = is_latency && value > 0 ? 1 / value : value;
  judgement.comparison = compare_paths(rates, ranks);
  judgement.slow = explain_slow(judgement.comparison, ranks);
  for (const Slow& slow : judgement.slow) judgement.worst.push_back(worst_of(slow, judgement.comparison, ranks, figures.count));
  return judgement;
}

}  // namespace gigabar::tool::matrix
