// SPDX-License-Identifier: Apache-2.0
#include "memory/runtime.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/errors.hpp"
#include "base/start_thread.hpp"
#include "gigabar/device.hpp"
#include "memory/cuda_context.hpp"

namespace gigabar::inline v0 {

#if GIGABAR_HAS_CUDA

namespace {

// Shared with the thread that waits, which may outlive the call.
struct Answer {
  std::mutex mutex;
  std::condition_variable has_come;
  bool is_done = false;
  CUresult result = CUDA_SUCCESS;
};

void synchronize(const cuda::Functions& functions, CUcontext context, Answer& answer) {
  CUresult result = CUDA_SUCCESS;
  {
    const ContextGuard guard(functions, context);
    result = guard.result() == CUDA_SUCCESS ? functions.cuCtxSynchronize() : guard.result();
  }
  const std::lock_guard lock(answer.mutex);
  answer.result = result;
  answer.is_done = true;
  answer.has_come.notify_all();
}

}  // namespace

Result<void> wait_until_idle(int device, std::int64_t timeout_ns) {
  auto list = devices();
  if (!list) return std::move(list).error();
  const std::string name = text("device ", device);
  if (device < 0 || static_cast<std::size_t>(device) >= list->size()) {
    return make_error(Status::invalid_argument, "wait until idle", name, "there is no such device", "give one of devices()");
  }
  if ((*list)[static_cast<std::size_t>(device)].is_stand_in) return {};
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuCtxSynchronize == nullptr) {
    return make_error(Status::unavailable, "wait until idle", name, "this libcuda has no cuCtxSynchronize",
                      "update the NVIDIA driver");
  }
  auto answer = std::make_shared<Answer>();
  std::thread waiting;
  Result<void> started = start_thread(waiting, "wait until idle", name,
                                      [answer, &functions, primary = *context] { synchronize(functions, primary, *answer); });
  if (!started) return started;
  waiting.detach();
  std::unique_lock lock(answer->mutex);
  const auto is_done = [&] { return answer->is_done; };
  // A wait without a limit is one with a limit, again and again: condition_variable::wait is a function of GCC 12's libstdc++ that
  // GCC 11's has not.
  const auto limit = timeout_ns < 0 ? std::chrono::hours(24) : std::chrono::nanoseconds(timeout_ns);
  while (!answer->has_come.wait_for(lock, limit, is_done)) {
    if (timeout_ns < 0) continue;
    return make_error(Status::timed_out, "wait until idle", name, "kernels or copies are still running",
                      "end them, or wait longer");
  }
  if (answer->result == CUDA_SUCCESS) return {};
  return cuda::failure("wait until idle", name, answer->result);
}

#else

Result<void> wait_until_idle(int, std::int64_t) { return {}; }

#endif

}  // namespace gigabar::inline v0
