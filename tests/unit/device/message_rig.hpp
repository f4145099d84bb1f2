// SPDX-License-Identifier: Apache-2.0
// A ring of messages and its two ends in one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "gigabar/device/message.hpp"

namespace gigabar::device::test {

inline constexpr Timeout kTest{0};
inline constexpr Timeout kLong{std::uint64_t{20'000'000'000}};

inline std::vector<std::uint8_t> bytes_of(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(seed * 89 + i * 7 + i / 251 + 1);
  return bytes;
}

// The memory of a ring and its two ends. Unless `is_direct`, the ends have memory of their own, and the test carries lines and
// credits between them.
struct Rig {
  explicit Rig(std::uint32_t line_count, bool is_direct = true) : there(line_count), own(line_count) {
    recv.lines = there.data();
    send.lines = is_direct ? there.data() : own.data();
    send.credit = &credit;
    recv.credit = is_direct ? &credit : &told_credit;
    send.line_count = recv.line_count = line_count;
    send.status = &receiver;
    recv.status = &sender;
  }
  // As if so many laps were over.
  void begin_at(std::uint64_t lap) {
    send.state.position = send.state.credit = recv.state.position = recv.state.credit = lap * there.size();
    for (MessageLine& line : there) line.halves[0] = line.halves[1] = lap << 32;
    own = there;
    credit = told_credit = lap * there.size();
  }
  void carry_half(std::size_t half) { there[half / 2].halves[half % 2] = own[half / 2].halves[half % 2]; }
  void carry_line(std::size_t line) { there[line] = own[line]; }

  std::vector<MessageLine> there, own;
  std::uint64_t credit = 0, told_credit = 0;
  std::uint32_t receiver = 0, sender = 0;  // statuses
  RingEnd send, recv;
};

template <class Line>
struct Ends {
  explicit Ends(Rig& rig) {
    to.open(rig.send);
    from.open(rig.recv);
  }
  Status send(const std::vector<std::uint8_t>& bytes, Timeout timeout = kTest) {
    return device::send(Thread{}, to, bytes.data(), bytes.size(), timeout);
  }
  // Checks that nothing is written beyond the message when it arrives.
  Status recv(std::vector<std::uint8_t>& bytes, std::size_t capacity, Timeout timeout = kTest) {
    std::vector<std::uint8_t> memory(capacity + 8, 0xee);
    std::uint64_t count = 0;
    const Status status = device::recv(Thread{}, from, memory.data(), capacity, count, timeout);
    if (status != Status::ok) return status;
    EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(count), memory.end(), [](auto b) { return b == 0xee; }));
    memory.resize(count);
    bytes = std::move(memory);
    return status;
  }

  BasicSendRing<Line> to;
  BasicRecvRing<Line> from;
};

struct NameOfLine {
  template <class Line>
  static std::string GetName(int) {
    return std::is_same_v<Line, WholeLine> ? "Whole" : "Split";
  }
};
using Lines = testing::Types<WholeLine, SplitLine>;

}  // namespace gigabar::device::test
