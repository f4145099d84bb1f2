// SPDX-License-Identifier: Apache-2.0
// Registrations by identity: memory/registration_cache.hpp.
#include "memory/registration_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace gigabar {
namespace {

std::atomic<int> live_values{0};

struct Value {
  explicit Value(std::uint64_t number) : id(number) { ++live_values; }
  ~Value() { --live_values; }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  const std::uint64_t id;
};
using Cache = RegistrationCache<Value>;

PointerInfo allocation(std::uintptr_t base, std::size_t bytes, std::uint64_t buffer_id) {
  PointerInfo info;
  info.kind = MemoryKind::device;
  info.address = info.base = base;
  info.length_bytes = bytes;
  info.buffer_id = buffer_id;
  info.device = 0;
  return info;
}

bool any(const Value&) { return true; }

Cache::Lease insert(Cache& cache, const PointerInfo& memory) {
  return cache.insert(memory, memory.base, memory.length_bytes, memory.length_bytes, std::make_unique<Value>(memory.buffer_id));
}
Cache::Lease find(Cache& cache, const PointerInfo& memory) { return cache.find(memory, memory.base, memory.length_bytes, any); }

TEST(RegistrationCache, FindsWhatWasInserted) {
  Cache cache(1 << 20);
  const PointerInfo memory = allocation(0x10000, 4096, 1);
  EXPECT_FALSE(find(cache, memory));
  const auto lease = insert(cache, memory);
  EXPECT_EQ(lease->id, 1u);
  const auto second = find(cache, memory);
  ASSERT_TRUE(second);
  EXPECT_EQ(&*second, &*lease);
  const RegistrationStatistics statistics = cache.statistics();
  EXPECT_EQ(statistics.count, 1u);
  EXPECT_EQ(statistics.idle_count, 0u);
  EXPECT_EQ(statistics.hit_count, 1u);
  EXPECT_EQ(statistics.miss_count, 1u);
}

TEST(RegistrationCache, ServesPartsAndNothingBeyond) {
  Cache cache(1 << 20);
  const PointerInfo memory = allocation(0x10000, 65536, 1);
  const auto lease = cache.insert(memory, 0x12000, 0x2000, 0x2000, std::make_unique<Value>(1));
  EXPECT_TRUE(cache.find(memory, 0x12000, 0x2000, any));
  EXPECT_TRUE(cache.find(memory, 0x12345, 1, any));
  EXPECT_TRUE(cache.find(memory, 0x13fff, 1, any));
  EXPECT_FALSE(cache.find(memory, 0x11fff, 2, any));
  EXPECT_FALSE(cache.find(memory, 0x13fff, 2, any));
  EXPECT_FALSE(cache.find(memory, 0x14000, 1, any));
  EXPECT_FALSE(cache.find(memory, 0x12000, SIZE_MAX, any)) << "no overflow";
}

TEST(RegistrationCache, AsksTheCallerWhetherItAccepts) {
  Cache cache(1 << 20);
  const PointerInfo memory = allocation(0x10000, 4096, 1);
  const auto lease = insert(cache, memory);
  EXPECT_FALSE(cache.find(memory, memory.base, 1, [](const Value&) { return false; }));
  EXPECT_TRUE(cache.find(memory, memory.base, 1, any));
}

TEST(RegistrationCache, NeverServesAnEarlierAllocationAtTheSameAddress) {
  Cache cache(1 << 20);
  const PointerInfo before = allocation(0x10000, 4096, 1);
  insert(cache, before);
  EXPECT_EQ(cache.statistics().idle_count, 1u);
  const PointerInfo after = allocation(0x10000, 4096, 2);
  EXPECT_FALSE(find(cache, after));
  EXPECT_EQ(cache.statistics().stale_count, 1u);
  EXPECT_EQ(cache.statistics().count, 0u) << "the stale one was let go";
  EXPECT_EQ(live_values, 0);
}

TEST(RegistrationCache, AStaleValueInUseLivesUntilItsUserLetsGo) {
  Cache cache(1 << 20);
  auto held = insert(cache, allocation(0x10000, 4096, 1));
  const PointerInfo after = allocation(0x10000, 4096, 2);
  EXPECT_FALSE(find(cache, after));
  EXPECT_EQ(held->id, 1u);
  EXPECT_EQ(live_values, 1);
  const auto fresh = insert(cache, after);
  EXPECT_EQ(find(cache, after)->id, 2u);
  held = {};
  EXPECT_EQ(live_values, 1);
}

TEST(RegistrationCache, OverlappingAllocationsMakeOldOnesStale) {
  Cache cache(1 << 20);
  insert(cache, allocation(0x10000, 0x3000, 1));
  insert(cache, allocation(0x20000, 0x1000, 2));
  // A new allocation that begins inside the first: the first must be gone.
  const auto fresh = insert(cache, allocation(0x11000, 0x1000, 3));
  EXPECT_EQ(cache.statistics().stale_count, 1u);
  EXPECT_EQ(cache.statistics().count, 2u);
  EXPECT_TRUE(find(cache, allocation(0x20000, 0x1000, 2))) << "the other one does not overlap";
}

TEST(RegistrationCache, KeepsIdleValuesUpToTheLimitAndDropsTheLongestIdle) {
  Cache cache(3 * 4096);
  std::array<PointerInfo, 4> memory;
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = allocation(0x10000 * (i + 1), 4096, i + 1);
  for (std::size_t i = 0; i < 3; ++i) insert(cache, memory[i]);
  EXPECT_EQ(cache.statistics().idle_bytes, 3u * 4096);
  find(cache, memory[0]);    // used again: now 1 is idle for longest
  insert(cache, memory[3]);  // one too many
  EXPECT_EQ(cache.statistics().idle_bytes, 3u * 4096);
  EXPECT_TRUE(find(cache, memory[0]));
  EXPECT_FALSE(find(cache, memory[1]));
  EXPECT_TRUE(find(cache, memory[2]));
  EXPECT_TRUE(find(cache, memory[3]));
}

TEST(RegistrationCache, UsedValuesDoNotCountAsIdle) {
  Cache cache(0);
  const PointerInfo memory = allocation(0x10000, 4096, 1);
  {
    const auto lease = insert(cache, memory);
    EXPECT_EQ(cache.statistics().idle_bytes, 0u);
    EXPECT_TRUE(find(cache, memory));
    EXPECT_EQ(cache.trim(0), 0u) << "what is used stays";
    EXPECT_EQ(live_values, 1);
  }
  EXPECT_EQ(live_values, 0) << "with a limit of 0 nothing is kept";
}

TEST(RegistrationCache, TrimKeepsWhatItIsToldAndAnswersWhatItFreed) {
  Cache cache(1 << 20);
  for (std::size_t i = 1; i <= 4; ++i) insert(cache, allocation(0x10000 * i, 4096, i));
  EXPECT_EQ(cache.trim(2 * 4096), 2u * 4096);
  EXPECT_EQ(cache.statistics().idle_count, 2u);
  EXPECT_EQ(live_values, 2);
  EXPECT_EQ(cache.trim(0), 2u * 4096);
  EXPECT_EQ(cache.trim(0), 0u);
  EXPECT_EQ(live_values, 0);
}

TEST(RegistrationCache, LeasesMove) {
  Cache cache(0);
  auto first = insert(cache, allocation(0x10000, 4096, 1));
  Cache::Lease second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the state after a move is the contract
  second = insert(cache, allocation(0x20000, 4096, 2));
  EXPECT_EQ(second->id, 2u);
  EXPECT_EQ(live_values, 1);
}

// Threads map, let go, and free "memory" at the same few addresses all the time; nobody may ever see another allocation's value.
TEST(RegistrationCache, ConcurrentUseNeverServesAStaleValue) {
  Cache cache(2 * 4096);
  constexpr int kPlaces = 4;
  std::array<std::atomic<std::uint64_t>, kPlaces> current_id;
  for (auto& id : current_id) id = 0;
  std::atomic<std::uint64_t> next_id{1};
  std::atomic<int> wrong{0};
  std::atomic<int> served{0};
  const auto work = [&](unsigned seed) {
    std::minstd_rand random(seed);
    for (int turn = 0; turn < 3000; ++turn) {
      const unsigned place = random() % kPlaces;
      if (random() % 8 == 0) current_id[place] = next_id++;  // freed and allocated again
      const std::uint64_t id = current_id[place];
      const PointerInfo memory = allocation(0x10000 * (place + 1), 4096, id);
      auto lease = find(cache, memory);
      if (!lease) lease = insert(cache, memory);
      if (lease->id != id) ++wrong;
      ++served;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(served, 4 * 3000);
  EXPECT_GT(cache.statistics().hit_count, 0u);
  EXPECT_GT(cache.statistics().stale_count, 0u) << "the danger was there";
  cache.trim(0);
  EXPECT_EQ(live_values, 0);
}

}  // namespace
}  // namespace gigabar
