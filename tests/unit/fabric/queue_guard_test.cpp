// SPDX-License-Identifier: Apache-2.0
// A thread that waits for a queue is told why it does not get it: another thread has it, or the fabric is closed meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "fabric/calls.hpp"
#include "support/isolated.hpp"

namespace gigabar::fabric {
namespace {

constexpr QueueId kQueue = 5;
constexpr std::chrono::seconds kPatience{20};

std::unique_ptr<Engine> open_alone() {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 1;
  auto opened = Engine::open(options);
  EXPECT_TRUE(opened) << opened.message();
  return opened ? std::move(*opened) : nullptr;
}

ISOLATED_TEST(QueueGuard, WhatAnotherThreadUsesIsNotEntered) {
  const auto engine = open_alone();
  ASSERT_NE(engine, nullptr);
  Engine::Lock lock = engine->lock();
  const QueueGuard first(*engine, lock, kQueue, Timeout::test());
  EXPECT_TRUE(first.is_entered());
  const QueueGuard second(*engine, lock, kQueue, Timeout::test()), another(*engine, lock, kQueue + 1, Timeout::test());
  EXPECT_TRUE(another.is_entered());
  ASSERT_FALSE(second.is_entered());
  const Error refused = second.why_not("write");
  EXPECT_EQ(refused.status(), Status::timed_out);
  EXPECT_EQ(refused.message(), "write: queue 5: another thread is using it; call again, or use one queue per thread");
}

ISOLATED_TEST(QueueGuard, AThreadThatWaitedForItIsToldThatTheFabricIsClosed) {
  const auto engine = open_alone();
  ASSERT_NE(engine, nullptr);
  Engine::Lock lock = engine->lock();
  std::optional<QueueGuard> first(std::in_place, *engine, lock, kQueue, Timeout::test());
  ASSERT_TRUE(first->is_entered());
  std::atomic<bool> is_there{false};
  std::optional<Error> refused;
  std::thread other([&] {
    Engine::Lock its_lock = engine->lock();
    is_there = true;  // it has the lock until it sleeps
    const QueueGuard second(*engine, its_lock, kQueue, kPatience);
    if (!second.is_entered()) refused = second.why_not("write_list");
  });
  lock.unlock();
  const Deadline deadline = Deadline::after_ns(20'000'000'000);
  while (!is_there && !deadline.has_passed()) std::this_thread::yield();
  EXPECT_TRUE(is_there);
  lock.lock();
  engine->farewell();
  first.reset();
  lock.unlock();
  other.join();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status(), Status::unavailable);
  EXPECT_EQ(refused->message(), "write_list: fabric: it is closed; open the fabric first");
}

}  // namespace
}  // namespace gigabar::fabric
