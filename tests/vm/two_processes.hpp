// SPDX-License-Identifier: Apache-2.0
// Two processes with one verbs transport each, joined by a socket for what their ranks would tell each other. The parent never
// touches RDMA: libraries keep devices open, and a fork would share them.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "transport/verbs/open.hpp"

namespace gigabar::test {

inline constexpr std::int64_t kLongNs = 60'000'000'000;

// One of the two processes, and all that its transport told it.
class Side : public transport::Sink {
 public:
  Side(int index, int socket) : index_(index), socket_(socket) {}

  int index() const { return index_; }

  // Opens the transport on one rail.
  void open(const std::string& rail, transport::TransportOptions options = {}) {
    options.rails = {rail};
    auto opened = transport::open_verbs(options);
    ASSERT_TRUE(opened) << opened.error().message();
    transport = std::move(*opened);
  }

  // Side 0 offers, side 1 accepts; both wait until the link is ready.
  void connect() {
    offer_or_accept();
    ASSERT_NE(link, nullptr);
    ASSERT_TRUE(sleep_until([&] { return is_ready || broken_count > 0; }) && is_ready) << broken_text;
    // The initiator is ready first, and polls until the acceptor has its greeting.
    if (index_ == 1) return tell("ready");
    char first = 0;
    ASSERT_TRUE(sleep_until([&] { return ::recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1; })) << broken_text;
    ASSERT_EQ(hear(), "ready");
  }
  // `change` may alter what side 1 is offered.
  void offer_or_accept(const std::function<void(std::string&)>& change = {}) {
    is_ready = false;
    if (index_ == 0) {
      transport::Parcel offer;
      auto made = transport->offer(peer_, 0, offer);
      ASSERT_TRUE(made) << made.error().message();
      link = std::move(*made);
      tell(offer.bytes);
      const Result<void> completed = link->complete({hear(), {}});
      ASSERT_TRUE(completed) << completed.message();
    } else {
      transport::Parcel answer;
      std::string offer = hear();
      if (change) change(offer);
      auto made = transport->accept(peer_, {offer, {}}, answer);
      ASSERT_TRUE(made) << made.error().message();
      link = std::move(*made);
      tell(answer.bytes);
    }
  }

  // False: not within the time.
  bool run_until(const std::function<bool()>& is_done, std::int64_t limit_ns = kLongNs) {
    const auto deadline = Deadline::after_ns(limit_ns);
    while (!is_done()) {
      transport->poll(*this);
      if (deadline.has_passed()) return is_done();
    }
    return true;
  }
  // The same without keeping a processor busy, which the kernel's first connection needs.
  bool sleep_until(const std::function<bool()>& is_done, std::int64_t limit_ns = kLongNs) {
    const auto deadline = Deadline::after_ns(limit_ns);
    while (!is_done() && !deadline.has_passed()) {
      transport->poll(*this);
      if (is_done() || !transport->arm()) continue;
      pollfd waited{transport->wake_descriptor(), POLLIN, 0};
      ::poll(&waited, 1, 10);
    }
    return is_done();
  }
  void run_for(std::int64_t duration_ns) {
    run_until([] { return false; }, duration_ns);
  }

  // Through the socket; whole strings, blocking.
  void tell(const std::string& bytes) {
    const auto count = static_cast<std::uint32_t>(bytes.size());
    write_all(&count, sizeof count);
    write_all(bytes.data(), bytes.size());
  }
  std::string hear() {
    std::uint32_t count = 0;
    read_all(&count, sizeof count);
    std::string bytes(std::min<std::uint32_t>(count, 65536), '\0');
    read_all(bytes.data(), bytes.size());
    return bytes;
  }
  // Both have come here.
  void meet() {
    tell("here");
    ASSERT_EQ(hear(), "here");
  }

  std::unique_ptr<transport::Region> register_host(void* address, std::size_t bytes, MemoryKind kind = MemoryKind::host_pageable) {
    auto region = transport->register_memory({address, bytes, kind, -1, -1, 0});
    EXPECT_TRUE(region) << region.error().message();
    return region ? std::move(*region) : nullptr;
  }
  // The peer's region, whose key it tells.
  std::unique_ptr<transport::RemoteRegion> open_told() {
    auto region = transport->open_region(peer_, {hear(), {}});
    EXPECT_TRUE(region) << region.error().message();
    return region ? std::move(*region) : nullptr;
  }
  void tell_key(const transport::Region& region) { tell(region.key(peer_)->bytes); }

  // Posts until there is room, polling meanwhile.
  bool send(std::uint64_t number, std::span<const std::byte> payload = {}) {
    transport::Header header{};
    std::memcpy(header.data(), &number, sizeof number);
    return post([&] { return link->post_message(header, payload); });
  }
  bool post(const std::function<transport::Posted()>& one) {
    const auto deadline = Deadline::after_ns(kLongNs);
    for (;;) {
      const transport::Posted posted = one();
      if (posted != transport::Posted::full) return posted == transport::Posted::ok;
      transport->poll(*this);
      if (deadline.has_passed()) return false;
    }
  }

  void ready(transport::Link&) override { is_ready = true; }
  void message(transport::Link&, const transport::Header& header, std::span<const std::byte> payload) override {
    std::uint64_t number = 0;
    std::memcpy(&number, header.data(), sizeof number);
    ++message_count;
    if (on_message) on_message(number, payload);
  }
  void done(transport::Link&, std::uint64_t cookie, const Result<void>& outcome) override {
    EXPECT_EQ(broken_count, 0) << "done() after broken()";
    ++done_count;
    last_cookie = cookie;
    last_status = outcome.status();
    last_text = outcome.message();
    if (on_done) on_done(cookie, outcome);
  }
  void broken(transport::Link& which, const Error& error) override {
    EXPECT_EQ(which.state(), transport::LinkState::broken);
    ++broken_count;
    broken_status = error.status();
    broken_text = error.message();
  }

  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<transport::Link> link;
  std::function<void(std::uint64_t, std::span<const std::byte>)> on_message;
  std::function<void(std::uint64_t, const Result<void>&)> on_done;
  bool is_ready = false;
  std::uint64_t message_count = 0, done_count = 0, last_cookie = 0;
  Status last_status = Status::ok, broken_status = Status::ok;
  std::string last_text, broken_text;
  int broken_count = 0;

 private:
  void write_all(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t count = ::send(socket_, at, bytes, MSG_NOSIGNAL);
      ASSERT_GT(count, 0) << "the other process is gone";
      at += count;
      bytes -= static_cast<std::size_t>(count);
    }
  }
  void read_all(void* data, std::size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t count = ::recv(socket_, at, bytes, 0);
      ASSERT_GT(count, 0) << "the other process is gone";
      at += count;
      bytes -= static_cast<std::size_t>(count);
    }
  }

  int index_;
  int socket_;
  transport::Peer peer_{};
};

// Runs `body` in two processes; both must end without a failed expectation. `killed`: the side that is to die of a signal.
inline void run_two(const std::function<void(Side&)>& body, std::optional<int> killed = {}) {
  int sockets[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  pid_t children[2] = {-1, -1};
  std::fflush(nullptr);
  for (int i = 0; i < 2; ++i) {
    children[i] = ::fork();
    ASSERT_GE(children[i], 0);
    if (children[i] != 0) continue;
    ::close(sockets[1 - i]);
    ::alarm(240);
    {
      Side side(i, sockets[i]);
      body(side);
      side.link.reset();
      side.transport.reset();
    }
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(sockets[0]);
  ::close(sockets[1]);
  for (int i = 0; i < 2; ++i) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[i], &status, 0), children[i]);
    if (killed == i) {
      EXPECT_TRUE(WIFSIGNALED(status)) << "side " << i << " was to be killed";
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "side " << i << " ended with wait status " << status;
    }
  }
}

}  // namespace gigabar::test
