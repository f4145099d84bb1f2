// SPDX-License-Identifier: Apache-2.0
// The kernel that copies what the CPU asks it to, for as long as it stays. Compiled to a fat binary that the library carries and
// the driver loads.
#include "transport/local/copy_kernel.hpp"

#include "copy/gpu_copy.hpp"
#include "gigabar/device/memory.hpp"

namespace {

using namespace gigabar::transport::local;
using gigabar::device::now_ns;

constexpr unsigned kPollsPerLook = 32;  // reading the timer costs about as much as a poll

// Everything before it, of this thread and of those it has met at a barrier, is seen by whoever sees the word.
__device__ void store_release(std::uint32_t* word, std::uint32_t value) {
  asm volatile("fence.acq_rel.sys; st.relaxed.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

// False: the three words are not all of that request yet. What was written before the CPU asked is seen behind it.
__device__ bool take(const CopyRequest& request, std::uint32_t number, CopyRequest& taken) {
  constexpr std::uint64_t kTagMask = (std::uint64_t{1} << (64 - kAddressBits)) - 1;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(taken.to), "=l"(taken.from) : "l"(&request.to) : "memory");
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(taken.size) : "l"(&request.size) : "memory");
  const std::uint64_t tag = number & kTagMask;
  return taken.to >> kAddressBits == tag && taken.from >> kAddressBits == tag && taken.size >> 32 == number;
}

// One thread. Whether request `number` has come before the block's time is over.
__device__ bool await(const CopyRequest& request, std::uint32_t number, CopyRequest& taken, std::uint64_t end_ns,
                      std::uint64_t most_idle_ns) {
  if (take(request, number, taken)) return true;
  const std::uint64_t idle_end_ns = now_ns() + most_idle_ns;
  for (unsigned poll = 1;; ++poll) {
    if (take(request, number, taken)) return true;
    if (poll % kPollsPerLook == 0) {
      const std::uint64_t now = now_ns();
      if (now > end_ns || now > idle_end_ns) return false;
    }
  }
}

// This block's part. Another kernel may have written the bytes since this one began: past the first-level cache.
__device__ void copy_part(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t thread = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t to_line = (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16;
  const std::size_t head = to_line < bytes ? to_line : bytes;
  const std::size_t whole = (bytes - head) / 16;
  gigabar::copy_quads<kKernelLoads>(reinterpret_cast<uint4*>(to + head), reinterpret_cast<const uint4*>(from + head), whole, thread,
                                    threads, [](const uint4* quad) { return __ldcg(quad); });
  auto* const bytes_to = reinterpret_cast<unsigned char*>(to);
  const auto* const bytes_from = reinterpret_cast<const unsigned char*>(from);
  if (thread < head) bytes_to[thread] = __ldcg(bytes_from + thread);
  const std::size_t tail = head + whole * 16;
  if (thread < bytes - tail) bytes_to[tail + thread] = __ldcg(bytes_from + tail + thread);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kKernelThreads) gigabar_local_copies(KernelLaunch launch) {
  __shared__ CopyRequest request;
  __shared__ bool has_request;
  constexpr std::uint64_t kAddressMask = (std::uint64_t{1} << kAddressBits) - 1;
  const bool is_first = threadIdx.x == 0;
  std::uint64_t end_ns = 0;
  if (is_first) {
    end_ns = now_ns() + launch.most_ns;
    store_release(&launch.words->started[blockIdx.x], launch.launch);
  }
  for (std::uint32_t number = launch.first_request;; ++number) {
    if (is_first) {
      CopyRequest taken;
      has_request = await(launch.memory->requests[number % kKernelSlots], number, taken, end_ns, launch.most_idle_ns);
      request = taken;
    }
    __syncthreads();
    const std::size_t bytes = request.size & UINT32_MAX;
    if (!has_request || bytes == 0) break;
    copy_part(reinterpret_cast<std::byte*>(request.to & kAddressMask),
              reinterpret_cast<const std::byte*>(request.from & kAddressMask), bytes);
    __syncthreads();
    if (!is_first) continue;
    std::uint32_t* const done = &launch.words->done[blockIdx.x];
    if (std::size_t{blockIdx.x} * kKernelThreads * 16 < bytes) {
      store_release(done, number);
    } else {  // it has written nothing that would have to be seen
      *const_cast<volatile std::uint32_t*>(done) = number;
    }
  }
  if (is_first) store_release(&launch.words->ended[blockIdx.x], launch.launch);
}
