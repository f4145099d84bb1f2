// SPDX-License-Identifier: Apache-2.0
// Messages that are answered word by word: every size, every order in which lines arrive, rings without room, and teams.
#include <gtest/gtest.h>

#include <algorithm>
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

std::uint32_t answer_to(std::uint64_t i, std::uint32_t word) { return word * 3 + static_cast<std::uint32_t>(i); }

// What answers `message`, of words whose bytes beyond it are not looked at.
std::vector<std::uint8_t> answered(std::vector<std::uint8_t> message) {
  const std::size_t bytes = message.size();
  message.resize((bytes + 3) / 4 * 4);
  for (std::size_t i = 0; i < message.size(); i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, message.data() + i, 4);
    word = answer_to(i / 4, word);
    std::memcpy(message.data() + i, &word, 4);
  }
  message.resize(bytes);
  return message;
}

// The ends of who answers and of who asks, by rings of their own.
template <class Line>
struct Talk {
  Talk(Rig& questions, Rig& answers) {
    ask.to.open(questions.send);
    ask.from.open(answers.recv);
    from.open(questions.recv);
    to.open(answers.send);
  }
  Status reply(std::uint64_t& bytes, Timeout timeout = kTest) { return reply_words(Thread{}, from, to, answer_to, bytes, timeout); }

  struct {
    BasicSendRing<Line> to;
    BasicRecvRing<Line> from;
  } ask;
  BasicRecvRing<Line> from;
  BasicSendRing<Line> to;
};

template <class Line>
Status receive(BasicRecvRing<Line>& from, std::vector<std::uint8_t>& got, std::size_t capacity, Timeout timeout = kTest) {
  std::uint64_t bytes = 0;
  got.assign(capacity, 0);
  const Status status = recv(Thread{}, from, got.data(), capacity, bytes, timeout);
  got.resize(bytes);
  return status;
}

template <class Line>
class MessageReply : public testing::Test {};
TYPED_TEST_SUITE(MessageReply, Lines, NameOfLine);

TYPED_TEST(MessageReply, EverySizeAtEveryPlace) {
  Rig questions(32), answers(32);
  Talk<TypeParam> talk(questions, answers);
  std::vector<std::uint8_t> got;
  for (std::uint32_t size = 0; size <= talk.from.piece_bytes(); ++size) {
    for (std::uint32_t again = 0; again < 3; ++again) {
      const auto sent = bytes_of(size + 1000 * again, size);
      ASSERT_EQ(send(Thread{}, talk.ask.to, sent.data(), size, kTest), Status::ok);
      std::uint64_t bytes = 99;
      ASSERT_EQ(talk.reply(bytes), Status::ok) << size;
      ASSERT_EQ(bytes, size);
      ASSERT_EQ(receive(talk.ask.from, got, size), Status::ok) << size;
      ASSERT_EQ(got, answered(sent)) << size;
      ASSERT_EQ(talk.reply(bytes), Status::timed_out);
      ASSERT_EQ(bytes, 0U);
    }
  }
}

// Each half of a line arrives by itself, in every order; behind each arrival a reply is tried. An answer is whole when the last
// half is there, and not before.
TEST(MessageReply, HalvesOfLinesInEveryOrder) {
  Rig questions(16, false), answers(16);
  Talk<SplitLine> talk(questions, answers);
  std::vector<std::size_t> order(6);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::uint32_t seed = 0;
  do {
    const auto sent = bytes_of(++seed, 4 + 2 * 8 - 3);
    const std::size_t first = 2 * (talk.ask.to.position() % 16);
    ASSERT_EQ(send(Thread{}, talk.ask.to, sent.data(), sent.size(), kTest), Status::ok);
    std::vector<std::uint8_t> got;
    std::uint64_t bytes = 0;
    for (const std::size_t half : order) {
      ASSERT_EQ(talk.reply(bytes), Status::timed_out) << seed;
      ASSERT_EQ(receive(talk.ask.from, got, 100), Status::timed_out) << seed;
      questions.carry_half((first + half) % 32);
    }
    ASSERT_EQ(talk.reply(bytes), Status::ok) << seed;
    ASSERT_EQ(receive(talk.ask.from, got, 100), Status::ok) << seed;
    ASSERT_EQ(got, answered(sent)) << seed;
    questions.credit = questions.told_credit;
  } while (std::next_permutation(order.begin(), order.end()));
}

TYPED_TEST(MessageReply, WithoutRoomTheMessageStays) {
  Rig questions(64), answers(16);
  Talk<TypeParam> talk(questions, answers);
  const auto sent = bytes_of(7, 40);
  std::vector<std::uint8_t> got;
  std::uint64_t bytes = 0;
  std::uint32_t asked = 0, replied = 0;
  for (; asked < 5; ++asked) ASSERT_EQ(send(Thread{}, talk.ask.to, sent.data(), sent.size(), kTest), Status::ok);
  while (talk.reply(bytes) == Status::ok) ++replied;
  ASSERT_GT(replied, 1U);
  ASSERT_LT(replied, asked) << "the answers' ring is never full";
  ASSERT_EQ(talk.reply(bytes), Status::timed_out);
  for (std::uint32_t i = 0; i < asked; ++i) {
    ASSERT_EQ(receive(talk.ask.from, got, 40), Status::ok) << i;
    ASSERT_EQ(got, answered(sent)) << i;
    if (replied < asked && talk.reply(bytes) == Status::ok) ++replied;
  }
  EXPECT_EQ(replied, asked);
  answers.receiver = static_cast<std::uint32_t>(Status::peer_lost);
  questions.sender = answers.receiver;
  EXPECT_EQ(talk.reply(bytes), Status::peer_lost);
}

TYPED_TEST(MessageReply, ALongerMessageStays) {
  Rig questions(64), answers(16);
  Talk<TypeParam> talk(questions, answers);
  const std::uint32_t most = talk.to.piece_bytes();
  const auto sent = bytes_of(7, most + 1), next = bytes_of(8, most);
  ASSERT_EQ(send(Thread{}, talk.ask.to, sent.data(), sent.size(), kTest), Status::ok);
  ASSERT_EQ(send(Thread{}, talk.ask.to, next.data(), next.size(), kTest), Status::ok);
  std::uint64_t bytes = 0;
  EXPECT_EQ(talk.reply(bytes), Status::out_of_range);
  EXPECT_EQ(bytes, most + 1);
  std::vector<std::uint8_t> got;
  ASSERT_EQ(receive(talk.from, got, sent.size()), Status::ok);
  EXPECT_EQ(got, sent);
  ASSERT_EQ(talk.reply(bytes), Status::ok);
  ASSERT_EQ(receive(talk.ask.from, got, most), Status::ok);
  EXPECT_EQ(got, answered(next));
}

TYPED_TEST(MessageReply, NotInTheMidstOfAnother) {
  Rig questions(16), answers(16);
  Talk<TypeParam> talk(questions, answers);
  const auto sent = bytes_of(7, 400);
  ASSERT_EQ(send(Thread{}, talk.ask.to, sent.data(), sent.size(), kTest), Status::timed_out);
  std::vector<std::uint8_t> got;
  ASSERT_EQ(receive(talk.from, got, sent.size()), Status::timed_out);
  std::uint64_t bytes = 99;
  EXPECT_EQ(talk.reply(bytes), Status::invalid_argument);
  EXPECT_EQ(bytes, 0U);
}

// Teams that have a line for each thread, many for each, and more threads than lines; rings that are full for most of the time.
TYPED_TEST(MessageReply, Teams) {
  constexpr std::uint32_t kMessages = 200;
  for (const std::uint32_t team_size : {2U, 3U, 20U}) {
    Rig questions(64), answers(32);
    std::atomic<std::uint32_t> wrong{0};
    const std::uint32_t most = Talk<TypeParam>(questions, answers).to.piece_bytes();
    const auto message = [&](std::uint32_t i) { return bytes_of(i, i * 13 % (most + 1)); };
    std::thread asker([&] {
      Talk<TypeParam> talk(questions, answers);
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        const auto sent = message(i);
        wrong += send(Thread{}, talk.ask.to, sent.data(), sent.size(), kLong) != Status::ok;
      }
    });
    std::thread hearer([&] {
      BasicRecvRing<TypeParam> from;
      from.open(answers.recv);
      std::vector<std::uint8_t> got;
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        wrong += receive(from, got, most, kLong) != Status::ok;
        wrong += got != answered(message(i));
      }
    });
    CpuTeam team(team_size);
    std::vector<std::thread> members;
    for (std::uint32_t rank = 0; rank < team_size; ++rank) {
      members.emplace_back([&, rank] {
        const CpuTeam::Member scope(team, rank);
        BasicRecvRing<TypeParam> from;
        BasicSendRing<TypeParam> to;
        from.open(questions.recv);
        to.open(answers.send);
        for (std::uint32_t i = 0; i < kMessages; ++i) {
          std::uint64_t bytes = 0;
          wrong += reply_words(scope, from, to, answer_to, bytes, kLong) != Status::ok || bytes != message(i).size();
        }
      });
    }
    for (std::thread& member : members) member.join();
    asker.join();
    hearer.join();
    EXPECT_EQ(wrong, 0U) << team_size << " threads";
  }
}

}  // namespace
}  // namespace gigabar::device
