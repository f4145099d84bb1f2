// SPDX-License-Identifier: Apache-2.0
#include "memory/marked_stream.hpp"

#if GIGABAR_HAS_CUDA

#include <atomic>

#include "base/clock.hpp"

namespace gigabar {
namespace {

constexpr std::int64_t kCheckEveryNs = 100'000;

}  // namespace

const char* MarkedStream::missing_function(const cuda::Functions& f) noexcept {
  if (f.cuStreamDestroy == nullptr) return "cuStreamDestroy";
  if (f.cuEventCreate == nullptr) return "cuEventCreate";
  if (f.cuEventDestroy == nullptr) return "cuEventDestroy";
  if (f.cuEventRecord == nullptr) return "cuEventRecord";
  return f.cuEventQuery == nullptr ? "cuEventQuery" : nullptr;
}

CUresult MarkedStream::open(const cuda::Functions& functions, std::uint32_t* word, std::uint32_t first_number) {
  functions_ = &functions;
  word_ = word;
  *word_ = started_ = marked_ = finished_ = first_number;
  uses_events_ = functions_->cuStreamWriteValue32 == nullptr;
  return functions_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
}

void MarkedStream::close() {
  if (stream_ != nullptr) functions_->cuStreamDestroy(stream_);
  for (const Mark& pending : marks_) functions_->cuEventDestroy(pending.event);
  for (CUevent_st* const event : free_events_) functions_->cuEventDestroy(event);
  stream_ = nullptr;
  marks_.clear();
  free_events_.clear();
}

std::uint32_t MarkedStream::note_started() {
  if (under_way() == 0) next_check_ns_ = now_ns() + kCheckEveryNs;
  return ++started_;
}

CUresult MarkedStream::mark_by_event() {
  CUevent event = nullptr;
  if (!free_events_.empty()) {
    event = free_events_.back();
    free_events_.pop_back();
  } else if (const CUresult result = functions_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); result != CUDA_SUCCESS) {
    return result;
  }
  marks_.push_back({started_, event});
  return functions_->cuEventRecord(event, stream_);
}

// The stream's write is ordered behind the copy, everywhere: by default it comes after a fence of the whole system.
// Source: CUDA driver API, "Stream Memory Operations", cuStreamWriteValue32.
CUresult MarkedStream::mark() {
  marked_ = started_;
  if (uses_events_) return mark_by_event();
  const CUresult result =
      functions_->cuStreamWriteValue32(stream_, reinterpret_cast<CUdeviceptr>(word_), started_, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  uses_events_ = true;  // known at the first mark of all, before any number was written
  return mark_by_event();
}

CUresult MarkedStream::look() {
  if (!uses_events_) {
    if (under_way() != 0) finished_ = std::atomic_ref(*word_).load(std::memory_order_acquire);
    return CUDA_SUCCESS;
  }
  while (!marks_.empty()) {
    const CUresult result = functions_->cuEventQuery(marks_.front().event);
    if (result == CUDA_ERROR_NOT_READY) break;
    if (result != CUDA_SUCCESS) return result;
    finished_ = marks_.front().number;
    free_events_.push_back(marks_.front().event);
    marks_.pop_front();
  }
  return CUDA_SUCCESS;
}

bool MarkedStream::is_check_due() const noexcept { return under_way() != 0 && now_ns() >= next_check_ns_; }

CUresult MarkedStream::check() {
  next_check_ns_ = now_ns() + kCheckEveryNs;
  const CUresult result = functions_->cuStreamQuery(stream_);
  return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

}  // namespace gigabar

#endif
