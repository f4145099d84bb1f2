// SPDX-License-Identifier: Apache-2.0
// A rank without a connection that says nothing: when it is lost, and when waits look after it, however short they are.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "fabric/engine.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"

namespace gigabar::fabric {
namespace {

constexpr SegmentId kSegment = 1;
constexpr std::chrono::seconds kPatience{20};
constexpr std::chrono::milliseconds kShort{2};  // far less than the silence after which a wait looks
constexpr unsigned kNever = ~0U;

FabricOptions options_of(Rank rank, std::uint16_t port) {
  FabricOptions options;
  options.rank = rank;
  options.rank_count = 2;
  options.master_address = "127.0.0.1";
  options.master_port = port;
  options.transports = {TransportKind::local};
  if (rank == 0) options.connect_timeout = std::chrono::seconds(1);
  return options;
}

// Rank 0. The other one has left its address, and is gone.
Result<Fabric> open_beside_the_dead(std::uint16_t port) {
  auto fabric = Fabric::open(options_of(0, port));
  const auto other = Fabric::open(options_of(1, port));
  EXPECT_TRUE(other) << other.message();
  return fabric;
}

void expect_lost_in_time(Fabric& fabric) {
  char byte = 0;
  const auto receive = fabric.post_recv(1, 1, ~Tag{0}, &byte, 1);
  ASSERT_TRUE(receive) << receive.message();
  EXPECT_EQ(fabric.connect(1, kShort).status(), Status::timed_out) << "it has a second";
  const Result<void> lost = fabric.connect(1, kPatience);
  ASSERT_EQ(lost.status(), Status::peer_lost) << lost.message();
  EXPECT_EQ(lost.record().object.find("rank 1"), 0U) << lost.message();
  EXPECT_NE(lost.record().remedy.find("forget()"), std::string::npos) << lost.message();
  EXPECT_EQ(fabric.wait_message(*receive, kPatience).status(), Status::peer_lost) << "it was under way";
  EXPECT_EQ(fabric.recv(1, 1, &byte, 1, kShort).status(), Status::peer_lost);
  EXPECT_EQ(fabric.connect(1, Timeout::test()).status(), Status::peer_lost) << "nobody tries again";
  ASSERT_TRUE(fabric.forget(1));
  EXPECT_EQ(fabric.connect(1, kShort).status(), Status::timed_out) << "a new attempt";
}

ISOLATED_TEST(SilentRank, IsLostWhenItsTimeToConnectIsOver) {
  auto beside_the_dead = open_beside_the_dead(test::free_port());
  ASSERT_TRUE(beside_the_dead) << beside_the_dead.message();
  expect_lost_in_time(*beside_the_dead);
  auto alone = Fabric::open(options_of(0, test::free_port()));
  ASSERT_TRUE(alone) << alone.message();
  expect_lost_in_time(*alone);
}

// Each kind of wait has a job of its own: behind a loss every wait looks at once.
ISOLATED_TEST(SilentRank, IsFoundByWaitsInShortParts) {
  struct Wait {
    const char* name;
    std::function<Status(Fabric&)> part;
  };
  const std::vector<Wait> waits = {
      {"notification_wait", [](Fabric& fabric) { return fabric.notification_wait(kSegment, 0, 1, kShort).status(); }},
      {"notification_wait_count", [](Fabric& fabric) { return fabric.notification_wait_count(kSegment, 0, 1, kShort).status(); }},
      {"recv of any", [](Fabric& fabric) { return fabric.recv(kAnyRank, 1, nullptr, 0, kShort).status(); }},
      {"recv", [](Fabric& fabric) { return fabric.recv(1, 1, nullptr, 0, kShort).status(); }},
      {"barrier", [](Fabric& fabric) { return fabric.barrier({}, kShort).status(); }},
      {"barrier, looking", [](Fabric& fabric) { return fabric.barrier({}, Timeout::test()).status(); }},
  };
  std::vector<char> memory(4096);
  std::vector<Fabric> fabrics;
  for (std::size_t index = 0; index < waits.size(); ++index) {
    auto opened = open_beside_the_dead(test::free_port());
    ASSERT_TRUE(opened) << opened.message();
    fabrics.push_back(std::move(*opened));
    ASSERT_TRUE(fabrics.back().register_segment(kSegment, memory.data(), memory.size()));
  }
  const Deadline deadline = Deadline::after_ns(20'000'000'000);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < waits.size(); ++index) {
    threads.emplace_back([&, index] {
      Status status = Status::timed_out;
      while (status == Status::timed_out && !deadline.has_passed()) status = waits[index].part(fabrics[index]);
      EXPECT_EQ(status, Status::peer_lost) << waits[index].name << ": " << name_of(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// It lives, and nobody needs it: as long as others end the waits, and by looks that wait for nothing, nobody connects to it.
ISOLATED_TEST(SilentRank, IsLeftAloneUntilWaitsHaveLastedForASecond) {
  const std::uint16_t port = test::free_port();
  FabricOptions options = options_of(0, port);
  options.connect_timeout = kPatience;  // it shall be connected to in the end
  auto opened = Engine::open(options);
  ASSERT_TRUE(opened) << opened.message();
  Engine& engine = **opened;
  const auto other = Fabric::open(options_of(1, port));
  ASSERT_TRUE(other) << other.message();
  const auto ends_in_time = [&](const Timeout& timeout, unsigned polls) {
    Engine::Lock lock = engine.lock();
    unsigned count = 0;
    const auto ended = engine.progress_unless_alone(lock, timeout, "wait", "end it", [&] { return ++count > polls; });
    return ended && *ended;
  };
  const auto is_connected = [&] {
    const Engine::Lock lock = engine.lock();
    const std::vector<PeerState> peers = engine.peers();
    return !peers.empty() && peers.front().is_connected;
  };
  for (const Deadline deadline = Deadline::after_ns(1'700'000'000); !deadline.has_passed();) {
    EXPECT_FALSE(ends_in_time(kShort, kNever));
    EXPECT_TRUE(ends_in_time(kPatience, 50));
  }
  for (const Deadline deadline = Deadline::after_ns(1'700'000'000); !deadline.has_passed();)
    EXPECT_FALSE(ends_in_time(Timeout::test(), kNever));
  EXPECT_FALSE(is_connected());
  for (const Deadline deadline = Deadline::after_ns(20'000'000'000); !deadline.has_passed() && !is_connected();)
    EXPECT_FALSE(ends_in_time(kShort, kNever));
  EXPECT_TRUE(is_connected()) << "nobody has looked whether it lives";
}

// A rank is lost, and another one lives that nobody needs: waits that others end leave that one alone, as before the loss. When it
// is lost as well, each wait says so at once.
ISOLATED_TEST(SilentRank, IsLeftAloneAfterTheLossOfAnotherOne) {
  const std::uint16_t port = test::free_port();
  const auto of_three = [&](Rank rank) {
    FabricOptions options = options_of(rank, port);
    options.rank_count = 3;
    options.connect_timeout = kPatience;
    return options;
  };
  auto opened = Engine::open(of_three(0));
  ASSERT_TRUE(opened) << opened.message();
  Engine& engine = **opened;
  std::vector<std::optional<Fabric>> others;
  for (const Rank rank : {1U, 2U}) {
    auto other = Fabric::open(of_three(rank));
    ASSERT_TRUE(other) << other.message();
    others.emplace_back(std::move(*other));
  }
  const auto state_of = [&](Rank rank) {
    for (const PeerState& peer : engine.peers())
      if (peer.rank == rank) return peer;
    return PeerState{};
  };
  const auto meet_and_lose = [&](Rank rank) {
    Engine::Lock lock = engine.lock();
    EXPECT_TRUE(engine.ready_peer(lock, rank, kPatience));
    lock.unlock();
    others[rank - 1].reset();
    lock.lock();
    EXPECT_TRUE(engine.progress_until(lock, kPatience, [&] { return state_of(rank).is_broken; }));
  };
  const auto wait = [&](const Timeout& timeout, unsigned polls) {
    Engine::Lock lock = engine.lock();
    unsigned count = 0;
    return engine.progress_unless_alone(lock, timeout, "wait", "end it", [&] { return ++count > polls; });
  };
  meet_and_lose(1);
  for (const Deadline deadline = Deadline::after_ns(300'000'000); !deadline.has_passed();) {
    const auto ended = wait(kPatience, 50);
    EXPECT_TRUE(ended && *ended);
  }
  {
    const Engine::Lock lock = engine.lock();
    EXPECT_FALSE(state_of(2).is_connected);
  }
  meet_and_lose(2);
  for (const Timeout& timeout : {Timeout::test(), Timeout(kPatience)}) EXPECT_EQ(wait(timeout, kNever).status(), Status::peer_lost);
}

}  // namespace
}  // namespace gigabar::fabric
