// SPDX-License-Identifier: Apache-2.0
// Threads of one rank that call at the same time.
#include <sched.h>
#include <sys/resource.h>

#include <thread>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

// Those of threads that sleep. What else the machine runs makes others.
long context_switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

// Two threads that share one processor and call without a pause. Where each call has to wait until the other thread has run, a call
// costs a switch between threads, which takes milliseconds on a busy machine: 4000 calls took longer than 20 s there.
RANK_BODY(two_threads_on_one_processor) {
  constexpr unsigned kCalls = 5000;
  // So many that a call holds the lock most of its time, and so few that a thread makes many calls before another program has its
  // turn.
  const auto id_count = static_cast<std::uint32_t>(rounds(1024));
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);  // the threads that start here have it too
  const auto look = [&] {
    for (unsigned i = 0; i < kCalls; ++i)
      ASSERT_TRUE(fails(fabric.notification_wait(kTarget, 0, id_count, Timeout::test()), Status::timed_out));
  };
  const auto expect_few_switches = [&](long calls, const auto& body) {
    const long before = context_switches();
    body();
    EXPECT_LT(context_switches() - before, calls / 4) << "of " << calls << " calls";
  };
  expect_few_switches(kCalls, look);
  expect_few_switches(2 * kCalls, [&] {
    std::thread other(look);
    look();
    other.join();
  });
  ASSERT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
}

TEST(FabricThreads, ShareAProcessorWithoutASwitchForEachCall) {
  RankSetup setup;
  setup.rank_count = 1;
  run_ranks("two_threads_on_one_processor", setup);
}

}  // namespace
}  // namespace gigabar::test
