// SPDX-License-Identifier: Apache-2.0
// Messages, writes and reads between two transports of one process, of each kind whose target's CPU places all bytes. A kind names
// its `Pair`, and how much of everything there is.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <string>

#include "unit/transport/placing/pair.hpp"

namespace gigabar::transport::pairs {

template <class Kind>
class PlacedLinks : public testing::Test {};
TYPED_TEST_SUITE_P(PlacedLinks);

TYPED_TEST_P(PlacedLinks, Connects) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  EXPECT_EQ(pair.near_link->state(), LinkState::ready);
  EXPECT_EQ(pair.far_link->state(), LinkState::ready);
  for (const Link* link : {pair.near_link.get(), pair.far_link.get()})
    EXPECT_TRUE(link->rail().starts_with(TypeParam::kRail)) << link->rail();
  EXPECT_GE(pair.near_link->limits().payload_bytes, 4096u);
  EXPECT_EQ(pair.near->rails().size(), 1u);
}

TYPED_TEST_P(PlacedLinks, MessagesOfAllSizesArriveInOrder) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  const std::size_t most = pair.near_link->limits().payload_bytes;
  std::vector<std::size_t> sizes{0, 1, 7, 8, 63, 64, 65, 1023, 4095, 4096, 8000, 8192, 8193, 16384, 40000, most - 1, most};
  const std::vector<std::byte> data = patterned(most + 16, 3);
  constexpr unsigned kRounds = 20;
  for (unsigned round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::span<const std::byte> payload(data.data() + i % 16, sizes[i]);
      pair.post([&] { return pair.near_link->post_message(header_of(round * sizes.size() + i), payload); });
    }
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == kRounds * sizes.size(); }));
  for (std::size_t i = 0; i < pair.far_sink.messages.size(); ++i) {
    const Message& message = pair.far_sink.messages[i];
    ASSERT_EQ(number_of(message.header), i);
    const std::size_t kind = i % sizes.size();
    ASSERT_EQ(message.payload.size(), sizes[kind]);
    ASSERT_TRUE(std::equal(message.payload.begin(), message.payload.end(), data.begin() + static_cast<std::ptrdiff_t>(kind % 16)));
  }
}

TYPED_TEST_P(PlacedLinks, ManySmallMessagesBothWays) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::uint64_t kCount = TypeParam::kSmallMessages;
  std::uint64_t near_seen = 0, far_seen = 0, wrong = 0;
  const auto check = [&wrong](std::uint64_t& seen) {
    return [&wrong, &seen](Link&, const Header& header, std::span<const std::byte> payload) {
      if (number_of(header) != seen || payload.size() != seen % 100) ++wrong;
      for (std::size_t i = 0; i < payload.size(); ++i) wrong += payload[i] != pattern(i, 1) ? 1 : 0;
      ++seen;
    };
  };
  pair.near_sink.on_message = check(near_seen);
  pair.far_sink.on_message = check(far_seen);
  const std::vector<std::byte> data = patterned(100, 1);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::span<const std::byte> payload(data.data(), i % 100);
    pair.post([&] { return pair.near_link->post_message(header_of(i), payload); });
    pair.post([&] { return pair.far_link->post_message(header_of(i), payload); });
  }
  ASSERT_TRUE(pair.poll_until([&] { return near_seen == kCount && far_seen == kCount; })) << near_seen << ' ' << far_seen;
  EXPECT_EQ(wrong, 0u);
}

template <class Pair>
void write_and_read_back(Pair& pair, Buffer& source, Buffer& target, Buffer& back, std::size_t bytes, std::size_t offset) {
  const auto remote = pair.open_far(*target.region);
  const std::size_t far_offset = target.bytes - bytes - offset;
  pair.near_sink.dones.clear();
  ASSERT_TRUE(pair.near_link->reach(Direction::write, *source.region, *remote).can);
  EXPECT_EQ(pair.near_link->reach(Direction::read, *source.region, *remote).path, TransferPath::host);
  pair.post([&] { return pair.near_link->post_write(*source.region, offset, *remote, far_offset, bytes, 1); });
  pair.post([&] { return pair.near_link->post_message(header_of(bytes), {}); });
  const std::size_t messages = pair.far_sink.messages.size();
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() > messages; }));
  ASSERT_EQ(std::memcmp(target.data() + far_offset, source.data() + offset, bytes), 0) << bytes;
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.contains(1); }));
  pair.post([&] { return pair.near_link->post_read(*back.region, offset, *remote, far_offset, bytes, 2); });
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.contains(2); }));
  ASSERT_EQ(std::memcmp(back.data() + offset, source.data() + offset, bytes), 0) << bytes;
  EXPECT_EQ(pair.near_sink.dones[1] + pair.near_sink.dones[2], "");
}

TYPED_TEST_P(PlacedLinks, WritesAndReadsOfAllSizes) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kMax = TypeParam::kMaxBytes + 64;
  Buffer source(*pair.near, kMax), target(*pair.far, kMax), back(*pair.near, kMax);
  for (std::size_t i = 0; i < kMax; ++i) source.data()[i] = pattern(i, 9);
  constexpr std::size_t piece = TypeParam::kPiece;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{2}, std::size_t{63}, std::size_t{4096}, std::size_t{65535}, piece - 1,
                                  piece, piece + 1, std::size_t{1'000'003}, std::size_t{16} << 20, TypeParam::kMaxBytes}) {
    std::memset(target.data(), 0, kMax);
    ASSERT_NO_FATAL_FAILURE(write_and_read_back(pair, source, target, back, bytes, 17)) << bytes;
    const std::size_t begin = kMax - bytes - 17;
    EXPECT_TRUE(begin == 0 || target.data()[begin - 1] == std::byte{0}) << "before the write";
    EXPECT_EQ(target.data()[begin + bytes], std::byte{0}) << "after the write";
    EXPECT_TRUE(target.is_guarded() && back.is_guarded());
  }
}

// Each message names what the write before it left, and the next write to the same place waits for nothing.
TYPED_TEST_P(PlacedLinks, AMessageComesAfterTheWritesBeforeIt) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kSlotBytes = 300'000, kSlots = 32;
  Buffer source(*pair.near, kSlotBytes * kSlots), target(*pair.far, kSlotBytes * kSlots);
  const auto remote = pair.open_far(*target.region);
  std::uint64_t checked = 0, wrong = 0;
  pair.far_sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    const std::uint64_t number = number_of(header);
    const std::size_t bytes = 1 + number * 7919 % kSlotBytes;
    const std::byte* slot = target.data() + number % kSlots * kSlotBytes;
    wrong +=
        slot[0] != pattern(number, 5) || slot[bytes - 1] != pattern(number, 5) || slot[bytes / 2] != pattern(number, 5) ? 1 : 0;
    wrong += number != checked ? 1 : 0;
    ++checked;
  };
  constexpr std::uint64_t kCount = TypeParam::kOrderedWrites;
  for (std::uint64_t number = 0; number < kCount; ++number) {
    // The slot of `number` may be written again when its last use is done and was checked.
    ASSERT_TRUE(pair.poll_until(
        [&] { return number < kSlots || (checked + kSlots > number && pair.near_sink.dones.contains(number - kSlots)); }));
    const std::size_t at = number % kSlots * kSlotBytes, bytes = 1 + number * 7919 % kSlotBytes;
    std::memset(source.data() + at, static_cast<int>(pattern(number, 5)), bytes);
    pair.post([&] { return pair.near_link->post_write(*source.region, at, *remote, at, bytes, number); });
    pair.post([&] { return pair.near_link->post_message(header_of(number), {}); });
  }
  ASSERT_TRUE(pair.poll_until([&] { return checked == kCount && pair.near_sink.dones.size() == kCount; }));
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(target.is_guarded());
}

TYPED_TEST_P(PlacedLinks, WritesAndReadsBothWaysAtOnce) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kBytes = 5'000'000;
  Buffer near_from(*pair.near, kBytes), near_to(*pair.near, kBytes), far_from(*pair.far, kBytes), far_to(*pair.far, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) near_from.data()[i] = pattern(i, 1), far_from.data()[i] = pattern(i, 2);
  const auto far_target = pair.open_far(*far_to.region), far_source = pair.open_far(*far_from.region);
  auto key = near_from.region->key(pair.to_far);
  const auto near_source = pair.far->open_region(pair.to_near, std::move(*key));
  ASSERT_TRUE(near_source);
  Buffer far_copy(*pair.far, kBytes);
  for (std::uint64_t round = 0; round < 5; ++round) {
    pair.post([&] { return pair.near_link->post_write(*near_from.region, 0, *far_target, 0, kBytes, 10 + round); });
    pair.post([&] { return pair.near_link->post_read(*near_to.region, 0, *far_source, 0, kBytes, 20 + round); });
    pair.post([&] { return pair.far_link->post_read(*far_copy.region, 0, **near_source, 0, kBytes, 30 + round); });
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == 10 && pair.far_sink.dones.size() == 5; }));
  pair.post([&] { return pair.near_link->post_message(header_of(1), {}); });
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1; }));
  EXPECT_EQ(std::memcmp(far_to.data(), near_from.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(near_to.data(), far_from.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(far_copy.data(), near_from.data(), kBytes), 0);
}

TYPED_TEST_P(PlacedLinks, AReceiverThatDoesNotPollFillsTheSender) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  const std::vector<std::byte> data = patterned(4096, 2);
  std::uint64_t posted = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (pair.near_link->post_message(header_of(posted), data) != Posted::ok) break;
    ++posted;
    pair.near->poll(pair.near_sink);
  }
  EXPECT_LT(posted, TypeParam::kMaxUnread) << "more than the sockets, the queue and the window hold";
  EXPECT_GE(posted, 100u);
  for (int i = 0; i < 1000; ++i) {
    pair.near->poll(pair.near_sink);
    ASSERT_EQ(pair.near_link->post_message(header_of(posted), data), Posted::full);
  }
  // It goes on when the receiver does.
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == posted; }));
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_link->post_message(header_of(posted), data) == Posted::ok; }));
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == posted + 1; }));
  for (std::uint64_t i = 0; i <= posted; ++i) ASSERT_EQ(number_of(pair.far_sink.messages[i].header), i);
}

TYPED_TEST_P(PlacedLinks, LimitsAreThoseOfTheProtocol) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  const LinkLimits& limits = pair.near_link->limits();
  EXPECT_EQ(limits.payload_bytes, 60U << 10);
  EXPECT_EQ(limits.write_bytes, kTransferBytes);
  EXPECT_EQ(limits.read_bytes, kTransferBytes);
  EXPECT_EQ(limits.copied_write_bytes, 0U) << "it has none";
}

TYPED_TEST_P(PlacedLinks, HasNoWordsAndSaysWhy) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer words(*pair.far, bytes_of_words(64));
  const auto remote = pair.open_far(*words.region);
  for (const WordKind kind : {WordKind::set, WordKind::add}) {
    EXPECT_NE(pair.near_link->why_no_word(kind, *remote).find(std::string("over ") + TypeParam::kName + " the target's CPU"),
              std::string::npos);
    EXPECT_EQ(pair.near_link->post_word(kind, *remote, 0, 1), Posted::full);
  }
  EXPECT_EQ(pair.near->why_no_words(), pair.near_link->why_no_word(WordKind::set, *remote));
}

TYPED_TEST_P(PlacedLinks, SoManyTransfersAndNoMore) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kBytes = 1 << 20;
  Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  std::uint64_t posted = 0;
  while (posted < 1000 && pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, posted) == Posted::ok) ++posted;
  EXPECT_GE(posted, kMaxTransfers);
  EXPECT_LT(posted, 1000u);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == posted; }));
}

TYPED_TEST_P(PlacedLinks, RangesOutsideTheirRegions) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer source(*pair.near, 1000), target(*pair.far, 1000);
  const auto remote = pair.open_far(*target.region);
  Link& link = *pair.near_link;
  const auto most = ~std::uint64_t{0};
  EXPECT_EQ(link.post_write(*source.region, 1, *remote, 0, 1000, 1), Posted::ok);
  EXPECT_EQ(link.post_write(*source.region, 0, *remote, 1, 1000, 2), Posted::ok);
  EXPECT_EQ(link.post_write(*source.region, 0, *remote, most, 2, 3), Posted::ok);
  EXPECT_EQ(link.post_read(*source.region, most - 1, *remote, 0, 4, 4), Posted::ok);
  EXPECT_EQ(link.post_read(*source.region, 0, *remote, 0, most, 5), Posted::ok);
  EXPECT_EQ(link.post_write(*source.region, 0, *remote, 0, 0, 6), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.size() == 6; }));
  for (const auto& [cookie, error] : pair.near_sink.dones) EXPECT_NE(error.find("leave a region"), std::string::npos) << cookie;
  EXPECT_EQ(link.state(), LinkState::ready);
}

TYPED_TEST_P(PlacedLinks, TheSinkMayPostFromItsCalls) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  std::uint64_t turns = 0;
  const auto reply = [&](Link& link, const Header& header, std::span<const std::byte> payload) {
    ++turns;
    if (turns < TypeParam::kTurns) {
      EXPECT_EQ(link.post_message(header, payload), Posted::ok);
    }
  };
  pair.near_sink.on_message = reply;
  pair.far_sink.on_message = reply;
  pair.post([&] { return pair.near_link->post_message(header_of(0), {}); });
  ASSERT_TRUE(pair.poll_until([&] { return turns == TypeParam::kTurns; }));
}

// A link whose peer alone speaks is asked first; others are heard all the same, and its end too.
// A sleeping receiver: armed, then woken by what comes.
TYPED_TEST_P(PlacedLinks, SleepsAndIsWoken) {
  typename TypeParam::Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  for (std::uint64_t round = 1; round <= 20; ++round) {
    pollfd watched{pair.far->wake_descriptor(), POLLIN, 0};
    ASSERT_TRUE(pair.poll_until([&] {
      pair.poll();
      return pair.far->arm() && ::poll(&watched, 1, round == 1 ? 20 : 0) == 0;
    })) << "woken all the time, although nothing is sent";
    ASSERT_EQ(pair.near_link->post_message(header_of(round), {}), Posted::ok);
    const Deadline deadline = Deadline::after_ns(kPatienceNs);
    while (pair.far_sink.messages.size() < round && !deadline.has_passed()) {
      pair.near->poll(pair.near_sink);
      if (::poll(&watched, 1, 10) > 0) {
        do pair.far->poll(pair.far_sink);
        while (!pair.far->arm());
      }
    }
    ASSERT_EQ(pair.far_sink.messages.size(), round);
  }
}

// A peer that answers and is gone before this side looks, which learns of it while it sends.
// The kernel's limit on silence also counts the time in which the other end does not read.
// Nobody reads what comes to a link that goes, and the peer reads what that has sent a while later.

REGISTER_TYPED_TEST_SUITE_P(PlacedLinks, Connects, MessagesOfAllSizesArriveInOrder, ManySmallMessagesBothWays,
                            WritesAndReadsOfAllSizes, AMessageComesAfterTheWritesBeforeIt, WritesAndReadsBothWaysAtOnce,
                            AReceiverThatDoesNotPollFillsTheSender, LimitsAreThoseOfTheProtocol, HasNoWordsAndSaysWhy,
                            SoManyTransfersAndNoMore, RangesOutsideTheirRegions, TheSinkMayPostFromItsCalls, SleepsAndIsWoken);

}  // namespace gigabar::transport::pairs
