// SPDX-License-Identifier: Apache-2.0
// What kernels are given: the handle DeviceFabric, and what it points to. A DeviceSession fills it (gigabar/device_session.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/memory.hpp"
#include "gigabar/device/queue.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/device/sharing.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0::device {

// 16 bytes, written by one store and read by one load.
struct alignas(16) Notification {
  std::uint64_t payload = 0;
  std::uint32_t unused = 0;
  std::uint32_t value = 0;  // 0: not raised
};

// A rank's segment, as kernels of this GPU access it.
struct DeviceSegment {
  std::byte* address = nullptr;           // null: not load/store accessible
  Notification* notifications = nullptr;  // the rank's notifications of this segment; null likewise, and where CPUs take them
  std::uint64_t bytes = 0;                // 0: the rank has no such segment
  // For work requests: the rank's segment, its notifications, and the key of this rank's own segment.
  Remote remote;
  Remote remote_notifications;
  std::uint32_t local_key = 0;
  bool has_atomics = false;    // direct atomics of this GPU and of the rank's GPU are atomic with each other
  bool notifies_cpus = false;  // its notifications are words that CPUs take: kernels raise them by a queue
};

// Up to kResultWords - 1 atomics of a queue are in flight at once; adapters take 16.
inline constexpr std::uint32_t kResultWords = 64;

// A queue to one rank, and the memory that its operations need.
struct PeerQueue {
  Queue queue;
  Local results;         // kResultWords words of 8 bytes; the first one takes results that nobody reads
  Remote barrier_words;  // of that rank
  Remote flush_word;     // of that rank; nobody else changes it
  // One bit for each word that an atomic in flight uses; for each word of an atomic that nobody waits for any more; and the ticket
  // behind the latter.
  alignas(128) std::uint64_t held_results = 1;
  std::uint64_t abandoned_results = 0;
  std::uint64_t abandoned_until = 0;
};

// Used by kernels of this GPU only, one at a time.
struct KernelWords {
  std::uint64_t barrier_count = 0;  // completed barriers
  std::uint32_t barrier_step = 0;   // of the current barrier: 1 after the flush, r + 2 after the store of round r
};

// --- Rings of messages (message.hpp) ---------------------------------------------------------------------------------------------

struct alignas(16) MessageLine {
  std::uint64_t halves[2] = {};
};

// How far one end of a ring is.
struct RingState {
  std::uint64_t position = 0;       // lines sent or received since the ring was made
  std::uint64_t credit = 0;         // of these, the lines known to be emptied, or told to the sender
  std::uint64_t message_bytes = 0;  // of a message whose first pieces are sent
  std::uint64_t done_bytes = 0;     // of these
};

// One end of a ring; one scope at a time has it open.
struct RingEnd {
  MessageLine* lines = nullptr;           // in the receiver's memory; null: not load/store accessible
  std::uint64_t* credit = nullptr;        // in the sender's memory: lines that the receiver has emptied
  const std::uint32_t* status = nullptr;  // the other end's, a Status
  std::uint32_t line_count = 0;           // a power of two, at least kMinRingLines
  alignas(128) RingState state;           // while nobody has the end open
};
inline constexpr std::uint32_t kMinRingLines = 4;

// To one rank, and from it.
struct PeerRing {
  RingEnd send, recv;
};

inline constexpr std::uint32_t kBlockGroups = 16;   // of a session
inline constexpr std::uint32_t kCounterCount = 64;  // of each pair of ranks, in each direction

// Another number with each change of what a DeviceFabric holds or points to.
inline constexpr std::uint32_t kHandleVersion = 1;

struct DeviceFabric {
  std::uint32_t version = 0;  // kHandleVersion of the library that filled it; always the first member
  Rank rank = 0;
  Rank rank_count = 0;
  std::uint32_t segment_count = 0;                // ids below it
  std::uint32_t notification_count = 0;           // of each segment
  std::uint32_t queue_count = 0;                  // to each rank that has queues
  const DeviceSegment* segments = nullptr;        // [rank * segment_count + id]
  std::uint64_t* const* barrier_words = nullptr;  // [rank]: that rank's, one per round; null: not load/store accessible
  PeerQueue* const* queues = nullptr;             // [rank]: its queue_count queues; null: it has none
  const std::uint32_t* peer_status = nullptr;     // [rank]: a Status; [rank_count]: how many ranks are lost. The host writes them.
  KernelWords* words = nullptr;
  std::uint32_t ring_count = 0;  // to and from each rank
  PeerRing* rings = nullptr;     // [rank * ring_count + ring]
  // Calls of write_count: from each rank, [rank * kCounterCount + counter], their number in the high half; and at each rank,
  // [rank]: kCounterCount of them, from this rank; null: not load/store accessible, or not by atomics.
  const std::uint64_t* counters = nullptr;
  std::uint64_t* const* remote_counters = nullptr;
  BlockGroup* block_groups = nullptr;  // [kBlockGroups]
};

// The queue of an operation, where there is one; how long the operation may wait for a free slot; and which threads of this kernel
// use that queue, to any rank. Sharing::exclusive: this scope alone; Sharing::block: this block. Both save one or two microseconds
// of a GPU's atomics. wait(), flush() and barrier() use all queues as Sharing::device: with a smaller sharing only this scope, or
// this block, may call them.
struct Post {
  QueueId queue = 0;
  Timeout timeout{10'000'000'000};
  Sharing sharing = Sharing::device;
};

enum class Order : std::uint8_t { after_writes, none };

namespace detail {

GIGABAR_DEVICE Status status_at(const std::uint32_t* peer) { return static_cast<Status>(load_relaxed(peer)); }

}  // namespace detail

// Returns ok, or not_supported: this kernel was built with the headers of another version than the library that filled the handle.
// open_blocks(), open_ring() and Channel::open() ask it; a kernel that opens nothing asks it once, before anything else.
GIGABAR_DEVICE Status check_version(const DeviceFabric& fabric) {
  return fabric.version == kHandleVersion ? Status::ok : Status::not_supported;
}

// Opens `blocks`, this block's part of a scope of `count` blocks that meet in group `number`. Groups are for kernels of this GPU,
// and one scope at a time uses a group. `timeout`: how long a block waits for the others. Errors: out_of_range (no such group),
// invalid_argument, unavailable (as BasicBlocks::open), not_supported (check_version).
template <class Own>
GIGABAR_DEVICE Status open_blocks(const DeviceFabric& fabric, std::uint32_t number, std::uint32_t count, std::uint32_t index,
                                  BasicBlocks<Own>& blocks, Timeout timeout = {10'000'000'000}) {
  if (check_version(fabric) != Status::ok) return Status::not_supported;
  if (number >= kBlockGroups) return Status::out_of_range;
  return blocks.open(fabric.block_groups[number], count, index, timeout);
}

// Returns ok, or peer_lost after the host has detected that the rank ended or broke its connection.
GIGABAR_DEVICE Status peer_status(const DeviceFabric& fabric, Rank rank) { return detail::status_at(fabric.peer_status + rank); }

}  // namespace gigabar::inline v0::device
