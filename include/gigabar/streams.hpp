// SPDX-License-Identifier: Apache-2.0
// Transfer streams: many concurrent copies between GPUs, and between GPUs and the host. They start at one gate, are measured over
// the time that they have in common, are verified at the destination, and are compared with the rate of the link that they crossed.
//
// On machines without a GPU everything runs between stand-in devices (host memory), and every executor is CPU threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// What moves the bytes.
enum class StreamExecutor : std::uint8_t {
  copy_engine,    // "ce": a GPU's DMA engine
  kernel,         // "sm": a kernel of one GPU, 16 bytes per access; `worker_count` thread blocks
  cpu,            // "cpu": CPU threads; GPU memory through a Mapping; `worker_count` threads
  flag,           // "flag": round trips CPU -> GPU -> CPU of a 4-byte flag; measures a latency, moves no data
  pointer_chase,  // "chase": one GPU thread follows a chain of pointers in the source; measures the latency of a load, moves no
                  // data
};
inline constexpr std::size_t kStreamExecutorCount = 5;

// Which end's GPU does the work. When only one end is a GPU, both values mean that GPU.
enum class StreamSide : std::uint8_t {
  automatic,    // the destination: faster for kernels over NVLink, and no slower for copy engines
  source,       // "push": the source's GPU writes
  destination,  // "pull": the destination's GPU reads
};

GIGABAR_API std::string_view name_of(StreamExecutor executor) noexcept;  // "ce", "sm", "cpu", "flag", "chase"
GIGABAR_API bool moves_data(StreamExecutor executor) noexcept;           // false for flag and chase, which time single accesses

// One end of a transfer.
struct StreamPlace {
  static constexpr int kHost = -1;         // `device`: host memory
  static constexpr int kNearestNode = -1;  // `numa_node`: of the GPU at the other end
  static constexpr int kAnyNode = -2;      // `numa_node`: the system chooses; pages are not bound

  int device = kHost;                   // CUDA ordinal or stand-in number
  HostPages pages = HostPages::pinned;  // host memory only, as numa_node
  int numa_node = kNearestNode;

  bool is_host() const noexcept { return device == kHost; }
  bool operator==(const StreamPlace&) const = default;
};

// One stream of equal copies. It ends after `iterations`, or at the first copy that begins after `seconds`. A background transfer
// runs as long as any foreground transfer.
struct Transfer {
  StreamPlace source;
  StreamPlace destination;
  StreamExecutor executor = StreamExecutor::copy_engine;
  StreamSide side = StreamSide::automatic;
  unsigned worker_count = 0;                 // blocks (kernel) or threads (cpu); 0: the best number on most machines
  std::size_t bytes = std::size_t{1} << 30;  // per copy
  std::uint64_t iterations = 100;            // 0: `seconds` counts
  double seconds = 0;                        // used when iterations is 0
  double delay_seconds = 0;                  // the transfer begins this long after the gate has opened
  std::string group;                         // transfers of one group also have a common total
  bool is_background = false;                // runs until all foreground transfers have ended; ignores iterations and seconds
  bool is_latency = false;  // one copy at a time, timed by the CPU from submission to completion; always true for flag
  bool may_stage = false;   // GPU to GPU without peer access: let the driver stage through the host instead of failing

  bool operator==(const Transfer&) const = default;
};

// Returns the long form that parse_transfers reads, "gpu0->host:0 ce-push bytes=1G iterations=100": ends, executor, bytes, length,
// and every other value that is not a default.
GIGABAR_API std::string to_string(const Transfer& transfer);

// Reads the long form, one or more transfers separated by ';':
//
//   ENDS [EXECUTOR] [KEY=VALUE | WORD]...
//   ENDS      PLACE->PLACE; PLACE is gpuN, gpu[A,B], gpu[A..B], gpu*, or host, host:NODE (bound to that node), host:any
//   EXECUTOR  ce, ce-push, ce-pull, sm, sm-push, sm-pull, cpu, flag, chase; sm:BLOCKS and cpu:THREADS choose worker_count
//   KEY       bytes (K, M, G: powers of 1024), iterations or seconds, delay (seconds), pages (pinned, pageable, wc, huge; between
//             two host ends SOURCE,DESTINATION), group, count (that many equal transfers)
//   WORD      background, latency, stage
//
// Sets of devices are expanded to every pair of different devices (a pair of one device with itself only when both ends name it
// alone). '#' begins a comment. Missing values come from `defaults`, in which each end has its own pages and node. An empty line
// gives no transfers. Errors: invalid_argument; the object is "LINE:COLUMN" (`line`, columns from 1), the cause quotes the text at
// that position.
GIGABAR_API Result<std::vector<Transfer>> parse_transfers(std::string_view text, const Transfer& defaults, int device_count,
                                                          std::size_t line = 1);

struct StreamPlan {
  std::vector<Transfer> transfers;
  unsigned repeats = 5;          // whole runs from the gate to the end, over which medians are taken; 1 to 1000
  bool is_verified = true;       // destinations are poisoned before, and compared with the sources after every repeat
  double timeout_seconds = 300;  // of one repeat; transfers that are not complete by then fail with timed_out
};

// Checks everything that can be checked without running the plan: unknown devices and nodes, sizes of 0, executors that do not
// support the transfer's ends. Allocates nothing. `device_count` devices are assumed to exist. Errors: invalid_argument,
// not_supported; the object names the transfer by number and text.
GIGABAR_API Result<void> check_plan(const StreamPlan& plan, int device_count);

// The physical path of a transfer, as far as the machine reports it.
struct StreamLink {
  std::string name = "unknown";  // "PCIe 5.0 x16", "NVLink 18 x 26.6 GB/s", "device memory"
  double gb_per_s = 0;           // rate in this direction, after line coding, before packet headers; 0: unknown
  std::string reason;            // why the rate is unknown; otherwise its source
};

// Median and extremes over the repeats, and every sample in the order of the repeats.
struct StreamFigure {
  double median = 0;
  double min = 0;
  double max = 0;
  std::vector<double> samples;
};

// Single samples of a latency transfer, of all repeats together. Percentiles are samples.
struct StreamLatency {
  std::size_t sample_count = 0;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
};

struct TransferReport {
  Transfer transfer;
  std::string path;  // "copy engine of device 1 (pull)", "4 CPU threads through rm"
  StreamLink link;
  int host_numa_node =
      -1;  // node of the host buffer's pages, as the kernel reported it after they were filled; -1: see host_placement
  std::string host_placement;    // "node 1 (all 262144 pages)", "this machine has no NUMA"; empty without a host end
  StreamFigure life_gb_per_s;    // bytes over the time from its own first to its own last copy
  StreamFigure window_gb_per_s;  // over the time in which all foreground transfers ran; no samples: there was no such time
  StreamFigure seconds;          // life
  std::optional<StreamLatency> latency;
  std::uint64_t bytes_moved = 0;  // over all repeats
  bool is_verified = false;       // its destination was compared and correct, after every repeat
  double ratio = 0;               // median life rate over the link's; window rate for background; 0: the link is unknown
  std::optional<ErrorRecord> error;
};

// Transfers of one group, or all foreground transfers (empty name).
struct StreamTotal {
  std::string group;
  StreamFigure aggregate_gb_per_s;  // all bytes over the wall-clock time from the first begin to the last end
  StreamFigure sum_gb_per_s;        // the transfers' life rates added up
  StreamFigure
      overlap_percent;  // the common window over the shortest life: 100 when the shortest transfer ran entirely beside others
};

struct StreamReport {
  std::vector<TransferReport> transfers;  // in the plan's order
  std::vector<StreamTotal> totals;        // all, then each named group in order of appearance
  std::vector<std::string> warnings;      // one sentence each: serialised transfers, pages elsewhere than asked, ...
  bool was_stopped = false;               // by StreamOptions::stop: the figures cover what was done until then
  bool is_stand_in = false;

  // No transfer failed.
  GIGABAR_API bool is_ok() const noexcept;
};

// The progress of one transfer.
struct StreamProgress {
  std::size_t index = 0;          // in the plan
  std::uint64_t bytes_done = 0;   // in this repeat
  std::uint64_t bytes_total = 0;  // 0: unknown (seconds, background)
  double gb_per_s = 0;            // since the previous report
  bool is_done = false;
};

struct StreamOptions {
  // The thread of run_streams calls it about every progress_interval_ms while transfers run. `repeat` counts from 0.
  std::function<void(unsigned repeat, std::span<const StreamProgress>)> progress;
  unsigned progress_interval_ms = 200;
  // When it becomes true (a signal handler may set it), the transfers end after the copies in flight, those by CPU threads after
  // the current piece of 16 MiB, and no memory is prepared for further transfers. The arrived data are compared for another half
  // second; a transfer whose comparison is not complete by then is not verified.
  const std::atomic<bool>* stop = nullptr;
};

// Allocates both ends of every transfer, fills the sources with a pattern of transfer and offset, and runs the plan.
// Errors, after which nothing is allocated: those of check_plan; not_supported (no peer access, and may_stage is not set);
// out_of_memory (the object names the transfer); unavailable (device code was not built, GPU too old); device_error.
// A transfer that fails after the gate has opened is reported in its TransferReport, and the others continue.
// Threads: any number of runs at once, though they disturb each other; uses one thread per GPU, and those of the CPU executors. The
// calling thread's current context is left as it was. Cost: the memory of all transfers at once. Pages of host memory are bound to
// their node, not preferred. Source of the method: docs/streams.md.
GIGABAR_API Result<StreamReport> run_streams(const StreamPlan& plan, const StreamOptions& options = {});

// A well-known matrix of measurements: one plan per cell.
struct StreamCell {
  std::string matrix;  // empty, or which of several: "read1", "read2", "total"
  int row = 0;
  int column = 0;
  StreamPlan plan;  // the cell's figure is the sum over the transfers of the group "measured"
};
struct StreamPreset {
  std::string name;         // "device_to_device_memcpy_read_ce"
  std::string description;  // "copy engine, GPU(row) <- GPU(column), pulled by the row"
  bool is_latency = false;  // cells are nanoseconds, not GB/s
  std::string waived;       // not empty: why the preset has no cells on this machine
  int row_count = 0;
  int column_count = 0;
  std::vector<StreamCell> cells;
};

// The names of all presets: nvbandwidth 0.8's test cases, in its order.
GIGABAR_API std::span<const std::string_view> stream_preset_names() noexcept;
// Returns the preset for `device_count` devices, with bytes, iterations or seconds, and pages of `defaults`. Errors:
// invalid_argument (unknown name; the cause lists the nearest).
GIGABAR_API Result<StreamPreset> stream_preset(std::string_view name, const Transfer& defaults, int device_count);

}  // namespace gigabar::inline v0
