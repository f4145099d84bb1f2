// SPDX-License-Identifier: Apache-2.0
// One repeat of a plan: the gate, what the threads that carry its transfers share, and what they do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/in_place.hpp"
#include "gigabar/status.hpp"
#include "gigabar/streams.hpp"
#include "streams/ends.hpp"
#include "streams/measure.hpp"

namespace gigabar::inline v0 {

// A transfer while it runs: a part for each CUDA stream or CPU thread that carries it, whose marks one thread writes. They are read
// when all threads have ended.
class TransferRun {
 public:
  TransferRun(std::size_t plan_index, const Transfer& planned, std::size_t part_count)
      : index(plan_index), transfer(planned), parts(part_count), parts_left_(part_count) {}

  // The first failure counts. Threads: any.
  void fail(ErrorRecord record);
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_acquire); }
  std::optional<ErrorRecord> error() const;
  // True for the part that was the last to end.
  bool end_part() noexcept { return parts_left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool is_done() const noexcept { return parts_left_.load(std::memory_order_acquire) == 0; }

  const std::size_t index;
  const Transfer& transfer;
  std::vector<Marks> parts;
  std::vector<double> latencies_us;          // written by the only part of a latency transfer
  std::atomic<std::uint64_t> bytes_done{0};  // for progress

 private:
  std::atomic<std::size_t> parts_left_;
  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;
  std::optional<ErrorRecord> error_;
};

class Repeat : InPlace {
 public:
  // `gate_word` is pinned host memory that GPUs can read.
  Repeat(std::uint32_t* gate_word, std::size_t foreground_count, double timeout_seconds, const std::atomic<bool>* stop);
  ~Repeat() { abort(); }

  // For workers: everything that can be prepared is; wait until the gate opens. False when the repeat was given up.
  bool arrive_and_wait();
  // Waits until so many workers have arrived. False when they did not in time, or the repeat was given up.
  bool await_arrivals(std::size_t worker_count) const;
  // Whether the transfer begins another copy, having begun `begun`.
  bool wants_more(const TransferRun& run, std::uint64_t begun) const noexcept;
  // A part has ended. The last one of a foreground transfer lets background transfers end.
  void end_part(TransferRun& run) noexcept;
  bool is_stopped() const noexcept { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }
  bool has_timed_out() const noexcept { return deadline_.has_passed(); }
  bool is_open() const noexcept { return opened_ns() != 0; }
  bool is_aborted() const noexcept { return is_aborted_.load(std::memory_order_acquire); }
  std::int64_t opened_ns() const noexcept { return opened_ns_.load(std::memory_order_acquire); }
  std::uint32_t* gate_word() const noexcept { return gate_word_; }
  // When a transfer with a delay may begin; 0 for the others.
  std::int64_t begins_at_ns(const Transfer& transfer) const noexcept;

  // For run_streams: waits for all workers, then opens the gate. False when they did not arrive in time.
  bool open(std::size_t worker_count);
  // Opens the gate for streams that wait behind it, and tells workers to give up. Nothing when all have ended.
  void abort() noexcept;

 private:
  void raise_gate() noexcept;

  std::uint32_t* const gate_word_;
  const std::atomic<bool>* const stop_;
  const Deadline deadline_;
  std::atomic<std::size_t> arrived_{0};
  std::atomic<std::int64_t> opened_ns_{0};
  std::atomic<std::size_t> foreground_left_;
  std::atomic<bool> is_aborted_{false};
};

// "timed_out" for a transfer that was not done when the plan's time was over.
ErrorRecord timed_out_record(const TransferRun& run);

// Spins for a while, then gives the processor away: for loops that wait for a GPU or for other threads.
class Pause {
 public:
  void operator()() noexcept;
  void reset() noexcept { turns_ = 0; }

 private:
  unsigned turns_ = 0;
};

// A thread: where it should run, and what it does from its preparations to the last copy. `body` calls Repeat::arrive_and_wait
// once.
struct Worker {
  int numa_node = -1;
  std::function<void()> body;
};

// One copy of a transfer (or one round of its flag, one walk of its chain). Returns when it has happened. Latency in microseconds:
// negative where the caller's clock is as good.
struct OneCopy {
  Result<void> outcome;
  double latency_us = -1;
  bool is_whole = true;  // false: the run was stopped in the middle of it
};

// What one thread copies of every copy.
struct Slice {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};
// Looks at the stop between pieces: a large copy takes seconds on a slow machine, and who stops a run does not wait for it.
OneCopy copy_in_pieces(const std::function<Result<void>(Slice)>& copy, Slice slice, const Repeat& repeat);

// What a thread that waits for each of its copies does: `warm_up` before the gate, then copies until the transfer has had enough.
// `bytes` are what it moves of one copy, `per_look` how many are made between two looks at the clock.
struct CopyLoop {
  TransferRun& run;
  std::size_t part;
  std::uint64_t bytes;
  std::uint64_t per_look = 1;
  std::function<Result<void>()> warm_up;
  std::function<OneCopy()> copy;
};
void run_copy_loop(Repeat& repeat, const CopyLoop& loop);

// Rounds of the flag between this thread and whoever answers a value in the mapping's first word with the same value in *answered.
// The last value sent is kLastFlag; both words are 0 before.
inline constexpr std::uint32_t kLastFlag = 0xffffffffU;
void run_flag_loop(Repeat& repeat, TransferRun& run, const Mapping& mapping, std::uint32_t* answered);

// The record of a failed outcome, with the transfer in front.
ErrorRecord failure_of(const TransferRun& run, const ErrorRecord& record);

// How many threads carry the transfer when the CPU does, as it carries everything on stand-ins.
std::size_t cpu_thread_count(const Transfer& transfer);
// Threads that copy through the mapping, or from memory to memory: everything on stand-ins, the CPU executor anywhere.
void add_cpu_workers(TransferRun& run, const Ends& ends, Repeat& repeat, int numa_node, std::vector<Worker>& workers);

}  // namespace gigabar::inline v0
