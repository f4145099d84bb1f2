// SPDX-License-Identifier: Apache-2.0
// One connection over TCP. Everything is a frame in one stream of bytes, so that what is posted arrives in that order; a large
// write is cut into frames, between which the answers to the peer's reads have their turn.
//
// Who posts sends by itself as long as the socket takes it. What the socket does not take waits in a queue, and poll() goes on with
// it. The thread that polls receives, straight into host memory where a large piece comes.
//
// Where both ends have lanes, large writes go over those, in any order among each other; a fence in the stream tells how many of
// them are before what follows, and the receiver waits there until so many are in place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "secure/byte_stream.hpp"
#include "secure/dial.hpp"
#include "transport/tcp/lane.hpp"
#include "transport/tcp/silence.hpp"
#include "transport/tcp/transport.hpp"

namespace gigabar::transport::tcp {

inline constexpr std::uint64_t kLaneBytes = 64U << 10;    // smaller writes are sooner through without another thread
inline constexpr std::int64_t kMaxEndNs = 1'000'000'000;  // between the ends of a link's connections
inline constexpr const char* kConnectAnew = "forget the peer and connect anew";

class TcpLink final : public PlacedLink {
 public:
  TcpLink(TcpTransport& transport, Rank rank, std::uint64_t number, const Security& security);
  ~TcpLink() override;

  std::uint64_t memory_bytes() const noexcept override;
  Result<void> complete(Parcel answer) override;

  // Waits for the peer to connect to one of `targets`; what it needs for that.
  Offer expect_peer(std::vector<network::SocketAddress> targets);
  // Connects to who waits. Returns over how many lanes.
  unsigned dial(const Offer& offer);

  // --- For the transport ---
  bool waits_for(std::uint64_t number) const noexcept {
    return number - number_ < ways_.size() && !ways_[number - number_].dial && !ways_[number - number_].stream;
  }
  // Of the connection `number`.
  void take(std::uint64_t number, secure::Established established);
  void take_event(const LaneEvent& event);
  void handle(std::uint32_t events, Sink& sink);
  // What has come. True when something has.
  bool receive(Sink& sink);
  // False: no event tells of it, for want of memory.
  bool want_events() noexcept;
  bool attend(Sink& sink) override;
  // When advance() has to be called: while it connects, and then to see whether the other host still answers.
  std::int64_t next_ns() const noexcept;
  void advance(std::int64_t now_ns);

 private:
  // What waits for the socket.
  struct Outgoing : OutgoingFrame {
    std::vector<std::byte> copy;  // of a message
    std::uint64_t cookie = 0;     // of a write
  };
  // Data of a write or an answer, that comes now.
  struct Incoming {
    FrameHeader header;
    std::uint64_t left_bytes = 0;
    Place to;
  };
  // A connection that is being made: the link's own, and one for each lane. Without a dial it is the peer that connects.
  struct Way {
    secure::Identity identity;
    std::optional<secure::Dial> dial;
    std::optional<secure::ByteStream> stream;
  };
  // Of data, that one system call moves.
  struct CallBytes {
    std::size_t send = kPieceBytes, receive = kPieceBytes;
  };
  // Of a connection, whoever has its stream.
  struct Socket {
    int descriptor = -1;
    Silence silence;
  };

  // Sending.
  static CallBytes call_bytes_of(int socket) noexcept;
  bool can_post() const noexcept override { return state_ == LinkState::ready && !send_code_; }
  Posted send_message(const Header& header, std::span<const std::byte> payload) override;
  void begin(Direction direction, const Place& here, const RegionKey& there, const Transfer& transfer) override;
  // Everything that was posted, over all connections.
  bool has_sent_all() const noexcept;
  std::deque<Outgoing>& sending() noexcept { return is_answers_turn_ ? answers_ : own_; }
  bool is_idle() const noexcept { return own_.empty() && answers_.empty() && !stream_->has_unsent(); }
  void post_small(const FrameHeader& header, std::span<const std::byte> data = {});
  void pump();
  void note_failure(const secure::Moved& moved) noexcept;

  // Receiving.
  std::array<iovec, 2> place_for_more(Scratch& scratch);
  void hear_end(const secure::Moved& moved);
  void take_frames(std::size_t placed_bytes, std::span<const std::byte> bytes, Sink& sink);
  void begin_write(const FrameHeader& header);
  void begin_answer(const FrameHeader& header);
  void take_read(const FrameHeader& header);
  void place(std::span<const std::byte> data);
  void placed(std::uint64_t bytes);

  // Lanes.
  void begin_by_lanes(Place from, std::uint32_t region, Access to, const Transfer& transfer);
  void put_fence();
  void take_fence(const FrameHeader& header);
  bool pass_fence() noexcept;
  bool leave_fence(Sink& sink);
  std::optional<Farewell> hear_farewell();

  // The end.
  void look_whether_ready();
  void look_for_silence(std::int64_t now_ns);
  void leave();
  bool send_in_time();
  void keep_ways(std::size_t count) noexcept;
  void close_connections(bool lets_go_out);
  void lost_by(std::string_view what, int code);
  void begin_to_break(std::optional<Farewell> farewell) noexcept override;

  TcpTransport& transport_;
  std::uint64_t number_;
  Security security_;
  std::uint64_t serial_ = 0;
  std::int64_t look_at_ns_ = 0;  // ready: for silence
  bool is_completed_ = false;    // the peer's answer has come
  std::deque<Way> ways_;         // connecting: one for each connection
  std::vector<Socket> sockets_;  // then
  std::optional<secure::ByteStream> stream_;
  CallBytes call_bytes_;

  std::deque<Outgoing> own_, answers_;
  bool is_answers_turn_ = false;    // it is their first frame that is being sent, or sent next where there is one in both
  std::uint64_t queued_units_ = 0;  // of copies in own_
  std::optional<int> send_code_;    // nothing can be sent any more; what has come is still told

  std::vector<std::byte> carried_;  // the beginning of a header or message; at a fence what has come
  Incoming incoming_;
  bool is_hungry_ = false;  // there may be more than was received in one turn

  unsigned lane_count_ = 0;  // that both ends have
  std::list<LaneWrite> lane_writes_;
  unsigned next_lane_ = 0;
  ShareCounts sent_shares_{};
  bool is_fence_due_ = false;  // before the next message
  LaneCounts lane_counts_;
  std::optional<ShareCounts> fence_;         // the receiver waits there
  std::int64_t end_at_ns_ = secure::kNever;  // one of a lane has ended, and the link has until then
};

}  // namespace gigabar::transport::tcp
