// SPDX-License-Identifier: Apache-2.0
#include "copy/readback/readback.hpp"

#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"

GIGABAR_EMBED_DEVICE_CODE(gigabar_readback_kernel);

namespace gigabar::inline v0 {
const void* readback_kernel_image() noexcept { return gigabar_readback_kernel; }
}  // namespace gigabar::inline v0

#if GIGABAR_HAS_CUDA

#include <array>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/ranges.hpp"
#include "copy/readback/answer.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/memory.hpp"
#include "memory/cuda_context.hpp"

namespace gigabar::inline v0 {
namespace {

using readback::DeviceSide;
using readback::HostSide;
using readback::Request;

// The CPU stops asking well before the kernel ends by itself: a request that meets its end is lost time.
constexpr std::int64_t asked_for(std::int64_t limit_ns) { return limit_ns * 3 / 4; }
constexpr std::int64_t kTrialNs = 100'000'000;  // of the kernel that is tried
constexpr std::int64_t kStartNs = 1'000'000'000;
constexpr std::int64_t kEndNs = 1'000'000'000;
constexpr std::int64_t kCheckEveryNs = 100'000;
constexpr std::int64_t kAnswerNs = 10'000'000'000;
constexpr std::size_t kTrialBytes = 4096;

bool is_of_capture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

class CudaReadback final : public Readback {
 public:
  CudaReadback(const cuda::Functions& functions, CUcontext context, int device, ReadbackLimits limits)
      : functions_(functions), context_(context), device_(device), limits_(limits), generation_(detail::process_generation()) {}
  ~CudaReadback() override;

  Result<void> prepare(const void* image);
  bool try_copy(std::uintptr_t source, void* destination, std::size_t bytes) override;
  Result<void> copy(std::uintptr_t source, void* destination, std::size_t bytes) override;

 private:
  Result<void> prepare_memory();
  Result<void> load_kernel(const void* image);
  Result<void> try_kernel();
  CUresult launch(std::int64_t max_ns, std::int64_t max_idle_ns);
  bool start();
  bool has_started() const { return device::load_relaxed(&host().started) == launches_; }
  bool has_ended() const { return device::load_acquire(&host().ended) == launches_; }
  bool await(std::int64_t ns, const auto& condition) const;
  bool await_end() const {
    return await(kEndNs, [this] { return has_ended(); });
  }
  bool may_ask(std::int64_t now) const;
  bool may_start();
  void tell_end();
  bool is_of_this_context(std::uintptr_t source, std::size_t bytes);
  bool is_usable_here(std::uintptr_t source, std::size_t bytes);
  bool ask(std::uintptr_t source, void* destination, std::size_t bytes);
  void store(const Request& request);
  bool is_over(std::int64_t& next_check_ns, std::int64_t end_ns);

  HostSide& host() const { return *static_cast<HostSide*>(host_->address()); }
  std::string name() const { return text("readback kernel of device ", device_); }
  Error failed(const char* operation, CUresult result) const {
    return make_error(cuda::status_of(result), operation, name(), cuda::describe_result(result), "check the GPU with nvidia-smi",
                      cuda::native_code(result));
  }
  Error unavailable(std::string cause, std::string remedy) const {
    return make_error(Status::unavailable, "use the readback kernel", text("device ", device_), std::move(cause),
                      std::move(remedy));
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  const int device_;
  const ReadbackLimits limits_;
  const std::uint32_t generation_;
  std::unique_ptr<DeviceMemory> memory_;  // a DeviceSide and the bytes of the trial
  std::unique_ptr<HostMemory> host_;      // a HostSide
  std::optional<Mapping> mapping_;        // of memory_
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;

  std::mutex mutex_;  // of what follows, and of the kernel
  bool is_lost_ = false;
  std::uint32_t number_ = 0;  // of the last request
  std::uint32_t launches_ = 0;
  bool was_told_to_end_ = true;
  std::int64_t launched_ns_ = 0;
  std::int64_t last_ask_ns_ = 0;
  std::int64_t last_copy_ns_ = 0;
  // Allocations of this context that were seen since the last launch.
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint32_t launch = 0;
    bool holds(std::uintptr_t at, std::size_t count) const { return at >= begin && fits(at - begin, count, bytes); }
  };
  std::array<Range, 4> known_{};
  unsigned next_known_ = 0;
};

Result<void> CudaReadback::prepare(const void* image) {
  if (image == nullptr) return unavailable("this build has no device code", "build with nvcc");
  if (functions_.cuModuleLoadData == nullptr || functions_.cuModuleGetFunction == nullptr || functions_.cuLaunchKernel == nullptr ||
      functions_.cuModuleUnload == nullptr || functions_.cuStreamDestroy == nullptr) {
    return unavailable("libcuda has no module functions", "install driver 525 or newer");
  }
  Result<void> done = prepare_memory();
  if (done) done = load_kernel(image);
  if (done) done = try_kernel();
  return done;
}

Result<void> CudaReadback::prepare_memory() {
  auto memory = DeviceMemory::allocate(device_, sizeof(DeviceSide) + kTrialBytes);
  if (!memory) return std::move(memory).error();
  memory_ = std::make_unique<DeviceMemory>(std::move(*memory));
  auto host = HostMemory::allocate(sizeof(HostSide));
  if (!host) return std::move(host).error();
  host_ = std::make_unique<HostMemory>(std::move(*host));
  new (host_->address()) HostSide;
  auto mapping = map(memory_->address(), memory_->bytes());
  if (!mapping) return std::move(mapping).error();
  mapping_.emplace(std::move(*mapping));
  return fill(*mapping_, 0, std::byte{}, sizeof(DeviceSide));
}

// Drivers load a kernel's code at its first launch, for which they may wait for everything that is on the GPU: that is done here.
Result<void> CudaReadback::load_kernel(const void* image) {
  const ContextGuard guard(functions_, context_);
  CUresult result = guard.result();
  if (result == CUDA_SUCCESS) result = functions_.cuModuleLoadData(&module_, image);
  if (result == CUDA_SUCCESS) result = functions_.cuModuleGetFunction(&kernel_, module_, "gigabar_readback");
  if (result == CUDA_SUCCESS) result = functions_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) result = launch(0, 0);
  if (result != CUDA_SUCCESS) return failed("load", result);
  if (await_end()) return {};
  is_lost_ = true;
  return make_error(Status::timed_out, "load", name(), "it did not end within 1 s", "end the kernels that fill the GPU first");
}

// A launch that returns when the kernel has ended is of no use, and one copy shows whether all works.
Result<void> CudaReadback::try_kernel() {
  std::array<std::byte, kTrialBytes> sent;
  std::array<std::byte, kTrialBytes> received{};
  for (std::size_t i = 0; i < kTrialBytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  if (Result<void> stored = copy_to(*mapping_, sizeof(DeviceSide), sent.data(), kTrialBytes); !stored) return stored;
  const ContextGuard guard(functions_, context_);
  CUresult result = guard.result();
  if (result == CUDA_SUCCESS) result = launch(kTrialNs, kTrialNs);
  if (result != CUDA_SUCCESS) return failed("start", result);
  const bool has_waited = has_ended();
  bool is_answered = false;
  if (!has_waited && await(kStartNs, [this] { return has_started(); })) {
    const std::uintptr_t source = reinterpret_cast<std::uintptr_t>(memory_->address()) + sizeof(DeviceSide);
    is_answered = ask(source, received.data(), kTrialBytes);
  }
  tell_end();
  if (!await_end()) {
    is_lost_ = true;
    return make_error(Status::timed_out, "try", name(), "it did not end within 1 s", "end the kernels that fill the GPU first");
  }
  if (has_waited) {
    return unavailable("a launch waits until its kernel has ended",
                       "unset CUDA_LAUNCH_BLOCKING, and run without a tool that serialises kernels");
  }
  if (!is_answered)
    return make_error(Status::timed_out, "try", name(), "it gave no answer", "end the kernels that fill the GPU first");
  if (sent != received) {
    return make_error(Status::verification_failed, "try", name(), "it delivered other bytes",
                      "report this with the output of `gigabar info`");
  }
  return {};
}

CUresult CudaReadback::launch(std::int64_t max_ns, std::int64_t max_idle_ns) {
  readback::Launch parameters_of_kernel{static_cast<const DeviceSide*>(memory_->address()),
                                        &host(),
                                        launches_ + 1,
                                        readback::next(number_),
                                        static_cast<std::uint64_t>(max_ns),
                                        static_cast<std::uint64_t>(max_idle_ns)};
  void* parameters[] = {&parameters_of_kernel};
  launched_ns_ = last_ask_ns_ = now_ns();
  const CUresult result = functions_.cuLaunchKernel(kernel_, 1, 1, 1, readback::kThreads, 1, 1, 0, stream_, parameters, nullptr);
  if (result != CUDA_SUCCESS) return result;
  ++launches_;
  was_told_to_end_ = false;
  return result;
}

// False: it could not be launched. A capture that forbids it passes; everything else is for good.
bool CudaReadback::start() {
  const ContextGuard guard(functions_, context_);
  const CUresult result = guard.result() == CUDA_SUCCESS ? launch(limits_.kernel_ns, limits_.idle_ns) : guard.result();
  is_lost_ = result != CUDA_SUCCESS && !is_of_capture(result);
  if (is_lost_) log(LogLevel::warning, text(name(), " is not used any more: ", cuda::describe_result(result)));
  return result == CUDA_SUCCESS;
}

bool CudaReadback::await(std::int64_t ns, const auto& condition) const {
  const Deadline deadline = Deadline::after_ns(ns);
  while (!condition()) {
    if (deadline.has_passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

CudaReadback::~CudaReadback() {
  if (mapping_ && host_ != nullptr && !was_told_to_end_) tell_end();
  const bool is_gone = host_ == nullptr || launches_ == 0 || (!is_lost_ && await_end()) || has_ended();
  if (!is_gone) {  // a kernel that is still there must find its memory
    [[maybe_unused]] DeviceMemory* const kept = memory_.release();
    [[maybe_unused]] HostMemory* const kept_host = host_.release();
    return;
  }
  const ContextGuard guard(functions_, context_);
  if (stream_ != nullptr) functions_.cuStreamDestroy(stream_);
  if (module_ != nullptr) functions_.cuModuleUnload(module_);
}

// Before it the CPU's stores through any mapping have left it: every copy function fences.
void CudaReadback::store(const Request& request) {
  readback::store_request(*reinterpret_cast<DeviceSide*>(mapping_->address()), request);
  detail::fence_stores();
}

void CudaReadback::tell_end() {
  was_told_to_end_ = true;
  number_ = readback::next(number_);
  store({0, 0, number_});
}

bool CudaReadback::may_ask(std::int64_t now) const {
  if (was_told_to_end_ || !has_started() || has_ended()) return false;
  return now - launched_ns_ <= asked_for(limits_.kernel_ns) && now - last_ask_ns_ <= asked_for(limits_.idle_ns);
}

// Whether the last kernel is about to end or has ended. One whose time is nearly over is told so: the next one begins behind it.
bool CudaReadback::may_start() {
  if (!has_started()) return false;
  if (!was_told_to_end_ && !has_ended()) tell_end();
  return true;
}

// Kernels reach memory of their own context only; what was freed is of none. Of memory of cuMemCreate the driver does not tell.
// While a kernel runs nothing of its context is freed: cuMemFree waits for it. So one question for each launch is enough.
bool CudaReadback::is_of_this_context(std::uintptr_t source, std::size_t bytes) {
  const bool is_running = !was_told_to_end_ && !has_ended();
  for (const Range& known : known_) {
    if (is_running && known.launch == launches_ && known.holds(source, bytes)) return true;
  }
  CUcontext context = nullptr;
  CUdeviceptr begin = 0;
  std::size_t length_bytes = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {static_cast<void*>(&context), &begin, &length_bytes};
  if (functions_.cuPointerGetAttributes(std::size(names), names, values, source) != CUDA_SUCCESS) return false;
  const Range found{begin, length_bytes, launches_};
  if (context != context_ || !found.holds(source, bytes)) return false;
  if (is_running && has_started()) known_[next_known_++ % known_.size()] = found;
  return true;
}

bool CudaReadback::is_usable_here(std::uintptr_t source, std::size_t bytes) {
  return bytes >= 1 && bytes <= kMaxReadbackBytes && source + bytes < std::uintptr_t{1} << readback::kAddressBits &&
         is_of_this_context(source, bytes);
}

// Asked while an answer does not come: whether it will never. A context that is lost does not say that its kernel has ended.
bool CudaReadback::is_over(std::int64_t& next_check_ns, std::int64_t end_ns) {
  if (has_ended()) return true;
  const std::int64_t now = now_ns();
  if (now < next_check_ns) return false;
  next_check_ns = now + kCheckEveryNs;
  const ContextGuard guard(functions_, context_);
  const CUresult result = guard.result() == CUDA_SUCCESS ? functions_.cuStreamQuery(stream_) : guard.result();
  is_lost_ = now > end_ns || (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY);
  if (is_lost_) log(LogLevel::warning, text(name(), " is not used any more: no answer; ", cuda::describe_result(result)));
  return is_lost_;
}

bool CudaReadback::ask(std::uintptr_t source, void* destination, std::size_t bytes) {
  number_ = readback::next(number_);
  const auto skip = static_cast<std::uint32_t>(source % readback::kWordBytes);
  const Request request{source - skip, static_cast<std::uint32_t>(bytes) + skip, number_};
  store(request);
  std::int64_t next_check_ns = last_ask_ns_ + kCheckEveryNs;
  const std::int64_t end_ns = last_ask_ns_ + kAnswerNs;
  return readback::take_answer(host(), request, skip, static_cast<std::byte*>(destination),
                               [&] { return is_over(next_check_ns, end_ns); });
}

bool CudaReadback::try_copy(std::uintptr_t source, void* destination, std::size_t bytes) {
  if (generation_ != detail::process_generation()) return false;  // the kernel is the parent's
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || is_lost_ || !is_usable_here(source, bytes)) return false;
  const std::int64_t now = now_ns();
  const bool is_close = now - last_copy_ns_ < limits_.idle_ns;
  last_copy_ns_ = now;
  if (may_ask(now)) {
    last_ask_ns_ = now;
    return ask(source, destination, bytes);
  }
  if (is_close && may_start()) start();
  return false;
}

Result<void> CudaReadback::copy(std::uintptr_t source, void* destination, std::size_t bytes) {
  if (generation_ != detail::process_generation()) {
    return make_error(Status::not_supported, "copy", name(), "the kernel is the parent's of this process", "use another method");
  }
  const std::lock_guard lock(mutex_);
  if (!is_usable_here(source, bytes)) {
    return make_error(
        Status::not_supported, "copy", range_text(source, bytes),
        text("it is no memory of cudaMalloc in the device's primary context, or more than ", kMaxReadbackBytes, " bytes"),
        "use another method");
  }
  const Deadline deadline = Deadline::after_ns(kStartNs);
  while (!is_lost_) {
    const std::int64_t now = now_ns();
    if (may_ask(now)) {
      last_ask_ns_ = last_copy_ns_ = now;
      if (ask(source, destination, bytes)) return {};
      continue;
    }
    if (may_start() && !start()) break;
    const bool is_there = await(kStartNs, [this] { return has_started(); });
    if (!is_there || deadline.has_passed()) {
      return make_error(Status::timed_out, "copy", name(), "it does not start", "end the kernels that fill the GPU first");
    }
  }
  return make_error(Status::device_error, "copy", name(), "it cannot be started, or gave no answer",
                    "check the GPU with nvidia-smi");
}

}  // namespace

Result<std::unique_ptr<Readback>> Readback::open(int device, const void* image, ReadbackLimits limits) {
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  auto opened = std::make_unique<CudaReadback>(cuda::driver().functions, *context, device, limits);
  if (Result<void> prepared = opened->prepare(image); !prepared) return std::move(prepared).error();
  return std::unique_ptr<Readback>(std::move(opened));
}

}  // namespace gigabar::inline v0

#else

namespace gigabar::inline v0 {

Result<std::unique_ptr<Readback>> Readback::open(int device, const void*, ReadbackLimits) {
  return make_error("use the readback kernel", text("device ", device), cuda::driver().availability);
}

}  // namespace gigabar::inline v0

#endif
