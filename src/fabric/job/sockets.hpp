// SPDX-License-Identifier: Apache-2.0
// Sockets that never wait, and where the directory of a job listens.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "fabric/job/job.hpp"

namespace gigabar::fabric {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string name;  // "127.0.0.1:29500", for messages
};

// Bytes over one stream socket, with what was received but not used and what is still to be sent.
class ByteStream {
 public:
  explicit ByteStream(Descriptor socket) noexcept : socket_(std::move(socket)) {}

  int descriptor() const noexcept { return socket_.get(); }
  // Takes what has come, until it holds `most_bytes`. False: the peer has ended or the socket is broken.
  bool receive(std::size_t most_bytes);
  std::string_view received() const noexcept { return received_; }
  void use(std::size_t bytes) { received_.erase(0, bytes); }

  void queue(std::string_view bytes);
  // Sends what goes at once. False: the socket is broken.
  bool send_queued();
  std::size_t queued_bytes() const noexcept { return queued_.size() - sent_bytes_; }
  std::size_t memory_bytes() const noexcept { return received_.capacity() + queued_.capacity(); }

 private:
  Descriptor socket_;
  std::string received_;
  std::string queued_;
  std::size_t sent_bytes_ = 0;  // of queued_
};

// True when the descriptor is ready for `events` (poll's) or broken before the deadline (now_ns() clock).
bool wait_for(int descriptor, short events, std::int64_t deadline_ns);

// TCP without delay; a peer whose host has gone silently is noticed within half a minute.
void prepare_stream(int socket) noexcept;

// "[::1]:29500", for messages.
std::string name_of_master(const Job& job);

// Rank 0's. A job of one host: Unix sockets, whose names follow from the key, the port and the user; only processes of the same
// user are heard. A job of several hosts: TCP at those of the master's addresses that are this host's; where none of them can be
// reached from outside, at outer_addresses() too; and, where it is free, the Unix socket at which a rank of this host without the
// key is told so. Errors: unavailable (the port is taken, there is no address), out_of_descriptors,
// invalid_argument.
Result<std::vector<Descriptor>> listen_as_master(const Job& job);

// Where the others find it, best first. Errors: unavailable (the address is unknown), no_permission (no address of this host, and
// no key).
Result<std::vector<SocketAddress>> master_addresses(const Job& job);

// Both families, with the port. Errors: unavailable.
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port);

// Whether the process at the other end of a Unix socket ran as this user when it connected or listened.
bool is_of_this_user(int socket) noexcept;

// Errors: timed_out, unavailable (with the errno of connect()), out_of_descriptors, no_permission (a Unix socket of another user).
Result<Descriptor> connect_to(const SocketAddress& address, std::int64_t deadline_ns);

}  // namespace gigabar::fabric
