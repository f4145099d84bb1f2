// SPDX-License-Identifier: Apache-2.0
// Which runtime answers, and what is asked of them all: devices(), drivers(), describe(), and to end their work.
#include "memory/runtime.hpp"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "base/errors.hpp"
#include "base/names.hpp"
#include "base/options.hpp"
#include "base/start_thread.hpp"
#include "base/uncancelled.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/gdrdrv/gdrdrv.hpp"
#include "driver/nvml/nvml.hpp"
#include "driver/rm/resource_manager.hpp"
#include "memory/cuda_context.hpp"
#include "platform/numa.hpp"
#include "platform/nvidia.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {

Result<int> forced_stand_in_count() {
  const std::string value = environment("GIGABAR_STAND_IN").value_or("");
  if (value.empty()) return 0;
  if (const auto count = parse_number<int>(value, 1, 64)) return *count;
  return make_error(Status::invalid_argument, "list devices", "GIGABAR_STAND_IN", "'" + value + "' is not a number from 1 to 64",
                    "unset it to use the GPUs, or set it to the number of stand-in devices");
}

Result<Runtime*> active_runtime() {
  const auto forced = forced_stand_in_count();
  if (!forced) return forced.error();
  if (*forced > 0) return &stand_in_runtime();
  if (Runtime* runtime = cuda_runtime()) return runtime;
  const Availability& why = cuda::driver().availability;
  if (why.code == AvailabilityCode::driver_unknown) {
    return make_error(Status::device_error, "list devices", "libcuda", why.reason, why.remedy, why.native);
  }
  return &stand_in_runtime();
}

Runtime& runtime_of(const PointerInfo& memory) {
  if (memory.kind == MemoryKind::stand_in) return stand_in_runtime();
  Runtime* runtime = cuda_runtime();
  return runtime != nullptr ? *runtime : stand_in_runtime();
}

namespace {

Availability resource_manager_availability() {
  const std::string version = nvidia_driver_version();
  const auto opened = rm::ResourceManager::open(platform_roots().dev, version);
  if (!opened) return availability_of(opened.error().record());
  return {AvailabilityCode::ok, "driver " + version, {}};
}

Availability gdrdrv_availability() {
  const auto opened = gdrdrv::Module::open(platform_roots().dev);
  if (!opened) return availability_of(opened.error().record());
  return {AvailabilityCode::ok,
          text("version ", (*opened)->version(), (*opened)->is_persistent() ? ", persistent" : ", not persistent"),
          {}};
}

}  // namespace

Result<std::vector<DeviceInfo>> devices() try {
  const Uncancelled uncancelled;
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  return (*runtime)->devices();
} catch (...) {
  return error_of_exception("devices");
}

std::vector<DriverReport> drivers() try {
  const Uncancelled uncancelled;
  return {{"libcuda", cuda::driver().availability},
          {"nvml", nvml::availability()},
          {"resource manager", resource_manager_availability()},
          {"gdrdrv", gdrdrv_availability()}};
} catch (...) {
  return {};
}

std::string_view name_of(MemoryKind kind) noexcept {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"host_pageable", "host_pinned", "device", "device_vmm", "device_pool", "managed", "stand_in"});
  static_assert(kNames.size() == static_cast<std::size_t>(MemoryKind::stand_in) + 1);
  return name_at(kNames, kind);
}

Result<PointerInfo> describe(const void* address) try {
  const Uncancelled uncancelled;
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr) return make_error(Status::invalid_argument, "describe", "address", "is null", "pass a pointer");
  for (Runtime* runtime : {&stand_in_runtime(), cuda_runtime()}) {
    if (runtime == nullptr) continue;
    const auto known = runtime->describe(value);
    if (!known) return known.error();
    if (known->has_value()) return **known;
  }
  if (const auto pinned = find_pinned_host_memory(value)) return *pinned;
  PointerInfo info;
  info.address = info.base = value;
  info.numa_node = numa_node_of_page(value);
  return info;
} catch (...) {
  return error_of_exception("describe");
}

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

Runtime* cuda_runtime() { return nullptr; }
Result<void> wait_until_idle(int, std::int64_t) { return {}; }

#endif

}  // namespace gigabar::inline v0
