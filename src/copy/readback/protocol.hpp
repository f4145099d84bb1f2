// SPDX-License-Identifier: Apache-2.0
// What the CPU and the readback kernel say to each other, and what the kernel does. Threads of the CPU play the kernel in tests.
//
// A request is a line in device memory, which the CPU stores through a mapping. Its buffers may write the line's halves in any
// order, so each half carries the request's number (message_line.hpp). The answer is lines in pinned host memory: 12 bytes of data
// and the number, stored as one access, so nothing is fenced and no line waits for another one. A request's answer is whole, or
// there is none: one thread decides whether the block answers. There is one request at a time, so a line that carries its number is
// not changed while the CPU reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/message_line.hpp"

namespace gigabar::readback {

inline constexpr std::uint32_t kThreads = 512;
inline constexpr std::uint32_t kLinesPerThread = 6;  // loaded before the first is stored: all that a thread has of 32 KiB
inline constexpr std::uint32_t kWordBytes = sizeof(std::uint32_t);
inline constexpr std::uint32_t kLineBytes = device::WholeLine::kWords * kWordBytes;
// A request begins at a word, so the word in which the bytes begin is read whole.
inline constexpr std::uint32_t kMaxRequestBytes = 32768 + kWordBytes - 1;

GIGABAR_DEVICE constexpr std::uint32_t lines_of(std::uint32_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes; }
inline constexpr std::uint32_t kMaxLines = lines_of(kMaxRequestBytes);

// Numbers are never 0, which is what lines are filled with at first.
GIGABAR_DEVICE constexpr std::uint32_t next(std::uint32_t number) { return number + 1 == 0 ? 1 : number + 1; }

struct Request {
  std::uint64_t address = 0;  // a multiple of 4
  std::uint32_t bytes = 0;    // 0: end
  std::uint32_t number = 0;
};

// Of a device address. The bits above carry the number's lowest.
inline constexpr unsigned kAddressBits = 52;
GIGABAR_DEVICE constexpr std::uint64_t tag_of(std::uint32_t number) { return std::uint64_t{number} << kAddressBits; }

// In device memory.
struct DeviceSide {
  device::MessageLine request;
};

// In pinned host memory.
struct HostSide {
  alignas(64) device::MessageLine lines[kMaxLines];
  alignas(128) std::uint32_t started = 0;  // number of the launch that runs or ran last
  alignas(128) std::uint32_t ended = 0;    // number of the launch that has ended: it touches nothing any more
};

struct Launch {
  const DeviceSide* device = nullptr;
  HostSide* host = nullptr;
  std::uint32_t launch = 0;         // number of this one
  std::uint32_t first_request = 0;  // that it waits for
  std::uint64_t max_ns = 0;         // the kernel ends when it has run for so long
  std::uint64_t max_idle_ns = 0;    // or has waited for a request for so long
};

// By the CPU, through a mapping: who sees the request sees what the thread stored before. The fences that this takes on memory that
// is not ordinary are the caller's.
inline void store_request(DeviceSide& mapped, const Request& request) {
  device::store_relaxed(&mapped.request.halves[0], request.address | tag_of(request.number));
  device::store_release(&mapped.request.halves[1], request.bytes | std::uint64_t{request.number} << 32);
}

// Whether that request is there. What was written before the CPU stored it is visible then.
GIGABAR_DEVICE bool load_request(const DeviceSide& side, std::uint32_t number, Request& found) {
  std::uint32_t words[device::WholeLine::kWords];
  if (!device::WholeLine::load<device::Order::after_writes>(&side.request, number, words)) return false;
  const std::uint64_t first = words[0] | std::uint64_t{words[1]} << 32;
  constexpr std::uint64_t kAddressMask = (std::uint64_t{1} << kAddressBits) - 1;
  found = {first & kAddressMask, words[2], number};
  return (first & ~kAddressMask) == tag_of(number);
}

// Data word `index` of a request. Bytes behind the end are not touched.
GIGABAR_DEVICE std::uint32_t load_word(const std::byte* from, std::uint32_t bytes, std::uint32_t index) {
  const std::uint32_t begin = index * kWordBytes;
  if (begin + kWordBytes <= bytes) return device::load_relaxed(reinterpret_cast<const std::uint32_t*>(from + begin));
  std::uint32_t word = 0;
  for (std::uint32_t i = begin; i < bytes; ++i) {
    const std::uint32_t byte = *reinterpret_cast<const volatile unsigned char*>(from + i);
    word |= byte << (8 * (i - begin));
  }
  return word;
}

// One thread's share of the lines. Relaxed loads of the whole system find what is in memory, and never what this multiprocessor's
// cache kept of an earlier request.
template <class Scope>
GIGABAR_DEVICE void answer(const Scope& scope, const std::byte* from, const Request& request, device::MessageLine* lines) {
  using device::WholeLine;
  const std::uint32_t count = lines_of(request.bytes);
  for (std::uint32_t first = scope.rank(); first < count; first += kLinesPerThread * scope.size()) {
    std::uint32_t words[kLinesPerThread][WholeLine::kWords];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t i = 0; i < kLinesPerThread; ++i) {
      const std::uint32_t line = first + i * scope.size();
      if (line >= count) continue;
      for (std::uint32_t j = 0; j < WholeLine::kWords; ++j) {
        words[i][j] = load_word(from, request.bytes, line * WholeLine::kWords + j);
      }
    }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t i = 0; i < kLinesPerThread; ++i) {
      const std::uint32_t line = first + i * scope.size();
      if (line < count) WholeLine::store(lines + line, words[i], request.number);
    }
  }
}

// One thread. A request of 0 bytes: it came, or the kernel's time is over.
GIGABAR_DEVICE Request await_request(const Launch& launch, std::uint32_t number, std::uint64_t end_ns) {
  Request found;
  device::Deadline deadline(device::Timeout{launch.max_idle_ns});
  while (!load_request(*launch.device, number, found)) {
    if (deadline.has_passed() || (deadline.has_looked() && device::now_ns() >= end_ns)) return {};
  }
  return found;
}

// The kernel. `requests` is shared by the scope's threads; two, so that one barrier for each request is enough: a thread may still
// read one while the first thread fills the other. `locate` says where a request's address lies.
template <class Scope, class Locate>
GIGABAR_DEVICE void serve(const Scope& scope, const Launch& launch, Request (&requests)[2], const Locate& locate) {
  const bool is_first = scope.rank() == 0;
  std::uint64_t end_ns = 0;
  if (is_first) {
    end_ns = device::now_ns() + launch.max_ns;
    device::store_relaxed(&launch.host->started, launch.launch);
  }
  std::uint32_t turn = 0;
  // The clock is read behind an answer, where it holds up nobody: requests that follow each other closely do not keep the kernel.
  for (std::uint32_t number = launch.first_request;; number = next(number), turn ^= 1) {
    if (is_first) {
      const bool is_over = number != launch.first_request && device::now_ns() >= end_ns;
      requests[turn] = is_over ? Request() : await_request(launch, number, end_ns);
    }
    scope.sync();
    const Request request = requests[turn];
    if (request.bytes == 0) break;
    answer(scope, locate(request.address), request, launch.host->lines);
  }
  // All answers of all threads come before: the others' by the barrier.
  if (is_first) device::store_release(&launch.host->ended, launch.launch);
}

}  // namespace gigabar::readback
