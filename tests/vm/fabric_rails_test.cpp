// SPDX-License-Identifier: Apache-2.0
// Ranks with two rails each: large operations are striped over both, small ones take one, policies choose which, and the reports
// say so. The guest's own process tells the ranks their rails.
#include <cstdlib>
#include <map>
#include <string>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kSmall = 12000;  // above the eager limit of 8 KiB, below the stripe's 16 KiB

using Shares = std::map<std::string, std::uint64_t>;

// What the report says of the bytes per rail.
Shares shares_of(Fabric& fabric, const Result<Operation>& posted) {
  EXPECT_TRUE(is_ok(posted));
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  if (!posted) return {};
  const auto report = fabric.report(*posted);
  EXPECT_TRUE(is_ok(report));
  Shares shares;
  if (report) {
    for (const RailShare& share : report->rails) shares[share.rail] += share.bytes;
  }
  return shares;
}

struct Ends {
  Ends(RankProcess& me, Fabric& opened)
      : self(me),
        fabric(opened),
        origin(fabric, kOrigin, MemoryChoice::host, 2 * kLarge),
        target(fabric, kTarget, MemoryChoice::host, kLarge),
        other(1 - me.rank()) {}
  // Bytes of this rank that the other one has then, and may look at; and back. Both ranks do the same.
  Shares write(std::size_t bytes, std::uint64_t round) {
    origin.put_pattern(0, bytes, 2 * round + self.rank(), 0);
    const Shares shares = shares_of(fabric, fabric.write({kOrigin, 0}, {other, kTarget, 0}, bytes));
    EXPECT_TRUE(is_ok(fabric.flush(other, kPatience)));
    EXPECT_TRUE(self.meet());
    EXPECT_TRUE(target.holds_pattern(0, bytes, 2 * round + other, 0)) << "written in round " << round;
    EXPECT_TRUE(self.meet());
    return shares;
  }
  Shares read(std::size_t bytes, std::uint64_t round) {
    target.put_pattern(0, bytes, 2 * round + self.rank(), 0);
    EXPECT_TRUE(self.meet());
    const Shares shares = shares_of(fabric, fabric.read({kOrigin, kLarge}, {other, kTarget, 0}, bytes));
    EXPECT_TRUE(origin.holds_pattern(kLarge, bytes, 2 * round + other, 0)) << "read in round " << round;
    EXPECT_TRUE(self.meet());
    return shares;
  }

  RankProcess& self;
  Fabric& fabric;
  RankSegment origin, target;
  Rank other;
};

// The word is the kind of the devices.
std::string rail(const RankProcess& me, unsigned number) { return me.setup().word + std::to_string(number) + "/1"; }

RANK_BODY(stripe_over_two_rails) {
  Ends ends(me, fabric);
  ASSERT_TRUE(me.meet());
  const Shares halves{{rail(me, 0), kLarge / 2}, {rail(me, 1), kLarge / 2}}, small{{rail(me, 0), kSmall}};
  EXPECT_EQ(ends.write(kLarge, 1), halves);
  EXPECT_EQ(ends.read(kLarge, 2), halves);
  EXPECT_EQ(ends.write(kSmall, 3), small) << "below the stripe";
  EXPECT_EQ(ends.read(kSmall, 4), small);
  const auto said = fabric.explain_write({kOrigin, 0}, {ends.other, kTarget, 0}, kLarge, kPatience);
  ASSERT_TRUE(is_ok(said));
  EXPECT_EQ(said->rails, (std::vector<std::string>{rail(me, 0), rail(me, 1)})) << said->to_text();
  if (me.setup().word == "rxe") {
    EXPECT_NE(said->reason.find("GID 1 RoCE v2, MTU "), std::string::npos) << said->reason;
  }
  EXPECT_TRUE(me.meet()) << "the other may still explain";
}

RANK_BODY(take_rails_in_turn) {
  Ends ends(me, fabric);
  ASSERT_TRUE(me.meet());
  Shares all;
  for (std::uint64_t round = 0; round < 6; ++round) {
    const Shares one = ends.write(kSmall, round);
    ASSERT_EQ(one.size(), 1u);
    all[one.begin()->first] += one.begin()->second;
  }
  EXPECT_EQ(all, (Shares{{rail(me, 0), 3 * kSmall}, {rail(me, 1), 3 * kSmall}}));
}

RANK_BODY(keep_the_rail_of_the_list) {
  Ends ends(me, fabric);
  ASSERT_TRUE(me.meet());
  EXPECT_EQ(ends.write(kLarge, 1), (Shares{{rail(me, me.rank()), kLarge}})) << "local rank modulo rails";
  EXPECT_EQ(ends.read(kLarge, 2), (Shares{{rail(me, me.rank()), kLarge}}));
}

class TwoRails : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::getenv("GIGABAR_VM_RANK") == nullptr) GTEST_SKIP() << "runs in a guest: tests/vm/guest -- PROGRAM";
  }
  void run(const char* body, const char* policy, const char* count) {
    RankSetup setup;
    setup.transport = TransportKind::verbs;
    setup.word = GetParam();
    RankJob job(body, setup, std::chrono::seconds(120));
    const std::string rails = setup.word + "0," + setup.word + "1";
    for (Rank rank = 0; rank < 2; ++rank) {
      job.set_environment(rank, "GIGABAR_RAILS", rails.c_str());
      job.set_environment(rank, "GIGABAR_RAIL_POLICY", policy);
      job.set_environment(rank, "GIGABAR_RAIL_COUNT", count);
    }
    job.start_all();
    job.finish();
  }
};

TEST_P(TwoRails, LargeOperationsAreStriped) { run("stripe_over_two_rails", "first", "2"); }
TEST_P(TwoRails, RoundRobin) { run("take_rails_in_turn", "round_robin", "2"); }
TEST_P(TwoRails, FixedIsTheProcessToRailList) { run("keep_the_rail_of_the_list", "fixed", nullptr); }

INSTANTIATE_TEST_SUITE_P(Devices, TwoRails, testing::Values("rxe", "siw"), [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace gigabar::test
