// SPDX-License-Identifier: Apache-2.0
// The authenticated channels between ranks: one stream socket per pair that has something to say, made at first use. They carry
// what is said before and beside the data: offers of links, keys of segments, quiescing, farewells. A channel that breaks means
// that the peer is gone, on every transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "fabric/job/job.hpp"
#include "gigabar/status.hpp"

namespace gigabar::fabric {

struct Frame {
  std::uint16_t type = 0;               // the caller's; below 0x8000
  std::string body;                     // at most kMaxFrameBytes
  std::vector<Descriptor> descriptors;  // at most 8, between processes of one host only
};
inline constexpr std::size_t kMaxFrameBytes = 65536;

// Strangers that were turned away, by cause. Every connection that was accepted ends in a channel, goes by itself between two
// messages, or is counted here once.
struct Refusals {
  std::uint64_t wrong_key = 0;
  std::uint64_t malformed = 0;
  std::uint64_t too_slow = 0;      // did not finish the handshake in 5 s
  std::uint64_t crowded_out = 0;   // made room for others: see Strangers
  std::uint64_t wrong_job = 0;     // another job, rank count, version or a rank that cannot be
  std::uint64_t another_user = 0;  // at the Unix socket
  std::uint64_t no_room = 0;       // the system had no memory to watch it
  std::uint64_t total() const noexcept {
    return wrong_key + malformed + too_slow + crowded_out + wrong_job + another_user + no_room;
  }
};

// Told from inside Wireup::poll() only. May send; must not call disconnect().
class WireupEvents {
 public:
  virtual void connected(Rank rank, bool is_same_host, std::int64_t process) = 0;
  virtual void frame(Rank rank, Frame frame) = 0;
  // Once per connected() or connect(). `error`: peer_lost (it ended, its socket broke), no_permission (another key, or it refused
  // ours), timed_out (connecting), not_supported (another version of this protocol: both versions are named).
  virtual void lost(Rank rank, const Error& error) = 0;

 protected:
  ~WireupEvents() = default;
};

// All channels of this rank. Not for several threads at once.
//
// Handshake, the same on Unix and TCP sockets: the listener sends a fresh challenge; both send a fixed-size hello (magic, protocol
// version, job id's hash, ranks, a fresh 32-byte nonce, an ephemeral X25519 key, a keyed hash over it and the challenge); each then
// proves the job's key by a keyed hash over all of that and its role; the session's keys come from the exchange and the job's key,
// and every frame is encrypted and authenticated with a counter as its nonce. A stranger learns nothing but that a rank listens.
// Without a key the job id stands in for it and only Unix sockets are used. At most 128 unfinished handshakes are held at once on
// Unix sockets, and as many on TCP.
class Wireup {
 public:
  // Listens on a Unix socket in the abstract name space (peers on this host must run as the same user: SO_PEERCRED) and, when the
  // job is on several hosts, on TCP at outer_addresses() (job/interfaces.hpp). Errors: out_of_descriptors, unavailable,
  // invalid_argument (GIGABAR_INTERFACES).
  static Result<std::unique_ptr<Wireup>> open(const Job& job);
  virtual ~Wireup() = default;

  // Where this rank is found: part of its address.
  virtual std::string rank_address() const = 0;
  // Whether that address is of a process of this host: same boot, same network name space.
  virtual bool is_same_host(const std::string& rank_address) const = 0;

  // Starts to connect; connected() or lost() follows. When both ranks connect at once, one channel remains. No effect when there is
  // one. A peer that does not listen yet is tried again until the deadline (now_ns() clock). Errors: bad_file (a malformed
  // address).
  virtual Result<void> connect(Rank rank, const std::string& rank_address, std::int64_t deadline_ns) = 0;
  virtual bool is_connected(Rank rank) const = 0;
  // In order; queued when the socket is full, at most 8 MiB and 64 descriptors per peer (then busy). Errors: peer_lost, busy,
  // invalid_argument.
  virtual Result<void> send(Rank rank, Frame frame) = 0;
  // Sends what is queued if it goes at once, then closes. No lost() follows; the peer sees peer_lost.
  virtual void disconnect(Rank rank) noexcept = 0;

  // True when something happened. Never waits.
  virtual bool poll(WireupEvents& events) = 0;
  // An epoll descriptor: readable when poll() has something to do, timers too.
  virtual int wake_descriptor() const noexcept = 0;
  virtual const Refusals& refusals() const noexcept = 0;
  // Bytes this process holds for the channel of `rank`.
  virtual std::size_t memory_bytes(Rank rank) const = 0;
};

}  // namespace gigabar::fabric
