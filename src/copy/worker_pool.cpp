// SPDX-License-Identifier: Apache-2.0
#include "copy/worker_pool.hpp"

#include <chrono>
#include <ctime>
#include <memory>

#include "base/blocked_signals.hpp"
#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "gigabar/mapping.hpp"

namespace gigabar::inline v0 {
namespace {

using std::chrono::seconds;

// Waking a sleeping thread costs 5-50 µs, as much as copying 1 MiB: who is likely to be needed soon looks before it sleeps.
constexpr std::int64_t kSpinNs = 20'000;
constexpr seconds kBusyWait{1};
constexpr seconds kReportAfter{10};
constexpr int kJoinSeconds = 5;

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Condition>
void spin_until(Condition condition) noexcept {
  const Deadline deadline = Deadline::after_ns(kSpinNs);
  while (!condition() && !deadline.has_passed()) pause_cpu();
}

}  // namespace

void WorkerPool::take_parts(const Job& job) noexcept {
  for (;;) {
    const unsigned index = next_part_.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.part_count) return;
    job.part(job.context, index);
  }
}

void* WorkerPool::enter(void* pool) noexcept {
  static_cast<WorkerPool*>(pool)->work();
  return nullptr;
}

void WorkerPool::work() noexcept {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    const bool has_job = work_.wait_for(lock, kReportAfter, [&] { return is_stopped_ || (is_open_ && seen != sequence_); });
    if (!has_job || is_stopped_) continue;
    seen = sequence_;
    const Job job = job_;
    ++inside_count_;
    lock.unlock();
    take_parts(job);
    lock.lock();
    if (--inside_count_ == 0) finished_.notify_one();
    lock.unlock();
    spin_until([&] { return seen != sequence_.load(std::memory_order_relaxed); });
    lock.lock();
  }
}

Result<void> WorkerPool::start_workers(unsigned count) {
  if (workers_.size() >= count) return {};
  workers_.reserve(count);
  const BlockedSignals blocked;
  int code = 0;
  while (code == 0 && workers_.size() < count) {
    pthread_t worker{};
    code = start_(&worker, nullptr, &WorkerPool::enter, this);
    if (code == 0) workers_.push_back(worker);
  }
  if (code == 0) return {};
  return cannot_start_thread("start thread", text("worker ", workers_.size() + 1, " of ", count), code);
}

Result<void> WorkerPool::run(unsigned part_count, Part part, void* context) {
  const Job job{part, context, part_count};
  const auto alone = [&] {
    for (unsigned index = 0; index < part_count; ++index) part(context, index);
    return Result<void>();
  };
  if (part_count <= 1) return alone();

  {
    std::unique_lock lock(mutex_);
    if (!idle_.wait_for(lock, kBusyWait, [&] { return !is_open_; }) || is_stopped_) {
      lock.unlock();
      return alone();
    }
    Result<void> started = start_workers(part_count - 1);
    if (!started) return started;
    job_ = job;
    next_part_.store(0, std::memory_order_relaxed);
    is_open_ = true;
    sequence_.fetch_add(1);
  }
  work_.notify_all();
  take_parts(job);
  spin_until([&] { return inside_count_.load(std::memory_order_relaxed) == 0; });
  finish_call();
  return {};
}

// All parts are taken; waits for those that workers have not finished. A part is a bounded loop over the caller's buffer, which may
// not be given back while a worker is in it: the deadline here reports and does not give up.
void WorkerPool::finish_call() noexcept {
  {
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, kReportAfter, [&] { return inside_count_ == 0; })) {
      quietly([&] {
        log(LogLevel::warning,
            text("parallel copy: ", counted(inside_count_.load(), "thread"), " not finished after ", kReportAfter.count(), " s"));
      });
    }
    is_open_ = false;
  }
  idle_.notify_one();
}

void WorkerPool::stop() noexcept {
  std::vector<pthread_t> workers;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    workers.swap(workers_);
  }
  work_.notify_all();
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kJoinSeconds;
  for (const pthread_t worker : workers) {
    if (pthread_timedjoin_np(worker, nullptr, &until) == 0) continue;
    quietly([] { log(LogLevel::warning, text("parallel copy: a thread did not end within ", kJoinSeconds, " s")); });
    pthread_detach(worker);
  }
}

namespace {

// The pool of one process. Never destroyed, so that a copy from another static destructor still finds it; the parent's stays as an
// untouched block of memory in a forked child.
struct ProcessPool {
  explicit ProcessPool(ProcessPool* parent) : generation(detail::process_generation()), previous(parent) {}
  const std::uint32_t generation;
  ProcessPool* const previous;
  WorkerPool pool;
};

constinit std::atomic<ProcessPool*> process_pool{nullptr};

// Workers end before the rest of the program is taken down.
struct StopAtExit {
  ~StopAtExit() {
    ProcessPool* current = process_pool.load();
    if (current != nullptr && current->generation == detail::process_generation()) current->pool.stop();
  }
};

}  // namespace

WorkerPool& WorkerPool::of_process() {
  static const StopAtExit stop_at_exit;
  ProcessPool* current = process_pool.load(std::memory_order_acquire);
  while (current == nullptr || current->generation != detail::process_generation()) {
    auto made = std::make_unique<ProcessPool>(current);
    if (process_pool.compare_exchange_strong(current, made.get(), std::memory_order_acq_rel)) current = made.release();
  }
  return current->pool;
}

}  // namespace gigabar::inline v0
