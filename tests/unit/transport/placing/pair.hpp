// SPDX-License-Identifier: Apache-2.0
// Two transports of this process, of a kind whose target's CPU places all bytes, with a link between them, and what their sinks
// were told.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "transport/placing.hpp"

namespace gigabar::transport::pairs {

inline constexpr std::int64_t kPatienceNs = 30'000'000'000;

struct Message {
  Header header{};
  std::vector<std::byte> payload;
};

class Recorder final : public Sink {
 public:
  void ready(Link& link) override { ++ready_count[&link]; }
  void message(Link& link, const Header& header, std::span<const std::byte> payload) override {
    if (on_message) return on_message(link, header, payload);
    messages.push_back({header, {payload.begin(), payload.end()}});
  }
  void done(Link& link, std::uint64_t cookie, const Result<void>& outcome) override {
    EXPECT_EQ(errors.count(&link), 0u) << "done() after broken()";
    EXPECT_TRUE(dones.emplace(cookie, outcome ? "" : outcome.message()).second) << "done() twice for " << cookie;
  }
  void broken(Link& link, const Error& error) override {
    EXPECT_TRUE(errors.emplace(&link, error.message()).second) << "broken() twice";
    statuses[&link] = error.status();
  }

  std::function<void(Link&, const Header&, std::span<const std::byte>)> on_message;
  std::map<Link*, int> ready_count;
  std::vector<Message> messages;
  std::map<std::uint64_t, std::string> dones;  // by cookie; empty: well
  std::map<Link*, std::string> errors;
  std::map<Link*, Status> statuses;
};

inline Header header_of(std::uint64_t number) {
  Header header{};
  std::memcpy(header.data(), &number, sizeof number);
  return header;
}
inline std::uint64_t number_of(const Header& header) {
  std::uint64_t number = 0;
  std::memcpy(&number, header.data(), sizeof number);
  return number;
}

inline std::byte pattern(std::uint64_t offset, std::uint64_t seed) {
  return static_cast<std::byte>((offset * 0x9e3779b97f4a7c15 + seed * 0x100000001b3) >> 56);
}
inline std::vector<std::byte> patterned(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = pattern(i, seed);
  return data;
}

// Host memory with guard bytes on both sides, registered.
struct Buffer {
  Buffer(Transport& transport, std::size_t length) : memory(length + 2 * kGuard, kGuardByte), bytes(length) {
    MemoryRange range;
    range.address = data();
    range.bytes = bytes;
    auto registered = transport.register_memory(range);
    EXPECT_TRUE(registered) << registered.error().message();
    if (registered) region = std::move(*registered);
  }
  std::byte* data() { return memory.data() + kGuard; }
  bool is_guarded() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (memory[i] != kGuardByte || memory[kGuard + bytes + i] != kGuardByte) return false;
    }
    return true;
  }
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::byte kGuardByte{0xa5};
  std::vector<std::byte> memory;
  std::size_t bytes;
  std::unique_ptr<Region> region;
};

template <class Kind>
std::unique_ptr<Kind> open(const TransportOptions& options = {}) {
  auto opened = Kind::open(options);
  EXPECT_TRUE(opened) << opened.error().message();
  return opened ? std::move(*opened) : nullptr;
}

template <class Kind>
struct PairOf {
  PairOf(std::unique_ptr<Kind> near_one, std::unique_ptr<Kind> far_one) : near(std::move(near_one)), far(std::move(far_one)) {
    if (far) to_far.address = far->address();
    if (near) to_near.address = near->address();
  }

  bool poll() {
    bool is_something = near->poll(near_sink);
    is_something |= far->poll(far_sink);
    return is_something;
  }
  template <class Condition>
  bool poll_until(Condition condition, std::int64_t patience_ns = kPatienceNs) {
    const Deadline deadline = Deadline::after_ns(patience_ns);
    while (!condition()) {
      if (deadline.has_passed()) return false;
      poll();
    }
    return true;
  }
  // Makes near_link and far_link.
  void connect() {
    Parcel offer, answer;
    auto offered = near->offer(to_far, 0, offer);
    ASSERT_TRUE(offered) << offered.error().message();
    near_link = std::move(*offered);
    auto accepted = far->accept(to_near, std::move(offer), answer);
    ASSERT_TRUE(accepted) << accepted.error().message();
    far_link = std::move(*accepted);
    const Result<void> completed = near_link->complete(std::move(answer));
    ASSERT_TRUE(completed) << completed.message();
    ASSERT_TRUE(poll_until([&] { return is_ready(); })) << "the link did not become ready";
  }
  bool is_ready() { return near_sink.ready_count[near_link.get()] == 1 && far_sink.ready_count[far_link.get()] == 1; }
  // How `near` knows far memory.
  std::unique_ptr<RemoteRegion> open_far(const Region& region) {
    auto key = region.key(to_near);
    EXPECT_TRUE(key);
    auto opened = near->open_region(to_far, std::move(*key));
    EXPECT_TRUE(opened);
    return std::move(*opened);
  }
  template <class Post>
  void post(Post post_one) {
    const Deadline deadline = Deadline::after_ns(kPatienceNs);
    Posted posted = post_one();
    while (posted == Posted::full && !deadline.has_passed()) {
      poll();
      posted = post_one();
    }
    ASSERT_EQ(posted, Posted::ok);
  }

  Peer to_far = make_peer(1), to_near = make_peer(0);
  Recorder near_sink, far_sink;
  std::unique_ptr<Kind> near, far;
  std::unique_ptr<Link> near_link, far_link;

 private:
  static Peer make_peer(Rank rank) {
    Peer peer;
    peer.rank = rank;
    peer.is_same_host = true;
    return peer;
  }
};

}  // namespace gigabar::transport::pairs
