// SPDX-License-Identifier: Apache-2.0
// What the two sides of a link share: one memfd of a sealed size with two rings, and a pair of sockets to wake each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"
#include "memory/host_pages.hpp"
#include "transport/local/ring.hpp"

namespace gigabar::transport::local {

// What one side wants to be woken for; written by that side, taken (set to 0) by the peer that wakes it.
inline constexpr std::uint32_t kWakeForMessage = 1;
inline constexpr std::uint32_t kWakeForRoom = 2;
struct alignas(128) SleepControl {
  std::atomic<std::uint32_t> sleeping{0};
};

// How many words a side has written, modulo 2^32: the other one learns from the sum that there is something to look at. Several
// counters, so that threads which write at once need not share one.
inline constexpr std::size_t kWordCounters = 4;
struct alignas(128) WordControl {
  std::atomic<std::uint32_t> written{0};
};

// The first page. Index 0 is the direction from the initiator, and the initiator itself.
struct LinkPage {
  RingControl rings[2];
  SleepControl sides[2];
  WordControl words[2][kWordCounters];
};

inline constexpr std::size_t kLinkPageBytes = 65536;  // a multiple of every page size
inline constexpr std::size_t kLinkFileBytes = kLinkPageBytes + 2 * kRingBytes;
static_assert(sizeof(LinkPage) <= kLinkPageBytes && kRingBytes % kLinkPageBytes == 0);

// The mapping of one side. Not inherited by forked children.
class LinkMemory {
 public:
  // A new file with everything 0, and its mapping. Errors: out_of_memory, out_of_descriptors.
  static Result<LinkMemory> make(Descriptor& file);
  // Maps a peer's file. Errors: bad_file (no memfd, another size, a size that can change), as make.
  static Result<LinkMemory> open(const Descriptor& file);

  LinkMemory() noexcept = default;
  LinkPage& page() const noexcept { return *static_cast<LinkPage*>(view_.get()); }
  std::byte* ring(unsigned direction) const noexcept {
    return static_cast<std::byte*>(view_.get()) + kLinkPageBytes + std::size_t{direction} * 2 * kRingBytes;
  }

 private:
  explicit LinkMemory(std::unique_ptr<void, UnmapPages> view) noexcept : view_(std::move(view)) {}
  static Result<LinkMemory> map(const Descriptor& file);
  std::unique_ptr<void, UnmapPages> view_;
};

// A socket to wake a peer with and to be woken by. Neither an eventfd nor a pipe: whether a write to those blocks is decided by
// flags that the peer shares and can change, where send() says it in each call.
Result<void> make_wake_pair(Descriptor& own, Descriptor& peers);
// Errors: bad_file (not a local stream socket).
Result<void> check_wake_socket(const Descriptor& socket);
// A full or closed socket needs no wake.
void send_wake(const Descriptor& socket) noexcept;
// Takes what was sent; a bounded amount.
void take_wakes(const Descriptor& socket) noexcept;

}  // namespace gigabar::transport::local
