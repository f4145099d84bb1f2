// SPDX-License-Identifier: Apache-2.0
// The kernels of the transfer streams. Compiled to a fat binary that the library carries and the driver loads: nothing of CUDA's
// run-time is linked.
#include <cstddef>
#include <cstdint>

#include "copy/gpu_copy.hpp"
#include "gigabar/device/memory.hpp"
#include "streams/pattern.hpp"

namespace {

using gigabar::device::now_ns;

constexpr std::size_t kUnroll = 8;  // loads in flight per thread: 128 bytes

}  // namespace

extern "C" {

// Copies `bytes`. Both addresses are multiples of 16. Streaming accesses: no byte is used twice, so none should stay in a cache.
__global__ void __launch_bounds__(512) gigabar_stream_copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  const std::size_t whole = bytes / 16;
  const std::size_t thread = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  gigabar::copy_quads<kUnroll>(reinterpret_cast<uint4*>(destination), reinterpret_cast<const uint4*>(source), whole, thread, stride,
                               [](const uint4* from) { return __ldcs(from); });
  for (std::size_t at = whole * 16 + thread; at < bytes; at += stride) destination[at] = source[at];
}

// `memory` is a multiple of 8.
__global__ void gigabar_stream_fill(std::byte* memory, std::size_t bytes, std::uint64_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i * 8 < bytes; i += stride) {
    const std::uint64_t word = gigabar::pattern_word(seed, i);
    if (i * 8 + 8 <= bytes) {
      reinterpret_cast<std::uint64_t*>(memory)[i] = word;
    } else {
      for (std::size_t at = i * 8; at < bytes; ++at) memory[at] = static_cast<std::byte>(word >> (at % 8 * 8));
    }
  }
}

// result[0] (all ones before) becomes the least index of a word that is not the pattern's.
__global__ void gigabar_stream_check(const std::byte* memory, std::size_t bytes, std::uint64_t seed, unsigned long long* result) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i * 8 < bytes; i += stride) {
    const std::uint64_t word = gigabar::pattern_word(seed, i);
    bool is_right = true;
    if (i * 8 + 8 <= bytes) {
      is_right = reinterpret_cast<const std::uint64_t*>(memory)[i] == word;
    } else {
      for (std::size_t at = i * 8; at < bytes; ++at) is_right &= memory[at] == static_cast<std::byte>(word >> (at % 8 * 8));
    }
    if (!is_right) atomicMin(result, static_cast<unsigned long long>(i));
  }
}

// One thread. Answers each new value of *asked with the same value in *answered, until *asked is `last` or `timeout_ns` have passed
// without a new one.
__global__ void gigabar_stream_echo(const std::uint32_t* asked, std::uint32_t* answered, std::uint32_t last,
                                    std::uint64_t timeout_ns) {
  // The flag is all there is: nothing has to be ordered with it. Reading the timer costs as much as a poll.
  constexpr unsigned kPollsPerLook = 256;
  std::uint32_t seen = 0;
  std::uint64_t since = now_ns();
  for (unsigned poll = 1; seen != last; ++poll) {
    const std::uint32_t value = *const_cast<const volatile std::uint32_t*>(asked);
    if (value != seen) {
      seen = value;
      *const_cast<volatile std::uint32_t*>(answered) = seen;
      poll = 0;
      since = 0;
    } else if (poll % kPollsPerLook == 0) {
      const std::uint64_t now = now_ns();
      if (since == 0) since = now;
      if (now - since > timeout_ns) return;
    }
  }
}

// One thread. Follows a chain of addresses for `steps` loads; result[0]: nanoseconds, result[1]: where it ended (so that the loads
// are needed).
__global__ void gigabar_stream_chase(const void* first, std::uint64_t steps, std::uint64_t* result) {
  const void* at = first;
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 0; i < steps; ++i) at = *static_cast<const void* const volatile*>(at);
  const std::uint64_t end = now_ns();
  result[0] = end - begin;
  result[1] = reinterpret_cast<std::uint64_t>(at);
}

}  // extern "C"
