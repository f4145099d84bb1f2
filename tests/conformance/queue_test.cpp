// SPDX-License-Identifier: Apache-2.0
// Queues: their depth, all of them at once, one thread or several on each, waits that resume; and flush.
#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "conformance/long_sleeps.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

PostOptions on(QueueId queue) { return {.queue = queue, .policy = std::nullopt}; }
Rank next(const RankProcess& me) { return (me.rank() + 1) % me.rank_count(); }
Rank previous(const RankProcess& me) { return (me.rank() + me.rank_count() - 1) % me.rank_count(); }

RANK_BODY(fill_a_queue) {
  constexpr std::size_t kBytes = std::size_t{kQueueDepth} * 8;
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kBytes), target(fabric, kTarget, MemoryChoice::host, kBytes);
  origin.put_pattern(0, kBytes, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  const auto write_word = [&](std::uint64_t word) {
    return fabric.write({kOrigin, 8 * word}, {next(me), kTarget, 8 * word}, 8, on(3));
  };
  for (std::uint64_t i = 0; i < kQueueDepth; ++i) ASSERT_TRUE(is_ok(write_word(i))) << "operation " << i;
  EXPECT_TRUE(fails(write_word(0), Status::busy, "3")) << "the queue is full";
  EXPECT_TRUE(fails(fabric.notify(next(me), kTarget, 1, 1, on(3)), Status::busy, "3"));
  EXPECT_TRUE(is_ok(fabric.write({kOrigin, 0}, {next(me), kTarget, 0}, 8, on(4)))) << "another queue";
  ASSERT_TRUE(is_ok(fabric.wait(3, kPatience)));
  ASSERT_TRUE(is_ok(write_word(0))) << "after wait";
  ASSERT_TRUE(is_ok(fabric.wait(3, kPatience)));
  ASSERT_TRUE(is_ok(fabric.wait(4, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(0, kBytes, previous(me), 0));
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 1, 1, Timeout::test()), Status::timed_out)) << "what was refused was done";
  ASSERT_TRUE(me.meet());
}

// A list counts its pieces.
RANK_BODY(fill_a_queue_with_lists) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096), target(fabric, kTarget, MemoryChoice::host, 4096);
  origin.put_pattern(0, 4096, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  const auto list = [&](std::size_t count) {
    std::vector<ListPiece> pieces(count);
    for (std::size_t i = 0; i < count; ++i) pieces[i] = {{kOrigin, i * 4}, kTarget, i * 4, 4};
    return fabric.write_list(next(me), pieces);
  };
  ASSERT_TRUE(is_ok(list(1000)));
  EXPECT_TRUE(fails(list(25), Status::busy));
  EXPECT_TRUE(is_ok(list(24)));
  EXPECT_TRUE(fails(list(1), Status::busy));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(list(kMaxListPieces)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(0, 4096, previous(me), 0));
  ASSERT_TRUE(me.meet());
}

// All queues, to all ranks, waited for in another order than they were posted; each wait looks once and resumes.
RANK_BODY(use_all_queues) {
  constexpr std::size_t kEach = 50, kBytes = 700;
  const std::size_t per_rank = kQueues * kEach * kBytes;
  RankSegment origin(fabric, kOrigin, me.setup().origin, per_rank),
      target(fabric, kTarget, me.setup().target, per_rank * me.rank_count());
  origin.put_pattern(0, per_rank, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  for (std::size_t i = 0; i < kEach; ++i) {
    for (QueueId queue = 0; queue < kQueues; ++queue) {
      const std::size_t at = (i * kQueues + queue) * kBytes;
      for (Rank rank = 0; rank < me.rank_count(); ++rank) {
        ASSERT_TRUE(is_ok(fabric.write({kOrigin, at}, {rank, kTarget, per_rank * me.rank() + at}, kBytes, on(queue))));
      }
    }
  }
  for (QueueId queue = kQueues; queue-- > 0;) {
    Result<void> outcome = fabric.wait(queue, Timeout::test());
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (outcome.status() == Status::timed_out && std::chrono::steady_clock::now() < give_up) {
      outcome = fabric.wait(queue, Timeout::test());
    }
    ASSERT_TRUE(is_ok(outcome)) << "queue " << int(queue);
  }
  for (Rank rank = 0; rank < me.rank_count(); ++rank) ASSERT_TRUE(is_ok(fabric.flush(rank, kPatience)));
  ASSERT_TRUE(me.meet());
  for (Rank rank = 0; rank < me.rank_count(); ++rank) {
    EXPECT_TRUE(target.holds_pattern(per_rank * rank, per_rank, rank, 0)) << "from " << rank;
  }
  EXPECT_TRUE(target.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

// --- Threads --------------------------------------------------------------------------------------------------------------------

// Failures of threads; told by the body, once.
class Complaints {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (texts_.size() < 20) texts_.push_back(text);
  }
  void tell() {
    for (const std::string& text : texts_) ADD_FAILURE() << text;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

// There and back through the other rank's memory, with its own places.
void hammer(RankProcess& me, Fabric& fabric, RankSegment& origin, unsigned place, QueueId queue, Complaints& complaints) {
  constexpr std::size_t kPlace = 20000;
  const std::size_t out = 2 * place * kPlace, back = out + kPlace;
  for (std::uint64_t i = 0; i < me.setup().amount; ++i) {
    const std::size_t bytes = 1 + (i * 977 + place) % kPlace;
    const std::uint64_t seed = (i << 8) + place;
    origin.put_pattern(out, bytes, seed, 0);
    const auto written = fabric.write({kOrigin, out}, {next(me), kTarget, place * kPlace}, bytes, on(queue));
    if (!written) return complaints.add(written.error().message());
    if (const Result<void> waited = fabric.wait(queue, kPatience); !waited) return complaints.add(waited.message());
    if (const Result<void> flushed = fabric.flush(next(me), kPatience); !flushed) return complaints.add(flushed.message());
    const auto read = fabric.read({kOrigin, back}, {next(me), kTarget, place * kPlace}, bytes, on(queue));
    if (!read) return complaints.add(read.error().message());
    if (const Result<void> waited = fabric.wait(queue, kPatience); !waited) return complaints.add(waited.message());
    const auto right = origin.holds_pattern(back, bytes, seed, 0);
    if (!right) return complaints.add("thread " + std::to_string(place) + ": " + right.message());
  }
}

void hammer_at_once(RankProcess& me, Fabric& fabric, unsigned thread_count, unsigned queue_count) {
  constexpr std::size_t kPlace = 20000;
  RankSegment origin(fabric, kOrigin, me.setup().origin, 2 * thread_count * kPlace),
      target(fabric, kTarget, me.setup().target, thread_count * kPlace);
  ASSERT_TRUE(me.meet());
  Complaints complaints;
  std::vector<std::thread> threads;
  for (unsigned place = 0; place < thread_count; ++place) {
    const auto queue = static_cast<QueueId>(place % queue_count);
    threads.emplace_back([&, place, queue] { hammer(me, fabric, origin, place, queue, complaints); });
  }
  for (std::thread& thread : threads) thread.join();
  complaints.tell();
  EXPECT_TRUE(origin.are_guards_whole());
  ASSERT_TRUE(me.meet());
}
RANK_BODY(one_thread_for_each_queue) { hammer_at_once(me, fabric, kQueues, kQueues); }
RANK_BODY(four_threads_on_two_queues) { hammer_at_once(me, fabric, 4, 2); }

// A flush that gave up has asked its question already; what is written behind that is the next flush's all the same. The first one
// gives up because rank 1 stands still; whether a later one does depends on how fast rank 1 answers.
RANK_BODY(flush_behind_an_unfinished_flush) {
  constexpr std::size_t kBytes = 4096;
  RankSegment origin(fabric, kOrigin, me.setup().origin, 2 * kBytes), target(fabric, kTarget, me.setup().target, kBytes);
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {1, kTarget, 0}, 8)));  // connects
    ASSERT_TRUE(is_ok(fabric.flush(1, kPatience)));
    me.tell("ready");
    ASSERT_EQ(me.hear(), "stopped");
    ASSERT_TRUE(fails(fabric.flush(1, Timeout::test()), Status::timed_out));
    me.tell("gave up");
  }
  for (std::uint64_t round = 0; round < me.setup().amount && me.rank() == 0; ++round) {
    const std::size_t bytes = 1 + round * 977 % kBytes;
    origin.put_pattern(0, bytes, round, 0);
    if (round != 0) static_cast<void>(fabric.flush(1, Timeout::test()));
    ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {1, kTarget, 0}, bytes)));
    ASSERT_TRUE(is_ok(fabric.flush(1, kPatience)));
    ASSERT_TRUE(is_ok(fabric.read({kOrigin, kBytes}, {1, kTarget, 0}, bytes)));
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    ASSERT_TRUE(origin.holds_pattern(kBytes, bytes, round, 0)) << "round " << round;
  }
  ASSERT_TRUE(me.meet());
}

// A thread that hammers does not keep another one of its process from its messages.
RANK_BODY(leave_room_for_others) {
  constexpr unsigned kRounds = 100;
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096), target(fabric, kTarget, MemoryChoice::host, 4096);
  ASSERT_TRUE(me.meet());
  std::atomic<bool> is_over{false};
  Complaints complaints;
  std::thread hammering([&] {
    while (me.rank() == 0 && !is_over) {
      const auto posted = fabric.write({kOrigin, 0}, {1, kTarget, 0}, 4000, on(1));
      if (!posted) return complaints.add(posted.error().message());
      if (const Result<void> waited = fabric.wait(1, kPatience); !waited) return complaints.add(waited.message());
      if (const Result<void> flushed = fabric.flush(1, kPatience); !flushed) return complaints.add(flushed.message());
    }
  });
  for (unsigned round = 0; round < kRounds; ++round) {
    const Rank first = round % 2;
    const Result<void> sent = me.rank() == first ? fabric.send(1 - first, 1, nullptr, 0, kPatience) : Result<void>();
    EXPECT_TRUE(is_ok(sent)) << "round " << round;
    if (me.rank() != first) {
      EXPECT_TRUE(is_ok(fabric.recv(first, 1, nullptr, 0, kPatience))) << "round " << round;
    }
  }
  is_over = true;
  hammering.join();
  complaints.tell();
  ASSERT_TRUE(me.meet());
}

// Threads of rank 1 sleep, each until a notification of its own; rank 0 sleeps until the answer. One of them sleeps on the
// descriptors and tells the others, and each in turn is the one that is woken: no sleep ends by itself in time. With "alone" the
// fabrics have no thread of their own.
BARE_RANK_BODY(wake_threads_that_sleep) {
  constexpr NotificationId kThreads = 3;
  constexpr NotificationId kAnswer = kThreads;
  constexpr auto kPause = std::chrono::milliseconds(15);  // by then all of them sleep
  FabricOptions options = me.options();
  options.progress_thread = me.setup().word != "alone";
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment target(*fabric, kTarget, MemoryChoice::host, 4096);
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    const std::uint64_t turns = me.setup().amount;
    const auto answer = [&](NotificationId id, Complaints& complaints) {
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        const auto come = fabric->notification_wait(kTarget, id, 1, kPatience);
        if (!come) return complaints.add(come.error().message());
        if (const auto reset = fabric->notification_reset(kTarget, id); !reset) return complaints.add(reset.error().message());
        const auto posted = fabric->notify(0, kTarget, kAnswer, 1, on(static_cast<QueueId>(id)));
        if (!posted) return complaints.add(posted.error().message());
        if (const Result<void> waited = fabric->wait(static_cast<QueueId>(id), kPatience); !waited)
          return complaints.add(waited.message());
      }
    };
    const LongSleeps sleeps;
    if (me.rank() == 1) {
      Complaints complaints;
      std::vector<std::thread> threads;
      for (NotificationId id = 0; id < kThreads; ++id) threads.emplace_back([&, id] { answer(id, complaints); });
      for (std::thread& thread : threads) thread.join();
      complaints.tell();
      EXPECT_GT(sleeps.on_descriptors(), 0U);
      EXPECT_GT(sleeps.on_conditions(), 0U) << "beside the one on the descriptors";
    }
    for (std::uint64_t turn = 0; turn < turns * kThreads && me.rank() == 0; ++turn) {
      std::this_thread::sleep_for(kPause);
      ASSERT_TRUE(is_ok(fabric->notify(1, kTarget, static_cast<NotificationId>(turn % kThreads), 1)));
      ASSERT_TRUE(is_ok(fabric->notification_wait(kTarget, kAnswer, 1, kPatience)));
      ASSERT_TRUE(is_ok(fabric->notification_reset(kTarget, kAnswer)));
      ASSERT_TRUE(is_ok(fabric->wait(0, kPatience)));
    }
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// Rank 1 comes to the barrier only when the test says so: one thread waits for it, a second one is told that the group is taken.
RANK_BODY(refuse_a_second_thread) {
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    std::thread waiter([&] {
      EXPECT_TRUE(fails(fabric.barrier({}, Timeout::of(std::chrono::seconds(2))), Status::timed_out, "it waits for rank 1"));
    });
    // Until the other one is in it, a call finds nobody and times out.
    const Deadline deadline = Deadline::after_ns(kPatience.ns());
    Result<void> second = fabric.barrier({}, Timeout::test());
    while (second.status() == Status::timed_out && !deadline.has_passed()) second = fabric.barrier({}, Timeout::test());
    EXPECT_TRUE(fails(second, Status::busy)) << "a second thread in the same group";
    EXPECT_TRUE(is_ok(fabric.barrier({0}, kPatience))) << "another group";
    waiter.join();
    me.tell("waited");
  } else {
    EXPECT_EQ(me.hear(), "go");
  }
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "it goes on where it timed out";
}

// Writes to a rank that stands still, until its connection holds no more and the queue cannot end. With the last notification: it
// needs the rank, where a NIC would place the bytes and the first notifications alone.
constexpr std::size_t kStuckBytes = 65536;  // of a write: the kernel's sockets hold some ten MiB
void post_until_stuck(const RankProcess& me, Fabric& fabric) {
  constexpr unsigned kLeftFree = 8;
  const std::size_t bytes = me.setup().transport == TransportKind::tcp ? kStuckBytes : 4000;
  for (unsigned i = 0; i < kQueueDepth - kLeftFree; ++i) {
    const auto posted = fabric.write_notify({kOrigin, 0}, {1, kTarget, 0}, bytes, kNotifications - 1, 1, on(5));
    ASSERT_TRUE(is_ok(posted)) << "write " << i;
  }
  ASSERT_TRUE(fails(fabric.wait(5, Timeout::of(std::chrono::milliseconds(200))), Status::timed_out))
      << "four MiB or more are under way";
}

// A thread that waits for queue 5, which cannot end; it does so when this returns.
std::thread wait_beside(Fabric& fabric, const Timeout& timeout, Result<void>& outcome) {
  std::thread waiter([&fabric, &outcome, timeout] { outcome = fabric.wait(5, timeout); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool is_there = false;
  while (!is_there && std::chrono::steady_clock::now() < end) {
    const Result<void> refused = fabric.wait(5, Timeout::test());
    EXPECT_EQ(refused.status(), Status::timed_out);
    is_there = refused.message().find("another thread") != std::string::npos;
  }
  EXPECT_TRUE(is_there);
  return waiter;
}

// Connects, and waits until rank 1 stands still.
void stop_rank_1(RankProcess& me, Fabric& fabric) {
  ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {1, kTarget, 0}, 8, on(5))));  // it knows the segment now
  ASSERT_TRUE(is_ok(fabric.wait(5, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(1, kPatience)));
  me.tell("ready");
  ASSERT_EQ(me.hear(), "stopped");
  ASSERT_NO_FATAL_FAILURE(post_until_stuck(me, fabric));
}

// One thread waits for a queue that cannot end; the calls of a second one are served behind it, or end in their time.
RANK_BODY(two_threads_on_a_stuck_queue) {
  constexpr auto kFirst = std::chrono::seconds(2);
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kStuckBytes + 8),
      target(fabric, kTarget, MemoryChoice::host, kStuckBytes + 16);
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  if (me.rank() == 0) {
    ASSERT_NO_FATAL_FAILURE(stop_rank_1(me, fabric));
    origin.put_pattern(kStuckBytes, 8, 7, 0);
    const auto begin = std::chrono::steady_clock::now();
    Result<void> first;
    std::thread waiter = wait_beside(fabric, kFirst, first);
    EXPECT_TRUE(fails(fabric.wait(5, Timeout::of(std::chrono::milliseconds(20))), Status::timed_out, "queue 5"));
    EXPECT_TRUE(is_ok(fabric.wait(6, Timeout::test()))) << "another queue has nothing to wait for";
    const auto received = fabric.post_recv(1, 1, ~Tag{0}, nullptr, 0, on(5));
    ASSERT_TRUE(is_ok(received));
    EXPECT_TRUE(is_ok(fabric.cancel_recv(*received)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kFirst) << "a message is of no queue";
    EXPECT_TRUE(is_ok(fabric.write({kOrigin, kStuckBytes}, {1, kTarget, kStuckBytes}, 8, on(5))));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kFirst) << "it was posted before the wait was over";
    const std::array<ListPiece, 1> piece{{{{kOrigin, kStuckBytes}, kTarget, kStuckBytes + 8, 8}}};
    EXPECT_TRUE(is_ok(fabric.write_list(1, piece, on(5))));
    waiter.join();
    EXPECT_TRUE(fails(first, Status::timed_out, "queue 5"));
    me.tell("waited");
    EXPECT_TRUE(is_ok(fabric.wait(5, kPatience))) << "it goes on when the rank does";
    EXPECT_TRUE(is_ok(fabric.flush(1, kPatience)));
  }
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));  // a call of the fabric: what its thread has placed is seen behind it
  if (me.rank() == 1) {
    EXPECT_TRUE(target.holds_pattern(kStuckBytes, 8, 7, 0));
    EXPECT_TRUE(target.holds_pattern(kStuckBytes + 8, 8, 7, 0));
  }
  ASSERT_TRUE(me.meet());
}

// Posts have no time-out of their own: they wait for their queue as long as for a connection.
BARE_RANK_BODY(a_post_behind_a_long_wait) {
  FabricOptions options = me.options();
  options.connect_timeout = Timeout::of(std::chrono::seconds(3));
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment origin(*fabric, kOrigin, MemoryChoice::host, kStuckBytes),
        target(*fabric, kTarget, MemoryChoice::host, kStuckBytes);
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    if (me.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(stop_rank_1(me, *fabric));
      Result<void> first;
      std::thread waiter = wait_beside(*fabric, kPatience, first);
      constexpr const char* kTaken = "queue 5: another thread is using it; call again, or use one queue per thread";
      std::thread other([&] {
        const std::array<ListPiece, 1> piece{{{{kOrigin, 0}, kTarget, 0, 8}}};
        EXPECT_TRUE(fails(fabric->write_list(1, piece, on(5)), Status::timed_out, kTaken));
      });
      EXPECT_TRUE(fails(fabric->write({kOrigin, 0}, {1, kTarget, 0}, 8, on(5)), Status::timed_out, kTaken));
      other.join();
      me.tell("waited");
      waiter.join();
      EXPECT_TRUE(is_ok(first)) << "the other thread's wait goes on";
      EXPECT_TRUE(is_ok(fabric->write({kOrigin, 0}, {1, kTarget, 0}, 8, on(5))));
      EXPECT_TRUE(is_ok(fabric->wait(5, kPatience)));
    }
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

// Rank 1 stands still from rank 0's "ready" to its `word`.
void run_beside_a_stopped_rank(const std::string& body, const RankSetup& setup, const std::string& word) {
  RankJob job(body, setup);
  job.start_all();
  ASSERT_TRUE(job.hear(0, "ready"));
  job.send_signal(1, SIGSTOP);
  job.tell(0, "stopped");
  EXPECT_TRUE(job.hear(0, word));
  job.send_signal(1, SIGCONT);
  job.finish();
}

class FabricQueues : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricQueues, FullQueueIsBusyUntilItIsWaitedFor) { run_ranks("fill_a_queue", GetParam()); }
TEST_P(FabricQueues, ListsCountTheirPieces) { run_ranks("fill_a_queue_with_lists", GetParam()); }
TEST_P(FabricQueues, AllQueuesAtOnce) { run_ranks("use_all_queues", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricQueues, testing::ValuesIn(rank_setups()), setup_name);

class FabricThreads : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricThreads, OneForEachQueue) {
  RankSetup setup = GetParam();
  setup.amount = rounds(100);
  run_ranks("one_thread_for_each_queue", setup);
}
TEST_P(FabricThreads, ShareQueues) {
  RankSetup setup = GetParam();
  setup.amount = rounds(200);
  run_ranks("four_threads_on_two_queues", setup);
}
TEST_P(FabricThreads, FlushBehindAnUnfinishedOne) {
  RankSetup setup = GetParam();
  setup.amount = rounds(2000);
  run_beside_a_stopped_rank("flush_behind_an_unfinished_flush", setup, "gave up");
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricThreads, testing::ValuesIn(memory_setups()), setup_name);

class FabricSecondThread : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricSecondThread, IsServedBehindTheFirst) {
  run_beside_a_stopped_rank("two_threads_on_a_stuck_queue", GetParam(), "waited");
}
TEST_P(FabricSecondThread, WaitsForAQueueAsForAConnection) {
  run_beside_a_stopped_rank("a_post_behind_a_long_wait", GetParam(), "waited");
}
TEST_P(FabricSecondThread, IsNotStarved) { run_ranks("leave_room_for_others", GetParam()); }
TEST_P(FabricSecondThread, IsWokenLikeTheFirst) {
  for (const char* const word : {"", "alone"}) {
    RankSetup setup = GetParam();
    setup.amount = 10;
    setup.word = word;
    run_ranks("wake_threads_that_sleep", setup);
  }
}
TEST_P(FabricSecondThread, IsRefusedInAGroup) {
  RankJob job("refuse_a_second_thread", GetParam());
  job.start_all();
  EXPECT_TRUE(job.hear(0, "waited"));
  job.tell(1, "go");
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricSecondThread, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
