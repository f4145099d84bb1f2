// SPDX-License-Identifier: Apache-2.0
// Messages between the CPU and a kernel, which a thread plays, over memory of a stand-in.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "gigabar/kernel_ring.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using namespace std::chrono_literals;
using device::CpuRecvRing;
using device::CpuSendRing;
using device::CpuTeam;
using device::kForever;

// A kernel of `size` threads that answers messages by their words plus 1, until it is stopped.
void echo(KernelRing& ring, std::uint32_t size, std::vector<std::uint32_t>& memory) {
  CpuTeam team(size);
  const auto block = [&](const CpuTeam::Member& scope) {
    CpuRecvRing in;
    CpuSendRing out;
    in.open(*ring.from_cpu());
    out.open(*ring.to_cpu());
    Status status = Status::ok;
    while (true) {
      std::uint64_t bytes = 0;
      const auto word = [&](std::uint64_t i) { return memory[i] + 1; };
      status = device::recv(scope, in, memory.data(), 4 * memory.size(), bytes, kForever);
      if (status != Status::ok) break;
      status = send_words(scope, out, bytes, word, kForever);
      if (status != Status::ok) break;
      scope.sync();
    }
    EXPECT_EQ(status, Status::peer_lost);
    in.close(scope);
    out.close(scope);
  };
  std::vector<std::thread> others;
  for (std::uint32_t rank = 1; rank < size; ++rank) others.emplace_back([&, rank] { block(CpuTeam::Member(team, rank)); });
  block(CpuTeam::Member(team, 0));
  for (std::thread& other : others) other.join();
}

class KernelRings : public testing::Test {
  test::ScopedEnvironment one_{"GIGABAR_STAND_IN", "1"};
  test::ScopedEnvironment free_choice_{"GIGABAR_MAPPING", nullptr};
};

KernelRing open_ring(std::uint32_t bytes) {
  auto ring = KernelRing::open(0, {bytes});
  EXPECT_TRUE(ring) << ring.error().message();
  return std::move(*ring);
}

TEST_F(KernelRings, Calls) {
  KernelRing ring = open_ring(1024);
  std::vector<std::uint32_t> memory(1000);
  std::thread kernel([&] { echo(ring, 3, memory); });
  for (std::uint32_t call = 0; call < 300; ++call) {
    std::vector<std::uint32_t> arguments(call * 7 % 900), answer(arguments.size() + 1, 77);
    std::iota(arguments.begin(), arguments.end(), call);
    const std::uint64_t bytes = 4 * arguments.size();
    const auto got = ring.call(arguments.data(), bytes, answer.data(), bytes, 20s);
    ASSERT_TRUE(got) << got.error().message();
    ASSERT_EQ(*got, bytes);
    EXPECT_EQ(answer.back(), 77U);
    for (std::size_t i = 0; i < arguments.size(); ++i) ASSERT_EQ(answer[i], arguments[i] + 1) << call;
  }
  ring.stop();
  kernel.join();
}

// A kernel that answers from registers; a message that is longer than half a ring ends it.
TEST_F(KernelRings, CallsAnsweredWordByWord) {
  KernelRing ring = open_ring(1024);
  Status last = Status::ok;
  std::thread kernel([&] {
    CpuRecvRing in;
    CpuSendRing out;
    in.open(*ring.from_cpu());
    out.open(*ring.to_cpu());
    std::uint64_t bytes = 0;
    const auto answer = [](std::uint64_t i, std::uint32_t word) { return word + static_cast<std::uint32_t>(i); };
    while ((last = reply_words(device::Thread{}, in, out, answer, bytes, kForever)) == Status::ok) {
    }
    EXPECT_EQ(bytes, 256U);
  });
  std::vector<std::uint32_t> arguments(63), answer(64);
  for (std::uint32_t call = 0; call < 300; ++call) {
    const std::uint64_t count = call % 64;
    std::iota(arguments.begin(), arguments.end(), call);
    const auto got = ring.call(arguments.data(), 4 * count, answer.data(), 256, 20s);
    ASSERT_TRUE(got) << got.error().message();
    ASSERT_EQ(*got, 4 * count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(answer[i], arguments[i] + i) << call;
  }
  arguments.resize(64);
  EXPECT_EQ(ring.call(arguments.data(), 256, answer.data(), 256, 50ms).status(), Status::timed_out);
  kernel.join();
  EXPECT_EQ(last, Status::out_of_range);
}

// The answer of a call that ended in time-out is not taken for that of the next one.
TEST_F(KernelRings, LateAnswers) {
  KernelRing ring = open_ring(1024);
  std::uint32_t argument = 10, answer = 0;
  const auto unanswered = ring.call(&argument, 4, &answer, 4, 5ms);
  EXPECT_EQ(unanswered.status(), Status::timed_out);
  EXPECT_NE(unanswered.error().message().find("no answer"), std::string::npos);
  argument = 20;
  const auto again = ring.call(&argument, 4, &answer, 4, 5ms);
  EXPECT_EQ(again.status(), Status::timed_out);
  EXPECT_NE(again.error().message().find("the call before"), std::string::npos) << "the argument is not sent";
  std::vector<std::uint32_t> memory(100);
  std::thread kernel([&] { echo(ring, 1, memory); });
  argument = 30;
  EXPECT_TRUE(ring.call(&argument, 4, &answer, 4, 20s));
  EXPECT_EQ(answer, 31U);
  // One that is too long is dropped as well.
  const std::vector<std::uint32_t> many(50, 5);
  const auto longer = ring.call(many.data(), 200, &answer, 4, 20s);
  EXPECT_EQ(longer.status(), Status::out_of_range);
  EXPECT_NE(longer.error().message().find("200 bytes"), std::string::npos);
  argument = 40;
  EXPECT_TRUE(ring.call(&argument, 4, &answer, 4, 20s));
  EXPECT_EQ(answer, 41U);
  ring.stop();
  kernel.join();
}

// A call that timed out while its arguments were on their way goes on with the same ones only, and is not mixed with another.
TEST_F(KernelRings, ArgumentsSentInPart) {
  KernelRing ring = open_ring(64);
  std::vector<std::uint32_t> arguments(25, 7), others(25, 8), answer(25);
  EXPECT_EQ(ring.call(arguments.data(), 100, answer.data(), 100, 5ms).status(), Status::timed_out);
  for (const std::uint64_t bytes : {100U, 96U}) {
    const auto mixed = ring.call(others.data(), bytes, answer.data(), 100, 5ms);
    EXPECT_EQ(mixed.status(), Status::invalid_argument);
    EXPECT_NE(mixed.error().message().find("sent in part"), std::string::npos);
  }
  EXPECT_EQ(ring.call(arguments.data(), 100, answer.data(), 100, 5ms).status(), Status::timed_out);
  std::vector<std::uint32_t> memory(100);
  std::thread kernel([&] { echo(ring, 1, memory); });
  EXPECT_TRUE(ring.call(arguments.data(), 100, answer.data(), 100, 20s));
  EXPECT_EQ(answer, std::vector<std::uint32_t>(25, 8));
  EXPECT_TRUE(ring.call(others.data(), 100, answer.data(), 100, 20s));
  EXPECT_EQ(answer, std::vector<std::uint32_t>(25, 9));
  ring.stop();
  kernel.join();
}

// Arguments that no message holds are refused before any of them is read or sent, and the next call works.
TEST_F(KernelRings, ArgumentsThatAreTooLong) {
  KernelRing ring = open_ring(1024);
  std::uint32_t argument = 10, answer = 0;
  const auto refused = ring.call(&argument, device::kMaxMessageBytes + 1, &answer, 4, 20s);
  ASSERT_EQ(refused.status(), Status::out_of_range);
  EXPECT_EQ(refused.error().message(),
            "call: kernel, with 4294967296 bytes: a message has at most 4294967295 bytes; split the arguments");
  std::vector<std::uint32_t> memory(100);
  std::thread kernel([&] { echo(ring, 1, memory); });
  EXPECT_TRUE(ring.call(&argument, 4, &answer, 4, 20s));
  EXPECT_EQ(answer, 11U);
  ring.stop();
  kernel.join();
}

// A ring that nobody empties: the CPU's messages end in time, and those sent before are received.
TEST_F(KernelRings, AFullRing) {
  KernelRing ring = open_ring(64);
  const device::Thread thread;
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_EQ(send_value(thread, ring.to_kernel(), i, {0}), Status::ok);
  EXPECT_EQ(send_value(thread, ring.to_kernel(), 4U, {1'000'000}), Status::timed_out);
  ring.stop();
  CpuRecvRing in;
  in.open(*ring.from_cpu());
  std::uint32_t value = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(recv_value(thread, in, value, kForever), Status::ok);
    EXPECT_EQ(value, i);
  }
  EXPECT_EQ(recv_value(thread, in, value, kForever), Status::peer_lost);
}

TEST_F(KernelRings, BadOptions) {
  for (const std::uint32_t bytes : {0U, 32U, 100U, 1U << 31}) {
    const auto ring = KernelRing::open(0, {bytes});
    EXPECT_EQ(ring.status(), Status::invalid_argument);
    EXPECT_NE(ring.error().message().find("ring_bytes " + std::to_string(bytes)), std::string::npos);
  }
  EXPECT_EQ(KernelRing::open(999).status(), Status::invalid_argument);
}

}  // namespace
}  // namespace gigabar
