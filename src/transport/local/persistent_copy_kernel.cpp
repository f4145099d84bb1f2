// SPDX-License-Identifier: Apache-2.0
#include "transport/local/device_copier.hpp"

#if GIGABAR_HAS_CUDA

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>

#include "base/clock.hpp"
#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "memory/cuda_context.hpp"
#include "transport/local/copy_kernel.hpp"

GIGABAR_EMBED_DEVICE_CODE(gigabar_local_copy_kernel);

namespace gigabar::transport::local {

const void* copy_kernel_image() noexcept { return gigabar_local_copy_kernel; }

namespace {

constexpr std::int64_t kMaxKernelNs = 2'000'000;  // other work that waits for the whole device waits so long at most
constexpr std::int64_t kMaxIdleNs = 100'000;
// The CPU stops asking well before the kernel ends by itself: a request that meets its end is lost time.
constexpr std::int64_t kAskedForNs = kMaxKernelNs * 3 / 4;
constexpr std::int64_t kAskedIdleNs = kMaxIdleNs * 3 / 4;
constexpr std::int64_t kCloseNs = 100'000;  // copies that follow each other within it are worth a kernel
constexpr std::int64_t kEndNs = 1'000'000'000;

// Whether every block's word has come to `number`. Numbers wrap. `block` is the first one that is not known to have: it remembers
// how far the last look went, so that a look that is in vain costs one load.
bool have_come_to(std::uint32_t (&words)[kKernelBlocks], std::uint32_t number, unsigned& block) {
  for (; block < kKernelBlocks; ++block) {
    const std::uint32_t word = std::atomic_ref(words[block]).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(word - number) < 0) return false;
  }
  return true;
}

class CudaPersistentCopyKernel final : public PersistentCopyKernel {
 public:
  CudaPersistentCopyKernel(const cuda::Functions& functions, CUcontext context, int device, std::uint32_t first_number)
      : functions_(functions), context_(context), device_(device), last_request_(first_number), done_(first_number) {}
  ~CudaPersistentCopyKernel() override;

  Result<void> prepare();
  std::optional<std::uint32_t> post(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) override;
  void note_copy() override;
  State look(std::uint32_t number) override;
  Result<void> check() override;

 private:
  Result<void> prepare_memory();
  Result<void> load_kernel();
  CUresult launch(std::int64_t most_ns);
  bool has_started() { return have_come_to(words_->started, launches_, started_blocks_); }
  bool has_ended() { return have_come_to(words_->ended, launches_, ended_blocks_); }
  bool await_end();
  std::uint32_t store_request(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  std::uint32_t done();
  Error failed(const char* operation, CUresult result) const {
    return make_error(cuda::status_of(result), operation, text("copy kernel of device ", device_), cuda::describe_result(result),
                      "check the GPU with nvidia-smi", cuda::native_code(result));
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  const int device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::optional<Mapping> mapping_;
  KernelWords* words_ = nullptr;  // pinned
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  bool is_lost_ = false;

  std::uint32_t last_request_;
  std::uint32_t done_;        // every request up to this one is known to be done
  unsigned done_blocks_ = 0;  // have done the one after it
  std::uint32_t launches_ = 0;
  unsigned started_blocks_ = 0, ended_blocks_ = 0;
  bool was_told_to_end_ = true;
  std::int64_t launched_ns_ = 0;
  std::int64_t last_post_ns_ = 0;
  std::int64_t last_copy_ns_ = 0;
};

Result<void> CudaPersistentCopyKernel::prepare() {
  if (copy_kernel_image() == nullptr) {
    return make_error(Status::unavailable, "use the copy kernel", text("device ", device_), "this build has no device code",
                      "build with nvcc");
  }
  if (functions_.cuModuleLoadData == nullptr || functions_.cuModuleGetFunction == nullptr || functions_.cuLaunchKernel == nullptr ||
      functions_.cuModuleUnload == nullptr || functions_.cuStreamDestroy == nullptr || functions_.cuStreamQuery == nullptr) {
    return make_error(Status::unavailable, "use the copy kernel", text("device ", device_), "libcuda has no module functions",
                      "install driver 525 or newer");
  }
  if (Result<void> prepared = prepare_memory(); !prepared) return prepared;
  return load_kernel();
}

Result<void> CudaPersistentCopyKernel::prepare_memory() {
  auto memory = DeviceMemory::allocate(device_, sizeof(KernelMemory));
  if (!memory) return std::move(memory).error();
  memory_ = std::make_unique<DeviceMemory>(std::move(*memory));
  auto mapping = map(memory_->address(), sizeof(KernelMemory));
  if (!mapping) return std::move(mapping).error();
  mapping_.emplace(std::move(*mapping));
  // No slot may look as if a request were in it: they are filled with those that came before the first.
  last_request_ -= kKernelSlots;
  for (std::uint32_t slot = 0; slot < kKernelSlots; ++slot) store_request(0, 0, 0);
  const ContextGuard guard(functions_, context_);
  void* words = nullptr;
  CUresult result = guard.result();
  if (result == CUDA_SUCCESS) result = functions_.cuMemHostAlloc(&words, sizeof(KernelWords), CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) return failed("allocate pinned memory", result);
  words_ = new (words) KernelWords{};
  std::ranges::fill(words_->done, last_request_);
  result = functions_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  return result == CUDA_SUCCESS ? Result<void>() : Result<void>(failed("make a stream", result));
}

// Drivers load a kernel's code at its first launch, for which they may wait for everything that is on the GPU: that is done here.
Result<void> CudaPersistentCopyKernel::load_kernel() {
  const ContextGuard guard(functions_, context_);
  CUresult result = functions_.cuModuleLoadData(&module_, copy_kernel_image());
  if (result == CUDA_SUCCESS) result = functions_.cuModuleGetFunction(&kernel_, module_, "gigabar_local_copies");
  if (result == CUDA_SUCCESS) result = launch(0);
  if (result != CUDA_SUCCESS) return failed("load", result);
  was_told_to_end_ = true;
  if (await_end()) return {};
  is_lost_ = true;
  return make_error(Status::timed_out, "load", text("copy kernel of device ", device_), "it did not end within 1 s",
                    "check the GPU with nvidia-smi");
}

CUresult CudaPersistentCopyKernel::launch(std::int64_t most_ns) {
  KernelLaunch launch{};
  launch.memory = static_cast<KernelMemory*>(memory_->address());
  launch.words = words_;
  launch.launch = ++launches_;
  launch.first_request = last_request_ + 1;
  launch.most_ns = static_cast<std::uint64_t>(most_ns);
  launch.most_idle_ns = static_cast<std::uint64_t>(most_ns == 0 ? 0 : kMaxIdleNs);
  void* parameters[] = {&launch};
  was_told_to_end_ = false;
  started_blocks_ = ended_blocks_ = 0;
  launched_ns_ = last_post_ns_ = now_ns();
  return functions_.cuLaunchKernel(kernel_, kKernelBlocks, 1, 1, kKernelThreads, 1, 1, 0, stream_, parameters, nullptr);
}

bool CudaPersistentCopyKernel::await_end() {
  const Deadline deadline = Deadline::after_ns(kEndNs);
  while (!has_ended()) {
    if (deadline.has_passed() || is_lost_) return false;
    std::this_thread::yield();
  }
  return true;
}

CudaPersistentCopyKernel::~CudaPersistentCopyKernel() {
  const bool is_over = words_ == nullptr || await_end();
  const ContextGuard guard(functions_, context_);
  if (!is_over) {  // a kernel that is still there must find its memory
    [[maybe_unused]] DeviceMemory* const kept = memory_.release();
    return;
  }
  if (stream_ != nullptr) functions_.cuStreamDestroy(stream_);
  if (module_ != nullptr) functions_.cuModuleUnload(module_);
  if (words_ != nullptr) functions_.cuMemFreeHost(words_);
}

std::uint32_t CudaPersistentCopyKernel::store_request(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  const std::uint64_t number = ++last_request_;
  const CopyRequest request{to | number << kAddressBits, from | number << kAddressBits, bytes | number << 32};
  // Inside the mapping, which is all that could be refused.
  [[maybe_unused]] const Result<void> stored =
      copy_to(*mapping_, offsetof(KernelMemory, requests) + number % kKernelSlots * sizeof request, &request, sizeof request);
  return last_request_;
}

// The last request that every block has done.
std::uint32_t CudaPersistentCopyKernel::done() {
  while (done_ != last_request_ && have_come_to(words_->done, done_ + 1, done_blocks_)) {
    ++done_;
    done_blocks_ = 0;
  }
  return done_;
}

std::optional<std::uint32_t> CudaPersistentCopyKernel::post(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  if (was_told_to_end_ || !has_started() || last_request_ - done() >= kKernelSlots - 1)
    return std::nullopt;  // one slot is for the end
  const std::int64_t now = now_ns();
  if (now - launched_ns_ > kAskedForNs || now - last_post_ns_ > kAskedIdleNs) {
    was_told_to_end_ = true;
    store_request(0, 0, 0);
    return std::nullopt;
  }
  last_post_ns_ = now;
  return store_request(to, from, bytes);
}

void CudaPersistentCopyKernel::note_copy() {
  const std::int64_t now = now_ns();
  const bool is_close = now - last_copy_ns_ < kCloseNs;
  last_copy_ns_ = now;
  if (!is_close || is_lost_ || !has_ended()) return;
  done_ = last_request_;
  done_blocks_ = 0;
  const ContextGuard guard(functions_, context_);
  is_lost_ = guard.result() != CUDA_SUCCESS || launch(kMaxKernelNs) != CUDA_SUCCESS;
}

PersistentCopyKernel::State CudaPersistentCopyKernel::look(std::uint32_t number) {
  const auto is_done = [&] { return static_cast<std::int32_t>(done() - number) >= 0; };
  if (is_done()) return State::finished;
  if (!has_ended()) return State::running;
  return is_done() ? State::finished : State::abandoned;  // blocks say that they have ended last
}

Result<void> CudaPersistentCopyKernel::check() {
  if (has_ended()) return {};
  const ContextGuard guard(functions_, context_);
  const CUresult result = functions_.cuStreamQuery(stream_);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return {};
  is_lost_ = true;
  return failed("copy", result);
}

}  // namespace

Result<std::unique_ptr<PersistentCopyKernel>> PersistentCopyKernel::open(int device, std::uint32_t first_number) {
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  auto copier = std::make_unique<CudaPersistentCopyKernel>(cuda::driver().functions, *context, device, first_number);
  if (Result<void> prepared = copier->prepare(); !prepared) return std::move(prepared).error();
  return std::unique_ptr<PersistentCopyKernel>(std::move(copier));
}

}  // namespace gigabar::transport::local

#endif
