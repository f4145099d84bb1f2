// SPDX-License-Identifier: Apache-2.0
// The caller of a device function: one thread, a warp, a block, several blocks as one, or threads of the CPU that play one. The
// first argument of every device function is a scope. All its threads call together, with equal arguments, and get the same result.
#pragma once

#include <cstdint>

#include "gigabar/device/memory.hpp"
#include "gigabar/device/sharing.hpp"
#include "gigabar/status.hpp"

#if !defined(__CUDA_ARCH__)
#include <atomic>
#include <barrier>
#include <cstddef>
#endif

namespace gigabar::inline v0::device {

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

// --- Several blocks as one -------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kMaxScopeBlocks = 256;  // of one scope

// Where the blocks of a scope meet: memory of their GPU, zeroed once. It serves one scope at a time, kernel after kernel; the next
// one may have another number of blocks. Nothing is reset between calls: the blocks' shares of a call add up to 2^32, so that the
// last one's carries into the number of calls and leaves no shares behind.
struct alignas(128) BlockGroup {
  std::uint64_t arrivals = 0;     // high half: calls to which all blocks have come; low half: shares of the next one
  std::uint64_t carried[2] = {};  // by broadcast(), in calls of even and of odd numbers
  std::uint64_t any[2] = {};      // the last such call in which any() was true, with bit 32
  std::uint32_t is_broken = 0;    // a block did not come in time
  std::uint32_t next_call[kMaxScopeBlocks] = {};  // [block], which alone uses it: the number of its next call
};

namespace detail {

inline constexpr std::uint64_t kWholeCall = std::uint64_t{1} << 32;

// What block `index` of `count` adds to the count of a call; together kWholeCall.
GIGABAR_DEVICE constexpr std::uint64_t share_of(std::uint32_t count, std::uint32_t index) {
  const std::uint64_t share = kWholeCall / count;
  return index == 0 ? kWholeCall - (count - 1) * share : share;
}
GIGABAR_DEVICE constexpr std::uint32_t number_in(std::uint64_t arrivals) { return static_cast<std::uint32_t>(arrivals >> 32); }

// One block's place in a scope of several.
struct PlaceInBlocks {
  BlockGroup* group = nullptr;
  Timeout timeout;
  std::uint64_t share = kWholeCall;
  std::uint32_t index = 0;
};

// The functions below are for one thread of each block. A call that does not wait for the others: begin() before its work;
// is_turn() before anybody is told that this block's part is done; then arrive().
struct BlocksCall {
  std::uint32_t number = 0;
  std::uint64_t arrivals = 0;  // loaded before the work, so that nothing waits for it
};
GIGABAR_DEVICE BlocksCall begin(const PlaceInBlocks& place) {
  return {place.group->next_call[place.index], load_relaxed(&place.group->arrivals)};
}

// Waits until all blocks have come to the calls before `number`. False: they did not in time. The count does not pass `number`
// before this block has arrived.
GIGABAR_DEVICE_CALLED bool await_blocks(BlockGroup* group, std::uint32_t number, Timeout timeout) {
  Deadline deadline(timeout);
  while (number_in(Shared<Sharing::device>::load(&group->arrivals)) != number) {
    const bool is_over = deadline.has_passed();
    if (deadline.has_looked() && load_relaxed(&group->is_broken) != 0) return false;
    if (!is_over) continue;
    store_relaxed(&group->is_broken, 1);
    return false;
  }
  return true;
}
GIGABAR_DEVICE bool is_turn(const PlaceInBlocks& place, const BlocksCall& call) {
  return number_in(call.arrivals) == call.number || await_blocks(place.group, call.number, place.timeout);
}

// Returns whether this block is the last one. Acquires and releases what the blocks did before.
GIGABAR_DEVICE bool arrive(const PlaceInBlocks& place, const BlocksCall& call) {
  place.group->next_call[place.index] = call.number + 1;
  const std::uint64_t before = fetch_add_acq_rel_device(&place.group->arrivals, place.share);
  return number_in(before + place.share) != call.number;
}

enum class MeetFor : std::uint8_t { order, value, any };

// A call for which all wait. Returns the value of block 0, or whether any block's is not 0. Slots of two calls are enough: a block
// that stores for the call after the next has seen all others come to the next one, behind their loads for this one.
GIGABAR_DEVICE_CALLED std::uint64_t meet(PlaceInBlocks place, MeetFor what, std::uint64_t value) {
  BlockGroup& group = *place.group;
  const BlocksCall call = begin(place);
  std::uint64_t& carried = group.carried[call.number % 2];
  std::uint64_t& any = group.any[call.number % 2];
  if (is_turn(place, call)) {
    if (what == MeetFor::value && place.index == 0) store_relaxed(&carried, value);
    if (what == MeetFor::any && value != 0) store_relaxed(&any, kWholeCall | call.number);
    arrive(place, call);
    await_blocks(place.group, call.number + 1, place.timeout);
  }
  if (what == MeetFor::value) return load_relaxed(&carried);
  return what == MeetFor::any && (load_relaxed(&any) == (kWholeCall | call.number) || load_relaxed(&group.is_broken) != 0) ? 1 : 0;
}

}  // namespace detail

// Several blocks of a kernel as one scope (or several warps or threads, as `Own` says): each does a part of the copy, with a fence
// of its own, so that their fences overlap. All blocks call the same functions, in the same order, with the same arguments.
//
// - Functions that only store (write, read, write_count, write_notify, notify) do not wait for the other blocks: each block gets
//   its own status. A block that is ahead waits in its next call until all others have come to the one before.
// - Where the blocks need a common answer, or where one posts to a queue for all, they meet. Then all must be on the GPU at once,
//   as with a cooperative launch. So must they in a kernel with more than one call.
// - A block that does not come within the timeout (and that of the call, where some of the others wait for something else first)
//   breaks the scope: then all calls of its blocks return timed_out, and open() of its group returns unavailable until the session
//   is opened again.
// - When the peer is lost, each block is told by itself, perhaps one call later than another. It comes to its calls all the
//   same, so that no other block waits for it.
// - Local memory of a write may change behind a meeting: sync(), wait(), flush().
// Cost: a meeting takes one or two microseconds.
//
// Ordering: sync() is acq_rel at the scope of the GPU: after it, each thread sees what all threads of all blocks did before, and
// what one of them releases afterwards to the whole system covers that (PTX: causality order is transitive).
template <class Own>
class BasicBlocks {
 public:
  GIGABAR_DEVICE explicit BasicBlocks(const Own& own = Own{}) : own_(own) {}

  // By each of the `count` blocks, with its `index` below that; before any call of this scope. `timeout`: how long a block waits
  // for the others. Errors: invalid_argument (count 0 or above kMaxScopeBlocks, no such index), unavailable (the group is broken).
  GIGABAR_DEVICE Status open(BlockGroup& group, std::uint32_t count, std::uint32_t index, Timeout timeout) {
    if (count == 0 || count > kMaxScopeBlocks || index >= count) return Status::invalid_argument;
    place_ = {&group, timeout, detail::share_of(count, index), index};
    count_ = count;
    // No call can be over before this block has come to it, so this is the number of the first.
    if (own_.rank() == 0) group.next_call[index] = detail::number_in(Shared<Sharing::device>::load(&group.arrivals));
    own_.sync();
    return is_broken() ? Status::unavailable : Status::ok;
  }

  GIGABAR_DEVICE std::uint32_t rank() const { return place_.index * own_.size() + own_.rank(); }
  GIGABAR_DEVICE std::uint32_t size() const { return count_ * own_.size(); }
  GIGABAR_DEVICE void sync() const { meet(detail::MeetFor::order, 0); }
  template <class T>
  GIGABAR_DEVICE T broadcast(T value) const {
    return static_cast<T>(meet(detail::MeetFor::value, static_cast<std::uint64_t>(value)));
  }
  // Also true where the scope is broken.
  GIGABAR_DEVICE bool any(bool is_so) const { return meet(detail::MeetFor::any, own_.any(is_so) ? 1 : 0) != 0; }

  // For the functions of this folder.
  GIGABAR_DEVICE const Own& own() const { return own_; }
  GIGABAR_DEVICE const detail::PlaceInBlocks& place() const { return place_; }
  GIGABAR_DEVICE bool is_broken() const { return load_relaxed(&place_.group->is_broken) != 0; }
  GIGABAR_DEVICE BasicBlocks patient(Timeout timeout) const {
    BasicBlocks longer = *this;
    std::uint64_t& ns = longer.place_.timeout.ns;
    ns = ns > kForever.ns - timeout.ns ? kForever.ns : ns + timeout.ns;
    return longer;
  }

 private:
  GIGABAR_DEVICE std::uint64_t meet(detail::MeetFor what, std::uint64_t value) const {
    own_.sync();
    return own_.broadcast(own_.rank() == 0 ? detail::meet(place_, what, value) : 0);
  }

  Own own_;
  detail::PlaceInBlocks place_;
  std::uint32_t count_ = 1;
};

#if defined(__CUDACC__)
using Blocks = BasicBlocks<Block>;
#endif

// How many blocks of 512 threads are worth a copy of so many bytes to another GPU: one multiprocessor stores 46 GB/s and eight fill
// NVLink (of H100), while a block with less than 16 bytes for each of its threads saves nothing.
GIGABAR_DEVICE constexpr std::uint32_t blocks_for(std::uint64_t bytes) {
  constexpr std::uint64_t kBytesOfABlock = 8192, kBlocks = 8;
  const std::uint64_t count = bytes / kBytesOfABlock;
  return static_cast<std::uint32_t>(count < 1 ? 1 : count < kBlocks ? count : kBlocks);
}

namespace detail {

// The threads that agree on a status without waiting for other blocks.
template <class Scope>
GIGABAR_DEVICE Scope own_part(const Scope& scope) {
  return scope;
}
template <class Own>
GIGABAR_DEVICE Own own_part(const BasicBlocks<Own>& blocks) {
  return blocks.own();
}
// Whether the scope's answers are void, because a block did not come.
template <class Scope>
GIGABAR_DEVICE bool is_broken(const Scope&) {
  return false;
}
template <class Own>
GIGABAR_DEVICE bool is_broken(const BasicBlocks<Own>& blocks) {
  return blocks.is_broken();
}
// The scope that meets behind a wait of up to `timeout` by some of its threads: the other blocks wait longer by that.
template <class Scope>
GIGABAR_DEVICE Scope patient(const Scope& scope, Timeout) {
  return scope;
}
template <class Own>
GIGABAR_DEVICE BasicBlocks<Own> patient(const BasicBlocks<Own>& blocks, Timeout timeout) {
  return blocks.patient(timeout);
}
// Waits until all blocks of the scope are here; false: one did not come. Nothing in scopes of one block.
template <class Scope>
GIGABAR_DEVICE bool meet_blocks(const Scope&) {
  return true;
}
template <class Own>
GIGABAR_DEVICE bool meet_blocks(const BasicBlocks<Own>& blocks) {
  blocks.sync();
  return !blocks.is_broken();
}
// scope.sync(); false: a block did not come, and nobody may act for all.
template <class Scope>
GIGABAR_DEVICE bool sync_all(const Scope& scope) {
  scope.sync();
  return !is_broken(scope);
}

}  // namespace detail

}  // namespace gigabar::inline v0::device
