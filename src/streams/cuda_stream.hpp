// SPDX-License-Identifier: Apache-2.0
// One transfer as a CUDA stream: copies submitted ahead of time behind the gate, marks taken from the points behind them.
#pragma once

#if GIGABAR_HAS_CUDA

#include <memory>

#include "memory/cuda_copy_stream.hpp"
#include "streams/cuda_device.hpp"
#include "streams/ends.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {

// What of a transfer stays the same over all repeats.
struct CudaTransfer {
  std::size_t index;
  const Transfer* transfer;
  StreamDevice* device;           // does the work
  StreamDevice* other = nullptr;  // the GPU at the other end, when that is another one
  bool uses_peer_access = false;
  std::unique_ptr<CudaCopyStream> stream;

  bool waits_for_each_copy() const noexcept;  // by a thread of its own; the rest is submitted ahead by the GPU's thread
};

// Starts one copy of the transfer's first `bytes` bytes. The device's context must be current.
CUresult start_copy(const CudaTransfer& transfer, const Ends& ends, std::size_t bytes);

// A stream during one repeat. Used by one thread, with the device's context current.
class CudaStream {
 public:
  // `is_alone`: no other transfer is carried by the same GPU.
  CudaStream(CudaTransfer& transfer, const Ends& ends, TransferRun& run, Repeat& repeat, bool is_alone);

  // Before the gate: puts the wait for it, the warm-up and as many copies as may be ahead into the stream.
  void prepare();
  // Takes what has ended and submits what may follow. True when it did either.
  bool advance();
  bool is_finished() const noexcept { return is_finished_; }
  void give_up();

 private:
  void begin();
  bool reap();
  bool submit();
  bool record();
  std::uint64_t begun() const noexcept { return stream_.started() - first_number_; }
  void fail(const char* operation, CUresult result);
  void finish();

  const CudaTransfer& transfer_;
  CudaCopyStream& stream_;
  const Ends& ends_;
  TransferRun& run_;
  Repeat& repeat_;
  const bool takes_turns_;  // lets its queue run empty between rounds, see kMaxPendingOfTurn
  const std::uint64_t copies_per_mark_;
  const std::size_t most_pending_;
  std::uint64_t first_number_ = 0;  // of the stream's copies: what came before the begin
  bool has_begun_ = false;
  bool is_finished_ = false;
};

}  // namespace gigabar::inline v0

#endif
