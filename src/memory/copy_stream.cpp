// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_stream.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "memory/cuda_context.hpp"
#include "memory/cuda_copy_stream.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
#if GIGABAR_HAS_CUDA
namespace {

constexpr std::int64_t kCheckEveryNs = 100'000;
constexpr std::int64_t kDrainNs = 10'000'000'000;
// Of CudaEngine.
constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kStagingBytes = 4096;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kMaxGivenUp = 16;

Error copy_error(CUresult result) {
  return make_error(cuda::status_of(result) == Status::out_of_memory ? Status::out_of_memory : Status::device_error, "copy engine",
                    "copy", cuda::describe_result(result), {}, cuda::native_code(result));
}

}  // namespace

const char* CudaCopyStream::missing_function(const cuda::Functions& f) noexcept {
  if (f.cuStreamDestroy == nullptr) return "cuStreamDestroy";
  if (f.cuEventCreate == nullptr) return "cuEventCreate";
  if (f.cuEventDestroy == nullptr) return "cuEventDestroy";
  if (f.cuEventRecord == nullptr) return "cuEventRecord";
  if (f.cuEventQuery == nullptr) return "cuEventQuery";
  return f.cuMemcpyDtoDAsync == nullptr ? "cuMemcpyDtoDAsync" : nullptr;
}

CUresult CudaCopyStream::open(const cuda::Functions& functions, Points points, std::uint64_t first_number) {
  functions_ = &functions;
  started_ = recorded_ = finished_ = first_number;
  event_flags_ = points == Points::timed_events ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  uses_events_ = points == Points::timed_events || functions_->cuStreamWriteValue32 == nullptr;
  if (!uses_events_) {
    void* word = nullptr;
    const CUresult result = functions_->cuMemHostAlloc(&word, sizeof *word_, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) return result;
    word_ = static_cast<std::uint32_t*>(word);
    *word_ = static_cast<std::uint32_t>(first_number);
  }
  return functions_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
}

void CudaCopyStream::close() {
  if (stream_ != nullptr) functions_->cuStreamDestroy(stream_);
  for (const Point& point : points_) functions_->cuEventDestroy(point.event);
  for (CUevent_st* const event : free_events_) functions_->cuEventDestroy(event);
  if (word_ != nullptr && under_way() == 0) functions_->cuMemFreeHost(word_);
  stream_ = nullptr;
  word_ = nullptr;
  points_.clear();
  free_events_.clear();
}

CUresult CudaCopyStream::copy(CopyWay way, void* destination, const void* source, std::size_t bytes) {
  const auto to = reinterpret_cast<CUdeviceptr>(destination);
  const auto from = reinterpret_cast<CUdeviceptr>(source);
  CUresult result = CUDA_SUCCESS;
  switch (way) {
    case CopyWay::to_device: result = functions_->cuMemcpyHtoDAsync(to, source, bytes, stream_); break;
    case CopyWay::from_device: result = functions_->cuMemcpyDtoHAsync(destination, from, bytes, stream_); break;
    case CopyWay::between_devices: result = functions_->cuMemcpyDtoDAsync(to, from, bytes, stream_); break;
  }
  if (result == CUDA_SUCCESS) note_started();
  return result;
}

void CudaCopyStream::note_started() {
  if (under_way() == 0) next_check_ns_ = now_ns() + kCheckEveryNs;
  ++started_;
}

CUresult CudaCopyStream::record_event() {
  if (free_events_.empty()) {
    CUevent event = nullptr;
    if (const CUresult result = functions_->cuEventCreate(&event, event_flags_); result != CUDA_SUCCESS) return result;
    free_events_.push_back(event);
  }
  points_.push_back({started_, free_events_.back()});
  const CUresult result = functions_->cuEventRecord(free_events_.back(), stream_);
  result == CUDA_SUCCESS ? free_events_.pop_back() : points_.pop_back();
  return result;
}

// The stream's write is ordered behind the copy, everywhere: by default it comes after a fence of the whole system.
// Source: CUDA driver API, "Stream Memory Operations", cuStreamWriteValue32.
CUresult CudaCopyStream::record() {
  recorded_ = started_;
  if (uses_events_) return record_event();
  const CUresult result = functions_->cuStreamWriteValue32(stream_, reinterpret_cast<CUdeviceptr>(word_),
                                                           static_cast<std::uint32_t>(started_), CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  uses_events_ = true;  // known at the first point of all, before any number was written
  return record_event();
}

CUresult CudaCopyStream::look() {
  if (uses_events_) return look_at_events([](std::uint64_t, CUevent) { return CUDA_SUCCESS; });
  // Numbers in the word wrap: it holds one of the next 2^32.
  if (under_way() != 0)
    finished_ += std::atomic_ref(*word_).load(std::memory_order_acquire) - static_cast<std::uint32_t>(finished_);
  return CUDA_SUCCESS;
}

bool CudaCopyStream::is_check_due() const noexcept { return under_way() != 0 && now_ns() >= next_check_ns_; }

CUresult CudaCopyStream::check() {
  next_check_ns_ = now_ns() + kCheckEveryNs;
  const CUresult result = functions_->cuStreamQuery(stream_);
  return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

Result<std::unique_ptr<CudaEngine::Stream>> CudaEngine::take(const cuda::Functions& functions) {
  {
    const std::lock_guard lock(mutex_);
    const CUresult result = idle_.empty() ? reclaim() : CUDA_SUCCESS;
    if (!idle_.empty()) {
      auto stream = std::move(idle_.back());
      idle_.pop_back();
      return stream;
    }
    if (given_up_.size() >= kMaxGivenUp) {
      if (result != CUDA_ERROR_NOT_READY) return copy_error(result);
      return make_error(Status::timed_out, "copy engine", "copy", text(given_up_.size(), " copies before it have not ended"),
                        "check the GPU with nvidia-smi");
    }
  }
  auto stream = std::make_unique<Stream>();
  stream->staging = static_cast<std::byte*>(std::aligned_alloc(kStagingBytes, kStagingBytes));
  if (stream->staging == nullptr) return make_error(Status::out_of_memory, "copy engine", "staging", "no host memory left");
  CUresult result = functions.cuMemHostRegister(stream->staging, kStagingBytes, 0);
  if (result == CUDA_SUCCESS) {
    result = stream->copies.open(functions, CudaCopyStream::Points::timed_events);  // none is recorded
    if (result != CUDA_SUCCESS) functions.cuMemHostUnregister(stream->staging);
  }
  if (result == CUDA_SUCCESS) return stream;
  std::free(stream->staging);
  return copy_error(result);
}

// With the lock. What the last one answers that is still at work, or failed.
CUresult CudaEngine::reclaim() {
  CUresult last = CUDA_SUCCESS;
  for (auto stream = given_up_.begin(); stream != given_up_.end();) {
    const CUresult result = (*stream)->copies.wait([] { return true; });
    if (result != CUDA_SUCCESS) {
      last = result;
      ++stream;
      continue;
    }
    idle_.push_back(std::move(*stream));
    stream = given_up_.erase(stream);
  }
  return last;
}

Result<void> CudaEngine::copy(const cuda::Functions& functions, CopyWay way, std::span<const EngineCopy> pieces) {
  std::vector<std::byte*> places(pieces.size());
  auto taken = take(functions);
  if (!taken) return std::move(taken).error();
  std::unique_ptr<Stream> stream = std::move(taken).value();

  // Small pieces through the stream's pinned memory: the driver would wait for each pageable one by itself.
  std::size_t staged_bytes = 0;
  std::size_t total_bytes = 0;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < pieces.size() && result == CUDA_SUCCESS; ++i) {
    const EngineCopy& piece = pieces[i];
    if (piece.bytes == 0) continue;
    const bool is_staged = piece.bytes <= kSmallBytes && staged_bytes + kSmallBytes <= kStagingBytes;
    places[i] = is_staged ? stream->staging + staged_bytes : static_cast<std::byte*>(piece.host);
    if (is_staged) staged_bytes += kSmallBytes;
    if (is_staged && way == CopyWay::to_device) std::memcpy(places[i], piece.host, piece.bytes);
    total_bytes += piece.bytes;
    auto* const device = reinterpret_cast<void*>(piece.device);
    result = way == CopyWay::to_device ? stream->copies.copy(way, device, places[i], piece.bytes)
                                       : stream->copies.copy(way, places[i], device, piece.bytes);
  }
  if (result == CUDA_SUCCESS) {
    const Deadline deadline = Deadline::after_ns(10 * kSecond + static_cast<std::int64_t>(total_bytes / 100'000'000) * kSecond);
    result = stream->copies.wait([&, turn = 0U]() mutable { return ++turn % 64 == 0 && deadline.has_passed(); });
  }
  if (result != CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    given_up_.push_back(std::move(stream));  // the context may be gone
    reclaim();
    if (result != CUDA_ERROR_NOT_READY) return copy_error(result);
    return make_error(Status::timed_out, "copy engine", counted(total_bytes, "byte"), "the copy did not finish within its deadline",
                      "check the GPU with nvidia-smi; the buffers may still be in use");
  }
  for (std::size_t i = 0; i < pieces.size() && way == CopyWay::from_device; ++i) {
    if (pieces[i].bytes != 0 && places[i] != pieces[i].host) std::memcpy(pieces[i].host, places[i], pieces[i].bytes);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(stream));
  return {};
}

namespace {

// For callers whose context may be any: enters the device's for each call of the driver.
class CudaCopies final : public CopyStream {
 public:
  CudaCopies(const cuda::Functions& functions, CUcontext context) noexcept : functions_(functions), context_(context) {}
  ~CudaCopies() override;

  CUresult open() {
    const ContextGuard guard(functions_, context_);
    return guard.result() == CUDA_SUCCESS ? stream_.open(functions_, CudaCopyStream::Points::words) : guard.result();
  }
  Result<std::uint64_t> post(CopyWay way, void* destination, const void* source, std::size_t bytes) override;
  Result<std::uint64_t> done() override;

 private:
  std::optional<Error> failed(const char* call, CUresult result) {
    if (result != CUDA_SUCCESS && !failure_) failure_ = cuda::failure("copy stream", call, result);
    return failure_;
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  CudaCopyStream stream_;
  std::optional<Error> failure_;
};

CudaCopies::~CudaCopies() {
  const Deadline deadline = Deadline::after_ns(kDrainNs);
  while (done() && stream_.under_way() != 0 && !deadline.has_passed()) std::this_thread::yield();
  if (stream_.under_way() != 0) {
    log(LogLevel::warning, "copy stream: copies failed or are still under way after 10 s; their stream is left to them");
    return;
  }
  const ContextGuard guard(functions_, context_);
  stream_.close();
}

Result<std::uint64_t> CudaCopies::post(CopyWay way, void* destination, const void* source, std::size_t bytes) {
  if (failure_) return *failure_;
  const ContextGuard guard(functions_, context_);
  if (auto error = failed("context", guard.result())) return *error;
  if (auto error = failed("copy", stream_.copy(way, destination, source, bytes))) return *error;
  if (auto error = failed("mark the end of a copy", stream_.record())) return *error;
  return stream_.started();
}

Result<std::uint64_t> CudaCopies::done() {
  if (failure_) return *failure_;
  std::optional<ContextGuard> guard;
  const bool is_check_due = stream_.is_check_due();
  if (is_check_due || stream_.uses_events()) guard.emplace(functions_, context_);
  if (auto error = failed("copy", stream_.look())) return *error;
  if (auto error = failed("copy", is_check_due ? stream_.check() : CUDA_SUCCESS)) return *error;
  return stream_.finished();
}

Result<std::unique_ptr<CopyStream>> open_cuda_copies(int device) {
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (const char* const missing = CudaCopyStream::missing_function(functions)) {
    return make_error(Status::unavailable, "copy stream", text("device ", device), text("libcuda has no ", missing),
                      "update the NVIDIA driver");
  }
  auto copies = std::make_unique<CudaCopies>(functions, *context);
  if (const CUresult result = copies->open(); result != CUDA_SUCCESS) return cuda::failure("copy stream", "make a stream", result);
  return std::unique_ptr<CopyStream>(std::move(copies));
}

}  // namespace
#endif

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

}  // namespace

Result<std::unique_ptr<CopyStream>> CopyStream::open(int device) {
  auto runtime = device < 0 ? &stand_in_runtime() : active_runtime();
  if (!runtime) return std::move(runtime).error();
#if GIGABAR_HAS_CUDA
  if (*runtime != &stand_in_runtime()) return open_cuda_copies(device);
#endif
  return std::unique_ptr<CopyStream>(std::make_unique<HostCopies>());
}

}  // namespace gigabar::inline v0
