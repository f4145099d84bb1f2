// SPDX-License-Identifier: Apache-2.0
// A lane: a UCP worker of its own, moved on by a thread of its own, with a connection for each link. It carries the pieces of large
// writes, so that as many processors as there are lanes copy into and out of the kernel's sockets.
//
// The thread that has the transport gives a lane work and takes what happened; the lane's thread alone touches UCX and the places
// of received data, which Home holds for it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/descriptor.hpp"
#include "transport/ucx/worker.hpp"

namespace gigabar::transport::ucx {

// Wakes a thread where it sleeps: the one that has the transport, or a lane's. However often it is rung, once for each sleep: to
// write to the descriptor for each piece until the thread ran took longer than to send them.
class Bell {
 public:
  // Errors: out_of_descriptors.
  Result<void> open();
  int descriptor() const noexcept { return descriptor_.get(); }
  // From now on ring() makes the descriptor readable; what came before must be looked for afterwards.
  void arm() noexcept {
    was_armed_ = true;
    is_armed_.store(true, std::memory_order_seq_cst);
  }
  void disarm() noexcept;
  void ring() noexcept;

 private:
  bool was_armed_ = false;  // since the last disarm()
  std::atomic<bool> is_armed_{false};
  Descriptor descriptor_;
};

// A piece of a write on its way to a lane. `from` stays until the event about it.
struct Piece {
  std::uint64_t link = 0;  // the sender's number
  const std::byte* from = nullptr;
  std::uint32_t bytes = 0;
  std::uint64_t number = 0;  // of the link's pieces
  Access to;
  void* owner = nullptr;  // the link's; not looked at here
};

struct LaneEvent {
  enum class Kind : std::uint8_t {
    heard,    // the peer's end of the lane can be written to
    sent,     // UCX needs a piece's memory no more: owner, bytes, status
    placed,   // the peer's piece is in its place: number
    refused,  // the peer sent what is not allowed: reason
    failed,   // the peer's piece could not be placed in a GPU's memory
    lost,     // the connection broke: status
    stranger  // something for no link of this process
  };
  Kind kind = Kind::stranger;
  std::uint64_t link = 0;
  std::uint64_t number = 0;
  void* owner = nullptr;
  std::uint64_t bytes = 0;
  ucs_status_t status = UCS_OK;
  Farewell reason = Farewell::closed;
};

class Lane final : private Receiver {
 public:
  // `cpus`: that its thread is kept on; empty: it is not bound. `devices`: as WorkerOptions.
  // Errors: as Worker::open, out_of_descriptors, out_of_memory (no thread).
  static Result<std::unique_ptr<Lane>> open(unsigned index, Home& home, Bell& bell, const std::vector<int>& cpus,
                                            const std::string& devices);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& address() const noexcept { return worker_->address(); }
  std::uint32_t piece_bytes() const noexcept { return worker_->piece_bytes(); }

  // --- For the thread that has the transport ---
  void connect(std::uint64_t link, std::uint64_t peer_link, std::string address, std::string object);
  void send(const Piece& piece);
  // Ends a link's connection. `is_cancelling`: what is under way comes back at once; else there is nothing under way, and UCX has a
  // while to bring out what it took.
  void leave(std::uint64_t link, bool is_cancelling);
  bool has_events() const noexcept { return has_events_.load(std::memory_order_seq_cst); }
  std::vector<LaneEvent> take_events();

 private:
  struct Connect {
    std::uint64_t link, peer_link;
    std::string address, object;
  };
  struct Leave {
    std::uint64_t link;
    bool is_cancelling;
  };
  using Command = std::variant<Connect, Piece, Leave>;
  class Connection;  // NOLINT(cppcoreguidelines-virtual-class-destructor): it is final, and destroyed as what it is

  Lane(unsigned index, Home& home, Bell& bell, const std::vector<int>& cpus);
  Result<void> start();
  void give(Command command);

  // Of the lane's thread.
  void run();
  bool follow_commands();
  void follow(Connect& connect);
  void follow(const Piece& piece);
  void follow(const Leave& leave);
  bool send_more();
  bool tell();
  bool go_round();
  void fail_all();
  void sleep();
  bool drop_closed();
  void arrived(const WireHeader& header, std::span<const std::byte> data) override;
  void stranger(const WireHeader* header) override;

  const unsigned index_;
  const std::vector<int> cpus_;
  Home& home_;
  Bell& bell_;
  pid_t process_;
  std::unique_ptr<Worker> worker_;
  Bell wake_;                       // for the thread: work was given
  Descriptor epoll_;                // of the worker's descriptor and that one
  std::vector<Command> following_;  // taken from commands_
  std::size_t followed_count_ = 0;  // of them
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::uint64_t> unfinished_;  // links whose connections have pieces to send
  std::vector<LaneEvent> fresh_;           // not told yet
  std::size_t closing_count_ = 0;

  std::mutex mutex_;  // of what follows
  std::vector<Command> commands_;
  std::vector<LaneEvent> events_;

  std::atomic<bool> has_commands_{false};
  std::atomic<bool> has_events_{false};
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace gigabar::transport::ucx
