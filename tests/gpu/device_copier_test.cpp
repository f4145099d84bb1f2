// SPDX-License-Identifier: Apache-2.0
// Copies between GPUs (or within the only one) by the persistent copy kernel and by copy engines: data always checked, times
// printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/peer_memory.hpp"

namespace gigabar::transport::local {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;
constexpr std::uint64_t kAllByKernel = kBytes;
constexpr std::int64_t kLongNs = 10'000'000'000;

template <class Value>
Value must(Result<Value> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

void must(const Result<void>& outcome) {
  if (!outcome) throw std::runtime_error(outcome.message());
}

CopierOptions copier_options(std::uint64_t most_kernel_bytes, std::uint32_t first_number = 0) {
  CopierOptions options;
  options.most_kernel_bytes = most_kernel_bytes;
  options.first_number = first_number;
  return options;
}

class GpuDeviceCopier : public testing::Test {
 protected:
  void SetUp() override {
    const auto list = devices();
    if (!list || list->empty() || list->front().is_stand_in) GTEST_SKIP() << "no GPU";
    const int other = list->size() > 1 ? 1 : 0;
    from_.emplace(must(DeviceMemory::allocate(0, kBytes)));
    to_.emplace(must(DeviceMemory::allocate(other, kBytes)));
    if (other != 0) must(PeerDevices::enable_peer_access(0, other));
  }
  std::uintptr_t from(std::size_t offset = 0) const { return reinterpret_cast<std::uintptr_t>(from_->address()) + offset; }
  std::uintptr_t to(std::size_t offset = 0) const { return reinterpret_cast<std::uintptr_t>(to_->address()) + offset; }

  static void wait(DeviceCopier& copier, CopyTicket ticket) {
    const Deadline deadline = Deadline::after_ns(kLongNs);
    for (;;) {
      const CopyState state = copier.look(ticket);
      if (state == CopyState::finished) return;
      if (state == CopyState::failed) throw std::runtime_error(copier.failure().message());
      if (deadline.has_passed()) throw std::runtime_error("a copy does not end");
      copier.check();
    }
  }

  std::optional<DeviceMemory> from_, to_;
};

// Of any size and place, some apart from each other so that the kernel goes and comes, numbers that wrap.
TEST_F(GpuDeviceCopier, EveryByteArrivesWhoeverCopies) {
  const auto copier = must(DeviceCopier::open(0, copier_options(kAllByKernel, UINT32_MAX - 100)));
  std::mt19937 random(7);
  std::vector<std::byte> expected(kBytes), sent(kBytes), got(kBytes);
  must(engine_copy_to(to_->device(), to(), expected.data(), kBytes));
  unsigned by_kernel = 0;
  for (unsigned round = 0; round < 60; ++round) {
    std::ranges::generate(sent, [&] { return static_cast<std::byte>(random()); });
    must(engine_copy_to(0, from(), sent.data(), kBytes));
    std::vector<CopyTicket> tickets;
    std::size_t at = 0;
    while (at < kBytes) {
      at += random() % 4096;
      const std::size_t most = std::size_t{1} << (random() % 21);
      if (at + most > kBytes) break;
      const std::size_t bytes = 1 + random() % most;
      tickets.push_back(must(copier->copy(CopyWay::between_devices, to(at), from(at), bytes)));
      by_kernel += tickets.back().stream == kPersistentKernel ? 1 : 0;
      std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(at), bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
      at += bytes;
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
      if (random() % 4 == 0) wait(*copier, tickets.back());
    }
    for (const CopyTicket ticket : tickets) wait(*copier, ticket);
    must(engine_copy_from(to_->device(), got.data(), to(), kBytes));
    ASSERT_EQ(std::ranges::mismatch(got, expected).in1 - got.begin(), static_cast<std::ptrdiff_t>(kBytes)) << "round " << round;
  }
  EXPECT_GT(by_kernel, 100U);
  EXPECT_TRUE(copier->is_idle());
}

// What lies in `from` is changed between copies by something else than the kernel, which must not keep the old bytes.
TEST_F(GpuDeviceCopier, TheKernelSeesWhatWasWrittenSinceItCame) {
  const auto copier = must(DeviceCopier::open(0, copier_options(kAllByKernel)));
  unsigned by_kernel = 0;
  for (std::uint64_t round = 1; round <= 2000; ++round) {
    must(engine_copy_to(0, from(), &round, sizeof round));
    for (unsigned again = 0; again < 3; ++again) {
      const CopyTicket ticket = must(copier->copy(CopyWay::between_devices, to(), from(), sizeof round));
      by_kernel += ticket.stream == kPersistentKernel ? 1 : 0;
      wait(*copier, ticket);
    }
    std::uint64_t got = 0;
    must(engine_copy_from(to_->device(), &got, to(), sizeof got));
    ASSERT_EQ(got, round);
  }
  EXPECT_GT(by_kernel, 1000U);
}

TEST_F(GpuDeviceCopier, Times) {
  for (const std::uint64_t most_kernel_bytes : {std::uint64_t{0}, kAllByKernel}) {
    const auto copier = must(DeviceCopier::open(0, copier_options(most_kernel_bytes)));
    for (std::size_t bytes = 4096; bytes <= kBytes; bytes *= 4) {
      std::vector<std::int64_t> times;
      unsigned by_kernel = 0;
      for (unsigned copy = 0; copy < 1000; ++copy) {
        const std::int64_t begin = now_ns();
        const CopyTicket ticket = must(copier->copy(CopyWay::between_devices, to(), from(), bytes));
        wait(*copier, ticket);
        times.push_back(now_ns() - begin);
        by_kernel += ticket.stream == kPersistentKernel ? 1 : 0;
      }
      std::ranges::sort(times);
      std::printf("%8zu bytes: %3u of 1000 by the kernel, p50 %.2f us, p99 %.2f us\n", bytes, by_kernel,
                  static_cast<double>(times[500]) / 1e3, static_cast<double>(times[990]) / 1e3);
    }
  }
}

}  // namespace
}  // namespace gigabar::transport::local
