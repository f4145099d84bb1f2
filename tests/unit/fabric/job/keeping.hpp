// SPDX-License-Identifier: Apache-2.0
// Rank 0's directory with a thread that polls it, and raw connections to it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "fabric/job/directories.hpp"
#include "fabric/job/job.hpp"
#include "secure/handshake.hpp"
#include "unit/fabric/job/jobs.hpp"

namespace gigabar::test {

// True as soon as `is_true` is; false after ten seconds.
inline bool eventually(const std::function<bool()>& is_true) {
  for (const std::int64_t end = in_seconds(10); now_ns() < end; ::poll(nullptr, 0, 1))
    if (is_true()) return true;
  return is_true();
}

class Keeping {
 public:
  explicit Keeping(const fabric::Job& job, std::int64_t handshake_ns = fabric::kHandshakeNs) {
    auto opened = fabric::open_bootstrap_server(job, handshake_ns);
    EXPECT_TRUE(opened) << opened.error().message();
    if (!opened) return;
    directory_ = std::move(*opened);
    const Result<void> published = directory_->publish("address 0");
    EXPECT_TRUE(published) << published.message();
    thread_ = std::thread([this] { run(); });
  }
  ~Keeping() { end(); }
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;

  void end() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    directory_.reset();
  }

 private:
  void run() {
    while (!is_over_) {
      pollfd entry{directory_->wake_descriptor(), POLLIN, 0};
      ::poll(&entry, 1, 20);
      const Result<void> polled = directory_->poll();
      EXPECT_TRUE(polled) << polled.message();
    }
  }

  std::unique_ptr<fabric::Directory> directory_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// The address, polling until it comes; nothing after ten seconds or an error.
inline std::optional<std::string> wait_for_rank_address(fabric::Directory& directory, Rank rank) {
  std::optional<std::string> rank_address;
  eventually([&] {
    auto asked = directory.rank_address(rank);
    EXPECT_TRUE(asked) << asked.error().message();
    if (!asked) return true;
    rank_address = *asked;
    if (!rank_address) {
      const Result<void> polled = directory.poll();
      EXPECT_TRUE(polled) << polled.message();
    }
    return rank_address.has_value();
  });
  return rank_address;
}

// As many open files as the system allows, up to 4096.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit raised = before_;
    raised.rlim_cur = std::min<rlim_t>(before_.rlim_max, 4096);
    ::setrlimit(RLIMIT_NOFILE, &raised);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// A stranger's connection, with five seconds for every send and receive.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{5, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const sockaddr_in address = loopback(port);
    is_connected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool is_connected() const { return is_connected_; }
  bool send(std::string_view bytes) const {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // All that comes until the other end closes, or `bytes` of it.
  std::string receive(std::size_t bytes = 1 << 20) const {
    std::string all(bytes, '\0');
    std::size_t count = 0;
    while (count < bytes) {
      const ssize_t got = ::recv(socket_.get(), all.data() + count, bytes - count, 0);
      if (got <= 0) break;
      count += static_cast<std::size_t>(got);
    }
    return all.substr(0, count);
  }
  // Whether the other end closes within five seconds, whatever it says before.
  bool is_cut_off() const {
    std::array<char, 4096> said{};
    ssize_t got = 0;
    while ((got = ::recv(socket_.get(), said.data(), said.size(), 0)) > 0) continue;
    return got == 0 || errno == ECONNRESET;
  }

 private:
  Descriptor socket_;
  bool is_connected_ = false;
};

// A rank that is played by hand: it holds its job's key, and goes as far in the handshake as it is told to.
class Speaker {
 public:
  explicit Speaker(const fabric::Job& job)
      : identity_(fabric::identity_of(job, secure::Purpose::directory)),
        handshake_(identity_, secure::Role::initiator),
        stranger_(job.master_port) {}

  bool read_challenge() { return handshake_.take_challenge(stranger_.receive(secure::kChallengeBytes)); }
  bool send_hello() { return read_challenge() && stranger_.send(hello = handshake_.hello(0)); }
  bool read_hello() { return handshake_.take_hello(answer = stranger_.receive(secure::kHelloBytes)) == secure::HelloFault::none; }
  bool prove() {
    if (!send_hello() || !read_hello() || !stranger_.send(proof = handshake_.proof())) return false;
    const bool is_proven = handshake_.take_proof(stranger_.receive(secure::kProofBytes));
    sealer_ = handshake_.take_sealer();
    return is_proven && handshake_.verdict() == secure::Verdict::proceed;
  }
  const Stranger& stranger() const { return stranger_; }
  secure::Handshake& handshake() { return handshake_; }
  secure::Sealer& sealer() { return sealer_; }

  std::string hello, answer, proof;

 private:
  secure::Identity identity_;
  secure::Handshake handshake_;
  secure::Sealer sealer_;
  Stranger stranger_;
};

// What a stranger is told that is turned away.
inline std::string refused() { return encode(secure::Prefix{secure::kProtocolVersion, secure::Verdict::refused}); }

}  // namespace gigabar::test
