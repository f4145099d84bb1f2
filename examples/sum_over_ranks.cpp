// SPDX-License-Identifier: Apache-2.0
// Sums a number over all ranks, and passes a message round the ring: gigabar run -n 4 -- ./sum_over_ranks
#include <array>
#include <cstdio>
#include <gigabar/fabric.hpp>

using namespace std::chrono_literals;

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.message().c_str()), 1;
}

int main() {
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  const gigabar::Rank rank = fabric->rank(), count = fabric->rank_count();

  const std::array<std::int64_t, 1> mine = {rank + 1};
  std::array<std::int64_t, 1> sum{};
  if (const auto done = fabric->all_reduce({}, gigabar::ReduceOperation::sum, mine, sum, 10s); !done) return tell(done);

  constexpr gigabar::Tag kTag = 7;
  gigabar::Rank from = count;
  const auto sent = fabric->post_send((rank + 1) % count, kTag, &rank, sizeof rank);
  if (!sent) return tell(sent);
  const auto received = fabric->recv((rank + count - 1) % count, kTag, &from, sizeof from, 10s);
  if (!received) return tell(received);
  if (const auto ended = fabric->wait_message(*sent, 10s); !ended) return tell(ended);

  std::printf("rank %u: the sum is %lld; rank %u says hello\n", rank, static_cast<long long>(sum[0]), from);
  if (sum[0] != std::int64_t{count} * (count + 1) / 2 || from != (rank + count - 1) % count) return 1;
  // Rank 0 keeps the directory by which ranks find each other: nobody leaves before all have found whom they need.
  if (const auto met = fabric->barrier({}, 10s); !met) return tell(met);
  const auto closed = fabric->close(10s);
  return closed ? 0 : tell(closed);
}
