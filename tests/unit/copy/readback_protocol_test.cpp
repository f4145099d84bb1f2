// SPDX-License-Identifier: Apache-2.0
// Requests and answers of the readback kernel, which threads of the CPU play.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "copy/readback/answer.hpp"
#include "copy/readback/protocol.hpp"
#include "gigabar/device/scope.hpp"
#include "unit/copy/stand_in.hpp"

namespace gigabar::readback {
namespace {

using test::pattern;

constexpr std::uint64_t kLongNs = 60'000'000'000;

// Device memory and pinned memory, and a kernel of some threads that is launched again and again.
class Rig {
 public:
  explicit Rig(std::uint32_t size = 1, std::uint32_t first_number = 1) : size_(size), number_(first_number - 1) {}
  ~Rig() {
    if (!threads_.empty()) end();
  }

  void launch(std::uint64_t max_ns = kLongNs, std::uint64_t max_idle_ns = kLongNs) {
    team_ = std::make_unique<device::CpuTeam>(size_);
    const Launch launch{&device_, host_.get(), ++launches_, next(number_), max_ns, max_idle_ns};
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      threads_.emplace_back([this, launch, rank] {
        const auto locate = [](std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); };
        serve(device::CpuTeam::Member(*team_, rank), launch, requests_, locate);
      });
    }
  }
  // Of what was asked and not answered there is nothing left.
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void end() {
    number_ = next(number_);
    store_request(device_, {0, 0, number_});
    join();
  }
  bool has_ended() const { return device::load_acquire(&host_->ended) == launches_; }
  bool has_started() const { return device::load_relaxed(&host_->started) == launches_; }

  Request request_for(const std::byte* source, std::size_t bytes) {
    number_ = next(number_);
    const auto address = reinterpret_cast<std::uintptr_t>(source);
    const auto skip = static_cast<std::uint32_t>(address % kWordBytes);
    return {address - skip, static_cast<std::uint32_t>(bytes) + skip, number_};
  }
  bool take(const Request& request, const std::byte* source, std::byte* destination) {
    const auto skip = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(source) % kWordBytes);
    return take_answer(*host_, request, skip, destination, [this] {
      std::this_thread::yield();
      return has_ended();
    });
  }
  bool read(const std::byte* source, std::byte* destination, std::size_t bytes) {
    const Request request = request_for(source, bytes);
    store_request(device_, request);
    return take(request, source, destination);
  }
  DeviceSide& device_side() { return device_; }
  HostSide& host_side() { return *host_; }

 private:
  const std::uint32_t size_;
  std::uint32_t number_;
  std::uint32_t launches_ = 0;
  DeviceSide device_{};
  std::unique_ptr<HostSide> host_ = std::make_unique<HostSide>();
  Request requests_[2];
  std::unique_ptr<device::CpuTeam> team_;
  std::vector<std::thread> threads_;
};

TEST(ReadbackProtocol, EveryByteArrivesAndNoOther) {
  for (const std::uint32_t size : {1U, 3U}) {
    Rig rig(size);
    rig.launch();
    std::vector<std::byte> got(33000);
    unsigned round = 0;
    const auto check = [&](std::size_t offset, std::size_t bytes, std::size_t at) {
      const auto sent = pattern(offset + bytes, ++round);
      std::ranges::fill(got, std::byte{0x5a});
      ASSERT_TRUE(rig.read(sent.data() + offset, got.data() + at, bytes));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const bool is_inside = i >= at && i < at + bytes;
        ASSERT_EQ(got[i], is_inside ? sent[offset + i - at] : std::byte{0x5a}) << i << ": " << bytes << " from " << offset;
      }
    };
    for (std::size_t bytes = 1; bytes <= 40; ++bytes) {
      for (std::size_t offset = 0; offset < 5; ++offset) check(offset, bytes, bytes % 7);
    }
    for (const std::size_t bytes : {48U, 96U, 100U, 4800U}) check(0, bytes, 1);
    for (const std::size_t bytes : {1000U, 4096U, 4097U, 32767U, 32768U}) check(bytes % 4, bytes, 3);
  }
}

// What is changed between requests by the thread that asks is seen by all threads of the kernel.
TEST(ReadbackProtocol, SeesWhatWasStoredBeforeTheRequest) {
  for (const std::uint32_t size : {1U, 2U}) {
    Rig rig(size);
    rig.launch();
    std::vector<std::uint32_t> memory(300), got(300);
    for (std::uint32_t round = 1; round <= 500; ++round) {
      for (std::uint32_t& word : memory) device::store_relaxed(&word, round);
      ASSERT_TRUE(rig.read(reinterpret_cast<const std::byte*>(memory.data()), reinterpret_cast<std::byte*>(got.data()), 1200));
      ASSERT_EQ(got, memory);
    }
  }
}

TEST(ReadbackProtocol, NumbersWrapAndAreNeverZero) {
  EXPECT_EQ(next(UINT32_MAX), 1U);
  EXPECT_EQ(next(1), 2U);
  Rig rig(1, UINT32_MAX - 2);
  rig.launch();
  for (unsigned round = 0; round < 6; ++round) {
    const auto sent = pattern(100, round);
    std::vector<std::byte> got(100);
    ASSERT_TRUE(rig.read(sent.data(), got.data(), 100));
    EXPECT_EQ(got, sent);
  }
  rig.end();
  EXPECT_TRUE(rig.has_ended());
}

// Write-combining buffers may write the second half of a request first, and the first one much later.
TEST(ReadbackProtocol, ATornRequestIsNotTaken) {
  Rig rig;
  const auto old = pattern(64, 1), sent = pattern(64, 2);
  std::vector<std::byte> got(64);
  rig.launch();
  ASSERT_TRUE(rig.read(old.data(), got.data(), 64));
  const Request request = rig.request_for(sent.data(), 64);
  DeviceSide whole;
  store_request(whole, request);
  Request found;
  for (const unsigned first : {1U, 0U}) {
    DeviceSide torn = rig.device_side();
    torn.request.halves[first] = whole.request.halves[first];
    EXPECT_FALSE(load_request(torn, request.number, found)) << first;
  }
  EXPECT_TRUE(load_request(whole, request.number, found));
  EXPECT_EQ(found.address, request.address);
  EXPECT_EQ(found.bytes, request.bytes);
  device::store_relaxed(&rig.device_side().request.halves[1], whole.request.halves[1]);
  bool has_answered = false;
  unsigned questions = 0;
  has_answered = take_answer(rig.host_side(), request, 0, got.data(), [&] {
    std::this_thread::yield();
    return ++questions == 200;
  });
  EXPECT_FALSE(has_answered) << "half a request";
  device::store_relaxed(&rig.device_side().request.halves[0], whole.request.halves[0]);
  ASSERT_TRUE(rig.take(request, sent.data(), got.data()));
  EXPECT_EQ(got, sent);
}

TEST(ReadbackProtocol, EndsAfterSilenceAndAfterItsTime) {
  Rig rig(2);
  rig.launch(kLongNs, 1'000'000);
  rig.join();
  EXPECT_TRUE(rig.has_ended());
  rig.launch(1'000'000, kLongNs);
  rig.join();
  EXPECT_TRUE(rig.has_ended());
  // A launch whose time is nothing says that it has been there.
  rig.launch(0, 0);
  rig.join();
  EXPECT_TRUE(rig.has_started());
  EXPECT_TRUE(rig.has_ended());
}

// The next request is there whenever the kernel looks.
TEST(ReadbackProtocol, RequestsThatFollowEachOtherDoNotKeepIt) {
  const auto sent = pattern(24);
  const auto address = reinterpret_cast<std::uint64_t>(sent.data());
  DeviceSide device;
  const auto host = std::make_unique<HostSide>();
  std::uint32_t asked = 1;
  store_request(device, {address, 24, asked});
  const auto locate = [&](std::uint64_t at) {
    if (asked < 100) store_request(device, {address, 24, ++asked});
    return reinterpret_cast<const std::byte*>(at);
  };
  Request requests[2];
  serve(device::Thread(), Launch{&device, host.get(), 1, 1, 0, 0}, requests, locate);
  EXPECT_EQ(host->ended, 1U);
  EXPECT_EQ(asked, 2U) << "its time was over after the first";
}

// A request that meets the kernel's end is answered as a whole, or not at all.
TEST(ReadbackProtocol, NoAnswerIsHalf) {
  Rig rig(2);
  const auto sent = pattern(2000);
  unsigned answered = 0, unanswered = 0;
  for (unsigned round = 0; round < 60; ++round) {
    rig.launch(kLongNs, round % 4 == 0 ? 0 : 20'000 * (round % 20));
    bool is_there = true;
    for (unsigned i = 0; i < 20 && is_there; ++i) {
      std::vector<std::byte> got(2000);
      const Request request = rig.request_for(sent.data(), 2000);
      store_request(rig.device_side(), request);
      is_there = rig.take(request, sent.data(), got.data());
      is_there ? ++answered : ++unanswered;
      if (is_there) {
        ASSERT_EQ(got, sent);
        for (unsigned pause = 0; pause < round % 5; ++pause) std::this_thread::yield();
        continue;
      }
      rig.join();
      for (const device::MessageLine& line : rig.host_side().lines) ASSERT_NE(line.halves[1] >> 32, request.number);
    }
    if (is_there) rig.end();
  }
  EXPECT_GT(unanswered, 0U);
}

}  // namespace
}  // namespace gigabar::readback
