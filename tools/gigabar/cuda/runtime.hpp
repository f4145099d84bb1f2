// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime, linked into the program when device code is built: cudaMemcpy as the path to compare with, and the kernel that
// answers flags. Without nvcc not_built.cpp stands here, which says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::tool {

// Whether CUDA's runtime can use `device`; afterwards it is this thread's current device.
Availability use_cuda_runtime(int device);

// cudaMemcpy, cudaMemcpyDefault. False on an error, which cuda_error() then tells.
bool cuda_memcpy(void* destination, const void* source, std::size_t bytes) noexcept;
std::string cuda_error();

// GB/s of `count` plain cudaMemcpyAsync calls between two events of a stream of `device`, after two that are not timed. Errors:
// device_error, unavailable (not built).
Result<double> plain_copy_rate(int device, void* destination, const void* source, std::size_t bytes, std::uint64_t count);

// One run of flags and answers between the CPU and a kernel. Flags are 4 bytes; round i (1..rounds) is flag value i.
struct PingPongPlan {
  std::uint32_t rounds = 0;
  std::size_t data_bytes = 0;  // a multiple of 8; checked by whoever receives it, every round
  std::uint32_t block_count = 1;
  std::uint32_t threads_per_block = 1;
  bool device_starts = false;
  std::int64_t timeout_ns = 0;  // the kernel gives up this long after its start
  // Addresses as the GPU sees them.
  std::uint32_t* device_flag = nullptr;  // CPU writes, every block polls
  std::uint32_t* host_flags = nullptr;   // block b writes word b, the CPU polls all
  std::uint64_t* data = nullptr;
  std::uint64_t* samples = nullptr;  // [rounds]: clock cycles of each round, when the device starts
};

// Flag value that tells the kernel to stop.
inline constexpr std::uint32_t kStopFlag = 0xffffffffU;

// Word `index` of the data of `round`. Both sides compute it.
#if defined(__CUDACC__)
#define GIGABAR_BOTH_SIDES __host__ __device__
#else
#define GIGABAR_BOTH_SIDES
#endif
GIGABAR_BOTH_SIDES inline std::uint64_t ping_pong_word(std::uint32_t round, std::uint64_t index) {
  return (std::uint64_t{round} << 32 | (index & 0xffffffffU)) * 0x9e3779b97f4a7c15U;
}

// What the kernel reports when it has ended.
struct PingPongEnd {
  std::uint32_t rounds_done = 0;
  bool has_timed_out = false;
  bool has_mismatch = false;
  std::uint32_t mismatch_round = 0;
  std::uint64_t mismatch_offset_bytes = 0;
  std::uint64_t mismatch_found = 0;
  double elapsed_ns = 0;  // %globaltimer around all rounds
  std::uint64_t elapsed_cycles = 0;
};

// A kernel that is running. Destroying it waits for its end, which its own deadline bounds.
class PingPong {
 public:
  virtual ~PingPong() = default;
  // Blocks until it has ended.
  virtual Result<PingPongEnd> wait() = 0;
};

// Starts the kernel on the current device. Errors: invalid_argument (more blocks than the device holds at once), device_error,
// unavailable (not built).
Result<std::unique_ptr<PingPong>> start_ping_pong(const PingPongPlan& plan);

}  // namespace gigabar::tool
