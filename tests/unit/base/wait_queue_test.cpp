// SPDX-License-Identifier: Apache-2.0
// Who gets a thing that one thread at a time can have, and when a thread gives up.
#include "base/wait_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace gigabar {
namespace {

constexpr std::chrono::seconds kPatience{5};

// Tells when its thread lets it go, as one that waits does before it sleeps.
class TellingLock {
 public:
  TellingLock(std::mutex& mutex, std::atomic<bool>& has_released) : lock_(mutex), has_released_(has_released) {}
  void lock() { lock_.lock(); }
  void unlock() {
    lock_.unlock();
    has_released_ = true;
  }

 private:
  std::unique_lock<std::mutex> lock_;
  std::atomic<bool>& has_released_;
};

// Something that one thread has at a time, and who had it.
class Thing {
 public:
  bool take(unsigned who, const Timeout& timeout) {
    TellingLock lock(mutex_, has_slept_[who]);
    return take(lock, who, timeout);
  }
  void give() {
    const std::lock_guard lock(mutex_);
    give_with_lock();
  }
  // As one: nobody comes between the two who does not wait already.
  bool give_and_take_again(unsigned who, const Timeout& timeout) {
    TellingLock lock(mutex_, has_slept_[who]);
    give_with_lock();
    return take(lock, who, timeout);
  }
  std::vector<unsigned> takers() {
    const std::lock_guard lock(mutex_);
    return takers_;
  }
  bool has_had(unsigned who) const { return has_had_[who]; }
  bool is_overdue() const { return waiting_.is_overdue(); }

  // A thread that takes it and gives it back; it waits when this returns.
  std::thread start_waiter(unsigned who, const Timeout& timeout) {
    std::thread thread([this, who, timeout] {
      if (take(who, timeout)) give();
    });
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!has_slept_[who] && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(has_slept_[who]) << who;
    return thread;
  }

 private:
  bool take(TellingLock& lock, unsigned who, const Timeout& timeout) {
    const auto try_take = [this] { return !std::exchange(is_taken_, true); };
    const bool is_taken = (!waiting_.is_overdue() && try_take()) || waiting_.wait(lock, timeout, try_take);
    if (is_taken && !has_had_[who].exchange(true)) takers_.push_back(who);
    return is_taken;
  }
  void give_with_lock() {
    is_taken_ = false;
    waiting_.wake();
  }

  std::mutex mutex_;
  WaitQueue waiting_;
  bool is_taken_ = false;
  std::vector<unsigned> takers_;  // each once
  std::array<std::atomic<bool>, 8> has_slept_{}, has_had_{};
};

using Takers = std::vector<unsigned>;

TEST(WaitQueue, ServesInTheOrderOfArrival) {
  Thing thing;
  ASSERT_TRUE(thing.take(0, Timeout::test()));
  std::vector<std::thread> threads;
  for (unsigned who = 1; who <= 4; ++who) threads.push_back(thing.start_waiter(who, kPatience));
  thing.give();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(thing.takers(), (Takers{0, 1, 2, 3, 4}));
}

// The first and one in the middle give up; the others have their turn all the same, in order.
TEST(WaitQueue, GoesOnWithoutThoseThatGaveUp) {
  constexpr std::chrono::milliseconds kBrief{20};
  Thing thing;
  ASSERT_TRUE(thing.take(0, Timeout::test()));
  std::thread first = thing.start_waiter(1, kBrief);
  std::thread second = thing.start_waiter(2, kPatience);
  std::thread third = thing.start_waiter(3, kBrief);
  std::thread fourth = thing.start_waiter(4, Timeout::forever());
  first.join();
  third.join();
  EXPECT_EQ(thing.takers(), Takers{0});
  thing.give();
  second.join();
  fourth.join();
  EXPECT_EQ(thing.takers(), (Takers{0, 2, 4}));
}

TEST(WaitQueue, TestsOnce) {
  Thing thing;
  EXPECT_TRUE(thing.take(0, Timeout::test()));
  EXPECT_FALSE(thing.take(1, Timeout::test()));
  thing.give();
  EXPECT_TRUE(thing.take(2, Timeout::test()));
}

// Where it had to wait until the other thread has run, each call would cost a switch between them.
TEST(WaitQueue, AThreadThatComesAtOnceOvertakes) {
  Thing thing;
  ASSERT_TRUE(thing.take(0, Timeout::test()));
  std::thread waiter = thing.start_waiter(1, kPatience);
  EXPECT_TRUE(thing.give_and_take_again(0, kPatience));
  EXPECT_FALSE(thing.has_had(1));
  thing.give();
  waiter.join();
  EXPECT_TRUE(thing.has_had(1));
}

// A thread that takes it again and again overtakes one that waits, but not for ever.
TEST(WaitQueue, NobodyIsOvertakenForEver) {
  Thing thing;
  ASSERT_TRUE(thing.take(0, Timeout::test()));
  std::thread waiter = thing.start_waiter(1, kPatience);
  bool is_served = false;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!is_served && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(thing.give_and_take_again(0, kPatience));
    is_served = thing.has_had(1);
  }
  EXPECT_TRUE(is_served);
  thing.give();
  waiter.join();
  EXPECT_FALSE(thing.is_overdue()) << "nobody waits any more";
}

TEST(WaitQueue, LetsOneThreadInAtATime) {
  Thing thing;
  std::uint64_t count = 0;
  std::vector<std::thread> threads;
  for (unsigned who = 0; who < 4; ++who) {
    threads.emplace_back([&, who] {
      for (int i = 0; i < 2000 && thing.take(who, kPatience); ++i) {
        ++count;
        thing.give();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 8000U);
}

}  // namespace
}  // namespace gigabar
