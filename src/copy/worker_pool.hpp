// SPDX-License-Identifier: Apache-2.0
// Threads that share the parts of one call, asleep between calls.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/in_place.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

class WorkerPool : InPlace {
 public:
  static constexpr unsigned kMaxThreads = 64;  // of one call, the caller included
  using StartThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  using Part = void (*)(void* context, unsigned part_index);

  // `start` is replaced by tests that need it to fail.
  explicit WorkerPool(StartThread start = ::pthread_create) noexcept : start_(start) {}
  ~WorkerPool() { stop(); }

  // Calls `part` once for each index below `part_count` (at most kMaxThreads) on this thread and workers, and returns when all
  // have returned. A caller that finds the workers busy waits for them up to a second and then does its parts alone, so it never
  // depends on them. Errors: out_of_memory when a thread cannot be started; no part was called then. Threads: any.
  Result<void> run(unsigned part_count, Part part, void* context);
  // The same with body(part_index).
  template <class Body>
  Result<void> run(unsigned part_count, const Body& body) {
    const Part call = [](void* context, unsigned part_index) { (*static_cast<const Body*>(context))(part_index); };
    return run(part_count, call, const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Ends and joins the workers; later calls of run() work alone. Waits at most about 5 s: a worker that is still in a part then is
  // left to itself, so an object that saw that must not be destroyed (the library's own never is).
  void stop() noexcept;

  // The pool of this process, made on first use. A forked child gets one of its own, because threads do not cross a fork.
  static WorkerPool& of_process();

 private:
  struct Job {
    Part part = nullptr;
    void* context = nullptr;
    unsigned part_count = 0;
  };

  static void* enter(void* pool) noexcept;
  void work() noexcept;
  void take_parts(const Job& job) noexcept;
  Result<void> start_workers(unsigned count);
  void finish_call() noexcept;

  const StartThread start_;
  std::mutex mutex_;
  std::condition_variable work_;      // for workers: a job was opened, or stop
  std::condition_variable finished_;  // for the caller: no worker is inside its job
  std::condition_variable idle_;      // for other callers: the job was closed
  // Guarded by mutex_. A worker enters a job only while it is open, so none can meet the next job with the old one's data.
  std::vector<pthread_t> workers_;
  Job job_;
  bool is_open_ = false;
  bool is_stopped_ = false;
  // Written under mutex_; read without it by those who spin.
  std::atomic<std::uint64_t> sequence_{0};  // of jobs
  std::atomic<unsigned> inside_count_{0};   // workers inside the job
  std::atomic<unsigned> next_part_{0};
};

}  // namespace gigabar::inline v0
