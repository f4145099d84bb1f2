// SPDX-License-Identifier: Apache-2.0
// Communication between the ranks of a job: segments, queues, notifications and messages. Each operation reports its path, and each
// wait has a deadline.
//
// The names and semantics are GASPI's (GASPI specification 17.1). A job consists of processes, its ranks. A rank registers memory
// as a segment; other ranks write to it and read from it at (rank, segment, offset). Operations are posted to queues and return at
// once. `wait` and `flush` wait for this rank's operations, `notification_wait` waits for a peer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/fabric_options.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

// A value in use and its source: "option", "GIGABAR_GDR_LIMIT", "tuned, FILE", "default". The name of a tuned value contains the
// connections that use it, "chunk (ucx, other hosts)"; the other connections use the value of "chunk".
struct Setting {
  std::string name, value, source;
};

// --- Operations -----------------------------------------------------------------------------------------------------------------

// One element of a list. All elements of a list go to the same rank.
struct ListPiece {
  LocalPlace local;
  SegmentId remote_segment = 0;
  std::uint64_t remote_offset_bytes = 0;
  std::uint64_t bytes = 0;
};

struct PostOptions {
  QueueId queue = 0;
  std::optional<PathPolicy> policy;                          // instead of the fabric's
  std::optional<std::uint64_t> chunk_bytes = std::nullopt;   // of staged writes, at least 4096; at most the fabric's value
  std::optional<std::uint64_t> stripe_bytes = std::nullopt;  // instead of the fabric's: 0 always uses all rails
};

// Names a posted operation of this process; never reused.
enum class Operation : std::uint64_t {};

struct RailShare {
  std::string rail;
  std::uint64_t bytes = 0;
};

// The result of an operation.
struct OperationReport {
  bool is_done = false;  // local completion
  Status status = Status::ok;
  TransferPath path = TransferPath::none;
  std::optional<TransportKind> transport;
  std::vector<RailShare> rails;
  std::uint64_t bytes = 0;
  unsigned chunks = 0;           // number of pieces
  unsigned retries = 0;          // posts that were repeated after a full queue
  std::int64_t duration_ns = 0;  // from post to local completion
  std::string reason;            // why this path
  std::string notification;      // which way its notification went, and why; empty: it has none
};

// The path that an operation would take, and the alternatives.
struct Explanation {
  bool is_possible = false;
  TransferPath path = TransferPath::none;
  std::optional<TransportKind> transport;
  std::vector<std::string> rails;
  std::uint64_t chunk_bytes = 0;
  std::string reason;
  struct Alternative {
    std::string name;  // "local", "verbs: gdr", ...
    std::string why_not;
  };
  std::vector<Alternative> alternatives;
  GIGABAR_API std::string to_text() const;
};

struct Received {
  Rank rank = 0;
  Tag tag = 0;
  std::uint64_t bytes = 0;
};

struct RemoteSegment {
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::host_pageable;
};

enum class ReduceOperation : std::uint8_t { minimum, maximum, sum };

// Ranks that act together. Each of them makes the same call with the same ranks.
using Group = std::vector<Rank>;  // ascending, each once; empty: all ranks
using CollectiveContext = std::uint32_t;

struct PeerState {
  Rank rank = 0;
  bool is_connected = false;
  bool is_broken = false;
  bool is_same_host = false;
  std::string why;  // the cause, when the connection is broken
  std::optional<TransportKind> transport;
  std::vector<std::string> rails;
  std::uint64_t memory_bytes = 0;  // that this process uses for the connection: rings, receive buffers, staging
};

struct FabricStatistics {
  std::uint64_t refused_strangers = 0;  // connections without the job's key, or with another protocol
  std::uint64_t operations = 0;
  std::uint64_t messages = 0;
  std::uint64_t staged_operations = 0;  // operations that were staged because a preferred path was not possible
};

// The users of an address of map_segment: kernels of this rank's GPU (CPU threads on a machine without one), or CPU threads.
enum class MappedFor : std::uint8_t { kernels, cpu };

// Threads: any number may call at once. Calls of one queue (posts and `wait`) are served one after the other, in the order of their
// arrival; a new one may overtake those that have waited for less than a millisecond. When another thread is at the queue for too
// long, `wait` gets timed_out within its timeout, a post after connect_timeout; the error names the queue, and nothing is posted.
// Collectives of one group are for one thread at a time. A forked child cannot use its parent's fabric (foreign_process).
// Errors of every call: invalid_argument and out_of_range name the argument; foreign_process; unavailable after close(). When a
// peer died, broke its connection or did not connect within connect_timeout, every operation with it ends with peer_lost within the
// deadline, until forget(); other peers are unaffected. A wait that is made again after timed_out goes on: however short its parts
// are, it finds a dead rank as one long wait does. (One for any rank that only looks, Timeout::test(), is no part of a wait.)
// `wait`, `flush` and the operation's report return the failure of an operation that failed after its post.
class Fabric {
 public:
  // Joins the job. Connections are made at first use, so this call waits only for the rank that has the job's directory (rank 0, or
  // PMIx). Errors: invalid_argument (an option, half a launcher's environment, or a launcher that is refused: names the variable),
  // unavailable (no transport at all: each with its reason; the address of rank 0 is unknown, at every rank), timed_out (rank 0
  // never appeared), no_permission (another job key; this process may start no threads).
  GIGABAR_API static Result<Fabric> open(const FabricOptions& options);
  GIGABAR_API Fabric(Fabric&&) noexcept;
  GIGABAR_API Fabric& operator=(Fabric&&) noexcept;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  // Leaves the job at once. Peers that still need this rank see it as lost. With an open DeviceSession: when the session ends.
  GIGABAR_API ~Fabric();
  // Leaves the job in order: completes the posted operations, then tells the peers. Errors: timed_out (nothing was closed), busy
  // (segments are mapped, perhaps by a DeviceSession).
  GIGABAR_API Result<void> close(Timeout timeout);

  GIGABAR_API Rank rank() const noexcept;
  GIGABAR_API Rank rank_count() const noexcept;
  GIGABAR_API Rank local_rank() const noexcept;       // among the ranks of this host
  GIGABAR_API int device() const noexcept;            // of this rank: a CUDA ordinal or a stand-in number
  GIGABAR_API std::vector<Setting> settings() const;  // of the options: each value and its source; never the key
  // The CPUs of the fabric's own threads, ascending; empty: they are not bound. A program can place its threads by it: the fabric
  // binds no thread of the program.
  GIGABAR_API std::vector<int> cpus() const;
  GIGABAR_API FabricStatistics statistics() const;
  GIGABAR_API std::vector<PeerState> peers() const;  // peers with a present or past connection
  // Connects now. Errors: timed_out (`timeout` is over: call again), peer_lost (also when connect_timeout, which counts from the
  // first attempt, is over), unavailable (no transport reaches the rank: each with its reason).
  GIGABAR_API Result<void> connect(Rank rank, Timeout timeout);
  // Forgets a lost peer: the next operation connects again. Waits for copies on the memory of its operations, which end or are
  // given up in 10 s. Errors: busy (the connection is intact, or there was no memory to end it).
  GIGABAR_API Result<void> forget(Rank rank);

  // Registers [address, address + bytes) of host, device or stand-in memory, which must live until it is deregistered. Peers of
  // this host reach host memory directly where it is shared (HostMemoryOptions::is_shared).
  // Errors: invalid_argument (null, zero bytes, id in use), out_of_range (id), out_of_memory, device_error.
  // Cost: enters the kernel; pins pages.
  GIGABAR_API Result<void> register_segment(SegmentId id, void* address, std::size_t bytes);
  // After it returns, no remote write or read can access the segment until enable(segment): every peer that knows the segment has
  // confirmed this, or its connection was cut; so was that of a peer whose own write or read on it did not end in time. A read by
  // this rank into the segment is unavailable where the peer would answer with a write. A lost rank of this host whose process
  // lives on can write to what it has mapped until it finds the connection gone. Errors: timed_out (a peer of this host neither
  // answered nor ended: its copies may still land).
  GIGABAR_API Result<void> quiesce(SegmentId id, Timeout timeout);
  GIGABAR_API Result<void> enable(SegmentId id);  // of a segment that is enabled: changes nothing
  // quiesce, then removes the segment. On timed_out the segment stays registered.
  GIGABAR_API Result<void> deregister_segment(SegmentId id, Timeout timeout);
  // Queries the peer. Errors: timed_out, out_of_range (it has no such segment).
  GIGABAR_API Result<RemoteSegment> remote_segment(Rank rank, SegmentId id, Timeout timeout);
  // Returns the address of a segment of this rank, or of a peer of this host, for loads and stores by kernels of this rank's GPU
  // over NVLink or PCIe (on a machine without a GPU: by CPU threads). The address is valid until unmap_segment, even when the peer
  // ends. Until then quiesce() and deregister_segment() of the segment wait at the peer. Mapping it again returns the same address,
  // which must be unmapped as often. Errors: timed_out, peer_lost, out_of_range (it has no such segment), not_supported (with the
  // reason: another host, no peer access, memory that cannot be shared), device_error.
  // MappedFor::cpu: for threads of this process, also to GPU memory, through its BAR. Stores then gather in write-combining buffers
  // until a fence (_mm_sfence); each load is a round trip over PCIe.
  GIGABAR_API Result<void*> map_segment(Rank rank, SegmentId id, Timeout timeout, MappedFor who = MappedFor::kernels);
  // Returns why system-scope atomics of this rank's kernels, in a segment that is mapped for them, are not atomic with those of its
  // owner's kernels: GPUs whose link has no native atomics, which are most pairs over PCIe. Empty: they are atomic with each other.
  // Loads and stores are not affected. Errors: invalid_argument (the segment is not mapped).
  GIGABAR_API Result<std::string> why_no_atomics(Rank rank, SegmentId id) const;
  // Unmaps the segment: nothing may use the address any more. Errors: invalid_argument (it is not mapped).
  GIGABAR_API Result<void> unmap_segment(Rank rank, SegmentId id, MappedFor who = MappedFor::kernels);

  // Post an operation and return. The first operation with a peer, or on one of its segments, first connects and queries the
  // segment, for at most connect_timeout; connect() and remote_segment() do that beforehand. Zero bytes move nothing.
  // Errors: busy (the queue holds kQueueDepth operations: wait first), timed_out (another thread was at the queue for
  // connect_timeout; or the peer did not answer the query), peer_lost (also: it did not connect), unavailable (no path: each with
  // its reason; or the policy's required path is not possible).
  // Ordering: none between operations, except that a notification is raised after the data of its own operation, and of every
  // earlier write of the same queue to the same rank, is in place: for the CPU, for copies of the copy engine, and for later
  // kernels.
  GIGABAR_API Result<Operation> write(LocalPlace local, RemotePlace remote, std::uint64_t bytes, const PostOptions& options = {});
  GIGABAR_API Result<Operation> read(LocalPlace local, RemotePlace remote, std::uint64_t bytes, const PostOptions& options = {});
  GIGABAR_API Result<Operation> write_list(Rank rank, std::span<const ListPiece> pieces, const PostOptions& options = {});
  GIGABAR_API Result<Operation> read_list(Rank rank, std::span<const ListPiece> pieces, const PostOptions& options = {});
  // Sets notification `id` of the remote segment to `value` (not 0) after the data is in place. It is a word in memory of the
  // segment's owner: over `local` a store, over InfiniBand and RoCE one more write by the adapter. The owner's CPU takes no part
  // where the data goes by the link itself over one rail; in other cases its engine sets the word. The report says which, and why.
  GIGABAR_API Result<Operation> write_notify(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                             std::uint32_t value, const PostOptions& options = {});
  // As a list of writes and a notify, which takes no place of its own in the queue: kMaxListPieces pieces fit into an empty one.
  GIGABAR_API Result<Operation> write_list_notify(Rank rank, std::span<const ListPiece> pieces, SegmentId segment,
                                                  NotificationId id, std::uint32_t value, const PostOptions& options = {});
  GIGABAR_API Result<Operation> notify(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                       const PostOptions& options = {});
  // As notify and write_notify, but adds `value` to the notification: many writers, one counter, modulo 2^32. Between two resets a
  // notification is either set or added to: an adapter counts what it adds apart from what is set.
  GIGABAR_API Result<Operation> notify_add(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                           const PostOptions& options = {});
  GIGABAR_API Result<Operation> write_notify_add(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                                 std::uint32_t value, const PostOptions& options = {});

  // Copies up to kMaxOrderedBytes from `source` before it returns. They are in place after the data of every earlier write of the
  // same queue to the same rank, and before those of later calls of this function. Aligned 4 and 8 bytes are seen whole, and a
  // reader that sees them by an acquire also sees the data before them: a notification in the program's own memory. The operation's
  // report has no path. Errors: as write; out_of_range (too many bytes).
  GIGABAR_API Result<Operation> write_in_order(const void* source, RemotePlace remote, std::uint64_t bytes,
                                               const PostOptions& options = {});

  // Waits until one of `count` notifications from `first` on is not 0, and returns the lowest such id. Errors: timed_out, peer_lost
  // (every other rank of the job is lost; the error names them), device_error (GPU memory could not be flushed; the notification
  // stays as it is).
  GIGABAR_API Result<NotificationId> notification_wait(SegmentId segment, NotificationId first, std::uint32_t count,
                                                       Timeout timeout);
  // Waits until notification `id` is at least `value`, and subtracts `value` from it. Errors: as notification_wait.
  GIGABAR_API Result<void> notification_wait_count(SegmentId segment, NotificationId id, std::uint32_t value, Timeout timeout);
  // Sets the notification to 0 and returns its previous value, in one step: what is raised meanwhile is in the result or stays.
  // Errors: device_error, as notification_wait.
  GIGABAR_API Result<std::uint32_t> notification_reset(SegmentId segment, NotificationId id);

  // Waits for local completion of everything that was posted to the queue: local memory may be used again. Other threads' calls of
  // the queue wait meanwhile. Errors: timed_out; the first failure of an operation of the queue since the last wait, after all of
  // them have ended.
  GIGABAR_API Result<void> wait(QueueId queue, Timeout timeout);
  // Makes progress without waiting: for a program that polls its own memory instead of waiting for a notification. Threads: any.
  // Errors: foreign_process, unavailable (closed).
  GIGABAR_API Result<void> progress();
  // Waits until everything that was posted to `rank` before is in place there. Errors: as wait.
  GIGABAR_API Result<void> flush(Rank rank, Timeout timeout);
  // Returns the report of one of the last 4096 operations. Errors: out_of_range.
  GIGABAR_API Result<OperationReport> report(Operation operation) const;
  GIGABAR_API Result<Explanation> explain_write(LocalPlace local, RemotePlace remote, std::uint64_t bytes, Timeout timeout,
                                                const PostOptions& options = {});
  GIGABAR_API Result<Explanation> explain_read(LocalPlace local, RemotePlace remote, std::uint64_t bytes, Timeout timeout,
                                               const PostOptions& options = {});

  // Changes 8 aligned bytes of any segment and returns the value before. The target's CPU executes it, atomically among all such
  // calls of all ranks. Errors: timed_out (the peer's answer did not arrive; a call with equal arguments waits for that answer and
  // changes nothing again), invalid_argument (not a multiple of 8).
  GIGABAR_API Result<std::uint64_t> fetch_add(RemotePlace remote, std::uint64_t value, Timeout timeout);
  GIGABAR_API Result<std::uint64_t> compare_swap(RemotePlace remote, std::uint64_t expected, std::uint64_t desired,
                                                 Timeout timeout);

  // Messages between host or device buffers that need not be registered. They are in order per pair of ranks and matching tag, and
  // of no queue: `wait` does not wait for them, and they wait for no other thread's call of a queue.
  // post_* return at once; the program must not use the buffer until wait_message. 0 bytes are a message.
  GIGABAR_API Result<Operation> post_send(Rank to, Tag tag, const void* source, std::uint64_t bytes,
                                          const PostOptions& options = {});
  // Receives the first message of `from` (or kAnyRank) whose tag equals `tag` in the bits of `mask`. A message longer than `bytes`
  // is an out_of_range error; the message is consumed, and nothing beyond `bytes` is written.
  GIGABAR_API Result<Operation> post_recv(Rank from, Tag tag, Tag mask, void* destination, std::uint64_t bytes,
                                          const PostOptions& options = {});
  // Waits for a message operation, once per operation. Errors: timed_out (the operation continues), the operation's failure;
  // peer_lost of a receive from kAnyRank when every other rank is lost; unavailable of a receive that matched a message which its
  // sender took back at that moment: receive again.
  GIGABAR_API Result<Received> wait_message(Operation operation, Timeout timeout);
  // Cancels a receive that has not matched. Errors: busy (it is being filled or is complete: wait for it).
  GIGABAR_API Result<void> cancel_recv(Operation operation);
  // Post and wait. The buffer is the caller's when they return. On timed_out the message was taken back: nothing is sent or
  // received later. When its bytes are already in flight, the call waits once more, for at least a second, and then cuts the
  // connection (peer_lost). Over `local`, a stopped peer may still be about to write to a receive's buffer.
  GIGABAR_API Result<void> send(Rank to, Tag tag, const void* source, std::uint64_t bytes, Timeout timeout,
                                const PostOptions& options = {});
  GIGABAR_API Result<Received> recv(Rank from, Tag tag, void* destination, std::uint64_t bytes, Timeout timeout,
                                    const PostOptions& options = {});

  // Collectives of a group that contains this rank. After timed_out call again with the same arguments to continue; another
  // collective of the same group meanwhile is busy. When a member is lost, every other member gets peer_lost, which names it; the
  // others may continue as a group without it. When members call different collectives, every member gets invalid_argument.
  // Collectives of the same ranks in different contexts are independent of each other, as those of different groups are.
  GIGABAR_API Result<void> barrier(const Group& group, Timeout timeout, CollectiveContext context = 0);
  GIGABAR_API Result<void> all_reduce(const Group& group, ReduceOperation operation, std::span<const std::int64_t> values,
                                      std::span<std::int64_t> results, Timeout timeout, CollectiveContext context = 0);
  GIGABAR_API Result<void> all_reduce(const Group& group, ReduceOperation operation, std::span<const double> values,
                                      std::span<double> results, Timeout timeout, CollectiveContext context = 0);

 private:
  friend class DeviceSession;  // keeps the state as long as its kernels may use mapped memory
  struct State;
  explicit Fabric(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace gigabar::inline v0
