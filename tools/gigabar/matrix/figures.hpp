// SPDX-License-Identifier: Apache-2.0
// What the ranks have measured: a row of each rank, all of them at rank 0, and the judgement of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "matrix/find_slow.hpp"
#include "support/report.hpp"

namespace gigabar::tool::matrix {

using PathIndex = std::uint16_t;
inline constexpr std::size_t kMaxPathTexts = 4096;  // of a job; further ones count as the last

// Texts of paths, each once.
class PathTexts {
 public:
  PathIndex index_of(const std::string& text);
  const std::vector<std::string>& all() const noexcept { return texts_; }

 private:
  std::vector<std::string> texts_;
};

// By peer. A figure of 0 was not measured.
struct RankRow {
  explicit RankRow(std::size_t rank_count = 0) : values(rank_count), paths(rank_count) {}

  std::vector<float> values;
  std::vector<PathIndex> paths;  // into the texts of its rank

  // The better figure counts: what disturbed the other one has passed.
  void keep_less(std::size_t peer, double value, PathIndex path);
  void keep_more(std::size_t peer, double value, PathIndex path);
};

struct RankFigures : Complaint {
  RankRow latency_us, gb_per_s;  // to peers of a greater number; from this rank to each other
  std::vector<std::string> path_texts;
  std::string rails;  // of all that was written to other hosts; empty: several, or nothing was
};

// For the way to rank 0. What another process sent is not trusted: nothing when it is no row of so many ranks.
std::string encode(const RankFigures& figures);
std::optional<RankFigures> decode(std::string_view bytes, std::size_t rank_count);
std::size_t most_encoded_bytes(std::size_t rank_count) noexcept;

// Of one measure, row after row by sender.
struct Figures {
  explicit Figures(std::size_t rank_count = 0)
      : count(rank_count), values(rank_count * rank_count), paths(rank_count * rank_count) {}

  std::size_t count;
  std::vector<double> values;  // 0: not measured
  std::vector<PathIndex> paths;

  std::size_t index(std::size_t from, std::size_t to) const noexcept { return from * count + to; }
  void set(std::size_t from, std::size_t to, double value, PathIndex path) {
    values[index(from, to)] = value;
    paths[index(from, to)] = path;
  }
};

struct JobFigures {
  explicit JobFigures(std::size_t rank_count) : latency_us(rank_count), gb_per_s(rank_count) {}
  // A latency counts for both directions: half of a round trip does not tell them apart.
  void set_row(std::size_t rank, const RankFigures& row);

  Figures latency_us, gb_per_s;
  PathTexts paths;
};

// --- The judgement --------------------------------------------------------------------------------------------------------------

struct Judgement {
  bool is_latency = false;
  Comparison comparison;  // of rates: of a latency, of its reciprocal
  std::vector<Slow> slow;
  std::vector<std::size_t> worst;  // for each of `slow`, the index of its slowest path

  // Of a kind of paths, in the figure's unit; 0: there are no such paths.
  double usual(Kind kind) const noexcept;
};
// `figures` of times where `is_latency`, else of rates.
Judgement judge(const Figures& figures, bool is_latency, std::span<const Placement> ranks);

}  // namespace gigabar::tool::matrix
