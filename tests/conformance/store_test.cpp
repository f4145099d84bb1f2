// SPDX-License-Identifier: Apache-2.0
// Small writes and notifications by several threads at once, on queues of their own and on one: while segments go, peers die and
// the fabric closes. Over `local`, in shared memory, they are stores of the calling thread.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr unsigned kThreads = 4;
constexpr NotificationId kAnswer = kThreads, kSum = 2 * kThreads;
constexpr std::size_t kPlace = 4096;

PostOptions on(QueueId queue) { return {.queue = queue, .policy = std::nullopt}; }
Rank next(const RankProcess& me) { return (me.rank() + 1) % me.rank_count(); }

// Failures of threads; told by the body, once.
class Complaints {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (texts_.size() < 20) texts_.push_back(text);
  }
  template <class Outcome>
  bool has_failed(const Outcome& outcome, const std::string& what) {
    if (outcome) return false;
    add(what + ": " + Result<void>(Error(outcome.error())).message());
    return true;
  }
  bool has_failed(const Result<void>& outcome, const std::string& what) {
    if (outcome) return false;
    add(what + ": " + outcome.message());
    return true;
  }
  ~Complaints() {
    for (const std::string& text : texts_) ADD_FAILURE() << text;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

template <class Body>
void in_threads(unsigned count, const Body& body) {
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < count; ++thread) threads.emplace_back([&, thread] { body(thread); });
  for (std::thread& thread : threads) thread.join();
}

QueueId queue_of(const RankProcess& me, unsigned thread) { return static_cast<QueueId>(me.setup().word == "one" ? 5 : thread); }

// A thread that finds the queue full: the others' operations are over too when it has waited.
template <class Post>
Result<Operation> post_until_free(Fabric& fabric, QueueId queue, const Post& post) {
  for (;;) {
    Result<Operation> posted = post();
    if (posted.is_ok() || posted.status() != Status::busy) return posted;
    if (Result<void> waited = fabric.wait(queue, kPatience); !waited) return std::move(waited).error();
  }
}

// --- Data and notifications -----------------------------------------------------------------------------------------------------

// Each thread writes to a place of its own at the next rank and waits for the answer of the thread there, which has looked at the
// data behind the notification. All add to one counter.
RANK_BODY(ping_from_threads) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kThreads * kPlace),
      target(fabric, kTarget, me.setup().target, kThreads * kPlace);
  ASSERT_TRUE(me.meet());
  const auto turns = static_cast<std::uint32_t>(me.setup().amount);
  const Rank previous = (me.rank() + me.rank_count() - 1) % me.rank_count();
  Complaints complaints;
  in_threads(kThreads, [&](unsigned thread) {
    const QueueId queue = queue_of(me, thread);
    const std::size_t place = thread * kPlace;
    const auto take = [&](NotificationId id, std::uint32_t turn) {
      if (complaints.has_failed(fabric.notification_wait(kTarget, id, 1, kPatience), "wait")) return false;
      const auto value = fabric.notification_reset(kTarget, id);
      if (complaints.has_failed(value, "reset")) return false;
      if (*value == turn) return true;
      complaints.add("notification " + std::to_string(id) + " is " + std::to_string(*value) + " in turn " + std::to_string(turn));
      return false;
    };
    for (std::uint32_t turn = 1; turn <= turns; ++turn) {
      const std::size_t bytes = 1 + turn * 37 % 900;
      origin.put_pattern(place, bytes, turn + thread, 0);
      const auto written = post_until_free(fabric, queue, [&] {
        return fabric.write_notify({kOrigin, place}, {next(me), kTarget, place}, bytes, thread, turn, on(queue));
      });
      if (complaints.has_failed(written, "write") || !take(thread, turn)) return;
      const auto right = target.holds_pattern(place, bytes, turn + thread, 0);
      if (!right) return complaints.add(right.message());
      const auto answered =
          post_until_free(fabric, queue, [&] { return fabric.notify(previous, kTarget, kAnswer + thread, turn, on(queue)); });
      const auto counted = post_until_free(fabric, queue, [&] { return fabric.notify_add(next(me), kTarget, kSum, 3, on(queue)); });
      if (complaints.has_failed(answered, "answer") || complaints.has_failed(counted, "add")) return;
      if (!take(kAnswer + thread, turn)) return;
    }
    complaints.has_failed(fabric.wait(queue, kPatience), "wait for the queue");
  });
  ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  const auto sum = fabric.notification_reset(kTarget, kSum);
  ASSERT_TRUE(is_ok(sum));
  EXPECT_EQ(*sum, 3 * kThreads * turns);
  EXPECT_TRUE(target.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

// What is posted beside stores of another thread, and waits, or is large, or goes in messages, changes nothing of either.
RANK_BODY(store_beside_others) {
  constexpr std::size_t kLarge = std::size_t{3} << 20;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kLarge), target(fabric, kTarget, me.setup().target, kLarge + kPlace);
  origin.put_pattern(0, kLarge, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  const auto turns = static_cast<std::uint32_t>(me.setup().amount);
  std::atomic<bool> is_over{false};
  Complaints complaints;
  std::thread storing([&] {
    for (std::uint32_t turn = 1; !is_over && me.rank() == 0; ++turn) {
      const auto posted =
          post_until_free(fabric, 1, [&] { return fabric.write_notify({kOrigin, 0}, {1, kTarget, kLarge}, 8, 9, turn, on(1)); });
      if (complaints.has_failed(posted, "store")) return;
    }
  });
  for (std::uint32_t turn = 1; turn <= turns; ++turn) {
    // The notification covers what its own queue wrote before, whichever way that went.
    const std::size_t large = turn % 4 < 2 ? kLarge : 70'000;
    const bool is_by_message = turn % 7 == 0;
    if (me.rank() == 0) {
      origin.put_pattern(8, large - 8, turn, 0);
      // Just before, so that the queue knows how a word is stored.
      EXPECT_TRUE(is_ok(fabric.notify(1, kTarget, 6, turn)));
      EXPECT_TRUE(is_ok(fabric.write({kOrigin, 8}, {1, kTarget, 8}, large - 8)));
      if (is_by_message) {
        EXPECT_TRUE(is_ok(fabric.notify(1, kTarget, 6, turn)));
        EXPECT_TRUE(is_ok(fabric.write_in_order(&turn, {1, kTarget, 0}, sizeof turn)));
      }
      EXPECT_TRUE(is_ok(fabric.notify(1, kTarget, 4, turn)));
      EXPECT_TRUE(is_ok(fabric.send(1, 1, &turn, sizeof turn, kPatience)));
      EXPECT_TRUE(is_ok(fabric.notification_wait(kTarget, 5, 1, kPatience)));
      EXPECT_TRUE(is_ok(fabric.notification_reset(kTarget, 5)));
      EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
      if (is_by_message) {
        EXPECT_TRUE(is_ok(fabric.flush(1, kPatience)));
      }
    } else {
      EXPECT_TRUE(is_ok(fabric.notification_wait(kTarget, 4, 1, kPatience)));
      EXPECT_TRUE(is_ok(fabric.notification_reset(kTarget, 4)));
      EXPECT_TRUE(target.holds_pattern(8, large - 8, turn, 0)) << "turn " << turn;
      if (is_by_message) {
        EXPECT_EQ(std::memcmp(target.address(), &turn, sizeof turn), 0) << "turn " << turn;
      }
      std::uint32_t told = 0;
      EXPECT_TRUE(is_ok(fabric.recv(0, 1, &told, sizeof told, kPatience)));
      EXPECT_EQ(told, turn);
      EXPECT_TRUE(is_ok(fabric.notify(0, kTarget, 5, turn)));
    }
    if (testing::Test::HasFailure()) break;
  }
  is_over = true;
  storing.join();
  EXPECT_TRUE(is_ok(fabric.wait(1, kPatience)));
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

// --- Queues ---------------------------------------------------------------------------------------------------------------------

// So many operations that most of them go the same way: the depth counts them all, reports are kept of the last, and errors name
// the same as without it.
RANK_BODY(fill_and_report) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kPlace), target(fabric, kTarget, me.setup().target, kPlace);
  ASSERT_TRUE(me.meet());
  const auto write_word = [&](QueueId queue) { return fabric.write({kOrigin, 0}, {next(me), kTarget, 0}, 8, on(queue)); };
  const auto operations_before = fabric.statistics().operations;
  std::vector<Operation> posted;
  for (unsigned round = 0; round < 6; ++round) {
    for (unsigned i = 0; i < kQueueDepth; ++i) {
      const auto operation = i % 2 == 0 ? write_word(3) : fabric.notify(next(me), kTarget, 1, 1, on(3));
      ASSERT_TRUE(is_ok(operation)) << "operation " << i;
      posted.push_back(*operation);
    }
    EXPECT_TRUE(fails(write_word(3), Status::busy, "3")) << "the queue is full";
    EXPECT_TRUE(fails(fabric.notify(next(me), kTarget, 1, 1, on(3)), Status::busy, "3"));
    EXPECT_TRUE(is_ok(write_word(4))) << "another queue";
    ASSERT_TRUE(is_ok(fabric.wait(3, kPatience)));
  }
  EXPECT_EQ(fabric.statistics().operations - operations_before, posted.size() + 6);
  std::vector<Operation> sorted = posted;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << "two operations of one number";
  const auto report_of = [&](std::size_t index) { return fabric.report(posted[index]); };
  const auto first = report_of(posted.size() - 4080);
  for (std::size_t index = posted.size() - 4080; index < posted.size(); ++index) {
    const auto report = report_of(index);
    ASSERT_TRUE(is_ok(report)) << index;
    const bool is_write = index % 2 == 0;
    EXPECT_TRUE(report->is_done);
    EXPECT_EQ(report->bytes, is_write ? 8U : 0U);
    EXPECT_EQ(report->path, is_write ? first->path : TransferPath::none);
    EXPECT_EQ(report->reason, is_write ? first->reason : "");
    EXPECT_EQ(report->notification.empty(), is_write);
    if (testing::Test::HasFailure()) break;
  }
  // Reports of other ways are kept apart, and longer.
  unsigned forgotten_count = 0;
  for (std::size_t index = 0; index < kQueueDepth; ++index) {
    const auto report = report_of(index);
    if (report) continue;
    EXPECT_TRUE(fails(report, Status::out_of_range, "only the last"));
    ++forgotten_count;
  }
  EXPECT_GT(forgotten_count, kQueueDepth / 2) << "5000 have followed";
  EXPECT_TRUE(refuses(fabric.report(Operation{~std::uint64_t{0}})));
  EXPECT_TRUE(refuses(fabric.report(Operation{static_cast<std::uint64_t>(posted.back()) + 2}))) << "one behind that of queue 4";
  // Behind a store, too, what is wrong is named.
  EXPECT_TRUE(refuses(fabric.write({kOrigin, kPlace - 4}, {next(me), kTarget, 0}, 8, on(3)), "local segment 1"));
  EXPECT_TRUE(refuses(fabric.write({kOrigin, 0}, {next(me), kTarget, kPlace - 4}, 8, on(3)), "remote segment 2"));
  EXPECT_TRUE(refuses(fabric.write({kOrigin, 0}, {next(me), kSecondTarget, 0}, 8, on(3)), "segment 3"));
  EXPECT_TRUE(refuses(fabric.write({kSecondTarget, 0}, {next(me), kTarget, 0}, 8, on(3)), "segment 3"));
  EXPECT_TRUE(refuses(fabric.write({kOrigin, 0}, {me.rank_count(), kTarget, 0}, 8, on(3)), "rank"));
  ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
  ASSERT_TRUE(me.meet());
  // Nor are words of a segment that is gone.
  {
    RankSegment second(fabric, kSecondTarget, me.setup().target, kPlace);
    ASSERT_TRUE(is_ok(fabric.notify(me.rank(), kSecondTarget, 1, 7)));
    ASSERT_TRUE(is_ok(fabric.notification_wait(kSecondTarget, 1, 1, kPatience)));
    const auto value = fabric.notification_reset(kSecondTarget, 1);
    ASSERT_TRUE(is_ok(value));
    EXPECT_EQ(*value, 7U);
    ASSERT_TRUE(is_ok(fabric.notify(me.rank(), kSecondTarget, 1, 8)));
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  }
  EXPECT_TRUE(refuses(fabric.notification_reset(kSecondTarget, 1), "segment 3"));
  EXPECT_TRUE(refuses(fabric.notification_wait(kSecondTarget, 1, 1, kPatience), "segment 3"));
  EXPECT_TRUE(refuses(fabric.notification_wait_count(kSecondTarget, 1, 1, kPatience), "segment 3"));
  EXPECT_TRUE(refuses(fabric.notify(me.rank(), kSecondTarget, 1, 1), "segment 3"));
  ASSERT_TRUE(me.meet());
}

// --- While it all goes ----------------------------------------------------------------------------------------------------------

// Pages that are unmapped at once when the segment is gone: a store from them that were still under way would end the process.
class GoingSegment {
 public:
  GoingSegment(Fabric& fabric, SegmentId id) : fabric_(fabric), id_(id) {
    pages_ = ::mmap(nullptr, kPlace, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages_, MAP_FAILED);
    std::memset(pages_, 7, kPlace);
    EXPECT_TRUE(is_ok(fabric_.register_segment(id_, pages_, kPlace)));
  }
  ~GoingSegment() {
    EXPECT_TRUE(is_ok(fabric_.deregister_segment(id_, kPatience)));
    EXPECT_EQ(::munmap(pages_, kPlace), 0);
  }
  GoingSegment(const GoingSegment&) = delete;
  GoingSegment& operator=(const GoingSegment&) = delete;

 private:
  Fabric& fabric_;
  SegmentId id_;
  void* pages_ = nullptr;
};

// Threads of rank 0 write from a segment that comes and goes there, to one that comes and goes at rank 1.
RANK_BODY(store_while_segments_go) {
  const std::uint64_t rounds_of_segments = me.setup().amount;
  RankMemory memory(me.setup().target, kPlace);
  ASSERT_TRUE(me.meet());
  std::atomic<bool> is_over{false};
  if (me.rank() == 0) {
    std::atomic<std::uint64_t> posted_count{0};
    Complaints complaints;
    std::thread coming_and_going([&] {
      while (!is_over) {
        const GoingSegment origin(fabric, kOrigin);
        const std::uint64_t before = posted_count;
        const Deadline deadline = Deadline::after_ns(20'000'000);
        while (posted_count < before + 200 && !deadline.has_passed()) std::this_thread::yield();
      }
    });
    std::thread listener([&] {
      EXPECT_EQ(me.hear(), "over");
      is_over = true;
    });
    in_threads(kThreads, [&](unsigned thread) {
      const QueueId queue = queue_of(me, thread);
      for (std::uint32_t turn = 1; !is_over; ++turn) {
        const auto posted = turn % 3 == 0
                                ? fabric.notify(1, kTarget, thread, turn, on(queue))
                                : fabric.write_notify({kOrigin, 0}, {1, kTarget, 64 * thread}, 64, thread, turn, on(queue));
        posted_count += posted ? 1 : 0;
        const Status status = posted.status();
        const bool is_gone = status == Status::invalid_argument || status == Status::out_of_range || status == Status::unavailable;
        if (!posted && !is_gone && status != Status::busy) complaints.add(posted.error().message());
        if (turn % 64 == 0 || status == Status::busy) static_cast<void>(fabric.wait(queue, kPatience));
      }
    });
    coming_and_going.join();
    listener.join();
    EXPECT_GT(posted_count, 0U);
  } else {
    std::uint64_t landed = 0;
    for (std::uint64_t round = 0; round < rounds_of_segments; ++round) {
      ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, memory.address(), kPlace)));
      const auto raised = fabric.notification_wait(kTarget, 0, kThreads, kPatience);
      EXPECT_TRUE(is_ok(raised)) << "round " << round;
      const Deadline deadline = Deadline::after_ns(kPatience.ns());
      while (memory.is_untouched(0, 64) && !deadline.has_passed()) std::this_thread::yield();
      landed += memory.is_untouched(0, 64) ? 0 : 1;
      ASSERT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience))) << "round " << round;
      memory.fill();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ASSERT_TRUE(memory.is_untouched_around(0, 0)) << "round " << round << ": a write landed behind deregister_segment()";
    }
    EXPECT_EQ(landed, rounds_of_segments);
    me.tell("done");
  }
  ASSERT_TRUE(me.meet());
}

// Rank 1 is killed while threads of rank 0 write to it and to rank 2: writes to rank 1 end with an error, the others go on.
BARE_RANK_BODY(store_to_a_killed_rank) {
  auto opened = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  {
    RankSegment origin(fabric, kOrigin, me.setup().origin, kPlace), target(fabric, kTarget, me.setup().target, kPlace);
    origin.put_pattern(0, kPlace, 3, 0);
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
    if (me.rank() == 1) me.hear();  // it is killed
    if (me.rank() == 0) {
      std::atomic<unsigned> started{0};
      std::atomic<bool> is_told{false};
      Complaints complaints;
      in_threads(kThreads, [&](unsigned thread) {
        const QueueId queue = queue_of(me, thread);
        Deadline deadline = Deadline::after_ns(kPatience.ns());
        bool is_lost = false;
        for (std::uint32_t turn = 1; !is_lost && !deadline.has_passed(); ++turn) {
          const auto lost = post_until_free(fabric, queue, [&] {
            return fabric.write_notify({kOrigin, 0}, {1, kTarget, 64 * thread}, 64, thread, turn, on(queue));
          });
          is_lost = lost.status() == Status::peer_lost;
          if (!is_lost && complaints.has_failed(lost, "rank 1")) return;
          const auto others = post_until_free(fabric, queue, [&] {
            return fabric.write_notify({kOrigin, 0}, {2, kTarget, 64 * thread}, 64, thread, turn, on(queue));
          });
          // A full queue is waited for, and tells of what it had for rank 1.
          const bool is_of_rank_1 =
              others.status() == Status::peer_lost && others.error().message().find("rank 1") != std::string::npos;
          if (!is_of_rank_1 && complaints.has_failed(others, "rank 2")) return;
          if (turn == 100 && ++started == kThreads && !is_told.exchange(true)) me.tell("writing");
        }
        if (!is_lost) complaints.add("thread " + std::to_string(thread) + " was never told");
      });
      for (QueueId queue = 0; queue < kQueues; ++queue) static_cast<void>(fabric.wait(queue, kPatience));
      EXPECT_TRUE(is_ok(fabric.write_notify({kOrigin, 0}, {2, kTarget, 1024}, 64, 9, 1)));
      EXPECT_TRUE(is_ok(fabric.flush(2, kPatience)));
    }
    if (me.rank() == 2) {
      EXPECT_TRUE(is_ok(fabric.notification_wait(kTarget, 9, 1, kPatience)));
      EXPECT_TRUE(target.holds_pattern(1024, 64, 3, 0));
    }
    ASSERT_TRUE(me.meet());
  }
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric.close(kPatience)));
}

// The fabric is closed under threads that write: each is told, and nothing is written behind it.
BARE_RANK_BODY(close_under_stores) {
  RankMemory memory(me.setup().target, kPlace), source(me.setup().origin, kPlace);
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  ASSERT_TRUE(is_ok(fabric->register_segment(kOrigin, source.address(), kPlace)));
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.address(), kPlace)));
  ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  if (me.rank() == 0) {
    std::atomic<unsigned> started{0};
    Complaints complaints;
    std::thread closing([&] {
      const Deadline deadline = Deadline::after_ns(kPatience.ns());
      while (started != kThreads && !deadline.has_passed()) std::this_thread::yield();
      complaints.has_failed(fabric->close(kPatience), "close");
    });
    in_threads(kThreads, [&](unsigned thread) {
      const QueueId queue = queue_of(me, thread);
      const Deadline deadline = Deadline::after_ns(kPatience.ns());
      Result<Operation> posted = Operation{};
      for (std::uint32_t turn = 1; posted && !deadline.has_passed(); ++turn) {
        posted = post_until_free(*fabric, queue, [&] {
          return fabric->write_notify({kOrigin, 0}, {1, kTarget, 64 * thread}, 64, thread, turn, on(queue));
        });
        if (turn == 100) ++started;
      }
      if (posted) return complaints.add("thread " + std::to_string(thread) + " was never told");
      if (posted.status() != Status::unavailable) complaints.add(posted.error().message());
    });
    closing.join();
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() == 1) {
    memory.fill();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(memory.is_untouched_around(0, 0));
    EXPECT_TRUE(is_ok(fabric->close(kPatience)));
  }
  ASSERT_TRUE(me.meet());
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

// Over `local` in memory that both ranks map.
std::vector<RankSetup> store_setups(Rank rank_count) {
  std::vector<RankSetup> all = each_transport(rank_count);
  for (RankSetup& setup : all) {
    if (setup.transport == TransportKind::local) setup.origin = setup.target = MemoryChoice::shared;
  }
  return all;
}

std::vector<RankSetup> on_queues(Rank rank_count) { return with_words(store_setups(rank_count), {"each", "one"}); }

class FabricStores : public testing::TestWithParam<RankSetup> {};
// Of one rank to itself too: there a sanitizer sees who writes and who reads.
class FabricStoresOfThreads : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricStoresOfThreads, CarryDataAndNotifications) {
  RankSetup setup = GetParam();
  setup.amount = rounds(setup.transport == TransportKind::local ? 3000 : 600);
  run_ranks("ping_from_threads", setup);
}
INSTANTIATE_TEST_SUITE_P(OneRank, FabricStoresOfThreads, testing::ValuesIn(on_queues(1)), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoRanks, FabricStoresOfThreads, testing::ValuesIn(on_queues(2)), setup_name);

TEST_P(FabricStores, BesideEverythingElse) {
  RankSetup setup = GetParam();
  setup.amount = rounds(400);
  run_ranks("store_beside_others", setup);
}
TEST_P(FabricStores, FillQueuesAndAreReported) { run_ranks("fill_and_report", GetParam()); }
INSTANTIATE_TEST_SUITE_P(TwoRanks, FabricStores, testing::ValuesIn(store_setups(2)), setup_name);

class FabricStoresUnderLoss : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricStoresUnderLoss, SegmentsGo) {
  RankSetup setup = GetParam();
  setup.amount = rounds(25);
  RankJob job("store_while_segments_go", setup);
  job.start_all();
  EXPECT_TRUE(job.hear(1, "done"));
  job.tell(0, "over");
  job.finish();
}
TEST_P(FabricStoresUnderLoss, APeerDies) {
  RankSetup setup = GetParam();
  setup.rank_count = 3;
  RankJob job("store_to_a_killed_rank", setup);
  job.start_all();
  EXPECT_TRUE(job.hear(0, "writing"));
  job.send_signal(1, SIGKILL);
  job.finish();
}
TEST_P(FabricStoresUnderLoss, TheFabricCloses) { run_ranks("close_under_stores", GetParam()); }
INSTANTIATE_TEST_SUITE_P(TwoRanks, FabricStoresUnderLoss, testing::ValuesIn(on_queues(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
