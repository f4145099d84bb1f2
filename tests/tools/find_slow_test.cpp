// SPDX-License-Identifier: Apache-2.0
// What is slow in a job of 64 ranks on eight hosts, each planted alone: the right part is named in every run, and nothing in
// healthy ones.
#include "matrix/find_slow.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tools/matrix_support.hpp"

namespace gigabar::tool::matrix {
namespace {

constexpr int kHosts = 8, kRanksOfHost = 8, kRailsOfHost = 4, kHostsOfGroup = 2;
constexpr int kRanks = kHosts * kRanksOfHost;
#if defined(GIGABAR_SANITIZE_ADDRESS)
constexpr int kRuns = 5, kManyHosts = 24;  // a hundred times slower
#else
constexpr int kRuns = 50, kManyHosts = 64;
#endif

std::vector<Placement> placements(int hosts = kHosts, int ranks_of_host = kRanksOfHost) {
  std::vector<Placement> ranks;
  for (int rank = 0; rank < hosts * ranks_of_host; ++rank) {
    const int host = rank / ranks_of_host;
    ranks.push_back({host, host * kRailsOfHost + rank % ranks_of_host * kRailsOfHost / ranks_of_host, host / kHostsOfGroup});
  }
  return ranks;
}

// What the plan leaves of a path's rate.
using Plant = std::function<double(const Placement& from, const Placement& to, int sender, int receiver)>;
double nothing(const Placement&, const Placement&, int, int) { return 1; }

Rates rates_of(const std::vector<Placement>& ranks, std::uint64_t seed, const Plant& plant) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> noise(0, 0.04);
  std::bernoulli_distribution is_disturbed(0.02);  // by something that has passed when the path is measured again
  Rates rates{ranks.size(), std::vector<double>(ranks.size() * ranks.size(), 0)};
  for (std::size_t from = 0; from < ranks.size(); ++from) {
    for (std::size_t to = 0; to < ranks.size(); ++to) {
      if (from == to) continue;
      const bool is_local = ranks[from].host == ranks[to].host;
      const double usual = is_local ? 390 : ranks[from].group == ranks[to].group ? 48 : 45;
      double rate = usual * noise(random) * (is_disturbed(random) ? 0.88 : 1);
      rate *= plant(ranks[from], ranks[to], static_cast<int>(from), static_cast<int>(to));
      rates.gb_per_s[from * ranks.size() + to] = rate;
    }
  }
  return rates;
}

// `plant` of a number that changes from run to run, and the only text that may be found.
void expect_found(const std::function<Plant(int run)>& plant, const std::function<std::string(int run)>& text) {
  const std::vector<Placement> ranks = placements();
  for (int run = 0; run < kRuns; ++run) {
    const auto found = find_slow(rates_of(ranks, static_cast<std::uint64_t>(run), plant(run)), ranks);
    ASSERT_EQ(texts(found), text(run)) << "run " << run;
    for (const Slow& slow : found) EXPECT_NEAR(slow.share, 0.5, 0.1);
  }
}

TEST(FindSlow, NothingInHealthyJobs) {
  expect_found([](int) { return nothing; }, [](int) { return ""; });
}

TEST(FindSlow, Rank) {
  expect_found(
      [](int run) -> Plant {
        const int slow = run * 7 % kRanks;
        return [=](const Placement&, const Placement&, int from, int to) { return from == slow || to == slow ? 0.5 : 1; };
      },
      [](int run) { return "rank " + std::to_string(run * 7 % kRanks); });
}

TEST(FindSlow, HostInBothDirections) {
  expect_found(
      [](int run) -> Plant {
        return [=](const Placement& from, const Placement& to, int, int) {
          return from.host != to.host && (from.host == run % kHosts || to.host == run % kHosts) ? 0.5 : 1;
        };
      },
      [](int run) { return "host " + std::to_string(run % kHosts); });
}

TEST(FindSlow, HostThatSendsSlowly) {
  expect_found(
      [](int run) -> Plant {
        return [=](const Placement& from, const Placement& to, int, int) {
          return from.host != to.host && from.host == run % kHosts ? 0.5 : 1;
        };
      },
      [](int run) { return "host " + std::to_string(run % kHosts) + ", sending"; });
}

TEST(FindSlow, Rail) {
  expect_found(
      [](int run) -> Plant {
        const int slow = run % (kHosts * kRailsOfHost);
        return [=](const Placement& from, const Placement& to, int, int) {
          return from.host != to.host && (from.rail == slow || to.rail == slow) ? 0.5 : 1;
        };
      },
      [](int run) { return "rail " + std::to_string(run % (kHosts * kRailsOfHost)); });
}

TEST(FindSlow, GroupBehindOneSwitch) {
  expect_found(
      [](int run) -> Plant {
        const int slow = run % (kHosts / kHostsOfGroup);
        return [=](const Placement& from, const Placement& to, int, int) {
          return from.group != to.group && (from.group == slow || to.group == slow) ? 0.5 : 1;
        };
      },
      [](int run) { return "group " + std::to_string(run % (kHosts / kHostsOfGroup)); });
}

// Eight devices of one host, in pairs with a bridge or on two sockets: nothing is broken, and what is broken is seen all the same.
TEST(FindSlow, KindsOfTwoSpeeds) {
  const std::vector<Placement> one_host(8, Placement{0, -1, -1});
  const auto bridges = [](int from, int to) { return from / 2 == to / 2 ? 6.0 : 1.0; };
  const auto sockets = [](int from, int to) { return from / 4 == to / 4 ? 1.0 : 0.6; };
  int seen = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto seed = static_cast<std::uint64_t>(run);
    const auto named = [&](const Plant& plant) { return texts(find_slow(rates_of(one_host, seed, plant), one_host)); };
    EXPECT_EQ(named([&](auto&, auto&, int from, int to) { return bridges(from, to); }), "") << "run " << run;
    EXPECT_EQ(named([&](auto&, auto&, int from, int to) { return sockets(from, to); }), "") << "run " << run;
    const auto slow_rank = [&](auto&, auto&, int from, int to) { return bridges(from, to) * (from == 3 || to == 3 ? 0.3 : 1); };
    seen += named(slow_rank) == "rank 3" ? 1 : 0;
  }
  EXPECT_GE(seen, kRuns * 9 / 10);  // of 56 paths with noise the spread is not well known
  // Two switches that nobody has named.
  std::vector<Placement> no_groups = placements(16, 4);
  for (Placement& each : no_groups) each.group = -1;
  const auto leaves = [](const Placement& from, const Placement& to, int, int) { return from.host / 8 == to.host / 8 ? 1 : 0.6; };
  EXPECT_EQ(texts(find_slow(rates_of(no_groups, 1, leaves), no_groups)), "");
}

TEST(FindSlow, OneDirectionOfOnePair) {
  expect_found(
      [](int run) -> Plant {
        const int sender = run, receiver = (run + 11) % kRanks;
        return [=](const Placement&, const Placement&, int from, int to) { return from == sender && to == receiver ? 0.5 : 1; };
      },
      [](int run) { return "pair " + std::to_string(run) + " to " + std::to_string((run + 11) % kRanks); });
}

TEST(FindSlow, PairInBothDirections) {
  expect_found(
      [](int run) -> Plant {
        const int first = run, second = run + 9;
        return [=](const Placement&, const Placement&, int from, int to) {
          return (from == first && to == second) || (from == second && to == first) ? 0.5 : 1;
        };
      },
      [](int run) { return "pair " + std::to_string(run) + " and " + std::to_string(run + 9); });
}

TEST(FindSlow, TwoThingsAtOnce) {
  const std::vector<Placement> ranks = placements();
  const auto found = find_slow(rates_of(ranks, 1,
                                        [](const Placement& from, const Placement& to, int sender, int receiver) {
                                          if (from.host != to.host && (from.host == 2 || to.host == 2)) return 0.4;
                                          return sender == 60 && receiver == 3 ? 0.3 : 1.0;
                                        }),
                               ranks);
  EXPECT_EQ(texts(found), "host 2; pair 60 to 3");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].path_count, 2U * 8 * 56);
}

TEST(FindSlow, AJobOfManyRanks) {
  const std::vector<Placement> ranks = placements(kManyHosts);
  const auto found = find_slow(rates_of(ranks, 1,
                                        [](const Placement& from, const Placement& to, int, int) {
                                          return from.host != to.host && to.host == 17 ? 0.5 : 1;
                                        }),
                               ranks);
  EXPECT_EQ(texts(found), "host 17, receiving");
}

TEST(FindSlow, TwoHostsCannotBeTold) {
  const std::vector<Placement> ranks = placements(2, 4);
  std::vector<Placement> without_groups = ranks;
  for (Placement& rank : without_groups) rank.group = -1;
  // Between two hosts every path is slow, or none: what is usual is not known, so nothing is said.
  const auto between = [](const Placement& from, const Placement& to, int, int) { return from.host != to.host ? 0.5 : 1; };
  EXPECT_EQ(texts(find_slow(rates_of(without_groups, 1, between), without_groups)), "");
  // One direction is half of the paths, which are compared with the other half.
  const auto one_way = [](const Placement& from, const Placement& to, int, int) { return from.host < to.host ? 0.2 : 1; };
  const auto found = find_slow(rates_of(without_groups, 1, one_way), without_groups);
  EXPECT_EQ(texts(found), "host 0, sending, or host 1, which the same paths cross");
}

TEST(FindSlow, UnknownPlacesAndPathsThatWereNotMeasured) {
  std::vector<Placement> ranks(kRanks);
  Rates rates = rates_of(placements(), 3,
                         [](const Placement&, const Placement&, int from, int to) { return from == 5 || to == 5 ? 0.2 : 1; });
  for (std::size_t i = 0; i < rates.gb_per_s.size(); i += 3) rates.gb_per_s[i] = 0;
  rates.gb_per_s[7] = std::nan("");
  const auto known = placements();
  EXPECT_EQ(texts(find_slow(rates, known)), "rank 5");
  EXPECT_TRUE(find_slow(rates, std::vector<Placement>(3)).empty()) << "too few places";
  EXPECT_TRUE(find_slow({}, {}).empty());
  Rates same{kRanks, std::vector<double>(kRanks * kRanks, 50)};
  for (std::size_t other = 0; other < kRanks; ++other) same.gb_per_s[5 * kRanks + other] = same.gb_per_s[other * kRanks + 5] = 10;
  EXPECT_EQ(texts(find_slow(same, ranks)), "rank 5") << "no host is known";
}

}  // namespace
}  // namespace gigabar::tool::matrix
