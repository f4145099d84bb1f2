// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>
#include <stop_token>
#include <thread>

#include "base/errors.hpp"
#include "base/rounding.hpp"
#include "gigabar/copy.hpp"
#include "streams/plan.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr unsigned kDefaultThreads = 4;                     // where an H200's BAR1 is full in both directions that CPUs can fill
constexpr std::int64_t kMarkEveryNs = 100'000;              // enough to cut any window out of a life
constexpr std::size_t kLookEveryBytes = 16384;              // copies smaller than this are made several per look at the clock
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // of a copy, between two looks at the stop
constexpr std::uint64_t kChaseSteps = 2000;                 // loads per sample
constexpr std::int64_t kRoundTimeoutNs = 2'000'000'000;
constexpr std::size_t kLineBytes = 64;  // of the CPU's cache

// Whole lines for each, but for the last: a thread without one would never begin, so there may be fewer than were asked for.
std::vector<Slice> slices_of(std::size_t bytes, std::size_t asked) {
  const std::size_t share = round_up<std::size_t>((bytes + asked - 1) / asked, kLineBytes);
  std::vector<Slice> slices;
  for (std::size_t at = 0; at < bytes; at += share) slices.push_back({at, std::min(share, bytes - at)});
  return slices;
}

std::function<Result<void>(Slice)> copier_of(const Ends& ends) {
  const Mapping* const mapping = ends.mapping();
  std::byte* const to = ends.destination().address();
  std::byte* const from = ends.source().address();
  if (mapping != nullptr && ends.destination().device) {
    return [=](Slice slice) { return copy_to(*mapping, slice.offset, from + slice.offset, slice.bytes); };
  }
  if (mapping != nullptr) return [=](Slice slice) { return copy_from(*mapping, slice.offset, to + slice.offset, slice.bytes); };
  return [=](Slice slice) {
    std::memcpy(to + slice.offset, from + slice.offset, slice.bytes);
    return Result<void>();
  };
}

void add_copy_workers(TransferRun& run, const Ends& ends, Repeat& repeat, int numa_node, std::vector<Worker>& workers) {
  const auto copy = copier_of(ends);
  const std::vector<Slice> slices = slices_of(run.transfer.bytes, run.parts.size());
  for (std::size_t part = 0; part < slices.size(); ++part) {
    const Slice slice = slices[part];
    const Slice warm{slice.offset, std::min<std::size_t>(slice.bytes, std::size_t{1} << 20)};
    const std::uint64_t per_look =
        run.transfer.is_latency ? 1 : std::clamp<std::uint64_t>(kLookEveryBytes / std::max<std::size_t>(slice.bytes, 1), 1, 64);
    workers.push_back({numa_node, [=, &run, &repeat] {
                         run_copy_loop(repeat, {run, part, slice.bytes, per_look, [&] { return copy(warm); },
                                                [&] { return copy_in_pieces(copy, slice, repeat); }});
                       }});
  }
}

// The flag is stored by a copy kernel, which no thread sanitizer knows to be one access.
#if defined(__GNUC__)
__attribute__((no_sanitize("thread")))
#endif
std::uint32_t
look(const volatile std::uint32_t* flag) {
  return *flag;
}

// A CPU thread plays the GPU's side of the flag round trip, until its owner is done.
void answer_flags(const std::stop_token& end, const std::uint32_t* asked, std::uint32_t* answered) {
  Pause pause;
  for (std::uint32_t seen = 0; !end.stop_requested();) {
    const std::uint32_t value = look(asked);
    if (value == seen) {
      pause();
      continue;
    }
    seen = value;
    std::atomic_ref(*answered).store(seen, std::memory_order_release);
    pause.reset();
  }
}

// One thread follows the chain with the CPU's own loads.
OneCopy chase_once(const void* first) {
  const void* at = first;
  const std::int64_t begin_ns = now_ns();
  for (std::uint64_t i = 0; i < kChaseSteps; ++i) at = *static_cast<const void* const volatile*>(at);
  return {{}, static_cast<double>(now_ns() - begin_ns) / 1000 / static_cast<double>(kChaseSteps)};
}

OneCopy flag_round(const Mapping& mapping, std::uint32_t* answered, std::uint32_t value) {
  const std::int64_t begin_ns = now_ns();
  if (Result<void> sent = publish(mapping, 0, value); !sent) return {std::move(sent)};
  for (std::uint32_t turn = 1; std::atomic_ref(*answered).load(std::memory_order_acquire) != value; ++turn) {
    if (turn % 1024 == 0 && now_ns() - begin_ns > kRoundTimeoutNs) {
      return {
          make_error(Status::timed_out, "flag", text("round ", value), "no answer within 2 s", "check the GPU with nvidia-smi")};
    }
    if (turn > 100'000) std::this_thread::yield();
  }
  return {{}, static_cast<double>(now_ns() - begin_ns) / 1000};
}

// Waits until the transfer's delay is over. False when there is nothing to begin any more.
bool wait_for_begin(const Repeat& repeat, const TransferRun& run) {
  const std::int64_t at_ns = repeat.begins_at_ns(run.transfer);
  Pause pause;
  while (now_ns() < at_ns) {
    if (!repeat.wants_more(run, 0) || repeat.has_timed_out()) return false;
    pause();
  }
  return repeat.wants_more(run, 0);
}

}  // namespace

ErrorRecord failure_of(const TransferRun& run, const ErrorRecord& record) { return failure_of(run.index, run.transfer, record); }

OneCopy copy_in_pieces(const std::function<Result<void>(Slice)>& copy, Slice slice, const Repeat& repeat) {
  for (std::size_t at = 0; at < slice.bytes; at += kPieceBytes) {
    if (at != 0 && repeat.is_stopped()) return {{}, -1, false};
    if (Result<void> done = copy({slice.offset + at, std::min(kPieceBytes, slice.bytes - at)}); !done) return {std::move(done), -1};
  }
  return {};
}

void run_copy_loop(Repeat& repeat, const CopyLoop& loop) {
  TransferRun& run = loop.run;
  Marks& marks = run.parts[loop.part];
  if (loop.warm_up) {
    if (Result<void> warm = loop.warm_up(); !warm) run.fail(failure_of(run, warm.record()));
  }
  if (!repeat.arrive_and_wait() || !wait_for_begin(repeat, run)) {
    repeat.end_part(run);
    return;
  }
  std::uint64_t begun = 0;
  std::uint64_t bytes = 0;
  std::int64_t last_ns = now_ns();
  std::int64_t end_ns = last_ns;  // of the last whole copy
  marks.push_back({last_ns, 0});
  while (repeat.wants_more(run, begun)) {
    std::uint64_t count = loop.per_look;
    if (run.transfer.iterations > 0 && !run.transfer.is_background) count = std::min(count, run.transfer.iterations - begun);
    const std::int64_t begin_ns = run.transfer.is_latency ? now_ns() : 0;
    bool has_copied = false;
    for (std::uint64_t i = 0; i < count; ++i) {
      OneCopy done = loop.copy();
      if (!done.outcome) {
        run.fail(failure_of(run, done.outcome.record()));
        break;
      }
      if (!done.is_whole) break;
      has_copied = true;
      bytes += loop.bytes;
      if (done.latency_us >= 0) run.latencies_us.push_back(done.latency_us);
      if (done.latency_us < 0 && begin_ns != 0) run.latencies_us.push_back(static_cast<double>(now_ns() - begin_ns) / 1000);
    }
    begun += count;
    const std::int64_t at_ns = now_ns();
    if (has_copied) end_ns = at_ns;
    if (has_copied && at_ns - last_ns >= kMarkEveryNs) {
      run.bytes_done.fetch_add(bytes - marks.back().bytes, std::memory_order_relaxed);
      marks.push_back({at_ns, bytes});
      last_ns = at_ns;
    }
    if (repeat.has_timed_out()) run.fail(timed_out_record(run));
  }
  run.bytes_done.fetch_add(bytes - marks.back().bytes, std::memory_order_relaxed);
  marks.push_back({end_ns, bytes});
  repeat.end_part(run);
}

std::size_t cpu_thread_count(const Transfer& transfer) {
  if (transfer.executor != StreamExecutor::cpu || transfer.is_latency) return 1;  // also a stand-in's copy engine and kernel
  const unsigned most = std::min(kDefaultThreads, std::max(1U, std::thread::hardware_concurrency()));
  return slices_of(transfer.bytes, transfer.worker_count != 0 ? transfer.worker_count : most).size();
}

void add_cpu_workers(TransferRun& run, const Ends& ends, Repeat& repeat, int numa_node, std::vector<Worker>& workers) {
  if (run.transfer.executor == StreamExecutor::pointer_chase) {
    const void* const first = ends.source().address();
    workers.push_back(
        {numa_node, [=, &run, &repeat] { run_copy_loop(repeat, {run, 0, 0, 1, {}, [=] { return chase_once(first); }}); }});
    return;
  }
  if (run.transfer.executor != StreamExecutor::flag) return add_copy_workers(run, ends, repeat, numa_node, workers);
  workers.push_back({numa_node, [&run, &ends, &repeat] {
                       auto* const asked = reinterpret_cast<std::uint32_t*>(ends.mapping()->address());
                       auto* const answered =
                           reinterpret_cast<std::uint32_t*>((ends.source().host ? ends.source() : ends.destination()).address());
                       std::atomic_ref(*asked).store(0);
                       std::atomic_ref(*answered).store(0);
                       const std::jthread peer(answer_flags, asked, answered);
                       run_flag_loop(repeat, run, *ends.mapping(), answered);
                     }});
}

void run_flag_loop(Repeat& repeat, TransferRun& run, const Mapping& mapping, std::uint32_t* answered) {
  constexpr int kWarmUpRounds = 100;
  std::uint32_t value = 0;
  const auto round = [&] {
    value = value + 1 == kLastFlag ? 1 : value + 1;
    return flag_round(mapping, answered, value);
  };
  const auto warm_up = [&] {
    for (int i = 0; i < kWarmUpRounds && !repeat.is_stopped(); ++i) {
      if (OneCopy done = round(); !done.outcome) return std::move(done.outcome);
    }
    return Result<void>();
  };
  run_copy_loop(repeat, {run, 0, 0, 1, warm_up, round});
  // Ends the peer; its answer is not waited for.
  static_cast<void>(publish(mapping, 0, kLastFlag));
}

}  // namespace gigabar::inline v0
