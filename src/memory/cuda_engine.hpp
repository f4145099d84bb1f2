// SPDX-License-Identifier: Apache-2.0
// Copies by the copy engines of one device that the caller waits for.
#pragma once

#if GIGABAR_HAS_CUDA

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "driver/cuda/cuda.hpp"
#include "memory/cuda_copy_stream.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

// Each call takes a stream for itself, so threads do not wait for each other. Threads: any. The device's primary context must be
// current in every call.
class CudaEngine {
 public:
  // Copies the pieces in one go and waits, for at most 10 s and 1 s more per 100 MB. Pieces of up to 64 bytes go through pinned
  // memory of the stream; larger ones directly. Errors: timed_out (the copy may still happen; also where too many before
  // it have not ended), device_error.
  Result<void> copy(const cuda::Functions& functions, CopyWay way, std::span<const EngineCopy> pieces);

 private:
  struct Stream {
    // They live as long as the process: streams are not destroyed at exit, when the driver may be gone already.
    CudaCopyStream copies;
    std::byte* staging = nullptr;  // pinned, kStagingBytes
  };
  using Streams = std::vector<std::unique_ptr<Stream>>;
  Result<std::unique_ptr<Stream>> take(const cuda::Functions& functions);
  CUresult reclaim();

  std::mutex mutex_;
  Streams idle_;
  Streams given_up_;  // their memory may still be written to; they are idle as soon as all that they were given is over
};

}  // namespace gigabar::inline v0

#endif
