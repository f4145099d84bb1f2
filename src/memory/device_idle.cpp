// SPDX-License-Identifier: Apache-2.0
#include "memory/runtime.hpp"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "base/errors.hpp"
#include "base/start_thread.hpp"
#include "gigabar/device.hpp"
#include "memory/cuda_context.hpp"

namespace gigabar::inline v0 {

#if GIGABAR_HAS_CUDA

namespace {

CUresult synchronize(const cuda::Functions& functions, CUcontext context) {
  const ContextGuard guard(functions, context);
  return guard.result() == CUDA_SUCCESS ? functions.cuCtxSynchronize() : guard.result();
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
  std::promise<CUresult> synchronized;  // the thread's, which may outlive the call
  std::future<CUresult> answer = synchronized.get_future();
  std::thread waiting;
  Result<void> started =
      start_thread(waiting, "wait until idle", name, [promise = std::move(synchronized), &functions, primary = *context]() mutable {
        promise.set_value(synchronize(functions, primary));
      });
  if (!started) return started;
  waiting.detach();
  if (timeout_ns >= 0 && answer.wait_for(std::chrono::nanoseconds(timeout_ns)) != std::future_status::ready) {
    return make_error(Status::timed_out, "wait until idle", name, "kernels or copies are still running",
                      "end them, or wait longer");
  }
  const CUresult result = answer.get();
  if (result == CUDA_SUCCESS) return {};
  return cuda::failure("wait until idle", name, result);
}

#else

Result<void> wait_until_idle(int, std::int64_t) { return {}; }

#endif

}  // namespace gigabar::inline v0
