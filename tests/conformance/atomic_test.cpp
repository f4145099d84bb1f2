// SPDX-License-Identifier: Apache-2.0
// Atomics: every addition counts once, every lock is held by one.
#include <algorithm>
#include <thread>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

std::uint64_t word_at(const RankMemory& memory, std::size_t offset) {
  const auto bytes = memory.take(offset, 8);
  std::uint64_t word = 0;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<unsigned char*>(&word));
  return word;
}

void put_word(RankMemory& memory, std::size_t offset, std::uint64_t word) { memory.put(offset, &word, sizeof word); }

// All ranks add to one word of rank 0; what each saw before rises, and the sum is exact.
RANK_BODY(add_from_all_ranks) {
  const std::uint64_t each = me.setup().amount;
  RankSegment target(fabric, kTarget, me.setup().target, 4096);
  put_word(target, 64, 1000);
  ASSERT_TRUE(me.meet());
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < each; ++i) {
    const auto before = fabric.fetch_add({0, kTarget, 64}, me.rank() + 1, kPatience);
    ASSERT_TRUE(is_ok(before)) << "at " << i;
    ASSERT_GE(*before, i == 0 ? 1000 : last + me.rank() + 1) << "at " << i;
    last = *before;
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    std::uint64_t sum = 1000;
    for (Rank rank = 0; rank < me.rank_count(); ++rank) sum += each * (rank + 1);
    EXPECT_EQ(word_at(target, 64), sum);
    EXPECT_TRUE(target.is_untouched(0, 64));
    EXPECT_TRUE(target.is_untouched(72, 4096 - 72));
  }
  ASSERT_TRUE(me.meet());
}

RANK_BODY(wrap_and_compare) {
  RankSegment target(fabric, kTarget, me.setup().target, 4096);
  put_word(target, 4088, ~std::uint64_t{0});
  ASSERT_TRUE(me.meet());
  const RemotePlace last{(me.rank() + 1) % me.rank_count(), kTarget, 4088};
  const auto added = fabric.fetch_add(last, 3, kPatience);
  ASSERT_TRUE(is_ok(added));
  EXPECT_EQ(*added, ~std::uint64_t{0});
  const auto refused = fabric.compare_swap(last, 77, 5, kPatience);
  ASSERT_TRUE(is_ok(refused));
  EXPECT_EQ(*refused, 2U) << "it gives what is there";
  const auto swapped = fabric.compare_swap(last, 2, 5, kPatience);
  ASSERT_TRUE(is_ok(swapped));
  EXPECT_EQ(*swapped, 2U);
  ASSERT_TRUE(me.meet());
  EXPECT_EQ(word_at(target, 4088), 5U);
  EXPECT_TRUE(target.is_untouched(0, 4088));
  EXPECT_TRUE(target.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

bool lock(RankProcess& me, Fabric& fabric) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < give_up) {
    const auto holder = fabric.compare_swap({0, kTarget, 0}, 0, me.rank() + 1, kPatience);
    EXPECT_TRUE(is_ok(holder));
    if (!holder) return false;
    if (*holder == 0) return true;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "the lock never became free";
  return false;
}

// One more in rank 0's second word, by read and write under the lock.
void count_one(Fabric& fabric, RankSegment& origin) {
  ASSERT_TRUE(is_ok(fabric.read({kOrigin, 0}, {0, kTarget, 8}, 8)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  put_word(origin, 0, word_at(origin, 0) + 1);
  ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {0, kTarget, 8}, 8)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(0, kPatience)));
}

RANK_BODY(lock_by_compare_swap) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, 64), target(fabric, kTarget, me.setup().target, 64);
  put_word(target, 0, 0);
  put_word(target, 8, 0);
  ASSERT_TRUE(me.meet());
  for (std::uint64_t i = 0; i < me.setup().amount; ++i) {
    ASSERT_TRUE(lock(me, fabric));
    ASSERT_NO_FATAL_FAILURE(count_one(fabric, origin));
    const auto holder = fabric.compare_swap({0, kTarget, 0}, me.rank() + 1, 0, kPatience);
    ASSERT_TRUE(is_ok(holder));
    ASSERT_EQ(*holder, me.rank() + 1) << "another rank took the lock that this one held";
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    EXPECT_EQ(word_at(target, 8), me.setup().amount * me.rank_count());
  }
  ASSERT_TRUE(me.meet());
}

// Several threads of each rank at once.
RANK_BODY(add_from_threads) {
  constexpr unsigned kThreads = 4;
  RankSegment target(fabric, kTarget, me.setup().target, 64);
  put_word(target, 0, 0);
  ASSERT_TRUE(me.meet());
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < me.setup().amount; ++i) {
        const auto before = fabric.fetch_add({0, kTarget, 0}, 1, kPatience);
        EXPECT_TRUE(is_ok(before));
        if (!before) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    EXPECT_EQ(word_at(target, 0), me.setup().amount * kThreads * me.rank_count());
  }
  ASSERT_TRUE(me.meet());
}

std::vector<RankSetup> atomic_setups() {
  std::vector<RankSetup> all = rank_setups();
  for (const RankSetup& setup : memory_setups(3)) {
    if (setup.origin == setup.target && setup.target != MemoryChoice::host) all.push_back(setup);
  }
  for (RankSetup& setup : all) setup.amount = rounds(300);
  return all;
}

class FabricAtomics : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricAtomics, SumsAreExact) { run_ranks("add_from_all_ranks", GetParam()); }
TEST_P(FabricAtomics, WrapAndCompare) { run_ranks("wrap_and_compare", GetParam()); }
TEST_P(FabricAtomics, LockIsHeldByOne) {
  RankSetup setup = GetParam();
  setup.amount = rounds(100);
  run_ranks("lock_by_compare_swap", setup);
}
TEST_P(FabricAtomics, FromThreads) {
  RankSetup setup = GetParam();
  setup.amount = rounds(100);
  run_ranks("add_from_threads", setup);
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricAtomics, testing::ValuesIn(atomic_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
