// SPDX-License-Identifier: Apache-2.0
// Ranks that move memory to and from each other: segments, queues, notifications, messages, each with a named path and bounded
// time.
//
// The words and semantics are GASPI's (GASPI specification 17.1). A job is a number of processes, its ranks. A rank registers
// memory as a segment; others write to it and read from it at (rank, segment, offset). Operations are posted to queues and return
// at once; `wait` and `flush` wait for them, `notification_wait` waits for the peer's.
#pragma once

#include <chrono>
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
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"

namespace gigabar {

using Rank = std::uint32_t;
using SegmentId = std::uint16_t;       // 0 .. kMostSegments - 1, chosen by the program
using QueueId = std::uint8_t;          // 0 .. kQueues - 1
using NotificationId = std::uint32_t;  // 0 .. kNotifications - 1, of one segment
using Tag = std::uint64_t;

inline constexpr unsigned kMostSegments = 1024;
inline constexpr unsigned kQueues = 16;
inline constexpr unsigned kQueueDepth = 1024;  // operations of one queue that are not waited for; a list counts its pieces
inline constexpr unsigned kNotifications = 65536;
inline constexpr unsigned kMostListPieces = 1024;
inline constexpr unsigned kMostOrderedBytes = 64;  // of write_in_order
inline constexpr unsigned kMostReduceElements = 255;
inline constexpr Rank kAnyRank = 0xffffffff;

// How long a call may wait. When it is over the call answers timed_out, which is no error of the peer: nothing is lost, and the
// same call can be made again.
class Timeout {
 public:
  // Looks once.
  static constexpr Timeout test() noexcept { return Timeout(0); }
  // Any duration, as in `barrier({}, 10s)`; below 0: looks once; at most a century.
  template <class Number, class Period>
  constexpr Timeout(std::chrono::duration<Number, Period> duration) noexcept : ns_(ns_of(duration)) {}
  template <class Number, class Period>
  static constexpr Timeout of(std::chrono::duration<Number, Period> duration) noexcept {
    return Timeout(duration);
  }
  // Ends when the operation does, or with peer_lost when nobody is left who could end it: its peer is dead; a member of the group
  // is (at every member); or, of a wait for anybody, every other rank is. A rank without a connection is looked for after a second;
  // one that was never started may still come, and one that has spoken to itself waits for itself.
  static constexpr Timeout forever() noexcept { return Timeout(-1); }

  constexpr bool is_forever() const noexcept { return ns_ < 0; }
  constexpr std::int64_t ns() const noexcept { return ns_; }

 private:
  explicit constexpr Timeout(std::int64_t ns) noexcept : ns_(ns) {}
  template <class Number, class Period>
  static constexpr std::int64_t ns_of(std::chrono::duration<Number, Period> duration) noexcept {
    constexpr std::chrono::nanoseconds kCentury = std::chrono::hours(24 * 365 * 100);
    const std::chrono::duration<double, std::nano> ns = duration;
    if (!(ns.count() > 0)) return 0;  // also what is no number
    if (ns >= kCentury) return kCentury.count();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  }
  std::int64_t ns_;
};

// --- Paths -----------------------------------------------------------------------------------------------------------------------

// What carries the bytes.
enum class TransportKind : std::uint8_t {
  local,  // one host: shared memory, CUDA IPC, CPU mappings of GPU memory
  verbs,  // InfiniBand, RoCE, iWARP
  ucx     // UCP: TCP and every network that UCX knows
};
inline constexpr std::size_t kTransportKinds = 3;
GIGABAR_API std::string_view name_of(TransportKind kind) noexcept;

// How it carries them.
enum class TransferPath : std::uint8_t {
  none,    // nothing was to be moved
  host,    // host memory at both ends, no copy of ours between
  bar,     // inside messages; CPUs load from and store to GPU memory through mappings (host memory: plain copies)
  p2p,     // one GPU's copy engine reaches the other memory, over NVLink or PCIe
  gdr,     // the NIC reads and writes GPU memory itself
  staged,  // through pinned host memory in chunks
};
GIGABAR_API std::string_view name_of(TransferPath path) noexcept;
GIGABAR_API std::optional<TransferPath> transfer_path_from_name(std::string_view name) noexcept;

enum class Preference : std::uint8_t {
  allow,    // as the limits and the distances say
  prefer,   // wherever it is possible
  require,  // an operation that would take another path is an error with the reason
  forbid
};

// What a fabric, or one operation, may do with GPU memory. At most one path can be required.
struct PathPolicy {
  Preference gdr = Preference::allow;
  Preference p2p = Preference::allow;
  Preference bar = Preference::allow;
  Preference staged = Preference::allow;
  bool operator==(const PathPolicy&) const = default;
};

enum class RailPolicy : std::uint8_t {
  first,        // the nearest rail carries everything
  round_robin,  // operations take turns
  fixed,        // rail (local rank modulo rails): with `rails` as the process-to-rail list
};
GIGABAR_API std::string_view name_of(RailPolicy policy) noexcept;

// Sizes at which one way ends and the next begins. Unset values: `gigabar tune`'s for this machine, else the defaults
// (docs/fabric.md tells where each comes from).
struct FabricLimits {
  std::optional<std::uint64_t> eager_bytes;     // messages and writes up to here travel inside one message
  std::optional<std::uint64_t> gdr_bytes;       // writes to GPU memory by the NIC up to here; staged above
  std::optional<std::uint64_t> gdr_read_bytes;  // reads from GPU memory by the NIC up to here
  std::optional<std::uint64_t> chunk_bytes;     // of the staged pipeline
  std::optional<unsigned> chunk_count;          // chunks under way per operation
  std::optional<std::uint64_t> kernel_bytes;  // p2p copies up to here may be made by a kernel that stays on the GPU for up to 2 ms
  std::optional<std::uint64_t> stripe_bytes;  // operations from here on use all rails at once
};

// --- Opening ---------------------------------------------------------------------------------------------------------------------

// Everything has a default; a variable of the environment stands in for a member that is not set (docs/fabric.md).
struct FabricOptions {
  // The job; unset: what the launcher says (PMIx, RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT as torchrun sets them, Slurm's srun; the
  // table in docs/fabric.md), else a job of one rank. Launchers that do not say where rank 0 is are refused.
  std::optional<Rank> rank;
  std::optional<Rank> rank_count;
  std::optional<std::string> master_address;  // host name or address of rank 0; IPv6 with or without brackets
  std::optional<std::uint16_t> master_port;
  std::optional<std::string> job_key;  // at least 16 bytes, the same at every rank; none: all ranks are of one host and user

  std::vector<TransportKind> transports;  // allowed ones, best first; empty: GIGABAR_TRANSPORTS, else local, verbs, ucx
  // UCX's networks know no key: whoever reaches its ports writes anywhere in this process. It is opened only where this says that
  // everybody who reaches them is trusted: on the job's network, or the users of the one host (GIGABAR_UCX_TRUST_NETWORK); default
  // false.
  std::optional<bool> ucx_trust_network;
  std::vector<std::string> rails;      // "mlx5_0", "mlx5_1/1"; empty: GIGABAR_RAILS, else by distance from `device`
  std::optional<unsigned> rail_count;  // most rails per peer; default 1
  std::optional<RailPolicy> rail_policy;
  std::optional<int> device;  // the GPU this rank works with; default: local rank modulo GPUs
  // Where the fabric's own threads run and its buffers lie, of what this process may use: "near" (default): the NUMA node of
  // `device`, without a GPU that of the nearest rail of verbs; "any"; or CPUs, "0-7,16", and their node.
  std::optional<std::string> cpus;
  PathPolicy policy;
  FabricLimits limits;
  std::optional<bool> stand_in_registration;  // false: NICs refuse stand-in memory, as without GPUDirect RDMA. For tests
  // Of RDMA connections. Service level: InfiniBand 0 to 15, RoCE 0 to 7 (Ethernet priority), none over iWARP.
  std::optional<int> gid_index, traffic_class, service_level;
  std::optional<bool> progress_thread;  // default true: peers' operations go on while this rank computes
  Timeout connect_timeout = Timeout::of(std::chrono::seconds(30));  // for a rank to appear and for a connection to stand
};

// A value in use and who set it: "option", "GIGABAR_GDR_LIMIT", "tuned, FILE", "default". A tuned one says in its name for which
// connections it is, "chunk (ucx, other hosts)"; the others have the value of "chunk".
struct Setting {
  std::string name, value, source;
};

// --- Operations ------------------------------------------------------------------------------------------------------------------

struct LocalPlace {
  SegmentId segment = 0;
  std::uint64_t offset_bytes = 0;
};
struct RemotePlace {
  Rank rank = 0;
  SegmentId segment = 0;
  std::uint64_t offset_bytes = 0;
};
// One element of a list: all of one list go to the same rank.
struct ListPiece {
  LocalPlace local;
  SegmentId remote_segment = 0;
  std::uint64_t remote_offset_bytes = 0;
  std::uint64_t bytes = 0;
};

struct PostOptions {
  QueueId queue = 0;
  std::optional<PathPolicy> policy;                          // instead of the fabric's
  std::optional<std::uint64_t> chunk_bytes = std::nullopt;   // of staged writes, at least 4096; at most the fabric's are taken
  std::optional<std::uint64_t> stripe_bytes = std::nullopt;  // instead of the fabric's: 0 always uses all rails
};

// Names a posted operation of this process; never reused.
enum class Operation : std::uint64_t {};

struct RailShare {
  std::string rail;
  std::uint64_t bytes = 0;
};

// What became of an operation.
struct OperationReport {
  bool is_done = false;  // local completion
  Status status = Status::ok;
  TransferPath path = TransferPath::none;
  std::optional<TransportKind> transport;
  std::vector<RailShare> rails;
  std::uint64_t bytes = 0;
  unsigned chunks = 0;           // pieces that it was cut into
  unsigned retries = 0;          // times that it was posted again after a full queue
  std::int64_t duration_ns = 0;  // from post to local completion
  std::string reason;            // why this path
};

// What would be done, and what else was considered.
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

// Ranks that act together. Made by the same call with the same ranks at each of them.
using Group = std::vector<Rank>;  // ascending, each once; empty: all ranks

struct PeerState {
  Rank rank = 0;
  bool is_connected = false;
  bool is_broken = false;
  bool is_same_host = false;
  std::string why;  // of a broken one
  std::optional<TransportKind> transport;
  std::vector<std::string> rails;
  std::uint64_t memory_bytes = 0;  // that this process holds for the connection: rings, receive buffers, staging
};

struct FabricStatistics {
  std::uint64_t refused_strangers = 0;  // connections without the job's key, or with other words than ours
  std::uint64_t operations = 0;
  std::uint64_t messages = 0;
  std::uint64_t staged_operations = 0;  // taken where another path was preferred but not possible
};

// Who uses an address of map_segment: kernels of this rank's GPU (CPU threads on a machine without one), or CPU threads.
enum class MappedFor : std::uint8_t { kernels, cpu };

// Threads: any number may call at once; operations of one queue, and collectives of one group, are for one thread at a time: a
// second one gets busy, naming the queue. A forked child cannot use its parent's fabric (foreign_process).
// Errors of every call: invalid_argument and out_of_range name the argument; foreign_process; unavailable after close(). A peer
// that died or broke its connection: peer_lost, for every operation with it, within the deadline; other peers are unaffected. An
// operation that failed later is told by `wait`, `flush` and its report.
class Fabric {
 public:
  // Joins the job. Connections are made at first use, so that this waits for no other rank than the one that keeps the job's
  // directory (rank 0, or PMIx). Errors: invalid_argument (an option, half a launcher's environment, or a launcher that is refused:
  // names the variable), unavailable (no transport at all: each with its reason; the address of rank 0 is unknown, at every rank),
  // timed_out (rank 0 never appeared), no_permission (another job key; this process may start no threads).
  GIGABAR_API static Result<Fabric> open(const FabricOptions& options);
  GIGABAR_API Fabric(Fabric&&) noexcept;
  GIGABAR_API Fabric& operator=(Fabric&&) noexcept;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  // Leaves at once: peers see this rank as lost if they still need it. With a DeviceSession open: when that ends.
  GIGABAR_API ~Fabric();
  // Leaves in order: completes what was posted, then tells the peers. Errors: timed_out (nothing was closed), busy (segments are
  // mapped, perhaps by a DeviceSession).
  GIGABAR_API Outcome close(Timeout timeout);

  GIGABAR_API Rank rank() const noexcept;
  GIGABAR_API Rank rank_count() const noexcept;
  GIGABAR_API Rank local_rank() const noexcept;       // among the ranks of this host
  GIGABAR_API int device() const noexcept;            // that this rank works with: a CUDA ordinal or a stand-in number
  GIGABAR_API std::vector<Setting> settings() const;  // everything in effect and who set it; never the key
  // The CPUs of the fabric's own threads, ascending; empty: they are not bound. For programs that place theirs beside them: the
  // fabric binds no thread of the program.
  GIGABAR_API std::vector<int> cpus() const;
  GIGABAR_API FabricStatistics statistics() const;
  GIGABAR_API std::vector<PeerState> peers() const;  // those it has or had a connection with
  // Makes the connection now. Errors: timed_out, peer_lost, unavailable (no transport reaches it: each with its reason).
  GIGABAR_API Outcome connect(Rank rank, Timeout timeout);
  // Forgets a lost peer, so that the next operation connects anew. Errors: busy when the connection stands.
  GIGABAR_API Outcome forget(Rank rank);

  // Registers [address, address + bytes) of host, device or stand-in memory, which must live until it is deregistered.
  // Errors: invalid_argument (null, zero bytes, id in use), out_of_range (id), out_of_memory, device_error.
  // Cost: enters the kernel; pins pages.
  GIGABAR_API Outcome register_segment(SegmentId id, void* address, std::size_t bytes);
  // After it returns no remote write or read can land in the segment until enable(segment): every peer that knows it was told and
  // has answered, or its connection was cut. A read by this rank into it is unavailable where the peer would answer with a write.
  // Errors: timed_out (a peer of this host neither answered nor ended: its copies may still land).
  GIGABAR_API Outcome quiesce(SegmentId id, Timeout timeout);
  GIGABAR_API Outcome enable(SegmentId id);
  // quiesce and forget. On timed_out the segment stays registered.
  GIGABAR_API Outcome deregister_segment(SegmentId id, Timeout timeout);
  // Asks the peer. Errors: timed_out, out_of_range (it has no such segment).
  GIGABAR_API Result<RemoteSegment> remote_segment(Rank rank, SegmentId id, Timeout timeout);
  // Where kernels of this rank's GPU (on a machine without one: CPU threads) reach a segment of a peer of this host, or of this
  // rank, by their own loads and stores: over NVLink or PCIe. The address holds until unmap_segment, also when the peer ends;
  // until then quiesce() and deregister_segment() of it wait at the peer. Mapping it again gives the same address, to be unmapped
  // as often. Errors: timed_out, peer_lost, out_of_range (it has no such segment), not_supported (says why: another host, no peer
  // access, memory that cannot be shared), device_error.
  // MappedFor::cpu: where threads of this process do, also in a GPU's memory, through its BAR: stores there gather in
  // write-combining buffers until a fence (_mm_sfence), loads take a trip over PCIe each.
  GIGABAR_API Result<void*> map_segment(Rank rank, SegmentId id, Timeout timeout, MappedFor who = MappedFor::kernels);
  // Whether system-scope atomics of this rank's kernels in a segment that is mapped for them, and those of its owner's kernels, are
  // atomic with each other: empty, or the reason why not (GPUs whose link has no native atomics: most pairs over PCIe). Loads and
  // stores are not concerned. Errors: invalid_argument (it is not mapped).
  GIGABAR_API Result<std::string> why_no_atomics(Rank rank, SegmentId id) const;
  // Nothing may use the address any more. Errors: invalid_argument (it is not mapped).
  GIGABAR_API Outcome unmap_segment(Rank rank, SegmentId id, MappedFor who = MappedFor::kernels);

  // Posts and returns. The first operation with a peer, or on a segment of its, connects and asks for it first, for at most
  // connect_timeout; connect() and remote_segment() do that beforehand. Zero bytes move nothing. Errors: busy (the queue holds
  // kQueueDepth operations: wait first), unavailable (no path: each with its reason; or the policy's required path is not
  // possible). Ordering: none between operations, except that a notification is raised after the data of its own operation and of
  // every earlier write of the same queue to the same rank is in place: for the CPU, for copies of the copy engine, for later
  // kernels.
  GIGABAR_API Result<Operation> write(LocalPlace local, RemotePlace remote, std::uint64_t bytes, const PostOptions& options = {});
  GIGABAR_API Result<Operation> read(LocalPlace local, RemotePlace remote, std::uint64_t bytes, const PostOptions& options = {});
  GIGABAR_API Result<Operation> write_list(Rank rank, std::span<const ListPiece> pieces, const PostOptions& options = {});
  GIGABAR_API Result<Operation> read_list(Rank rank, std::span<const ListPiece> pieces, const PostOptions& options = {});
  // The notification `id` of the remote segment gets `value` (not 0) after the data is in place.
  GIGABAR_API Result<Operation> write_notify(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                             std::uint32_t value, const PostOptions& options = {});
  GIGABAR_API Result<Operation> write_list_notify(Rank rank, std::span<const ListPiece> pieces, SegmentId segment,
                                                  NotificationId id, std::uint32_t value, const PostOptions& options = {});
  GIGABAR_API Result<Operation> notify(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                       const PostOptions& options = {});
  // As notify and write_notify, but adds `value` to what is there: many writers, one counter.
  GIGABAR_API Result<Operation> notify_add(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                           const PostOptions& options = {});
  GIGABAR_API Result<Operation> write_notify_add(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                                 std::uint32_t value, const PostOptions& options = {});

  // Copies up to kMostOrderedBytes at once; they are in place after the data of every earlier write of the same queue to the same
  // rank, and before those of later calls of this kind. 4 and 8 bytes at such an alignment are seen whole, and whoever sees them by
  // an acquire sees the data before: a notification in memory of the program's own. Its report names no path. Errors: as write;
  // out_of_range (too many bytes).
  GIGABAR_API Result<Operation> write_in_order(const void* source, RemotePlace remote, std::uint64_t bytes,
                                               const PostOptions& options = {});

  // Waits until one of `count` notifications from `first` on is not 0; the lowest such id. Errors: timed_out,
  // peer_lost (every other rank of the job is lost, which are named).
  GIGABAR_API Result<NotificationId> notification_wait(SegmentId segment, NotificationId first, std::uint32_t count,
                                                       Timeout timeout);
  // Waits until notification `id` is at least `value`, and takes `value` off it.
  GIGABAR_API Outcome notification_wait_count(SegmentId segment, NotificationId id, std::uint32_t value, Timeout timeout);
  // Sets it to 0 and gives what it was, in one step.
  GIGABAR_API Result<std::uint32_t> notification_reset(SegmentId segment, NotificationId id);

  // Local completion of everything posted to the queue: local memory may be used again. Errors: timed_out; the first failure of an
  // operation of the queue since the last wait, after all of them ended.
  GIGABAR_API Outcome wait(QueueId queue, Timeout timeout);
  // Moves everything on without waiting: for a program that looks at its own memory instead of waiting for a notification, between
  // looks. Any thread. Errors: foreign_process, unavailable (closed).
  GIGABAR_API Outcome progress();
  // Everything posted to `rank` before is in place there. Errors: as wait.
  GIGABAR_API Outcome flush(Rank rank, Timeout timeout);
  // The last 4096 operations are kept. Errors: out_of_range.
  GIGABAR_API Result<OperationReport> report(Operation operation) const;
  GIGABAR_API Result<Explanation> explain_write(LocalPlace local, RemotePlace remote, std::uint64_t bytes, Timeout timeout,
                                                const PostOptions& options = {});
  GIGABAR_API Result<Explanation> explain_read(LocalPlace local, RemotePlace remote, std::uint64_t bytes, Timeout timeout,
                                               const PostOptions& options = {});

  // On 8 aligned bytes of any segment, done by the target's CPU, atomic among all such calls of all ranks. The value before.
  // Errors: timed_out (it may or may not be done: the peer's answer did not come), invalid_argument (not a multiple of 8).
  GIGABAR_API Result<std::uint64_t> fetch_add(RemotePlace remote, std::uint64_t value, Timeout timeout);
  GIGABAR_API Result<std::uint64_t> compare_swap(RemotePlace remote, std::uint64_t expected, std::uint64_t desired,
                                                 Timeout timeout);

  // Messages between buffers that need not be registered, host or device memory. In order per pair of ranks and matching tag.
  // post_* return at once; the buffer is the operation's until wait_message. 0 bytes are a message.
  GIGABAR_API Result<Operation> post_send(Rank to, Tag tag, const void* source, std::uint64_t bytes,
                                          const PostOptions& options = {});
  // Takes the first message of `from` (or kAnyRank) whose tag equals `tag` in the bits of `mask`. A longer message than `bytes` is
  // an out_of_range error; the message is consumed, nothing beyond `bytes` is written.
  GIGABAR_API Result<Operation> post_recv(Rank from, Tag tag, Tag mask, void* destination, std::uint64_t bytes,
                                          const PostOptions& options = {});
  // Errors: timed_out (it goes on), what the operation failed with; peer_lost, of a receive from kAnyRank, when every other rank is
  // lost. An operation is waited for once.
  GIGABAR_API Result<Received> wait_message(Operation operation, Timeout timeout);
  // Takes back a receive that has not matched. Errors: busy (it is being filled or is done: wait for it).
  GIGABAR_API Outcome cancel_recv(Operation operation);
  // post and wait.
  GIGABAR_API Outcome send(Rank to, Tag tag, const void* source, std::uint64_t bytes, Timeout timeout,
                           const PostOptions& options = {});
  GIGABAR_API Result<Received> recv(Rank from, Tag tag, void* destination, std::uint64_t bytes, Timeout timeout,
                                    const PostOptions& options = {});

  // Collectives of a group of which this rank is one. On timed_out call again with the same arguments to go on; another collective
  // of the same group meanwhile: busy. When a member is lost: peer_lost at every other, naming it; the others may go on as a group
  // without it. When members call different ones: invalid_argument at every member.
  GIGABAR_API Outcome barrier(const Group& group, Timeout timeout);
  GIGABAR_API Outcome all_reduce(const Group& group, ReduceOperation operation, std::span<const std::int64_t> values,
                                 std::span<std::int64_t> results, Timeout timeout);
  GIGABAR_API Outcome all_reduce(const Group& group, ReduceOperation operation, std::span<const double> values,
                                 std::span<double> results, Timeout timeout);

 private:
  friend class DeviceSession;  // keeps the state for as long as its kernels may use what is mapped
  struct State;
  explicit Fabric(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace gigabar
