// SPDX-License-Identifier: Apache-2.0
// The threads of one repeat.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gigabar/status.hpp"
#include "streams/ends.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {

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
