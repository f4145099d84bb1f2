// SPDX-License-Identifier: Apache-2.0
// How the CPU takes an answer of the readback kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "copy/readback/protocol.hpp"

namespace gigabar::readback {

// The two loads of a line, in the order that finds its data behind its number (device::WholeLine::load).
struct AnswerLine {
  explicit AnswerLine(const device::MessageLine& line)
      : high(device::load_acquire(&line.halves[1])), low(device::load_relaxed(&line.halves[0])) {}
  std::uint32_t number() const { return static_cast<std::uint32_t>(high >> 32); }
  void copy_to(std::byte* destination) const {
    std::memcpy(destination, &low, sizeof low);
    std::memcpy(destination + sizeof low, &high, kWordBytes);
  }

  std::uint64_t high, low;
};

// Copies the answer's bytes from `skip` on, as its lines come. Asks `gives_up` once in 64 polls of a line that is not there. False:
// it said so, and some bytes may be copied. It says so when the kernel has ended: then every line is there, or none.
template <class GivesUp>
bool take_answer(const HostSide& host, const Request& request, std::uint32_t skip, std::byte* destination, GivesUp gives_up) {
  constexpr std::uint32_t kPollsPerQuestion = 64;
  bool has_given_up = false;
  for (std::uint32_t begin = 0, poll = 0; begin < request.bytes;) {
    const AnswerLine line(host.lines[begin / kLineBytes]);
    if (line.number() != request.number) [[unlikely]] {
      if (has_given_up) return false;
      if (++poll % kPollsPerQuestion == 0) has_given_up = gives_up();
      continue;
    }
    if (begin >= skip && begin + kLineBytes <= request.bytes) [[likely]] {
      line.copy_to(destination + (begin - skip));
    } else {
      std::byte bytes[kLineBytes];
      line.copy_to(bytes);
      const std::uint32_t first = begin < skip ? skip - begin : 0;
      const std::uint32_t end = std::min(request.bytes - begin, kLineBytes);
      if (first < end) std::memcpy(destination + (begin + first - skip), bytes + first, end - first);
    }
    begin += kLineBytes;
  }
  return true;
}

}  // namespace gigabar::readback
