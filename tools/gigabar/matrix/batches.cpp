// SPDX-License-Identifier: Apache-2.0
#include "matrix/batches.hpp"

#include <algorithm>
#include <vector>

namespace gigabar::tool::matrix {
namespace {

std::size_t host_count_of(std::span<const int> hosts) {
  return hosts.empty() ? 0 : static_cast<std::size_t>(*std::max_element(hosts.begin(), hosts.end())) + 1;
}

// Each pair in the first batch in which neither of its hosts is.
std::vector<Pairing> without_shared_hosts(std::span<const int> hosts, const Pairing& round) {
  const std::size_t host_count = host_count_of(hosts);
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

Turns::Turns(std::span<const int> hosts, AtOnce at_once) : hosts_(hosts), at_once_(at_once), holders_(host_count_of(hosts), -1) {}

std::vector<Turns::HandOver> Turns::take(const std::pair<int, int>& pair) {
  std::vector<HandOver> all;
  const auto take_over = [&](int rank) {
    const int from = std::exchange(holders_[turn_of(rank)], rank);
    if (from >= 0 && from != rank) all.push_back({from, rank});
  };
  take_over(pair.first);
  if (turn_of(pair.first) != turn_of(pair.second)) take_over(pair.second);
  return all;
}

}  // namespace gigabar::tool::matrix
