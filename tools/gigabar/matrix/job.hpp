// SPDX-License-Identifier: Apache-2.0
// A job as `gigabar matrix` sees it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "matrix/find_slow.hpp"
#include "support/names.hpp"
#include "support/pair_rounds.hpp"
#include "support/report.hpp"

namespace gigabar::tool::matrix {

// --- Which pairs of ranks are measured at the same time -------------------------------------------------------------------------

enum class AtOnce : std::uint8_t { all, host, one };
inline constexpr std::array<Named<AtOnce>, 3> kAtOnce = {{{AtOnce::all, "all"}, {AtOnce::host, "host"}, {AtOnce::one, "one"}}};

// The pairs of each batch, in order: a round of pair_rounds.hpp (all), pairs of a round of which no two share a host (host), or one
// pair (one). `hosts`: of each rank, as numbers from 0 on. The batches depend on nothing else, so that all ranks compute the same.
// Cost: a round is made when it is reached.
void visit_batches(std::span<const int> hosts, AtOnce at_once, const std::function<void(const Pairing& pairs)>& visit);

// Batches in which not every rank has a partner need no barrier of all: whoever had a host (of `one`: the job) last tells the rank
// that has it next, and the pairs of hosts that are free begin. All ranks go through the same pairs in the same order.
class Turns {
 public:
  Turns(std::span<const int> hosts, AtOnce at_once) : hosts_(hosts), at_once_(at_once) {}

  // What comes before this pair, behind those that were given before: who hands over to whom, once for each of its hosts, but where
  // the same rank goes on.
  std::vector<std::pair<int, int>> take(const std::pair<int, int>& pair);

 private:
  std::span<const int> hosts_;  // the caller's
  AtOnce at_once_;
  std::map<int, int> holders_;  // by host
};

// --- Where the ranks are: their hosts, the rails that they use between hosts, and the switches that hosts are behind ------------

// What a rank says of itself.
struct Whereabouts {
  std::string host;     // its name
  std::string machine;  // the same text at ranks of one host, another at hosts of the same name
  std::string rails;    // of what it writes to other hosts; empty: not known, or not always the same
  std::string tree;     // switch that Slurm names; empty: none
};

// Hosts by the name of their switch.
using Switches = std::map<std::string, std::string>;  // switch of each host

// "leaf1 node1 node2": a switch on each line, and the hosts behind it; '#' before comments. Ends the command as bad usage where a
// host is behind two switches, or a line has no host.
Switches parse_switches(std::string_view text, const std::string& path);
Switches read_switches(const std::string& path);

// The switch next to this node in Slurm's tree; empty where Slurm says nothing. Source: SLURM_TOPOLOGY_ADDR and
// SLURM_TOPOLOGY_ADDR_PATTERN in srun(1).
std::string switch_of_slurm(const char* address, const char* pattern);

// As people call it: a group of hosts is a switch.
std::string_view label_of(Part part) noexcept;

// Numbers of Placement, and the names behind them.
struct Places {
  std::vector<Placement> ranks;
  std::vector<std::string> hosts, rails, groups;

  // "host 2 (node3)".
  std::string text(const Slow& slow) const;

 private:
  std::string name_of(Part part, int number) const;
};

// Without `switches`, those of Slurm count. Hosts of which no switch is known have none (-1), and are compared with one another.
Places places_of(std::span<const Whereabouts> ranks, const Switches& switches);

// --- What the ranks have measured: a row of each rank, all of them at rank 0 ----------------------------------------------------

using PathIndex = std::uint16_t;
inline constexpr std::size_t kMaxPathTexts = 4096, kMaxPathTextsOfRank = 64;

// Texts of paths, each once. More than `most` count as the last.
class PathTexts {
 public:
  explicit PathTexts(std::size_t most) : most_(most) {}
  PathIndex index_of(const std::string& text);
  const std::vector<std::string>& all() const noexcept { return texts_; }

 private:
  std::size_t most_;
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
  RankRow latency_us, gb_per_s;         // to peers of a greater number; from this rank to each other
  std::vector<std::string> path_texts;  // at most kMaxPathTextsOfRank
  std::string rails;                    // of all that was written to other hosts; empty: several, or nothing was
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
  PathTexts paths{kMaxPathTexts};
};

// --- The judgement --------------------------------------------------------------------------------------------------------------

struct Judgement {
  bool is_latency = false;
  Comparison comparison;  // of rates: of a latency, of its reciprocal
  std::vector<Slow> slow;

  // Of a kind of paths, in the figure's unit; 0: there are no such paths.
  double usual(Kind kind) const noexcept;
};
// `figures` of times where `is_latency`, else of rates.
Judgement judge(const Figures& figures, bool is_latency, std::span<const Placement> ranks);

// --- What is shown at rank 0: tables, lines that name what is slow, the document, CSV and a heat map ----------------------------

// One measure of a job, judged.
struct Shown {
  const Figures& figures;
  Judgement judgement;
  const std::vector<std::string>& path_texts;
  const Places& places;

  bool is_latency() const noexcept { return judgement.is_latency; }
  std::string_view measure() const noexcept { return is_latency() ? "latency" : "bandwidth"; }
  std::string_view unit() const noexcept { return is_latency() ? "us" : "GB/s"; }
};

// "host node3, sending: bandwidth 0.50 of what such paths have (28 paths); rank 6 to rank 9: 0.02 GB/s instead of 0.05, ucx host".
std::string line_of(const Shown& shown, std::size_t slow_index);

// Rows send, columns receive: as many lines as ranks.
inline constexpr std::size_t kMaxRanksInTable = 16;
std::string table_of(const Shown& shown);
// For each kind of paths: how many, the usual figure, the worst one and which path has it.
std::string summary_of(const Shown& shown);

Json document_of(const Shown& shown);

// A line for each path under a line of headings; latency, rate, what share they are of what is usual, path.
std::string csv_of(const Shown* latency, const Shown* bandwidth);

// A heat map of each measure, and what is slow below it. More than kMaxCells ranks share cells, which show the slowest path in
// them.
inline constexpr std::size_t kMaxCells = 128;
std::string svg_of(const std::vector<const Shown*>& all, const std::string& title);

}  // namespace gigabar::tool::matrix
