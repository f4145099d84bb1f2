// SPDX-License-Identifier: Apache-2.0
// Two local transports with a link between them, in one process, and what they told.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "transport/local/open.hpp"

namespace gigabar::transport::test {

inline constexpr std::int64_t kLongNs = 30'000'000'000;

inline Header header_of(std::uint64_t number) {
  Header header{};
  std::memcpy(header.data(), &number, sizeof number);
  std::memcpy(header.data() + kHeaderBytes - sizeof number, &number, sizeof number);
  return header;
}
inline std::uint64_t number_of(const Header& header) {
  std::uint64_t number = 0;
  std::memcpy(&number, header.data(), sizeof number);
  return number;
}

inline std::vector<std::byte> pattern_of(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> content(bytes);
  for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>((i * 131 + (i >> 8) * 31 + seed * 97 + 13) & 0xff);
  return content;
}

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

// Remembers everything; `on_message` may look further.
class Recorder : public Sink {
 public:
  struct Message {
    std::uint64_t number;
    std::vector<std::byte> payload;
  };
  void ready(Link&) override { ++ready_count; }
  void message(Link& link, const Header& header, std::span<const std::byte> payload) override {
    if (on_message) return on_message(link, header, payload);
    messages.push_back({number_of(header), {payload.begin(), payload.end()}});
  }
  void done(Link&, std::uint64_t cookie, const Result<void>& outcome) override {
    EXPECT_EQ(broken_count, 0) << "done() after broken()";
    dones.emplace_back(cookie, outcome.status());
  }
  void broken(Link&, const Error& error) override {
    ++broken_count;
    why = error.message();
  }

  std::function<void(Link&, const Header&, std::span<const std::byte>)> on_message;
  int ready_count = 0;
  int broken_count = 0;
  std::string why;
  std::vector<Message> messages;
  std::vector<std::pair<std::uint64_t, Status>> dones;
};

inline std::unique_ptr<Transport> open_one(int near_device = -1) {
  TransportOptions options;
  options.near_device = near_device;
  return must(open_local(options));
}

inline Peer peer_of(const Transport& transport, Rank rank, std::int64_t process = ::getpid()) {
  Peer peer;
  peer.rank = rank;
  peer.is_same_host = true;
  peer.process = process;
  peer.address = transport.address();
  return peer;
}

// Rank 0 has offered, rank 1 has accepted. `process`: what each is told of the other, to hide that both are one process.
class Pair {
 public:
  explicit Pair(std::int64_t process = ::getpid(), int near_device = -1) {
    for (auto& transport : transports) transport = open_one(near_device);
    peers[0] = peer_of(*transports[1], 1, process);
    peers[1] = peer_of(*transports[0], 0, process);
    Parcel offer;
    Parcel answer;
    links[0] = must(transports[0]->offer(peers[0], 0, offer));
    links[1] = must(transports[1]->accept(peers[1], std::move(offer), answer));
    if (const Result<void> completed = links[0]->complete(std::move(answer)); !completed)
      throw std::runtime_error(completed.message());
    poll();
  }

  bool poll(int side) { return transports[side]->poll(sinks[side]); }
  void poll() {
    poll(0);
    poll(1);
  }
  // False when `is_reached` does not become true.
  template <class Condition>
  bool poll_until(const Condition& is_reached) {
    const Deadline deadline = Deadline::after_ns(kLongNs);
    while (!is_reached()) {
      poll();
      if (deadline.has_passed()) return false;
    }
    return true;
  }
  // What `side` registers, as the other side opens it.
  std::unique_ptr<RemoteRegion> shown(int side, const Region& region) {
    return must(transports[1 - side]->open_region(peers[1 - side], must(region.key(peers[side]))));
  }

  std::unique_ptr<Transport> transports[2];
  Recorder sinks[2];
  Peer peers[2];
  std::unique_ptr<Link> links[2];
};

// Memory of a memfd, of which the middle is meant and the rest is guard.
class SharedMemory {
 public:
  static constexpr std::size_t kGuardBytes = 4096 + 24;
  explicit SharedMemory(std::size_t bytes, unsigned flags = MFD_ALLOW_SEALING)
      : bytes_(bytes),
        whole_bytes_((bytes + 2 * kGuardBytes + 4095) / 4096 * 4096),
        file_(::memfd_create("test", MFD_CLOEXEC | flags)) {
    if (::ftruncate(file_.get(), static_cast<off_t>(whole_bytes_)) != 0) throw std::runtime_error("ftruncate");
    whole_ = static_cast<std::byte*>(::mmap(nullptr, whole_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
    std::memset(whole_, 0x5a, whole_bytes_);
  }
  ~SharedMemory() { ::munmap(whole_, whole_bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return whole_ + kGuardBytes; }
  std::size_t bytes() const { return bytes_; }
  int file() const { return file_.get(); }
  MemoryRange range() const { return {data(), bytes_, MemoryKind::host_pageable, -1, file_.get(), kGuardBytes}; }
  bool are_guards_whole() const {
    for (std::size_t at = 0; at < whole_bytes_; ++at) {
      const bool is_guard = at < kGuardBytes || at >= kGuardBytes + bytes_;
      if (is_guard && whole_[at] != std::byte{0x5a}) return false;
    }
    return true;
  }

 private:
  const std::size_t bytes_;
  const std::size_t whole_bytes_;
  Descriptor file_;
  std::byte* whole_ = nullptr;
};

inline MemoryRange plain_range(std::vector<std::byte>& memory) {
  return {memory.data(), memory.size(), MemoryKind::host_pageable, -1, -1, 0};
}

// Whether `descriptor` becomes readable.
inline bool becomes_readable(int descriptor, int most_ms) {
  pollfd waited{descriptor, POLLIN, 0};
  return ::poll(&waited, 1, most_ms) == 1;
}

}  // namespace gigabar::transport::test
