// SPDX-License-Identifier: Apache-2.0
// One ring, both halves in one process: every size, every wrap, and memory that a peer has spoiled.
#include "transport/local/ring.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "transport/local/link_memory.hpp"

namespace gigabar::transport::local {
namespace {

Header header_of(std::uint64_t number) {
  Header header{};
  std::memcpy(header.data(), &number, sizeof number);
  std::memcpy(header.data() + 24, &number, sizeof number);
  return header;
}

std::vector<std::byte> payload_of(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>((i * 131 + seed * 97 + 13) & 0xff);
  return payload;
}

struct Ring {
  explicit Ring(std::uint32_t first_line = 0, std::uint32_t first_sequence = 0) {
    auto made = LinkMemory::make(file);
    if (!made) throw std::runtime_error(made.error().message());
    memory = std::move(*made);
    control().consumed_lines = first_line;
    producer.emplace(memory.ring(0), control(), first_line, first_sequence);
    consumer.emplace(memory.ring(0), control(), first_line, first_sequence);
  }
  RingControl& control() const { return memory.page().rings[0]; }

  // Takes the next record and compares it.
  void expect(std::uint64_t number, std::span<const std::byte> payload) {
    Header header;
    std::span<const std::byte> got;
    ASSERT_EQ(consumer->take(header, got), Taken::message) << number;
    EXPECT_EQ(header, header_of(number));
    ASSERT_EQ(got.size(), payload.size()) << number;
    EXPECT_TRUE(std::equal(got.begin(), got.end(), payload.begin())) << number;
    consumer->release();
  }
  bool is_empty() {
    Header header;
    std::span<const std::byte> payload;
    return consumer->take(header, payload) == Taken::nothing && !consumer->has_message();
  }

  Descriptor file;
  LinkMemory memory;
  std::optional<Producer> producer;
  std::optional<Consumer> consumer;
};

TEST(LocalRing, EveryPayloadSizeAroundEveryBoundaryArrives) {
  Ring ring;
  std::uint64_t number = 0;
  for (const std::size_t middle : {0U, 24U, 24U + 64U, 24U + 128U, 4096U, 8192U, 32768U, 65536U}) {
    for (std::size_t bytes = middle < 3 ? 0 : middle - 3; bytes <= std::min(middle + 3, kMaxPayloadBytes); ++bytes) {
      const auto payload = payload_of(bytes, number);
      ASSERT_EQ(ring.producer->post(header_of(number), payload), Posted::ok);
      ring.expect(number, payload);
      EXPECT_TRUE(ring.is_empty());
      ++number;
    }
  }
  EXPECT_EQ(lines_of(kQuickPayloadBytes), 1U);
  EXPECT_EQ(lines_of(kQuickPayloadBytes + 1), 2U);
}

TEST(LocalRing, PositionsAndSequenceNumbersWrap) {
  Ring ring(UINT32_MAX - 5000, UINT32_MAX - 100);
  for (std::uint64_t number = 0; number < 20000; ++number) {
    const auto payload = payload_of(number * 37 % 5000, number);
    ASSERT_EQ(ring.producer->post(header_of(number), payload), Posted::ok);
    ring.expect(number, payload);
  }
  EXPECT_TRUE(ring.is_empty());
}

TEST(LocalRing, AFullRingRefusesAndTakesUpAgain) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{4000}, kMaxPayloadBytes}) {
    Ring ring(UINT32_MAX - 3, 7);
    std::uint64_t posted = 0;
    while (ring.producer->post(header_of(posted), payload_of(bytes, posted)) == Posted::ok) ++posted;
    EXPECT_EQ(posted, (kRingLines - 1) / lines_of(bytes));
    EXPECT_EQ(ring.producer->post(header_of(posted), payload_of(bytes, posted)), Posted::full);
    ring.expect(0, payload_of(bytes, 0));
    EXPECT_EQ(ring.producer->post(header_of(posted), payload_of(bytes, posted)), Posted::ok);
    for (std::uint64_t number = 1; number <= posted; ++number) ring.expect(number, payload_of(bytes, number));
    EXPECT_TRUE(ring.is_empty());
  }
}

// What lies in the ring from earlier laps looks exactly like a record.
TEST(LocalRing, OldBytesAreNoMessages) {
  Ring ring;
  std::vector<std::byte> lookalike(kMaxPayloadBytes);
  for (std::size_t lap = 0; lap < 3; ++lap) {
    for (std::uint64_t number = 0; number < 16; ++number) {
      const std::uint64_t word = presence_word(static_cast<std::uint32_t>(lap * 16 + number + 1), 8);
      for (std::size_t at = 0; at + 8 <= lookalike.size(); at += 8) std::memcpy(lookalike.data() + at, &word, 8);
      ASSERT_EQ(ring.producer->post(header_of(number), lookalike), Posted::ok);
      ring.expect(number, lookalike);
      EXPECT_TRUE(ring.is_empty());
    }
  }
}

TEST(LocalRing, ImpossibleRecordsAreNoticed) {
  const std::uint64_t good = presence_word(0, 10);
  for (const std::uint64_t bad : {good + (std::uint64_t{1} << 32), good & ~kPresent, presence_word(0, kMaxPayloadBytes + 1),
                                  presence_word(0, 0x7fffffff), std::uint64_t{1}, ~std::uint64_t{0}}) {
    Ring ring;
    std::memcpy(ring.memory.ring(0), &bad, sizeof bad);
    Header header;
    std::span<const std::byte> payload;
    EXPECT_EQ(ring.consumer->take(header, payload), Taken::corrupted) << std::hex << bad;
  }
}

TEST(LocalRing, ImpossiblePositionsOfTheConsumerAreNoticed) {
  for (const std::uint32_t bad : {1U, 100U, kRingLines, 0x80000000U}) {
    Ring ring(50, 0);
    while (ring.producer->post(header_of(0), {}) == Posted::ok) {
    }
    ring.control().consumed_lines = 50 + kRingLines - 1 + bad;
    EXPECT_EQ(ring.producer->post(header_of(0), {}), Posted::broken) << bad;
  }
  Ring ring;
  while (ring.producer->post(header_of(0), {}) == Posted::ok) {
  }
  ring.control().consumed_lines = 100;
  EXPECT_EQ(ring.producer->post(header_of(0), {}), Posted::ok);
  while (ring.producer->post(header_of(0), {}) == Posted::ok) {
  }
  ring.control().consumed_lines = 99;  // backwards
  EXPECT_EQ(ring.producer->post(header_of(0), {}), Posted::broken);
}

TEST(LocalRing, AMillionMessagesBetweenTwoThreadsKeepTheirOrder) {
  constexpr std::uint64_t kMessages = 1'000'000;
  Ring ring(UINT32_MAX - 1'000'000, UINT32_MAX - 300'000);
  const Deadline deadline = Deadline::after_ns(60'000'000'000);
  std::thread sender([&] {
    const auto bytes = payload_of(300, 1);
    for (std::uint64_t number = 0; number < kMessages && !deadline.has_passed();) {
      const std::span<const std::byte> payload(bytes.data(), number % 251);
      if (ring.producer->post(header_of(number), payload) == Posted::ok) {
        ++number;
      } else {
        std::this_thread::yield();
      }
    }
  });
  const auto bytes = payload_of(300, 1);
  std::uint64_t number = 0;
  std::uint64_t wrong = 0;
  while (number < kMessages && !deadline.has_passed()) {
    Header header;
    std::span<const std::byte> payload;
    const Taken taken = ring.consumer->take(header, payload);
    if (taken == Taken::nothing) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(taken, Taken::message) << number;
    wrong +=
        header != header_of(number) || payload.size() != number % 251 || !std::equal(payload.begin(), payload.end(), bytes.begin());
    ring.consumer->release();
    ++number;
  }
  sender.join();
  EXPECT_EQ(number, kMessages);
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(ring.is_empty());
}

}  // namespace
}  // namespace gigabar::transport::local
