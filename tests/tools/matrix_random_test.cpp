// SPDX-License-Identifier: Apache-2.0
// Thousands of random jobs, of any shape and any noise: nothing is found in healthy ones, and in the others what was planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "matrix/find_slow.hpp"
#include "tools/matrix_support.hpp"

namespace gigabar::tool::matrix {
namespace {

#if defined(GIGABAR_SANITIZE_ADDRESS)
constexpr std::uint64_t kJobs = 400;  // a hundred times slower
#else
constexpr std::uint64_t kJobs = 10000;
#endif

struct Job {
  std::vector<Placement> ranks;
  int hosts = 0, ranks_of_host = 0, rails_of_host = 0, hosts_of_group = 0;
};

int any(std::mt19937_64& random, int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); }

// At least five hosts in at least four groups, so that what is usual can be told from what is slow.
Job job_of(std::mt19937_64& random) {
  Job job;
  job.ranks_of_host = any(random, 1, 4);
  job.rails_of_host = any(random, 1, job.ranks_of_host);
  job.hosts_of_group = any(random, 1, 3);
  job.hosts = any(random, 5, 8);
  while ((job.hosts + job.hosts_of_group - 1) / job.hosts_of_group < 4) ++job.hosts;
  const bool has_groups = any(random, 0, 1) == 1, has_rails = any(random, 0, 1) == 1;
  for (int rank = 0; rank < job.hosts * job.ranks_of_host; ++rank) {
    const int host = rank / job.ranks_of_host;
    const int rail = host * job.rails_of_host + rank % job.ranks_of_host % job.rails_of_host;
    job.ranks.push_back({host, has_rails ? rail : -1, has_groups ? host / job.hosts_of_group : -1});
  }
  return job;
}

Rates healthy_rates(const Job& job, std::mt19937_64& random) {
  std::lognormal_distribution<double> noise(0, std::uniform_real_distribution<double>(0.002, 0.05)(random));
  const double within_host = std::uniform_real_distribution<double>(5, 400)(random);
  const double within_group = std::uniform_real_distribution<double>(0.01, 50)(random);
  const double between = within_group * std::uniform_real_distribution<double>(0.5, 1)(random);
  Rates rates{job.ranks.size(), std::vector<double>(job.ranks.size() * job.ranks.size())};
  for (std::size_t from = 0; from < rates.count; ++from) {
    for (std::size_t to = 0; to < rates.count; ++to) {
      if (from == to) continue;
      const Kind kind = kind_of(job.ranks[from], job.ranks[to]);
      const double usual = kind == Kind::within_host ? within_host : kind == Kind::within_group ? within_group : between;
      rates.gb_per_s[from * rates.count + to] = usual * noise(random);
    }
  }
  return rates;
}

// Any part, as find_slow() would name it.
Slow part_of(const Job& job, std::mt19937_64& random) {
  std::vector<Part> parts = {Part::host, Part::pair};
  // One of a host is the host: that name is the better one.
  if (job.ranks.front().rail >= 0 && job.rails_of_host > 1) parts.push_back(Part::rail);
  if (job.ranks.front().group >= 0 && job.hosts_of_group > 1) parts.push_back(Part::group);
  if (job.ranks_of_host > 1) parts.insert(parts.end(), {Part::rank, Part::host_pair});
  Slow slow;
  slow.part = parts[static_cast<std::size_t>(any(random, 0, static_cast<int>(parts.size()) - 1))];
  slow.way = static_cast<Way>(any(random, 0, is_pair(slow.part) ? 1 : 2));
  const int rank_count = static_cast<int>(job.ranks.size());
  switch (slow.part) {
    case Part::group: slow.first = any(random, 0, job.hosts / job.hosts_of_group - 1); break;
    case Part::rail: slow.first = any(random, 0, job.hosts * job.rails_of_host - 1); break;
    case Part::host:
    case Part::host_pair: slow.first = any(random, 0, job.hosts - 1); break;
    case Part::rank:
    case Part::pair: slow.first = any(random, 0, rank_count - 1); break;
  }
  if (!is_pair(slow.part)) return slow;
  const int count = slow.part == Part::pair ? rank_count : job.hosts;
  slow.second = (slow.first + any(random, 1, count - 1)) % count;
  if (slow.way == Way::both && slow.second < slow.first) std::swap(slow.first, slow.second);
  return slow;
}

// Parts that the planted one cannot be told from: a host of one rank and that rank, a rail and the ranks that use it.
std::vector<std::size_t> paths_of(const Slow& slow, const Job& job) {
  std::vector<std::size_t> paths;
  for (std::size_t from = 0; from < job.ranks.size(); ++from) {
    for (std::size_t to = 0; to < job.ranks.size(); ++to) {
      if (from != to && crosses(slow, job.ranks, from, to)) paths.push_back(from * job.ranks.size() + to);
    }
  }
  return paths;
}

TEST(FindSlowRandom, NothingInHealthyJobs) {
  for (std::uint64_t seed = 0; seed < kJobs; ++seed) {
    std::mt19937_64 random(seed);
    const Job job = job_of(random);
    ASSERT_EQ(texts(find_slow(healthy_rates(job, random), job.ranks)), "") << "seed " << seed;
  }
}

TEST(FindSlowRandom, WhatWasPlantedAndNothingElse) {
  std::array<std::size_t, 6> planted{};
  for (std::uint64_t seed = 0; seed < kJobs; ++seed) {
    std::mt19937_64 random(seed);
    const Job job = job_of(random);
    Rates rates = healthy_rates(job, random);
    const Slow slow = part_of(job, random);
    const std::vector<std::size_t> slow_paths = paths_of(slow, job);
    // Not up to a half: the noise of a handful of paths cannot be told well.
    const double left = std::uniform_real_distribution<double>(0.05, 0.4)(random);
    for (const std::size_t path : slow_paths) rates.gb_per_s[path] *= left;
    const std::vector<Slow> found = find_slow(rates, job.ranks);
    ASSERT_EQ(found.size(), 1U) << "seed " << seed << ": " << text_of(slow) << " was planted, found " << texts(found);
    // The same paths: of two names for them one is as good as the other.
    ASSERT_EQ(paths_of(found.front(), job), slow_paths)
        << "seed " << seed << ": " << text_of(slow) << " was planted, found " << texts(found);
    ++planted[static_cast<std::size_t>(slow.part)];
  }
  EXPECT_GT(*std::min_element(planted.begin(), planted.end()), kJobs / 40);
}

// Half of a job's parts are not slow: something is named, or nothing, in bounded time; never a path that was not measured.
TEST(FindSlowRandom, AnyNumbersAtAll) {
  for (std::uint64_t seed = 0; seed < kJobs / 2; ++seed) {
    std::mt19937_64 random(seed);
    Job job = job_of(random);
    Rates rates = healthy_rates(job, random);
    for (double& rate : rates.gb_per_s) {
      switch (any(random, 0, 9)) {
        case 0: rate = 0; break;
        case 1: rate = std::numeric_limits<double>::infinity(); break;
        case 2: rate = -rate; break;
        case 3: rate *= 1e-300; break;
        case 4: rate *= 1e300; break;
        default: break;
      }
    }
    for (Placement& rank : job.ranks) {
      if (any(random, 0, 3) == 0) rank.host = any(random, -1, 100000);
      if (any(random, 0, 3) == 0) rank.rail = any(random, -1, 3);
      if (any(random, 0, 3) == 0) rank.group = any(random, -1, 1);
    }
    const Comparison comparison = compare_paths(rates.gb_per_s, job.ranks);
    for (const Slow& slow : find_slow(rates, job.ranks)) {
      const std::vector<std::size_t> paths = paths_of(slow, job);
      EXPECT_TRUE(std::any_of(paths.begin(), paths.end(), [&](std::size_t path) { return comparison.is_slow[path] != 0; }))
          << "seed " << seed << ": " << text_of(slow);
    }
  }
}

}  // namespace
}  // namespace gigabar::tool::matrix
