// SPDX-License-Identifier: Apache-2.0
#include "streams/cuda_stream.hpp"

#if GIGABAR_HAS_CUDA

#include <algorithm>

#include "base/errors.hpp"
#include "streams/plan.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {
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
      transfer.transfer->worker_count != 0 ? transfer.transfer->worker_count : static_cast<unsigned>(device.multiprocessor_count);
  const unsigned blocks = std::clamp(asked, 1U, std::max(1U, most));
  return device.launch(device.kernels.copy, blocks, kThreadsPerBlock, transfer.stream->stream(), destination, source, bytes);
}

CUresult copy_to_peer(const CudaTransfer& transfer, std::byte* destination, const std::byte* source, std::size_t bytes) {
  const bool is_pulled = transfer.transfer->destination.device == transfer.device->index;
  const StreamDevice& to = is_pulled ? *transfer.device : *transfer.other;
  const StreamDevice& from = is_pulled ? *transfer.other : *transfer.device;
  return to.functions.cuMemcpyPeerAsync(reinterpret_cast<CUdeviceptr>(destination), to.context,
                                        reinterpret_cast<CUdeviceptr>(source), from.context, bytes, transfer.stream->stream());
}

}  // namespace

bool CudaTransfer::waits_for_each_copy() const noexcept {
  const auto is_pageable = [](const StreamPlace& place) { return place.is_host() && place.pages == HostPages::pageable; };
  // The driver itself waits for copies of pageable memory, which would hold up the GPU's other streams.
  return transfer->is_latency || !moves_data(transfer->executor) || is_pageable(transfer->source) ||
         is_pageable(transfer->destination);
}

CUresult start_copy(const CudaTransfer& transfer, const Ends& ends, std::size_t bytes) {
  CudaCopyStream& stream = *transfer.stream;
  std::byte* const to = ends.destination().address();
  std::byte* const from = ends.source().address();
  if (transfer.transfer->executor == StreamExecutor::kernel || transfer.other != nullptr) {
    const bool is_by_kernel = transfer.transfer->executor == StreamExecutor::kernel;
    const CUresult result = is_by_kernel ? launch_copy(transfer, to, from, bytes) : copy_to_peer(transfer, to, from, bytes);
    if (result == CUDA_SUCCESS) stream.note_started();
    return result;
  }
  if (ends.source().host) return stream.copy(CopyWay::to_device, to, from, bytes);
  return stream.copy(ends.destination().host ? CopyWay::from_device : CopyWay::between_devices, to, from, bytes);
}

CudaStream::CudaStream(CudaTransfer& transfer, const Ends& ends, TransferRun& run, Repeat& repeat, bool is_alone)
    : transfer_(transfer),
      stream_(*transfer.stream),
      ends_(ends),
      run_(run),
      repeat_(repeat),
      takes_turns_(!is_alone),
      copies_per_mark_(copies_per_mark(transfer.transfer->bytes, !is_alone)),
      most_pending_(!is_alone                                     ? kMaxPendingOfTurn
                    : transfer.transfer->bytes >= kMarkEveryBytes ? kMaxPendingOfLarge
                                                                  : kMaxPending) {}

void CudaStream::fail(const char* operation, CUresult result) {
  run_.fail(failure_of(run_, cuda::failure(operation, text("device ", transfer_.device->index), result).record()));
}

void CudaStream::finish() {
  if (is_finished_) return;
  is_finished_ = true;
  repeat_.end_part(run_);
}

void CudaStream::give_up() {
  if (is_finished_) return;
  run_.fail(timed_out_record(run_));
  finish();
}

bool CudaStream::record() {
  const CUresult result = stream_.record();
  if (result != CUDA_SUCCESS) fail("record an event", result);
  return result == CUDA_SUCCESS;
}

// The mark of the begin, then copies.
void CudaStream::begin() {
  has_begun_ = true;
  first_number_ = stream_.started();
  if (!record()) return;
  while (submit()) {
  }
}

void CudaStream::prepare() {
  if (run_.transfer.delay_seconds > 0) return;
  const cuda::Functions& functions = transfer_.device->functions;
  CUresult result = functions.cuStreamWaitValue32(stream_.stream(), reinterpret_cast<CUdeviceptr>(repeat_.gate_word()), 1,
                                                  CU_STREAM_WAIT_VALUE_GEQ);
  if (result != CUDA_SUCCESS) return fail("wait for the gate", result);
  const std::size_t warm_bytes = std::min(run_.transfer.bytes, kWarmUpBytesPerCopy);
  const std::size_t warm_copies = std::min(kWarmUpBytes / warm_bytes, kMaxWarmUpCopies);
  for (std::size_t i = 0; i < warm_copies && result == CUDA_SUCCESS; ++i) result = start_copy(transfer_, ends_, warm_bytes);
  if (result != CUDA_SUCCESS) return fail("warm up", result);
  begin();
}

bool CudaStream::submit() {
  if (run_.has_failed() || stream_.events_under_way() >= most_pending_ || !repeat_.wants_more(run_, begun())) return false;
  std::uint64_t count = copies_per_mark_;
  const Transfer& transfer = run_.transfer;
  if (transfer.iterations > 0 && !transfer.is_background) count = std::min(count, transfer.iterations - begun());
  for (std::uint64_t i = 0; i < count; ++i) {
    if (const CUresult result = start_copy(transfer_, ends_, transfer.bytes); result != CUDA_SUCCESS) {
      fail("copy", result);
      return false;
    }
  }
  return record();
}

bool CudaStream::reap() {
  bool has_any = false;
  const CUresult result = stream_.look_at_events([&](std::uint64_t number, CUevent event) {
    Mark mark{0, (number - first_number_) * run_.transfer.bytes};
    if (const CUresult told = transfer_.device->moment_of(event, mark.at_ns); told != CUDA_SUCCESS) return told;
    run_.parts.front().push_back(mark);
    run_.bytes_done.store(mark.bytes, std::memory_order_relaxed);
    has_any = true;
    return CUDA_SUCCESS;
  });
  if (result == CUDA_SUCCESS) return has_any;
  fail("copy", result);
  finish();  // the context is lost: nothing will be told of what is under way
  return true;
}

bool CudaStream::advance() {
  if (is_finished_) return false;
  if (!has_begun_ && !run_.has_failed()) {  // begins later than the gate
    if (repeat_.wants_more(run_, 0) && now_ns() < repeat_.begins_at_ns(run_.transfer)) return false;
    begin();
  }
  bool has_advanced = reap();
  if (!takes_turns_ || stream_.events_under_way() == 0) {
    while (submit()) has_advanced = true;
  }
  if (stream_.events_under_way() == 0 && (run_.has_failed() || !repeat_.wants_more(run_, begun()))) finish();
  return has_advanced || is_finished_;
}

}  // namespace gigabar::inline v0

#endif
