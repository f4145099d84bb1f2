// SPDX-License-Identifier: Apache-2.0
// A stream whose progress the CPU sees by a load: behind what it was given it writes numbers to a word of pinned memory.
#pragma once

#if GIGABAR_HAS_CUDA

#include <cstdint>
#include <deque>
#include <vector>

#include "driver/cuda/cuda.hpp"

namespace gigabar {

// Numbers count what was given to the stream, modulo 2^32. Where the driver has no stream memory operations, events take the place
// of the word. For one thread at a time. The context must be current in every call that returns a CUresult; in look() only with
// events.
class MarkedStream {
 public:
  // Null, or the name of a function that this libcuda has not.
  static const char* missing_function(const cuda::Functions& functions) noexcept;

  // `functions` live as long as this, `word` until nothing is under way.
  CUresult open(const cuda::Functions& functions, std::uint32_t* word, std::uint32_t first_number);
  // Also where open() failed or was not called.
  void close();

  CUstream stream() const noexcept { return stream_; }
  // Counts what the stream was given just now.
  std::uint32_t note_started();
  // Lets the stream tell when all that was started is over. A mark stops a copy engine for about 2 µs.
  CUresult mark();
  // Brings finished() up to date. Without events, what failed is seen by check() only.
  CUresult look();
  // Asks the driver whether what is under way has failed. Due every 100 µs.
  CUresult check();
  bool is_check_due() const noexcept;

  bool uses_events() const noexcept { return uses_events_; }
  std::uint32_t started() const noexcept { return started_; }
  std::uint32_t finished() const noexcept { return finished_; }
  std::uint32_t under_way() const noexcept { return started_ - finished_; }
  std::uint32_t unmarked() const noexcept { return started_ - marked_; }
  bool has_mark_under_way() const noexcept { return marked_ != finished_; }

 private:
  struct Mark {
    std::uint32_t number;
    CUevent event;
  };
  CUresult mark_by_event();

  const cuda::Functions* functions_ = nullptr;
  CUstream stream_ = nullptr;
  std::uint32_t* word_ = nullptr;
  std::uint32_t started_ = 0;   // the last one
  std::uint32_t marked_ = 0;    // the last one that has a mark behind it
  std::uint32_t finished_ = 0;  // the last one that is known to be over
  bool uses_events_ = false;
  std::deque<Mark> marks_;  // only with events
  std::vector<CUevent> free_events_;
  std::int64_t next_check_ns_ = 0;
};

}  // namespace gigabar

#endif
