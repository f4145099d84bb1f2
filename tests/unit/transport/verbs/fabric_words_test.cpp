// SPDX-License-Identifier: Apache-2.0
// A rank that speaks to itself over an adapter of the fake library: how its notifications go, and what they pin.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gigabar/fabric.hpp"
#include "support/isolated.hpp"
#include "transport/transport.hpp"
#include "unit/transport/verbs/fake_rdma.hpp"

namespace gigabar::transport {
namespace {

using test::FakeMachine;

constexpr Timeout kPatience = Timeout::of(std::chrono::seconds(20));
constexpr SegmentId kSegment = 3;
constexpr std::size_t kBytes = 4096;
constexpr auto kCounted = static_cast<NotificationId>(kCountedWords);

struct Rank0 {
  explicit Rank0(FabricOptions options = {}) {
    options.rank = 0;
    options.rank_count = 1;
    options.transports = {TransportKind::verbs};
    auto opened = Fabric::open(options);
    EXPECT_TRUE(opened) << opened.error().message();
    if (!opened) return;
    fabric.emplace(std::move(*opened));
    const Result<void> registered = fabric->register_segment(kSegment, memory.data(), memory.size());
    EXPECT_TRUE(registered) << registered.message();
  }
  std::string way_of(const Result<Operation>& posted) {
    if (!posted) return posted.error().message();
    const auto report = fabric->report(*posted);
    return report ? report->notification : report.error().message();
  }
  std::uint64_t taken(NotificationId id) {
    EXPECT_TRUE(fabric->flush(0, kPatience));
    const auto value = fabric->notification_reset(kSegment, id);
    return value ? *value : ~std::uint64_t{0};
  }

  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  std::optional<Fabric> fabric;
};

// The adapter has 16 atomics under way at most. What is posted meanwhile says that it went in a message, and writes its data once.
ISOLATED_TEST(VerbsFabricWords, AddsBeyondTheAdaptersAtomicsAreReportedAsMessages) {
  const FakeMachine machine("a0 10.9.0.1");
  Rank0 rank;
  ASSERT_TRUE(rank.fabric);
  ASSERT_EQ(rank.way_of(rank.fabric->notify_add(0, kSegment, 1, 1)).find("a word behind the data, over a0/1"), 0U);
  const std::uint64_t before = rank.taken(1);
  ASSERT_EQ(before, 1U);
  for (const bool has_data : {false, true}) {
    std::uint64_t posted = 0;
    std::string way;
    const auto post = [&] {
      ++posted;
      return has_data ? rank.fabric->write_notify_add({kSegment, 0}, {0, kSegment, 2048}, 40, 1, 1)
                      : rank.fabric->notify_add(0, kSegment, 1, 1);
    };
    // More than fit.
    const int writes = test::writes();
    test::hold(true);
    while (posted < 20 && way.find("in a message: the adapter has as many atomics") != 0) way = rank.way_of(post());
    test::hold(false);
    EXPECT_EQ(way.find("in a message: the adapter has as many atomics"), 0U) << way;
    if (has_data) {
      EXPECT_EQ(static_cast<std::uint64_t>(test::writes() - writes), posted) << "data was written twice";
    }
    EXPECT_EQ(rank.taken(1), posted);
    // The message is in place: words are used again.
    EXPECT_EQ(rank.way_of(post()).find("a word behind the data"), 0U);
    EXPECT_EQ(rank.taken(1), 1U);
  }
}

// Behind a message a small write is one itself, with its notification. A program that only polls comes back to words.
ISOLATED_TEST(VerbsFabricWords, AreUsedAgainWhenMessagesAreInPlace) {
  const FakeMachine machine("a0 10.9.0.1");
  Rank0 rank;
  ASSERT_TRUE(rank.fabric);
  const auto write = [&](std::size_t bytes) {
    return rank.way_of(rank.fabric->write_notify({kSegment, 0}, {0, kSegment, 2048}, bytes, 1, 1));
  };
  ASSERT_EQ(write(40).find("a word behind the data"), 0U);
  const std::uint64_t ordered = 7;
  for (const std::size_t bytes : {std::size_t{40}, std::size_t{1500}}) {
    ASSERT_TRUE(rank.fabric->write_in_order(&ordered, {0, kSegment, 0}, sizeof ordered));
    EXPECT_EQ(write(bytes), "in the message with the data");
    for (int poll = 0; poll < 200; ++poll) ASSERT_TRUE(rank.fabric->progress());
    EXPECT_EQ(write(bytes).find("a word behind the data"), 0U);
    EXPECT_EQ(rank.taken(1), 1U);
  }
}

// A small write whose notification would be a word, were it not for a message before it, asks at once when that is in place: a
// message more. The fabric's own thread asks too, when it gets to run in between, so that most of the attempts count.
ISOLATED_TEST(VerbsFabricWords, AreAskedForBehindASmallWriteInAMessage) {
  const FakeMachine machine("a0 10.9.0.1");
  Rank0 rank;
  ASSERT_TRUE(rank.fabric);
  constexpr int kAttempts = 40;
  const std::uint64_t ordered = 7;
  std::vector<int> counts;  // of messages
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    EXPECT_TRUE(rank.fabric->flush(0, kPatience));
    test::hold(true);
    EXPECT_TRUE(rank.fabric->write_in_order(&ordered, {0, kSegment, 0}, sizeof ordered));
    const int before = test::messages();
    const auto posted = rank.fabric->write_notify({kSegment, 0}, {0, kSegment, 0}, 40, 1, 1);
    counts.push_back(test::messages() - before);
    test::hold(false);
    EXPECT_EQ(rank.way_of(posted), "in the message with the data");
  }
  std::nth_element(counts.begin(), counts.begin() + kAttempts / 2, counts.end());
  EXPECT_EQ(counts[kAttempts / 2], 2) << "the write, and the question";
  EXPECT_TRUE(rank.fabric->wait(0, kPatience));
}

ISOLATED_TEST(VerbsFabricWords, WithoutAtomicsAddsAreMessages) {
  const FakeMachine machine("a0 10.9.0.1 no_atomics");
  Rank0 rank;
  ASSERT_TRUE(rank.fabric);
  EXPECT_EQ(rank.way_of(rank.fabric->notify_add(0, kSegment, 1, 5)).find("in a message: the peer's adapters have no atomics"), 0U);
  EXPECT_EQ(rank.taken(1), 5U);
  EXPECT_EQ(rank.way_of(rank.fabric->notify(0, kSegment, 1, 5)).find("a word behind the data"), 0U);
}

// Nothing before a peer asks for the words; then those that adapters write, and the others go in messages.
ISOLATED_TEST(VerbsFabricWords, PinFewPagesWhenAPeerAsks) {
  const FakeMachine machine("a0 10.9.0.1");
  Rank0 rank;
  ASSERT_TRUE(rank.fabric);
  ASSERT_TRUE(rank.fabric->connect(0, kPatience));
  const std::size_t before = test::registered();
  ASSERT_TRUE(rank.fabric->register_segment(4, rank.memory.data(), kBytes));
  EXPECT_EQ(test::registered() - before, kBytes) << "no word before it is asked for";
  EXPECT_EQ(rank.way_of(rank.fabric->notify(0, 4, kCounted - 1, 1)).find("a word behind the data"), 0U);
  EXPECT_EQ(test::registered() - before, kBytes + std::size_t{16} * 1024);
  EXPECT_EQ(rank.way_of(rank.fabric->notify(0, 4, kCounted, 1)).find("in a message: adapters write the notifications below 1024"),
            0U);
  for (const NotificationId id : {kCounted - 1, kCounted}) {
    EXPECT_TRUE(rank.fabric->notification_wait(4, id, 1, kPatience));
  }
}

ISOLATED_TEST(VerbsFabricWords, CanBeTurnedOff) {
  const FakeMachine machine("a0 10.9.0.1");
  FabricOptions options;
  options.notification_words = false;
  Rank0 rank(options);
  ASSERT_TRUE(rank.fabric);
  EXPECT_EQ(rank.way_of(rank.fabric->notify(0, kSegment, 1, 5)).find("in a message: notification_words is off"), 0U);
  EXPECT_EQ(rank.taken(1), 5U);
}

}  // namespace
}  // namespace gigabar::transport
