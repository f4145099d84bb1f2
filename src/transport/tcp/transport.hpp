// SPDX-License-Identifier: Apache-2.0
// The TCP transport, what open_tcp() gives, and what all its links share: the sockets' poller, where peers connect, registered
// memory, and the links themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bell.hpp"
#include "platform/network.hpp"
#include "secure/acceptor.hpp"
#include "secure/byte_stream.hpp"
#include "secure/sockets.hpp"
#include "transport/tcp/lane.hpp"
#include "transport/tcp/wire.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::tcp {

class TcpLink;

// An interface that this side listens at.
struct Rail {
  std::string interface;
  std::vector<network::SocketAddress> addresses;  // without ports, at most kMaxTargets
  std::vector<network::SocketAddress> targets;    // where it listens
};
// `list`: see network::named_interfaces(). Errors: the same.
Result<std::vector<Rail>> find_rails(std::string_view list);

// Tokens of links: this and the serial number. What is below is the acceptor's.
inline constexpr std::uint64_t kLinkTokens = std::uint64_t{1} << 63;

inline constexpr std::size_t kScratchBytes = std::size_t{256} << 10;
using Scratch = std::array<std::byte, kScratchBytes>;

// Outlives its links.
class TcpTransport final : public PlacedTransport {
 public:
  // Waits, at most 100 ms, for what let_go_out() was given.
  ~TcpTransport() override;
  // Errors: as open_tcp().
  static Result<std::unique_ptr<TcpTransport>> open(const TransportOptions& options);

  std::string address() const override { return address_text(security_); }
  Availability can_reach(const Peer& peer) const override;
  Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) override;
  Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) override;
  bool poll(Sink& sink) override;
  bool arm() noexcept override;
  int wake_descriptor() const noexcept override { return poller_->descriptor(); }
  std::uint64_t refused_count() const noexcept override { return acceptor_.refusals().total(); }

  // --- For the links ---
  secure::Poller& poller() noexcept { return *poller_; }
  secure::Acceptor& acceptor() noexcept { return acceptor_; }
  // The name of the rail that has the address, or the address itself.
  std::string rail_of(const network::SocketAddress& address) const;
  // How many connections large writes of a link may have.
  unsigned lane_count();
  Lane& lane(unsigned index) noexcept { return *lanes_[index]; }
  // Where links receive, one at a time.
  Scratch& scratch() noexcept { return *scratch_; }

  // Gives the link a serial number, for its tokens. From then on attend_to() finds memory for it. Throws std::bad_alloc.
  std::uint64_t add_link(TcpLink& link);
  void remove_link(std::uint64_t serial) noexcept;
  // A link that connects has begun, or wants to be asked at another time.
  void set_timer();

  // Until when links that go at about the same time wait, all of them together.
  std::int64_t linger_until_ns() noexcept;
  // The connection of a link that goes: what it has taken still goes out, for 100 ms.
  void let_go_out(secure::ByteStream stream);

  // The link has heard its peer by an event.
  void note_speaker(TcpLink& link) noexcept;
  // Whether the link's socket is asked in each poll(), and not watched.
  bool is_asked_first(const TcpLink& link) const noexcept { return &link == asked_first_; }

 private:
  explicit TcpTransport(std::unique_ptr<secure::Poller> poller);
  // What a link with `peer` has: sealed when one of the two wants it, with a cipher that both have. Nothing: the peer has no such
  // transport.
  std::optional<Security> security_with(const Peer& peer) const;
  // False: it has to be asked on, for want of memory.
  bool watch_again() noexcept;
  bool poll_sockets(Sink& sink);
  void handle(std::uint64_t token, std::uint32_t events, std::int64_t now, Sink& sink);
  void drop_leaving() noexcept;

  std::unique_ptr<secure::Poller> poller_;  // outlives all that is watched
  secure::Acceptor acceptor_;
  std::vector<Rail> rails_;
  Bell bell_;                                 // of the lanes
  unsigned wanted_lanes_ = 0;                 // no more than there can be, once they are opened
  std::vector<int> cpus_;                     // that their threads are kept on
  std::vector<std::unique_ptr<Lane>> lanes_;  // opened for the first link
  std::unique_ptr<Scratch> scratch_ = std::make_unique<Scratch>();
  Security security_;
  std::unordered_map<std::uint64_t, TcpLink*> links_;  // by serial number
  std::uint64_t serial_ = 0;
  struct Leaving {
    secure::ByteStream stream;
    std::int64_t until_ns = 0;
  };
  std::list<Leaving> leaving_;
  std::int64_t linger_until_ns_ = 0;
  // While one link has all the events it is asked without the poller, and not in it: that saves each message a system call here,
  // and the sender's kernel the work of an event.
  TcpLink* asked_first_ = nullptr;
  TcpLink* last_speaker_ = nullptr;
  unsigned events_in_a_row_ = 0;  // of the last speaker
  unsigned silent_polls_ = 0;     // of the one that is asked first
  unsigned polls_ = 0;
  bool is_timer_stale_ = false;
};

}  // namespace gigabar::transport::tcp
