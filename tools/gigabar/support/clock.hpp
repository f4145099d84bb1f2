// SPDX-License-Identifier: Apache-2.0
// The clock of single samples: the time-stamp counter, unless clock_gettime is cheaper; calibrated, with its own cost measured. And
// several ways to do the same thing, timed call by call in turns, so that drift of the machine hits all of them equally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace gigabar::tool {

inline std::uint64_t monotonic_ns() noexcept { return static_cast<std::uint64_t>(now_ns()); }

inline void spin(std::uint64_t duration_ns) noexcept {
  const std::uint64_t until_ns = monotonic_ns() + duration_ns;
  while (monotonic_ns() < until_ns) {
  }
}

class SampleClock {
 public:
  // Compares the counter with CLOCK_MONOTONIC for about 40 ms; a counter that is not invariant, or whose two halves of that time
  // disagree, is not used.
  static SampleClock calibrate();

  // A reading in ticks. On x86-64: everything before it has executed, nothing after it has started (rdtscp, then lfence).
  std::uint64_t now() const noexcept {
#if defined(__x86_64__)
    if (is_counter_) {
      unsigned processor = 0;
      const std::uint64_t ticks = __builtin_ia32_rdtscp(&processor);
      __builtin_ia32_lfence();
      return ticks;
    }
#endif
    return monotonic_ns();
  }

  std::string_view name() const noexcept { return is_counter_ ? "rdtscp" : "clock_gettime"; }
  double ns_per_tick() const noexcept { return ns_per_tick_; }
  // Median time between two readings with nothing between them: it is contained in every sample and is not subtracted.
  double cost_ns() const noexcept { return cost_ns_; }

 private:
  double measure_cost() const;
  bool is_counter_ = false;
  double ns_per_tick_ = 1.0;
  double cost_ns_ = 0.0;
};

struct Contender {
  std::string name;
  // Runs `warm_up_count` untimed calls, then one burst of `burst_count` calls, timed as a whole, per element of `ticks`. False when
  // a call said that it failed.
  std::function<bool(const SampleClock&, std::span<std::uint64_t> ticks, std::size_t warm_up_count, std::size_t burst_count)>
      run_block;
  std::size_t warm_up_count = 4;     // untimed calls before each block
  std::size_t burst_count = 1;       // calls per sample; 1: samples of single calls
  std::size_t wanted_count = 0;      // samples still to be taken over all rounds
  std::vector<std::uint64_t> ticks;  // taken

  // A block of so many more samples. False when a call said that it failed.
  bool take_samples(const SampleClock& clock, std::size_t count);
};

struct Nothing {
  void operator()() const {}
};

// `call` returns false when it failed. `prepare` runs before each call or burst, `begin_block` before all of a block, both outside
// the time.
template <class Call, class Prepare = Nothing, class BeginBlock = Nothing>
Contender make_contender(std::string name, const Call& call, const Prepare& prepare = {}, const BeginBlock& begin_block = {}) {
  Contender contender;
  contender.name = std::move(name);
  contender.run_block = [=](const SampleClock& clock, std::span<std::uint64_t> ticks, std::size_t warm_up_count,
                            std::size_t burst_count) {
    bool is_good = true;
    begin_block();
    for (std::size_t i = 0; i < warm_up_count; ++i) {
      prepare();
      is_good &= call();
    }
    for (std::uint64_t& sample : ticks) {
      prepare();
      const std::uint64_t start = clock.now();
      for (std::size_t i = 0; i < burst_count; ++i) is_good &= call();
      sample = clock.now() - start;
    }
    return is_good;
  };
  return contender;
}

// The least time of three calls after one, in ns.
double estimate_ns(Contender& contender, const SampleClock& clock);

// How many samples fit into `budget_ns`: never more than `most`, never fewer than kMinSamples.
inline constexpr std::size_t kMinSamples = 11;
std::size_t affordable_count(double call_ns, double budget_ns, std::size_t most) noexcept;

// Takes one round's part (1 / round_count of wanted_count, rounded up) of every contender's samples, in short blocks, in turns
// whose order `seed` shuffles anew each time, so that nobody always follows the same one. Returns a contender whose call failed, or
// null.
const Contender* race_round(std::span<Contender* const> contenders, const SampleClock& clock, std::size_t round_count,
                            std::size_t seed);

}  // namespace gigabar::tool
