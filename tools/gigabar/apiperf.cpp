// SPDX-License-Identifier: Apache-2.0
// gigabar apiperf: what it costs to make and end mappings, through gigabar::map and through gdrapi.h. Percentiles of single calls.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "gdrapi.h"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/clock.hpp"
#include "support/failure.hpp"
#include "support/gdr_session.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kMinBytes = 65536;

struct Options : DeviceOptions {
  std::size_t most_bytes = std::size_t{16} << 20;
  std::size_t iteration_count = 100;
  std::size_t warm_up_count = 10;
  double budget_seconds = 60;
};

// The samples of each operation, in the order of first use.
using Samples = nlohmann::ordered_map<std::string_view, std::vector<std::uint64_t>>;

struct Timer {
  const SampleClock& clock;
  Samples samples = {};  // NOLINT(readability-redundant-member-init): the initialiser may leave it out
  bool is_warming_up = true;

  // Runs `call` and keeps its time under `operation`, unless this is a warm-up pass.
  template <class Call>
  auto time(std::string_view operation, Call call) {
    const std::uint64_t start = clock.now();
    auto result = call();
    const std::uint64_t ticks = clock.now() - start;
    if (!is_warming_up) samples[operation].push_back(ticks);
    return result;
  }
};

struct MappingUse {
  std::size_t first_from_cache = 0;   // first maps that were answered from the cache
  std::size_t second_from_cache = 0;  // second maps that were
  std::size_t passes = 0;
};

// A fresh allocation, mapped for the first time (verification included), again while that mapping lives, again after it went idle.
void pass_gigabar(const Options& options, std::size_t bytes, Timer& timer, MappingUse& use) {
  DeviceMemory memory = take(DeviceMemory::allocate(options.device, bytes, options.allocator));
  const MapOptions with{.backend = options.backend};
  std::optional<Mapping> first(take(timer.time("map, first", [&] { return map(memory.address(), bytes, with); })));
  std::optional<Mapping> second(take(timer.time("map, block is mapped", [&] { return map(memory.address(), bytes, with); })));
  use.first_from_cache += first->report().came_from_cache ? 1 : 0;
  use.second_from_cache += second->report().came_from_cache ? 1 : 0;
  ++use.passes;
  const auto drop = [](std::optional<Mapping>& mapping) {
    mapping.reset();
    return true;
  };
  timer.time("unmap, window stays", [&] { return drop(second); });
  timer.time("unmap, last", [&] { return drop(first); });
  std::optional<Mapping> third(take(timer.time("map, idle window", [&] { return map(memory.address(), bytes, with); })));
  drop(third);
  timer.time("trim (window goes)", [] { return trim_mapping_cache(0); });
}

void pass_gdrapi(const Options& options, gdr_t g, std::size_t bytes, Timer& timer) {
  DeviceMemory memory = take(DeviceMemory::allocate(options.device, bytes, options.allocator));
  const auto address = reinterpret_cast<unsigned long>(memory.address());
  gdr_mh_t handle{};
  void* mapped = nullptr;
  gdr_info_t info{};
  const auto time = [&](const char* function, auto&& call) {
    const int code = timer.time(function, call);
    if (code == 0) return;
    fail(fmt::format("{} of {}: {} ({}); GDRCOPY_ENABLE_LOGGING=1 tells why", function, counted(bytes, "byte"), std::strerror(code),
                     code));
  };
  time("gdr_pin_buffer", [&] { return gdr_pin_buffer(g, address, bytes, 0, 0, &handle); });
  time("gdr_map", [&] { return gdr_map(g, handle, &mapped, bytes); });
  time("gdr_get_info", [&] { return gdr_get_info(g, handle, &info); });
  time("gdr_unmap", [&] { return gdr_unmap(g, handle, mapped, bytes); });
  time("gdr_unpin_buffer", [&] { return gdr_unpin_buffer(g, handle); });
  trim_mapping_cache(0);  // so that the next pin does not find this one's window
}

Json tell_size(Report& report, std::size_t bytes, Samples& samples, const MappingUse& use, double ns_per_tick) {
  Json operations = Json::array();
  for (auto& [name, ticks] : samples) {
    const Summary summary = summarize(ticks, ns_per_tick);
    Row row;
    row.show("bytes", bytes, "{:>10}");
    row.add("name", name, "operation", "{:<22}").merge(to_json(summary));
    row.show("p50", summary.p50_us, "{:>10.2f}").show("p99", summary.p99_us, "{:>10.2f}").show("min", summary.min_us, "{:>10.2f}");
    report.print_row(row.show("samples", summary.sample_count));
    operations.push_back(row.document());
  }
  return {{"bytes", bytes},
          {"operations", std::move(operations)},
          {"first_maps_from_cache", use.first_from_cache},
          {"second_maps_from_cache", use.second_from_cache},
          {"passes", use.passes}};
}

void run_size(const Options& options, Report& report, gdr_t g, const SampleClock& clock, std::size_t bytes,
              std::uint64_t budget_ns) {
  Timer timer{clock};
  MappingUse use;
  trim_mapping_cache(0);
  const std::uint64_t start_ns = monotonic_ns();
  // The warm-up is part of the budget; at least one pass is timed.
  for (std::size_t pass = 0; pass < options.warm_up_count + options.iteration_count; ++pass) {
    const bool is_late = monotonic_ns() - start_ns > budget_ns;
    if (is_late && !timer.is_warming_up) break;
    timer.is_warming_up = pass < options.warm_up_count && !is_late;
    if (pass % 64 == 0)
      report.show_progress("{}: pass {} of {}", bytes_text(bytes), pass + 1, options.warm_up_count + options.iteration_count);
    pass_gigabar(options, bytes, timer, use);
    pass_gdrapi(options, g, bytes, timer);
  }
  if (use.first_from_cache != 0) {
    report.note(fmt::format("{} of {} 'map, first' of {} found a window of their block, so they are not first ones",
                            use.first_from_cache, use.passes, counted(bytes, "byte")));
  }
  report.add_result(tell_size(report, bytes, timer.samples, use, clock.ns_per_tick()));
}

void run_apiperf(const Options& options, const Invocation& invocation) {
  bind_processor(options);
  Report report("apiperf", invocation, options.json_path);
  const DeviceInfo device = select_device(options);
  report.set_device(device);
  {
    const DeviceMemory memory = take(DeviceMemory::allocate(options.device, kMinBytes, options.allocator));
    report.set_mapping(map_for(memory, options));
  }
  const SampleClock clock = SampleClock::calibrate();
  report.set_clock(clock);
  ask_for_stand_ins(device, take(devices()).size());
  const GdrSession session(gdr_open());
  if (session.get() == nullptr) fail(fmt::format("gdr_open: {}; GDRCOPY_ENABLE_LOGGING=1 tells why", std::strerror(errno)));

  report.heading("microseconds per call; 'map, first' is of a fresh allocation and includes verification");
  const auto sizes = sizes_of({kMinBytes, options.most_bytes});
  const auto share_ns = static_cast<std::uint64_t>(options.budget_seconds * 1e9 / static_cast<double>(sizes.size()));
  for (const std::size_t bytes : sizes) run_size(options, report, session.get(), clock, bytes, share_ns);
  report.write();
}

}  // namespace

void add_apiperf(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "apiperf", "Time of map and unmap, and of gdrapi.h's pin, map, get_info, unmap, unpin", run_apiperf);
  add_device_options(command, options);
  command->add_option("-s,--size", options.most_bytes, byte_count(kMinBytes, std::uint64_t{1} << 36),
                      "Largest size; 64K, 128K ... up to it are measured");
  command->add_option("-n,--iterations", options.iteration_count, whole_number(1, 1000000), "Timed passes per size");
  command->add_option("-w,--warmup,--warm-up", options.warm_up_count, whole_number(0, 1000000),
                      "Untimed passes per size before the timed ones");
  add_budget_option(command, options.budget_seconds, 600,
                    "At most about this long in all; fewer passes are timed when it runs out");
}

}  // namespace gigabar::tool
