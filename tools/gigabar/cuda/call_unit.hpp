// SPDX-License-Identifier: Apache-2.0
// The scope of pplat's kernel that answers the CPU's messages. Each answer has the message's words, each greater by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device_ranks/kernels.hpp"
#include "device_ranks/unit_words.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::tool {

// Plain: kernels get it by value. Addresses as the GPU sees them.
struct CallPlan {
  std::uint32_t rounds = 0;
  std::uint64_t data_bytes = 0;  // of each message
  std::uint64_t timeout_ns = 0;  // of the wait for each message
  device::RingEnd* from_cpu = nullptr;
  device::RingEnd* to_cpu = nullptr;
  std::uint32_t* words = nullptr;  // memory for a message
};

struct CallBody {
  CallPlan plan;
  std::uint64_t* samples = nullptr;       // none
  device_ranks::UnitEnd* ends = nullptr;  // of the one unit

  std::size_t sample_count() const { return 0; }

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t) const {
    device::CpuRecvRing calls;
    device::CpuSendRing answers;
    calls.open(*plan.from_cpu);
    answers.open(*plan.to_cpu);
    const std::uint64_t begin_ns = device::now_ns();
    const device::Timeout wait{plan.timeout_ns};
    const std::uint32_t* const words = plan.words;
    const auto answer = [words](std::uint64_t i) { return words[i] + 1; };
    Status status = Status::ok;
    std::uint32_t round = 0;
    for (; round < plan.rounds; ++round) {
      std::uint64_t bytes = 0;
      status = recv(scope, calls, plan.words, plan.data_bytes, bytes, wait);
      if (status == Status::ok) status = send_words(scope, answers, bytes, answer, wait);
      if (status != Status::ok) break;
      scope.sync();  // the next message goes to the same memory
    }
    calls.close(scope);
    answers.close(scope);
    if (scope.rank() != 0) return;
    ends->rounds_done = round;
    ends->elapsed_ns = device::now_ns() - begin_ns;
    ends->status = status;
  }
};

// Starts the kernel on a GPU: one block of so many threads, or a warp, of 32. Errors: as device_ranks::run_rounds.
Result<device_ranks::AwaitKernel> start_calls(int device, const CallPlan& plan, std::uint32_t threads);

}  // namespace gigabar::tool
