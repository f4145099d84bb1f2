// SPDX-License-Identifier: Apache-2.0
// The units of a kernel: how many scopes of which kind it has, what each is told, does and reports; and what they share: the clock
// of samples, and data of which every word follows from its sender, round, slot and place.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/device/fabric.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool::device_ranks {

enum class ScopeKind : std::uint8_t { thread, warp, block, blocks };  // blocks: all of the kernel as one

// Units are the scopes of a kernel, numbered over all blocks; each speaks with the partner's unit of the same number.
struct Grid {
  ScopeKind scope = ScopeKind::thread;
  std::uint32_t block_count = 1;
  std::uint32_t threads_per_block = 1;
  std::uint32_t threads_per_unit = 1;  // divides threads_per_block; of a unit of several blocks: those of each

  constexpr std::uint32_t units_per_block() const noexcept { return threads_per_block / threads_per_unit; }
  constexpr std::uint32_t unit_count() const noexcept { return scope == ScopeKind::blocks ? 1 : block_count * units_per_block(); }
};

inline constexpr std::uint32_t kWarpThreads = 32;
inline constexpr std::uint32_t kMaxBlockThreads = 512;  // more would halve the registers of each
// CPU threads that play a warp or a block: enough for lanes to share their work, few enough for small machines.
inline constexpr std::uint32_t kMaxCpuLanes = 2;
inline constexpr std::uint32_t kMaxCpuThreads = 256;  // of one kernel

inline constexpr SegmentId kDataSegment = 0;  // memory and notifications of both ranks

// What every kernel between two ranks is told. Plain, as all that is derived from it: kernels get it by value.
struct PairPlan {
  device::DeviceFabric fabric;
  Rank partner = 0;
  std::uint64_t timeout_ns = 0;  // of one wait, and of all that one kernel does
};

// Where words stand: of which round and message, and how far in it.
struct WordPlace {
  std::uint32_t round = 0;
  std::uint32_t message = 0;
  std::uint64_t offset_bytes = 0;  // of the message
};

// What one unit of a kernel reports. Plain: it lies in device memory, the host reads it after the kernel's end.
struct UnitEnd {
  Status status = Status::ok;
  std::uint32_t rounds_done = 0;
  std::uint64_t elapsed_ns = 0;     // device::now_ns() around all rounds
  std::uint64_t timed_from_ns = 0;  // the same clock, when the first round that is timed began
  std::uint64_t elapsed_ticks = 0;  // the clock of the samples, over the same time
  std::uint64_t wrong_count = 0;    // words of data, or notifications, that were not as sent
  WordPlace wrong_place;            // of the first: also the following
  std::uint64_t wrong_expected = 0;
  std::uint64_t wrong_found = 0;
  std::uint64_t next_piece = 0;  // of the first unit: what the next of all units takes, where they share the bytes
};

// Whether all blocks of a kernel may be one such unit, or play such a body. Only those that say so, because each kernel takes nvcc
// long.
template <class T>
concept TakesBlocks = requires { requires T::kTakesBlocks; };

// A kernel of units that report.
// Unit<Scope>{scope, plan, index, end}.run(samples): [plan.sample_count()] samples, and an end that is zeroed.
template <template <class> class Unit, class Plan>
struct UnitBody {
  Plan plan;
  std::uint64_t* samples = nullptr;  // of all units
  UnitEnd* ends = nullptr;           // [unit_count]

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit) const {
    Unit<Scope>{scope, plan, unit, ends + unit}.run(samples + std::uint64_t{unit} * plan.sample_count());
  }

  static constexpr bool kTakesBlocks = TakesBlocks<Unit<device::Thread>>;
  // By each of `count` blocks: the one unit that they are.
  template <class Own>
  GIGABAR_DEVICE void run_block(const Own& own, std::uint32_t count, std::uint32_t index) const {
    device::BasicBlocks<Own> blocks(own);
    const Status opened = open_blocks(plan.fabric, 0, count, index, blocks, {plan.timeout_ns});
    if (opened == Status::ok) {
      (*this)(blocks, 0);
    } else if (blocks.rank() == 0) {
      ends->status = opened;
    }
  }
};

// --- What units share -----------------------------------------------------------------------------------------------------------

// Ticks of the calling processor: cycles of a GPU's multiprocessor, where %globaltimer would move in steps of 32 ns to 1 us;
// nanoseconds on a CPU.
GIGABAR_DEVICE std::uint64_t ticks() {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(clock64());
#else
  return device::now_ns();
#endif
}

// Relates ticks and nanoseconds over a whole run. It lasts at least so long that a step of %globaltimer is 0.1 % of it.
class RunClock {
 public:
  GIGABAR_DEVICE RunClock() : begin_ns_(device::now_ns()), begin_ticks_(ticks()) {}
  GIGABAR_DEVICE std::uint64_t elapsed_ns() const { return device::now_ns() - begin_ns_; }
  // How a unit has ended and, of the side that takes the time, how long it took.
  template <class Scope>
  GIGABAR_DEVICE void report(const Scope& scope, bool takes_time, Status status, std::uint32_t rounds_done, UnitEnd* end) const {
    if (scope.rank() != 0) return;
    end->status = status;
    end->rounds_done = rounds_done;
    if (!takes_time) return;
    constexpr std::uint64_t kMinNs = 1'000'000;
    do {
      end->elapsed_ns = elapsed_ns();
      end->elapsed_ticks = ticks() - begin_ticks_;
    } while (end->elapsed_ns < kMinNs);
  }

 private:
  std::uint64_t begin_ns_;
  std::uint64_t begin_ticks_;
};

// How far a unit is.
struct Done {
  Status status = Status::ok;
  std::uint32_t rounds = 0;
};

// Whether a run has taken longer than it may, by the clock of the scope's first thread; `status` then says so.
template <class Scope>
GIGABAR_DEVICE bool is_over(const Scope& scope, const RunClock& clock, std::uint64_t most_ns, Status& status) {
  const bool is_late = scope.broadcast(static_cast<std::uint32_t>(clock.elapsed_ns() > most_ns)) != 0;
  if (is_late) status = Status::timed_out;
  return is_late;
}

inline constexpr std::uint64_t kOdd64 = 0x9e3779b97f4a7c15U;  // odd: neighbouring numbers become distant ones

GIGABAR_DEVICE std::uint32_t data_word(Rank sender, std::uint32_t round, std::uint32_t slot, std::uint64_t index) {
  const std::uint64_t name = ((std::uint64_t{round} << 32) ^ (std::uint64_t{slot} << 4) ^ sender) + index * 0xd6e8feb86659fd93U;
  const std::uint64_t spread = (name ^ (name >> 29)) * kOdd64;
  return static_cast<std::uint32_t>(spread >> 32);
}

// Those that `sender` sends, from `place` on. `flip`: bits that differ.
template <class Scope>
GIGABAR_DEVICE void fill_words(const Scope& scope, std::uint32_t* words, std::uint64_t bytes, Rank sender, const WordPlace& place,
                               std::uint32_t flip = 0) {
  const std::uint64_t first = place.offset_bytes / 4;
  for (std::uint64_t i = scope.rank(); i < bytes / 4; i += scope.size()) {
    words[i] = data_word(sender, place.round, place.message, first + i) ^ flip;
  }
}

// Of several threads the first to count describes.
GIGABAR_DEVICE void report_wrong(UnitEnd* end, const WordPlace& place, std::uint64_t expected, std::uint64_t found) {
  if (device::fetch_add_device(&end->wrong_count, 1) != 0) return;
  end->wrong_place = place;
  end->wrong_expected = expected;
  end->wrong_found = found;
}

// Words that `sender` wrote in `place.round`, from `place` on. `flip` falsifies the middle one before it is looked at.
template <class Scope>
GIGABAR_DEVICE void check_words(const Scope& scope, const std::uint32_t* words, std::uint64_t bytes, Rank sender, WordPlace place,
                                std::uint32_t flip, UnitEnd* end) {
  const std::uint64_t count = bytes / 4;
  const std::uint64_t begin = place.offset_bytes;
  for (std::uint64_t i = scope.rank(); i < count; i += scope.size()) {
    const std::uint32_t found = device::load_relaxed(words + i) ^ (i == count / 2 ? flip : 0);
    const std::uint32_t right = data_word(sender, place.round, place.message, begin / 4 + i);
    place.offset_bytes = begin + i * 4;
    if (found != right) report_wrong(end, place, right, found);
  }
}

// What every unit does beside its rounds. The first error is what the unit ends with, and after it no call does anything.
template <class Scope>
class UnitWords {
 public:
  GIGABAR_DEVICE UnitWords(const Scope& scope, const PairPlan& plan, UnitEnd* end) : scope_(scope), plan_(plan), end_(end) {}

  GIGABAR_DEVICE bool is_ok() const { return status_ == Status::ok; }
  GIGABAR_DEVICE Status status() const { return status_; }
  GIGABAR_DEVICE device::Timeout timeout() const { return {plan_.timeout_ns}; }
  GIGABAR_DEVICE void note(Status status) {
    if (status_ == Status::ok) status_ = status;
  }

  // Whether the run has ended, by an error or by its time.
  GIGABAR_DEVICE bool is_over(const RunClock& clock) {
    if (scope_.broadcast(static_cast<std::uint32_t>(clock.elapsed_ns() > plan_.timeout_ns)) != 0) note(Status::timed_out);
    return !is_ok();
  }

  // Waits for the partner's notification and takes it down. It has another value than `expected`: wrong, at `place`.
  GIGABAR_DEVICE void take(NotificationId id, std::uint32_t expected, const WordPlace& place) {
    if (!is_ok()) return;
    NotificationId found = 0;
    std::uint32_t value = 0;
    note(device::notification_wait(scope_, plan_.fabric, kDataSegment, id, 1, timeout(), found, plan_.partner));
    if (!is_ok()) return;
    note(device::notification_reset(scope_, plan_.fabric, kDataSegment, found, value));
    expect(place, expected, value);
  }

  GIGABAR_DEVICE void expect(const WordPlace& place, std::uint64_t expected, std::uint64_t found) {
    if (is_ok() && scope_.rank() == 0 && expected != found) report_wrong(end_, place, expected, found);
  }

  // This rank's own bytes, for loads and stores of the unit.
  template <class T>
  GIGABAR_DEVICE T* at(std::uint64_t offset, std::uint64_t bytes) const {
    return reinterpret_cast<T*>(device::detail::find_bytes(plan_.fabric, plan_.fabric.rank, kDataSegment, offset, bytes).address);
  }

 private:
  const Scope& scope_;
  const PairPlan& plan_;
  UnitEnd* const end_;
  Status status_ = Status::ok;
};

// --- What kernels are told: device-latency, device-bw, device-rate --------------------------------------------------------------

enum class Measure : std::uint8_t { latency, bandwidth, rate };

enum class Op : std::uint8_t {
  notify,          // Order::none
  notify_ordered,  // Order::after_writes
  payload,         // a notification with 8 bytes of its own, Order::none
  write_notify,
  write,  // those up to here only send
  read,
  fetch_add,
  compare_swap,
  barrier,
  write_count,
  message,  // by rings
  reply,    // by rings, each word answered when it is found
};

inline constexpr std::uint64_t kWordBytes = 4;  // of data: sizes are multiples

// A sample of a latency is the ticks that the round took; of a bandwidth or a rate it is device::now_ns() at the round's end, since
// units share what they move over and one that is early makes room for the others.
//
// Unit u moves the bytes [u * part_stride_bytes, + part_bytes) of each message, as far as the message reaches. A window's messages
// lie in slots, in turn. A segment has room for sending, then for receiving, then a word of 8 bytes per unit.
struct RoundPlan : PairPlan {
  bool is_active = false;  // begins each round and takes the time
  Measure measure = Measure::latency;
  Op op = Op::notify;
  std::uint32_t warm_up_count = 0;
  std::uint32_t iteration_count = 0;
  std::uint32_t window = 1;  // messages per round
  std::uint64_t message_bytes = 0;
  std::uint64_t part_stride_bytes = 0;
  std::uint64_t part_bytes = 0;
  std::uint32_t slot_count = 1;
  std::uint64_t slot_stride_bytes = 0;
  std::uint64_t receive_offset_bytes = 0;
  std::uint64_t words_offset_bytes = 0;
  bool is_checked = false;
  bool plants_fault = false;          // falsifies what the last round received: the check must then find it
  std::uint32_t rounds_per_look = 1;  // the clock is read at every so many rounds
  std::uint32_t unit_count = 1;
  bool is_of_blocks = false;       // the one unit
  std::uint32_t counter_base = 0;  // calls that were counted before, each way
  std::uint32_t queue_count = 0;   // to the partner; 0: by loads and stores
  device::Sharing sharing = device::Sharing::device;

  GIGABAR_DEVICE bool takes_end_times() const { return measure != Measure::latency; }
  GIGABAR_DEVICE bool ends_with_flush() const { return measure == Measure::rate && op == Op::write; }  // each window
  GIGABAR_DEVICE std::uint32_t round_count() const { return warm_up_count + iteration_count; }
  GIGABAR_DEVICE std::uint32_t sample_count() const { return iteration_count; }
};

// What a unit moves of each message.
struct Part {
  std::uint64_t begin = 0, bytes = 0;
  bool is_there = true;  // or there are fewer bytes than units have places for
};
GIGABAR_DEVICE Part part_of(const RoundPlan& plan, std::uint32_t unit) {
  if (plan.message_bytes == 0) return {};
  const std::uint64_t begin = unit * plan.part_stride_bytes;
  if (begin >= plan.message_bytes) return {begin, 0, false};
  const std::uint64_t left = plan.message_bytes - begin;
  return {begin, left < plan.part_bytes ? left : plan.part_bytes, true};
}
// Notifications of a unit: one is raised by its messages, one ends its round.
GIGABAR_DEVICE NotificationId messages_of(std::uint32_t unit) { return 2 * unit; }
GIGABAR_DEVICE NotificationId round_end_of(std::uint32_t unit) { return 2 * unit + 1; }
// Units take the queues in turn.
GIGABAR_DEVICE QueueId queue_of(const RoundPlan& plan, std::uint32_t unit) {
  return plan.queue_count == 0 ? QueueId{0} : static_cast<QueueId>(unit % plan.queue_count);
}
// A unit that has its queue to itself, or needs none, keeps the way to the partner in registers.
GIGABAR_DEVICE bool has_channel(const RoundPlan& plan) {
  return plan.queue_count == 0 || plan.sharing == device::Sharing::exclusive;
}
GIGABAR_DEVICE bool is_atomic(Op op) { return op == Op::fetch_add || op == Op::compare_swap; }

// --- pingpong -------------------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kNoRound = 0xffffffff;

// Unit u computes and sends the bytes [u * part_stride_bytes, + part_stride_bytes) of the message, as far as it reaches. A segment
// has the message that is sent, then the one that is received.
struct TurnPlan : PairPlan {
  bool is_active = false;  // begins each round and takes the time
  std::uint32_t round_count = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t part_stride_bytes = 0;
  std::uint64_t receive_offset_bytes = 0;
  std::uint64_t work_ns = 0;   // that a unit computes for, per turn
  bool uses_messages = false;  // by a ring for each unit, else by writes
  bool plants_fault = false;   // falsifies what came in the last round

  GIGABAR_DEVICE std::uint32_t sample_count() const { return round_count; }
};

// --- matvec ---------------------------------------------------------------------------------------------------------------------

// Rank 1 streams batches of vectors to rank 0, which multiplies each by one matrix and streams the products back. Unit u has
// `vectors` of each batch. A segment has, one behind the other: source_count batches that are sent in turn (rank 1), slot_count
// batches that arrive (rank 0), batch_count batches of products (both), the matrix (rank 0).
struct MatvecPlan : PairPlan {
  std::uint32_t elements = 1;  // of a vector; the matrix is square
  std::uint32_t vectors = 1;   // of a unit's part of a batch
  std::uint32_t unit_count = 1;
  std::uint32_t batch_count = 1;
  std::uint32_t source_count = 1;
  std::uint32_t slot_count = 1;  // batches under way
  bool uses_messages = false;    // of kernels that stream: by a ring for each unit, else by writes

  GIGABAR_DEVICE std::uint64_t part_values() const { return std::uint64_t{vectors} * elements; }
  GIGABAR_DEVICE std::uint64_t part_bytes() const { return part_values() * sizeof(float); }
  GIGABAR_DEVICE std::uint64_t batch_bytes() const { return part_bytes() * unit_count; }
  GIGABAR_DEVICE std::uint64_t matrix_values() const { return std::uint64_t{elements} * elements; }
  // Of the fast memory of a block: the matrix and a part of a batch.
  GIGABAR_DEVICE std::uint64_t fast_bytes() const { return (matrix_values() + part_values()) * sizeof(float); }
  GIGABAR_DEVICE std::uint64_t source_offset(std::uint32_t batch) const { return batch % source_count * batch_bytes(); }
  GIGABAR_DEVICE std::uint32_t slot_of(std::uint32_t batch) const { return slot_count > 1 ? batch % slot_count : 0; }
  GIGABAR_DEVICE std::uint64_t slot_offset(std::uint32_t batch) const { return (source_count + slot_of(batch)) * batch_bytes(); }
  GIGABAR_DEVICE std::uint64_t product_offset(std::uint32_t batch) const {
    return (std::uint64_t{source_count} + slot_count + batch) * batch_bytes();
  }
  GIGABAR_DEVICE std::uint64_t matrix_offset() const { return product_offset(batch_count); }
};

// What the kernel of one launch does.
enum class MatvecTask : std::uint8_t {
  fill,      // rank 1: the vectors, and what no product is where products arrive; rank 0: the matrix
  stream,    // all batches: rank 1 sends and takes, rank 0 multiplies
  multiply,  // rank 0: the batch that has arrived, sent by the CPU
};

// Between -1 and 1; the matrix is transposed, so that neighbouring rows lie side by side.
GIGABAR_DEVICE float value_of(std::uint64_t name) {
  const std::uint64_t spread = ((name + 1) ^ (name >> 17)) * kOdd64;
  return static_cast<float>(static_cast<std::int32_t>(spread >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}
GIGABAR_DEVICE float matrix_value(std::uint32_t row, std::uint32_t column) {
  return value_of((std::uint64_t{1} << 60) + (std::uint64_t{row} << 24) + column);
}
// Of `source`, a batch of all units.
GIGABAR_DEVICE float vector_value(std::uint32_t source, std::uint64_t index) {
  return value_of((std::uint64_t{source} << 40) + index);
}

// --- Who runs kernels: a GPU, or threads of the CPU over the memory of a stand-in -----------------------------------------------

struct KernelRun {
  std::vector<UnitEnd> ends;           // by unit
  std::vector<std::uint64_t> samples;  // ticks of each round of each unit; of the active side
};

// Nanoseconds of one of a unit's ticks; 0: it had no part.
inline double ns_per_tick(const UnitEnd& end) noexcept {
  return end.elapsed_ticks > 0 ? static_cast<double>(end.elapsed_ns) / static_cast<double>(end.elapsed_ticks) : 0.0;
}

// Waits for the end of a kernel that runs, which its own deadline bounds. Without a call, its last copy waits.
using AwaitKernel = std::function<Result<KernelRun>()>;

// Each blocks until its kernel has ended, which the kernel's own deadline bounds. Errors: invalid_argument (more blocks than the
// device holds at once), out_of_memory, device_error. How the rounds went is told in the ends.
Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid);
Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid);

// A kernel that is launched again and again.
template <class Body>
struct RepeatedKernel {
  // Launches it and waits for its end. `body` has yet to be told where it reports. Errors: as run_rounds.
  std::function<Result<void>(Body body)> run;
  // What all launches found wrong, in the ends.
  std::function<Result<KernelRun>()> read;
};
// Of OneTurnBody and MatvecBody. Each unit has so many bytes of fast memory of its own (shared memory). Errors: also
// invalid_argument (not enough fast memory).
template <class Body>
Result<RepeatedKernel<Body>> open_repeated(const DeviceInfo& device, const Grid& grid, std::uint64_t fast_bytes = 0);

// The same on the GPU, defined where nvcc compiles the kernels: several files, because they take it longest.
namespace gpu {
// `body` is a UnitBody.
template <class Body>
Result<KernelRun> run_reporting(int device, const Grid& grid, Body body);
template <class Body>
Result<RepeatedKernel<Body>> open_repeated(int device, const Grid& grid, std::uint64_t fast_bytes);
}  // namespace gpu

}  // namespace gigabar::tool::device_ranks
