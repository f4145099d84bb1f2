// SPDX-License-Identifier: Apache-2.0
#include "support/stand_in_ping_pong.hpp"

#include <sched.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "support/clock.hpp"

namespace gigabar::tool {
namespace {

// All blocks are one thread here, so each waits and answers in turn.
class Player : public PingPong {
 public:
  explicit Player(const PingPongPlan& plan)
      : plan_(plan), deadline_ns_(monotonic_ns() + static_cast<std::uint64_t>(plan.timeout_ns)) {
    thread_ = std::thread([this] { play(); });
  }
  ~Player() override {
    if (thread_.joinable()) thread_.join();
  }
  Result<PingPongEnd> wait() override {
    thread_.join();
    return end_;
  }

 private:
  void play() {
    const std::uint64_t start_ns = monotonic_ns();
    for (std::uint32_t round = 1; round <= plan_.rounds; ++round) {
      const std::uint64_t before_ns = monotonic_ns();
      if (plan_.device_starts) {
        for (std::uint64_t i = 0; i < plan_.data_bytes / 8; ++i) plan_.data[i] = ping_pong_word(round, i);
        tell(round);
      }
      if (!await(round)) break;
      if (plan_.device_starts) {
        plan_.samples[round - 1] = monotonic_ns() - before_ns;
      } else {
        check(round);
        tell(round);
      }
      end_.rounds_done = round;
    }
    end_.elapsed_ns = static_cast<double>(monotonic_ns() - start_ns);
    end_.elapsed_cycles = monotonic_ns() - start_ns;
  }

  bool await(std::uint32_t round) {
    for (std::uint32_t poll = 1;; ++poll) {
      const std::uint32_t found = std::atomic_ref(*plan_.device_flag).load(std::memory_order_acquire);
      if (found == round) return true;
      if (found == kStopFlag) return false;
      if (poll % 64 == 0) sched_yield();  // the CPU that stores the flag may be this one
      if (poll % 256 == 0 && monotonic_ns() > deadline_ns_) {
        end_.has_timed_out = true;
        return false;
      }
    }
  }

  void check(std::uint32_t round) {
    for (std::uint64_t i = 0; i < plan_.data_bytes / 8 && !end_.has_mismatch; ++i) {
      if (plan_.data[i] == ping_pong_word(round, i)) continue;
      end_.has_mismatch = true;
      end_.mismatch_round = round;
      end_.mismatch_offset_bytes = i * 8;
      end_.mismatch_found = plan_.data[i];
    }
  }

  void tell(std::uint32_t round) {
    for (std::uint32_t block = 0; block < plan_.block_count; ++block) {
      std::atomic_ref(plan_.host_flags[block]).store(round, std::memory_order_release);
    }
  }

  const PingPongPlan plan_;
  const std::uint64_t deadline_ns_;
  PingPongEnd end_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<PingPong>> start_stand_in_ping_pong(const PingPongPlan& plan) {
  try {
    return std::unique_ptr<PingPong>(std::make_unique<Player>(plan));
  } catch (const std::system_error& error) {
    return Error({.status = Status::out_of_memory,
                  .operation = "start thread",
                  .object = "the stand-in's kernel",
                  .native = {},
                  .cause = error.what(),
                  .remedy = "raise the limit of processes (ulimit -u)"});
  }
}

}  // namespace gigabar::tool
