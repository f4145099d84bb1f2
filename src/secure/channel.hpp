// SPDX-License-Identifier: Apache-2.0
// One channel that stands: frames out and in over a socket whose other end has proven who it is.
//
// Frames on the wire are encrypted and authenticated: libsodium's secretstream, one for each direction.
//
//   length of the rest   4 bytes, in the clear, authenticated
//   sealed               the stream's tag (1), type (2), count of descriptors (2), body
//   authenticator        16 bytes
//
// A frame that is changed, left out, repeated or moved does not open, nor does any after it. The last frame of an orderly end has
// the stream's final tag: who cuts the connection cannot make one.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"
#include "secure/secret.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

inline constexpr std::size_t kMaxFrameBytes = 65536;
inline constexpr std::size_t kMaxFrameDescriptors = 8;
inline constexpr std::size_t kStreamHeaderBytes = 24;
inline constexpr std::size_t kFrameOverheadBytes = 4 + 4 + 17;  // what sealing adds to a body

// Neither is copied, they are moved only: two that go on from the same state would encrypt with the same numbers. One that was
// moved from has no key.
class Sealer {
 public:
  Sealer() noexcept = default;
  explicit Sealer(const Secret& key);
  Sealer(Sealer&&) noexcept = default;
  Sealer& operator=(Sealer&&) noexcept = default;

  // What the other end needs to open the frames; no secret.
  const std::string& header() const noexcept { return header_; }
  // Nothing without a key.
  std::string seal(std::uint16_t type, std::size_t descriptor_count, std::string_view body, bool is_last = false);

 private:
  std::string header_;
  Secret state_;
};

struct Frame {
  std::uint16_t type = 0;               // the caller's; below 0x8000
  std::string body;                     // at most kMaxFrameBytes
  std::vector<Descriptor> descriptors;  // at most 8, between processes of one host only
  bool lacks_descriptors = false;       // of one that came: this process had no room for them, and got none
};

// Its descriptors come beside it.
struct OpenedFrame : Frame {
  std::size_t descriptor_count = 0;
  bool is_last = false;
};

class Opener {
 public:
  enum class Found : std::uint8_t { frame, incomplete, too_long, forged };

  Opener() noexcept = default;
  Opener(const Secret& key, std::string_view header);
  Opener(Opener&&) noexcept = default;
  Opener& operator=(Opener&&) noexcept = default;

  // The frame at the front of `bytes`, which it is then removed from. After forged nothing can be opened any more; after too_long
  // the caller ends the stream, because nothing tells where the next frame begins.
  Found open(std::string_view& bytes, OpenedFrame& frame);

 private:
  Secret state_;
};

// Told from inside Endpoint::poll() only. May send and cut(); must not call disconnect().
class ChannelEvents {
 public:
  virtual void connected(Rank rank, bool is_same_host, std::int64_t process) = 0;
  virtual void frame(Rank rank, Frame frame) = 0;
  // Once per connected(), or per dial() that did not end with it. `error`: peer_lost (it ended, its socket broke), no_permission
  // (another key, or it refused ours), timed_out (connecting), not_supported (another version of this protocol: both versions are
  // named), invalid_argument (of a directory: it counts other ranks, or this rank is there already), out_of_descriptors
  // (connecting: this process had none until the deadline).
  virtual void lost(Rank rank, const Error& error) = 0;

 protected:
  ~ChannelEvents() = default;
};

inline constexpr std::size_t kMaxQueuedBytes = std::size_t{8} << 20;  // sealed, per peer
// Of frames that wait, per peer: each is one of this process's until the socket takes it. Several hundred frames fit into a socket
// before, which is more than a peer that reads ever leaves there.
inline constexpr std::size_t kMaxQueuedDescriptors = 64;

// Of one channel's queue, in sealed bytes.
struct QueueLimits {
  std::size_t max_queued_bytes = kMaxQueuedBytes;  // beyond it send() answers busy
  // Beyond it nothing is read: a peer that asks has to take the answers.
  std::size_t max_queued_bytes_while_reading = ~std::size_t{0};
};

struct Connection {
  Watched socket;
  bool is_unix = false;
  std::int64_t process = 0;  // Unix sockets only
  std::string where;         // for messages: "unix socket, process 4711", "192.0.2.2:4711"
};

// What a handshake ends with.
struct Established {
  Connection connection;
  Sealer sealer;
  Opener opener;
  Secret outgoing_key, incoming_key;  // for who has frames of its own
};

// Why a channel ended.
struct Fault {
  std::string cause;
  NativeCode native;
};

// Room for what one system call reads; one per rank, used by all channels.
using ReadBuffer = std::array<char, 65536>;

class Channel {
 public:
  Channel(Rank rank, Established established, Watched process_watch, const QueueLimits& limits);

  Rank rank() const noexcept { return rank_; }
  // Of the socket's events.
  std::uint64_t token() const noexcept { return connection_.socket.token(); }
  const std::string& where() const noexcept { return connection_.where; }
  // Taking no frames any more, though some may still be there to be read.
  bool is_broken() const noexcept { return is_over() || send_fault_; }

  // Errors: peer_lost, busy, invalid_argument.
  Result<void> send(Frame frame);
  bool has_queue() const noexcept { return !outgoing_.empty(); }
  // Sends what the socket takes. False when it could not for another reason than a full socket: flush again a little later.
  bool flush();
  // Tells the frames that are there, a bounded number of them. True when there may be more.
  bool receive(ReadBuffer& buffer, ChannelEvents& events);
  // Nothing more is sent, read or told, what has come already neither.
  void cut() noexcept;
  // Nothing more is read. The first cause is kept.
  void break_off(std::string cause, NativeCode native = {});
  // What there is to say about a channel that is_broken() and has nothing more to be read.
  Fault end() const;
  // Queues the sealed end, and sends as far as it goes at once.
  void seal_end() noexcept;
  int socket() const noexcept { return connection_.socket.get(); }

  std::size_t memory_bytes() const noexcept;

 private:
  struct Outgoing {
    std::string bytes;
    std::vector<Descriptor> descriptors;
  };
  std::string fault_of(const Frame& frame) const;
  void enqueue(Frame frame, bool is_last);
  ssize_t send_some();
  void drop_sent(std::size_t bytes);
  bool read_some(ReadBuffer& buffer);
  void keep_descriptors(msghdr& message);
  void deliver_frames(ChannelEvents& events);
  // Nothing more is read.
  bool is_over() const noexcept { return fault_ || is_cut_; }
  bool is_backpressured() const noexcept { return queued_bytes_ > limits_.max_queued_bytes_while_reading; }
  bool take_descriptors(OpenedFrame& frame);

  Rank rank_;
  QueueLimits limits_;
  Sealer sealer_;
  Opener opener_;
  std::optional<Fault> fault_;       // nothing more can be read
  std::optional<Fault> send_fault_;  // nothing more can be sent
  bool is_cut_ = false;              // by this rank
  std::deque<Outgoing> outgoing_;
  std::size_t queued_bytes_ = 0;         // of outgoing_, with what is sent of the first
  std::size_t queued_descriptors_ = 0;   // of outgoing_
  std::size_t first_sent_bytes_ = 0;     // of outgoing_.front()
  std::string incoming_;                 // what is not told yet
  std::vector<Descriptor> descriptors_;  // came with the frame that is incoming
  bool has_lost_descriptors_ = false;    // of that frame
  Connection connection_;
  Watched process_watch_;
};

}  // namespace gigabar::secure
