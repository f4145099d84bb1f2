// SPDX-License-Identifier: Apache-2.0
// What carries bytes between two ranks. Every transport is a folder with the same files: `transport` (what it is, its listening
// side), `region` (memory it can reach), `link` (one connection).
//
// Threads: everything of one Transport (its links and regions too) is called by one thread at a time; the caller has the lock. Of
// stores Link says what any thread may call. No function blocks for longer than a system call; what takes time ends in poll().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/ranges.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {
struct Topology;
}

namespace gigabar::transport {

// What two ranks tell each other before a link stands, through their authenticated channel. Descriptors pass between processes of
// one host only.
struct Parcel {
  std::string bytes;
  std::vector<Descriptor> descriptors;
};
inline constexpr std::size_t kMaxParcelBytes = 16384;
inline constexpr std::size_t kMaxParcelDescriptors = 8;

// Who is at the other end.
struct Peer {
  Rank rank = 0;
  bool is_same_host = false;  // same kernel and same user: descriptors, shared memory and CUDA IPC are possible
  std::int64_t process = 0;   // its id, in this process's numbering; only when is_same_host
  std::string address;        // what its transport of the same kind answered to address(); written by another process: not trusted
};

// Memory that is to be registered. `descriptor`: of a memfd that the whole range is mapped from at `descriptor_offset_bytes`, or
// -1; local peers can then map the same pages.
struct MemoryRange {
  void* address = nullptr;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::host_pageable;
  int device = -1;
  int descriptor = -1;
  std::uint64_t descriptor_offset_bytes = 0;
  bool holds_words = false;               // of post_word(); `bytes` is then bytes_of_words()
  std::shared_ptr<void> pages = nullptr;  // keeps the memory and the descriptor; none: both are there for as long as the region is
};

// Memory of this process that a transport can reach. The destructor takes the right back: nothing lands there afterwards through
// links that are gone, and links still up must have nothing under way on it.
class Region : InPlace {
 public:
  virtual ~Region() = default;
  std::uintptr_t address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  MemoryKind kind() const noexcept { return kind_; }
  // How it was made reachable, one word and a sentence: "dma_buf", "peer_memory", "pinned", "memfd", "cuda_ipc", "none".
  std::string_view how() const noexcept { return how_; }
  const std::string& reason() const noexcept { return reason_; }
  // What `peer` needs to open it, at most kMaxParcelBytes. Errors: out_of_descriptors, device_error.
  virtual Result<Parcel> key(const Peer& peer) const = 0;
  // Afterwards the key that the rank has does not fit, where the target's CPU checks keys (tcp, ucx); its adapter does not (verbs),
  // nor do mapped pages (local). key() makes another one.
  virtual void take_back_key(Rank /*rank*/) noexcept {}

 protected:
  explicit Region(const MemoryRange& range) noexcept
      : address_(reinterpret_cast<std::uintptr_t>(range.address)), bytes_(range.bytes), kind_(range.kind) {}
  std::string_view how_ = "none";
  std::string reason_;

 private:
  const std::uintptr_t address_;
  const std::size_t bytes_;
  const MemoryKind kind_;
};

// A peer's memory in reach of loads and stores of this process. What is opened for it stays open for as long as `hold` lives, also
// when the region is gone.
struct MappedRegion {
  std::uintptr_t address = 0;
  std::shared_ptr<void> hold;
  // Why atomics of those kernels and of the owner's are not atomic with each other; empty: they are.
  std::string why_no_atomics;
};

// Memory of a peer, as that peer's key names it. Its destructor closes what was opened.
class RemoteRegion : InPlace {
 public:
  virtual ~RemoteRegion() = default;
  virtual std::size_t bytes() const noexcept = 0;
  // For kernels of `device`; -1: for CPU threads. Errors: not_supported (why), device_error.
  virtual Result<MappedRegion> map(int /*device*/) {
    return make_error(Status::not_supported, "map", "a peer's memory", "only the local transport reaches it by loads and stores",
                      "use operations, or ranks of one host");
  }
  // For threads of the CPU, whatever memory it is; stores of device memory gather in write-combining buffers. Errors: as map.
  virtual Result<MappedRegion> map_for_cpu() { return map(-1); }
};

// Memory of words: a counter of 8 bytes for each of the first kCountedWords, and behind them 8 bytes for each word, whose first 4
// are its value: soft-RoCE stores 8 aligned bytes at once where it stores 4 one by one. It begins at a multiple of 8. A word is its
// value plus its counter, if it has one, modulo 2^32. Values are stored by anybody, and added to by CPUs. Counters are added to by
// adapters only: their atomics are atomic with each other, not with those of CPUs. Adapters write the first kCountedWords words
// only, so that no more is pinned.
inline constexpr std::size_t kCountedWords = 1024;
constexpr std::size_t word_counter_at(std::size_t index) noexcept { return 8 * index; }
constexpr std::size_t word_value_at(std::size_t index) noexcept { return 8 * kCountedWords + 8 * index; }
constexpr std::size_t bytes_of_words(std::size_t count) noexcept { return word_value_at(count); }
constexpr std::size_t words_in(std::size_t bytes) noexcept {
  return bytes < bytes_of_words(0) ? 0 : (bytes - bytes_of_words(0)) / 8;
}
enum class WordKind : std::uint8_t { set, add };

// The first part of every message; what is in it is the caller's.
inline constexpr std::size_t kHeaderBytes = 32;
using Header = std::array<std::byte, kHeaderBytes>;

enum class Posted : std::uint8_t {
  ok,
  full,   // no room now: poll and post again; nothing was done
  broken  // the link is broken; Sink::broken() tells or told why
};

// Whether one link can move bytes between two regions by itself, in which way, and why (not).
struct Reach {
  bool can = false;
  TransferPath path = TransferPath::none;
  std::string reason;     // one sentence, always there
  bool is_quick = false;  // a write of few bytes costs no more than a message with them
};
enum class Direction : std::uint8_t {
  write,
  read,
  answer  // the peer writes from the remote region to the local one; for reach() only
};

// A write or a read that is to be posted.
struct Transfer {
  const Region& local;
  std::uint64_t local_offset;
  const RemoteRegion& remote;
  std::uint64_t remote_offset;
  std::uint64_t bytes;
  std::uint64_t cookie;  // which done() tells
};

constexpr bool is_inside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t whole) noexcept {
  return bytes >= 1 && fits(offset, bytes, whole);
}

struct LinkLimits {
  std::size_t payload_bytes = 0;        // most payload of one message, at least 4096
  std::size_t quick_payload_bytes = 0;  // up to here a message costs about as much as an empty one
  std::size_t copied_write_bytes = 0;   // most bytes of one post_copied_write; 0: there is none
  std::uint64_t write_bytes = 0;        // most bytes of one post_write; larger ones are the caller's to cut
  std::uint64_t read_bytes = 0;         // of one post_read; 0: cannot read
  // More than this is sooner here when it is the peer's writes.
  std::uint64_t quick_read_bytes = std::numeric_limits<std::uint64_t>::max();
  bool words_wake = false;  // a word wakes a peer that has armed its transport
};

enum class LinkState : std::uint8_t { connecting, ready, broken };

class Sink;

// One connection with one peer over one rail. Promises to both sides:
// - messages arrive whole, once, in the order in which they were posted;
// - a message is delivered after every write that was posted before it on this link has been placed in the peer's memory, where
//   the peer's CPU, a later copy of its copy engine and a kernel launched later see it;
// - a word is written after every write that was posted before it on this link has been placed, and without the peer's CPU: a
//   load (acquire) that sees it also sees those writes, those into memory of a GPU after the peer's Transport::flush_gpu_writes();
// - done() of a write: the local memory may be used again. It does not say that the bytes have arrived;
// - done() of a read: the bytes are in local memory;
// - each posted write and read gets exactly one done(), with an error when the link broke, before broken() is called. After that
//   nothing of this link touches local memory, and once the object is destroyed nothing of the peer's can arrive through it.
class Link : InPlace {
 public:
  virtual ~Link() = default;
  LinkState state() const noexcept { return state_; }
  const LinkLimits& limits() const noexcept { return limits_; }
  // "mlx5_0/1", "lo", "shared memory"; for reports.
  const std::string& rail() const noexcept { return rail_; }
  // What this process has taken for the link: rings (half of what both sides share), message buffers, what is queued now. Without
  // what the kernel and the network's library keep for it.
  virtual std::uint64_t memory_bytes() const noexcept = 0;

  // Copies header and payload before it returns. `payload` is host memory.
  virtual Posted post_message(const Header& header, std::span<const std::byte> payload) = 0;

  // Of any length; what is longer than one operation of the link is the caller's to cut.
  virtual Reach reach(Direction direction, const Region& local, const RemoteRegion& remote) const = 0;
  // Only where reach() can. Ranges are inside their regions: the link checks it and answers an out_of_range done(), but a caller
  // has checked before. `bytes` 1 .. limits().write_bytes. The order among writes and reads is not defined.
  Posted post_write(const Region& local, std::uint64_t local_offset, const RemoteRegion& remote, std::uint64_t remote_offset,
                    std::uint64_t bytes, std::uint64_t cookie) {
    return post_transfer(Direction::write, {local, local_offset, remote, remote_offset, bytes, cookie});
  }
  Posted post_read(const Region& local, std::uint64_t local_offset, const RemoteRegion& remote, std::uint64_t remote_offset,
                   std::uint64_t bytes, std::uint64_t cookie) {
    return post_transfer(Direction::read, {local, local_offset, remote, remote_offset, bytes, cookie});
  }

  // A write of 1 .. limits().copied_write_bytes from host memory, which is copied before it returns: there is no done(). Full also
  // where it cannot be; post_write says why. `is_word_next`: post_word() comes next; until then, or the next poll(),
  // the write may wait for it.
  virtual Posted post_copied_write(std::span<const std::byte> /*bytes*/, const RemoteRegion& /*remote*/,
                                   std::uint64_t /*remote_offset*/, bool /*is_word_next*/) {
    return Posted::full;
  }

  // Why post_word() cannot, in one sentence; empty: it can.
  virtual std::string why_no_word(WordKind kind, const RemoteRegion& words) const = 0;
  // Sets word `index` of the peer's memory of words to `value`, or adds to it. Only where why_no_word() is empty. A message
  // that is posted later is delivered after it; one that was posted before may not have been looked at.
  virtual Posted post_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value) = 0;

  // Writes and words that are stores of the calling thread into memory which this process maps. can_store() and can_store_words():
  // whether store() and store_word() may be called for that region from now on. They stay true until post_write() is called, the
  // link breaks, or the owner of the region deregisters it; a store that comes later goes nowhere, or into pages that are kept.
  // Threads: the two stores may be called by any number of threads at once, and beside any call of the link but post_write(), for
  // as long as the link and the region are there. Ordering: a word is behind the stores that happened before it, in whichever
  // thread, and a message that is posted later is delivered after both.
  // open_for_stores(): the same as can_store(); maps memory of a peer's GPU when it is asked first, where that is possible.
  virtual bool open_for_stores(const RemoteRegion& /*remote*/) const { return false; }
  virtual bool can_store(const RemoteRegion& /*remote*/) const noexcept { return false; }
  virtual bool can_store_words(const RemoteRegion& /*words*/) const noexcept { return false; }
  // Inside the region, as the caller has checked. `writer`: any number; threads with numbers of their own disturb each other less.
  virtual void store(std::span<const std::byte> /*bytes*/, const RemoteRegion& /*remote*/,
                     std::uint64_t /*remote_offset*/) noexcept {}
  virtual void store_word(WordKind /*kind*/, const RemoteRegion& /*words*/, std::size_t /*index*/, std::uint32_t /*value*/,
                          std::size_t /*writer*/) noexcept {}

  // The initiator's half of connecting: the answer that the peer's accept() gave. Errors break the link.
  virtual Result<void> complete(Parcel answer) = 0;

  // Before it is destroyed, outside of poll(): nothing more is told of it, and what has not begun is dropped. False: what it began
  // is under way on local memory; ask again, or let the destructor wait. It ends, or is given up, in a time of the link's own.
  virtual bool stop() { return true; }

  // Whom the caller keeps it for; transports leave it alone.
  void* owner = nullptr;

 protected:
  explicit Link(std::string_view rail, LinkState state = LinkState::connecting) : state_(state), rail_(rail) {}
  struct Done {
    std::uint64_t cookie;
    Result<void> outcome;
  };
  // What the sink posts meanwhile is for the next time. True when there was something.
  bool tell_dones(Sink& sink);

  LinkState state_;
  LinkLimits limits_;
  std::string rail_;
  std::deque<Done> dones_;  // to be told

 private:
  // Of post_write() and post_read().
  virtual Posted post_transfer(Direction direction, const Transfer& transfer) = 0;
};

// Who is told what happened, from inside Transport::poll() only. May post on any link; must not destroy one.
class Sink {
 public:
  virtual void ready(Link& link) = 0;
  // Valid during the call. `payload` is host memory.
  virtual void message(Link& link, const Header& header, std::span<const std::byte> payload) = 0;
  virtual void done(Link& link, std::uint64_t cookie, const Result<void>& outcome) = 0;
  virtual void broken(Link& link, const Error& error) = 0;  // once per link; destroy it later

 protected:
  ~Sink() = default;
};

inline bool Link::tell_dones(Sink& sink) {
  const std::size_t count = dones_.size();
  for (std::size_t told = 0; told < count; ++told) {
    const Done done = std::move(dones_.front());
    dones_.pop_front();
    sink.done(*this, done.cookie, done.outcome);
  }
  return count > 0;
}

// Goes after its links.
class Transport : InPlace {
 public:
  virtual ~Transport() = default;
  TransportKind kind() const noexcept { return kind_; }
  // What peers must know to offer a link, at most 1024 bytes; part of the rank's address.
  virtual std::string address() const = 0;
  // Names of the rails of this side, best first; at least one.
  const std::vector<std::string>& rails() const noexcept { return rail_names_; }

  // Registers memory on every rail. Errors: not_supported (this transport cannot reach such memory: stage it), out_of_memory,
  // no_permission, out_of_descriptors, device_error; each says why and what to do.
  virtual Result<std::unique_ptr<Region>> register_memory(const MemoryRange& range) = 0;
  // The counterpart of Region::key(). Everything in `key` is checked. Errors: bad_file (malformed), as register_memory.
  virtual Result<std::unique_ptr<RemoteRegion>> open_region(const Peer& peer, Parcel key) = 0;

  // Why peers cannot write words into memory of this side, in one sentence; empty: they can.
  virtual std::string why_no_words() const = 0;
  // Behind a word that was seen: what came before it into memory of this side's GPUs is visible to copies and kernels that start
  // later. Errors: device_error. Cost: none where the GPU's writes are ordered.
  virtual Result<void> flush_gpu_writes() { return {}; }

  // Whether a link with `peer` is possible at all, from the addresses alone: ok, or the reason.
  virtual Availability can_reach(const Peer& peer) const = 0;
  // Initiator: a link in state connecting, and the parcel for the peer's accept(), whose answer goes into Link::complete(). `rail`
  // indexes rails().
  virtual Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) = 0;
  // Acceptor: everything in `offer` is checked. Errors: bad_file (malformed), as register_memory.
  virtual Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) = 0;

  // Moves everything on and tells `sink`. True when something happened. Never waits.
  virtual bool poll(Sink& sink) = 0;
  // For sleeping: true when nothing is pending and wake_descriptor() will become readable when something happens; false: poll
  // again first. While armed the transport may be slower. Deadlines do not wake: who sleeps polls every 100 ms all the same.
  virtual bool arm() = 0;
  virtual int wake_descriptor() const noexcept = 0;
  // Whether its work is done by this machine's processors, in threads of the kernel: who polls must let them run.
  virtual bool needs_processor() const noexcept { return false; }
  // Connections to its own ports that were turned away.
  virtual std::uint64_t refused_count() const noexcept { return 0; }

 protected:
  explicit Transport(TransportKind kind, std::vector<std::string> rail_names = {})
      : rail_names_(std::move(rail_names)), kind_(kind) {}
  std::vector<std::string> rail_names_;

 private:
  const TransportKind kind_;
};

// What the fabric was asked for, as far as transports care.
struct TransportOptions {
  std::vector<std::string> rails;      // device names, "mlx5_0" or "mlx5_0/1"; empty: by distance from `near_device`
  int near_device = -1;                // the GPU (or stand-in) whose NICs are preferred; -1: none
  std::size_t local_rank = 0;          // among the ranks of this host: those that share a GPU are dealt equally near NICs in turn
  const Topology* topology = nullptr;  // the tree for these distances, read while opening; null: this machine's
  unsigned rail_count = 1;
  std::string ucx_devices = "lo";       // UCX's names of the interfaces that it listens at, where everybody is trusted
  std::string tcp_interfaces = "lo";    // where tcp listens: interfaces, addresses or networks; each interface is a rail
  bool is_tcp_sealed = false;           // tcp encrypts what it sends, and does so where the peer wants it
  std::vector<int> cpus;                // that threads of the transport are kept on; empty: they are not bound
  bool stand_in_registration = true;    // false: verbs refuses stand-in memory, as a NIC without GPUDirect RDMA does
  std::uint64_t most_kernel_bytes = 0;  // local: copies between GPUs of more are the copy engines'; 0: all are
  int gid_index = -1;                   // -1: right by itself
  int traffic_class = -1;               // -1: the system's
  int service_level = -1;               // InfiniBand 0 to 15, RoCE 0 to 7 (Ethernet priority); -1: the network's
  std::int64_t connect_deadline_ns = 10'000'000'000;
};

}  // namespace gigabar::transport
