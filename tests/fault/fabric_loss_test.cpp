// SPDX-License-Identifier: Apache-2.0
// Waits without an end, when those die who could end them: collectives of every size with every rank as the dead one, and waits for
// anybody when nobody is left.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::int64_t kMaxNoticeNs = 30'000'000'000;  // from the kill to the error, on a loaded machine
constexpr const char* kConnected = "connected";        // the ranks have met before one dies

// That a stranger is dead shows when it cannot be connected to in this time.
Result<Fabric> open_with_short_connecting(const RankProcess& me) {
  FabricOptions options = me.options();
  if (me.setup().word != kConnected) options.connect_timeout = Timeout::of(std::chrono::seconds(scale() > 1 ? 12 : 4));
  return Fabric::open(options);
}

// --- Collectives ----------------------------------------------------------------------------------------------------------------

// `amount` is the rank that dies.
BARE_RANK_BODY(lose_a_member) {
  auto opened = open_with_short_connecting(me);
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  const auto victim = static_cast<Rank>(me.setup().amount);
  const bool is_connected = me.setup().word == kConnected;
  if (is_connected) {
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  }
  me.tell("up");
  ASSERT_TRUE(me.hear());  // the victim never does
  const std::string name = text("rank ", victim);
  const std::int64_t begin = now_ns();
  EXPECT_TRUE(fails(fabric.barrier({}, Timeout::forever()), Status::peer_lost, name));
  std::int64_t value = 1, sum = 0;
  EXPECT_TRUE(fails(fabric.all_reduce({}, ReduceOperation::sum, std::span(&value, 1), std::span(&sum, 1), Timeout::forever()),
                    Status::peer_lost, name));
  EXPECT_LT(now_ns() - begin, kMaxNoticeNs);
  ASSERT_TRUE(me.meet());  // nobody leaves before all have heard
  // Those who live go on without it. Without rank 0, which keeps the directory, those that are not connected find nobody.
  if (victim == 0) return;
  Group left;
  for (Rank rank = 0; rank < me.rank_count(); ++rank) {
    if (rank != victim) left.push_back(rank);
  }
  EXPECT_TRUE(is_ok(fabric.barrier(left, kPatience)));
  EXPECT_TRUE(is_ok(fabric.close(kPatience)));
}

class FabricLostMember : public testing::TestWithParam<RankSetup> {};
// A job for each victim, all of them at once: they wait for seconds, and work for milliseconds.
TEST_P(FabricLostMember, IsNamedAtEveryOther) {
  const bool is_connected = GetParam().word == kConnected;
  const Rank first = is_connected ? 0 : 1;
  std::vector<std::unique_ptr<RankJob>> jobs;
  for (Rank victim = first; victim < GetParam().rank_count; ++victim) {
    RankSetup setup = GetParam();
    setup.amount = victim;
    RankJob& job = *jobs.emplace_back(std::make_unique<RankJob>("lose_a_member", setup));
    job.start_all();
    for (Rank rank = 0; rank < setup.rank_count; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
    job.send_signal(victim, SIGKILL);
    for (Rank rank = 0; rank < setup.rank_count; ++rank) {
      if (rank != victim) job.tell(rank, "go");
    }
  }
  for (std::size_t index = 0; index < jobs.size(); ++index) {
    jobs[index]->finish();
    ASSERT_FALSE(HasFailure()) << "rank " << first + index << " of " << GetParam().rank_count;
  }
}

// Rank 0 has two threads: one waits for rank 1, which is dead and was never connected to; the other comes soon after it, waits for
// rank 2, and wakes the first when something happens. Nothing does: that rank 1 is dead is found by the first one only, by asking.
BARE_RANK_BODY(meet_the_dead_beside_a_sleeper) {
  auto opened = open_with_short_connecting(me);
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  if (me.rank() != 1) {
    ASSERT_TRUE(is_ok(fabric.barrier({0, 2}, kPatience)));
  }
  me.tell("up");
  ASSERT_TRUE(me.hear());
  if (me.rank() == 2) {
    EXPECT_TRUE(is_ok(fabric.send(0, 1, nullptr, 0, kPatience)));
    return;
  }
  std::thread sleeper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(is_ok(fabric.recv(2, 1, nullptr, 0, Timeout::forever())));
  });
  EXPECT_TRUE(fails(fabric.barrier({0, 1}, Timeout::forever()), Status::peer_lost, "rank 1"));
  me.tell("lost");
  sleeper.join();
}

class FabricLostStranger : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLostStranger, IsNamedWhileAnotherThreadSleeps) {
  RankJob job("meet_the_dead_beside_a_sleeper", GetParam());
  job.start_all();
  for (Rank rank = 0; rank < 3; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  job.send_signal(1, SIGKILL);
  job.tell(0, "go");
  EXPECT_TRUE(job.hear(0, "lost"));
  job.tell(2, "go");
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricLostStranger, testing::ValuesIn(each_transport(3)), setup_name);

std::vector<RankSetup> group_setups() {
  std::vector<RankSetup> all;
  for (Rank count = 2; count <= 8; ++count) {
    if (scale() > 1 && count != 2 && count != 3 && count != 5) continue;
    for (const char* word : {kConnected, "strangers"}) {
      for (RankSetup setup : each_transport(count)) {
        setup.word = word;
        all.push_back(setup);
      }
    }
  }
  return all;
}
std::string group_name(const testing::TestParamInfo<RankSetup>& info) { return setup_name(info) + "_" + info.param.word; }
INSTANTIATE_TEST_SUITE_P(Groups, FabricLostMember, testing::ValuesIn(group_setups()), group_name);

// --- Waits of one thread, calls of another --------------------------------------------------------------------------------------

// Rank 1 stands still, and is killed. Two threads wait for what it does not say any more; a third one finds that it is lost, and
// forgets it before they wake.
BARE_RANK_BODY(forget_under_waits) {
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  std::vector<char> memory(4096);
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.data(), memory.size())));
  ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  me.tell("up");
  ASSERT_TRUE(me.hear());  // rank 1 never does
  Result<void> flushed;
  Result<Operation> posted = Operation{};
  std::thread flushing([&] { flushed = fabric->flush(1, Timeout::forever()); });
  std::thread asking([&] { posted = fabric->notify(1, kTarget, 1, 1, {.queue = 1, .policy = std::nullopt}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  me.tell("waiting");
  const Timeout moment = Timeout::of(std::chrono::milliseconds(1));
  while (!fabric->forget(1).is_ok()) (void)fabric->notification_wait(kTarget, 0, 1, moment);
  flushing.join();
  asking.join();
  EXPECT_TRUE(fails(flushed, Status::peer_lost, "rank 1"));
  EXPECT_TRUE(fails(posted, Status::peer_lost, "rank 1"));
}
class FabricLostBeside : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLostBeside, AnotherThreadForgetsWhomOneWaitsFor) {
  RankJob job("forget_under_waits", GetParam());
  job.start_all();
  for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  job.send_signal(1, SIGSTOP);
  job.tell(0, "go");
  ASSERT_TRUE(job.hear(0, "waiting"));
  job.send_signal(1, SIGKILL);
  job.finish();
}

BARE_RANK_BODY(close_under_a_wait) {
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  std::vector<char> memory(4096);
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.data(), memory.size())));
  ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  Result<NotificationId> raised = NotificationId{0};
  std::thread waiting([&] { raised = fabric->notification_wait(kTarget, 0, 1, Timeout::forever()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
  waiting.join();
  EXPECT_FALSE(raised);
}
TEST_P(FabricLostBeside, AnotherThreadClosesTheFabric) { run_ranks("close_under_a_wait", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Transports, FabricLostBeside, testing::ValuesIn(each_transport(2)), setup_name);

// --- Anybody --------------------------------------------------------------------------------------------------------------------

// Rank 0 waits for anybody; the others die one after the other.
BARE_RANK_BODY(wait_for_anybody) {
  auto opened = open_with_short_connecting(me);
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  if (me.setup().word == kConnected) {
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  }
  me.tell("up");
  if (me.rank() != 0) {
    static_cast<void>(me.hear());
    return;
  }
  std::thread receiver([&] {
    char byte = 0;
    EXPECT_TRUE(fails(fabric.recv(kAnyRank, 1, &byte, 1, Timeout::forever()), Status::peer_lost, "1, 2"));
  });
  std::thread counter(
      [&] { EXPECT_TRUE(fails(fabric.notification_wait_count(kTarget, 9, 3, Timeout::forever()), Status::peer_lost, "1, 2")); });
  const auto raised = fabric.notification_wait(kTarget, 0, 8, Timeout::forever());
  EXPECT_TRUE(fails(raised, Status::peer_lost, "1, 2"));
  receiver.join();
  counter.join();
}

class FabricAlone : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricAlone, WaitsForNobody) {
  RankJob job("wait_for_anybody", GetParam());
  job.start_all();
  for (Rank rank = 0; rank < 3; ++rank) ASSERT_TRUE(job.hear(rank, "up"));
  job.send_signal(1, SIGKILL);
  // One is left that could still speak. Who hears of the death of strangers has looked for them by then.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  job.send_signal(2, SIGKILL);
  job.finish();
}

// The message of the last one alive comes, although another is dead.
RANK_BODY(hear_of_the_last) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  if (me.rank() == 1) {
    me.tell("up");
    static_cast<void>(me.hear());
    return;
  }
  if (me.rank() == 2) {
    ASSERT_TRUE(me.hear());
    EXPECT_TRUE(is_ok(fabric.send(0, 1, nullptr, 0, kPatience)));
    return;
  }
  me.tell("up");
  const auto received = fabric.recv(kAnyRank, 1, nullptr, 0, Timeout::forever());
  ASSERT_TRUE(is_ok(received));
  EXPECT_EQ(received->rank, 2U);
}
class FabricNotAlone : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricNotAlone, HearsTheLastThatLives) {
  RankJob job("hear_of_the_last", GetParam());
  job.start_all();
  ASSERT_TRUE(job.hear(0, "up"));
  ASSERT_TRUE(job.hear(1, "up"));
  job.send_signal(1, SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  job.tell(2, "go");
  job.finish();
}

// --- Messages of a connection that is gone ---------------------------------------------------------------------------------------

// They are received still. The window of the next connection knows nothing of them.
constexpr std::size_t kMessageBytes = 8192;
constexpr int kOldMessages = 120, kNewMessages = 600;

BARE_RANK_BODY(receive_what_is_left) {
  auto opened = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  std::vector<std::byte> got(kMessageBytes);
  const auto receive = [&](Tag tag) { return is_ok(fabric.recv(1, tag, got.data(), got.size(), kPatience)); };
  ASSERT_TRUE(me.meet());  // rank 1 has sent and gone
  const auto is_lost = [&] {
    const auto peers = fabric.peers();
    return std::any_of(peers.begin(), peers.end(), [](const PeerState& peer) { return peer.rank == 1 && peer.is_broken; });
  };
  for (const std::int64_t end_ns = now_ns() + kMaxNoticeNs; !is_lost() && now_ns() < end_ns;) std::this_thread::yield();
  ASSERT_TRUE(is_ok(fabric.forget(1)));
  for (int count = 0; count < kOldMessages; ++count) ASSERT_TRUE(receive(1)) << count;
  ASSERT_TRUE(me.meet());  // it may come again
  ASSERT_TRUE(me.meet());  // as much is under way as its window has
  for (int count = 0; count < 8; ++count) ASSERT_TRUE(receive(2)) << count;
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());  // it has sent whatever its window takes by now
  for (int count = 8; count < kNewMessages; ++count) ASSERT_TRUE(receive(2)) << count;
  ASSERT_TRUE(me.meet());
}
BARE_RANK_BODY(send_twice) {
  const std::vector<std::byte> data(kMessageBytes);
  {
    auto first = Fabric::open(me.options());
    ASSERT_TRUE(is_ok(first));
    for (int count = 0; count < kOldMessages; ++count) ASSERT_TRUE(is_ok(first->send(0, 1, data.data(), data.size(), kPatience)));
    ASSERT_TRUE(is_ok(first->flush(0, kPatience)));
  }
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());
  auto opened = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(opened));
  std::vector<Operation> sends;
  const auto send_until = [&](int count) {
    while (static_cast<int>(sends.size()) < count) {
      const auto posted = opened->post_send(0, 2, data.data(), data.size());
      ASSERT_TRUE(is_ok(posted));
      sends.push_back(*posted);
    }
  };
  send_until(508);
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());
  send_until(kNewMessages);
  ASSERT_TRUE(is_ok(opened->progress()));
  ASSERT_TRUE(me.meet());
  for (const Operation sent : sends) ASSERT_TRUE(is_ok(opened->wait_message(sent, kPatience)));
  ASSERT_TRUE(me.meet());
}
TEST(FabricForgotten, MessagesGiveNoCreditToTheNextConnection) {
  RankJob job("receive_what_is_left", RankSetup{});
  job.set_body(1, "send_twice");
  job.start_all();
  job.finish();
}

std::vector<RankSetup> three_setups() {
  std::vector<RankSetup> all;
  for (const char* word : {kConnected, "strangers"}) {
    for (RankSetup setup : each_transport(3)) {
      setup.word = word;
      all.push_back(setup);
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Three, FabricAlone, testing::ValuesIn(three_setups()), group_name);
INSTANTIATE_TEST_SUITE_P(Transports, FabricNotAlone, testing::ValuesIn(each_transport(3)), setup_name);

}  // namespace
}  // namespace gigabar::test
