// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_stream.hpp"

#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "memory/cuda_context.hpp"
#include "memory/marked_stream.hpp"
#include "memory/runtime.hpp"

namespace gigabar {
namespace {

class HostCopies final : public CopyStream {
 public:
  Result<std::uint64_t> post(CopyWay, void* destination, const void* source, std::size_t bytes) override {
    std::memcpy(destination, source, bytes);
    return ++last_;
  }
  Result<std::uint64_t> done() override { return last_; }

 private:
  std::uint64_t last_ = 0;
};

#if GIGABAR_HAS_CUDA

constexpr std::int64_t kDrainNs = 10'000'000'000;

Error cuda_error(std::string_view what, CUresult result) {
  return make_error(cuda::status_of(result), "copy stream", std::string(what), cuda::describe_result(result), {},
                    cuda::native_code(result));
}

class CudaCopies final : public CopyStream {
 public:
  CudaCopies(const cuda::Functions& functions, CUcontext context) noexcept : functions_(functions), context_(context) {}
  ~CudaCopies() override;

  static Result<std::unique_ptr<CopyStream>> make(int device);
  Result<std::uint64_t> post(CopyWay way, void* destination, const void* source, std::size_t bytes) override;
  Result<std::uint64_t> done() override;

 private:
  CUresult prepare();
  CUresult start(CopyWay way, void* destination, const void* source, std::size_t bytes);
  std::optional<Error> failed(const char* call, CUresult result) {
    if (result != CUDA_SUCCESS && !failure_) failure_ = cuda_error(call, result);
    return failure_;
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  MarkedStream stream_;
  void* word_ = nullptr;  // pinned
  std::uint64_t done_ = 0;
  std::optional<Error> failure_;
};

Result<std::unique_ptr<CopyStream>> CudaCopies::make(int device) {
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (const char* const missing = MarkedStream::missing_function(functions)) {
    return make_error(Status::unavailable, "copy stream", text("device ", device), text("libcuda has no ", missing),
                      "update the NVIDIA driver");
  }
  auto copies = std::make_unique<CudaCopies>(functions, *context);
  if (const CUresult result = copies->prepare(); result != CUDA_SUCCESS) return cuda_error("make a stream", result);
  return std::unique_ptr<CopyStream>(std::move(copies));
}

CUresult CudaCopies::prepare() {
  const ContextGuard guard(functions_, context_);
  CUresult result = guard.result();
  if (result == CUDA_SUCCESS) result = functions_.cuMemHostAlloc(&word_, sizeof(std::uint32_t), CU_MEMHOSTALLOC_PORTABLE);
  return result == CUDA_SUCCESS ? stream_.open(functions_, static_cast<std::uint32_t*>(word_), 0) : result;
}

CudaCopies::~CudaCopies() {
  const Deadline deadline = Deadline::after_ns(kDrainNs);
  while (done() && stream_.under_way() != 0 && !deadline.has_passed()) std::this_thread::yield();
  if (stream_.under_way() != 0) {
    log(LogLevel::warning, "copy stream: copies failed or are still under way after 10 s; their stream is left to them");
    return;
  }
  const ContextGuard guard(functions_, context_);
  stream_.close();
  if (word_ != nullptr) functions_.cuMemFreeHost(word_);
}

CUresult CudaCopies::start(CopyWay way, void* destination, const void* source, std::size_t bytes) {
  const auto to = reinterpret_cast<CUdeviceptr>(destination);
  const auto from = reinterpret_cast<CUdeviceptr>(source);
  switch (way) {
    case CopyWay::to_device: return functions_.cuMemcpyHtoDAsync(to, source, bytes, stream_.stream());
    case CopyWay::from_device: return functions_.cuMemcpyDtoHAsync(destination, from, bytes, stream_.stream());
    case CopyWay::within_device: break;
  }
  return functions_.cuMemcpyDtoDAsync(to, from, bytes, stream_.stream());
}

Result<std::uint64_t> CudaCopies::post(CopyWay way, void* destination, const void* source, std::size_t bytes) {
  if (failure_) return *failure_;
  const ContextGuard guard(functions_, context_);
  if (auto error = failed("context", guard.result())) return *error;
  if (auto error = failed("copy", start(way, destination, source, bytes))) return *error;
  const std::uint32_t number = stream_.note_started();
  if (auto error = failed("mark the end of a copy", stream_.mark())) return *error;
  return done_ + (number - static_cast<std::uint32_t>(done_));
}

Result<std::uint64_t> CudaCopies::done() {
  if (failure_) return *failure_;
  std::optional<ContextGuard> guard;
  const bool is_check_due = stream_.is_check_due();
  if (is_check_due || stream_.uses_events()) guard.emplace(functions_, context_);
  if (auto error = failed("copy", stream_.look())) return *error;
  if (auto error = failed("copy", is_check_due ? stream_.check() : CUDA_SUCCESS)) return *error;
  done_ += stream_.finished() - static_cast<std::uint32_t>(done_);
  return done_;
}

#endif

}  // namespace

Result<std::unique_ptr<CopyStream>> CopyStream::open(int device) {
  if (device < 0) return std::unique_ptr<CopyStream>(std::make_unique<HostCopies>());
  auto runtime = active_runtime();
  if (!runtime) return std::move(runtime).error();
  if (*runtime == &stand_in_runtime()) return std::unique_ptr<CopyStream>(std::make_unique<HostCopies>());
#if GIGABAR_HAS_CUDA
  return CudaCopies::make(device);
#else
  return make_error(Status::unavailable, "copy stream", text("device ", device), "this build has no CUDA", {});
#endif
}

}  // namespace gigabar
