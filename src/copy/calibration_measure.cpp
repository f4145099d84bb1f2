// SPDX-License-Identifier: Apache-2.0
// Measuring: every candidate in turn, many times, so that whatever disturbs the machine disturbs all of them; medians decide.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "copy/chooser.hpp"
#include "copy/kernels/kernels.hpp"
#include "copy/measure.hpp"
#include "copy/parallel.hpp"
#include "copy/readback/readback.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "memory/runtime.hpp"
#include "platform/fingerprint.hpp"
#include "platform/nvidia.hpp"
#include "platform/stored_json.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
constexpr std::size_t kKernelMostBytes = std::size_t{1} << 20;  // larger copies use the kernel found best there
constexpr std::size_t kThreadsBytes = std::size_t{4} << 20;     // where thread counts are compared
constexpr std::size_t kMinWarmUp = 3;
constexpr double kWarmUpUs = 200;
constexpr double kVisitUs = 200;  // then one candidate is sampled for so long, before it is another's turn
constexpr double kBurstUs = 10;   // short copies are timed several at once: the clock costs 25 ns
// The link takes some tens of small stores at no cost; only behind them do stores cost what they cost in the long run.
constexpr std::size_t kMaxBurst = 96;
// What is 8 times slower than the best at 4 KiB or more is not tried at larger sizes, where it only falls further behind.
constexpr std::size_t kHopelessFromBytes = 4096;
constexpr double kHopeless = 8;
constexpr int kFirstVisits = 3;  // one alone may be an interrupt
constexpr double kMaxSamplesPerVisit = 16;
constexpr std::size_t kMaxSamples = 4096;

constexpr std::array<CopyDirection, 2> kDirections = {CopyDirection::to_device, CopyDirection::from_device};

// Device memory, its mapping, and host memory of both kinds.
struct Bench {
  int device;
  DeviceMemory memory;
  Mapping mapping;
  HostMemory pinned;
  HostMemory pageable;
  Readback* readback;      // null: it cannot be used here
  kernels::Choice choice;  // for write-combined mappings: what was found best so far

  std::byte* host(bool is_pinned) const { return static_cast<std::byte*>((is_pinned ? pinned : pageable).address()); }
};

Result<Bench> prepare(int device) {
  auto memory = DeviceMemory::allocate(device, kMaxBytes);
  if (!memory) return std::move(memory).error();
  auto mapping = map(memory->address(), kMaxBytes);
  if (!mapping) return std::move(mapping).error();
  auto pinned = HostMemory::allocate(kMaxBytes, {.pages = HostPages::pinned});
  if (!pinned) return std::move(pinned).error();
  auto pageable = HostMemory::allocate(kMaxBytes, {.pages = HostPages::pageable});
  if (!pageable) return std::move(pageable).error();
  const auto readback = readback_of(device);
  return Bench{device,
               std::move(memory).value(),
               std::move(mapping).value(),
               std::move(pinned).value(),
               std::move(pageable).value(),
               readback ? *readback : nullptr,
               kernels::default_choice()};
}

// One way to do one copy, and its times so far.
struct Candidate {
  std::function<Result<void>()> copy;
  bool is_never_given_up = false;  // the copy engine and several threads: they start slow and catch up
  std::vector<double> samples_us;
  std::size_t burst = 1;  // copies per sample
  std::size_t samples_per_visit = 1;
  std::size_t warm_up = kMinWarmUp;
};

// Candidates that do the same copy from or to `host`.
struct Row {
  std::size_t bytes = 0;
  std::byte* host = nullptr;
  std::vector<Candidate> candidates;
};

// Rows with the same candidates, ascending in bytes.
using Series = std::vector<Row>;

Result<void> copy_times(const Candidate& candidate, std::size_t times) {
  Result<void> done;
  for (std::size_t i = 0; i < times && done; ++i) done = candidate.copy();
  return done;
}

// Adds the samples of one visit, each the mean of a burst. The copies before them are not timed: they find the link and the copy
// engine as another candidate left them.
Result<void> visit(const Row& row, Candidate& candidate) {
  write_again(row.host, row.bytes);
  Result<void> done = copy_times(candidate, candidate.warm_up);
  for (std::size_t i = 0; i < candidate.samples_per_visit && done; ++i) {
    const std::int64_t begin_ns = now_ns();
    done = copy_times(candidate, candidate.burst);
    const double burst_us = static_cast<double>(now_ns() - begin_ns) / 1000;
    const double us = std::max(burst_us / static_cast<double>(candidate.burst), 1e-4);
    if (done && candidate.samples_us.size() < kMaxSamples) candidate.samples_us.push_back(us);
  }
  return done;
}

// How many copies make a burst, how many bursts a visit, and how many go before it untimed.
void plan_visits(Candidate& candidate) {
  const double first_us = *std::min_element(candidate.samples_us.begin(), candidate.samples_us.end());
  const auto copies_in = [&](double us, std::size_t least) {
    return static_cast<std::size_t>(std::clamp(us / first_us, static_cast<double>(least), static_cast<double>(kMaxBurst)));
  };
  candidate.burst = copies_in(kBurstUs, 1);
  candidate.warm_up = copies_in(kWarmUpUs, kMinWarmUp);
  const double burst_us = first_us * static_cast<double>(candidate.burst);
  candidate.samples_per_visit = static_cast<std::size_t>(std::clamp(kVisitUs / burst_us, 1.0, kMaxSamplesPerVisit));
}

// One visit of each candidate, after a few that tell how to visit it.
// A candidate that is hopeless at one size has no samples at the larger ones.
Result<void> sample_first(Series& series, const Deadline& give_up) {
  std::vector<bool> is_given_up(series.empty() ? 0 : series.front().candidates.size(), false);
  for (Row& row : series) {
    for (std::size_t i = 0; i < row.candidates.size(); ++i) {
      Candidate& candidate = row.candidates[i];
      if (is_given_up[i]) continue;
      if (give_up.has_passed()) {
        return make_error(Status::timed_out, "measure", text("copies of ", counted(row.bytes, "byte")),
                          "the budget ended before every copy was done once", "give a larger budget");
      }
      Result<void> done;
      for (int count = 0; done && count < kFirstVisits; ++count) done = visit(row, candidate);
      if (!done) return done;
      plan_visits(candidate);
      if (candidate.samples_per_visit == 1) continue;  // a long copy: the samples are good
      candidate.samples_us.clear();
      done = visit(row, candidate);
      if (!done) return done;
    }
    if (row.bytes < kHopelessFromBytes) continue;
    double best_us = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : row.candidates) best_us = std::min(best_us, median_of(candidate.samples_us));
    for (std::size_t i = 0; i < row.candidates.size(); ++i) {
      const Candidate& candidate = row.candidates[i];
      if (!candidate.is_never_given_up && median_of(candidate.samples_us) > kHopeless * best_us) is_given_up[i] = true;
    }
  }
  return {};
}

// Samples every candidate of every row in turn until the deadline, but all of them as often as sample_first does.
Result<void> sample_all(std::vector<Series>& all, const Deadline& deadline, const Deadline& give_up) {
  for (Series& series : all) {
    Result<void> done = sample_first(series, give_up);
    if (!done) return done;
  }
  for (;;) {
    for (Series& series : all) {
      for (Row& row : series) {
        for (Candidate& candidate : row.candidates) {
          if (deadline.has_passed()) return {};
          if (candidate.samples_us.empty()) continue;
          Result<void> done = visit(row, candidate);
          if (!done) return done;
        }
      }
    }
  }
}

// Those of write-combined mappings are what was found best so far.
StoreKernel kernel_for(const Bench& bench, CopyDirection direction, std::size_t bytes) {
  if (bench.mapping.type() != MappingType::write_combined) return active_kernel(direction, bench.mapping, bytes);
  return (direction == CopyDirection::to_device ? bench.choice.store : bench.choice.load)[detail::size_class(bytes)];
}

Result<void> copy_once(const Bench& bench, CopyDirection direction, CopyMethod method, std::byte* host, std::size_t bytes,
                       unsigned thread_count) {
  std::byte* const mapped = bench.mapping.address();
  const CopyWay way = direction == CopyDirection::to_device ? CopyWay::to_device : CopyWay::from_device;
  switch (method) {
    case CopyMethod::cpu: copy_by_kernel(direction, mapped, host, bytes, kernel_for(bench, direction, bytes)); return {};
    case CopyMethod::cpu_parallel:
      return copy_parallel(direction, mapped, host, bytes, thread_count, kernel_for(bench, direction, bytes / thread_count));
    case CopyMethod::readback: return bench.readback->copy(bench.mapping.device_address(), host, bytes);
    case CopyMethod::copy_engine: break;
  }
  return engine_copy(bench.device, way, {host, bench.mapping.device_address(), bytes});
}

bool can_copy(const Bench& bench, CopyDirection direction, CopyMethod method, std::size_t bytes) {
  if (method != CopyMethod::readback) return true;
  return bench.readback != nullptr && direction == CopyDirection::from_device && bytes <= kMaxReadbackBytes;
}

// A kernel that copies wrongly must not win: one copy of every method and size is compared with the copy engine's bytes.
Result<void> check_copies(const Bench& bench, unsigned thread_count) {
  std::byte* const sent = bench.host(true);
  std::byte* const received = bench.host(false);
  std::size_t round = 1;
  for (std::size_t bytes = 1; bytes <= kKernelMostBytes; bytes *= 2) {
    for (const CopyMethod method : {CopyMethod::cpu, CopyMethod::cpu_parallel, CopyMethod::readback}) {
      for (const CopyDirection direction : kDirections) {
        if (!can_copy(bench, direction, method, bytes)) continue;
        for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>((i * 31 + ++round * 7) >> 3);
        std::memset(received, 0x5a, bytes);
        const bool is_store = direction == CopyDirection::to_device;
        const CopyMethod out = is_store ? method : CopyMethod::copy_engine;
        const CopyMethod back = is_store ? CopyMethod::copy_engine : method;
        Result<void> done = copy_once(bench, CopyDirection::to_device, out, sent, bytes, thread_count);
        if (done) done = copy_once(bench, CopyDirection::from_device, back, received, bytes, thread_count);
        if (!done) return done;
        if (std::memcmp(sent, received, bytes) == 0) continue;
        return make_error(Status::verification_failed, "measure",
                          text(name_of(method), " ", name_of(direction), " of ", counted(bytes, "byte")),
                          "other bytes arrived than were sent", "report this with the output of `gigabar info`");
      }
    }
  }
  return {};
}

// Fills choice and names of one direction from the medians.
void take_kernels(const Series& rows, const std::vector<const CopyKernel*>& tried, CopyDirection direction, Bench& bench,
                  Calibration& calibration) {
  const bool is_store = direction == CopyDirection::to_device;
  for (std::size_t size_class = 1; size_class < detail::ActiveKernels::kSizeClasses; ++size_class) {
    const CopyKernel* const usual = is_store ? &kernels::default_store_kernel(size_class) : &kernels::default_load_kernel();
    const auto usual_index = static_cast<std::size_t>(std::find(tried.begin(), tried.end(), usual) - tried.begin());
    // One row per class up to the largest measured, whose winner serves the classes above.
    const Row& row = rows[std::min(size_class, rows.size()) - 1];
    std::vector<double> medians;
    for (const Candidate& candidate : row.candidates) medians.push_back(median_of(candidate.samples_us));
    const std::size_t best = pick_kernel(medians, usual_index);
    if (best == usual_index) continue;
    (is_store ? calibration.store_kernel : calibration.load_kernel)[size_class] = std::string(tried[best]->name);
    (is_store ? bench.choice.store : bench.choice.load)[size_class] = is_store ? tried[best]->store : tried[best]->load;
  }
}

Result<void> choose_kernels(Bench& bench, Calibration& calibration, const Deadline& deadline, const Deadline& give_up) {
  if (bench.mapping.type() != MappingType::write_combined) return {};
  std::vector<const CopyKernel*> tried;
  for (const CopyKernel& kernel : copy_kernels()) {
    // Eight bytes at a time costs milliseconds where the others cost microseconds.
    if (kernel.is_supported && kernel.name != "generic") tried.push_back(&kernel);
  }
  if (tried.size() < 2) return {};
  std::vector<Series> series(kDirections.size());
  for (std::size_t d = 0; d < kDirections.size(); ++d) {
    for (std::size_t bytes = 1; bytes <= kKernelMostBytes; bytes *= 2) {
      Row row{bytes, bench.host(true), {}};
      for (const CopyKernel* kernel : tried) {
        row.candidates.emplace_back([&bench, d, bytes, copy = d == 0 ? kernel->store : kernel->load]() -> Result<void> {
          copy_by_kernel(kDirections[d], bench.mapping.address(), bench.host(true), bytes, copy);
          return {};
        });
      }
      series[d].push_back(std::move(row));
    }
  }
  Result<void> done = sample_all(series, deadline, give_up);
  if (!done) return done;
  for (std::size_t d = 0; d < kDirections.size(); ++d) take_kernels(series[d], tried, kDirections[d], bench, calibration);
  return {};
}

// The thread count with the best product of both directions' times, among 1, 2, 4 and 8, at most half of the CPUs.
Result<void> choose_thread_count(const Bench& bench, Calibration& calibration, const Deadline& deadline, const Deadline& give_up) {
  const unsigned most = std::max(1U, std::thread::hardware_concurrency() / 2);
  std::vector<unsigned> counts;
  for (unsigned count = 1; count <= std::min(8U, most); count *= 2) counts.push_back(count);
  std::vector<Series> series;
  for (const CopyDirection direction : kDirections) {
    Row row{kThreadsBytes, bench.host(true), {}};
    for (const unsigned count : counts) {
      row.candidates.emplace_back([&bench, direction, count]() -> Result<void> {
        return copy_once(bench, direction, CopyMethod::cpu_parallel, bench.host(true), kThreadsBytes, count);
      });
    }
    series.push_back({std::move(row)});
  }
  Result<void> done = sample_all(series, deadline, give_up);
  if (!done) return done;
  std::vector<double> products;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    products.push_back(median_of(series[0][0].candidates[i].samples_us) * median_of(series[1][0].candidates[i].samples_us));
  }
  calibration.thread_count = counts[pick_kernel(products, 0)];
  return {};
}

Result<void> measure_methods(const Bench& bench, Calibration& calibration, const Deadline& deadline, const Deadline& give_up) {
  std::vector<CopyMethod> methods = {CopyMethod::cpu, CopyMethod::copy_engine};
  if (calibration.thread_count > 1) methods.push_back(CopyMethod::cpu_parallel);  // with one it would be `cpu` again
  methods.push_back(CopyMethod::readback);  // the last: rows that it cannot copy have no candidate of it
  std::vector<Series> series;
  for (const CopyDirection direction : kDirections) {
    for (const bool is_pinned : {false, true}) {
      Series rows;
      for (std::size_t bytes = 1; bytes <= kMaxBytes; bytes *= 2) {
        Row row{bytes, bench.host(is_pinned), {}};
        for (const CopyMethod method : methods) {
          if (!can_copy(bench, direction, method, bytes)) continue;
          row.candidates.emplace_back(
              [&bench, direction, method, host = bench.host(is_pinned), bytes, count = calibration.thread_count]() -> Result<void> {
                return copy_once(bench, direction, method, host, bytes, count);
              },
              method != CopyMethod::cpu);
        }
        rows.push_back(std::move(row));
      }
      series.push_back(std::move(rows));
    }
  }
  Result<void> done = sample_all(series, deadline, give_up);
  if (!done) return done;
  std::size_t index = 0;
  for (const CopyDirection direction : kDirections) {
    for (const bool is_pinned : {false, true}) {
      for (const Row& row : series[index++]) {
        CalibrationPoint point{direction, is_pinned, row.bytes, {}};
        point.median_us.fill(std::numeric_limits<double>::infinity());
        for (std::size_t m = 0; m < row.candidates.size(); ++m) {
          point.median_us[static_cast<std::size_t>(methods[m])] = median_of(row.candidates[m].samples_us);
        }
        calibration.points.push_back(point);
      }
    }
  }
  return {};
}

}  // namespace

double median_of(std::vector<double> samples) {
  if (samples.empty()) return std::numeric_limits<double>::infinity();
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

std::size_t pick_kernel(const std::vector<double>& medians_us, std::size_t usual_index) {
  constexpr double kMustWinBy = 0.95;  // the best kernels are so near to each other that less is chance
  const auto best = std::min_element(medians_us.begin(), medians_us.end());
  if (best == medians_us.end()) return usual_index;
  return *best < medians_us[usual_index] * kMustWinBy ? static_cast<std::size_t>(best - medians_us.begin()) : usual_index;
}

Result<Calibration> Calibration::measure(int device, double budget_seconds) try {
  const Uncancelled uncancelled;
  if (!(budget_seconds >= 0.5 && budget_seconds <= 600)) {
    return make_error(Status::invalid_argument, "measure", text("budget_seconds ", budget_seconds), "is not 0.5 to 600",
                      "give seconds in that range");
  }
  const auto info = find_device("measure", device);
  if (!info) return info.error();
  auto bench = prepare(device);
  if (!bench) return std::move(bench).error();

  Calibration calibration;
  calibration.is_measured = true;
  calibration.device_name = info->name;
  calibration.device_uuid = info->uuid;
  calibration.cpu_name = processor_name();
  calibration.driver_version = info->is_stand_in ? "" : nvidia_driver_version();
  calibration.date = stored::date_now();

  // Shares of the budget: a third for kernels, a tenth for thread counts, the rest for methods; a first pass may use all of it.
  const auto budget_ns = static_cast<std::int64_t>(budget_seconds * 1e9);
  const Deadline end = Deadline::after_ns(budget_ns);
  Result<void> done = choose_kernels(*bench, calibration, Deadline::after_ns(budget_ns / 3), end);
  if (done) done = choose_thread_count(*bench, calibration, Deadline::after_ns(budget_ns / 10), end);
  if (done) done = check_copies(*bench, calibration.thread_count);
  if (done) done = measure_methods(*bench, calibration, end, end);
  if (!done) return std::move(done).error();
  return calibration;
} catch (...) {
  return error_of_exception("measure");
}

}  // namespace gigabar::inline v0
