// SPDX-License-Identifier: Apache-2.0
// What pplat's kernels do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device_ranks/unit.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::tool {

// --- Flags ----------------------------------------------------------------------------------------------------------------------
//
// One block of pplat's kernel, which answers the CPU's flags, or sends flags that the CPU answers. Flags are 4 bytes; round i
// (1..rounds) is flag value i.
//
// Who writes what: the CPU writes the device flag and, when it starts the rounds, the data; block b writes word b of the host flags
// and, when the device starts, its part of the data. Every wait ends at the plan's deadline, or at kStopFlag.
// Ordering. To the kernel: the CPU's fence between data and flag; the thread of rank 0 loads the flag by an acquire and meets the
// others at a barrier before they load. To the CPU: the threads store, meet at a barrier, and the thread of rank 0 releases the
// flag. An answer to data needs no release, since nothing was stored: it comes behind a vote of the threads, each on the words it
// loaded. Source: PTX ISA 8, "Memory consistency model": causality order, no thin air.

// Plain: kernels get it by value.
struct FlagPlan {
  std::uint32_t rounds = 0;
  std::size_t data_bytes = 0;  // a multiple of 8; checked by whoever receives it, every round
  std::uint32_t block_count = 1;
  bool device_starts = false;    // each round, and takes the time; or the CPU does
  std::uint64_t timeout_ns = 0;  // the kernel gives up this long after its start
  // Addresses as the GPU sees them.
  std::uint32_t* device_flag = nullptr;  // CPU writes, every block polls
  std::uint32_t* host_flags = nullptr;   // block b writes word b, the CPU polls all
  std::uint64_t* data = nullptr;

  GIGABAR_DEVICE std::uint32_t sample_count() const { return device_starts ? rounds : 0; }
};

// Flag value that tells the kernel to stop.
inline constexpr std::uint32_t kStopFlag = 0xffffffffU;

// Word `index` of the data of `round`. Both sides compute it.
GIGABAR_DEVICE std::uint64_t flag_word(std::uint32_t round, std::uint64_t index) {
  return (std::uint64_t{round} << 32 | (index & 0xffffffffU)) * device_ranks::kOdd64;
}

template <class Scope>
struct FlagUnit {
  const Scope& scope;
  const FlagPlan& plan;
  const std::uint32_t index;
  device_ranks::UnitEnd* const end;  // zeroed

  // `samples`: [rounds], where the device starts, written by the first block.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const device_ranks::RunClock clock;
    const std::uint64_t deadline_ns = device::now_ns() + plan.timeout_ns;
    const bool has_data = plan.data_bytes != 0;
    std::uint32_t round = 1;
    for (; round <= plan.rounds; ++round) {
      if (plan.device_starts) {
        const std::uint64_t before = device_ranks::ticks();
        if (has_data) write_data(round);
        tell(round);
        if (!await(round, deadline_ns)) break;
        if (index == 0 && scope.rank() == 0) samples[round - 1] = device_ranks::ticks() - before;
      } else {
        if (!await(round, deadline_ns)) break;
        if (has_data) check_data(round);
        tell(round);
      }
    }
    clock.report(scope, plan.device_starts, end->status, round - 1, end);
  }

 private:
  // One thread waits for the scope. Reading the clock costs more than a poll, so it is read at every 64th.
  GIGABAR_DEVICE bool await_flag(std::uint32_t round, std::uint64_t deadline_ns) const {
    for (std::uint32_t poll = 1;; ++poll) {
      const std::uint32_t found =
          plan.data_bytes != 0 ? device::load_acquire(plan.device_flag) : device::load_relaxed(plan.device_flag);
      if (found == round) return true;
      if (found == kStopFlag) return false;
      if (poll % 64 != 0) continue;
#if !defined(__CUDA_ARCH__)
      std::this_thread::yield();  // the CPU that stores the flag may be this one
#endif
      if (device::now_ns() > deadline_ns) {
        end->status = Status::timed_out;
        return false;
      }
    }
  }

  // False for all when the flag will not come.
  GIGABAR_DEVICE bool await(std::uint32_t round, std::uint64_t deadline_ns) const {
    bool is_there = true;
    if (scope.rank() == 0) is_there = await_flag(round, deadline_ns);
    return scope.size() > 1 ? !scope.any(!is_there) : is_there;
  }

  // Behind what the scope's threads stored, or only loaded.
  GIGABAR_DEVICE void tell(std::uint32_t round) const {
    if (plan.device_starts && scope.size() > 1) scope.sync();
    if (plan.device_starts && plan.data_bytes != 0 && scope.rank() == 0) device::fence_system();
    if (scope.rank() == 0) device::store_relaxed(plan.host_flags + index, round);
  }

  // volatile: the data changes under the kernel, so nothing of it may be kept from an earlier round.
  GIGABAR_DEVICE void check_data(std::uint32_t round) const {
    bool is_wrong = false;
    const volatile std::uint64_t* const data = plan.data;
    for (std::uint64_t i = scope.rank(); i < plan.data_bytes / 8; i += scope.size()) {
      const std::uint64_t found = data[i];
      const std::uint64_t right = flag_word(round, i);
      if (found == right) continue;
      device_ranks::report_wrong(end, {round, 0, i * 8}, right, found);
      is_wrong = true;
    }
    static_cast<void>(scope.any(is_wrong));  // the host looks at the report
  }

  GIGABAR_DEVICE void write_data(std::uint32_t round) const {
    volatile std::uint64_t* const data = plan.data;
    const std::uint64_t threads = std::uint64_t{plan.block_count} * scope.size();
    for (std::uint64_t i = std::uint64_t{index} * scope.size() + scope.rank(); i < plan.data_bytes / 8; i += threads) {
      data[i] = flag_word(round, i);
    }
  }
};

using FlagBody = device_ranks::UnitBody<FlagUnit, FlagPlan>;

// Starts the kernel on a GPU. Errors: as device_ranks::run_rounds.
Result<device_ranks::AwaitKernel> start_flags(int device, const FlagPlan& plan, std::uint32_t threads_per_block);

// --- Messages -------------------------------------------------------------------------------------------------------------------
//
// The scope of pplat's kernel that answers the CPU's messages. Each answer has the message's words, each greater by one.

// Plain: kernels get it by value. Addresses as the GPU sees them.
struct CallPlan {
  std::uint32_t rounds = 0;
  std::uint64_t timeout_ns = 0;  // of the wait for each message
  device::RingEnd* from_cpu = nullptr;
  device::RingEnd* to_cpu = nullptr;

  GIGABAR_DEVICE static std::uint32_t sample_count() { return 0; }
};

struct CallBody {
  CallPlan plan;
  // Neither is written: the CPU takes the time, and sees whether answers come.
  std::uint64_t* samples = nullptr;
  device_ranks::UnitEnd* ends = nullptr;

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t) const {
    device::CpuRecvRing calls;
    device::CpuSendRing answers;
    calls.open(*plan.from_cpu);
    answers.open(*plan.to_cpu);
    const device::Timeout wait{plan.timeout_ns};
    const auto answer = [](std::uint32_t, std::uint32_t word) { return word + 1; };
    std::uint64_t bytes = 0;
    Status status = Status::ok;
    for (std::uint32_t round = 0; round < plan.rounds && status == Status::ok; ++round) {
      status = reply_words(scope, calls, answers, answer, bytes, wait);
    }
    calls.close(scope);
    answers.close(scope);
  }
};

// Starts the kernel on a GPU: one block of so many threads, or a warp, of 32. Errors: as device_ranks::run_rounds.
Result<device_ranks::AwaitKernel> start_calls(int device, const CallPlan& plan, std::uint32_t threads);

}  // namespace gigabar::tool
