// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_engine.hpp"

#if GIGABAR_HAS_CUDA

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kStagingBytes = 4096;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kMaxGivenUp = 16;

Error copy_error(CUresult result) {
  return make_error(cuda::status_of(result) == Status::out_of_memory ? Status::out_of_memory : Status::device_error, "copy engine",
                    "copy", cuda::describe_result(result), {}, cuda::native_code(result));
}

}  // namespace

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

}  // namespace gigabar::inline v0

#endif
