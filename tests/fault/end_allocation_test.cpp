// SPDX-License-Identifier: Apache-2.0
// Host memory runs out at every single allocation that a device session makes, and that the destructors of fabrics, device sessions
// and mappings make: a destructor has nobody to tell, and must neither throw nor leave the other rank waiting.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gigabar/device/fabric.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/descriptors.hpp"
#include "support/expect_log.hpp"
#include "support/failing_new.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::fail_each_allocation;
using test::open_descriptors;
using test::ScopedEnvironment;
using test::WithMemory;

constexpr std::chrono::seconds kPatience{20};
constexpr SegmentId kSegment = 1;

FabricOptions options_of(Rank rank, Rank rank_count, std::uint16_t port = 0) {
  FabricOptions options;
  options.rank = rank;
  options.rank_count = rank_count;
  if (rank_count > 1) {
    options.master_address = "127.0.0.1";
    options.master_port = port;
  }
  return options;
}

DeviceSessionOptions small_session(QueueUse queues) {
  DeviceSessionOptions options;
  options.segment_count = 2;
  options.notification_count = 16;
  options.queue_depth = 8;
  options.queues = queues;
  options.engine = QueueEngine::software_hca;
  options.timeout = kPatience;
  return options;
}

// A rank of this process, all of it: a fabric, memory that kernels reach, a session.
class RankWithSession {
 public:
  void open_fabric(const FabricOptions& options) {
    auto fabric = Fabric::open(options);
    ASSERT_TRUE(fabric) << fabric.message();
    fabric_.emplace(std::move(*fabric));
    auto memory = DeviceMemory::allocate(0, 65536);
    ASSERT_TRUE(memory) << memory.message();
    memory_.emplace(std::move(*memory));
    const Result<void> registered = fabric_->register_segment(kSegment, memory_->address(), memory_->bytes());
    ASSERT_TRUE(registered) << registered.message();
  }
  Status open_session(QueueUse queues) {
    auto session = DeviceSession::open(*fabric_, small_session(queues));
    if (!session) return session.status();
    session_.emplace(std::move(*session));
    return Status::ok;
  }
  void end_session() { session_.reset(); }
  void end() {
    session_.reset();
    fabric_.reset();
    memory_.reset();
  }
  Fabric& fabric() { return *fabric_; }
  DeviceSession& session() { return *session_; }

 private:
  std::optional<DeviceMemory> memory_;
  std::optional<Fabric> fabric_;
  std::optional<DeviceSession> session_;
};

// --- Device sessions -------------------------------------------------------------------------------------------------------------

// What a program does with one, on the calling thread. One that is left is ended, as a program does that was answered an error.
Status use_session(RankWithSession& rank) {
  Status status = rank.open_session(QueueUse::out_of_reach);
  if (status != Status::ok) return status;
  DeviceSession& session = rank.session();
  status = session.reach(0, kSegment).status();
  // What is refused, or had no memory to say so.
  for (const Status refused :
       {session.reach(0, 9).status(), session.recover(9, kPatience).status(), session.notify(9, 0, 0, 1).status(),
        session.write_notify({kSegment, 0}, {9, 0, 0}, 8, 0, 1).status()}) {
    if (status == Status::ok && refused != Status::out_of_range) status = refused;
  }
  const Result<void> closed = session.close(kPatience);
  if (status == Status::ok) status = closed.status();
  rank.end_session();
  return status;
}

ISOLATED_TEST(SessionAllocation, EverythingOfOneRank) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  RankWithSession rank;
  ASSERT_NO_FATAL_FAILURE(rank.open_fabric(options_of(0, 1)));
  ASSERT_EQ(use_session(rank), Status::ok);
  const std::size_t descriptors = open_descriptors();
  const auto check = [&] {
    EXPECT_EQ(use_session(rank), Status::ok) << "once more, with all its memory";
    EXPECT_LE(open_descriptors(), descriptors + 2);
  };
  EXPECT_GT(fail_each_allocation([&] { return use_session(rank); }, check), 50U);
  // Nothing of the sessions is left in it.
  EXPECT_TRUE(rank.fabric().deregister_segment(kSegment, kPatience));
  const Result<void> closed = rank.fabric().close(kPatience);
  EXPECT_TRUE(closed) << closed.message();
}

ISOLATED_TEST(SessionAllocation, ADestructor) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  RankWithSession rank;
  ASSERT_NO_FATAL_FAILURE(rank.open_fabric(options_of(0, 1)));
  const auto end = [&] {
    {
      const WithMemory enough;
      EXPECT_EQ(rank.open_session(QueueUse::out_of_reach), Status::ok);
    }
    rank.end_session();
    return Status::ok;
  };
  const auto check = [&] { EXPECT_TRUE(test::take_log().empty()) << "it was closed all the same"; };
  EXPECT_GT(fail_each_allocation(end, check), 0U);
  EXPECT_TRUE(rank.fabric().deregister_segment(kSegment, kPatience));
  const Result<void> closed = rank.fabric().close(kPatience);
  EXPECT_TRUE(closed) << closed.message();
}

// With queues, mappings of the other's segments, and a rank that has to agree to each step.
ISOLATED_TEST(SessionAllocation, ADestructorOfTwoRanks) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const auto end = [] {
    RankWithSession rank;
    std::optional<std::thread> partner;
    {
      const WithMemory enough;
      const std::uint16_t port = test::free_port();
      partner.emplace([port] {
        RankWithSession other;
        ASSERT_NO_FATAL_FAILURE(other.open_fabric(options_of(1, 2, port)));
        EXPECT_EQ(other.open_session(QueueUse::always), Status::ok);
        other.end();
      });
      rank.open_fabric(options_of(0, 2, port));
      if (!testing::Test::HasFailure()) {
        EXPECT_EQ(rank.open_session(QueueUse::always), Status::ok);
      }
    }
    rank.end_session();
    {
      const WithMemory enough;
      partner->join();
      rank.end();
    }
    return Status::ok;
  };
  EXPECT_EQ(end(), Status::ok);
  const std::size_t descriptors = open_descriptors();
  EXPECT_GT(fail_each_allocation(end, [&] { EXPECT_LE(open_descriptors(), descriptors + 2); }), 0U);
}

// A kernel has rung for a request whose record has not arrived: what it posted is waited for, and the session stays as it was.
ISOLATED_TEST(SessionAllocation, ACloseBeforeTheKernelsOperationsAreDone) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  std::array<RankWithSession, 2> ranks;
  const std::uint16_t port = test::free_port();
  const auto at_both = [&](const std::function<void(Rank)>& body) {
    std::thread other(body, 1);
    body(0);
    other.join();
  };
  at_both([&](Rank rank) {
    ASSERT_NO_FATAL_FAILURE(ranks[rank].open_fabric(options_of(rank, 2, port)));
    EXPECT_EQ(ranks[rank].open_session(QueueUse::always), Status::ok);
  });
  ASSERT_FALSE(testing::Test::HasFailure());
  DeviceSession& session = ranks[0].session();
  const device::DeviceFabric& handle = session.handle();
  const device::Queue& queue = handle.queues[1][0].queue;
  device::store_register(queue.doorbell, device::mlx5::doorbell(queue.ready + 1, queue.number));
  bool was_thrown = false;
  const auto close = [&] {
    const Result<void> closed = session.close(std::chrono::milliseconds(10));
    if (closed.status() != Status::timed_out) {
      was_thrown |= closed.status() == Status::out_of_memory && closed.record().operation == "device session close";
      return closed.status();
    }
    const WithMemory enough;
    EXPECT_EQ(closed.message(), "close: device session: operations that kernels posted are not done yet; call again");
    return Status::ok;
  };
  EXPECT_EQ(close(), Status::ok);
  EXPECT_GT(fail_each_allocation(close, [] {}), 0U);
  EXPECT_TRUE(was_thrown);
  EXPECT_EQ(device::write(device::Thread{}, handle, {kSegment, 0}, {1, kSegment, 0}, 64), Status::ok);
  EXPECT_EQ(device::wait(device::Thread{}, handle, 0, {20'000'000'000}), Status::ok);
  at_both([&](Rank rank) {
    const Result<void> closed = ranks[rank].session().close(kPatience);
    EXPECT_TRUE(closed) << closed.message();
    ranks[rank].end();
  });
}

// What a rank cannot make anew leaves its queues to the others running: kernels write to them as before.
ISOLATED_TEST(SessionAllocation, ARecoveryThatFailsLeavesTheOtherQueues) {
  constexpr Rank kLost = 1, kOther = 2;
  constexpr device::Timeout kLong{20'000'000'000};
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  std::array<RankWithSession, 3> ranks;
  const std::uint16_t port = test::free_port();
  const auto at_all = [&](const std::function<void(Rank)>& body) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < ranks.size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  };
  at_all([&](Rank rank) {
    ASSERT_NO_FATAL_FAILURE(ranks[rank].open_fabric(options_of(rank, 3, port)));
    EXPECT_EQ(ranks[rank].open_session(QueueUse::always), Status::ok);
  });
  ASSERT_FALSE(testing::Test::HasFailure());
  DeviceSession& session = ranks[0].session();
  const auto write_to_other = [&] {
    const device::DeviceFabric& handle = session.handle();
    EXPECT_EQ(device::write(device::Thread{}, handle, {kSegment, 0}, {kOther, kSegment, 0}, 64), Status::ok);
    return device::wait(device::Thread{}, handle, 0, kLong);
  };
  EXPECT_EQ(write_to_other(), Status::ok);
  // Until one is thrown: before it, failures are answers, and behind it those of what the ranks send each other, which ends the
  // connection.
  bool was_thrown = false;
  for (long before = 0; before < 400 && !was_thrown && !testing::Test::HasFailure(); ++before) {
    test::has_failed = false;
    test::left_until_failure = before;
    const Result<void> recovered = session.recover(kLost, kPatience);
    test::left_until_failure = -1;
    ASSERT_TRUE(test::has_failed) << "all its memory was there: " << recovered.message();
    if (!recovered) {
      EXPECT_EQ(recovered.status(), Status::out_of_memory) << recovered.message();
      was_thrown = recovered.record().operation == "device session recover";
    }
    EXPECT_EQ(write_to_other(), Status::ok) << "when allocation " << before << " failed";
  }
  EXPECT_TRUE(was_thrown);
  const Result<void> recovered = session.recover(kLost, kPatience);
  EXPECT_TRUE(recovered) << recovered.message();
  at_all([&](Rank rank) { ranks[rank].end(); });
}

// --- Fabrics ---------------------------------------------------------------------------------------------------------------------

// Rank 0 stays; rank 1 connects to it, and leaves without a word or without the memory for it, again and again.
void leave_again_and_again(TransportKind transport) {
  const std::uint16_t port = test::free_port();
  FabricOptions keeps = options_of(0, 2, port), leaves = options_of(1, 2, port);
  for (FabricOptions* options : {&keeps, &leaves}) {
    options->transports = {transport};
    options->ucx_trust_network = true;
  }
  auto server = Fabric::open(keeps);
  if (!server && transport == TransportKind::ucx) {
    // Only where there is no UCX.
    const std::string said = server.message();
    ASSERT_TRUE(said.find("cannot open") != std::string::npos || said.find("no support for UCX") != std::string::npos) << said;
    return;
  }
  ASSERT_TRUE(server) << server.message();
  std::vector<char> memory(8192, 'a');
  const auto leave = [&] {
    std::optional<Fabric> rank;
    {
      const WithMemory enough;
      auto opened = Fabric::open(leaves);
      EXPECT_TRUE(opened) << opened.message();
      if (!opened) return opened.status();
      rank.emplace(std::move(*opened));
      EXPECT_TRUE(rank->register_segment(kSegment, memory.data(), memory.size()));
      const Result<void> connected = rank->connect(0, kPatience);
      EXPECT_TRUE(connected) << connected.message();
      EXPECT_TRUE(rank->write({kSegment, 0}, {1, kSegment, 4096}, 64));
      EXPECT_TRUE(rank->connect(1, kPatience)) << "itself";
    }
    rank.reset();
    return Status::ok;
  };
  // Rank 0 hears of it and can be met again.
  const auto check = [&] {
    const WithMemory enough;
    const auto until = std::chrono::steady_clock::now() + kPatience;
    bool is_forgotten = false;
    while (!is_forgotten && std::chrono::steady_clock::now() < until) {
      for (const PeerState& peer : server->peers()) {
        if (peer.rank == 1 && peer.is_broken) is_forgotten = server->forget(1).is_ok();
      }
      if (!is_forgotten) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(is_forgotten);
  };
  EXPECT_EQ(leave(), Status::ok);
  check();
  EXPECT_GT(fail_each_allocation(leave, check), 0U);
}

ISOLATED_TEST(FabricAllocation, ADestructor) { leave_again_and_again(TransportKind::local); }
ISOLATED_TEST(FabricAllocation, ADestructorOverUcx) { leave_again_and_again(TransportKind::ucx); }

// --- Mappings --------------------------------------------------------------------------------------------------------------------

// In a forked child, which leaves its parent's mapping alone.
ISOLATED_TEST(MappingAllocation, ADestructorInAForkedChild) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const auto memory = DeviceMemory::allocate(0, 65536);
  ASSERT_TRUE(memory) << memory.message();
  auto made = map(memory->address(), memory->bytes());
  ASSERT_TRUE(made) << made.message();
  std::optional<Mapping> mapping(std::move(*made));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    test::left_until_failure = 0;
    mapping.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(mapping->is_usable());
}

}  // namespace
}  // namespace gigabar
