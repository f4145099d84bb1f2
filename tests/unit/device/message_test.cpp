// SPDX-License-Identifier: Apache-2.0
// Rings of messages: every order in which lines, halves of lines and credits can arrive, every order of calls at the two ends, laps
// around the ring, and peers that stop.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "gigabar/device/message.hpp"
#include "unit/device/message_rig.hpp"

namespace gigabar::device {
namespace {

using namespace test;

template <class Line>
class Message : public testing::Test {};
TYPED_TEST_SUITE(Message, Lines, NameOfLine);

TYPED_TEST(Message, EverySizeAtEveryPlace) {
  Rig rig(32);
  Ends<TypeParam> ends(rig);
  std::vector<std::uint8_t> got;
  for (std::uint32_t size = 0; size <= ends.to.piece_bytes(); ++size) {
    for (int again = 0; again < 3; ++again) {
      const auto sent = bytes_of(size + 1000U * static_cast<std::uint32_t>(again), size);
      ASSERT_EQ(ends.send(sent), Status::ok) << size;
      ASSERT_EQ(ends.recv(got, size), Status::ok) << size;
      ASSERT_EQ(got, sent) << size;
      ASSERT_EQ(ends.recv(got, 100), Status::timed_out) << size;
    }
  }
}

TYPED_TEST(Message, AnyAddresses) {
  Rig rig(32);
  Ends<TypeParam> ends(rig);
  const auto memory = bytes_of(3, 80);
  for (std::size_t from = 0; from < 5; ++from) {
    for (std::size_t to = 0; to < 5; ++to) {
      std::vector<std::uint8_t> got(80, 0xee);
      std::uint64_t count = 0;
      ASSERT_EQ(send(Thread{}, ends.to, memory.data() + from, 61, kTest), Status::ok);
      ASSERT_EQ(recv(Thread{}, ends.from, got.data() + to, 64, count, kTest), Status::ok);
      ASSERT_EQ(count, 61U);
      ASSERT_TRUE(std::equal(got.data() + to, got.data() + to + 61, memory.data() + from));
      ASSERT_TRUE(std::all_of(got.data(), got.data() + to, [](auto b) { return b == 0xee; }));
      ASSERT_TRUE(std::all_of(got.data() + to + 61, got.data() + 80, [](auto b) { return b == 0xee; }));
    }
  }
}

// Each half of a line arrives by itself (SplitLine), or each line (WholeLine), in every order; behind each arrival the receiver
// looks. Laps before have left lines of every kind.
template <class Line, class Carry>
void arrive_in_every_order(Rig& rig, std::size_t part_count, std::size_t parts_per_line, std::size_t size, const Carry& carry) {
  Ends<Line> ends(rig);
  std::vector<std::size_t> order(part_count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::uint32_t seed = 0;
  do {
    const auto sent = bytes_of(++seed, size);
    const std::size_t first = ends.to.position() % rig.send.line_count;
    ASSERT_EQ(ends.send(sent), Status::ok);
    std::vector<std::uint8_t> got;
    for (const std::size_t part : order) {
      ASSERT_EQ(ends.recv(got, 100), Status::timed_out) << "number " << seed;
      const std::size_t line = (first + part / parts_per_line) % rig.send.line_count;
      carry(line * parts_per_line + part % parts_per_line);
    }
    ASSERT_EQ(ends.recv(got, 100), Status::ok) << "number " << seed;
    ASSERT_EQ(got, sent) << "number " << seed;
    rig.credit = rig.told_credit;
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Message, WholeLinesInEveryOrder) {
  for (const std::uint64_t lap : {std::uint64_t{0}, std::uint64_t{0xffffffff} - 40}) {
    for (const std::size_t size : {8 + 5 * 12 - 3U, 8 + 5 * 12U, 8 + 5 * 12 - 4U}) {
      Rig rig(16, false);
      if (lap != 0) rig.begin_at(lap);
      arrive_in_every_order<WholeLine>(rig, 6, 1, size, [&](std::size_t line) { rig.carry_line(line); });
    }
  }
}

TEST(Message, HalvesOfLinesInEveryOrder) {
  for (const std::uint64_t lap : {std::uint64_t{0}, std::uint64_t{0xffffffff} - 40}) {
    // Behind the first line: a line of one word, two whole ones, two and a half.
    for (const auto& [halves, size] : {std::pair{6, 4 + 2 * 8 - 1}, {6, 4 + 8 + 4}, {6, 4 + 2 * 8}, {8, 4 + 2 * 8 + 4}}) {
      Rig rig(16, false);
      if (lap != 0) rig.begin_at(lap);
      arrive_in_every_order<SplitLine>(rig, static_cast<std::size_t>(halves), 2, static_cast<std::size_t>(size),
                                       [&](std::size_t half) { rig.carry_half(half); });
    }
  }
}

// Why a CPU does not write whole lines: one that arrives in halves is believed when its number is there.
TEST(Message, AWholeLineInHalvesIsBelieved) {
  Rig rig(16, false);
  Ends<WholeLine> ends(rig);
  const auto sent = bytes_of(1, 8);
  ASSERT_EQ(ends.send(sent), Status::ok);
  std::vector<std::uint8_t> got;
  rig.there[0].halves[0] = 4;
  rig.carry_half(1);
  ASSERT_EQ(ends.recv(got, 100), Status::ok);
  EXPECT_NE(got, sent);
}

// Every order of 14 calls at the two ends, with the smallest ring and messages of no, one and several pieces: each message arrives
// once, whole, in its turn, and every call continues where the one before stopped.
TYPED_TEST(Message, CallsInEveryOrder) {
  constexpr std::uint32_t kCalls = 14;
  const std::array<std::size_t, 4> sizes{3, 45, 0, 18};
  for (std::uint32_t calls = 0; calls < 1U << kCalls; ++calls) {
    Rig rig(kMinRingLines);
    Ends<TypeParam> ends(rig);
    std::uint32_t sent = 0, received = 0;
    std::vector<std::uint8_t> memory(64);  // of the receiver: a message of several pieces stays there between calls
    const auto send_one = [&] {
      const auto bytes = bytes_of(sent, sizes[sent % 4]);
      if (ends.send(bytes) == Status::ok) ++sent;
    };
    const auto recv_one = [&] {
      std::uint64_t count = 0;
      const Status status = recv(Thread{}, ends.from, memory.data(), memory.size(), count, kTest);
      if (status != Status::ok) {
        ASSERT_EQ(status, Status::timed_out);
        return;
      }
      const auto expected = bytes_of(received, sizes[received % 4]);
      ASSERT_EQ(count, expected.size());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), memory.begin())) << "calls " << calls;
      ++received;
    };
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      if ((calls >> i & 1) != 0)
        send_one();
      else
        recv_one();
      ASSERT_LE(received, sent);
    }
    for (int vain = 0; received < sent || vain < 2; ++vain) {
      ASSERT_LT(vain, 20) << "calls " << calls;
      recv_one();
    }
  }
}

// A sender without credit stores nothing; an old credit changes nothing; with the credit it goes on.
TYPED_TEST(Message, WithoutCreditNothingIsOverwritten) {
  Rig rig(16, false);
  Ends<TypeParam> ends(rig);
  const auto first = bytes_of(1, 4);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(ends.send(first), Status::ok);
  rig.there = rig.own;
  std::vector<std::uint8_t> got;
  for (int i = 0; i < 16; ++i) ASSERT_EQ(ends.recv(got, 4), Status::ok);
  EXPECT_EQ(rig.told_credit, 16U);
  const auto is_unchanged = [&] { return std::memcmp(rig.own.data(), rig.there.data(), 16 * sizeof(MessageLine)) == 0; };
  const auto second = bytes_of(2, ends.to.piece_bytes());  // half the ring
  for (const std::uint64_t credit : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{7}, std::uint64_t{4}}) {
    rig.credit = credit;
    EXPECT_EQ(ends.send(second), Status::timed_out);
    EXPECT_EQ(ends.send(second, {3'000'000}), Status::timed_out);
    EXPECT_TRUE(is_unchanged());
  }
  rig.credit = 8;
  EXPECT_EQ(ends.send(second), Status::ok);
  EXPECT_FALSE(is_unchanged());
}

TYPED_TEST(Message, CreditsComeOncePerQuarter) {
  Rig rig(16);
  Ends<TypeParam> ends(rig);
  std::uint64_t changes = 0, known = 0;
  std::vector<std::uint8_t> got;
  for (int i = 0; i < 160; ++i) {
    ASSERT_EQ(ends.send({1, 2, 3, 4}), Status::ok);
    ASSERT_EQ(ends.recv(got, 4), Status::ok);
    changes += rig.credit != known;
    known = rig.credit;
  }
  EXPECT_EQ(changes, 40U);
  EXPECT_EQ(known, 160U);
}

// Another scope opens the end where the one before closed it. What is written without closing it would be old lines.
TYPED_TEST(Message, AnEndIsOpenedAgain) {
  Rig rig(8);
  std::vector<std::uint8_t> got;
  for (std::uint32_t i = 0; i < 50; ++i) {
    Ends<TypeParam> ends(rig);
    const auto sent = bytes_of(i, i % 12);
    ASSERT_EQ(ends.send(sent), Status::ok);
    ends.to.close(Thread{});
    ASSERT_EQ(ends.recv(got, 12), Status::ok);
    ends.from.close(Thread{});
    ASSERT_EQ(got, sent);
  }
}

// --- Errors ----------------------------------------------------------------------------------------------------------------------

TYPED_TEST(Message, ALongerMessageStays) {
  Rig rig(16);
  Ends<TypeParam> ends(rig);
  const auto sent = bytes_of(1, 40);
  ASSERT_EQ(ends.send(sent), Status::ok);
  std::vector<std::uint8_t> memory(40, 0xee);
  for (const std::uint64_t capacity : {0U, 3U, 39U}) {
    std::uint64_t count = 0;
    EXPECT_EQ(recv(Thread{}, ends.from, memory.data(), capacity, count, kTest), Status::out_of_range);
    EXPECT_EQ(count, 40U);
  }
  EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](auto b) { return b == 0xee; }));
  std::vector<std::uint8_t> got;
  EXPECT_EQ(ends.recv(got, 40), Status::ok);
  EXPECT_EQ(got, sent);
}

TYPED_TEST(Message, WrongSizes) {
  Rig rig(16);
  Ends<TypeParam> ends(rig);
  EXPECT_EQ(send(Thread{}, ends.to, nullptr, kMaxMessageBytes + 1, kTest), Status::out_of_range);
  const auto sent = bytes_of(1, 4 * ends.to.piece_bytes());
  EXPECT_EQ(ends.send(sent), Status::timed_out) << "only two pieces fit";
  EXPECT_EQ(ends.send(bytes_of(2, 8)), Status::invalid_argument) << "the message before is not complete";
  std::vector<std::uint8_t> memory(sent.size());
  std::uint64_t count = 0;
  EXPECT_EQ(recv(Thread{}, ends.from, memory.data(), memory.size(), count, kTest), Status::timed_out);
  EXPECT_EQ(ends.send(sent), Status::ok);
  EXPECT_EQ(recv(Thread{}, ends.from, memory.data(), memory.size(), count, kTest), Status::ok);
  EXPECT_EQ(memory, sent);
  EXPECT_EQ(ends.send(bytes_of(2, 8)), Status::ok);
}

TYPED_TEST(Message, ALostSender) {
  Rig rig(16, false);
  Ends<TypeParam> ends(rig);
  const auto sent = bytes_of(1, 24);
  ASSERT_EQ(ends.send(sent), Status::ok);
  rig.carry_line(0);
  rig.sender = static_cast<std::uint32_t>(Status::peer_lost);
  std::vector<std::uint8_t> got;
  EXPECT_EQ(ends.recv(got, 24, kForever), Status::peer_lost) << "some lines are missing";
  EXPECT_EQ(ends.recv(got, 24), Status::peer_lost);
  rig.there = rig.own;
  EXPECT_EQ(ends.recv(got, 24), Status::ok) << "it arrived whole before the loss";
  EXPECT_EQ(got, sent);
  EXPECT_EQ(ends.recv(got, 24, kForever), Status::peer_lost);
}

TYPED_TEST(Message, ALostReceiver) {
  Rig rig(4);
  Ends<TypeParam> ends(rig);
  rig.receiver = static_cast<std::uint32_t>(Status::peer_lost);
  const std::vector<std::uint8_t> sent{1, 2, 3, 4};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ends.send(sent), Status::ok) << "there is room";
  EXPECT_EQ(ends.send(sent, kForever), Status::peer_lost);
  rig.credit = 4;  // its last one
  EXPECT_EQ(ends.send(sent), Status::peer_lost);
  rig.receiver = 0;  // the session recovered
  EXPECT_EQ(ends.send(sent), Status::ok);
}

TYPED_TEST(Message, WaitsEndInTheirTime) {
  Rig rig(4);
  Ends<TypeParam> ends(rig);
  const std::uint64_t begin = now_ns();
  std::vector<std::uint8_t> got;
  EXPECT_EQ(ends.recv(got, 4, {20'000'000}), Status::timed_out);
  EXPECT_GE(now_ns() - begin, 20'000'000U);
}

// --- Registers -------------------------------------------------------------------------------------------------------------------

template <class Line, class T>
void values_arrive(Ends<Line>& ends, T value) {
  T got{};
  ASSERT_EQ(recv_value(Thread{}, ends.from, got, kTest), Status::timed_out);
  ASSERT_EQ(send_value(Thread{}, ends.to, value, kTest), Status::ok);
  ASSERT_EQ(recv_value(Thread{}, ends.from, got, kTest), Status::ok);
  ASSERT_EQ(got, value);
}

TYPED_TEST(Message, Values) {
  Rig rig(8);
  Ends<TypeParam> ends(rig);
  for (std::uint32_t i = 0; i < 30; ++i) {
    values_arrive(ends, static_cast<std::uint8_t>(0x80 + i));
    values_arrive(ends, static_cast<std::uint16_t>(0xff00 + i));
    values_arrive(ends, 0xfffffff0 + i);
    values_arrive(ends, 1.5F + static_cast<float>(i));
    values_arrive(ends, -7.25 * i);
    values_arrive(ends, 0x8123456789abcdef + i);
  }
  // A shorter message has zeros behind it, whatever its last word held; a longer one stays.
  ASSERT_EQ(send_words(Thread{}, ends.to, 5, [](std::uint64_t) { return 0xffffffff; }, kTest), Status::ok);
  std::uint64_t wide = 0;
  ASSERT_EQ(recv_value(Thread{}, ends.from, wide, kTest), Status::ok);
  EXPECT_EQ(wide, 0xffffffffffU);
  ASSERT_EQ(send_value(Thread{}, ends.to, std::uint64_t{9}, kTest), Status::ok);
  std::uint32_t narrow = 1;
  EXPECT_EQ(recv_value(Thread{}, ends.from, narrow, kTest), Status::out_of_range);
  EXPECT_EQ(narrow, 1U);
  EXPECT_EQ(recv_value(Thread{}, ends.from, wide, kTest), Status::ok);
  EXPECT_EQ(wide, 9U);
}

TYPED_TEST(Message, ComputedWords) {
  Rig rig(8);
  Ends<TypeParam> ends(rig);
  ASSERT_EQ(
      send_words(Thread{}, ends.to, 22, [](std::uint64_t i) { return static_cast<std::uint32_t>(i * 3 + 1); }, kTest), Status::ok);
  std::vector<std::uint32_t> words(6), counts(6);
  std::uint64_t bytes = 0;
  const auto take = [&](std::uint64_t i, std::uint32_t word, std::uint32_t count) { words.at(i) = word, counts.at(i) = count; };
  ASSERT_EQ(recv_words(Thread{}, ends.from, 100, take, bytes, kTest), Status::ok);
  EXPECT_EQ(bytes, 22U);
  EXPECT_EQ(words, (std::vector<std::uint32_t>{1, 4, 7, 10, 13, 16}));
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{4, 4, 4, 4, 4, 2}));
}

TEST(Message, AFabricWithoutRings) {
  DeviceFabric fabric;
  fabric.version = kHandleVersion;
  fabric.rank_count = 1;
  SendRing to;
  RecvRing from;
  EXPECT_EQ(open_ring(fabric, 0, 0, to), Status::out_of_range);
  PeerRing ring;
  fabric.ring_count = 1;
  fabric.rings = &ring;
  EXPECT_EQ(open_ring(fabric, 1, 0, from), Status::out_of_range);
  EXPECT_EQ(open_ring(fabric, 0, 1, from), Status::out_of_range);
  EXPECT_EQ(open_ring(fabric, 0, 0, from), Status::unavailable);
}

}  // namespace
}  // namespace gigabar::device
