// SPDX-License-Identifier: Apache-2.0
// The CUDA stream of whatever copies by a GPU: copies in order, points recorded behind them, and the question which point was
// passed.
#pragma once

#if GIGABAR_HAS_CUDA

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/in_place.hpp"
#include "driver/cuda/cuda.hpp"
#include "memory/copy_stream.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

// Copies are counted, and a point has the number of the last copy before it. For one thread at a time. The device's context must be
// current in every call that returns a CUresult; in look() only where uses_events().
class CudaCopyStream : InPlace {
 public:
  enum class Points : std::uint8_t {
    words,  // the stream writes the number to pinned memory, so that looking is a load; events where the driver cannot do that
    timed_events,  // which can be asked when they happened
  };

  // Null, or the name of a function that this libcuda has not.
  static const char* missing_function(const cuda::Functions& functions) noexcept;

  // `functions` live as long as this. Copies count up from `first_number` + 1.
  CUresult open(const cuda::Functions& functions, Points points, std::uint64_t first_number = 0);
  // The owner's to call, with the context current: there is no destructor. Also where open() failed or was not called. The word
  // stays where a late write of the stream must still find it.
  void close();

  CUstream stream() const noexcept { return stream_; }
  // Starts a copy; both addresses as CopyStream::post().
  CUresult copy(CopyWay way, void* destination, const void* source, std::size_t bytes);
  // Counts what the stream was given just now by another call.
  void note_started();
  // Lets the stream tell when all that was started is over. A word stops a copy engine for about 2 µs, an event for some ten.
  CUresult record();
  // Brings finished() up to date. With words, what failed is seen by check() only.
  CUresult look();
  // As look(); calls on_point(number, event) for each point that was passed, in order, and ends with what is not CUDA_SUCCESS.
  template <class OnPoint>
  CUresult look_at_events(const OnPoint& on_point);
  // Asks the driver whether what is under way has failed. Due every 100 µs.
  CUresult check();
  bool is_check_due() const noexcept;
  // Asks the driver until all that was started is over, or until gives_up(): CUDA_ERROR_NOT_READY. Needs no point.
  template <class GivesUp>
  CUresult wait(GivesUp gives_up) {
    CUresult result;
    do {
      result = functions_->cuStreamQuery(stream_);
    } while (result == CUDA_ERROR_NOT_READY && !gives_up());
    return result;
  }

  bool uses_events() const noexcept { return uses_events_; }
  std::uint64_t started() const noexcept { return started_; }
  std::uint64_t finished() const noexcept { return finished_; }
  // Of a stream that is never looked at, all that it ever started.
  std::uint64_t under_way() const noexcept { return started_ - finished_; }
  std::uint64_t behind_last_point() const noexcept { return started_ - recorded_; }
  bool has_point_under_way() const noexcept { return recorded_ != finished_; }
  std::size_t events_under_way() const noexcept { return points_.size(); }

 private:
  struct Point {
    std::uint64_t number;
    CUevent event;
  };
  CUresult record_event();

  const cuda::Functions* functions_ = nullptr;
  CUstream stream_ = nullptr;
  std::uint32_t* word_ = nullptr;  // pinned; the lower half of a number
  std::uint64_t started_ = 0;      // the last copy
  std::uint64_t recorded_ = 0;     // the last one that has a point behind it
  std::uint64_t finished_ = 0;     // the last one that is known to be over
  bool uses_events_ = false;
  unsigned event_flags_ = 0;
  std::deque<Point> points_;  // only with events
  std::vector<CUevent> free_events_;
  std::int64_t next_check_ns_ = 0;
};

template <class OnPoint>
CUresult CudaCopyStream::look_at_events(const OnPoint& on_point) {
  while (!points_.empty()) {
    const Point& point = points_.front();
    CUresult result = functions_->cuEventQuery(point.event);
    if (result == CUDA_ERROR_NOT_READY) break;
    if (result == CUDA_SUCCESS) result = on_point(point.number, point.event);
    if (result != CUDA_SUCCESS) return result;
    finished_ = point.number;
    free_events_.push_back(point.event);
    points_.pop_front();
  }
  return CUDA_SUCCESS;
}

// Copies by the copy engines of one device that the caller waits for. Each call takes a stream for itself, so threads do not wait
// for each other. Threads: any. The device's primary context must be current in every call.
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
