// SPDX-License-Identifier: Apache-2.0
// The caller of a device function: one thread, a warp, a block, or threads of the CPU that play one. The first argument of every
// device function is a scope. All its threads call together, with equal arguments, and get the same result.
#pragma once

#include <cstdint>

#include "gigabar/device/memory.hpp"

#if !defined(__CUDA_ARCH__)
#include <atomic>
#include <barrier>
#include <cstddef>
#endif

namespace gigabar::device {

// A scope has rank() and size(), of its threads; sync(), after which each thread sees what the others did before; broadcast(v),
// which returns the value of rank 0 to all and syncs; any(b), which returns whether it is true for any thread, and syncs.
struct Thread {
  GIGABAR_DEVICE static std::uint32_t rank() { return 0; }
  GIGABAR_DEVICE static std::uint32_t size() { return 1; }
  GIGABAR_DEVICE static void sync() {}
  template <class T>
  GIGABAR_DEVICE static T broadcast(T value) {
    return value;
  }
  GIGABAR_DEVICE static bool any(bool is_so) { return is_so; }
};

#if defined(__CUDACC__)

// All 32 threads of a warp. Blocks have one, two or three dimensions.
struct Warp {
  __device__ static std::uint32_t rank() {
    std::uint32_t lane;
    asm("mov.u32 %0, %laneid;" : "=r"(lane));
    return lane;
  }
  __device__ static std::uint32_t size() { return 32; }
  __device__ static void sync() { __syncwarp(); }
  template <class T>
  __device__ static T broadcast(T value) {
    const T answer = __shfl_sync(0xffffffff, value, 0);
    __syncwarp();  // a shuffle orders no memory
    return answer;
  }
  __device__ static bool any(bool is_so) {
    const bool answer = __any_sync(0xffffffff, is_so) != 0;
    __syncwarp();
    return answer;
  }
};

// All threads of a block. Uses 8 bytes of shared memory.
struct Block {
  __device__ static std::uint32_t rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
  __device__ static std::uint32_t size() { return blockDim.x * blockDim.y * blockDim.z; }
  __device__ static void sync() { __syncthreads(); }
  template <class T>
  __device__ static T broadcast(T value) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    __shared__ std::uint64_t slot;
    if (rank() == 0) slot = static_cast<std::uint64_t>(value);
    __syncthreads();
    const T answer = static_cast<T>(slot);
    __syncthreads();
    return answer;
  }
  __device__ static bool any(bool is_so) { return __syncthreads_or(is_so) != 0; }
};

#endif

#if !defined(__CUDA_ARCH__)

// Threads of the CPU that act as one block. Make one team; each thread makes a Member with its rank.
class CpuTeam {
 public:
  explicit CpuTeam(std::uint32_t size) : size_(size), barrier_(static_cast<std::ptrdiff_t>(size)) {}

  class Member {
   public:
    Member(CpuTeam& team, std::uint32_t rank) : team_(&team), rank_(rank) {}
    std::uint32_t rank() const { return rank_; }
    std::uint32_t size() const { return team_->size_; }
    void sync() const { team_->barrier_.arrive_and_wait(); }
    template <class T>
    T broadcast(T value) const {
      if (rank_ == 0) team_->slot_ = static_cast<std::uint64_t>(value);
      sync();
      const T answer = static_cast<T>(team_->slot_);
      sync();
      return answer;
    }
    bool any(bool is_so) const {
      if (is_so) team_->is_any_ = true;
      sync();
      const bool answer = team_->is_any_;
      sync();
      if (rank_ == 0) team_->is_any_ = false;
      sync();
      return answer;
    }

   private:
    CpuTeam* team_;
    std::uint32_t rank_;
  };

 private:
  const std::uint32_t size_;
  std::barrier<> barrier_;
  std::uint64_t slot_ = 0;
  std::atomic<bool> is_any_ = false;
};

#endif

}  // namespace gigabar::device
