// SPDX-License-Identifier: Apache-2.0
// An mlx5 HCA in software: executes the work requests that device::Queue writes, in their binary format, and answers with
// completions in theirs.
//
// It is for machines without an HCA, for tests, and for faults that no HCA makes on demand. The device needs nothing of it but
// memory that both reach: ring, record and doorbell where this process can read them, the CQ where it can write.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/in_place.hpp"
#include "device/soft_hca/memory_table.hpp"
#include "device/soft_hca/send_queue.hpp"
#include "device/soft_hca/wire.hpp"
#include "gigabar/device/queue.hpp"
#include "gigabar/status.hpp"

namespace gigabar::soft_hca {

inline constexpr std::uint32_t kMaxQueues = 1024;
inline constexpr std::uint32_t kFirstQueueNumber = 0x40;

// Threads: any. Queues are executed in poll(), by any number of threads: each queue by one at a time, in its order.
class SoftHca : InPlace {
 public:
  MemoryTable& memory() { return memory_; }

  // Sets up the memory and writes `queue`, which the caller brings to where kernels find it; the number of the queue. `wire` and
  // the memory must outlive the HCA. The number of a closed queue is given out again when all have been. Errors: invalid_argument
  // (names the option or the place), out_of_memory (kMaxQueues).
  Result<std::uint32_t> create_queue(const QueueOptions& options, const QueueMemory& memory, Wire& wire, device::Queue& queue);
  // Behind it nothing of the queue is executed. What it began may still land: flush it first. Errors: invalid_argument.
  Result<void> close_queue(std::uint32_t number);
  Result<void> set_faults(std::uint32_t number, const Faults& faults);
  Result<QueueStatistics> statistics(std::uint32_t number);

  // One step of each `share_count`-th queue, from `share` on; whether anything was done. Never waits: a queue that another thread
  // is in is left to it.
  bool poll(std::uint32_t share = 0, std::uint32_t share_count = 1);
  // Whether all queues, or this one, have done what was rung for. Waits for threads that are in them.
  bool is_idle();
  bool is_idle(std::uint32_t number);

 private:
  struct Slot {
    std::mutex mutex;
    std::unique_ptr<SendQueue> queue;  // guarded by mutex; null: closed
  };
  std::optional<std::uint32_t> find_slot();
  Result<std::unique_lock<std::mutex>> lock_queue(std::uint32_t number, const char* operation);

  MemoryTable memory_;
  std::mutex create_mutex_;
  std::uint32_t next_closed_ = 0;  // where the next closed queue is looked for; guarded by create_mutex_
  std::array<Slot, kMaxQueues> slots_;
  std::atomic<std::uint32_t> slot_count_{0};  // those below exist
};

// Threads that poll a software HCA, each a share of the queues. One that finds nothing to do looks again for a while, then lets
// others run between looks: it never sleeps, because nothing wakes it. When they are stopped or stalled, waits on the device end by
// their own deadlines.
class ProxyThreads : InPlace {
 public:
  static constexpr std::uint32_t kMaxThreads = 64;
  static constexpr std::uint32_t kSpinPolls = 2000;  // in vain, before the thread yields: some 100 us

  // `thread_count`: 1 to kMaxThreads. Errors: invalid_argument, out_of_memory (a thread cannot be started; none runs then).
  static Result<std::unique_ptr<ProxyThreads>> start(SoftHca& hca, std::uint32_t thread_count);
  ~ProxyThreads() { stop(); }

  // Ends and joins them, after the poll that they are in.
  void stop() noexcept;

 private:
  explicit ProxyThreads(std::uint32_t thread_count) : threads_(thread_count) {}

  std::atomic<bool> is_stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace gigabar::soft_hca
