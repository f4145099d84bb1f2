// SPDX-License-Identifier: Apache-2.0
// Rings of messages by teams of threads that run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "gigabar/device/message.hpp"
#include "unit/device/message_rig.hpp"

namespace gigabar::device {
namespace {

using namespace test;

template <class Line>
class MessageTeams : public testing::Test {};
TYPED_TEST_SUITE(MessageTeams, Lines, NameOfLine);

// `size` threads that call `block` as one.
template <class Block>
void run_team(std::uint32_t size, const Block& block) {
  CpuTeam team(size);
  std::vector<std::thread> others;
  for (std::uint32_t rank = 1; rank < size; ++rank) others.emplace_back([&, rank] { block(CpuTeam::Member(team, rank)); });
  block(CpuTeam::Member(team, 0));
  for (std::thread& other : others) other.join();
}

// Messages of one piece at every place of the ring, each with the next one behind it, by teams that have many lines each and by one
// of more threads than the ring has lines.
TYPED_TEST(MessageTeams, EverySizeByTeams) {
  for (const std::uint32_t size : {2U, 3U, 5U, 20U}) {
    Rig rig(64);
    const std::uint32_t piece = Ends<TypeParam>(rig).to.piece_bytes() / 4 * 4;
    const auto next = bytes_of(9, 8);
    std::atomic<std::uint32_t> wrong{0};
    std::thread sender([&] {
      Ends<TypeParam> ends(rig);
      for (std::uint32_t bytes = 4; bytes <= piece; bytes += 4) {
        wrong += ends.send(bytes_of(bytes, bytes), kLong) != Status::ok;
        wrong += ends.send(next, kLong) != Status::ok;
      }
    });
    std::vector<std::uint8_t> memory(piece);
    run_team(size, [&](const auto& scope) {
      BasicRecvRing<TypeParam> from;
      from.open(rig.recv);
      for (std::uint32_t bytes = 4; bytes <= piece; bytes += 4) {
        for (const auto& sent : {bytes_of(bytes, bytes), next}) {
          std::uint64_t count = 0;
          wrong += recv(scope, from, memory.data(), piece, count, kLong) != Status::ok || count != sent.size();
          wrong += scope.rank() == 0 && !std::equal(sent.begin(), sent.end(), memory.begin());
          scope.sync();
        }
      }
    });
    sender.join();
    EXPECT_EQ(wrong, 0U) << "a team of " << size;
  }
}

// A message of several pieces by more threads than a piece has lines, also where lines before it are not given back yet.
TYPED_TEST(MessageTeams, MoreThreadsThanLines) {
  struct Case {
    std::uint32_t line_count, team;
    std::size_t before, bytes;
  };
  for (const Case& one : {Case{4, 5, 0, 100}, Case{16, 20, 0, 2000}, Case{16, 9, 8, 185}, Case{16, 8, 8, 185}, Case{8, 3, 4, 90}}) {
    Rig rig(one.line_count);
    const auto first = bytes_of(1, one.before), second = bytes_of(2, one.bytes);
    std::atomic<std::uint32_t> wrong{0};
    std::thread sender([&] {
      run_team(one.team, [&](const auto& scope) {
        BasicSendRing<TypeParam> to;
        to.open(rig.send);
        wrong += send(scope, to, first.data(), first.size(), kLong) != Status::ok;
        wrong += send(scope, to, second.data(), second.size(), kLong) != Status::ok;
      });
    });
    std::vector<std::uint8_t> memory(one.bytes);
    run_team(one.team, [&](const auto& scope) {
      BasicRecvRing<TypeParam> from;
      from.open(rig.recv);
      for (const auto* const expected : {&first, &second}) {
        std::uint64_t count = 0;
        wrong += recv(scope, from, memory.data(), memory.size(), count, kLong) != Status::ok || count != expected->size();
        wrong += !std::equal(expected->begin(), expected->end(), memory.begin());
        scope.sync();
      }
    });
    sender.join();
    EXPECT_EQ(wrong, 0U) << one.line_count << " lines, " << one.team << " threads, " << one.bytes << " bytes";
  }
}

// Values of every size, that of the thread of rank 0, to every thread.
TYPED_TEST(MessageTeams, ValuesOfTeams) {
  for (const std::uint32_t team : {1U, 2U, 5U}) {
    Rig rig(8);
    constexpr std::uint64_t kValue = 0x1234567889abcdef;
    std::atomic<std::uint32_t> wrong{0};
    const auto exchange = [&](const auto& scope, auto value) {
      using T = decltype(value);
      T found = 0;
      BasicSendRing<TypeParam> to;
      BasicRecvRing<TypeParam> from;
      to.open(rig.send);
      from.open(rig.recv);
      const T other = 0x55;
      wrong += send_value(scope, to, scope.rank() == 0 ? value : other, kLong) != Status::ok;
      wrong += recv_value(scope, from, found, kLong) != Status::ok || found != value;
      to.close(scope);
      from.close(scope);
      scope.sync();
    };
    run_team(team, [&](const auto& scope) {
      for (int i = 0; i < 5; ++i) {
        exchange(scope, kValue);
        exchange(scope, static_cast<std::uint32_t>(kValue));
        exchange(scope, static_cast<std::uint16_t>(kValue));
        exchange(scope, static_cast<std::uint8_t>(kValue));
      }
    });
    EXPECT_EQ(wrong, 0U) << team << " threads";
  }
}

// Blocks of several threads, a ring that is mostly full or mostly empty, and messages of every kind of size. What the sender's
// threads wrote before, in plain memory, is seen: under ThreadSanitizer an access without order fails.
TYPED_TEST(MessageTeams, TeamsExchange) {
  constexpr std::uint32_t kMessages = 70;  // each size ten times
  const std::array<std::size_t, 7> sizes{8, 0, 333, 60, 1, 1500, 97};
  for (const std::uint32_t team : {1U, 3U}) {
    Rig rig(64);
    std::vector<std::uint32_t> board(3);  // of plain memory, one word per thread
    Rig answers(4);                       // so that the board is not written while it is read
    std::vector<std::uint32_t> wrong(2 * team);
    std::thread sender([&] {
      run_team(team, [&](const auto& scope) {
        BasicSendRing<TypeParam> to;
        BasicRecvRing<TypeParam> back;
        to.open(rig.send);
        back.open(answers.recv);
        for (std::uint32_t i = 0; i < kMessages; ++i) {
          board[scope.rank()] = i;
          const auto bytes = bytes_of(i, sizes[i % 7]);
          if (send(scope, to, bytes.data(), bytes.size(), kLong, Order::after_writes) != Status::ok) ++wrong[scope.rank()];
          std::uint32_t answer = 0;
          if (recv_value(scope, back, answer, kLong) != Status::ok || answer != i) ++wrong[scope.rank()];
        }
      });
    });
    std::vector<std::uint8_t> memory(1500);
    run_team(team, [&](const auto& scope) {
      BasicRecvRing<TypeParam> from;
      BasicSendRing<TypeParam> back;
      from.open(rig.recv);
      back.open(answers.send);
      std::uint32_t& bad = wrong[team + scope.rank()];
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        std::uint64_t count = 0;
        const Status status = recv(scope, from, memory.data(), memory.size(), count, kLong, Order::after_writes);
        const auto expected = bytes_of(i, sizes[i % 7]);
        bad += status != Status::ok || count != expected.size();
        bad += !std::equal(expected.begin(), expected.end(), memory.begin());
        for (std::uint32_t other = 0; other < team; ++other) bad += board[other] != i;
        scope.sync();
        if (send_value(scope, back, i, kLong) != Status::ok) ++bad;
      }
    });
    sender.join();
    EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0U), 0U) << "teams of " << team;
  }
}

// Without answers: the sender runs ahead as far as the ring allows.
TYPED_TEST(MessageTeams, TeamsStream) {
  constexpr std::uint32_t kMessages = 300;
  Rig rig(16);
  std::vector<std::uint32_t> wrong(4);
  std::thread sender([&] {
    run_team(2, [&](const auto& scope) {
      BasicSendRing<TypeParam> to;
      to.open(rig.send);
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        const auto word = [&](std::uint64_t k) { return static_cast<std::uint32_t>(i * 31 + k); };
        if (send_words(scope, to, 4 * (i % 40), word, kLong) != Status::ok) ++wrong[scope.rank()];
      }
    });
  });
  run_team(2, [&](const auto& scope) {
    BasicRecvRing<TypeParam> from;
    from.open(rig.recv);
    std::uint32_t& bad = wrong[2 + scope.rank()];
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const auto take = [&](std::uint64_t k, std::uint32_t word, std::uint32_t count) { bad += word != i * 31 + k || count != 4; };
      std::uint64_t bytes = 0;
      if (recv_words(scope, from, 160, take, bytes, kLong) != Status::ok || bytes != 4 * (i % 40)) ++bad;
    }
  });
  sender.join();
  EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0U), 0U);
}

// All threads of a team get the same answer, whatever each of them saw.
TYPED_TEST(MessageTeams, TeamsAgreeOnFailures) {
  Rig rig(16, false);
  Ends<TypeParam> ends(rig);
  const auto sent = bytes_of(1, 40);
  ASSERT_EQ(ends.send(sent), Status::ok);
  std::vector<std::uint8_t> memory(40);
  const auto call = [&](std::uint64_t capacity, std::uint64_t expected_bytes, Status expected) {
    std::array<bool, 3> is_right{};
    run_team(3, [&](const auto& scope) {
      BasicRecvRing<TypeParam> from;
      from.open(rig.recv);
      std::uint64_t count = 77;
      const Status status = recv(scope, from, memory.data(), capacity, count, kTest);
      is_right[scope.rank()] = status == expected && count == expected_bytes;
    });
    EXPECT_TRUE(is_right[0] && is_right[1] && is_right[2]);
  };
  call(40, 0, Status::timed_out);
  rig.carry_line(0);
  call(40, 0, Status::timed_out);
  call(39, 40, Status::out_of_range);
  rig.carry_line(2);
  call(40, 0, Status::timed_out);
  rig.sender = static_cast<std::uint32_t>(Status::peer_lost);
  call(40, 0, Status::peer_lost);
  rig.there = rig.own;
  call(40, 40, Status::ok);
  EXPECT_EQ(memory, sent);
}

}  // namespace
}  // namespace gigabar::device
