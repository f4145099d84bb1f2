// SPDX-License-Identifier: Apache-2.0
// Messages: every size between every kind of memory, in order, by rank, tag and mask; too long ones, cancelled receives.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <thread>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr Tag kAllBits = ~Tag{0};

Rank next(const RankProcess& me) { return (me.rank() + 1) % me.rank_count(); }
Rank previous(const RankProcess& me) { return (me.rank() + me.rank_count() - 1) % me.rank_count(); }

// Around in a ring: each sends to the next and receives of the one before.
void pass_on(RankProcess& me, Fabric& fabric, RankMemory& origin, RankMemory& target, std::size_t bytes) {
  const std::uint64_t seed = bytes * 8 + me.rank(), its_seed = bytes * 8 + previous(me);
  origin.put_pattern(1, bytes, seed, 0);
  target.fill();
  const auto receive = fabric.post_recv(previous(me), bytes, kAllBits, target.address() + 3, bytes);
  ASSERT_TRUE(is_ok(receive));
  const auto sent = fabric.post_send(next(me), bytes, origin.address() + 1, bytes);
  ASSERT_TRUE(is_ok(sent));
  const auto received = fabric.wait_message(*receive, kPatience);
  ASSERT_TRUE(is_ok(received)) << bytes << " bytes";
  EXPECT_EQ(received->rank, previous(me));
  EXPECT_EQ(received->tag, bytes);
  EXPECT_EQ(received->bytes, bytes);
  ASSERT_TRUE(is_ok(fabric.wait_message(*sent, kPatience))) << bytes << " bytes";
  ASSERT_TRUE(target.holds_pattern(3, bytes, its_seed, 0)) << bytes << " bytes";
  ASSERT_TRUE(target.is_untouched_around(3, bytes)) << bytes << " bytes";
}

RANK_BODY(send_every_size) {
  const std::size_t most = me.setup().amount;
  RankMemory origin(me.setup().origin, most + 8), target(me.setup().target, most + 8);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{63}, std::size_t{64},
                                  std::size_t{65}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, std::size_t{8192},
                                  std::size_t{8193}, std::size_t{65535}, std::size_t{65537}, kMiB + 3, 16 * kMiB + 1, most}) {
    if (bytes <= most) {
      ASSERT_NO_FATAL_FAILURE(pass_on(me, fabric, origin, target, bytes));
    }
  }
}

// A message that came before anybody asked for it, of every size.
RANK_BODY(receive_late) {
  constexpr std::array<std::size_t, 7> kSizes{0, 1, 4096, 8193, 65537, kMiB + 3, 4 * kMiB};
  std::vector<std::unique_ptr<RankMemory>> sources;
  std::vector<Operation> sends;
  for (const std::size_t bytes : kSizes) {
    sources.push_back(std::make_unique<RankMemory>(me.setup().origin, bytes + 1));
    sources.back()->put_pattern(0, bytes, bytes + me.rank(), 0);
    const auto sent = fabric.post_send(next(me), bytes, sources.back()->address(), bytes);
    ASSERT_TRUE(is_ok(sent));
    sends.push_back(*sent);
  }
  ASSERT_TRUE(me.meet());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (std::size_t i = kSizes.size(); i-- > 0;) {  // asked for in another order than they came
    const std::size_t bytes = kSizes[i];
    RankMemory target(me.setup().target, bytes + 16);
    const auto received = fabric.recv(previous(me), bytes, target.address(), bytes + 16, kPatience);
    ASSERT_TRUE(is_ok(received)) << bytes << " bytes";
    EXPECT_EQ(received->bytes, bytes) << "fewer than there is room for";
    EXPECT_TRUE(target.holds_pattern(0, bytes, bytes + previous(me), 0));
    EXPECT_TRUE(target.is_untouched_around(0, bytes));
  }
  for (const Operation sent : sends) ASSERT_TRUE(is_ok(fabric.wait_message(sent, kPatience)));
}

// Sizes that take different ways, all with one tag: they are received in the order in which they were sent.
RANK_BODY(keep_the_order) {
  constexpr std::size_t kMost = 200000, kWindow = 32;
  std::vector<std::vector<unsigned char>> sources(kWindow, std::vector<unsigned char>(kMost));
  std::vector<Operation> sends;
  std::vector<unsigned char> target(kMost);
  for (std::size_t i = 0; i < me.setup().amount; ++i) {
    const std::size_t bytes = (i * 7919) % 11 == 0 ? (i * 104729) % kMost : (i * 31) % 3000;
    if (me.rank() == 0) {
      if (i >= kWindow) {
        ASSERT_NO_FATAL_FAILURE(ASSERT_TRUE(is_ok(fabric.wait_message(sends[i - kWindow], kPatience))));
      }
      fill_pattern(sources[i % kWindow].data(), bytes, i);
      const auto sent = fabric.post_send(1, 4, sources[i % kWindow].data(), bytes);
      ASSERT_TRUE(is_ok(sent)) << "message " << i;
      sends.push_back(*sent);
    } else {
      const auto received = fabric.recv(i % 2 == 0 ? 0 : kAnyRank, 4, target.data(), kMost, kPatience);
      ASSERT_TRUE(is_ok(received)) << "message " << i;
      ASSERT_EQ(received->bytes, bytes) << "message " << i << " is another one";
      ASSERT_TRUE(is_pattern(target.data(), bytes, i)) << "message " << i;
    }
  }
  for (std::size_t i = sends.size() < kWindow ? 0 : sends.size() - kWindow; i < sends.size(); ++i) {
    ASSERT_TRUE(is_ok(fabric.wait_message(sends[i], kPatience)));
  }
}

// --- Who, and which tag ---------------------------------------------------------------------------------------------------------

struct Letter {
  Rank from = 0;
  std::uint32_t number = 0;
  bool operator==(const Letter&) const = default;
};

RANK_BODY(receive_of_any_rank) {
  constexpr std::uint32_t kEach = 300;
  if (me.rank() != 0) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const Letter letter{me.rank(), i};
      ASSERT_TRUE(is_ok(fabric.send(0, Tag{me.rank()} << 32 | i, &letter, sizeof letter, kPatience)));
    }
    return;
  }
  std::vector<std::uint32_t> seen(me.rank_count(), 0);
  for (std::uint32_t i = 0; i < kEach * (me.rank_count() - 1); ++i) {
    Letter letter;
    const auto posted = fabric.post_recv(kAnyRank, 0, 0, &letter, sizeof letter);
    ASSERT_TRUE(is_ok(posted));
    const auto received = fabric.wait_message(*posted, kPatience);
    ASSERT_TRUE(is_ok(received)) << "message " << i;
    ASSERT_LT(received->rank, me.rank_count());
    ASSERT_EQ(letter, (Letter{received->rank, seen[received->rank]})) << "not the next one of rank " << received->rank;
    ASSERT_EQ(received->tag, Tag{received->rank} << 32 | letter.number);
    ++seen[received->rank];
  }
}

RANK_BODY(choose_by_mask) {
  constexpr std::uint32_t kCount = 40;
  if (me.rank() == 0) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(is_ok(fabric.send(1, Tag{0xabcd} << 48 | i, &i, sizeof i, kPatience)));
    }
    return;
  }
  const auto take = [&](Rank from, Tag tag, Tag mask) {
    std::uint32_t number = kCount;
    const auto posted = fabric.post_recv(from, tag, mask, &number, sizeof number);
    EXPECT_TRUE(is_ok(posted));
    if (posted) {
      EXPECT_TRUE(is_ok(fabric.wait_message(*posted, kPatience)));
    }
    return number;
  };
  EXPECT_EQ(take(0, Tag{0xabcd} << 48 | 17, kAllBits), 17U) << "by its whole tag";
  for (std::uint32_t i = 1; i < 17; i += 2) EXPECT_EQ(take(0, 1, 1), i) << "odd ones, in order";
  EXPECT_EQ(take(kAnyRank, Tag{0xabcd} << 48, Tag{0xffff} << 48), 0U) << "the first one with these upper bits";
  EXPECT_EQ(take(0, 0x10, 0x30), 16U);
  EXPECT_EQ(take(0, 0, 0), 2U) << "any tag";
  std::uint32_t unused = 0;
  const auto none = fabric.post_recv(0, Tag{0xabce} << 48, Tag{0xffff} << 48, &unused, sizeof unused);
  ASSERT_TRUE(is_ok(none));
  EXPECT_TRUE(fails(fabric.wait_message(*none, Timeout::of(std::chrono::milliseconds(50))), Status::timed_out));
  EXPECT_TRUE(is_ok(fabric.cancel_recv(*none)));
}

// Receives that were posted first match first.
RANK_BODY(first_receive_first) {
  constexpr std::size_t kCount = 100;
  std::array<std::uint32_t, kCount> numbers{};
  std::vector<Operation> receives;
  if (me.rank() == 1) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto posted = fabric.post_recv(i % 2 == 0 ? kAnyRank : 0, 9, i % 3 == 0 ? 1 : kAllBits, &numbers[i], sizeof numbers[i]);
      ASSERT_TRUE(is_ok(posted));
      receives.push_back(*posted);
    }
  }
  ASSERT_TRUE(me.meet());
  for (std::uint32_t i = 0; i < kCount && me.rank() == 0; ++i) ASSERT_TRUE(is_ok(fabric.send(1, 9, &i, sizeof i, kPatience)));
  for (std::uint32_t i = 0; i < receives.size(); ++i) {
    ASSERT_TRUE(is_ok(fabric.wait_message(receives[i], kPatience)));
    EXPECT_EQ(numbers[i], i);
  }
}

RANK_BODY(keep_many_under_way) {
  constexpr std::size_t kCount = 1000, kBytes = 3000;
  std::vector<unsigned char> memory(kCount * kBytes, kCanary);
  std::vector<Operation> all;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t which = me.rank() == 0 ? kCount - 1 - i : i;  // sent in the other order
    unsigned char* place = memory.data() + which * kBytes;
    if (me.rank() == 0) fill_pattern(place, which * 3, which);
    const auto posted = me.rank() == 0 ? fabric.post_send(1, which, place, which * 3, {.queue = 2, .policy = std::nullopt})
                                       : fabric.post_recv(0, which, kAllBits, place, kBytes, {.queue = 2, .policy = std::nullopt});
    ASSERT_TRUE(is_ok(posted)) << "message " << which;
    all.push_back(*posted);
  }
  for (const Operation operation : all) ASSERT_TRUE(is_ok(fabric.wait_message(operation, kPatience)));
  for (std::size_t i = 0; i < kCount && me.rank() == 1; ++i) {
    ASSERT_TRUE(is_pattern(memory.data() + i * kBytes, i * 3, i)) << "message " << i;
    ASSERT_TRUE(is_filled(memory.data() + i * kBytes + i * 3, kBytes - i * 3)) << "message " << i;
  }
}

// More than any counter of 16 bits holds.
RANK_BODY(send_very_many) {
  constexpr std::size_t kWindow = 256;
  std::array<std::uint64_t, kWindow> numbers{};
  std::array<std::optional<Operation>, kWindow> under_way;
  for (std::uint64_t i = 0; i < me.setup().amount; ++i) {
    const std::size_t slot = i % kWindow;
    if (me.rank() == 0) {
      if (under_way[slot]) {
        ASSERT_NO_FATAL_FAILURE(ASSERT_TRUE(is_ok(fabric.wait_message(*under_way[slot], kPatience))));
      }
      numbers[slot] = i;
      const auto sent = fabric.post_send(1, i, &numbers[slot], sizeof i);
      ASSERT_TRUE(is_ok(sent)) << "message " << i;
      under_way[slot] = *sent;
    } else {
      std::uint64_t number = 0;
      const auto received = fabric.recv(0, i, &number, sizeof number, kPatience);
      ASSERT_TRUE(is_ok(received)) << "message " << i;
      ASSERT_EQ(number, i);
    }
  }
  for (const auto& last : under_way) {
    if (last) {
      ASSERT_NO_FATAL_FAILURE(ASSERT_TRUE(is_ok(fabric.wait_message(*last, kPatience))));
    }
  }
}

// --- Errors ---------------------------------------------------------------------------------------------------------------------

// A message that is longer than the room for it: posted before, and come before.
RANK_BODY(refuse_too_long) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{9000}, kMiB}) {
    for (const bool is_late : {false, true}) {
      RankMemory memory(me.rank() == 0 ? me.setup().origin : me.setup().target, bytes);
      std::optional<Operation> receive;
      if (me.rank() == 1 && !is_late) receive = *fabric.post_recv(0, bytes, kAllBits, memory.address(), bytes - 60);
      ASSERT_TRUE(me.meet());
      if (me.rank() == 0) {
        memory.put_pattern(0, bytes, bytes, 0);
        const auto sent = fabric.post_send(1, bytes, memory.address(), bytes);
        ASSERT_TRUE(is_ok(sent));
        ASSERT_TRUE(me.meet());
        const auto ended = fabric.wait_message(*sent, kPatience);  // the sender may be told, and may not
        EXPECT_TRUE(ended.is_ok() || ended.status() == Status::out_of_range) << ended.error().message();
      } else {
        ASSERT_TRUE(me.meet());
        if (is_late) receive = *fabric.post_recv(0, bytes, kAllBits, memory.address(), bytes - 60);
        EXPECT_TRUE(fails(fabric.wait_message(*receive, kPatience), Status::out_of_range))
            << bytes << (is_late ? " late" : " early");
        EXPECT_TRUE(memory.is_untouched_around(0, bytes - 60)) << "written beyond the room";
        EXPECT_TRUE(
            fails(fabric.recv(0, bytes, memory.address(), bytes, Timeout::of(std::chrono::milliseconds(50))), Status::timed_out))
            << "the message was to be consumed";
      }
      ASSERT_TRUE(me.meet());
    }
  }
  const Letter letter{7, 7};
  Letter seen;
  if (me.rank() == 0) {
    EXPECT_TRUE(is_ok(fabric.send(1, 1, &letter, sizeof letter, kPatience)));
  } else {
    EXPECT_TRUE(is_ok(fabric.recv(0, 1, &seen, sizeof seen, kPatience)));
    EXPECT_EQ(seen, letter) << "messages go on";
  }
}

RANK_BODY(cancel_receives) {
  std::array<Letter, 3> seen{};
  if (me.rank() == 0) {
    ASSERT_TRUE(me.meet());
    const Letter letter{0, 1};
    ASSERT_TRUE(is_ok(fabric.send(1, 5, &letter, sizeof letter, kPatience)));
    return;
  }
  std::vector<Operation> receives;
  for (Letter& letter : seen) {
    const auto posted = fabric.post_recv(0, 5, kAllBits, &letter, sizeof letter);
    ASSERT_TRUE(is_ok(posted));
    receives.push_back(*posted);
  }
  EXPECT_TRUE(is_ok(fabric.cancel_recv(receives[0])));
  EXPECT_FALSE(fabric.wait_message(receives[0], Timeout::test()).is_ok()) << "it was taken back";
  EXPECT_FALSE(fabric.cancel_recv(receives[0]).is_ok()) << "twice";
  EXPECT_TRUE(is_ok(fabric.cancel_recv(receives[2])));
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.wait_message(receives[1], kPatience)));
  EXPECT_EQ(seen[1], (Letter{0, 1})) << "the one that was left took the message";
  EXPECT_EQ(seen[0], Letter{});
  EXPECT_EQ(seen[2], Letter{});
}

RANK_BODY(cancel_what_is_done) {
  Letter letter;
  if (me.rank() == 0) {
    ASSERT_TRUE(is_ok(fabric.send(1, 5, &letter, sizeof letter, kPatience)));
    ASSERT_TRUE(is_ok(fabric.send(1, 6, &letter, sizeof letter, kPatience)));
    return;
  }
  const auto posted = fabric.post_recv(0, 5, kAllBits, &letter, sizeof letter);
  ASSERT_TRUE(is_ok(posted));
  ASSERT_TRUE(is_ok(fabric.recv(0, 6, &letter, sizeof letter, kPatience)));  // so that the one before has come too
  EXPECT_TRUE(fails(fabric.cancel_recv(*posted), Status::busy));
  EXPECT_TRUE(is_ok(fabric.wait_message(*posted, kPatience)));
  EXPECT_FALSE(fabric.wait_message(*posted, Timeout::test()).is_ok()) << "an operation is waited for once";
}

// A send that nobody receives in time is taken back: its source is the caller's again, and the receiver never hears of it. A small
// one may be on its way.
RANK_BODY(leave_sends) {
  constexpr std::size_t kBytes = 256 * 1024;
  const Timeout kShort = Timeout::of(std::chrono::milliseconds(50));
  std::vector<unsigned char> buffer(kBytes);
  if (me.rank() == 0) {
    // More than a receiver holds offers of one peer for.
    for (int count = 0; count < 30; ++count) {
      std::vector<unsigned char> gone(kBytes, 0xee);
      ASSERT_TRUE(fails(fabric.send(1, 4, gone.data(), gone.size(), count == 0 ? kShort : Timeout::test()), Status::timed_out));
      std::fill(gone.begin(), gone.end(), 0xdd);
    }
    ASSERT_TRUE(is_ok(fabric.send(1, 5, nullptr, 0, kPatience)));
    fill_pattern(buffer.data(), kBytes, 5);
    EXPECT_TRUE(is_ok(fabric.send(1, 4, buffer.data(), kBytes, kPatience)));
    return;
  }
  // Behind the offers and what took them back.
  ASSERT_TRUE(is_ok(fabric.recv(0, 5, nullptr, 0, kPatience)));
  const auto received = fabric.recv(0, 4, buffer.data(), kBytes, kPatience);
  ASSERT_TRUE(is_ok(received));
  EXPECT_EQ(received->bytes, kBytes);
  EXPECT_TRUE(is_pattern(buffer.data(), kBytes, 5)) << "it is one that was taken back";
}

// Where a receive meets the offer while it is taken back, the receive ends with an error, and not never.
RANK_BODY(leave_sends_that_are_met) {
  constexpr std::size_t kBytes = 64 * 1024;
  std::vector<unsigned char> buffer(kBytes, 's');
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(me.meet());
    if (me.rank() == 0) {
      const Result<void> sent = fabric.send(1, 4, buffer.data(), kBytes, Timeout::of(std::chrono::microseconds(round * 4)));
      ASSERT_TRUE(sent.is_ok() || sent.status() == Status::timed_out) << sent.message();
      ASSERT_TRUE(me.meet());
      // Behind it, in any case.
      ASSERT_TRUE(is_ok(fabric.send(1, 4, buffer.data(), 1, kPatience)));
      continue;
    }
    const auto first = fabric.post_recv(0, 4, kAllBits, buffer.data(), kBytes);
    ASSERT_TRUE(is_ok(first));
    ASSERT_TRUE(me.meet());
    auto received = fabric.wait_message(*first, kPatience);
    ASSERT_TRUE(received.is_ok() || received.status() == Status::unavailable) << received.error().message();
    const bool is_the_last = received.is_ok() && received->bytes == 1;
    if (!is_the_last) received = fabric.recv(0, 4, buffer.data(), kBytes, kPatience);
    ASSERT_TRUE(is_ok(received));
    EXPECT_EQ(received->bytes, 1U);
  }
}

// --- Unexpected messages in volume ----------------------------------------------------------------------------------------------

constexpr std::size_t kFloodBytes = 2048;
constexpr std::size_t kFloodWindow = 512;
constexpr std::size_t kMaxGrowth = 48 * kMiB;

void flood(Fabric& fabric, std::uint64_t count) {
  std::vector<unsigned char> slots(kFloodWindow * kFloodBytes);
  std::array<std::optional<Operation>, kFloodWindow> under_way;
  const Timeout patience = Timeout::of(std::chrono::seconds(60));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t slot = i % kFloodWindow;
    if (under_way[slot]) {
      ASSERT_NO_FATAL_FAILURE(ASSERT_TRUE(is_ok(fabric.wait_message(*under_way[slot], patience))));
    }
    fill_pattern(slots.data() + slot * kFloodBytes, kFloodBytes, i);
    const auto sent = fabric.post_send(1, 3, slots.data() + slot * kFloodBytes, kFloodBytes);
    ASSERT_TRUE(is_ok(sent)) << "message " << i;
    under_way[slot] = *sent;
  }
  for (const auto& last : under_way) {
    if (last) {
      ASSERT_NO_FATAL_FAILURE(ASSERT_TRUE(is_ok(fabric.wait_message(*last, patience))));
    }
  }
}

// The receiver is busy elsewhere; what has come is held, but not without bound, and another tag is not held up for ever by it.
RANK_BODY(flood_a_busy_receiver) {
  const std::uint64_t count = me.setup().amount;
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  const std::size_t before = resident_bytes();
  if (me.rank() == 0) return flood(fabric, count);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_LT(resident_bytes(), before + kMaxGrowth) << "unexpected messages are held without bound";
  std::vector<unsigned char> target(kFloodBytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto received = fabric.recv(0, 3, target.data(), kFloodBytes, kPatience);
    ASSERT_TRUE(is_ok(received)) << "message " << i;
    ASSERT_EQ(received->bytes, kFloodBytes);
    ASSERT_TRUE(is_pattern(target.data(), kFloodBytes, i)) << "message " << i;
  }
  EXPECT_LT(resident_bytes(), before + kMaxGrowth);
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

RankSetup with_amount(RankSetup setup, std::uint64_t amount) {
  setup.amount = amount;
  return setup;
}

class FabricMessages : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricMessages, EverySize) { run_ranks("send_every_size", with_amount(GetParam(), 16 * kMiB + 1)); }
TEST_P(FabricMessages, ReceivedLate) { run_ranks("receive_late", GetParam()); }
// Both ends of a message choose its way: what is required of paths is tested with writes and reads.
std::vector<RankSetup> message_setups() {
  std::vector<RankSetup> all = data_setups();
  std::erase_if(all, [](const RankSetup& setup) { return setup.path != TransferPath::none; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricMessages, testing::ValuesIn(message_setups()), setup_name);

class FabricLargeMessages : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLargeMessages, OfManyPieces) { run_ranks("send_every_size", with_amount(GetParam(), largest(64 * kMiB))); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricLargeMessages, testing::ValuesIn(memory_setups()), setup_name);
class FabricLargestMessages : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLargestMessages, OneGiB) {
  run_ranks("send_every_size", with_amount(GetParam(), 1024 * kMiB), std::chrono::seconds(110));
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricLargestMessages);  // they are for machines with the memory
INSTANTIATE_TEST_SUITE_P(Memory, FabricLargestMessages,
                         testing::ValuesIn(std::getenv("GIGABAR_CONFORMANCE_LARGE") != nullptr ? memory_setups()
                                                                                               : std::vector<RankSetup>{}),
                         setup_name);

class FabricMessageOrder : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricMessageOrder, IsKept) { run_ranks("keep_the_order", with_amount(GetParam(), rounds(3000))); }
TEST_P(FabricMessageOrder, ByMask) { run_ranks("choose_by_mask", GetParam()); }
TEST_P(FabricMessageOrder, FirstReceiveFirst) { run_ranks("first_receive_first", GetParam()); }
TEST_P(FabricMessageOrder, ManyUnderWay) { run_ranks("keep_many_under_way", GetParam()); }
TEST_P(FabricMessageOrder, VeryMany) {
  run_ranks("send_very_many", with_amount(GetParam(), rounds(140'000)), std::chrono::seconds(100));
}
TEST_P(FabricMessageOrder, CancelsReceives) { run_ranks("cancel_receives", GetParam()); }
TEST_P(FabricMessageOrder, LeavesSends) { run_ranks("leave_sends", GetParam()); }
TEST_P(FabricMessageOrder, LeavesSendsThatAreMet) { run_ranks("leave_sends_that_are_met", GetParam()); }
TEST_P(FabricMessageOrder, DoesNotCancelWhatIsDone) { run_ranks("cancel_what_is_done", GetParam()); }
TEST_P(FabricMessageOrder, HoldsBackAFlood) { run_ranks("flood_a_busy_receiver", with_amount(GetParam(), rounds(60'000))); }
INSTANTIATE_TEST_SUITE_P(Transports, FabricMessageOrder, testing::ValuesIn(each_transport(2)), setup_name);

class FabricLongMessages : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLongMessages, AreRefusedWhole) { run_ranks("refuse_too_long", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricLongMessages, testing::ValuesIn(memory_setups()), setup_name);

// Receives that were posted before anything came: each message has to find its own among them, by rank and by mask, small ones and
// large ones. What comes first is what was posted last.
RANK_BODY(find_the_receive_that_waits) {
  const auto number_of = [](Rank from, Tag tag) { return static_cast<std::uint32_t>(from * 1000 + tag); };
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{200'000}}) {
    if (me.rank() != 0) {
      ASSERT_TRUE(me.meet());  // all are posted
      if (me.rank() == 1) {
        ASSERT_TRUE(me.meet()) << "rank 2 has sent";
      }
      for (const Tag tag : {Tag{0x35}, Tag{5}}) {
        std::vector<std::uint32_t> out(bytes / 4, number_of(me.rank(), tag));
        ASSERT_TRUE(is_ok(fabric.send(0, tag, out.data(), bytes, kPatience)));
      }
      if (me.rank() == 2) {
        ASSERT_TRUE(me.meet());
      }
      continue;
    }
    struct Waiting {
      Rank from;
      Tag tag, mask;
      std::uint32_t expected;
    };
    const std::array<Waiting, 4> waiting{Waiting{1, 5, kAllBits, number_of(1, 5)}, Waiting{2, 5, kAllBits, number_of(2, 5)},
                                         Waiting{1, 0x3f, 0xf0, number_of(1, 0x35)}, Waiting{2, 0x3f, 0xf0, number_of(2, 0x35)}};
    std::array<std::vector<std::uint32_t>, 4> in;
    std::array<Operation, 4> posted{};
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      in[i].assign(bytes / 4, 0);
      const auto receive = fabric.post_recv(waiting[i].from, waiting[i].tag, waiting[i].mask, in[i].data(), bytes);
      ASSERT_TRUE(is_ok(receive));
      posted[i] = *receive;
    }
    ASSERT_TRUE(me.meet());
    for (const std::size_t i : {3U, 1U}) ASSERT_TRUE(is_ok(fabric.wait_message(posted[i], kPatience))) << "receive " << i;
    ASSERT_TRUE(me.meet());
    for (const std::size_t i : {2U, 0U}) ASSERT_TRUE(is_ok(fabric.wait_message(posted[i], kPatience))) << "receive " << i;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      EXPECT_EQ(in[i].front(), waiting[i].expected) << "receive " << i << " of " << bytes << " bytes";
      EXPECT_EQ(in[i].back(), waiting[i].expected) << "receive " << i << " of " << bytes << " bytes";
    }
  }
}

class FabricWaitingReceives : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricWaitingReceives, EachGetsItsOwn) { run_ranks("find_the_receive_that_waits", GetParam()); }
INSTANTIATE_TEST_SUITE_P(ThreeRanks, FabricWaitingReceives, testing::ValuesIn(each_transport(3)), setup_name);

class FabricAnyRank : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricAnyRank, KeepsTheOrderOfEach) { run_ranks("receive_of_any_rank", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricAnyRank, testing::ValuesIn(rank_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
