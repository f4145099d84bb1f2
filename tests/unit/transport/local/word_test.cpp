// SPDX-License-Identifier: Apache-2.0
// Words over the local transport: stores and atomic adds by the writer's CPU, behind its copies.
#include <atomic>
#include <thread>
#include <vector>

#include "transport/local/link.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar::transport {
namespace {

using namespace test;

constexpr std::size_t kWords = 16;
constexpr std::int64_t kOtherProcess = 1;  // both ends believe that the other one is not this process

std::uint32_t value_of(const SharedMemory& words, std::size_t index) {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(words.data() + word_value_at(index))).load(std::memory_order_acquire);
}

// In one process by address, in two by a mapping.
class LocalWords : public testing::TestWithParam<std::int64_t> {
 protected:
  LocalWords() : pair(GetParam()) { std::memset(memory.data(), 0, memory.bytes()); }

  Pair pair;
  SharedMemory memory{bytes_of_words(kWords)};
  std::unique_ptr<Region> region = must(pair.transports[1]->register_memory(memory.range()));
  std::unique_ptr<RemoteRegion> words = pair.shown(1, *region);
};
INSTANTIATE_TEST_SUITE_P(Processes, LocalWords, testing::Values(::getpid(), kOtherProcess));

TEST_P(LocalWords, AreBehindWritesThatAreNotFinished) {
  EXPECT_EQ(pair.transports[1]->why_no_words(), "");
  EXPECT_TRUE(pair.links[0]->limits().words_wake);
  SharedMemory from(5 * local::kCpuSliceBytes), to(5 * local::kCpuSliceBytes);
  std::memset(from.data(), 3, from.bytes());
  const auto local = must(pair.transports[0]->register_memory(from.range()));
  const auto target = must(pair.transports[1]->register_memory(to.range()));
  const auto remote = pair.shown(1, *target);
  ASSERT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, from.bytes(), 1), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_word(WordKind::set, *words, 5, 9), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_word(WordKind::add, *words, 5, 2), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_message(header_of(1), {}), Posted::ok);
  EXPECT_EQ(value_of(memory, 5), 0U) << "before its data";
  // The owner is not polled: its CPU takes no part.
  const Deadline deadline = Deadline::after_ns(kLongNs);
  while (value_of(memory, 5) == 0 && !deadline.has_passed()) pair.poll(0);
  EXPECT_EQ(value_of(memory, 5), 11U);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), from.bytes()), 0);
  pair.poll(1);
  EXPECT_EQ(pair.sinks[1].messages.size(), 1U);
  EXPECT_EQ(pair.sinks[0].dones.size(), 1U);
  EXPECT_TRUE(memory.are_guards_whole());
}

TEST_P(LocalWords, WakeWhoHasArmed) {
  ASSERT_TRUE(pair.transports[1]->arm());
  EXPECT_FALSE(becomes_readable(pair.transports[1]->wake_descriptor(), 0));
  ASSERT_EQ(pair.links[0]->post_word(WordKind::set, *words, 0, 1), Posted::ok);
  EXPECT_TRUE(becomes_readable(pair.transports[1]->wake_descriptor(), 1000));
  EXPECT_TRUE(pair.poll(1)) << "something has happened";
  EXPECT_FALSE(pair.poll(1)) << "and is told once";
  ASSERT_EQ(pair.links[0]->post_word(WordKind::add, *words, 0, 1), Posted::ok);
  EXPECT_FALSE(pair.transports[1]->arm()) << "what came before it slept";
  EXPECT_TRUE(pair.poll(1));
  EXPECT_TRUE(pair.transports[1]->arm());
}

TEST_P(LocalWords, OutsideThePeersMemoryNothingIsWritten) {
  EXPECT_EQ(pair.links[0]->post_word(WordKind::set, *words, kWords, 1), Posted::broken);
  pair.poll(0);
  EXPECT_EQ(pair.sinks[0].broken_count, 1);
  EXPECT_NE(pair.sinks[0].why.find("word 16"), std::string::npos) << pair.sinks[0].why;
  EXPECT_TRUE(memory.are_guards_whole());
}

TEST_P(LocalWords, ASmallWriteIsInPlaceWhenItWasPosted) {
  const auto bytes = pattern_of(40, 1);
  ASSERT_EQ(pair.links[0]->post_copied_write(bytes, *words, 8, false), Posted::ok);
  EXPECT_EQ(std::memcmp(memory.data() + 8, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(pair.links[0]->post_copied_write(bytes, *words, memory.bytes() - 39, false), Posted::full) << "beyond the end";
  const std::vector<std::byte> large(pair.links[0]->limits().copied_write_bytes + 1);
  EXPECT_EQ(pair.links[0]->post_copied_write(large, *words, 0, false), Posted::full);
  EXPECT_TRUE(memory.are_guards_whole());
}

TEST(LocalWord, ThatIsNotMappedIsRefusedWithTheReason) {
  Pair pair(kOtherProcess);
  std::vector<std::byte> plain(bytes_of_words(kWords));
  const auto region = must(pair.transports[1]->register_memory(plain_range(plain)));
  const auto remote = pair.shown(1, *region);
  EXPECT_NE(pair.links[0]->why_no_word(WordKind::set, *remote).find("does not map"), std::string::npos);
  EXPECT_EQ(pair.links[0]->post_copied_write(std::span(plain).first(40), *remote, 0, false), Posted::full);
  EXPECT_EQ(pair.links[0]->state(), LinkState::ready);
  Pair same;
  const auto skewed = must(same.transports[1]->register_memory({plain.data() + 1, bytes_of_words(kWords) - 1}));
  EXPECT_NE(same.links[0]->why_no_word(WordKind::set, *same.shown(1, *skewed)).find("not aligned"), std::string::npos);
}

// In one process the owner takes its words back while one of them waits for a copy: the pages are there until it is written.
TEST(LocalWord, ThatWaitsKeepsThePagesOfItsOwner) {
  constexpr std::size_t kBytes = bytes_of_words(kWords);
  Pair pair;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  bool is_there = true;
  MemoryRange range{memory, kBytes};
  range.pages = std::shared_ptr<void>(memory, [&](void* pages) { is_there = ::munmap(pages, kBytes) != 0; });
  auto region = must(pair.transports[1]->register_memory(range));
  auto words = pair.shown(1, *region);
  SharedMemory from(2 * local::kCpuSliceBytes), to(2 * local::kCpuSliceBytes);
  const auto local = must(pair.transports[0]->register_memory(from.range()));
  const auto target = must(pair.transports[1]->register_memory(to.range()));
  const auto remote = pair.shown(1, *target);
  ASSERT_EQ(pair.links[0]->post_write(*local, 0, *remote, 0, from.bytes(), 1), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_word(WordKind::set, *words, 5, 9), Posted::ok);
  range.pages.reset();
  region.reset();
  words.reset();
  ASSERT_TRUE(is_there);
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[0].dones.size() == 1; }));
  ASSERT_TRUE(pair.poll_until([&] { return !is_there; })) << "they are kept for ever";
}

// Three writers over three links, and the owner, which takes what it sees.
TEST(LocalWord, AddsOfThreeWritersAreExact) {
  constexpr std::uint32_t kAdds = 100'000;
  SharedMemory memory(bytes_of_words(kWords));
  std::memset(memory.data(), 0, memory.bytes());
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 3; ++writer) {
    writers.emplace_back([&memory] {
      Pair pair(kOtherProcess);
      const auto region = must(pair.transports[1]->register_memory(memory.range()));
      const auto words = pair.shown(1, *region);
      for (std::uint32_t add = 0; add < kAdds; ++add)
        ASSERT_EQ(pair.links[0]->post_word(WordKind::add, *words, 3, 1 + add % 2), Posted::ok);
    });
  }
  const std::atomic_ref word(*reinterpret_cast<std::uint32_t*>(memory.data() + word_value_at(3)));
  std::uint64_t taken = 0;
  const Deadline deadline = Deadline::after_ns(kLongNs);
  while (taken < std::uint64_t{3} * kAdds * 3 / 2 && !deadline.has_passed()) taken += word.exchange(0, std::memory_order_acquire);
  for (std::thread& writer : writers) writer.join();
  taken += word.load();
  EXPECT_EQ(taken, std::uint64_t{3} * kAdds * 3 / 2);
}

}  // namespace
}  // namespace gigabar::transport
