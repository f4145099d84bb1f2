// SPDX-License-Identifier: Apache-2.0
// Strangers at every door of a rank: garbage, silence, half words. They are counted, and the job goes on.
#include <array>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "conformance/rank_segment.hpp"
#include "fault/doors.hpp"

namespace gigabar::test {
namespace {

void say(const Descriptor& socket, const std::string& bytes) {
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

// Whatever the other side says first, given back: half a conversation with itself.
void echo(const Descriptor& socket) {
  std::array<char, 4096> buffer{};
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const ssize_t bytes = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (bytes > 0) say(socket, std::string(buffer.data(), std::size_t(bytes)));
}

std::string garbage(std::mt19937& random) {
  std::string bytes(random() % 3 == 0 ? random() % 70000 : random() % 300, '\0');
  const unsigned kind = random() % 4;
  for (char& byte : bytes) byte = kind == 0 ? '\xff' : kind == 1 ? '\0' : char(random());
  return bytes;
}

// --- The job they disturb
// ----------------------------------------------------------------------------------------------------------

// Until the test says "over": nothing is lost, nothing is late beyond a loaded machine's measure.
RANK_BODY(work_among_strangers) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096), target(fabric, kTarget, MemoryChoice::host, 4096);
  origin.put_pattern(0, 4096, me.rank(), 0);
  me.tell("up");
  ASSERT_EQ(me.hear(), "begin");
  const Rank other = (me.rank() + 1) % me.rank_count();
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.write_notify({kOrigin, 0}, {other, kTarget, 0}, 4096, 1, 1))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 1, 1, kPatience))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.notification_reset(kTarget, 1))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << "round " << round;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  me.tell("done");
  ASSERT_EQ(me.hear(), "over");
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  // Of the doors of a rank with UCX one is UCX's own.
  if (me.setup().transport != TransportKind::ucx) {
    EXPECT_GT(fabric.statistics().refused_strangers, 0U);
  }
  EXPECT_TRUE(target.are_guards_whole());
}

class FabricStrangers : public testing::TestWithParam<RankSetup> {};

// Connections to the ranks' doors while they work; `visit` makes what of them it likes.
void disturb_job(const RankSetup& setup, const std::function<void(std::mt19937&, std::vector<Descriptor>&)>& visit) {
  RankJob job("work_among_strangers", setup);
  job.start_all();
  for (Rank rank = 0; rank < setup.rank_count; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  Doors all = doors_of(job.process(0));
  EXPECT_GE(all.unix_names.size(), 2U) << "rank 0 keeps the directory, and has a channel";
  for (Rank rank = 1; rank < setup.rank_count; ++rank) all.add(doors_of(job.process(rank)));
  std::mt19937 random(99);
  for (Rank rank = 0; rank < setup.rank_count; ++rank) job.tell(rank, "begin");
  std::vector<Descriptor> kept;
  for (int round = 0; round < 40; ++round) {
    std::vector<Descriptor> visitors = knock(all);
    EXPECT_FALSE(visitors.empty());
    visit(random, visitors);
    for (Descriptor& visitor : visitors) kept.push_back(std::move(visitor));
    if (kept.size() > 40) kept.erase(kept.begin(), kept.begin() + 20);  // those leave without a word
  }
  for (Rank rank = 0; rank < setup.rank_count; ++rank) EXPECT_TRUE(job.hear(rank, "done"));
  for (Rank rank = 0; rank < setup.rank_count; ++rank) job.tell(rank, "over");
  job.finish();
}

TEST_P(FabricStrangers, SayGarbage) {
  disturb_job(GetParam(), [](std::mt19937& random, std::vector<Descriptor>& visitors) {
    for (const Descriptor& visitor : visitors) say(visitor, garbage(random));
  });
}
TEST_P(FabricStrangers, LeaveAtOnce) {
  disturb_job(GetParam(), [](std::mt19937& random, std::vector<Descriptor>& visitors) {
    for (Descriptor& visitor : visitors) {
      say(visitor, garbage(random).substr(0, 1 + random() % 8));
      visitor = Descriptor();
    }
    std::erase_if(visitors, [](const Descriptor& one) { return !one.is_open(); });
  });
}
TEST_P(FabricStrangers, RepeatWhatTheyHear) {
  disturb_job(GetParam(), [](std::mt19937&, std::vector<Descriptor>& visitors) {
    for (const Descriptor& visitor : visitors) echo(visitor);
  });
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricStrangers, testing::ValuesIn(each_transport(2)), setup_name);

// Silent visitors fill every door before the second rank comes; it is let in all the same.
RANK_BODY(come_late_among_strangers) {
  me.tell("up");
  EXPECT_TRUE(is_ok(fabric.barrier({}, Timeout::of(std::chrono::seconds(25)))));
}

class FabricSilence : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricSilence, KeepsNobodyOut) {
  RankJob job("come_late_among_strangers", GetParam());
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  std::vector<Descriptor> silent;
  const Doors doors = doors_of(job.process(0));
  for (int i = 0; i < 100; ++i) {
    for (Descriptor& visitor : knock(doors)) silent.push_back(std::move(visitor));
  }
  EXPECT_FALSE(silent.empty());
  job.start(1);
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricSilence, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
