// SPDX-License-Identifier: Apache-2.0
// Ranks that have no transport in common, since one of them could not open UCX: both are told what was tried, and why the other
// did not open what this one has.
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/ranks.hpp"
#include "fakes/paths.hpp"

namespace gigabar::test {
namespace {

// The rank `amount` has UCX alone. The other one's UCX ends the process that tries it, which leaves it the local transport.
BARE_RANK_BODY(have_nothing_in_common) {
  const bool has_ucx = me.rank() == me.setup().amount;
  FabricOptions options = me.options();
  if (!has_ucx) options.transports = {TransportKind::local, TransportKind::ucx};
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  const Rank other = 1 - me.rank();
  const std::string without = "rank " + std::to_string(has_ucx ? other : me.rank());
  const Result<void> refused = fabric->connect(other, kPatience);
  EXPECT_TRUE(fails(refused, Status::unavailable, "no transport reaches it"));
  EXPECT_TRUE(fails(refused, Status::unavailable, "of " + without + ": ucx: "));
  EXPECT_TRUE(fails(refused, Status::unavailable, "libucp ended a probe process with SIGABRT: the fake gives up"));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

class FabricDisagreement : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDisagreement, IsToldToBothRanks) {
  RankJob job("have_nothing_in_common", GetParam());
  for (const Rank rank : {Rank{0}, Rank{1}}) {
    // Not written as loopback: a job of several hosts, in which UCX may be needed.
    job.set_environment(rank, "MASTER_ADDR", "127.1");
    job.set_environment(rank, "GIGABAR_INTERFACES", "lo");
    if (rank == GetParam().amount) continue;
    job.set_environment(rank, "GIGABAR_UCP_LIBRARY", kFakeUcpLibrary);
    job.set_environment(rank, "GIGABAR_FAKE_UCP", "abort");
  }
  job.start_all();
  job.finish();
}

std::vector<RankSetup> of_either_rank() {
  std::vector<RankSetup> all;
  if (!is_tested(TransportKind::ucx)) return all;
  for (const std::uint64_t rank : {std::uint64_t{0}, std::uint64_t{1}}) {
    RankSetup setup;
    setup.transport = TransportKind::ucx;
    setup.amount = rank;
    setup.word = rank == 0 ? "first" : "second";
    all.push_back(setup);
  }
  return all;
}
std::string rank_name(const testing::TestParamInfo<RankSetup>& info) { return info.param.word; }
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricDisagreement);
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDisagreement, testing::ValuesIn(of_either_rank()), rank_name);

}  // namespace
}  // namespace gigabar::test
