// SPDX-License-Identifier: Apache-2.0
// gigabar/copy.hpp on stand-in memory: what is copied, what is refused and how, ordering where one CPU can see it, forks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "support/in_child.hpp"
#include "unit/copy/stand_in.hpp"

namespace gigabar {
namespace {

using Sizes = std::initializer_list<std::size_t>;

using test::has;
using test::mapped_stand_in;
using test::MappedStandIn;
using test::pattern;

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kHuge = ~std::size_t{0};

// Every function with a range, as one shape: mapping, offset, host, bytes.
struct RangeFunction {
  const char* name;
  Result<void> (*call)(const Mapping& mapping, std::size_t offset_bytes, void* host, std::size_t bytes);
};

Result<void> outcome_of(Result<CopyMethod> result) {
  if (!result) return std::move(result).error();
  return {};
}

const RangeFunction kRangeFunctions[] = {
    {"copy_to", [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return copy_to(m, at, host, bytes); }},
    {"copy_from", [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return copy_from(m, at, host, bytes); }},
    {"copy_to_parallel",
     [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return copy_to_parallel(m, at, host, bytes, 2); }},
    {"copy_from_parallel",
     [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return copy_from_parallel(m, at, host, bytes, 2); }},
    {"batch copy_to",
     [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return Batch(m).copy_to(at, host, bytes); }},
    {"publish", [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return publish(m, at, host, bytes, 0, 1U); }},
    {"copy",
     [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return outcome_of(copy({m, at}, host, bytes)); }},
    {"copy",
     [](const Mapping& m, std::size_t at, void* host, std::size_t bytes) { return outcome_of(copy(host, {m, at}, bytes)); }},
    {"fill", [](const Mapping& m, std::size_t at, void*, std::size_t bytes) { return fill(m, at, std::byte{9}, bytes); }},
};

TEST(Copy, GoesThereAndBackAtEveryOffset) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto sent = pattern(kBytes);
  for (const std::size_t bytes : Sizes{0, 1, 2, 3, 4, 7, 8, 15, 63, 64, 65, 200, 1000}) {
    for (std::size_t offset = 0; offset < 130; ++offset) {
      std::memset(device.bytes(), 0xEE, kBytes);
      ASSERT_TRUE(copy_to(device.mapping, offset, sent.data() + 1, bytes));
      ASSERT_EQ(std::memcmp(device.bytes() + offset, sent.data() + 1, bytes), 0);
      ASSERT_TRUE(std::all_of(device.bytes(), device.bytes() + offset, [](std::byte b) { return b == std::byte{0xEE}; }));
      ASSERT_TRUE(
          std::all_of(device.bytes() + offset + bytes, device.bytes() + kBytes, [](std::byte b) { return b == std::byte{0xEE}; }));
      std::vector<std::byte> received(bytes + 2, std::byte{0x77});
      ASSERT_TRUE(copy_from(device.mapping, offset, received.data() + 1, bytes));
      ASSERT_EQ(std::memcmp(received.data() + 1, sent.data() + 1, bytes), 0);
      ASSERT_EQ(received.front(), std::byte{0x77});
      ASSERT_EQ(received.back(), std::byte{0x77});
    }
  }
}

TEST(Copy, ReachesTheLastByte) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto sent = pattern(kBytes);
  EXPECT_TRUE(copy_to(device.mapping, 0, sent.data(), kBytes));
  EXPECT_EQ(device.content(), sent);
  std::byte last{};
  EXPECT_TRUE(copy_from(device.mapping, kBytes - 1, &last, 1));
  EXPECT_EQ(last, sent.back());
  EXPECT_TRUE(copy_to(device.mapping, kBytes, sent.data(), 0));
}

TEST(Copy, RefusesRangesThatLeaveTheMapping) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto before = pattern(kBytes);
  std::memcpy(device.bytes(), before.data(), kBytes);
  std::vector<std::byte> host(2 * kBytes, std::byte{0x55});
  for (const RangeFunction& function : kRangeFunctions) {
    for (const auto& [offset, bytes] : {std::pair<std::size_t, std::size_t>{0, kBytes + 1},
                                        {kBytes, 1},
                                        {kBytes + 1, 0},
                                        {1, kBytes},
                                        {kHuge, 1},
                                        {1, kHuge},
                                        {kHuge, kHuge},
                                        {kHuge - 7, 8},
                                        {8, kHuge - 7}}) {
      const Result<void> refused = function.call(device.mapping, offset, host.data(), bytes);
      EXPECT_EQ(refused.status(), Status::out_of_range) << function.name << " " << offset << " +" << bytes;
      if (refused) continue;
      EXPECT_EQ(refused.record().operation, function.name);
      EXPECT_TRUE(has(refused.message(), std::to_string(bytes))) << refused.message();
      EXPECT_TRUE(has(refused.message(), std::to_string(kBytes))) << refused.message();
      EXPECT_FALSE(refused.record().cause.empty());
      EXPECT_FALSE(refused.record().remedy.empty());
    }
  }
  EXPECT_EQ(device.content(), before);
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0x55}; }));
}

TEST(Copy, RefusesNullHostMemoryUnlessThereIsNothingToCopy) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  for (const RangeFunction& function : kRangeFunctions) {
    if (function.name == std::string_view("fill")) continue;  // it has no host memory
    const Result<void> refused = function.call(device.mapping, 0, nullptr, 8);
    EXPECT_EQ(refused.status(), Status::invalid_argument) << function.name;
    EXPECT_TRUE(has(refused.message(), "null")) << refused.message();
    EXPECT_TRUE(function.call(device.mapping, 0, nullptr, 0)) << function.name;
  }
}

TEST(Copy, RefusesAMappingThatWasMovedFrom) {
  MappedStandIn device = mapped_stand_in(kBytes);
  const Mapping moved = std::move(device.mapping);
  std::array<std::byte, 8> host{};
  for (const RangeFunction& function : kRangeFunctions) {
    const Result<void> refused = function.call(device.mapping, 0, host.data(), host.size());
    EXPECT_EQ(refused.status(), Status::invalid_argument) << function.name;
    EXPECT_TRUE(has(refused.message(), "moved")) << refused.message();
  }
  EXPECT_TRUE(copy_to(moved, 0, host.data(), host.size()));
}

TEST(Copy, RefusesInAForkedChild) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  std::array<std::byte, 8> host{};
  ASSERT_TRUE(copy_to_parallel(device.mapping, 0, host.data(), host.size(), 2));  // the parent's threads exist
  const test::ChildEnd end = test::run_in_child([&] {
    int wrong_count = 0;
    for (const RangeFunction& function : kRangeFunctions) {
      const Result<void> refused = function.call(device.mapping, 0, host.data(), host.size());
      if (refused.status() != Status::foreign_process) ++wrong_count;
    }
    return wrong_count;
  });
  EXPECT_TRUE(end.is_exit(0)) << end.to_string();
  EXPECT_TRUE(copy_to(device.mapping, 0, host.data(), host.size()));
}

TEST(Fill, SetsExactlyTheRange) {
  constexpr std::size_t kMost = 20'000;
  const MappedStandIn device = mapped_stand_in(kMost + 200);
  for (const std::size_t bytes : Sizes{0, 1, 2, 8, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 20000}) {
    for (const std::size_t offset : Sizes{0, 1, 8, 63, 64, 65}) {
      std::memset(device.bytes(), 0x11, kMost + 200);
      ASSERT_TRUE(fill(device.mapping, offset, std::byte{0xAB}, bytes));
      const auto count = std::count(device.bytes() + offset, device.bytes() + offset + bytes, std::byte{0xAB});
      ASSERT_EQ(static_cast<std::size_t>(count), bytes);
      const auto others = std::count(device.bytes(), device.bytes() + kMost + 200, std::byte{0x11});
      ASSERT_EQ(static_cast<std::size_t>(others), kMost + 200 - bytes);
    }
  }
}

TEST(Publish, StoresDataAndFlag) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto sent = pattern(100);
  ASSERT_TRUE(publish(device.mapping, 3, sent.data(), sent.size(), 256, std::uint64_t{0x1122334455667788}));
  EXPECT_EQ(std::memcmp(device.bytes() + 3, sent.data(), sent.size()), 0);
  std::uint64_t flag = 0;
  std::memcpy(&flag, device.bytes() + 256, sizeof flag);
  EXPECT_EQ(flag, 0x1122334455667788U);
  ASSERT_TRUE(publish(device.mapping, 260, std::uint32_t{0xCAFEBABE}));
  std::memcpy(&flag, device.bytes() + 256, sizeof flag);
  EXPECT_EQ(flag, 0xCAFEBABE55667788U);
}

TEST(Publish, RefusesAFlagThatIsNotAlignedAndStoresNothing) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto before = pattern(kBytes);
  std::memcpy(device.bytes(), before.data(), kBytes);
  const std::uint64_t data = ~std::uint64_t{0};
  for (const std::size_t offset : Sizes{1, 2, 3, 4, 5, 6, 7, 9, 12, 4084}) {
    EXPECT_EQ(publish(device.mapping, offset, std::uint64_t{1}).status(), Status::invalid_argument) << offset;
    EXPECT_EQ(publish(device.mapping, 512, &data, sizeof data, offset, std::uint64_t{1}).status(), Status::invalid_argument)
        << offset;
    if (offset % 4 == 0) continue;
    const Result<void> refused = publish(device.mapping, offset, std::uint32_t{1});
    EXPECT_EQ(refused.status(), Status::invalid_argument) << offset;
    EXPECT_TRUE(has(refused.message(), "multiple of 4")) << refused.message();
  }
  EXPECT_EQ(device.content(), before);
}

// The mapping may begin anywhere; what counts is the flag's address on the device.
TEST(Publish, AsksForAlignmentOfTheDeviceAddressNotTheOffset) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto part = map(device.bytes() + 4, 64);
  ASSERT_TRUE(part.is_ok());
  EXPECT_EQ(publish(part.value(), 0, std::uint64_t{1}).status(), Status::invalid_argument);
  EXPECT_TRUE(publish(part.value(), 4, std::uint64_t{7}));
  EXPECT_EQ(device.bytes()[8], std::byte{7});
}

TEST(Publish, RefusesEitherRangeAndStoresNothing) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  const auto before = pattern(kBytes);
  std::memcpy(device.bytes(), before.data(), kBytes);
  const std::uint64_t data = ~std::uint64_t{0};
  EXPECT_EQ(publish(device.mapping, kBytes - 4, &data, 8, 0, 1U).status(), Status::out_of_range);
  const Result<void> refused = publish(device.mapping, 0, &data, 8, kBytes, std::uint64_t{1});
  EXPECT_EQ(refused.status(), Status::out_of_range);
  EXPECT_TRUE(has(refused.message(), "flag")) << refused.message();
  EXPECT_EQ(publish(device.mapping, kBytes - 4, std::uint64_t{1}).status(), Status::out_of_range);
  EXPECT_EQ(publish(device.mapping, kHuge - 7, std::uint64_t{1}).status(), Status::out_of_range);
  EXPECT_EQ(device.content(), before);
}

// A reader that acquires the flag sees the data of that round; under ThreadSanitizer, without a race.
TEST(Publish, LetsAReaderOfTheFlagSeeTheData) {
  constexpr std::uint64_t kRounds = 2000;
  constexpr std::size_t kWords = 32;
  const MappedStandIn device = mapped_stand_in(kBytes);
  std::memset(device.bytes(), 0, kBytes);
  auto* const flag = reinterpret_cast<std::uint64_t*>(device.bytes() + 1024);
  std::atomic<std::uint64_t> answered{0};
  std::uint64_t wrong_count = 0;
  std::thread reader([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != round) std::this_thread::yield();
      std::array<std::uint64_t, kWords> seen{};
      std::memcpy(seen.data(), device.bytes(), sizeof seen);
      wrong_count += static_cast<std::uint64_t>(std::count_if(seen.begin(), seen.end(), [&](auto word) { return word != round; }));
      answered.store(round, std::memory_order_release);
    }
  });
  std::array<std::uint64_t, kWords> sent{};
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    sent.fill(round);
    EXPECT_TRUE(publish(device.mapping, 0, sent.data(), sizeof sent, 1024, round));
    while (answered.load(std::memory_order_acquire) != round) std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(wrong_count, 0U);
}

TEST(Batch, StoresEveryPiece) {
  const MappedStandIn device = mapped_stand_in(kBytes);
  std::memset(device.bytes(), 0, kBytes);
  const auto sent = pattern(64);
  {
    Batch batch(device.mapping);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_TRUE(batch.copy_to(i * 100, sent.data(), sent.size()));
    EXPECT_EQ(batch.copy_to(kBytes - 8, sent.data(), 64).status(), Status::out_of_range);
    EXPECT_TRUE(batch.copy_to(2000, sent.data(), 5));  // still usable
    batch.commit();
    batch.commit();
    EXPECT_TRUE(batch.copy_to(3000, sent.data(), 7));  // committed by the destructor
  }
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(std::memcmp(device.bytes() + i * 100, sent.data(), 64), 0) << i;
  EXPECT_EQ(std::memcmp(device.bytes() + 2000, sent.data(), 5), 0);
  EXPECT_EQ(std::memcmp(device.bytes() + 3000, sent.data(), 7), 0);
  EXPECT_EQ(std::count(device.bytes() + kBytes - 8, device.bytes() + kBytes, std::byte{0}), 8);
}

TEST(Copy, DoesWithEachMethodWhatCopyToDoes) {
  constexpr std::size_t kMost = 300'000;
  const MappedStandIn device = mapped_stand_in(kMost);
  const auto sent = pattern(kMost);
  for (const CopyMethod method : {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::copy_engine}) {
    for (const std::size_t bytes : Sizes{0, 1, 8, 1000, 65536, 299998}) {
      std::memset(device.bytes(), 0xEE, kMost);
      const auto to = copy({device.mapping, 1}, sent.data(), bytes, method);
      ASSERT_TRUE(to.is_ok()) << to.error().message();
      EXPECT_EQ(to.value(), method);
      EXPECT_EQ(std::memcmp(device.bytes() + 1, sent.data(), bytes), 0) << name_of(method) << " " << bytes;
      EXPECT_EQ(device.bytes()[0], std::byte{0xEE});
      EXPECT_EQ(device.bytes()[bytes + 1], std::byte{0xEE});
      std::vector<std::byte> received(bytes + 1, std::byte{0x77});
      const auto from = copy(received.data(), {device.mapping, 1}, bytes, method);
      ASSERT_TRUE(from.is_ok()) << from.error().message();
      EXPECT_EQ(from.value(), method);
      EXPECT_EQ(std::memcmp(received.data(), sent.data(), bytes), 0) << name_of(method) << " " << bytes;
      EXPECT_EQ(received.back(), std::byte{0x77});
    }
  }
}

TEST(Names, AreThoseOfTheEnumerators) {
  EXPECT_EQ(name_of(CopyDirection::to_device), "to_device");
  EXPECT_EQ(name_of(CopyDirection::from_device), "from_device");
  EXPECT_EQ(name_of(CopyMethod::cpu), "cpu");
  EXPECT_EQ(name_of(CopyMethod::cpu_parallel), "cpu_parallel");
  EXPECT_EQ(name_of(CopyMethod::copy_engine), "copy_engine");
}

}  // namespace
}  // namespace gigabar
