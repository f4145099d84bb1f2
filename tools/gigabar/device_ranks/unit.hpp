// SPDX-License-Identifier: Apache-2.0
// The units of a kernel: how many scopes of which kind it has, what each does and reports; and what they share: the clock of
// samples, and data of which every word follows from its sender, round, slot and place.
#pragma once

#include <cstdint>

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

// Whether all blocks of a kernel may be one such unit. Only those that are compiled for it, because each kernel takes nvcc long.
template <template <class> class Unit>
inline constexpr bool kTakesBlocks = false;

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

  // By each of `count` blocks: the one unit that they are.
  static constexpr bool kIsForBlocks = kTakesBlocks<Unit>;
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

template <class Body>
constexpr bool is_for_blocks() {
  if constexpr (requires { Body::kIsForBlocks; }) return Body::kIsForBlocks;
  return false;
}

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

// Whether a run has taken longer than it may, by the clock of the scope's first thread.
template <class Scope>
GIGABAR_DEVICE bool is_over(const Scope& scope, const RunClock& clock, std::uint64_t most_ns) {
  return scope.broadcast(static_cast<std::uint32_t>(clock.elapsed_ns() > most_ns)) != 0;
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
    if (device_ranks::is_over(scope_, clock, plan_.timeout_ns)) note(Status::timed_out);
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

}  // namespace gigabar::tool::device_ranks
