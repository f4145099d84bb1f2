// SPDX-License-Identifier: Apache-2.0
// WorkerPool: every part once, whoever calls at the same time, when no thread can be had, and across a fork.
#include "copy/worker_pool.hpp"
#include "support/in_child.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

// ThreadSanitizer's own switch: a forked child starts threads in these tests.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace gigabar {
namespace {

// Counts calls of each part.
struct Tally {
  std::array<std::atomic<int>, WorkerPool::kMaxThreads> counts{};
  static void add(void* tally, unsigned part) { ++static_cast<Tally*>(tally)->counts[part]; }
  bool is_each_once(unsigned part_count) const {
    for (unsigned i = 0; i < counts.size(); ++i) {
      if (counts[i].load() != (i < part_count ? 1 : 0)) return false;
    }
    return true;
  }
};

TEST(WorkerPool, CallsEachPartOnce) {
  WorkerPool pool;
  for (int round = 0; round < 200; ++round) {
    for (const unsigned part_count : {0U, 1U, 2U, 3U, 8U}) {
      Tally tally;
      ASSERT_TRUE(pool.run(part_count, Tally::add, &tally));
      ASSERT_TRUE(tally.is_each_once(part_count)) << part_count;
    }
  }
  Tally tally;
  ASSERT_TRUE(pool.run(WorkerPool::kMaxThreads, Tally::add, &tally));
  EXPECT_TRUE(tally.is_each_once(WorkerPool::kMaxThreads));
}

TEST(WorkerPool, ServesManyCallersAtOnce) {
  WorkerPool pool;
  std::atomic<int> wrong_count{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        Tally tally;
        if (!pool.run(4, Tally::add, &tally) || !tally.is_each_once(4)) ++wrong_count;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong_count.load(), 0);
}

// Two parts that wait for each other end only when two threads run them.
TEST(WorkerPool, RunsPartsOnSeveralThreads) {
  WorkerPool pool;
  struct Meeting {
    std::atomic<int> arrived{0};
    std::atomic<bool> has_met{false};
  } meeting;
  ASSERT_TRUE(pool.run(
      2,
      [](void* context, unsigned) {
        auto& met = *static_cast<Meeting*>(context);
        ++met.arrived;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (met.arrived.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        if (met.arrived.load() == 2) met.has_met = true;
      },
      &meeting));
  EXPECT_TRUE(meeting.has_met.load());
}

TEST(WorkerPool, SaysWhenNoThreadCanBeStartedAndCallsNothing) {
  WorkerPool pool([](pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) { return EAGAIN; });
  Tally tally;
  const Result<void> refused = pool.run(4, Tally::add, &tally);
  EXPECT_EQ(refused.status(), Status::out_of_memory);
  EXPECT_NE(refused.message().find("EAGAIN"), std::string::npos) << refused.message();
  EXPECT_TRUE(tally.is_each_once(0));
  EXPECT_TRUE(pool.run(1, Tally::add, &tally));  // needs no thread
}

TEST(WorkerPool, WorksAloneAfterStop) {
  WorkerPool pool;
  Tally before;
  ASSERT_TRUE(pool.run(4, Tally::add, &before));
  pool.stop();
  pool.stop();
  Tally after;
  EXPECT_TRUE(pool.run(4, Tally::add, &after));
  EXPECT_TRUE(after.is_each_once(4));
}

// A part that holds the workers longer than callers wait for them: the second caller copies alone and does not hang.
TEST(WorkerPool, DoesNotWaitForeverForAnotherCaller) {
  WorkerPool pool;
  struct Hold {
    std::atomic<bool> is_taken{false};
    std::atomic<bool> is_released{false};
  } hold;
  std::thread holder([&] {
    EXPECT_TRUE(pool.run(
        2,
        [](void* context, unsigned) {
          auto& held = *static_cast<Hold*>(context);
          held.is_taken = true;
          while (!held.is_released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        &hold));
  });
  while (!hold.is_taken) std::this_thread::yield();
  Tally tally;
  EXPECT_TRUE(pool.run(3, Tally::add, &tally));
  EXPECT_TRUE(tally.is_each_once(3));
  hold.is_released = true;
  holder.join();
}

// Threads do not cross a fork: the child has a pool of its own and ends as any process does, with exit handlers.
TEST(WorkerPool, IsMadeAnewInAForkedChild) {
  Tally parent;
  ASSERT_TRUE(WorkerPool::of_process().run(4, Tally::add, &parent));
  const WorkerPool* const of_parent = &WorkerPool::of_process();
  const test::ChildEnd end = test::run_in_child([&] {
    Tally tally;
    const bool is_right = &WorkerPool::of_process() != of_parent && WorkerPool::of_process().run(4, Tally::add, &tally).is_ok() &&
                          tally.is_each_once(4);
    return is_right ? 0 : 1;
  });
  EXPECT_TRUE(end.is_exit(0)) << end.to_string();
  Tally after;
  EXPECT_TRUE(WorkerPool::of_process().run(4, Tally::add, &after));
  EXPECT_EQ(&WorkerPool::of_process(), of_parent);
}

// exit(), with its handlers, in a forked child that used its own pool or none while the parent's workers exist.
TEST(WorkerPool, DoesNotHoldUpExit) {
  Tally parent;
  ASSERT_TRUE(WorkerPool::of_process().run(4, Tally::add, &parent));
  for (const bool uses_pool : {true, false}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      Tally tally;
      if (uses_pool) static_cast<void>(WorkerPool::of_process().run(4, Tally::add, &tally));
      std::exit(7);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  }
}

}  // namespace
}  // namespace gigabar
