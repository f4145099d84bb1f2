// SPDX-License-Identifier: Apache-2.0
// Ranks of a job in one process, each with its Wireup and a record of what it was told; strangers and puppets that speak the
// protocol by hand.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "fabric/job/job.hpp"
#include "fabric/wireup/wireup.hpp"
#include "secure/channel.hpp"
#include "secure/handshake.hpp"
#include "secure/sockets.hpp"

namespace gigabar::fabric::wireup {

using namespace secure;

inline constexpr std::int64_t kSecond = 1'000'000'000;
inline constexpr std::int64_t kLongTimeNs = 30 * kSecond;  // nothing here takes a tenth of it
inline const std::string kKey = "a key of thirty-two bytes, or so";

inline Job job_of(Rank rank, Rank rank_count, const std::string& key = kKey, const std::string& id = "job 1") {
  Job job;
  job.launcher = Launcher::options;
  job.rank = rank;
  job.rank_count = rank_count;
  job.id = id;
  if (!key.empty()) job.key = JobKey(key);
  return job;
}

inline Identity identity_of(const Job& job) { return fabric::identity_of(job, Purpose::wireup); }

using Settings = WireupSettings;

inline SocketAddress ipv4(std::initializer_list<std::uint8_t> bytes, std::uint16_t port = 0) {
  return network::ip_address(std::string(bytes.begin(), bytes.end()), port);
}
inline const SocketAddress kLoopback = ipv4({127, 0, 0, 1});

// Both kinds of socket, without reaching beyond this host.
inline Settings both() {
  Settings settings;
  settings.tcp_addresses = {kLoopback};
  return settings;
}
inline Settings only_tcp() {
  Settings settings = both();
  settings.has_unix = false;
  return settings;
}

// Pattern bytes: tell rank, frame and place.
inline std::string pattern(std::size_t bytes, std::uint64_t seed) {
  std::string made(bytes, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : made) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return made;
}

inline Frame frame_of(std::uint16_t type, std::string body) { return Frame{type, std::move(body), {}}; }

// One rank. What it is told is kept in the order of telling.
class Node : public WireupEvents {
 public:
  explicit Node(const Job& job) : Node(job, job.key.is_set() ? both() : Settings{}) {}
  Node(const Job& job, const Settings& settings) : rank(job.rank) {
    auto opened = Wireup::open(job, settings);
    if (!opened) throw std::runtime_error(opened.error().message());
    wireup = std::move(*opened);
  }
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  void connected(Rank peer, bool is_same_host, std::int64_t process) override {
    EXPECT_TRUE(wireup->is_connected(peer));
    EXPECT_FALSE(is_up[peer]) << "told twice that rank " << peer << " is connected";
    is_up[peer] = true;
    ++connected_count;
    last_is_same_host = is_same_host;
    last_process = process;
    if (on_connected) on_connected(peer);
  }
  void frame(Rank peer, Frame frame) override {
    EXPECT_TRUE(is_up[peer]) << "a frame without a channel";
    if (on_frame) return on_frame(peer, std::move(frame));
    frames[peer].push_back(std::move(frame));
  }
  void lost(Rank peer, const Error& error) override {
    EXPECT_FALSE(wireup->is_connected(peer));
    is_up[peer] = false;
    losses.emplace_back(peer, error);
    if (on_lost) on_lost(peer);
  }

  bool poll() { return wireup->poll(*this); }
  Result<void> connect(const Node& peer, std::int64_t wait_ns = kLongTimeNs) {
    return wireup->connect(peer.rank, peer.wireup->rank_address(), now_ns() + wait_ns);
  }
  bool has(const Node& peer) const { return wireup->is_connected(peer.rank); }
  RankAddress rank_address() const { return *decode_rank_address(wireup->rank_address()); }

  Rank rank;
  std::unique_ptr<Wireup> wireup;
  std::map<Rank, std::vector<Frame>> frames;
  std::vector<std::pair<Rank, Error>> losses;
  std::map<Rank, bool> is_up;
  int connected_count = 0;
  bool last_is_same_host = false;
  std::int64_t last_process = -1;
  std::function<void(Rank)> on_connected, on_lost;
  std::function<void(Rank, Frame)> on_frame;
};

// Polls all nodes until `is_done`; sleeps on their wake descriptors in between, and fails when one of them did not wake.
inline bool pump(const std::vector<Node*>& nodes, const std::function<bool()>& is_done, std::int64_t most_ns = kLongTimeNs) {
  const std::int64_t end_ns = now_ns() + most_ns;
  bool has_slept_in_vain = false;
  for (;;) {
    bool has_happened = false;
    for (Node* node : nodes) has_happened |= node->poll();
    if (is_done()) return true;
    if (now_ns() >= end_ns) return false;
    if (has_happened) {
      EXPECT_FALSE(has_slept_in_vain) << "the wake descriptor stayed silent though there was something to do";
      has_slept_in_vain = false;
      continue;
    }
    std::vector<pollfd> watched;
    for (const Node* node : nodes) watched.push_back({node->wireup->wake_descriptor(), POLLIN, 0});
    const int wait_ms = static_cast<int>(std::min<std::int64_t>(1000, (end_ns - now_ns()) / 1'000'000 + 1));
    has_slept_in_vain = ::poll(watched.data(), watched.size(), wait_ms) == 0;
  }
}

inline bool connect_both(Node& left, Node& right) {
  EXPECT_TRUE(left.connect(right).is_ok());
  return pump({&left, &right}, [&] { return left.has(right) && right.has(left); });
}

// Somebody with a plain socket. Blocking, each call with a limit of some seconds.
class RawSocket {
 public:
  explicit RawSocket(const SocketAddress& target) : socket_(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{10, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    is_connected_ = ::connect(socket_.get(), target.get(), target.bytes) == 0;
  }
  bool is_connected() const { return is_connected_; }
  int get() const { return socket_.get(); }
  bool send(std::string_view bytes) const {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  void close() { socket_ = Descriptor(); }
  void half_close() const { ::shutdown(socket_.get(), SHUT_WR); }

  // What has come by now, without waiting.
  std::string received() {
    char piece[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket_.get(), piece, sizeof piece, MSG_DONTWAIT)) > 0) {
      received_.append(piece, static_cast<std::size_t>(count));
    }
    has_ended_ = count == 0 || (count < 0 && errno != EAGAIN);
    return received_;
  }
  bool has_ended() {
    received();
    return has_ended_;
  }

 private:
  Descriptor socket_;
  bool is_connected_ = false;
  bool has_ended_ = false;
  std::string received_;
};

inline SocketAddress unix_of(const Node& node) { return network::unix_address(node.rank_address().unix_name); }
inline SocketAddress loopback_of(const Node& node) { return node.rank_address().addresses.at(0); }

// A rank that is played by hand: it holds the key, and says afterwards what it likes.
class Puppet {
 public:
  Puppet(Node& node, const Job& job, const SocketAddress& target)
      : identity_(identity_of(job)), handshake_(identity_, Role::initiator), socket_(target), node_(node) {}

  // Goes through the handshake while `node_` polls.
  bool shake_hands() {
    if (!wait_for(kChallengeBytes) || !handshake_.take_challenge(socket_.received().substr(0, kChallengeBytes))) return false;
    if (!socket_.send(hello = handshake_.hello(node_.rank)) || !wait_for(kChallengeBytes + kHelloBytes)) return false;
    if (handshake_.take_hello(socket_.received().substr(kChallengeBytes, kHelloBytes)) != HelloFault::none) return false;
    if (!socket_.send(proof = handshake_.proof()) || !wait_for(kChallengeBytes + kHelloBytes + kProofBytes)) return false;
    const bool is_proven = handshake_.take_proof(socket_.received().substr(kChallengeBytes + kHelloBytes, kProofBytes));
    sealer = std::make_unique<Sealer>(handshake_.take_sealer());
    return is_proven && node_.wireup->is_connected(identity_.rank);
  }
  bool wait_for(std::size_t bytes) {
    return pump({&node_}, [&] { return socket_.received().size() >= bytes || socket_.has_ended(); }) &&
           socket_.received().size() >= bytes;
  }
  RawSocket& socket() { return socket_; }

  std::string hello, proof;
  std::unique_ptr<Sealer> sealer;

 private:
  Identity identity_;
  Handshake handshake_;
  RawSocket socket_;
  Node& node_;
};

}  // namespace gigabar::fabric::wireup
