// SPDX-License-Identifier: Apache-2.0
// Latencies of CPU-driven copies, in rounds that go over every kind of copy, so that drift hits all of them equally.
#include <fmt/format.h>

#include <array>

#include "cuda/runtime.hpp"
#include "support/failure.hpp"
#include "support/race.hpp"
#include "support/statistics.hpp"
#include "support/workbench.hpp"
#include "survey/figures.hpp"

namespace gigabar::tool::survey {
namespace {

constexpr std::array<std::size_t, 2> kSizes = {8, std::size_t{64} << 10};
constexpr std::size_t kMaxBytes = kSizes.back();
constexpr std::size_t kRounds = 3;  // of a pass
constexpr double kRoundNs = 8e6;    // of one contender: 12 of them make about 0.6 s a device with their pauses
constexpr std::size_t kMaxSamples = 400;
constexpr std::uint64_t kPauseNs = 20'000;  // so that nothing of the copy before is still under way

struct Runner {
  Contender contender;
  Figure figure;
};

template <class Call>
void add(std::vector<Runner>& runners, std::string key, std::string path, const Call& call) {
  Figure figure{.key = std::move(key), .unit = "us", .path = std::move(path)};
  runners.push_back({make_contender(figure.key, call, [] { spin(kPauseNs); }), std::move(figure)});
}

std::vector<Runner> runners_of(const Workbench& bench) {
  std::vector<Runner> runners;
  const bool has_cuda = !bench.device().is_stand_in && use_cuda_runtime(bench.device().index).is_ok();
  const Mapping* const mapping = &bench.mapping();
  std::byte* const host = bench.host();
  void* const device = bench.memory().address();
  const std::string through = fmt::format("CPU through {} ({})", name_of(mapping->backend()), name_of(mapping->type()));
  for (const std::size_t bytes : kSizes) {
    const auto key = [&](const char* what) { return fmt::format("gpu{} {} {}", bench.device().index, what, bytes_text(bytes)); };
    add(runners, key("copy_to"), through, [=] { return copy_to(*mapping, 0, host, bytes).is_ok(); });
    add(runners, key("copy_from"), through, [=] { return copy_from(*mapping, 0, host, bytes).is_ok(); });
    if (!has_cuda) continue;
    add(runners, key("cudaMemcpy to"), "copy engine", [=] { return cuda_memcpy(device, host, bytes); });
    add(runners, key("cudaMemcpy from"), "copy engine", [=] { return cuda_memcpy(host, device, bytes); });
  }
  return runners;
}

void check(const Workbench& bench) {
  const Mapping& mapping = bench.mapping();
  for (const std::size_t bytes : kSizes) {
    check_copy(bench, {"copy_to", CopyDirection::to_device, 0, bytes,
                       [&mapping, host = bench.host(), bytes] { return copy_to(mapping, 0, host, bytes).is_ok(); }});
    check_copy(bench, {"copy_from", CopyDirection::from_device, 0, bytes,
                       [&mapping, host = bench.host(), bytes] { return copy_from(mapping, 0, host, bytes).is_ok(); }});
  }
}

void run_round(Runner& runner, const SampleClock& clock, std::vector<std::uint64_t>& ticks) {
  const double call_ns = estimate_ns(runner.contender, clock) + static_cast<double>(kPauseNs);
  ticks.assign(affordable_count(call_ns, kRoundNs, kMaxSamples), 0);
  if (!runner.contender.run_block(clock, ticks, runner.contender.warm_up_count, 1)) {
    runner.figure.failure = "a copy failed while it was timed; GIGABAR_LOG=info tells why";
    return;
  }
  runner.figure.samples.push_back(summarize(ticks, clock.ns_per_tick()).p50_us);
}

std::vector<Figure> measure_device(const DeviceInfo& device, const SampleClock& clock) {
  DeviceOptions options;
  options.device = device.index;
  const Workbench bench(options, kMaxBytes + kGuardBytes);
  check(bench);
  std::vector<Runner> runners = runners_of(bench);
  std::vector<std::uint64_t> ticks;
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (Runner& runner : runners) {
      if (runner.figure.failure.empty()) run_round(runner, clock, ticks);
    }
  }
  check(bench);
  std::vector<Figure> figures;
  for (Runner& runner : runners) figures.push_back(std::move(runner.figure));
  return figures;
}

}  // namespace

std::vector<Figure> measure_copies(std::span<const DeviceInfo> devices, const TimeLeft& time, double share) {
  const SampleClock clock = SampleClock::calibrate();
  std::vector<Figure> figures;
  for (const DeviceInfo& device : devices) {
    if (time.is_over(share)) break;
    try {
      std::vector<Figure> more = measure_device(device, clock);
      figures.insert(figures.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    } catch (const CommandFailure& failure) {
      // One device that cannot be mapped must not hide the others.
      figures.push_back({.key = fmt::format("gpu{} copies", device.index),
                         .unit = "us",
                         .failure = failure.what(),
                         .has_wrong_data = dynamic_cast<const WrongData*>(&failure) != nullptr});
    }
  }
  return figures;
}

}  // namespace gigabar::tool::survey
