// SPDX-License-Identifier: Apache-2.0
// What GASPI's interface remembers of this process, above one Fabric; and what every file of it uses.
#pragma once

#include <cxxabi.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/fair_mutex.hpp"
#include "base/ranges.hpp"
#include "base/remaining.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"

#pragma GCC visibility push(default)
#include "PGASPI.h"
#pragma GCC visibility pop

// gaspi_NAME is what programs call, and tools replace; it is pgaspi_NAME, which is defined in the same file.
#define GASPI_NAMED(name) extern "C" __attribute__((weak, alias("p" #name))) decltype(name) name

namespace gigabar::gaspi {

inline constexpr unsigned kProgramQueues = kQueues - 1;
inline constexpr QueueId kInternalQueue = kQueues - 1;  // of notifications that this library itself raises
inline constexpr unsigned kSegments = 255;
inline constexpr SegmentId kControlSegment = 1000;  // of no program: gaspi_segment_id_t ends before
inline constexpr SegmentId kDeviceSegment = 1001;   // likewise, of the device side
inline constexpr unsigned kMaxGroups = 255;
inline constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxPassiveBytes = 65535;
inline constexpr unsigned kMaxListElements = 255;
inline constexpr unsigned kAllreduceBytes = kMaxReduceElements * sizeof(std::uint64_t);

Timeout timeout_of(gaspi_timeout_t timeout_ms) noexcept;
inline bool is_over(const Remaining& time) noexcept { return !time.left().is_forever() && time.left().ns() <= 0; }

// gaspi_segment_create or _use until every rank of the group is there.
struct Creation {
  std::uint64_t bytes = 0;
  gaspi_group_t group = 0;
  void* pointer = nullptr;  // of the program; null: allocated here
  bool operator==(const Creation&) const = default;
};

struct Segment {
  std::atomic<std::uint64_t> bytes{0};  // 0: there is none
  void* address = nullptr;
  std::variant<std::monostate, HostMemory, DeviceMemory> memory;  // none: the program's
  std::optional<Creation> creation;
  bool is_going = false;  // a thread waits for the other ranks to leave it; under the mutex

  void clear() {
    bytes = 0;
    address = nullptr;
    memory = {};
    creation.reset();
  }
};

struct Queue {
  FairMutex turn;
  std::atomic<bool> exists{false};
  std::atomic<unsigned> posted{0};  // since the last wait that succeeded
  std::optional<Error> failure;     // that raise_arrived() came upon, for the next wait; under the turn
};

// Contexts of collectives; 0 is that of the start and of the device session, which may wait while groups are committed. The ranks
// of a group agree on one that none of them has used when they commit it.
inline constexpr CollectiveContext kContextOfAll = 1, kContextOfCommits = 2, kFirstContext = 3;

// A collective as its arguments name it: only the same one goes on.
struct Collective {
  enum class Kind : std::uint8_t { barrier, commit, create, allreduce, allreduce_user } kind = Kind::barrier;
  gaspi_number_t number = 0;
  std::uint64_t operation = 0;  // the operation; of _user: the bytes of an element
  unsigned type = 0;
  bool operator==(const Collective&) const = default;
};

struct GroupState {
  bool exists = false, is_committed = false;
  std::vector<Rank> ranks;
  CollectiveContext context = kContextOfAll;
  FairMutex turn;
  std::optional<Collective> active;  // has timed out
  // gaspi_allreduce_user: the values of all ranks as far as they are gathered.
  std::vector<std::int64_t> gathered;
  std::size_t gathered_count = 0;
};

struct PeerKnown {
  std::array<std::atomic<bool>, kSegments> segments{};  // those whose size the fabric has
  std::atomic<bool> is_corrupt{false};
};

enum class Counter : std::uint8_t {
  writes,
  write_bytes,
  reads,
  read_bytes,
  notifications,
  waits,
  notification_waits,
  barriers,
  reductions,
  passive_sends,
  passive_receives,
  atomics,
  count
};

struct Control;     // control.cpp
struct DeviceSide;  // device.cpp

struct Process {
  // Of start and end, segments, groups and queues being made and removed. Only start and end wait for other ranks with it.
  std::mutex mutex;
  std::condition_variable has_left;  // a segment was going, and is not any more
  std::optional<Fabric> fabric;
  std::future<Result<Fabric>> joining;  // of gaspi_proc_init: goes on when the time of its call is over
  pid_t joining_process = 0;            // whose thread joins: a child has none
  std::int64_t longest_join_ns = 0;     // that a call has asked for
  std::atomic<bool> is_ready{false};
  gaspi_config_t config;
  Rank rank = 0, rank_count = 0;
  std::array<Segment, kSegments> segments;
  std::array<Queue, kProgramQueues> queues;
  std::vector<std::unique_ptr<GroupState>> groups;
  CollectiveContext next_context = kFirstContext;  // greater than that of any group of this rank
  std::vector<PeerKnown> peers;
  std::shared_ptr<Control> control;
  FairMutex device_turn;               // of who opens or closes the device side; taken before the mutex
  std::mutex device_mutex;             // taken last
  std::shared_ptr<DeviceSide> device;  // changed with both, looked at with either
  std::atomic<bool> has_device{false};
  std::array<bool, kSegments> is_of_device{};  // what it uses, also while it opens and closes; under the mutex
  std::optional<Rank> socket;                  // the rank among those of its host, as GASPI_SOCKET says

  Process();
};

Process& process();

// The whole text is a number.
inline std::optional<unsigned> number_of(const std::string& text) {
  unsigned number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

inline bool is_ready() { return process().is_ready.load(std::memory_order_acquire); }

// No exception leaves the library, and a thread that is cancelled inside a call ends after it.
template <class Body>
gaspi_return_t guarded(const Body& body) try {
  const Uncancelled uncancelled;
  return body();
} catch (const abi::__forced_unwind&) {
  throw;  // the operation of gaspi_allreduce_user has ended this thread
} catch (const std::bad_alloc&) {
  return GASPI_ERR_MEMALLOC;
} catch (...) {
  return GASPI_ERROR;
}

// The same of a call that is for a process that has joined. NOINIT.
template <class Body>
gaspi_return_t when_ready(const Body& body) {
  return guarded([&] { return is_ready() ? body() : GASPI_ERR_NOINIT; });
}

// The code for an error that names no argument of GASPI's. Marks a rank that was lost, and prints causes of GASPI_ERROR.
gaspi_return_t code_of(const Error& error, const char* function);
// Marks the ranks whose connections are broken.
void mark_lost_ranks();

// Whether the fabric can post to the rank's segment without waiting for a connection. Otherwise connects and asks for it.
// INV_SEG, TIMEOUT, ERROR.
gaspi_return_t ask_for_remote(Rank rank, SegmentId segment, const Timeout& timeout, const char* function);
inline gaspi_return_t know_remote(Rank rank, SegmentId segment, const Timeout& timeout, const char* function) {
  if (process().peers[rank].segments[segment].load(std::memory_order_relaxed)) return GASPI_SUCCESS;
  return guarded([&] { return ask_for_remote(rank, segment, timeout, function); });
}
void forget_remote(Rank rank);

// INV_SEG, INV_LOC_OFF.
inline gaspi_return_t check_local(SegmentId segment, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t length = segment < kSegments ? process().segments[segment].bytes.load(std::memory_order_relaxed) : 0;
  if (length == 0) return GASPI_ERR_INV_SEG;
  return fits(offset, bytes, length) ? GASPI_SUCCESS : GASPI_ERR_INV_LOC_OFF;
}
inline bool is_segment(SegmentId segment) { return check_local(segment, 0, 0) == GASPI_SUCCESS; }

// What a refused post was refused for: QUEUE_FULL, INV_SEG, INV_REM_OFF, or as code_of.
gaspi_return_t code_of_post(const Error& error, Rank rank, SegmentId segment, const char* function);

inline std::atomic<unsigned> statistic_level{0};
inline std::array<std::atomic<std::uint64_t>, std::size_t(Counter::count)> statistic_counters{};
inline void count(Counter counter, std::uint64_t number = 1) noexcept {
  if (statistic_level.load(std::memory_order_relaxed) == 0) return;
  statistic_counters[std::size_t(counter)].fetch_add(number, std::memory_order_relaxed);
}

// Room for `requests` more, the rank and its segment: then `post`, which returns a Result<Operation>. `posting`: what of it is
// counted; what was refused is not.
template <class Post>
gaspi_return_t post_to(const char* function, QueueId queue, Rank rank, SegmentId segment, unsigned requests, const Timeout& timeout,
                       std::initializer_list<std::pair<Counter, std::uint64_t>> posting, const Post& post) {
  Process& all = process();
  if (queue >= kProgramQueues || !all.queues[queue].exists.load(std::memory_order_relaxed)) return GASPI_ERR_INV_QUEUE;
  if (rank >= all.rank_count) return GASPI_ERR_INV_RANK;
  if (segment >= kSegments) return GASPI_ERR_INV_SEG;
  Queue& used = all.queues[queue];
  const auto turn = lock_within(used.turn, timeout);
  if (!turn) return GASPI_TIMEOUT;
  if (used.posted.load(std::memory_order_relaxed) + requests > all.config.queue_size_max) return GASPI_QUEUE_FULL;
  if (const gaspi_return_t known = know_remote(rank, segment, timeout, function); known != GASPI_SUCCESS) return known;
  const Result<Operation> posted = post();
  if (!posted) return guarded([&] { return code_of_post(posted.error(), rank, segment, function); });
  used.posted.fetch_add(requests, std::memory_order_relaxed);
  for (const auto& [counter, number] : posting) count(counter, number);
  return GASPI_SUCCESS;
}

// device.cpp. The device side where its kernels take the notifications of the segment; null: the CPU does. It may be closed, but is
// there for as long as this is held.
std::shared_ptr<DeviceSide> taker_in_kernels(SegmentId segment) noexcept;
// A notification to whoever takes those of the segment.
Result<Operation> notify_taker(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value, const PostOptions& options);
Result<Operation> write_notify_kernel(DeviceSide& device, const LocalPlace& local, const RemotePlace& remote, std::uint64_t bytes,
                                      NotificationId id, std::uint32_t value, const PostOptions& options);
// For a call that kernels alone may make, or none before gaspi_device_close: ERR_DEVICE.
gaspi_return_t refuse_taker(SegmentId segment, const char* function);
gaspi_return_t refuse_delete(SegmentId segment);                    // under the mutex; SUCCESS: the device side does not use it
void set_device(Process& all, std::shared_ptr<DeviceSide> device);  // under the device's turn
Result<void> close_device(Process& all, const Timeout& timeout);    // under the device's turn, not the mutex

// Sets notification `id` of a segment of this rank. Errors: as Fabric::notify.
Result<void> notify_self(SegmentId segment, NotificationId id, std::uint32_t value);

// A queue whose turn the caller has, and of which everything has ended.
struct EndedQueue {
  QueueId queue;
  bool has_failed;  // something of it
};
// notifications.cpp. Raises the notifications whose data has arrived. False: none is awaited.
bool raise_arrived(std::optional<EndedQueue> ended = std::nullopt);
// Notification `id` is raised when the reads, all that a call has posted, have ended well.
void await_reads(std::vector<Operation> operations, QueueId queue, SegmentId segment, NotificationId id);
void drop_awaited_reads(std::optional<SegmentId> segment = std::nullopt);

// collectives.cpp
gaspi_return_t group_barrier(gaspi_group_t group, const Collective& collective, const Timeout& timeout, const char* function);
GroupState* find_group(gaspi_group_t group);                          // committed or not; null: there is none
bool is_held(const GroupState& group, const Collective& collective);  // by another collective that has timed out; under the mutex

// control.cpp: what other ranks ask of this process.
Result<void> start_control(Process& all);
void stop_control(Process& all);

// Of functions that store one number.
template <class Number, class Value>
gaspi_return_t store(Number* place, const Value& value) {
  if (place == nullptr) return GASPI_ERR_NULLPTR;
  *place = static_cast<Number>(value);
  return GASPI_SUCCESS;
}

}  // namespace gigabar::gaspi
