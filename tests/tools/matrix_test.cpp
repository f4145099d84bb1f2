// SPDX-License-Identifier: Apache-2.0
// Who is measured with whom, where ranks are, what they send to rank 0, and what is shown of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "matrix/job.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::matrix {
namespace {

TEST(MatrixBatches, EachPairOnceAndNoMemberTwiceAtOnce) {
  for (int count = 0; count <= 40; ++count) {
    std::vector<int> hosts;
    for (int rank = 0; rank < count; ++rank) hosts.push_back(rank / 4);
    for (const auto& at_once : kAtOnce) {
      std::set<std::pair<int, int>> seen;
      std::size_t batches = 0;
      visit_batches(hosts, at_once.value, [&](const Pairing& pairs) {
        ++batches;
        std::multiset<int> members;
        for (const auto& [first, second] : pairs) {
          EXPECT_LT(first, second);
          EXPECT_TRUE(seen.emplace(first, second).second) << first << " " << second << " came twice";
          std::set<int> own = {first, second};
          if (at_once.value == AtOnce::host)
            own = {hosts[static_cast<std::size_t>(first)], hosts[static_cast<std::size_t>(second)]};
          members.insert(own.begin(), own.end());
        }
        EXPECT_EQ(std::set<int>(members.begin(), members.end()).size(), members.size()) << at_once.name;
        if (at_once.value != AtOnce::host) {
          EXPECT_EQ(pairs.size(), at_once.value == AtOnce::one ? 1U : static_cast<std::size_t>(count / 2));
        }
      });
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(count * std::max(count - 1, 0) / 2)) << count << " " << at_once.name;
      if (at_once.value == AtOnce::all) {
        EXPECT_EQ(batches, static_cast<std::size_t>(round_count_of(count)));
      }
    }
  }
}

// Pairs that take any time, each begun as soon as its two ranks are done and have been handed what they need.
TEST(MatrixTurns, NoHostIsHadTwiceAtOnceHoweverLongEachPairTakes) {
  struct Had {
    int begin, end;
    std::set<int> hosts;
  };
  std::mt19937 random(7);
  for (int count = 2; count <= 24; ++count) {
    std::vector<int> hosts;
    for (int rank = 0; rank < count; ++rank) hosts.push_back(rank / 3);
    for (const AtOnce at_once : {AtOnce::host, AtOnce::one}) {
      Turns turns(hosts, at_once);
      std::vector<int> done_at(static_cast<std::size_t>(count), 0);
      std::vector<Had> all;
      std::size_t side_by_side = 0;
      visit_batches(hosts, at_once, [&](const Pairing& pairs) {
        for (const auto& pair : pairs) {
          const auto first = static_cast<std::size_t>(pair.first), second = static_cast<std::size_t>(pair.second);
          int begin = std::max(done_at[first], done_at[second]);
          for (const auto& [from, to] : turns.take(pair)) {
            EXPECT_TRUE(to == pair.first || to == pair.second);
            begin = std::max(begin, done_at[static_cast<std::size_t>(from)]);
          }
          Had had{begin, begin + 1 + static_cast<int>(random() % 20), {hosts[first], hosts[second]}};
          if (at_once == AtOnce::one) had.hosts = {0};
          done_at[first] = done_at[second] = had.end;
          for (const Had& other : all) {
            if (other.end <= had.begin || had.end <= other.begin) continue;
            ++side_by_side;
            for (const int host : had.hosts) EXPECT_EQ(other.hosts.count(host), 0U) << count << " ranks: host " << host;
          }
          all.push_back(std::move(had));
        }
      });
      // Hosts that are free are not kept waiting.
      EXPECT_EQ(side_by_side > 0, at_once == AtOnce::host && count > 4) << count;
    }
  }
}

TEST(MatrixPlaces, SwitchesAreReadFromLines) {
  const Switches switches = parse_switches("# a comment\nleaf1 a b # behind it\n\n  leaf2\tc.example\n", "file");
  EXPECT_EQ(switches, (Switches{{"a", "leaf1"}, {"b", "leaf1"}, {"c.example", "leaf2"}}));
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      parse_switches(text, "file");
    } catch (const CommandFailure& failure) {
      EXPECT_EQ(failure.exit_status(), kExitBadUsage);
      return failure.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal("leaf1 a\nleaf2"), "--switches file: line 2: no host behind leaf2; write its hosts behind it");
  EXPECT_EQ(refusal("leaf1 a\nleaf2 b a"), "--switches file: line 2: host a is behind leaf1 and leaf2; name it once");
  EXPECT_EQ(refusal("leaf1 a a"), "taken");
}

TEST(MatrixPlaces, SlurmNamesTheSwitchNextToTheNode) {
  EXPECT_EQ(switch_of_slurm("s0.s4.tux7", "switch.switch.node"), "s4");
  EXPECT_EQ(switch_of_slurm("s[1-2].tux7", "switch.node"), "s[1-2]");
  EXPECT_EQ(switch_of_slurm(".leaf2.tux9", "switch.switch.node"), "leaf2");  // no switch above it
  EXPECT_EQ(switch_of_slurm(".leaf2.tux9.example.org", "switch.switch.node"), "leaf2");
  EXPECT_EQ(switch_of_slurm("tux7", "node"), "");
  EXPECT_EQ(switch_of_slurm("b1.tux7", "block.node"), "");
  EXPECT_EQ(switch_of_slurm(nullptr, "switch.node"), "");
  EXPECT_EQ(switch_of_slurm("s0", "switch.node"), "");
}

TEST(MatrixPlaces, HostsOfOneNameAreTold) {
  const std::vector<Whereabouts> ranks = {
      {"a", "1", "mlx5_0/1", "s1"}, {"a", "1", "mlx5_1/1", "s1"}, {"a", "2", "mlx5_0/1", "s2"}, {"b.x", "3", "", ""}};
  Places places = places_of(ranks, {});
  EXPECT_EQ(places.hosts, (std::vector<std::string>{"a", "a (2)", "b.x"}));
  EXPECT_EQ(places.rails, (std::vector<std::string>{"mlx5_0/1 of a", "mlx5_1/1 of a", "mlx5_0/1 of a (2)"}));
  EXPECT_EQ(places.ranks[3].group, -1);
  EXPECT_EQ(places.ranks[3].rail, -1);
  EXPECT_EQ(places.text({.part = Part::rail, .way = Way::sending, .first = 1}), "rail mlx5_1/1 of a, sending");
  EXPECT_EQ(places.text({.part = Part::group, .first = 1}), "switch s2");
  EXPECT_EQ(places.text({.part = Part::rank, .first = 2}), "rank 2 on a (2)");
  EXPECT_EQ(places.text({.part = Part::pair, .way = Way::sending, .first = 2, .second = 3}), "pair 2 to 3 (on a (2), on b.x)");
  EXPECT_EQ(places.text({.part = Part::host_pair, .first = 0, .second = 2}), "hosts a and b.x");
  EXPECT_EQ(places.text({.part = Part::host, .first = 0, .others = {2}}), "host a, or host b.x, which the same paths cross");
  places = places_of(ranks, {{"b", "leaf"}, {"a", "leaf"}});
  EXPECT_EQ(places.groups, std::vector<std::string>{"leaf"}) << "a file replaces what Slurm says, and hosts may have short names";
  EXPECT_EQ(places.ranks[3].group, 0);
}

RankFigures row_of(std::size_t count, std::size_t rank) {
  RankFigures figures;
  figures.latency_us = figures.gb_per_s = RankRow(count);
  figures.path_texts = {"local host", "ucx host (tcp/eth0 x1)"};
  figures.rails = "tcp/eth0";
  for (std::size_t peer = 0; peer < count; ++peer) {
    if (peer == rank) continue;
    figures.gb_per_s.keep_more(peer, static_cast<double>(1 + 10 * rank + peer), static_cast<PathIndex>(peer % 2));
    if (rank < peer) figures.latency_us.keep_less(peer, 2.5, 1);
  }
  return figures;
}

TEST(MatrixFigures, TheBetterFigureCounts) {
  RankRow row(2);
  row.keep_more(1, 3, 1);
  row.keep_more(1, 2, 0);
  EXPECT_EQ(row.values[1], 3);
  EXPECT_EQ(row.paths[1], 1);
  RankRow times(2);
  times.keep_less(1, 3, 1);
  times.keep_less(1, 2, 0);
  times.keep_less(1, 4, 1);
  EXPECT_EQ(times.values[1], 2);
  EXPECT_EQ(times.paths[1], 0);
}

TEST(MatrixFigures, WhatRanksSendIsReadAndNothingElse) {
  const std::string sent = encode(row_of(5, 2));
  EXPECT_LE(sent.size(), most_encoded_bytes(5));
  const auto read = decode(sent, 5);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->gb_per_s.values, row_of(5, 2).gb_per_s.values);
  EXPECT_EQ(read->rails, "tcp/eth0");
  EXPECT_FALSE(decode(sent, 4)) << "of another number of ranks";
  std::mt19937_64 random(1);
  for (int run = 0; run < 20000; ++run) {
    std::string wrong = sent;
    for (int changes = 1 + run % 3; changes > 0; --changes) wrong[random() % wrong.size()] = static_cast<char>(random());
    if (run % 4 == 0) wrong.resize(random() % wrong.size());
    const auto taken = decode(wrong, 5);
    if (!taken) continue;
    JobFigures job(5);
    job.set_row(2, *taken);
    for (const PathIndex path : job.gb_per_s.paths) EXPECT_LT(path, std::max<std::size_t>(job.paths.all().size(), 1));
  }
}

// Ten ranks, each on a host of its own, of which host 3 sends at a fifth of the rate.
struct Example {
  static constexpr std::size_t kCount = 10;

  explicit Example(bool is_healthy = false) : job(kCount) {
    std::vector<Whereabouts> whereabouts;
    for (std::size_t rank = 0; rank < kCount; ++rank) {
      RankFigures figures = row_of(kCount, rank);
      for (float& value : figures.gb_per_s.values) value = value > 0 ? (rank == 3 && !is_healthy ? 5.0F : 25.0F) : 0.0F;
      job.set_row(rank, figures);
      whereabouts.push_back({"node" + std::to_string(rank) + (rank == 4 ? "<&>" : ""), "m", "", ""});
    }
    places = places_of(whereabouts, {});
    rates = judge(job.gb_per_s, false, places.ranks);
    times = judge(job.latency_us, true, places.ranks);
  }
  Shown bandwidth() const { return {job.gb_per_s, rates, job.paths.all(), places}; }
  Shown latency() const { return {job.latency_us, times, job.paths.all(), places}; }

  JobFigures job;
  Places places;
  Judgement rates, times;
};

TEST(MatrixOutput, NamesWhatIsSlowWithItsPath) {
  const Example example;
  ASSERT_EQ(example.rates.slow.size(), 1U);
  EXPECT_TRUE(example.times.slow.empty());
  EXPECT_EQ(
      line_of(example.bandwidth(), 0),
      "host node3, sending: 0.20 of the bandwidth of such paths (9 paths); rank 3 to rank 0: 5 GB/s instead of 25.0, local host");
  const Json document = document_of(example.bandwidth());
  EXPECT_EQ(document["slow"][0]["worst"]["from"], 3);
  EXPECT_EQ(document["gb_per_s"][3][1], 5);
  EXPECT_TRUE(document["gb_per_s"][3][3].is_null());
  EXPECT_EQ(document["kinds"][0]["slow_paths"], 9);
  EXPECT_EQ(document["kinds"][0]["kind"], "paths between hosts");
  EXPECT_NE(table_of(example.bandwidth()).find("5!"), std::string::npos);
  EXPECT_EQ(document_of(example.latency())["us"][9][0], 2.5) << "a latency is of both directions";
  EXPECT_TRUE(judge(Example(true).job.gb_per_s, false, example.places.ranks).slow.empty());
}

TEST(MatrixOutput, ASlowLatencyIsAGreaterOne) {
  Example example;
  for (std::size_t peer = 0; peer < Example::kCount; ++peer) {
    for (const std::size_t index : {example.job.latency_us.index(7, peer), example.job.latency_us.index(peer, 7)})
      example.job.latency_us.values[index] *= 4;
  }
  const Judgement judged = judge(example.job.latency_us, true, example.places.ranks);
  ASSERT_EQ(judged.slow.size(), 1U);
  EXPECT_EQ(line_of({example.job.latency_us, judged, example.job.paths.all(), example.places}, 0),
            "host node7: 4.00 times the latency of such paths (18 paths); rank 0 to rank 7: 10.0 us instead of 2.5, ucx host "
            "(tcp/eth0 x1)");
}

TEST(MatrixOutput, CsvHasALineForEachPath) {
  const Example example;
  const Shown latency = example.latency(), bandwidth = example.bandwidth();
  const std::string csv = csv_of(&latency, &bandwidth);
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), 1 + Example::kCount * (Example::kCount - 1));
  EXPECT_NE(csv.find("3,0,\"node3\",\"node0\",2.5,1,\"ucx host (tcp/eth0 x1)\",5,0.2,\"local host\"\n"), std::string::npos) << csv;
  EXPECT_NE(csv_of(nullptr, &bandwidth).find("3,0,\"node3\",\"node0\",,,,5,0.2,\"local host\"\n"), std::string::npos);
}

TEST(MatrixOutput, HeatMapMarksWhatIsSlowAndStaysSmall) {
  const Example example;
  const Shown bandwidth = example.bandwidth();
  const std::string svg = svg_of({&bandwidth}, "a <title>");
  const auto count_of = [](const std::string& text, std::string_view part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(count_of(svg, "class=\"cross\""), 9U);
  EXPECT_EQ(count_of(svg, "<title>rank 3 to rank "), 9U);
  EXPECT_NE(svg.find("a &lt;title&gt;"), std::string::npos);
  EXPECT_NE(svg.find("slow: host node3, sending"), std::string::npos);
  // Of 1,000 ranks eight share a cell; with the address sanitizer, which is a hundred times slower, two of 200.
#if defined(GIGABAR_SANITIZE_ADDRESS)
  constexpr std::size_t kMany = 200;
  constexpr std::string_view kShared = "2 ranks in a cell";
#else
  constexpr std::size_t kMany = 1000;
  constexpr std::string_view kShared = "8 ranks in a cell";
#endif
  Figures figures(kMany);
  std::vector<Whereabouts> whereabouts;
  for (std::size_t from = 0; from < kMany; ++from) {
    whereabouts.push_back({"node" + std::to_string(from / 8), "m", "", ""});
    for (std::size_t to = 0; to < kMany; ++to)
      figures.values[figures.index(from, to)] = from == to ? 0 : from / 8 == 5 && to / 8 != 5 ? 10 : 25;
  }
  const Places places = places_of(whereabouts, {});
  const Judgement judged = judge(figures, false, places.ranks);
  ASSERT_EQ(judged.slow.size(), 1U);
  const Shown many{figures, judged, example.job.paths.all(), places};
  const std::string large = svg_of({&many}, "many");
  EXPECT_LT(large.size(), std::size_t{4} << 20);
  EXPECT_NE(large.find(kShared), std::string::npos);
  EXPECT_NE(large.find("slow: host node5, sending"), std::string::npos);
}

TEST(MatrixOutput, TheTimeThatIsLeft) {
  EXPECT_EQ(time_left(0.5, 1, 10), "");
  EXPECT_EQ(time_left(5, 0, 10), "");
  EXPECT_EQ(time_left(5, 5, 10), ", about 5 s left");
  EXPECT_EQ(time_left(5, 10, 10), ", about 0 s left");
}

}  // namespace
}  // namespace gigabar::tool::matrix
