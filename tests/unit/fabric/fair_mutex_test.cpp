// SPDX-License-Identifier: Apache-2.0
// The lock of the fabric, also with atomics whose stores become visible as late as a processor may choose.
#include "fabric/fair_mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace gigabar::fabric {
namespace {

struct Memory {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_asleep = false;      // a thread that waits for a word to change
  bool has_overslept = false;  // nobody woke it although the word had changed
} memory;

// What a thread has stored and nobody else sees yet: a store that is not seq_cst stays here until the thread's next atomic
// operation that reads and writes, or until drain().
template <class T>
class Delayed {
 public:
  explicit Delayed(T value) : value_(value) {}

  T load(std::memory_order) const {
    for (const auto& [place, value] : pending) {
      if (place == this) return value;
    }
    const std::lock_guard lock(memory.mutex);
    return value_;
  }
  void store(T value, std::memory_order order) {
    if (order != std::memory_order_seq_cst) return pending.emplace_back(this, value), void();
    drain();
    write(value);
  }
  T fetch_add(T added, std::memory_order) {
    drain();
    const std::lock_guard lock(memory.mutex);
    return std::exchange(value_, value_ + added);
  }
  void wait(T old, std::memory_order) const {
    std::unique_lock lock(memory.mutex);
    if (value_ != old) return;
    memory.is_asleep = true;
    memory.changed.notify_all();
    const auto is_woken = [] { return !memory.is_asleep; };
    if (memory.changed.wait_for(lock, std::chrono::milliseconds(500), is_woken)) return;
    memory.is_asleep = false;
    memory.has_overslept = value_ != old;
  }
  void notify_all() {
    const std::lock_guard lock(memory.mutex);
    memory.is_asleep = false;
    memory.changed.notify_all();
  }
  static void drain() {
    for (const auto& [place, value] : std::exchange(pending, {})) place->write(value);
  }

 private:
  void write(T value) {
    const std::lock_guard lock(memory.mutex);
    value_ = value;
  }

  static thread_local std::vector<std::pair<Delayed*, T>> pending;
  T value_;
};
template <class T>
thread_local std::vector<std::pair<Delayed<T>*, T>> Delayed<T>::pending;

// The store that gives the lock on is seen only when the other thread, which nobody saw coming, has gone to sleep.
TEST(FairMutex, WakesAWaiterThatComesBehindALateStore) {
  BasicFairMutex<Delayed> mutex;
  mutex.lock();
  mutex.unlock();
  std::thread other([&] {
    mutex.lock();
    mutex.unlock();
  });
  {
    std::unique_lock lock(memory.mutex);
    memory.changed.wait_for(lock, std::chrono::milliseconds(200), [] { return memory.is_asleep; });
  }
  Delayed<std::uint32_t>::drain();
  other.join();
  EXPECT_FALSE(memory.has_overslept);
}

// Whoever gives it on and takes it again at once wins that race almost always: a waiting thread takes longer to wake.
TEST(FairMutex, IsNotTakenAgainForEver) {
  constexpr int kMaxTurns = 200;  // two or three; a busy machine may wake the other late
  FairMutex mutex;
  std::atomic<bool> has_come{false};
  mutex.lock();
  std::thread other([&] {
    mutex.lock();
    has_come = true;
    mutex.unlock();
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

TEST(FairMutex, LetsOneThreadInAtATime) {
  FairMutex mutex;
  std::uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5000; ++k) {
        mutex.lock();
        ++count;
        mutex.unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 20000U);
}

}  // namespace
}  // namespace gigabar::fabric
