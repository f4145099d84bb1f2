// SPDX-License-Identifier: Apache-2.0
// Connections for large writes alone, beside a link's own one. A lane has one of each link, and a thread that sends and receives on
// all of them: as many processors as there are lanes copy, and encrypt, what goes through the kernel's sockets.
//
// A write is cut into shares, one for each lane, whose bytes arrive in their order. Both ends count the shares of each lane, so
// that the link's own connection can say which of them are before a message.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/bell.hpp"
#include "base/fair_mutex.hpp"
#include "base/in_place.hpp"
#include "secure/byte_stream.hpp"
#include "secure/sockets.hpp"
#include "transport/tcp/wire.hpp"

namespace gigabar::transport::tcp {

struct LaneWrite {
  std::uint64_t cookie = 0;
  std::atomic<unsigned> missing_shares{0};  // that are not sent
  // Then its memory is needed no more, and no lane touches this.
  bool is_sent() const noexcept { return missing_shares.load(std::memory_order_acquire) == 0; }
};
// A part of a write.
struct Share : OutgoingFrame {
  LaneWrite* write = nullptr;
};

// What a link and its connections on lanes share.
struct LaneCounts {
  std::array<std::atomic<std::uint32_t>, kMaxLanes> placed_shares{};
  std::atomic<bool> is_waited_for{false};  // the link is to be told of the next one
};

struct LaneEvent {
  enum class Kind : std::uint8_t {
    moved,        // the last share of a write is sent, or one of the peer's placed
    not_allowed,  // the peer writes where it may not
    no_frame,     // what the peer sent is none, or one of another kind
    failed,       // the peer's bytes could not be placed in a GPU's memory
    gone,         // the local memory of a share was taken back
    over          // the connection is: `end` says how
  };
  Kind kind = Kind::over;
  std::uint64_t link = 0;
  secure::Moved end{secure::Moved::How::ended, 0, 0};
};

class Lane : InPlace {
 public:
  // `cpus`: that its thread is kept on; empty: it is not bound. Errors: out_of_descriptors, out_of_memory (no thread).
  static Result<std::unique_ptr<Lane>> open(unsigned index, std::shared_ptr<Home> home, Bell& bell, const std::vector<int>& cpus);
  ~Lane();

  // --- For the thread that has the transport ---
  // `counts` stay until remove(). False: the socket could not be watched.
  bool add(std::uint64_t link, Rank rank, secure::ByteStream stream, LaneCounts& counts);
  void send(std::uint64_t link, const Share& share);
  // Waits for what the lane does for one link in a row; afterwards nothing of the link is touched, and no event of it is new.
  std::optional<secure::ByteStream> remove(std::uint64_t link) noexcept;
  bool has_events() const noexcept { return has_events_.load(std::memory_order_seq_cst); }
  std::vector<LaneEvent> take_events();

 private:
  class Connection;

  Lane(unsigned index, std::shared_ptr<Home> home, Bell& bell, std::unique_ptr<secure::Poller> poller);

  // Of the lane's thread.
  void run(const std::vector<int>& cpus);
  bool go_round();
  bool take_shares();
  void come_back_to(std::uint64_t link);
  void tell(const LaneEvent& event);
  void sleep();

  const unsigned index_;
  const std::shared_ptr<Home> home_;
  Bell& bell_;
  Bell wake_;  // for the thread: there are shares
  const std::unique_ptr<secure::Poller> poller_;

  FairMutex turn_;  // of what follows: a round of the thread's, or a change
  std::map<std::uint64_t, Connection> connections_;
  std::vector<std::uint64_t> unfinished_;  // links whose connections have more to do, whatever their sockets say
  std::vector<std::byte> scratch_;         // through it goes what is placed in GPU memory

  std::mutex mutex_;  // of what follows
  std::deque<std::pair<std::uint64_t, Share>> shares_;
  std::vector<LaneEvent> events_;

  std::atomic<bool> has_shares_{false};
  std::atomic<bool> has_events_{false};
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace gigabar::transport::tcp
