// SPDX-License-Identifier: Apache-2.0
#include "streams/cuda_stream.hpp"

#if GIGABAR_HAS_CUDA

#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "streams/pattern.hpp"
#include "streams/repeat.hpp"

GIGABAR_EMBED_DEVICE_CODE(gigabar_stream_kernels);

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kScratchBytes = 4096;

const void* kernels_image() noexcept { return gigabar_stream_kernels; }

}  // namespace

Result<std::unique_ptr<StreamDevice>> StreamDevice::open(const DeviceInfo& info, bool needs_kernels) {
  const cuda::Functions& functions = cuda::driver().functions;
  const auto context = primary_context(info.index);
  if (!context) return context.error();
  std::unique_ptr<StreamDevice> device(new StreamDevice(functions, info));
  device->context = context.value();
  const std::string object = text("device ", info.index);
  const ContextGuard guard = device->enter();
  CUresult result = guard.result();
  if (result == CUDA_SUCCESS) result = functions.cuDeviceGet(&device->handle, info.index);
  if (result == CUDA_SUCCESS) {
    result =
        functions.cuDeviceGetAttribute(&device->multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->handle);
  }
  if (result == CUDA_SUCCESS) result = device->own_stream.open(functions, CudaCopyStream::Points::timed_events);
  if (result == CUDA_SUCCESS) result = functions.cuEventCreate(&device->clock_event_, CU_EVENT_DEFAULT);
  if (result == CUDA_SUCCESS) result = functions.cuEventCreate(&device->spare_event_, CU_EVENT_DEFAULT);
  if (result != CUDA_SUCCESS) return cuda::failure("prepare streams", object, result);
  auto scratch = DeviceMemory::allocate(info.index, kScratchBytes);
  if (!scratch) return std::move(scratch).error();
  device->scratch.emplace(std::move(scratch).value());
  result = device->load_kernels();
  if (result != CUDA_SUCCESS && device->no_kernels_reason.empty()) device->no_kernels_reason = cuda::describe_result(result);
  if (needs_kernels && !device->has_kernels()) {
    return make_error(Status::unavailable, "prepare streams", object, text("no kernels for it: ", device->no_kernels_reason),
                      device->no_kernels_remedy);
  }
  return device;
}

CUresult StreamDevice::load_kernels() {
  const void* const image = kernels_image();
  if (image == nullptr) {
    no_kernels_reason = "this build has no device code";
    return CUDA_ERROR_NOT_FOUND;
  }
  if (functions.cuModuleLoadData == nullptr || functions.cuModuleGetFunction == nullptr || functions.cuLaunchKernel == nullptr ||
      functions.cuModuleUnload == nullptr) {
    no_kernels_reason = "the driver has no module functions";
    return CUDA_ERROR_NOT_FOUND;
  }
  CUresult result = functions.cuModuleLoadData(&module_, image);
  if (result != CUDA_SUCCESS) {
    module_ = nullptr;
    return result;
  }
  Kernels found;
  const std::pair<CUfunction*, const char*> names[] = {{&found.copy, "gigabar_stream_copy"},
                                                       {&found.fill, "gigabar_stream_fill"},
                                                       {&found.check, "gigabar_stream_check"},
                                                       {&found.echo, "gigabar_stream_echo"},
                                                       {&found.chase, "gigabar_stream_chase"}};
  for (const auto& [kernel, name] : names) {
    result = functions.cuModuleGetFunction(kernel, module_, name);
    if (result != CUDA_SUCCESS) return result;
  }
  kernels = found;
  return load_code();
}

// Drivers load a kernel's code at its first launch, for which they may wait for everything that is on the GPU; behind a closed gate
// that is for ever. So each is launched once here, with nothing to do.
CUresult StreamDevice::load_code() {
  auto* const place = static_cast<std::byte*>(scratch->address());
  auto* const words = reinterpret_cast<std::uint64_t*>(place);
  auto* const flag = reinterpret_cast<std::uint32_t*>(place);
  constexpr std::size_t kNothing = 0;
  CUresult result = CUDA_SUCCESS;
  const auto launch_once = [&](CUfunction kernel, auto... parameters) {
    if (result == CUDA_SUCCESS) result = launch(kernel, 1, 1, own_stream.stream(), parameters...);
  };
  launch_once(kernels.copy, place, static_cast<const std::byte*>(place), kNothing);
  launch_once(kernels.fill, place, kNothing, std::uint64_t{0});
  launch_once(kernels.check, static_cast<const std::byte*>(place), kNothing, std::uint64_t{0}, words);
  launch_once(kernels.echo, static_cast<const std::uint32_t*>(flag), flag, std::uint32_t{0}, std::uint64_t{0});
  launch_once(kernels.chase, static_cast<const void*>(place), std::uint64_t{0}, words);
  if (result != CUDA_SUCCESS) return result;
  constexpr double kSeconds = 10;
  const Result<void> loaded = wait(own_stream, kSeconds, "load kernels");
  if (!loaded) no_kernels_reason = loaded.record().cause;
  if (loaded && do_launches_wait()) {
    no_kernels_reason = "a launch waits until its kernel has ended, which behind a closed gate it does not";
    no_kernels_remedy = "unset CUDA_LAUNCH_BLOCKING, run without a tool that serialises kernels, or use the copy engine";
    kernels = {};
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return loaded ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

// Twice, the second time for longer: this thread may not have run for the time of the first kernel.
bool StreamDevice::do_launches_wait() {
  constexpr std::uint64_t kShortNs = 2'000'000, kLongNs = 200'000'000;
  constexpr double kSeconds = 10;
  constexpr std::uint64_t kSeed = 0;
  auto* const place = static_cast<std::byte*>(scratch->address());
  auto* const flags = reinterpret_cast<std::uint32_t*>(place);
  const auto never = ~static_cast<std::uint32_t>(pattern_word(kSeed, 0));
  for (const std::uint64_t ns : {kShortNs, kLongNs}) {
    // It ends when its time is over, since the last flag does not come.
    CUresult result = launch(kernels.fill, 1, 1, own_stream.stream(), place, sizeof(std::uint64_t), kSeed);
    if (result == CUDA_SUCCESS) {
      result = launch(kernels.echo, 1, 1, own_stream.stream(), static_cast<const std::uint32_t*>(flags), flags + 2, never, ns);
    }
    const bool has_ended = result == CUDA_SUCCESS && functions.cuStreamQuery(own_stream.stream()) == CUDA_SUCCESS;
    static_cast<void>(wait(own_stream, kSeconds, "load kernels"));
    if (!has_ended) return false;
  }
  return true;
}

StreamDevice::~StreamDevice() {
  const ContextGuard guard = enter();
  if (clock_event_ != nullptr) functions.cuEventDestroy(clock_event_);
  if (spare_event_ != nullptr) functions.cuEventDestroy(spare_event_);
  own_stream.close();
  if (module_ != nullptr) functions.cuModuleUnload(module_);
}

Result<void> StreamDevice::wait(CudaCopyStream& stream, double seconds, const char* operation) const {
  const Deadline deadline = Deadline::after_ns(static_cast<std::int64_t>(seconds * 1e9));
  const CUresult result = stream.wait([&, pause = Pause()]() mutable {
    pause();
    return deadline.has_passed();
  });
  if (result == CUDA_SUCCESS) return {};
  if (result != CUDA_ERROR_NOT_READY) return cuda::failure(operation, text("device ", index), result);
  return make_error(Status::timed_out, operation, text("device ", index), text("did not end within ", seconds, " s"),
                    "check the GPU with nvidia-smi");
}

Result<void> StreamDevice::read_clock() {
  constexpr int kTries = 9;
  constexpr std::int64_t kTryNs = 1'000'000'000;
  const ContextGuard guard = enter();
  std::int64_t narrowest_ns = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t before_ns = now_ns();
    CUresult result = functions.cuEventRecord(spare_event_, own_stream.stream());
    if (result == CUDA_SUCCESS) {
      do {
        result = functions.cuEventQuery(spare_event_);
      } while (result == CUDA_ERROR_NOT_READY && now_ns() - before_ns < kTryNs);
    }
    if (result != CUDA_SUCCESS) return cuda::failure("read the clock", text("device ", index), result);
    const std::int64_t after_ns = now_ns();
    if (after_ns - before_ns < narrowest_ns) {
      narrowest_ns = after_ns - before_ns;
      clock_ns_ = before_ns + narrowest_ns / 2;
      std::swap(clock_event_, spare_event_);
    }
  }
  return {};
}

CUresult StreamDevice::moment_of(CUevent event, std::int64_t& at_ns) const {
  float elapsed_ms = 0;
  const CUresult result = functions.cuEventElapsedTime(&elapsed_ms, clock_event_, event);
  at_ns = clock_ns_ + static_cast<std::int64_t>(static_cast<double>(elapsed_ms) * 1e6);
  return result;
}

}  // namespace gigabar::inline v0

#endif
