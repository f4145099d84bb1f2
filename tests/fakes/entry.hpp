// SPDX-License-Identifier: Apache-2.0
// How every fake entry point of libcuda begins.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "fakes/state.hpp"

namespace gigabar::fake {

// Of the calling thread. Kept in the state, which outlives the thread's own objects: static destructors call CUDA too.
inline std::vector<CUcontext>& context_stack() { return state().context_stacks[std::this_thread::get_id()]; }
inline CUcontext current_context() { return context_stack().empty() ? nullptr : context_stack().back(); }

inline CUstreamCaptureMode& capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

enum class Needs {
  nothing,  // works before cuInit
  init,
  context,         // a context is current on this thread
  context_unsafe,  // and no stream capture forbids the call
};

// Holds the machine's lock for the call; `result` says why the call may not go on.
struct Entry {
  Entry(const char* name, Needs needs);
  void wait_for_kernels() const {
    const Waiting counted;
    while (std::atomic_ref(state().machine.is_busy).load()) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
    }
  }
  Inside inside;
  mutable std::unique_lock<std::mutex> lock;
  CUresult result = CUDA_SUCCESS;

 private:
  struct Waiting {
    Waiting() { ++std::atomic_ref(state().machine.waiting_count); }
    ~Waiting() { --std::atomic_ref(state().machine.waiting_count); }
  };
};

}  // namespace gigabar::fake

#define GIGABAR_FAKE_ENTER(name, needs)                                 \
  const gigabar::fake::Entry entry(#name, gigabar::fake::Needs::needs); \
  if (entry.result != CUDA_SUCCESS) return entry.result;                \
  [[maybe_unused]] gigabar::fake::State& s = gigabar::fake::state()
