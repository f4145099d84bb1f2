// SPDX-License-Identifier: Apache-2.0
#include "streams/cuda_stream.hpp"

#if GIGABAR_HAS_CUDA

#include <algorithm>

#include "base/errors.hpp"
#include "streams/plan.hpp"
#include "streams/worker.hpp"

namespace gigabar {
namespace {

constexpr unsigned kThreadsPerBlock = 512;
// Copies behind the gate and before the begin: an engine that has idled reaches its rate only after some milliseconds.
constexpr std::size_t kWarmUpBytes = std::size_t{32} << 20;
constexpr std::size_t kWarmUpBytesPerCopy = std::size_t{8} << 20;
constexpr std::size_t kMaxWarmUpCopies = 32;
// An event makes the engine stop for some ten microseconds, so copies share one as far as a window can still be cut out of a life.
constexpr std::size_t kMarkEveryBytes = std::size_t{256} << 20;
constexpr std::uint64_t kMaxCopiesPerMark = 64;
// Marks ahead of the GPU. Deep enough that the submitting thread may serve other streams meanwhile, shallow enough that the
// driver's queue never blocks it, and that an end by time or by signal comes soon.
constexpr std::size_t kMaxPending = 4;
constexpr std::size_t kMaxPendingOfLarge = 3;
// An engine stays with one queue for as long as that queue does not run empty: small copies of one stream after those of another,
// and beside an endless load nothing else at all. Streams that are not alone on their GPU therefore take turns: they submit again
// only when all they had submitted is done. Turns of small copies are short, since eight such streams shall run at once, not in
// turn.
constexpr std::size_t kMaxPendingOfTurn = 2;
constexpr std::size_t kMarkEveryBytesOfTurn = std::size_t{64} << 20;
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
constexpr std::uint64_t kSmallCopiesPerMark = 16;

std::uint64_t copies_per_mark(std::size_t bytes, bool takes_turns) {
  const std::uint64_t most = takes_turns && bytes < kSmallBytes ? kSmallCopiesPerMark : kMaxCopiesPerMark;
  return std::clamp<std::uint64_t>((takes_turns ? kMarkEveryBytesOfTurn : kMarkEveryBytes) / bytes, 1, most);
}

CUresult launch_copy(const CudaTransfer& transfer, std::byte* destination, const std::byte* source, std::size_t bytes) {
  const StreamDevice& device = *transfer.device;
  constexpr std::size_t kBytesPerBlock = std::size_t{kThreadsPerBlock} * 16;  // 16 per thread
  const auto most = static_cast<unsigned>((bytes + kBytesPerBlock - 1) / kBytesPerBlock);
  const unsigned asked =
      transfer.transfer->lanes != 0 ? transfer.transfer->lanes : static_cast<unsigned>(device.multiprocessor_count);
  const unsigned blocks = std::clamp(asked, 1U, std::max(1U, most));
  return device.launch(device.kernels.copy, blocks, kThreadsPerBlock, transfer.stream, destination, source, bytes);
}

}  // namespace

bool CudaTransfer::waits_for_each_copy() const noexcept {
  const auto is_pageable = [](const StreamPlace& place) { return place.is_host() && place.pages == HostPages::pageable; };
  // The driver itself waits for copies of pageable memory, which would hold up the GPU's other streams.
  return transfer->is_latency || !moves_data(transfer->executor) || is_pageable(transfer->source) ||
         is_pageable(transfer->destination);
}

CUresult enqueue_copy(const CudaTransfer& transfer, const Ends& ends, std::size_t bytes) {
  const cuda::Functions& functions = transfer.device->functions;
  std::byte* const destination = ends.destination().address();
  std::byte* const source = ends.source().address();
  if (transfer.transfer->executor == StreamExecutor::kernel) return launch_copy(transfer, destination, source, bytes);
  const auto to = reinterpret_cast<CUdeviceptr>(destination);
  const auto from = reinterpret_cast<CUdeviceptr>(source);
  if (ends.source().host) return functions.cuMemcpyHtoDAsync(to, source, bytes, transfer.stream);
  if (ends.destination().host) return functions.cuMemcpyDtoHAsync(destination, from, bytes, transfer.stream);
  if (transfer.other == nullptr) return functions.cuMemcpyDtoDAsync(to, from, bytes, transfer.stream);
  const bool is_pulled = transfer.transfer->destination.device == transfer.device->index;
  const StreamDevice& to_device = is_pulled ? *transfer.device : *transfer.other;
  const StreamDevice& from_device = is_pulled ? *transfer.other : *transfer.device;
  return functions.cuMemcpyPeerAsync(to, to_device.context, from, from_device.context, bytes, transfer.stream);
}

CudaStream::CudaStream(CudaTransfer& transfer, const Ends& ends, TransferRun& run, Repeat& repeat, bool is_alone)
    : transfer_(transfer),
      ends_(ends),
      run_(run),
      repeat_(repeat),
      takes_turns_(!is_alone),
      copies_per_mark_(copies_per_mark(transfer.transfer->bytes, !is_alone)),
      most_pending_(!is_alone                                     ? kMaxPendingOfTurn
                    : transfer.transfer->bytes >= kMarkEveryBytes ? kMaxPendingOfLarge
                                                                  : kMaxPending) {}

CudaStream::~CudaStream() {
  const cuda::Functions& functions = transfer_.device->functions;
  for (CUevent_st* const event : free_events_) functions.cuEventDestroy(event);
  for (const Pending& pending : pending_) functions.cuEventDestroy(pending.event);
}

void CudaStream::fail(const char* operation, CUresult result) {
  run_.fail(failure_of(run_, cuda_failure(operation, text("device ", transfer_.device->index), result).record()));
}

void CudaStream::finish() {
  if (is_finished_) return;
  is_finished_ = true;
  repeat_.end_lane(run_);
}

void CudaStream::give_up() {
  if (is_finished_) return;
  run_.fail(timed_out_record(run_));
  finish();
}

bool CudaStream::record(std::uint64_t bytes) {
  const cuda::Functions& functions = transfer_.device->functions;
  CUevent event = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (free_events_.empty()) {
    result = functions.cuEventCreate(&event, CU_EVENT_DEFAULT);
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  if (result == CUDA_SUCCESS) {
    pending_.push_back({event, bytes});
    result = functions.cuEventRecord(event, transfer_.stream);
    if (result == CUDA_SUCCESS) return true;
    pending_.pop_back();
    free_events_.push_back(event);
  }
  fail("record an event", result);
  return false;
}

// The mark of the begin, then copies.
void CudaStream::begin() {
  has_begun_ = true;
  if (!record(0)) return;
  while (submit()) {
  }
}

void CudaStream::prepare() {
  if (run_.transfer.delay_seconds > 0) return;
  const cuda::Functions& functions = transfer_.device->functions;
  CUresult result = functions.cuStreamWaitValue32(transfer_.stream, reinterpret_cast<CUdeviceptr>(repeat_.gate_word()), 1,
                                                  CU_STREAM_WAIT_VALUE_GEQ);
  if (result != CUDA_SUCCESS) return fail("wait for the gate", result);
  const std::size_t warm_bytes = std::min(run_.transfer.bytes, kWarmUpBytesPerCopy);
  const std::size_t warm_copies = std::min(kWarmUpBytes / warm_bytes, kMaxWarmUpCopies);
  for (std::size_t i = 0; i < warm_copies && result == CUDA_SUCCESS; ++i) result = enqueue_copy(transfer_, ends_, warm_bytes);
  if (result != CUDA_SUCCESS) return fail("warm up", result);
  begin();
}

bool CudaStream::submit() {
  if (run_.has_failed() || pending_.size() >= most_pending_ || !repeat_.wants_more(run_, begun_)) return false;
  std::uint64_t count = copies_per_mark_;
  const Transfer& transfer = run_.transfer;
  if (transfer.iterations > 0 && !transfer.is_background) count = std::min(count, transfer.iterations - begun_);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (const CUresult result = enqueue_copy(transfer_, ends_, transfer.bytes); result != CUDA_SUCCESS) {
      fail("copy", result);
      return false;
    }
  }
  begun_ += count;
  return record(begun_ * transfer.bytes);
}

bool CudaStream::reap() {
  bool has_any = false;
  while (!pending_.empty()) {
    const Pending next = pending_.front();
    CUresult result = transfer_.device->functions.cuEventQuery(next.event);
    if (result == CUDA_ERROR_NOT_READY) break;
    Mark mark{0, next.bytes};
    if (result == CUDA_SUCCESS) result = transfer_.device->moment_of(next.event, mark.at_ns);
    if (result != CUDA_SUCCESS) {
      fail("copy", result);
      pending_.clear();  // the context is lost, and its events with it
      break;
    }
    run_.lanes.front().push_back(mark);
    run_.bytes_done.store(mark.bytes, std::memory_order_relaxed);
    free_events_.push_back(next.event);
    pending_.pop_front();
    has_any = true;
  }
  return has_any;
}

bool CudaStream::advance() {
  if (is_finished_) return false;
  if (!has_begun_ && !run_.has_failed()) {  // begins later than the gate
    if (repeat_.wants_more(run_, 0) && now_ns() < repeat_.begins_at_ns(run_.transfer)) return false;
    begin();
  }
  bool has_advanced = reap();
  if (!takes_turns_ || pending_.empty()) {
    while (submit()) has_advanced = true;
  }
  if (pending_.empty() && (run_.has_failed() || !repeat_.wants_more(run_, begun_))) finish();
  return has_advanced || is_finished_;
}

}  // namespace gigabar

#endif
