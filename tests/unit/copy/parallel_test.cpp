// SPDX-License-Identifier: Apache-2.0
// copy_to_parallel and copy_from_parallel on stand-in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "support/in_child.hpp"
#include "unit/copy/stand_in.hpp"

namespace gigabar {
namespace {

using Sizes = std::initializer_list<std::size_t>;

using test::has;
using test::mapped_stand_in;
using test::MappedStandIn;
using test::pattern;

TEST(ParallelCopy, CopiesEveryByteWithAnyThreadCount) {
  constexpr std::size_t kMost = 70'000;
  const MappedStandIn device = mapped_stand_in(kMost + 256);
  const auto sent = pattern(kMost);
  for (const unsigned thread_count : {0U, 1U, 2U, 3U, 5U, 8U, 64U}) {
    for (const std::size_t bytes : Sizes{0, 1, 8, 63, 64, 65, 127, 128, 1000, 4096, 65536, 69999}) {
      for (const std::size_t offset : Sizes{0, 1, 37, 64, 127}) {
        std::memset(device.bytes(), 0xEE, kMost + 256);
        ASSERT_TRUE(copy_to_parallel(device.mapping, offset, sent.data(), bytes, thread_count));
        ASSERT_EQ(std::memcmp(device.bytes() + offset, sent.data(), bytes), 0) << thread_count << " " << bytes << " " << offset;
        const auto is_guard = [](std::byte b) { return b == std::byte{0xEE}; };
        ASSERT_TRUE(std::all_of(device.bytes(), device.bytes() + offset, is_guard));
        ASSERT_TRUE(std::all_of(device.bytes() + offset + bytes, device.bytes() + kMost + 256, is_guard));
        std::vector<std::byte> received(bytes + 2, std::byte{0x77});
        ASSERT_TRUE(copy_from_parallel(device.mapping, offset, received.data() + 1, bytes, thread_count));
        ASSERT_EQ(std::memcmp(received.data() + 1, sent.data(), bytes), 0) << thread_count << " " << bytes << " " << offset;
        ASSERT_EQ(received.front(), std::byte{0x77});
        ASSERT_EQ(received.back(), std::byte{0x77});
      }
    }
  }
}

TEST(ParallelCopy, RefusesMoreThan64Threads) {
  const MappedStandIn device = mapped_stand_in(4096);
  std::vector<std::byte> host(4096);
  for (const unsigned thread_count : {65U, 1000U, ~0U}) {
    const Result<void> to = copy_to_parallel(device.mapping, 0, host.data(), host.size(), thread_count);
    EXPECT_EQ(to.status(), Status::invalid_argument);
    EXPECT_TRUE(has(to.message(), "64")) << to.message();
    EXPECT_EQ(copy_from_parallel(device.mapping, 0, host.data(), host.size(), thread_count).status(), Status::invalid_argument);
  }
}

TEST(ParallelCopy, ServesManyThreadsAtOnce) {
  constexpr std::size_t kPart = 40'000;
  constexpr std::size_t kCallers = 5;
  const MappedStandIn device = mapped_stand_in(kPart * kCallers);
  std::atomic<int> wrong_count{0};
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (unsigned round = 0; round < 40; ++round) {
        const auto sent = pattern(kPart, static_cast<unsigned>(caller) * 100 + round);
        std::vector<std::byte> received(kPart);
        if (!copy_to_parallel(device.mapping, caller * kPart, sent.data(), kPart, 3)) ++wrong_count;
        if (!copy_from_parallel(device.mapping, caller * kPart, received.data(), kPart, 2)) ++wrong_count;
        if (received != sent) ++wrong_count;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong_count.load(), 0);
}

// A mapping that a forked child inherits is copied through with the child's own threads.
TEST(ParallelCopy, WorksInAChildThatInheritedTheMapping) {
  MapOptions options;
  options.inherit_on_fork = true;
  const MappedStandIn device = mapped_stand_in(65536, options);
  const auto sent = pattern(65536);
  ASSERT_TRUE(copy_to_parallel(device.mapping, 0, sent.data(), sent.size(), 3));
  const test::ChildEnd end = test::run_in_child([&] {
    std::vector<std::byte> received(sent.size());
    const Result<void> done = copy_from_parallel(device.mapping, 0, received.data(), received.size(), 3);
    return done.status() == Status::foreign_process ? 2 : done.is_ok() && received == sent ? 0 : 1;
  });
  EXPECT_TRUE(end.is_exit(0)) << end.to_string();
}

}  // namespace
}  // namespace gigabar
