// SPDX-License-Identifier: Apache-2.0
// Which fences a call executes and what was stored before each: the trap flag stops the thread before every instruction, and the
// handler looks whether the next one is a fence. A fence that is missing shows on no machine in a test of the data. x86-64 only.
#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "unit/copy/stand_in.hpp"

namespace gigabar {
namespace {

using test::mapped_stand_in;
using test::MappedStandIn;
using test::pattern;

constexpr greg_t kTrapFlag = 0x100;
constexpr std::size_t kMaxFences = 64;

// What the handlers know.
volatile bool is_stepping = false;
const volatile std::uint64_t* watched_word = nullptr;
volatile std::size_t fence_count = 0;
std::array<char, kMaxFences> kinds;
std::array<std::uint64_t, kMaxFences> words;  // what the watched word held

void on_begin(int, siginfo_t*, void* context) { static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag; }

void on_step(int, siginfo_t*, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (!is_stepping) {
    registers[REG_EFL] &= ~kTrapFlag;
    return;
  }
  const auto* const code = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  if (code[0] != 0x0f || code[1] != 0xae) return;
  const char kind = code[2] == 0xf8 ? 's' : code[2] == 0xe8 ? 'l' : code[2] == 0xf0 ? 'm' : '\0';
  if (kind == '\0' || fence_count == kMaxFences) return;
  kinds[fence_count] = kind;
  words[fence_count] = *watched_word;
  fence_count = fence_count + 1;
}

class FenceCount : public testing::Test {
 protected:
  void SetUp() override {
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_begin;
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before_begin_), 0);
    action.sa_sigaction = on_step;
    ASSERT_EQ(::sigaction(SIGTRAP, &action, &before_step_), 0);
    const std::vector<std::byte> zeros(4096);
    ASSERT_TRUE(copy_to(device_.mapping, 0, zeros.data(), zeros.size()));
  }
  void TearDown() override {
    ::sigaction(SIGUSR1, &before_begin_, nullptr);
    ::sigaction(SIGTRAP, &before_step_, nullptr);
  }

  // The fences of `call`, one letter each: s, l or m.
  template <class Call>
  std::string fences_of(std::size_t watched_offset, Call call) {
    watched_word = reinterpret_cast<const volatile std::uint64_t*>(device_.bytes() + watched_offset);
    fence_count = 0;
    is_stepping = true;
    ::raise(SIGUSR1);
    call();
    is_stepping = false;
    return {kinds.data(), fence_count};
  }
  static std::uint64_t word_at(const std::vector<std::byte>& bytes, std::size_t offset) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + offset, sizeof word);
    return word;
  }

  const MappedStandIn device_ = mapped_stand_in(4096);
  const std::vector<std::byte> sent_ = pattern(4096, 3);

 private:
  struct sigaction before_begin_{};
  struct sigaction before_step_{};
};

TEST_F(FenceCount, SeesTheFencesOfTheTestItself) {
  EXPECT_EQ(fences_of(0, [] {}), "");
  EXPECT_EQ(fences_of(0,
                      [] {
                        __builtin_ia32_lfence();
                        __builtin_ia32_sfence();
                        __builtin_ia32_mfence();
                      }),
            "lsm");
}

TEST_F(FenceCount, StoresHaveLeftTheCpuWhenACopyReturns) {
  for (const std::size_t bytes : {8UL, 64UL, 1000UL, 4096UL}) {
    const std::size_t last = bytes / 8 * 8 - 8;
    EXPECT_EQ(fences_of(last, [&] { ASSERT_TRUE(copy_to(device_.mapping, 0, sent_.data(), bytes)); }), "s") << bytes;
    EXPECT_EQ(words[0], word_at(sent_, last)) << "behind the last store of " << bytes;
    EXPECT_EQ(fences_of(last, [&] { ASSERT_TRUE(fill(device_.mapping, 0, std::byte{9}, bytes)); }), "s") << bytes;
    EXPECT_EQ(words[0], 0x0909090909090909U) << "behind the last store of " << bytes;
  }
  EXPECT_EQ(fences_of(4088, [&] { ASSERT_TRUE(copy_to_parallel(device_.mapping, 0, sent_.data(), 4096, 1)); }), "s");
  EXPECT_EQ(words[0], word_at(sent_, 4088));
  EXPECT_EQ(fences_of(0, [] { fence(); }), "s");
}

TEST_F(FenceCount, AFlagIsBetweenItsFences) {
  constexpr std::uint64_t kFlag = 0x1122334455667788;
  EXPECT_EQ(fences_of(1024, [&] { ASSERT_TRUE(publish(device_.mapping, 1024, kFlag)); }), "ss");
  EXPECT_EQ(words[0], 0U);
  EXPECT_EQ(words[1], kFlag);
  EXPECT_EQ(fences_of(504, [&] { ASSERT_TRUE(publish(device_.mapping, 0, sent_.data(), 512, 1024, kFlag + 1)); }), "ss");
  EXPECT_EQ(words[0], word_at(sent_, 504)) << "the data is before the first one";
}

TEST_F(FenceCount, ABatchHasOne) {
  EXPECT_EQ(fences_of(0,
                      [&] {
                        Batch batch(device_.mapping);
                        for (std::size_t i = 0; i < 10; ++i) ASSERT_TRUE(batch.copy_to(8 * (9 - i), sent_.data(), 8));
                        batch.commit();
                      }),
            "s");
  EXPECT_EQ(words[0], word_at(sent_, 0)) << "behind the last store";
  EXPECT_EQ(fences_of(0,
                      [&] {
                        Batch batch(device_.mapping);
                        ASSERT_TRUE(batch.copy_to(0, sent_.data(), 8));
                      }),
            "s")
      << "one that is not committed commits at its end";
  EXPECT_EQ(fences_of(0, [&] { Batch(device_.mapping).commit(); }), "") << "nothing was stored";
}

// A single plain load has no fill buffer to meet, so that the cheaper fence does before it.
TEST_F(FenceCount, LoadsAreBetweenTheirFences) {
  std::vector<std::byte> received(4096);
  for (const std::size_t bytes : {1UL, 2UL, 4UL, 8UL})
    EXPECT_EQ(fences_of(0, [&] { ASSERT_TRUE(copy_from(device_.mapping, 64, received.data(), bytes)); }), "ll") << bytes;
  for (const std::size_t bytes : {3UL, 9UL, 64UL, 4000UL})
    EXPECT_EQ(fences_of(0, [&] { ASSERT_TRUE(copy_from(device_.mapping, 64, received.data(), bytes)); }), "ml") << bytes;
  EXPECT_EQ(fences_of(0, [&] { ASSERT_TRUE(copy_from(device_.mapping, 1, received.data(), 8)); }), "ml") << "not aligned";
  EXPECT_EQ(fences_of(0, [&] { ASSERT_TRUE(copy_from_parallel(device_.mapping, 0, received.data(), 4096, 1)); }), "ml");
}

}  // namespace
}  // namespace gigabar
