// SPDX-License-Identifier: Apache-2.0
#include "base/fair_mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace gigabar {
namespace {

TEST(FairMutex, LetsOneThreadInAtATime) {
  FairMutex mutex;
  std::uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5000; ++k) {
        const std::scoped_lock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 20000U);
}

TEST(FairMutex, IsNotWaitedForLongerThanAsked) {
  FairMutex mutex;
  auto held = lock_within(mutex, Timeout::test());
  ASSERT_TRUE(held);
  std::thread([&] {
    EXPECT_FALSE(lock_within(mutex, Timeout::test()));
    EXPECT_FALSE(lock_within(mutex, Timeout::of(std::chrono::milliseconds(20))));
  }).join();
  held.unlock();
  EXPECT_TRUE(lock_within(mutex, Timeout::test())) << "who gave up left nothing behind";
}

// Whoever gives it on and takes it again at once wins that race almost always: a waiting thread takes longer to wake.
TEST(FairMutex, IsNotTakenAgainForEver) {
  constexpr int kMaxTurns = 200;  // two or three; a busy machine may wake the other late
  FairMutex mutex;
  std::atomic<bool> has_come{false};
  mutex.lock();
  std::thread other([&] {
    const std::scoped_lock lock(mutex);
    has_come = true;
  });
  int turns = 0;
  for (; turns < kMaxTurns && !has_come; ++turns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the other may be overtaken
    mutex.unlock();
    mutex.lock();
  }
  mutex.unlock();
  other.join();
  EXPECT_LT(turns, kMaxTurns);
}

}  // namespace
}  // namespace gigabar
