// SPDX-License-Identifier: Apache-2.0
// write_in_order: what it places is behind the data of every earlier write, on every transport and path.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kSpan = 1 << 20;
constexpr std::uint64_t kFlag = kSpan - 8;  // offset of the word that tells the round
constexpr Rank kWriter = 1;

// Looks at this rank's own memory until the word is there.
std::uint64_t await_word(Fabric& fabric, const RankSegment& target, std::uint64_t wanted) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint64_t word = 0;
  do {
    EXPECT_TRUE(is_ok(fabric.progress()));
    const std::vector<unsigned char> bytes = target.take(kFlag, 8);
    std::memcpy(&word, bytes.data(), 8);
    std::atomic_thread_fence(std::memory_order_acquire);
  } while (word != wanted && std::chrono::steady_clock::now() < give_up);
  return word;
}

// Sizes that go inside messages, directly, and staged, two at a time; the flag behind them is no notification of the fabric's.
RANK_BODY(flag_in_own_memory) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  ASSERT_TRUE(me.meet());
  constexpr std::array<std::uint64_t, 7> kSizes{1, 8, 300, 5000, 70000, 200000, 400000};
  for (std::uint64_t round = 1; round <= me.setup().amount; ++round) {
    const std::uint64_t bytes = kSizes[round % kSizes.size()];
    if (me.rank() == kWriter) {
      origin.put_pattern(0, 2 * bytes, round, 0);
      ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {0, kTarget, 0}, bytes)));
      ASSERT_TRUE(is_ok(fabric.write({kOrigin, bytes}, {0, kTarget, bytes}, bytes)));
      // The bytes are the call's: they may change behind it.
      std::uint64_t word = round;
      ASSERT_TRUE(is_ok(fabric.write_in_order(&word, {0, kTarget, kFlag}, 8)));
      word = 0;
      ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
      ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 1, 1, kPatience)));
      ASSERT_TRUE(is_ok(fabric.notification_reset(kTarget, 1)));
    } else {
      ASSERT_EQ(await_word(fabric, target, round), round);
      ASSERT_TRUE(target.holds_pattern(0, 2 * bytes, round, 0)) << bytes << " bytes, round " << round;
      ASSERT_TRUE(is_ok(fabric.notify(kWriter, kTarget, 1, 1)));
      ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    }
  }
  ASSERT_TRUE(me.meet());
}

// More than a link has room for: they wait their turn and stay in order. The last of each place is what stays.
RANK_BODY(many_in_order) {
  RankSegment target(fabric, kTarget, me.setup().target, kSpan);
  ASSERT_TRUE(me.meet());
  constexpr std::uint64_t kPlaces = 13;
  const std::uint64_t count = me.setup().amount;
  if (me.rank() == kWriter) {
    std::array<std::uint64_t, 8> line{};
    for (std::uint64_t i = 0; i < count; ++i) {
      line.fill(i);
      auto posted = fabric.write_in_order(line.data(), {0, kTarget, i % kPlaces * 64}, 64);
      if (posted.status() == Status::busy) {
        ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
        posted = fabric.write_in_order(line.data(), {0, kTarget, i % kPlaces * 64}, 64);
      }
      ASSERT_TRUE(is_ok(posted));
    }
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    ASSERT_TRUE(is_ok(fabric.flush(0, kPatience)));
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    for (std::uint64_t i = count - kPlaces; i < count; ++i) {
      const std::vector<unsigned char> line = target.take(i % kPlaces * 64, 64);
      for (std::size_t word = 0; word < 64; word += 8) {
        std::uint64_t found = 0;
        std::memcpy(&found, line.data() + word, 8);
        EXPECT_EQ(found, i);
      }
    }
    EXPECT_TRUE(target.is_untouched(kPlaces * 64, 4096));
  }
  ASSERT_TRUE(me.meet());
}

RANK_BODY(refuse_in_order) {
  RankSegment target(fabric, kTarget, me.setup().target, 4096);
  ASSERT_TRUE(me.meet());
  const Rank peer = (me.rank() + 1) % me.rank_count();
  const std::array<unsigned char, 80> bytes{};
  EXPECT_TRUE(refuses(fabric.write_in_order(bytes.data(), {peer, kTarget, 0}, 65), "65 bytes"));
  EXPECT_TRUE(refuses(fabric.write_in_order(nullptr, {peer, kTarget, 0}, 8), "source"));
  EXPECT_TRUE(refuses(fabric.write_in_order(bytes.data(), {peer, kTarget, 4089}, 8)));
  EXPECT_TRUE(refuses(fabric.write_in_order(bytes.data(), {peer, kTarget, ~std::uint64_t{0}}, 8)));
  EXPECT_TRUE(refuses(fabric.write_in_order(bytes.data(), {peer, 77, 0}, 8)));
  EXPECT_TRUE(refuses(fabric.write_in_order(bytes.data(), {99, kTarget, 0}, 8)));
  const auto nothing = fabric.write_in_order(nullptr, {peer, kTarget, 4096}, 0);
  EXPECT_TRUE(is_ok(nothing));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.is_untouched(0, 4096));
  EXPECT_TRUE(target.are_guards_whole());
}

class FabricOrder : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricOrder, WordsComeBehindTheData) {
  RankSetup setup = GetParam();
  setup.amount = rounds(70);
  run_ranks("flag_in_own_memory", setup);
}
TEST_P(FabricOrder, ManyStayInOrder) {
  RankSetup setup = GetParam();
  setup.amount = std::max<std::uint64_t>(rounds(5000), 100);
  run_ranks("many_in_order", setup);
}
TEST_P(FabricOrder, BadArguments) { run_ranks("refuse_in_order", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricOrder, testing::ValuesIn(memory_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
