// SPDX-License-Identifier: Apache-2.0
// One channel that stands: frames out and in over a socket whose other end has proven who it is.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "fabric/wireup/handshake.hpp"
#include "fabric/wireup/poller.hpp"
#include "fabric/wireup/seal.hpp"
#include "fabric/wireup/wireup.hpp"

namespace gigabar::fabric::wireup {

inline constexpr std::size_t kMaxQueuedBytes = std::size_t{8} << 20;  // sealed, per peer
// Of frames that wait, per peer: each is one of this process's until the socket takes it. Several hundred frames fit into a socket
// before, which is more than a peer that reads ever leaves there.
inline constexpr std::size_t kMaxQueuedDescriptors = 64;

// What a handshake ends with.
struct Established {
  Watched socket;
  SessionKeys keys;
  bool is_unix = false;
  std::int64_t process = 0;  // Unix sockets only
  std::string where;         // for messages: "unix socket, process 4711", "192.0.2.2 port 4711"
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
  Channel(Rank rank, Established established, Watched process_watch);

  Rank rank() const noexcept { return rank_; }
  bool is_unix() const noexcept { return is_unix_; }
  std::int64_t process() const noexcept { return process_; }
  const std::string& where() const noexcept { return where_; }
  const std::optional<Fault>& fault() const noexcept { return fault_; }
  // Taking no frames any more, though some may still be there to be read.
  bool is_deaf() const noexcept { return fault_ || send_fault_; }

  // Errors: peer_lost, busy, invalid_argument.
  Result<void> send(Frame frame);
  bool has_queue() const noexcept { return !outgoing_.empty(); }
  // Sends what the socket takes. False when it could not for another reason than a full socket: flush again a little later.
  bool flush();
  // Tells the frames that are there, a bounded number of them. True when there may be more. fault() tells the end.
  bool receive(ReadBuffer& buffer, WireupEvents& events);
  // Tells what is there and ends the channel: the process at the other end is no more.
  void process_ended(ReadBuffer& buffer, WireupEvents& events);
  // What there is to say about a channel that is_deaf() and has nothing more to be read.
  Fault end() const { return fault_ ? *fault_ : *send_fault_; }
  // Queues and sends, as far as it goes at once, that the end is wanted.
  void farewell() noexcept;
  int socket() const noexcept { return socket_.get(); }

  std::size_t memory_bytes() const noexcept;

 private:
  struct Outgoing {
    std::string bytes;
    std::vector<Descriptor> descriptors;
  };
  enum class Read : std::uint8_t { some, none };

  Result<void> check(const Frame& frame) const;
  void enqueue(std::uint16_t type, const std::string& body, std::vector<Descriptor> descriptors);
  ssize_t send_some();
  void drop_sent(std::size_t bytes);
  Read read_some(ReadBuffer& buffer, std::string_view& bytes);
  void keep_descriptors(msghdr& message);
  void tell_frames(std::string_view& bytes, WireupEvents& events);
  bool take_descriptors(const OpenedFrame& opened, Frame& frame);
  void break_off(std::string cause, NativeCode native = {});

  Rank rank_;
  bool is_unix_;
  std::int64_t process_;
  std::string where_;
  Sealer sealer_;
  Opener opener_;
  std::optional<Fault> fault_;       // nothing more can be read
  std::optional<Fault> send_fault_;  // nothing more can be sent
  std::deque<Outgoing> outgoing_;
  std::size_t queued_bytes_ = 0;        // of outgoing_, with what is sent of the first
  std::size_t queued_descriptors_ = 0;  // of outgoing_
  std::size_t first_sent_bytes_ = 0;    // of outgoing_.front()
  std::string incoming_;                // the first part of a frame
  std::deque<Descriptor> descriptors_;  // came with the frame that is incoming
  Watched socket_;
  Watched process_watch_;
};

}  // namespace gigabar::fabric::wireup
