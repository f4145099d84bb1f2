// SPDX-License-Identifier: Apache-2.0
// What a rank says that is much, and right; and what is heard before it has said who it is.
#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "fault/insider.hpp"

namespace gigabar::test {
namespace {

// --- What is much, and right ----------------------------------------------------------------------------------------------------

// Tens of thousands of fences that one mark lets pass.
void say_many_fences(Insider& insider) {
  constexpr std::uint64_t kFences = 60'000;
  Message fence = of_type(MessageType::fence), mark = of_type(MessageType::mark);
  fence.count = 1;
  fence.a = 1;
  insider.say(fence);
  for (mark.a = 2; mark.a <= kFences; ++mark.a) insider.say(mark);
  for (fence.a = 2; fence.a <= kFences; ++fence.a) insider.say(fence);
  mark.a = 1;
  insider.say(mark);
}

// As many as can be posted, and as many again whose completions the peer has not looked at yet.
void say_reads_ahead(Insider& insider) { say_some_reads(insider, fabric::kMaxPosted + fabric::kMaxPosted / 2); }

struct Right {
  const char* name;
  void (*say)(Insider&);
};
constexpr std::array kRight = {Right{"fences", say_many_fences}, Right{"reads_ahead", say_reads_ahead}};

RANK_BODY(stand_an_insider) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  ASSERT_TRUE(me.meet());
  for (const PeerState& peer : fabric.peers()) EXPECT_FALSE(peer.is_broken) << peer.why;
  ASSERT_TRUE(me.meet());
}
BARE_RANK_BODY(say_much) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  {
    Insider insider(options);
    ASSERT_TRUE(insider.meet(0));
    std::find_if(kRight.begin(), kRight.end(), [&](const Right& right) { return me.setup().word == right.name; })->say(insider);
    insider.settle();
    EXPECT_TRUE(insider.is_heard());
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(me.meet());  // rank 0 has looked
  }
  ASSERT_TRUE(me.meet());  // and ends its segment, for which nobody is left to ask
}
class FabricMuch : public testing::TestWithParam<Right> {};
void PrintTo(const Right& right, std::ostream* out) { *out << right.name; }
TEST_P(FabricMuch, IsStood) {
  RankSetup setup;
  setup.word = GetParam().name;
  RankJob job("stand_an_insider", setup);
  job.set_body(1, "say_much");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  job.finish();
}
std::string name_of_right(const testing::TestParamInfo<Right>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Messages, FabricMuch, testing::ValuesIn(kRight), name_of_right);

// A rank whose second rail is late holds what comes on the first one. The writer waits before it is too much, and goes on behind
// it.
constexpr int kLateWrites = 80'000;
constexpr std::size_t kLateBytes = 4096;

RANK_BODY(write_past_a_late_rail) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kLateBytes);
  me.tell("up");
  EXPECT_EQ(me.hear(), "write");
  for (int count = 1; count <= kLateWrites; ++count) {
    std::memcpy(origin.address(), &count, sizeof count);
    const auto posted = post_patiently(fabric, 0, [&] { return fabric.write({kOrigin, 0}, {1, kTarget, 0}, kLateBytes); });
    ASSERT_TRUE(is_ok(posted)) << count;
    // So that the origin may change.
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << count;
  }
}
BARE_RANK_BODY(be_late_with_a_rail) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  alignas(8) std::array<char, kLateBytes> target{};
  insider.register_segment(kTarget, target.data(), target.size());
  ASSERT_TRUE(insider.meet(0));
  insider.wait_for_a_rail();
  me.tell("late");
  std::size_t most = 0;
  std::int64_t grew_ns = now_ns();
  insider.poll_until(kPatience, [&] {
    if (insider.held_bytes() > most) grew_ns = now_ns();
    most = std::max(most, insider.held_bytes());
    return most > fabric::kMaxAheadBytes / 2 && now_ns() - grew_ns > 300'000'000;
  });
  EXPECT_GT(most, fabric::kMaxAheadBytes / 2);
  EXPECT_LE(most, fabric::kMaxAheadBytes + (4 << 20)) << "the writer does not wait";
  insider.hear_from_the_rail();
  EXPECT_TRUE(insider.poll_until(kPatience, [&] {
    int count = 0;
    std::memcpy(&count, target.data(), sizeof count);
    return count == kLateWrites;
  }));
  ASSERT_TRUE(me.meet());
}
TEST(FabricMuch, BehindALateRailWaitsAtTheWriter) {
  RankJob job("write_past_a_late_rail", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "be_late_with_a_rail", "late"));
  job.tell(0, "write");
  job.finish();
}

// --- Who speaks before it has said who it is -------------------------------------------------------------------------------------

RANK_BODY(ask_for_a_segment) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "ask");
  EXPECT_TRUE(fails(fabric.write({kOrigin, 0}, {1, kTarget, 0}, 8), Status::peer_lost)) << "it asks for the segment first";
}
BARE_RANK_BODY(hear_it_before_its_greeting) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  ASSERT_TRUE(insider.meet(0));
  insider.forget_greeting();
  me.tell("forgot");
  const std::string why = insider.why_lost();
  EXPECT_NE(why.find("it spoke before it greeted"), std::string::npos) << why;
  ASSERT_TRUE(me.meet());
}
TEST(FabricGreeting, ComesFirst) {
  RankJob job("ask_for_a_segment", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "hear_it_before_its_greeting", "forgot"));
  job.tell(0, "ask");
  job.finish();
}

// --- One rank by itself ---------------------------------------------------------------------------------------------------------

BARE_RANK_BODY(look_into_itself) {
  Insider insider(me.options());
  std::vector<char> memory(1 << 20);
  insider.register_segment(kTarget, memory.data(), memory.size());
  ASSERT_TRUE(insider.meet(0));
  EXPECT_TRUE(insider.takes_a_key_of(kTarget, 0));
  EXPECT_FALSE(insider.takes_a_key_of(kTarget, 1)) << "operations use what the key before has opened";
  EXPECT_LE(insider.decide(kTarget, fabric::kMaxChoices + 1000), fabric::kMaxChoices + 20);
}
TEST(FabricMuch, OfKeysAndReasonsIsNotTaken) {
  RankSetup setup;
  setup.rank_count = 1;
  run_ranks("look_into_itself", setup);
}

}  // namespace
}  // namespace gigabar::test
