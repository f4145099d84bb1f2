// SPDX-License-Identifier: Apache-2.0
// Queues that many threads share, with proxies that run: turns, teams, and that a notification never comes before its payload.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/device/fabric.hpp"
#include "rig.hpp"

namespace gigabar::soft_hca::test {
namespace {

constexpr Sharing kShared = Sharing::device;

template <class Work>
void run_threads(std::uint32_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

class Shared : public testing::TestWithParam<QueueOptions> {};
INSTANTIATE_TEST_SUITE_P(Queue, Shared, testing::ValuesIn(all_kinds(16)), kind_name);

// Each thread writes its own word again and again, on a ring that is mostly full. Every word ends with its last value, every ticket
// is the only one with its index, and no WQE is lost or made twice.
TEST_P(Shared, ManyThreadsPostToOneQueue) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint64_t kRounds = 300;
  Rig rig(GetParam());
  auto proxies = ProxyThreads::start(rig.hca, 1);
  ASSERT_TRUE(proxies);
  std::vector<std::atomic<int>> seen(kThreads * kRounds + 1);
  std::atomic<int> wrong_count{0};
  run_threads(kThreads, [&](std::uint32_t me) {
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
      Ticket ticket;
      const Status posted =
          device::post_inline_write<kShared>(Thread{}, rig.queue(), rig.at_peer(8 * me), inline_value(i), ticket, kLong);
      if (posted != Status::ok) return static_cast<void>(++wrong_count);
      ++seen[ticket.index - GetParam().first_index];
      if (i % 64 != 0) continue;
      if (device::wait<kShared>(Thread{}, rig.queue(), ticket, kLong) != Status::ok) ++wrong_count;
      if (device::load_acquire(&rig.remote.at<std::uint64_t>(8 * me)) != i) ++wrong_count;
    }
  });
  EXPECT_EQ(device::flush<kShared>(Thread{}, rig.queue(), kLong), Status::ok);
  (*proxies)->stop();
  const device::QueueError error = device::error_of<kShared>(rig.queue());
  EXPECT_FALSE(error.is_set) << "syndrome " << static_cast<unsigned>(error.syndrome) << " at WQE " << error.wqe_index << " of "
                             << rig.statistics().work_requests << " begun, " << rig.statistics().late_requests
                             << " polls for late ones";
  EXPECT_EQ(wrong_count, 0);
  for (std::size_t i = 1; i < seen.size(); ++i) ASSERT_EQ(seen[i], 1) << i;
  for (std::uint32_t me = 0; me < kThreads; ++me) EXPECT_EQ(rig.remote.at<std::uint64_t>(8 * me), kRounds);
  EXPECT_EQ(rig.statistics().work_requests, kThreads * kRounds);
  EXPECT_EQ(rig.queue().ready, rig.queue().reserved);
  EXPECT_EQ(rig.statistics().late_records, 0U);  // no doorbell came before its record
}

// A thread that stood still between its look at `completed` and its look at the one CQE, while others went on by laps.
TEST(Queue, AThreadThatStoodStillBreaksNothing) {
  QueueOptions options;
  options.depth = 16;
  options.is_collapsed = true;
  Rig rig(options);
  device::Queue& queue = rig.queue();
  queue.completed = 40;
  EXPECT_TRUE(device::detail::complete_up_to<kShared>(queue, 4, 50));
  EXPECT_EQ(queue.completed, 50U);
  EXPECT_TRUE(device::detail::complete_up_to<kShared>(queue, 4, 45));  // the CQE is older than what the others completed
  EXPECT_EQ(queue.completed, 50U);
  EXPECT_FALSE(device::detail::complete_up_to<kShared>(queue, 50, 67));  // nobody went on: no such WQE was posted
  EXPECT_EQ(queue.completed, 50U);
}

// Nothing but doorbell and CQE lies between a thread and the HCA here, and between threads nothing but who took the CQE: what was
// stored before a post is read, and the result is seen behind the ticket.
TEST_P(Shared, ResultsAreSeenBehindTheirTicket) {
  constexpr std::uint32_t kThreads = 3;
  Rig rig(GetParam());
  auto proxies = ProxyThreads::start(rig.hca, 1);
  ASSERT_TRUE(proxies);
  std::atomic<int> wrong_count{0};
  run_threads(kThreads, [&](std::uint32_t me) {
    const std::uint64_t mine = 8192 * me;
    for (std::uint32_t i = 1; i <= 100; ++i) {
      for (std::uint32_t k = 0; k < 25; ++k) rig.remote.at<std::uint32_t>(mine + 4 * k) = i + k;
      Ticket ticket;
      const Status posted =
          device::post_read<kShared>(Thread{}, rig.queue(), rig.at_peer(mine), rig.at_local(mine), 100, ticket, kLong);
      if (posted != Status::ok || device::wait<kShared>(Thread{}, rig.queue(), ticket, kLong) != Status::ok) ++wrong_count;
      for (std::uint32_t k = 0; k < 25; ++k) {
        if (rig.local.at<std::uint32_t>(mine + 4 * k) != i + k) ++wrong_count;
      }
    }
  });
  EXPECT_EQ(wrong_count, 0);
}

// A post that was reserved and is not filled yet holds back all that were reserved behind it: no doorbell tells of the hole.
TEST(Turns, ASlowPostHoldsBackThoseBehindIt) {
  Rig rig;
  const std::uint64_t hole = device::detail::reserve<kShared>(rig.queue(), 1, kLong);
  ASSERT_EQ(hole, 0U);
  std::vector<Ticket> tickets(3);
  std::vector<std::thread> behind;
  for (std::uint32_t i = 0; i < 3; ++i) {
    behind.emplace_back([&, i] {
      EXPECT_EQ(
          device::post_inline_write<kShared>(Thread{}, rig.queue(), rig.at_peer(8 * i), inline_value(i + 1), tickets[i], kLong),
          Status::ok);
    });
  }
  while (device::Shared<kShared>::load(&rig.queue().reserved) != 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(device::load_acquire(rig.queue().doorbell), 0U);
  EXPECT_EQ(device::Shared<kShared>::load(&rig.queue().ready), 0U);
  rig.run();
  EXPECT_EQ(rig.statistics().work_requests, 0U);
  device::detail::fill_nop(rig.queue(), hole, 0);
  device::detail::publish<kShared>(rig.queue(), hole, hole + 1, false);
  for (std::thread& thread : behind) thread.join();
  rig.run();
  EXPECT_EQ(device::flush<kShared>(Thread{}, rig.queue(), kShort), Status::ok);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(rig.remote.at<std::uint64_t>(8 * i), i + 1);
  // They had all reserved before the first could ring: the last rang for all.
  EXPECT_EQ(rig.statistics().doorbells, 1U);
}

// Threads of the CPU as a block: one reservation and one doorbell for all of them, and one CQE.
TEST_P(Shared, ATeamPostsTogether) {
  constexpr std::uint32_t kTeam = 4;
  constexpr std::uint32_t kRounds = 60;
  Rig rig(GetParam());
  auto proxies = ProxyThreads::start(rig.hca, 1);
  ASSERT_TRUE(proxies);
  device::CpuTeam team(kTeam);
  std::atomic<int> wrong_count{0};
  run_threads(kTeam, [&](std::uint32_t me) {
    const device::CpuTeam::Member member(team, me);
    const auto check = [&](Status status) {
      if (status != Status::ok) ++wrong_count;
    };
    for (std::uint32_t i = 1; i <= kRounds; ++i) {
      Ticket ticket;
      for (std::uint32_t k = 0; k < 16; ++k) rig.local.at<std::uint32_t>(1024 * me + 4 * k) = i * 1000 + me * 100 + k;
      check(device::post_write_notify<kAlone>(member, rig.queue(), rig.at_peer(1024 * me), rig.at_local(1024 * me), 64,
                                              rig.at_peer(8192 + 4 * me), i, ticket, kLong));
      check(device::wait<kAlone>(member, rig.queue(), ticket, kLong));
      // Each looks at its neighbour's.
      const std::uint32_t other = (me + 1) % kTeam;
      if (device::load_acquire(&rig.remote.at<std::uint32_t>(8192 + 4 * other)) != i) ++wrong_count;
      if (rig.remote.at<std::uint32_t>(1024 * other + 60) != i * 1000 + other * 100 + 15) ++wrong_count;
      member.sync();
    }
    check(device::flush<kAlone>(member, rig.queue(), kLong));
  });
  (*proxies)->stop();
  EXPECT_EQ(wrong_count, 0);
  const QueueStatistics statistics = rig.statistics();
  EXPECT_EQ(statistics.work_requests, 2 * kTeam * kRounds);
  EXPECT_EQ(statistics.doorbells, kRounds);
  EXPECT_EQ(statistics.cqes, kRounds);
}

// As many as a warp has: one reservation, one publication, one doorbell, one CQE.
TEST(Team, AsManyAsAWarp) {
  constexpr std::uint32_t kLanes = 32;
  QueueOptions options;
  options.depth = 64;
  Rig rig(options);
  device::CpuTeam team(kLanes);
  std::atomic<int> wrong_count{0};
  run_threads(kLanes, [&](std::uint32_t me) {
    const device::CpuTeam::Member member(team, me);
    Ticket ticket;
    const Status posted =
        device::post_inline_write<kAlone>(member, rig.queue(), rig.at_peer(8 * me), inline_value(me + 1), ticket, kShort);
    if (posted != Status::ok || ticket.index != kLanes) ++wrong_count;
  });
  rig.run();
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig.queue(), kShort), Status::ok);
  for (std::uint32_t me = 0; me < kLanes; ++me) EXPECT_EQ(rig.remote.at<std::uint64_t>(8 * me), me + 1);
  EXPECT_EQ(wrong_count, 0);
  EXPECT_EQ(rig.statistics().doorbells, 1U);
  EXPECT_EQ(rig.statistics().cqes, 1U);
}

// Bad arguments of one thread do not touch the others'.
TEST(Team, OneBadArgumentIsOneThreads) {
  constexpr std::uint32_t kTeam = 3;
  Rig rig;
  device::CpuTeam team(kTeam);
  std::vector<Status> answers(kTeam);
  run_threads(kTeam, [&](std::uint32_t me) {
    const device::CpuTeam::Member member(team, me);
    Ticket ticket;
    const std::uint64_t misplaced = me == 1 ? 2 : 0;
    answers[me] = device::post_inline_write_notify<kAlone>(member, rig.queue(), rig.at_peer(64 * me), inline_value(me + 10),
                                                           rig.at_peer(64 * me + 32 + misplaced), 7, ticket, kShort);
  });
  EXPECT_EQ(answers, (std::vector<Status>{Status::ok, Status::invalid_argument, Status::ok}));
  rig.run();
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig.queue(), kShort), Status::ok);
  EXPECT_EQ(rig.remote.at<std::uint64_t>(0), 10U);
  EXPECT_EQ(rig.remote.at<std::uint64_t>(64), 0U);
  EXPECT_EQ(rig.remote.at<std::uint64_t>(128), 12U);
  EXPECT_EQ(rig.remote.at<std::uint32_t>(128 + 32), 7U);
}

TEST(Team, AFullRingIsTheSameForAll) {
  constexpr std::uint32_t kTeam = 4;
  Rig rig;
  device::CpuTeam team(kTeam);
  std::atomic<int> wrong_count{0};
  run_threads(kTeam, [&](std::uint32_t me) {
    const device::CpuTeam::Member member(team, me);
    Ticket ticket;
    for (int i = 0; i < 4; ++i) {
      if (device::post_nop<kAlone>(member, rig.queue(), ticket, kShort) != Status::ok) ++wrong_count;
    }
    if (device::post_nop<kAlone>(member, rig.queue(), ticket, kShort) != Status::timed_out) ++wrong_count;
    if (device::wait<kAlone>(member, rig.queue(), ticket, kShort) != Status::timed_out) ++wrong_count;
  });
  EXPECT_EQ(wrong_count, 0);
  EXPECT_EQ(rig.queue().reserved, 16U);
}

// --- Payload before notification -------------------------------------------------------------------------------------------------

struct Way {
  const char* name;
  std::uint32_t payload_bytes;  // 8: inline
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class Notification : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Queue, Notification, testing::Values(Way{"inline", 8}, Way{"write", 1000}),
                         [](const auto& way) { return way.param.name; });

Status post_round(Rig& rig, const Way& way, std::uint32_t round, Ticket& ticket) {
  const Remote payload = rig.at_peer(4096), flag = rig.at_peer(0);
  device::Queue& queue = rig.queue();
  if (way.payload_bytes == 8) {
    return device::post_inline_write_notify<kAlone>(Thread{}, queue, payload, inline_value(std::uint64_t{round} * 0x1'0000'0001),
                                                    flag, round, ticket, kLong);
  }
  for (std::size_t i = 0; i < way.payload_bytes / 4; ++i)
    rig.local.at<std::uint32_t>(4 * i) = round + static_cast<std::uint32_t>(i);
  return device::post_write_notify<kAlone>(Thread{}, queue, payload, rig.at_local(0), way.payload_bytes, flag, round, ticket,
                                           kLong);
}

bool has_round(const Rig& rig, const Way& way, std::uint32_t round) {
  if (way.payload_bytes == 8) {
    return rig.remote.at<std::uint32_t>(4096) == round && rig.remote.at<std::uint32_t>(4100) == round;
  }
  for (std::size_t i = 0; i < way.payload_bytes / 4; ++i) {
    if (rig.remote.at<std::uint32_t>(4096 + 4 * i) != round + i) return false;
  }
  return true;
}

bool wait_for_word(const std::uint32_t& word, std::uint32_t value) {
  device::Deadline deadline(kLong);
  while (device::load_acquire(&word) != value) {
    if (deadline.has_passed()) return false;
  }
  return true;
}

// Sender, proxy and receiver are threads of their own; the receiver answers, so that the payload is not overwritten under it.
TEST_P(Notification, NeverComesBeforeItsPayload) {
  constexpr std::uint32_t kRounds = 400;
  const Way way = GetParam();
  Rig rig;
  auto proxies = ProxyThreads::start(rig.hca, 1);
  ASSERT_TRUE(proxies);
  std::uint32_t answer = 0;
  std::atomic<std::uint32_t> wrong_count{0};
  std::thread receiver([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      if (!wait_for_word(rig.remote.at<std::uint32_t>(0), round)) return static_cast<void>(++wrong_count);
      if (!has_round(rig, way, round)) ++wrong_count;
      device::store_release(&answer, round);
    }
  });
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    Ticket ticket;
    ASSERT_EQ(post_round(rig, way, round, ticket), Status::ok);
    if (!wait_for_word(answer, round)) {
      ADD_FAILURE() << "no answer to " << round;
      break;
    }
    ASSERT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kLong), Status::ok);
  }
  receiver.join();
  (*proxies)->stop();
  EXPECT_EQ(wrong_count, 0U);
}

// --- Proxies ---------------------------------------------------------------------------------------------------------------------

TEST(ProxyThreads, ShareManyQueues) {
  constexpr std::uint32_t kQueues = 5;
  Rig rig;
  for (std::uint32_t i = 1; i < kQueues; ++i) rig.add_queue(Rig::small_ring());
  Faults faults;
  faults.sit_out_percent = 30;
  for (std::uint32_t i = 0; i < kQueues; ++i) rig.set_faults(faults, i);
  auto proxies = ProxyThreads::start(rig.hca, 2);
  ASSERT_TRUE(proxies);
  std::atomic<int> wrong_count{0};
  run_threads(kQueues, [&](std::uint32_t me) {
    for (std::uint64_t i = 1; i <= 200; ++i) {
      Ticket ticket;
      const Status posted =
          device::post_inline_write<kAlone>(Thread{}, rig.queue(me), rig.at_peer(64 * me), inline_value(i), ticket, kLong);
      if (posted != Status::ok || device::wait<kAlone>(Thread{}, rig.queue(me), ticket, kLong) != Status::ok) ++wrong_count;
    }
  });
  EXPECT_EQ(wrong_count, 0);
  for (std::uint32_t i = 0; i < kQueues; ++i) EXPECT_EQ(device::load_acquire(&rig.remote.at<std::uint64_t>(64 * i)), 200U);
}

TEST(ProxyThreads, OfACountThatMakesNoSense) {
  Rig rig;
  for (const std::uint32_t count : {0U, ProxyThreads::kMaxThreads + 1}) {
    const auto refused = ProxyThreads::start(rig.hca, count);
    ASSERT_FALSE(refused) << count;
    EXPECT_EQ(refused.status(), Status::invalid_argument);
    EXPECT_NE(refused.error().message().find(std::to_string(count) + " threads"), std::string::npos) << refused.error().message();
  }
}

// A dead proxy is seen by waits that end; a new one goes on where it stopped.
TEST(ProxyThreads, ADeadOneEndsWaitsAndANewOneGoesOn) {
  Rig rig;
  Ticket ticket;
  auto proxies = ProxyThreads::start(rig.hca, 1);
  ASSERT_TRUE(proxies);
  ASSERT_EQ(device::post_nop<kShared>(Thread{}, rig.queue(), ticket, kLong), Status::ok);
  ASSERT_EQ(device::wait<kShared>(Thread{}, rig.queue(), ticket, kLong), Status::ok);
  (*proxies)->stop();
  ASSERT_EQ(device::post_nop<kShared>(Thread{}, rig.queue(), ticket, kLong), Status::ok);
  EXPECT_EQ(device::wait<kShared>(Thread{}, rig.queue(), ticket, kShort), Status::timed_out);
  auto next = ProxyThreads::start(rig.hca, 1);
  ASSERT_TRUE(next);
  EXPECT_EQ(device::wait<kShared>(Thread{}, rig.queue(), ticket, kLong), Status::ok);
}

// An error that comes while many post: everyone is told, nobody waits for its deadline.
TEST(ProxyThreads, AnErrorReachesEveryThread) {
  for (const bool is_collapsed : {true, false}) {
    QueueOptions options = Rig::small_ring();
    options.is_collapsed = is_collapsed;
    Rig rig(options);
    Faults faults;
    faults.error_at_wqe = 100;
    rig.set_faults(faults);
    auto proxies = ProxyThreads::start(rig.hca, 1);
    ASSERT_TRUE(proxies);
    std::atomic<std::uint32_t> told_count{0};
    run_threads(4, [&](std::uint32_t) {
      Ticket ticket;
      Status status = Status::ok;
      while (status == Status::ok) status = device::post_nop<kShared>(Thread{}, rig.queue(), ticket, kLong);
      if (status == Status::peer_lost && device::flush<kShared>(Thread{}, rig.queue(), kLong) == Status::peer_lost) ++told_count;
    });
    (*proxies)->stop();
    EXPECT_EQ(told_count, 4U);
    EXPECT_LE(rig.queue().completed, 99U);
    const mlx5::Syndrome told = device::error_of<kAlone>(rig.queue()).syndrome;
    EXPECT_TRUE(told == mlx5::Syndrome::retries_exceeded || (is_collapsed && told == mlx5::Syndrome::flushed));
  }
}

// A PeerQueue with its words for results, whose HCA another thread drives or, stopped, nobody.
class Results : public testing::Test {
 protected:
  Results() : rig_(deep_ring()), words_(device::kResultWords * sizeof(std::uint64_t)) {
    key_ = *rig_.hca.memory().register_memory(MemoryRange::plain(words_.data(), words_.size(), Access::local_write));
    peer_.queue = rig_.queue();
    peer_.results = {words_.address(), key_};
  }
  static QueueOptions deep_ring() {
    QueueOptions options;
    options.depth = 2 * device::kResultWords;
    return options;
  }
  Status add_one(std::uint64_t& old, Timeout timeout = kLong) {
    return device::detail::change_by_queue<Sharing::device>(peer_.queue, peer_, rig_.at_peer(0), device::detail::FetchAdd{1},
                                                            timeout, old);
  }
  // While `act` runs the HCA works.
  template <class Act>
  void with_hca(const Act& act) {
    auto proxies = ProxyThreads::start(rig_.hca, 1);
    ASSERT_TRUE(proxies);
    act();
    (*proxies)->stop();
  }

  Rig rig_;
  Bytes words_;
  std::uint32_t key_ = 0;
  device::PeerQueue peer_;
};

// A thread is held up between the choice of its word and its post, and again between its completion and its look, for many more
// results than there are words.
TEST_F(Results, AreTheThreadsOwnHoweverLongItIsHeldUp) {
  with_hca([&] {
    device::detail::ResultWord held;
    ASSERT_EQ(device::detail::hold_result<Sharing::device>(peer_.queue, peer_, kShort, held), Status::ok);
    std::uint64_t expected = 0;
    const auto others = [&] {
      for (std::uint32_t i = 0; i < 3 * device::kResultWords; ++i, ++expected) {
        std::uint64_t old = ~std::uint64_t{0};
        ASSERT_EQ(add_one(old), Status::ok);
        ASSERT_EQ(old, expected);
      }
    };
    others();
    const Local place = held.place(peer_);
    Ticket ticket;
    ASSERT_EQ(device::post_fetch_add<Sharing::device>(Thread{}, peer_.queue, rig_.at_peer(0), 1, place, ticket, kLong), Status::ok);
    ASSERT_EQ(device::wait<Sharing::device>(Thread{}, peer_.queue, ticket, kLong), Status::ok);
    const std::uint64_t own = expected++;
    others();
    EXPECT_EQ(device::load_acquire(reinterpret_cast<const std::uint64_t*>(place.address)), own);
    device::detail::release_result(peer_, held);
  });
  EXPECT_EQ(peer_.held_results, 1U) << "the words that were held are free again";
}

// What may still be written is nobody else's until it was.
TEST_F(Results, ThatNobodyWaitsForKeepTheirWordsUntilTheyCame) {
  std::uint64_t old = 0;
  for (std::uint32_t i = 1; i < device::kResultWords; ++i) ASSERT_EQ(add_one(old, Timeout{0}), Status::timed_out) << i;
  const std::uint64_t reserved = peer_.queue.reserved;
  EXPECT_EQ(add_one(old, kShort), Status::timed_out);
  EXPECT_EQ(peer_.queue.reserved, reserved) << "nothing was posted without a word";
  with_hca([&] {
    ASSERT_EQ(add_one(old), Status::ok);
    EXPECT_EQ(old, device::kResultWords - 1) << "those that were given up were done";
  });
  EXPECT_EQ(peer_.held_results, 1U);
}

TEST_F(Results, OfManyThreadsAreAllDifferent) {
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint64_t kEach = 500;
  std::vector<std::vector<std::uint64_t>> olds(kThreads);
  with_hca([&] {
    run_threads(kThreads, [&](std::uint32_t me) {
      for (std::uint64_t k = 0; k < kEach; ++k) {
        std::uint64_t old = 0;
        if (add_one(old) == Status::ok) olds[me].push_back(old);
      }
    });
  });
  std::set<std::uint64_t> all;
  for (const auto& own : olds) {
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(own.begin(), own.end());
  }
  EXPECT_EQ(all.size(), kThreads * kEach);
  EXPECT_EQ(*all.rbegin(), kThreads * kEach - 1);
}

}  // namespace
}  // namespace gigabar::soft_hca::test
