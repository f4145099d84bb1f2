// SPDX-License-Identifier: Apache-2.0
// What the engine remembers: segments, operations, peers. Everything here belongs to one Engine and is touched under its lock.
// queue.hpp has the queues, which have locks of their own.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/cycles.hpp"
#include "base/errors.hpp"
#include "base/ranges.hpp"
#include "fabric/local_memory.hpp"
#include "fabric/notifications.hpp"
#include "fabric/queue.hpp"
#include "fabric/waiting.hpp"
#include "fabric/wire.hpp"
#include "gigabar/fabric.hpp"
#include "memory/copy_stream.hpp"
#include "transport/transport.hpp"

namespace gigabar::fabric {

struct Peer;
struct Op;

// --- How much an engine remembers, and how much of it peers can cause -----------------------------------------------------------

inline constexpr std::size_t kMaxMessages = 65536;  // posted and not waited for

// What a peer can make this rank remember. One that keeps to the protocol has no more under way; who goes beyond is lost with an
// error that says so.
inline constexpr std::size_t kMaxOutbox = std::size_t{1} << 20;       // answers that it does not take
inline constexpr std::size_t kMaxMarks = 65536;                       // of fences that did not come yet
inline constexpr std::size_t kMaxHeldBytes = std::size_t{256} << 20;  // behind marks and staged writes
inline constexpr std::size_t kMaxAheadBytes = kMaxHeldBytes / 4;      // the writer's: a quarter, answers come on top
inline constexpr std::size_t kMaxPosted = std::size_t{kQueues} * kQueueDepth;
// Reads. Twice what can be posted: who has heard that a read is over may ask for another before this rank has looked at the
// completion of its write.
inline constexpr std::size_t kMaxAnswers = 2 * kMaxPosted;
// Staged writes: of messages, of queues, and those that answer this rank's reads.
inline constexpr std::size_t kMaxStaged = kMaxMessages + kMaxPosted + kMaxAnswers;
inline constexpr std::size_t kMaxSaidBytes = 2000;  // of a reason that a peer gives
inline constexpr std::size_t kMaxParts = 16384;     // of collectives that this rank has not come to
// Decisions of which each has a text of its own, with reasons that peers give. What comes after has none.
inline constexpr std::size_t kMaxChoices = 4096;
inline constexpr std::size_t kRecords = 4096;  // for report(), of the operations posted last

// --- Segments, operations, peers ------------------------------------------------------------------------------------------------

inline constexpr std::size_t kMaxRails = 8;
// For a peer that is cut off: longer than its copies are waited for, by the engine and by a link.
inline constexpr std::chrono::seconds kLossTime{15};
static_assert(kQueues <= 16, "Peer::refusable_queues and Peer::target_queues have a bit for each");

// Segment numbers beyond the program's: buffers of messages, and each peer's staging memory.
inline constexpr SegmentId kFirstAnonymous = 0x4000;
inline constexpr SegmentId kEndAnonymous = 0x7000;
inline constexpr SegmentId kStagingSegment = 0x7fff;

struct LocalSegment {
  explicit LocalSegment(LocalMemory seen) : memory(std::move(seen)) {}

  std::shared_ptr<void> owner;  // of staging memory; goes after everything that points to it
  SegmentId id = 0;
  std::uint16_t epoch = 0;
  bool is_enabled = true;  // false: quiesced
  LocalMemory memory;
  std::array<std::unique_ptr<transport::Region>, kTransportKinds> regions;
  std::array<std::string, kTransportKinds> why_not;
  const transport::Region* region(TransportKind kind) const noexcept { return regions[static_cast<std::size_t>(kind)].get(); }
  std::unique_ptr<Notifications> notifications;  // of the program's segments only
  std::set<Rank> known_by;                       // who has a key and did not say `revoked`
  unsigned users = 0;                            // operations of this rank under way on it
  bool is_retiring = false;                      // goes as soon as nobody knows it and nobody uses it

  // Of a message's buffer: nobody but the senders of messages that go there now may name it. For each message once.
  void open_to(Rank rank) { ++open_to_[rank]; }
  void close_to(Rank rank) noexcept {
    const auto found = open_to_.find(rank);
    if (found != open_to_.end() && --found->second == 0) open_to_.erase(found);
  }
  bool is_open_to(Rank rank) const noexcept { return open_to_.contains(rank); }

 private:
  std::map<Rank, unsigned> open_to_;
};

// Whether a peer's message may go to those bytes of it.
inline bool is_usable(const LocalSegment* segment, const Message& message, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return segment != nullptr && segment->is_enabled && segment->epoch == message.epoch &&
         fits(offset, bytes, segment->memory.bytes());
}

struct Choice;

// A peer's segment as its key told.
struct RemoteState {
  enum class Know : std::uint8_t { asked, known, absent };
  Know know = Know::asked;
  SegmentId id = 0;
  std::uint16_t epoch = 0;
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::host_pageable;
  bool is_device = false;
  std::unique_ptr<transport::RemoteRegion> region;
  std::string why_not;                             // no region, or absent
  std::unique_ptr<transport::RemoteRegion> words;  // its notifications
  std::string why_no_words;
  // How notifications of each kind go: as a word, else in a message; and the sentence for reports.
  struct Way {
    bool is_word = false;
    const char* reason = nullptr;  // null: not asked yet
  };
  std::array<Way, 2> ways;
  Status absence = Status::out_of_range;
  unsigned users = 0;

  // Decisions that were made for it lately.
  struct Decision {
    const LocalSegment* local = nullptr;
    std::uint16_t local_epoch = 0;
    transport::Direction direction = transport::Direction::write;
    std::uint8_t size_class = 0;
    PathPolicy policy;
    const Choice* choice = nullptr;
    bool is_alone = false;  // goes in a message, and without one if nothing behind it needed one
  };
  std::array<Decision, 8> decisions{};
  unsigned next_decision = 0;
};

enum class Method : std::uint8_t {
  nothing,  // zero bytes
  message,  // inside messages
  store,    // by this rank's CPU into the peer's memory; where the link does not take it now: inside a message
  direct,   // the link's own write or read
  staged,
  get  // a read that the peer answers with a write of its own
};
// Whether the peer's CPU takes no part.
constexpr bool is_one_sided(Method method) noexcept { return method == Method::store || method == Method::direct; }

// A decision with its reason; kept until the fabric closes, so that reports can point to it.
struct Choice : Explanation {
  Method method = Method::nothing;

  bool operator<(const Choice& other) const {
    const auto key = [](const Choice& choice) {
      return std::tie(choice.method, choice.path, choice.transport, choice.chunk_bytes, choice.reason);
    };
    if (key(*this) != key(other)) return key(*this) < key(other);
    return std::ranges::lexicographical_compare(alternatives, other.alternatives, [](const auto& left, const auto& right) {
      return std::tie(left.name, left.why_not) < std::tie(right.name, right.why_not);
    });
  }
};

enum class OpKind : std::uint8_t { write, read, notify, place, ping, eager, rendezvous, receive };

// A copy from or to staging memory.
struct StagingCopy {
  CopyStream* stream = nullptr;  // null: there is none
  std::uint64_t ticket = 0;
};

// One chunk of this rank's staging memory on its way out.
struct OutSlot {
  Op* op = nullptr;                           // null: free
  const transport::Region* source = nullptr;  // staging_out's, or the operation's own where the link reaches from there
  std::uint64_t local_offset = 0;             // in it
  std::uint64_t target_offset = 0;            // granted, in the peer's staging region
  std::uint64_t segment_offset = 0;           // where the bytes go in the end
  std::uint32_t bytes = 0;
  StagingCopy copy;         // that fills it
  bool is_written = false;  // to the link
};

inline constexpr std::uint64_t kNotGiven = ~std::uint64_t{0};

// What stays of an operation for report().
struct Record {
  std::uint64_t id = 0;
  Status status = Status::ok;
  const Choice* choice = nullptr;
  std::uint64_t bytes = 0;
  unsigned chunks = 0, retries = 0;
  std::uint64_t cycles = 0;   // from its post to its end
  const char* way = nullptr;  // of its notification
  Rank rank = 0;
  std::array<std::uint64_t, kMaxRails> rail_bytes{};
};

// One that is under way; its status, cycles and rank are known at its end.
struct Op : Record {
  OpKind kind = OpKind::write;
  QueueId queue = 0;
  bool is_internal = false;  // not the program's: counts in no queue
  Peer* peer = nullptr;
  LocalSegment* local = nullptr;
  std::uint64_t local_offset = 0;
  RemoteState* remote = nullptr;
  SegmentId remote_id = 0;
  std::uint64_t remote_offset = 0;
  std::uint8_t flags = 0;
  NotificationId notification = 0;
  std::uint32_t value = 0;
  PathPolicy policy;
  std::uint64_t chunk_bytes = kNotGiven;   // staged: at most so many at once
  std::uint64_t stripe_bytes = kNotGiven;  // else the limits of the peer
  // progress
  std::uint64_t next = 0;           // bytes whose pieces were posted
  std::uint32_t outstanding = 0;    // pieces without done()
  bool is_posted = false;           // nothing is left to post
  bool is_straight = false;         // staged: from the source to the peer's staging memory without a copy between
  bool could_be_word = false;       // its notification, if nothing before it had taken a message
  bool is_placed_by_link = false;   // staged: from this rank's staging memory to its place
  std::uint64_t staged_number = 0;  // by which the peer was told of it; 0: not staged, or not yet
  bool is_notified = false;         // the notification was said
  std::uint8_t rail = 0;            // that carries the next piece
  std::uint64_t staged_sent = 0;    // bytes whose chunks were announced
  std::vector<std::pair<std::uint64_t, std::uint32_t>> grants;  // offsets in the peer's staging region
  // messages
  Tag tag = 0, mask = 0;
  Rank from = kAnyRank;
  void* buffer = nullptr;  // of a receive to write, else to read
  std::shared_ptr<const LocalMemory> memory;
  std::uint64_t capacity = 0;
  Received received;
  bool is_matched = false, is_over = false;               // over: wait_message may take it
  bool has_opened_buffer = false;                         // `local`, to the peer whose message goes there
  std::list<Op*>::iterator receive_place;                 // of a receive that is not matched: among those that wait for a message
  std::array<std::byte, kMaxOrderedBytes> ordered_bytes;  // place
  // what is said to the peer after the data: get_done
  std::optional<Message> finish;
  bool is_answer = false;  // to a peer's read
  std::optional<Error> error;
  std::uint64_t begin_cycles = 0;

  // The first one stays.
  void fail(Error reason) {
    if (!error) error = std::move(reason);
  }
  // As one of its users; null: of none.
  void use(LocalSegment* segment, std::uint64_t offset) noexcept {
    if (segment == nullptr) return;
    local = segment;
    local_offset = offset;
    ++segment->users;
  }
};

// A staged write of a peer into this rank's memory.
struct IncomingStaged {
  std::uint64_t sequence = 0;
  LocalSegment* segment = nullptr;
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t granted = 0;
  std::uint64_t arrived = 0;  // in staging memory, with those that are placed
  std::uint64_t placed = 0;
  std::uint32_t chunk_bytes = 0;
};

// A chunk that is being copied from staging memory to its place.
struct InCopy {
  Peer* peer = nullptr;
  std::uint64_t op = 0;
  std::uint64_t slot_offset = 0;
  std::uint32_t bytes = 0;
  StagingCopy copy;
};

// A message of a peer that nobody asked for yet, or its request.
struct Unexpected {
  Peer* peer = nullptr;
  std::uint32_t generation = 0;  // the peer's: one that was lost and forgotten meanwhile began anew with nothing
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::string data;                      // of an eager one
  std::optional<std::uint64_t> request;  // the sender's operation
};

struct Rail {
  std::unique_ptr<transport::Link> link;
  std::uint32_t number = 0;  // of the offer
  bool is_dirty = false;     // written to since its last mark
  bool is_answered = false;  // by the other side, to which it was offered
};

struct HeldMessage {
  Message message;
  std::string payload;
  std::size_t bytes() const noexcept { return sizeof *this + payload.size(); }
};

struct Peer {
  enum class State : std::uint8_t { idle, finding, connecting, greeting, linking, ready, lost };

  Rank rank = 0;
  std::uint32_t generation = 0;  // how often forget() has made it anew
  State state = State::idle;
  bool is_self = false;
  std::optional<Error> why;  // lost
  std::string rank_address;  // of the whole rank
  transport::Peer identity;
  std::int64_t deadline_ns = 0;  // while connecting
  Silence silence;               // of receives from it
  bool has_greeted = false;
  std::uint64_t peer_eager_bytes = 0;

  // links
  std::size_t candidate = 0;  // index into the engine's transports
  std::string reasons;        // why earlier candidates do not do
  transport::Transport* transport = nullptr;
  std::vector<Rail> rails;
  std::uint8_t offered_rails = 0;             // by the peer, of this candidate; 0: this rank offers
  std::unique_ptr<transport::Link> self_end;  // the other end of a link with oneself
  struct FailedCandidate {
    std::int64_t at_ns;
    Error error;
  };
  std::optional<FailedCandidate> failed_candidate;  // whose link broke before it stood, or until when it has to stand

  std::map<SegmentId, std::unique_ptr<RemoteState>> segments;
  RemoteState* recent_segment = nullptr;              // of them, whose key is known; found again without a search
  std::vector<std::unique_ptr<RemoteState>> revoked;  // the peer asked for them: no new operation; gone and answered without users

  // outgoing
  std::deque<Op*> pending;  // to be started, in order
  std::deque<HeldMessage> outbox;
  std::unordered_map<std::uint64_t, Op*> by_id;  // the peer may name them
  unsigned op_count = 0;                         // of the program's operations that are not over
  std::uint64_t staged_opened = 0;
  std::uint64_t fence_number = 0;
  unsigned fence_marks = 0;  // marks that were posted for the fence to come
  std::uint8_t next_rail = 0;
  std::uint64_t eager_in_flight = 0;
  std::unique_ptr<LocalSegment> staging_out;
  std::vector<OutSlot> out_slots;
  std::uint16_t refusable_queues = 0;  // bits of the queues whose writes may still be refused
  std::uint64_t said_bytes = 0;        // on the first rail: the peer may have to hold them
  std::uint64_t placed_bytes = 0;      // of them, by its own word
  std::uint64_t window_bytes = 0;      // of them, before the ping of the window that is under way
  bool has_window_ping = false;        // one is under way
  std::uint64_t ping_sent = 0, pong_seen = 0;
  // Messages with data, notifications or fences, which the peer's engine has to carry out: said, before the last ping of either
  // kind, and those that it has told are done. No word goes while some are not.
  std::uint64_t data_said = 0, flushed_data = 0, window_data = 0, data_placed = 0;
  std::uint64_t silent_words = 0;  // written since the peer was woken
  bool wants_wake = false;         // the peer sleeps: wake it behind the next word
  bool is_asked_to_wake = false;   // this rank does
  bool is_ping_last = false;       // nothing was posted to it since the last ping

  // incoming
  std::map<std::uint64_t, IncomingStaged> incoming;  // by the peer's operation
  std::uint64_t staged_seen = 0;                     // sequence of the last stage_open
  std::set<std::uint64_t> staged_under_way;
  std::deque<HeldMessage> held;     // wait for staged writes
  std::deque<HeldMessage> stalled;  // wait for marks of other rails
  std::size_t held_bytes = 0;       // of both
  std::uint64_t stalled_fence = 0;
  unsigned stalled_marks = 0;  // that are missing
  std::map<std::uint64_t, unsigned> marks;
  std::unique_ptr<LocalSegment> staging_in;
  std::vector<bool> in_slots;          // taken
  std::uint64_t eager_taken = 0;       // not told yet
  std::uint64_t unexpected_bytes = 0;  // what eager ones cost of the window
  std::size_t unexpected_request_count = 0;
  std::size_t answer_count = 0;           // reads of the peer that are being answered
  std::size_t collective_part_count = 0;  // of collectives that this rank has not come to; also of a peer that is lost

  std::uint16_t target_queues = 0;  // bits of the queues that may have targets of it

  bool is_listed = false;     // among the engine's busy peers
  bool is_starved = false;    // it is to be lost for want of memory
  bool is_half_lost = false;  // and was not to the end: for want of memory, or until copies on the memory of its operations end
  bool is_cut_off = false;    // of a half-lost one: it has no links, no announced messages and no keys any more
  std::int64_t settle_until_ns = 0;  // then those from and to staging memory are given up
};

// Whom a call waits for: another thread may forget that peer meanwhile, and connect anew.
class AwaitedPeer {
 public:
  explicit AwaitedPeer(const Peer& peer) noexcept : peer_(peer), generation_(peer.generation) {}
  bool is_lost() const noexcept { return peer_.state == Peer::State::lost || is_forgotten(); }
  bool is_forgotten() const noexcept { return peer_.generation != generation_; }
  // Only where it is. `operation`: of the caller, for the error.
  Error why(const char* operation) const {
    if (peer_.generation == generation_) return *peer_.why;
    return make_error(Status::peer_lost, operation, text("rank ", peer_.rank),
                      "it was lost, and another thread has forgotten it meanwhile", "connect to it anew");
  }

 private:
  const Peer& peer_;
  const std::uint32_t generation_;
};

struct MappedPlace {
  Rank rank;
  SegmentId id;
  MappedFor who;
  auto operator<=>(const MappedPlace&) const = default;
};

// A segment that the program's kernels or threads reach by themselves; outlives the connection.
struct MappedSegment {
  transport::MappedRegion region;
  LocalSegment* own = nullptr;    // of this rank
  RemoteState* remote = nullptr;  // of a peer that is not lost
  unsigned count = 0;
};

// A collective that a group has begun.
struct Collective {
  enum class Kind : std::uint8_t { barrier = 1, integers, reals };
  Kind kind = Kind::barrier;
  ReduceOperation operation = ReduceOperation::sum;
  std::uint64_t sequence = 0;
  unsigned round = 0;
  bool is_entered = false;  // a thread is at it
  bool has_said = false;    // this rank's part was said
  bool is_under_way = false;
  Silence silence;
  std::string values;  // what this rank sends up, then the result
};

// An atomic as its arguments name it: after a time-out only an equal call goes on with it.
struct AtomicRequest {
  AtomicKind kind = AtomicKind::fetch_add;
  RemotePlace remote;
  std::uint64_t value = 0, expected = 0;

  bool operator==(const AtomicRequest& other) const noexcept {
    return kind == other.kind && remote.rank == other.remote.rank && remote.segment == other.remote.segment &&
           remote.offset_bytes == other.remote.offset_bytes && value == other.value && expected == other.expected;
  }
};

struct CollectivePart {
  std::uint64_t group, sequence;
  std::uint32_t round;
  Rank from;
  auto operator<=>(const CollectivePart&) const = default;
};

struct AtomicAnswer {
  AtomicRequest asked;
  bool is_left = false;  // by a call that has timed out
  bool is_done = false;
  std::uint64_t old = 0;
  Status status = Status::ok;
};

// "segment 3", "staging memory", "message buffer 70000": for messages.
std::string segment_text(SegmentId id);
inline std::string rank_text(Rank rank) { return text("rank ", rank); }

}  // namespace gigabar::fabric
