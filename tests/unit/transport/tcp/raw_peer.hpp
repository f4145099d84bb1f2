// SPDX-License-Identifier: Apache-2.0
// A peer of a transport that has proved the key of its link on each of its connections, and says what it likes there.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "secure/acceptor.hpp"
#include "secure/dial.hpp"
#include "unit/transport/tcp/pair.hpp"

namespace gigabar::transport::tcp::test {

inline std::string frame(const FrameHeader& header, std::string_view data = {}) {
  return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(data);
}

class RawPeer {
 public:
  static Peer own_peer() { return {.rank = 1, .is_same_host = false, .process = 0, .address = {}}; }

  // `lanes`: connections for large writes, which the transport must have.
  explicit RawPeer(TcpTransport& transport, unsigned lanes = 0) : transport_(transport) {
    Peer peer = own_peer();
    peer.address = address_text({});
    Parcel parcel, answer;
    auto offered = transport.offer(peer, 0, parcel);
    EXPECT_TRUE(offered);
    link = std::move(*offered);
    const auto offer = decode_offer(parcel.bytes);
    EXPECT_TRUE(offer && offer->lanes >= lanes);
    for (unsigned index = 0; index <= lanes; ++index) connect(*offer, offer->link + index);
    answer.bytes = encode_answer(offer->link, lanes);
    EXPECT_TRUE(link->complete(std::move(answer)));
    EXPECT_TRUE(poll_until([&] { return sink.ready_count[link.get()] == 1; }));
  }

  // 0 is the link's own. Returns how many bytes the socket took.
  std::size_t say(std::size_t connection, std::string_view bytes) {
    if (connection >= connections_.size()) return 0;
    const int socket = connections_[connection].connection.socket.get();
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) is_refused = true;
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  // Appends what has come, at most so many bytes.
  void hear(std::size_t connection, std::size_t most, std::string& heard) {
    const std::size_t before = heard.size();
    heard.resize(before + most);
    const ssize_t come = ::recv(connections_[connection].connection.socket.get(), heard.data() + before, most, MSG_DONTWAIT);
    heard.resize(before + (come > 0 ? static_cast<std::size_t>(come) : 0));
  }
  void hang_up() { connections_.clear(); }
  void hang_up(std::size_t connection) { connections_[connection].connection.socket = {}; }

  template <class Condition>
  bool poll_until(Condition condition) {
    const Deadline deadline = Deadline::after_ns(kPatienceNs);
    while (!condition()) {
      if (deadline.has_passed()) return false;
      transport_.poll(sink);
    }
    return true;
  }

  std::unique_ptr<Link> link;
  Recorder sink;
  bool is_refused = false;  // a socket is closed

 private:
  void connect(const Offer& offer, std::uint64_t number) {
    const auto identity = identity_of(offer.secret, number, {}, secure::Role::initiator);
    secure::Dial dial(identity, *poller_, 1, Rank{0}, offer.targets, now_ns() + kPatienceNs, std::nullopt);
    dial.set_link(secure::preamble_of(number), 1);
    secure::Dial::Progress progress = secure::Dial::Progress::going;
    EXPECT_TRUE(poll_until([&] { return (progress = dial.advance(now_ns())) != secure::Dial::Progress::going; }));
    if (progress == secure::Dial::Progress::connected) connections_.push_back(dial.take());
  }

  TcpTransport& transport_;
  const std::unique_ptr<secure::Poller> poller_ = std::move(secure::Poller::open()).value();
  std::vector<secure::Established> connections_;
};

}  // namespace gigabar::transport::tcp::test
