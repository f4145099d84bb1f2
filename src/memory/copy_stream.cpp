#include "memory/copy_stream.hpp"

#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "memory/cuda_context.hpp"
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
  static Result<std::unique_ptr<CopyStream>> make(int device) {
    auto context = primary_context(device);
    if (!context) return std::move(context).error();
    const cuda::Functions& functions = cuda::driver().functions;
    if (functions.cuEventCreate == nullptr || functions.cuEventRecord == nullptr || functions.cuEventQuery == nullptr ||
        functions.cuStreamDestroy == nullptr || functions.cuEventDestroy == nullptr || functions.cuMemcpyDtoDAsync == nullptr) {
      return make_error(Status::unavailable, "copy stream", text("device ", device), "this libcuda has no events",
                        "update the NVIDIA driver");
    }
    const ContextGuard guard(functions, *context);
    if (guard.result() != CUDA_SUCCESS) return cuda_error("context", guard.result());
    CUstream stream = nullptr;
    if (const CUresult result = functions.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); result != CUDA_SUCCESS) {
      return cuda_error("cuStreamCreate", result);
    }
    return std::unique_ptr<CopyStream>(new CudaCopies(functions, *context, stream));
  }

  ~CudaCopies() override {
    const std::int64_t deadline = now_ns() + kDrainNs;
    while (!under_way_.empty() && now_ns() < deadline) {
      if (!done()) break;
      std::this_thread::yield();
    }
    if (!under_way_.empty()) {
      log(LogLevel::warning, "copy stream: copies are still under way after 10 s; their stream is left to them");
      return;
    }
    const ContextGuard guard(functions_, context_);
    for (CUevent_st* const event : idle_) functions_.cuEventDestroy(event);
    functions_.cuStreamDestroy(stream_);
  }

  Result<std::uint64_t> post(CopyWay way, void* destination, const void* source, std::size_t bytes) override {
    const ContextGuard guard(functions_, context_);
    if (guard.result() != CUDA_SUCCESS) return cuda_error("context", guard.result());
    if (const CUresult result = start(way, destination, source, bytes); result != CUDA_SUCCESS) return cuda_error("copy", result);
    CUevent event = nullptr;
    if (!idle_.empty()) {
      event = idle_.back();
      idle_.pop_back();
    } else if (const CUresult result = functions_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); result != CUDA_SUCCESS) {
      return cuda_error("cuEventCreate", result);
    }
    under_way_.push_back({event, ++last_});
    if (const CUresult result = functions_.cuEventRecord(event, stream_); result != CUDA_SUCCESS) {
      return cuda_error("cuEventRecord", result);
    }
    return last_;
  }

  Result<std::uint64_t> done() override {
    while (!under_way_.empty()) {
      const CUresult result = functions_.cuEventQuery(under_way_.front().event);
      if (result == CUDA_ERROR_NOT_READY) break;
      if (result != CUDA_SUCCESS) return cuda_error("cuEventQuery", result);
      done_ = under_way_.front().ticket;
      idle_.push_back(under_way_.front().event);
      under_way_.pop_front();
    }
    return done_;
  }

 private:
  struct Pending {
    CUevent event;
    std::uint64_t ticket;
  };

  CudaCopies(const cuda::Functions& functions, CUcontext context, CUstream stream) noexcept
      : functions_(functions), context_(context), stream_(stream) {}

  CUresult start(CopyWay way, void* destination, const void* source, std::size_t bytes) {
    const auto to = reinterpret_cast<CUdeviceptr>(destination);
    const auto from = reinterpret_cast<CUdeviceptr>(source);
    switch (way) {
      case CopyWay::to_device: return functions_.cuMemcpyHtoDAsync(to, source, bytes, stream_);
      case CopyWay::from_device: return functions_.cuMemcpyDtoHAsync(destination, from, bytes, stream_);
      case CopyWay::within_device: break;
    }
    return functions_.cuMemcpyDtoDAsync(to, from, bytes, stream_);
  }

  const cuda::Functions& functions_;
  CUcontext context_;
  CUstream stream_;
  std::deque<Pending> under_way_;
  std::vector<CUevent> idle_;
  std::uint64_t last_ = 0;
  std::uint64_t done_ = 0;
};

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
