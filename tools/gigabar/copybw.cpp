// SPDX-License-Identifier: Apache-2.0
// gigabar copybw: bandwidth of CPU-driven copies, by size, thread count and direction; data checked.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "support/clock.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool {
namespace {

struct Options : DeviceOptions {
  std::size_t allocated_bytes = 131072;
  std::size_t copied_bytes = 0;  // 0: from the offset to the end
  std::size_t offset_bytes = 0;
  bool has_all_powers = false;
  std::size_t write_count = 10000;
  std::size_t read_count = 100;
  std::size_t repeat_count = 11;
  std::vector<unsigned> thread_counts{1};
  double budget_seconds = 20;
};

// One size, direction and thread count. A sample is a run of so many copies that the clock's cost does not count.
struct Case : CopyCase {
  unsigned thread_count;
  Contender copies;
};

Contender copies_of(const Workbench& bench, const CopyCase& copied, unsigned threads) {
  const Mapping* const mapping = &bench.mapping();
  std::byte* const host = bench.host();
  const auto [direction, bytes, offset] = copied;
  const auto timed = [&](const auto& call) { return make_contender(counted(threads, "thread"), call); };
  if (direction == CopyDirection::to_device) {
    if (threads == 1) return timed([=] { return copy_to(*mapping, offset, host, bytes).is_ok(); });
    return timed([=] { return copy_to_parallel(*mapping, offset, host, bytes, threads).is_ok(); });
  }
  if (threads == 1) return timed([=] { return copy_from(*mapping, offset, host, bytes).is_ok(); });
  return timed([=] { return copy_from_parallel(*mapping, offset, host, bytes, threads).is_ok(); });
}

std::vector<Case> build_cases(const Workbench& bench, const Options& options) {
  std::vector<Case> cases;
  for (const CopyDirection direction : {CopyDirection::to_device, CopyDirection::from_device}) {
    for (const std::size_t bytes : sizes_of({options.has_all_powers ? 1 : options.copied_bytes, options.copied_bytes})) {
      for (const unsigned threads : options.thread_counts) {
        const CopyCase copied{direction, bytes, options.offset_bytes};
        cases.push_back({copied, threads, copies_of(bench, copied, threads)});
      }
    }
  }
  return cases;
}

void measure(Report& report, const Options& options, const SampleClock& clock, std::vector<Case>& cases) {
  const double share_ns = options.budget_seconds * 1e9 / static_cast<double>(cases.size());
  for (Case& one : cases) {
    const std::size_t most = one.direction == CopyDirection::to_device ? options.write_count : options.read_count;
    const std::size_t affordable = affordable_count(estimate_ns(one.copies, clock), share_ns, most);
    one.copies.burst_count = std::max<std::size_t>(1, affordable / options.repeat_count);
    one.copies.warm_up_count = 1;  // the case before this one left its own lines in the caches
  }
  for (std::size_t repeat = 0; repeat < options.repeat_count; ++repeat) {
    report.show_progress("repeat {} of {}", repeat + 1, options.repeat_count);
    for (Case& one : cases) {
      if (!one.copies.take_samples(clock, 1)) fail_timed_copy(one, one.copies);
    }
  }
}

void tell(Report& report, const SampleClock& clock, const std::vector<Case>& cases) {
  report.heading("bandwidth, 10^9 bytes per second: median, least and most of the repeats");
  for (const Case& one : cases) {
    const std::size_t call_count = one.copies.burst_count;
    std::vector<double> repeats_gb_per_s;
    for (const std::uint64_t ticks : one.copies.ticks) {
      const double elapsed_ns = static_cast<double>(ticks) * clock.ns_per_tick();
      repeats_gb_per_s.push_back(static_cast<double>(one.bytes) * static_cast<double>(call_count) / elapsed_ns);
    }
    Row row;
    row.add("direction", name_of(one.direction), "direction", "{:<12}").add("bytes", one.bytes, "bytes", "{:>10}");
    row.add("threads", one.thread_count, "threads");
    row.add("median_gb_per_s", median(repeats_gb_per_s), "median", "{:>9.3f}");  // sorts
    row.add("min_gb_per_s", repeats_gb_per_s.front(), "least", "{:>9.3f}");
    row.add("max_gb_per_s", repeats_gb_per_s.back(), "most", "{:>9.3f}");
    row.show("calls", call_count * repeats_gb_per_s.size(), "{:>8}");
    row.add("repeats", repeats_gb_per_s.size()).add("calls_per_repeat", call_count).add("data_checked", true);
    report.add_row(row);
  }
}

void settle_sizes(Options& options) {
  if (options.offset_bytes >= options.allocated_bytes) {
    refuse_usage(fmt::format("-o {}: the offset leaves the {} of -s; give a smaller offset or a larger -s", options.offset_bytes,
                             counted(options.allocated_bytes, "byte")));
  }
  const std::size_t room = options.allocated_bytes - options.offset_bytes;
  if (options.copied_bytes == 0) options.copied_bytes = room;
  if (options.copied_bytes > room) {
    refuse_usage(fmt::format("-c {}: with -o {} only {} of the {} of -s are left; give a smaller -c or a larger -s",
                             options.copied_bytes, options.offset_bytes, counted(room, "byte"), options.allocated_bytes));
  }
}

void run_copybw(Options options, const Invocation& invocation) {
  settle_sizes(options);
  bind_processor(options);
  Report report("copybw", invocation, options.json_path);
  report.set_device(select_device(options));
  const Workbench bench(options, options.allocated_bytes);
  bench.tell_memory(report);
  const SampleClock clock = SampleClock::calibrate();
  report.set_clock(clock);
  std::vector<Case> cases = build_cases(bench, options);
  report.show_progress("checking the data of every row");
  for (const Case& one : cases) check_copy(bench, one, one.copies);
  measure(report, options, clock, cases);
  for (const Case& one : cases) check_copy(bench, one, one.copies);
  tell(report, clock, cases);
  report.print("data checked in every row, before and after the timing{}\n", stand_in_label(report.is_stand_in()));
  report.write();
}

}  // namespace

void add_copybw(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "copybw", "Bandwidth of CPU-driven copies, both directions, by thread count", run_copybw);
  add_device_options(command, options);
  constexpr std::uint64_t kMaxCopies = 100000000;
  command->add_option("-s,--size", options.allocated_bytes, byte_count(1, std::uint64_t{1} << 38),
                      "Device memory to allocate and map");
  command
      ->add_option("-c,--copy-size", options.copied_bytes, byte_count(1),
                   "Bytes to copy; with -l the largest size (default: all from the offset)")
      ->default_str("");
  command->add_option("-o,--offset", options.offset_bytes, byte_count(0), "Offset of the copies in the device memory; any byte");
  command->add_flag("-l,--all-sizes", options.has_all_powers, "All powers of two up to the copy size");
  command->add_option("-w,--writes", options.write_count, whole_number(1, kMaxCopies), "Most copies per row, CPU to device");
  command->add_option("-r,--reads", options.read_count, whole_number(1, kMaxCopies), "Most copies per row, device to CPU");
  command->add_option("-T,--threads", options.thread_counts, whole_number(1, 64, "N,..."), "Thread counts, as in 1,2,4")
      ->delimiter(',')
      ->default_str("1");
  command->add_option("--repeats", options.repeat_count, whole_number(1, 1000),
                      "Timed runs per row, over which the median is taken");
  add_budget_option(command, options.budget_seconds);
}

}  // namespace gigabar::tool
