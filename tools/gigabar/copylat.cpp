// SPDX-License-Identifier: Apache-2.0
// gigabar copylat: how long one copy takes, by size and direction, beside cudaMemcpy; and, when asked, beside every raw kernel and
// every method of copy(). Samples in turns (support/clock.hpp); data checked before and after.
//
// A small store costs next to nothing while the link's queue of writes has room, and a tenth of a microsecond and more when it is
// full. So there are two regimes: single copies with a pause before each, as a program makes them that copies now and then, and
// copies back to back, in the state that many of them reach. Percentiles are of single calls in the first; in the second of the
// mean of a burst. Before each block of bursts the host memory is written by the calling thread.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "copy/measure.hpp"
#include "cuda/runtime.hpp"
#include "support/clock.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool {
namespace {

// --- The state of the CPU's caches before a copy ---------------------------------------------------------------------------------

// Takes a range out of every cache of the CPU, so that the next access goes to memory.
void evict(const void* address, std::size_t bytes) noexcept {
  constexpr std::uintptr_t kLine = 64;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  for (std::uintptr_t line = start & ~(kLine - 1); line < start + bytes; line += kLine) {
#if defined(__x86_64__)
    __builtin_ia32_clflush(reinterpret_cast<const void*>(line));
#elif defined(__aarch64__)
    asm volatile("dc civac, %0" ::"r"(line) : "memory");
#endif
  }
#if defined(__x86_64__)
  __builtin_ia32_mfence();
#elif defined(__aarch64__)
  asm volatile("dsb sy" ::: "memory");
#endif
}

// --- What is asked for ----------------------------------------------------------------------------------------------------------

struct Options : DeviceOptions {
  std::size_t most_bytes = std::size_t{16} << 20;
  std::size_t write_count = 10000;
  std::size_t read_count = 100;
  std::size_t round_count = 5;
  double pause_us = 200;
  double budget_seconds = 20;
  bool is_cold = false;
  bool with_cuda_memcpy = true;  // -c in GDRCopy's tool asks for what is always done here
  bool with_kernels = false;
  bool with_methods = false;
  std::size_t fault_bytes = 0;
};

enum class Regime { single, back_to_back };

enum class Role { method, kernel, chooser };

struct Runner : Contender {
  Role role;
  Summary summary;
};

// One size in one direction and regime.
struct Cell : CopyCase {
  Regime regime;
  std::vector<Runner> runners;        // the path, the baseline, then what else was asked for
  std::vector<std::string> left_out;  // kernels far too slow at this size to be the best
};

// What stands beside the path: cudaMemcpy, or its nearest relation here.
enum class Baseline { cuda_memcpy, copy_engine, memcpy };

Baseline choose_baseline(Report& report, const Workbench& bench) {
  if (bench.device().is_stand_in) return Baseline::memcpy;
  const Availability runtime = use_cuda_runtime(bench.device().index);
  report.document()["cuda_runtime"] = to_json(runtime);
  if (runtime.is_ok()) return Baseline::cuda_memcpy;
  report.note(fmt::format("no cudaMemcpy ({}: {}): the copy engine through Gigabar stands in its place", name_of(runtime.code),
                          runtime.reason));
  return Baseline::copy_engine;
}

// Inlined: a call would take as long as a small copy.
inline bool plain_memcpy(void* destination, const void* source, std::size_t bytes) noexcept {
  std::memcpy(destination, source, bytes);
  return true;
}

struct Builder {
  const Options& options;
  const Workbench& bench;
  const Baseline baseline;
  // The library, the GPU and the kind of memory allow that method.
  const bool has_readback = copy(bench.host(), MappedPlace{bench.mapping(), 0}, 1, CopyMethod::readback).is_ok();

  Cell build(Regime regime, CopyDirection direction, std::size_t bytes) const {
    Cell cell{{direction, bytes}, regime, {}, {}};
    const Mapping* const mapping = &bench.mapping();
    std::byte* const mapped = mapping->address();
    void* const memory = bench.memory().address();
    std::byte* const host = bench.host();
    const bool is_to_device = direction == CopyDirection::to_device;
    // Of two calls that of the cell's direction.
    const auto add = [&](Role role, const std::string& name, const auto& to, const auto& from) {
      is_to_device ? add_runner(cell, role, name, to) : add_runner(cell, role, name, from);
    };
    const auto add_method = [&](Role role, const char* name, std::optional<CopyMethod> required) {
      add(
          role, name, [=] { return copy(MappedPlace{*mapping, 0}, host, bytes, required).is_ok(); },
          [=] { return copy(host, MappedPlace{*mapping, 0}, bytes, required).is_ok(); });
    };

    add(
        Role::method, is_to_device ? "copy_to" : "copy_from", [=] { return copy_to(*mapping, 0, host, bytes).is_ok(); },
        [=] { return copy_from(*mapping, 0, host, bytes).is_ok(); });
    switch (baseline) {
      case Baseline::cuda_memcpy:
        add(
            Role::method, "cudaMemcpy", [=] { return cuda_memcpy(memory, host, bytes); },
            [=] { return cuda_memcpy(host, memory, bytes); });
        break;
      case Baseline::copy_engine: add_method(Role::method, "copy_engine", CopyMethod::copy_engine); break;
      case Baseline::memcpy:
        add(
            Role::method, "memcpy", [=] { return plain_memcpy(memory, host, bytes); },
            [=] { return plain_memcpy(host, memory, bytes); });
    }
    if (regime == Regime::single) return cell;
    for (const CopyKernel& kernel : copy_kernels()) {
      if (!options.with_kernels || !kernel.is_supported) continue;
      // With the fences that copy_to and copy_from put around it.
      add(
          Role::kernel, "kernel " + std::string(kernel.name),
          [=, store = kernel.store] {
            store(mapped, host, bytes);
            detail::fence_stores();
            return true;
          },
          [=, load = kernel.load] {
            detail::fence_before_loads(mapped, bytes);
            load(host, mapped, bytes);
            detail::fence_after_loads();
            return true;
          });
    }
    if (!options.with_methods) return cell;
    add_method(Role::chooser, "copy()", {});
    add_method(Role::method, "cpu", CopyMethod::cpu);
    add_method(Role::method, "cpu_parallel", CopyMethod::cpu_parallel);
    add_method(Role::method, "copy_engine", CopyMethod::copy_engine);
    if (has_readback && !is_to_device && bytes <= kMaxReadbackBytes) add_method(Role::method, "readback", CopyMethod::readback);
    return cell;
  }

 private:
  template <class Call>
  void add_runner(Cell& cell, Role role, const std::string& name, const Call& call) const {
    const auto add = [&](const auto&... before) { cell.runners.push_back({make_contender(name, call, before...), role, {}}); };
    const std::size_t bytes = cell.bytes;
    if (options.is_cold) return add([=, mapped = bench.mapping().address()] { evict(mapped, bytes); });
    if (cell.regime == Regime::single) return add([ns = static_cast<std::uint64_t>(options.pause_us * 1000)] { spin(ns); });
    // As a program's data is that it made itself; otherwise each contender would find the caches as another one left them.
    add(Nothing(), [=, host = bench.host()] { write_again(host, bytes); });
  }
};

void check_cell(const Options& options, const Workbench& bench, const Cell& cell) {
  for (const Runner& runner : cell.runners) check_copy(bench, cell, runner, cell.bytes == options.fault_bytes);
}

// Narrow loads from write-combined memory take seconds for MiB. A kernel that needs many times the path's time is not the best one,
// and is left out before it costs more than one call.
void leave_out_slow_kernels(const SampleClock& clock, std::vector<Cell>& cells) {
  constexpr double kFarTooSlow = 8;
  constexpr double kAlwaysAffordableNs = 1e6;
  for (Cell& cell : cells) {
    const auto once_ns = [&](const Runner& runner) {
      std::uint64_t ticks = 0;
      runner.run_block(clock, {&ticks, 1}, 0, 1);
      return static_cast<double>(ticks) * clock.ns_per_tick();
    };
    const double limit_ns = std::max(kAlwaysAffordableNs, kFarTooSlow * once_ns(cell.runners.front()));
    std::erase_if(cell.runners, [&](const Runner& runner) {
      const bool is_slow = runner.role == Role::kernel && once_ns(runner) > limit_ns;
      if (is_slow) cell.left_out.push_back(runner.name);
      return is_slow;
    });
  }
}

constexpr double kBurstNs = 20'000;
constexpr std::size_t kMaxBurst = 256;

// Shares the time among all contenders of all cells, and says how many samples each one takes.
void plan_samples(const Options& options, const SampleClock& clock, std::vector<Cell>& cells) {
  std::size_t contender_count = 0;
  for (const Cell& cell : cells) contender_count += cell.runners.size();
  const double share_ns = options.budget_seconds * 1e9 / static_cast<double>(contender_count);
  for (Cell& cell : cells) {
    const std::size_t most = cell.direction == CopyDirection::to_device ? options.write_count : options.read_count;
    const bool is_single = cell.regime == Regime::single;
    for (Runner& runner : cell.runners) {
      const double call_ns = estimate_ns(runner, clock);
      // Back to back, as many calls go untimed as are then timed: they fill the link's queue of writes.
      runner.burst_count = is_single ? 1 : std::clamp(static_cast<std::size_t>(kBurstNs / call_ns), std::size_t{1}, kMaxBurst);
      runner.warm_up_count = is_single ? 1 : std::max(runner.burst_count, std::size_t{3});
      const double sample_ns = call_ns * static_cast<double>(runner.burst_count) + (is_single ? options.pause_us * 1000 : 0);
      runner.wanted_count = affordable_count(sample_ns, share_ns, most);
      runner.ticks.reserve(runner.wanted_count);
    }
  }
}

void measure(Report& report, const Options& options, const SampleClock& clock, std::vector<Cell>& cells) {
  for (std::size_t round = 0; round < options.round_count; ++round) {
    for (Cell& cell : cells) {
      report.show_progress("round {} of {}: {}, {}", round + 1, options.round_count, name_of(cell.direction),
                           bytes_text(cell.bytes));
      std::vector<Contender*> contenders;
      for (Runner& runner : cell.runners) contenders.push_back(&runner);
      const Contender* const failed = race_round(contenders, clock, options.round_count, round);
      if (failed != nullptr) fail_timed_copy(cell, *failed);
    }
  }
  for (Cell& cell : cells) {
    for (Runner& runner : cell.runners) {
      runner.summary = summarize(runner.ticks, clock.ns_per_tick() / static_cast<double>(runner.burst_count));
    }
  }
}

// The runner of that role with the least median; nothing when there is none.
const Runner* best_of(const Cell& cell, Role role) {
  const Runner* best = nullptr;
  for (const Runner& runner : cell.runners) {
    if (runner.role != role) continue;
    if (best == nullptr || runner.summary.p50_us < best->summary.p50_us) best = &runner;
  }
  return best;
}

double ratio(const Runner& over, const Runner& under) {
  return under.summary.p50_us <= 0 ? 0 : over.summary.p50_us / under.summary.p50_us;
}

Json cell_json(const Cell& cell) {
  const auto method_json = [&cell](const Runner& runner) {
    Json entry = {{"name", runner.name}};
    entry.update(to_json(runner.summary));
    entry["calls_per_sample"] = runner.burst_count;
    entry["gb_per_s"] = static_cast<double>(cell.bytes) / (runner.summary.p50_us * 1000.0);
    return entry;
  };
  Json json = {{"measure", cell.regime == Regime::single ? "copy" : "copy_back_to_back"},
               {"direction", name_of(cell.direction)},
               {"bytes", cell.bytes},
               {"data_checked", true},
               {"methods", list_of(cell.runners, method_json)}};
  const Runner& path = cell.runners[0];
  const Runner& baseline = cell.runners[1];
  json["baseline"] = baseline.name;
  json["baseline_over_path"] = ratio(baseline, path);
  if (!cell.left_out.empty()) json["left_out_as_too_slow"] = cell.left_out;
  if (const Runner* best = best_of(cell, Role::kernel)) {
    json["best_kernel"] = best->name;
    json["best_kernel_over_path"] = ratio(*best, path);
  }
  if (const Runner* chooser = best_of(cell, Role::chooser)) {
    const Runner* const best = best_of(cell, Role::method);
    json["best_method"] = best->name;
    json["copy_over_best_method"] = ratio(*chooser, *best);
  }
  return json;
}

void print_main_table(Report& report, std::span<const Cell> cells, const std::string& how) {
  const std::vector<Runner>& first = cells.front().runners;
  report.heading(fmt::format("{} beside {}, microseconds, {}", first[0].name, first[1].name, how));
  for (const Cell& cell : cells) {
    const auto pair = std::span(cell.runners).first(2);
    Row row;
    row.show("bytes", cell.bytes, "{:>10}");
    for (const Runner& runner : pair) {
      row.show(runner.name + " p50", runner.summary.p50_us, "{:>8.3f}").show("p99", runner.summary.p99_us, "{:>8.3f}");
      row.show("min", runner.summary.min_us, "{:>8.3f}");
    }
    row.show("ratio", ratio(pair[1], pair[0]), "{:>6.2f}");
    report.print_row(row.show("samples", pair[0].summary.sample_count).show("samples", pair[1].summary.sample_count));
  }
}

// The path beside all kernels, or copy() beside all methods: medians, and how it stands against the best of the others.
void print_comparison(Report& report, std::span<const Cell> cells, Role others, const std::string& title) {
  report.heading(title);
  std::vector<std::string> names;  // of the others, at the first size
  for (const Runner& runner : cells.front().runners) {
    if (runner.role == others) names.push_back(runner.name);
  }
  for (const Cell& cell : cells) {
    const Runner* const mine = others == Role::kernel ? &cell.runners[0] : best_of(cell, Role::chooser);
    const Runner* const best = best_of(cell, others);
    if (best == nullptr) continue;
    Row row;
    row.show("bytes", cell.bytes, "{:>10}").show(mine->name, mine->summary.p50_us, "{:>10.3f}");
    for (const std::string& name : names) {
      const auto found =
          std::find_if(cell.runners.begin(), cell.runners.end(), [&name](const Runner& runner) { return runner.name == name; });
      row.show(name, found == cell.runners.end() ? "-" : fmt::format("{:.3f}", found->summary.p50_us), "{:>10}");
    }
    report.print_row(row.show("time over best", fmt::format("{:.3f} {}", ratio(*mine, *best), best->name), "{:<14}"));
  }
}

// What copy_to costs over the kernel and the fence that it calls, in pairs of short runs of calls.
void measure_call_overhead(Report& report, const Workbench& bench, const SampleClock& clock) {
  constexpr std::size_t kBytes = 8;
  constexpr std::size_t kCalls = 64;
  constexpr std::size_t kPairs = 2000;
  const Mapping& mapping = bench.mapping();
  std::byte* const host = bench.host();
  const StoreKernel kernel =
      detail::active_kernels(mapping.type()).store[detail::size_class(kBytes)].load(std::memory_order_relaxed);
  Contender call = make_contender("call", [&] { return copy_to(mapping, 0, host, kBytes).is_ok(); });
  Contender bare = make_contender("bare", [&] {
    kernel(mapping.address(), host, kBytes);
    detail::fence_stores();
    return true;
  });
  const std::array both = {&call, &bare};
  for (Contender* const each : both) {
    each->warm_up_count = 0;
    each->burst_count = kCalls;
    each->ticks.reserve(kPairs);
  }
  for (std::size_t turn = 0; turn < 2 * kPairs; ++turn) {
    // Call, bare, bare, call: neither always follows the other.
    if (!both[(turn + 1) / 2 % 2]->take_samples(clock, 1))
      fail("copy_to: a copy of 8 bytes failed while its overhead was timed; GIGABAR_LOG=info tells why");
  }
  std::vector<double> calls, bares, differences;
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    calls.push_back(static_cast<double>(call.ticks[pair]) * clock.ns_per_tick() / kCalls);
    bares.push_back(static_cast<double>(bare.ticks[pair]) * clock.ns_per_tick() / kCalls);
    differences.push_back(calls[pair] - bares[pair]);
  }
  const double overhead_ns = median(differences);
  report.heading(fmt::format(
      "call overhead of copy_to at {} bytes: {:.1f} ns (call {:.1f} ns, bare kernel and fence {:.1f} ns; median of {} pairs)",
      kBytes, overhead_ns, median(calls), median(bares), kPairs));
  report.add_result({{"measure", "call_overhead"},
                     {"direction", name_of(CopyDirection::to_device)},
                     {"bytes", kBytes},
                     {"overhead_ns", overhead_ns},
                     {"call_ns", median(calls)},
                     {"bare_ns", median(bares)},
                     {"pairs", kPairs},
                     {"calls_per_pair", kCalls}});
}

void run_copylat(const Options& options, const Invocation& invocation) {
  bind_processor(options);
  Report report("copylat", invocation, options.json_path);
  report.set_device(select_device(options));
  const Workbench bench(options, options.most_bytes + kGuardBytes);
  bench.tell_memory(report);
  if (options.is_cold && bench.mapping().type() != MappingType::cached) {
    refuse_usage(fmt::format("-C: the mapping is {}, which no CPU cache keeps; leave -C out", name_of(bench.mapping().type())));
  }
  const SampleClock clock = SampleClock::calibrate();
  report.set_clock(clock);

  const Builder builder{options, bench, choose_baseline(report, bench)};
  const auto sizes = sizes_of({1, options.most_bytes});
  std::vector<Cell> cells;
  for (const CopyDirection direction : {CopyDirection::to_device, CopyDirection::from_device}) {
    for (const Regime regime : {Regime::single, Regime::back_to_back}) {
      for (const std::size_t bytes : sizes) cells.push_back(builder.build(regime, direction, bytes));
    }
  }
  report.show_progress("checking the data of every size");
  leave_out_slow_kernels(clock, cells);
  for (const Cell& cell : cells) check_cell(options, bench, cell);
  plan_samples(options, clock, cells);
  measure(report, options, clock, cells);
  for (const Cell& cell : cells) check_cell(options, bench, cell);

  const char* const host = bench.is_host_pinned() ? "pinned" : "pageable";
  const std::string pause =
      options.is_cold ? "caches evicted before each" : fmt::format("{:g} us of pause before each", options.pause_us);
  for (std::span<const Cell> left(cells); !left.empty(); left = left.subspan(2 * sizes.size())) {
    const std::string_view way = name_of(left.front().direction);
    const auto back_to_back = left.subspan(sizes.size(), sizes.size());
    print_main_table(report, left.first(sizes.size()), fmt::format("{} host memory, single copies, {}", host, pause));
    print_main_table(report, back_to_back, fmt::format("{} host memory, copies back to back", host));
    if (options.with_kernels) {
      print_comparison(report, back_to_back, Role::kernel,
                       fmt::format("raw kernels with fences ({}), back to back, p50 in microseconds", way));
    }
    if (options.with_methods) {
      print_comparison(report, back_to_back, Role::method,
                       fmt::format("copy() and each single method ({}), back to back, p50 in microseconds", way));
    }
  }
  measure_call_overhead(report, bench, clock);
  for (const Cell& cell : cells) report.add_result(cell_json(cell));
  report.print("data checked at every size, before and after the timing{}\n", stand_in_label(report.is_stand_in()));
  report.write();
}

}  // namespace

void add_copylat(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "copylat", "Time of one copy by size, both directions, beside cudaMemcpy", run_copylat);
  add_device_options(command, options);
  constexpr std::uint64_t kMaxSamples = 10000000;
  command->add_option("-s,--size", options.most_bytes, byte_count(1, std::uint64_t{1} << 34),
                      "Largest size; 1, 2, 4 ... up to it are measured");
  command->add_option("-w,--writes", options.write_count, whole_number(1, kMaxSamples), "Most samples per size, CPU to device");
  command->add_option("-r,--reads", options.read_count, whole_number(1, kMaxSamples), "Most samples per size, device to CPU");
  command->add_option("--rounds", options.round_count, whole_number(1, 1000),
                      "Passes over all sizes, so that drift hits all sizes equally");
  add_budget_option(command, options.budget_seconds, 600,
                    "About this long in all; sizes that take long get fewer samples, at least 11");
  command->add_option("--pause", options.pause_us, real_number(0, 100000, "US"),
                      "Pause before each single copy, so that nothing of the one before is under way");
  command->add_flag("-c,--cuda-memcpy", options.with_cuda_memcpy, "Also time cudaMemcpy (always done; taken for GDRCopy's sake)");
  command->add_flag("-C,--cold", options.is_cold,
                    "Evict the mapped bytes from the CPU's caches before each copy (cached mappings only)");
  command->add_flag("--kernels", options.with_kernels, "Also every raw kernel that this CPU has, with its fences, in the same run");
  command->add_flag("--methods", options.with_methods, "Also copy() and each single method, in the same run");
  command->add_option("--plant-fault", options.fault_bytes, byte_count(1))->group("");  // proves that the check can fail
  command->footer(
      "Single copies: percentiles of single calls, each after a pause. Back to back: of the mean per call of a burst. The ratio is "
      "the other's p50 over ours.");
}

}  // namespace gigabar::tool
