// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_lanes.hpp"

#if GIGABAR_HAS_CUDA

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"

namespace gigabar {
namespace {

constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kStagingBytes = 4096;

}  // namespace

struct CudaLanes::Lane {
  // Lanes live as long as the process: streams are not destroyed at exit, when the driver may be gone already.
  CUstream stream = nullptr;
  std::byte* staging = nullptr;  // pinned, kStagingBytes
};

CudaLanes::CudaLanes() = default;
CudaLanes::~CudaLanes() = default;

namespace {

Error copy_error(CUresult result) {
  return make_error(cuda::status_of(result) == Status::out_of_memory ? Status::out_of_memory : Status::device_error, "copy engine",
                    "copy", cuda::describe_result(result), {}, cuda::native_code(result));
}

CUresult enqueue(const cuda::Functions& functions, EngineDirection direction, const EngineCopy& piece, void* host,
                 CUstream stream) {
  return direction == EngineDirection::to_device ? functions.cuMemcpyHtoDAsync(piece.device, host, piece.bytes, stream)
                                                 : functions.cuMemcpyDtoHAsync(host, piece.device, piece.bytes, stream);
}

CUresult wait(const cuda::Functions& functions, CUstream stream, std::int64_t most_ns) {
  const Deadline deadline = Deadline::after_ns(most_ns);
  for (unsigned turn = 1;; ++turn) {
    const CUresult result = functions.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) return result;
    if (turn % 64 == 0 && deadline.has_passed()) return CUDA_ERROR_NOT_READY;
  }
}

}  // namespace

Result<std::unique_ptr<CudaLanes::Lane>> CudaLanes::check_out(const cuda::Functions& functions) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto lane = std::move(idle_.back());
      idle_.pop_back();
      return lane;
    }
  }
  auto lane = std::make_unique<Lane>();
  lane->staging = static_cast<std::byte*>(std::aligned_alloc(kStagingBytes, kStagingBytes));
  if (lane->staging == nullptr) return make_error(Status::out_of_memory, "copy engine", "staging", "no host memory left");
  CUresult result = functions.cuMemHostRegister(lane->staging, kStagingBytes, 0);
  if (result == CUDA_SUCCESS) {
    result = functions.cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) functions.cuMemHostUnregister(lane->staging);
  }
  if (result == CUDA_SUCCESS) return lane;
  std::free(lane->staging);
  return copy_error(result);
}

void CudaLanes::check_in(std::unique_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(lane));
}

void CudaLanes::give_up(std::unique_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  given_up_.push_back(std::move(lane));
}

Result<void> CudaLanes::copy(const cuda::Functions& functions, EngineDirection direction, std::span<const EngineCopy> pieces) {
  std::vector<std::byte*> places(pieces.size());
  auto checked_out = check_out(functions);
  if (!checked_out) return std::move(checked_out).error();
  std::unique_ptr<Lane> lane = std::move(checked_out).value();

  // Small pieces through the lane's pinned memory: the driver would wait for each pageable one by itself.
  std::size_t staged_bytes = 0;
  std::size_t total_bytes = 0;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < pieces.size() && result == CUDA_SUCCESS; ++i) {
    const EngineCopy& piece = pieces[i];
    if (piece.bytes == 0) continue;
    const bool is_staged = piece.bytes <= kSmallBytes && staged_bytes + kSmallBytes <= kStagingBytes;
    places[i] = is_staged ? lane->staging + staged_bytes : static_cast<std::byte*>(piece.host);
    if (is_staged) staged_bytes += kSmallBytes;
    if (is_staged && direction == EngineDirection::to_device) std::memcpy(places[i], piece.host, piece.bytes);
    total_bytes += piece.bytes;
    result = enqueue(functions, direction, piece, places[i], lane->stream);
  }
  if (result == CUDA_SUCCESS) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    result = wait(functions, lane->stream, 10 * kSecond + static_cast<std::int64_t>(total_bytes / 100'000'000) * kSecond);
  }
  if (result == CUDA_ERROR_NOT_READY) {
    give_up(std::move(lane));
    return make_error(Status::timed_out, "copy engine", counted(total_bytes, "byte"), "the copy did not finish within its deadline",
                      "check the GPU with nvidia-smi; the buffers may still be in use");
  }
  if (result != CUDA_SUCCESS) {
    give_up(std::move(lane));  // the context may be gone
    return copy_error(result);
  }
  if (direction == EngineDirection::from_device) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].bytes != 0 && places[i] != pieces[i].host) std::memcpy(pieces[i].host, places[i], pieces[i].bytes);
    }
  }
  check_in(std::move(lane));
  return {};
}

}  // namespace gigabar

#endif
