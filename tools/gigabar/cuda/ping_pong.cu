// SPDX-License-Identifier: Apache-2.0
// The kernel that answers the CPU's flags, or sends flags that the CPU answers.
//
// Who writes what: the CPU writes the device flag and, when it starts the rounds, the data; block b writes word b of the host flags
// and, when the device starts, its part of the data. Every wait ends at the plan's deadline, by %globaltimer, or at kStopFlag.
// Ordering: data before flag is a system-scope fence between them (fence.acq_rel.sys after the block's barrier); a receiver fences
// between the flag it saw and the data it reads. Source: PTX ISA 8, "Memory consistency model", causality order.
#include <cuda_runtime.h>

#include "cuda/runtime.hpp"

namespace gigabar::tool {
namespace {

// Lives in device memory; the host reads it after the kernel's end.
struct EndRecord {
  std::uint32_t rounds_done;
  std::uint32_t has_timed_out;
  std::uint32_t has_mismatch;
  std::uint32_t mismatch_round;
  std::uint64_t mismatch_offset_bytes;
  std::uint64_t mismatch_found;
  std::uint64_t elapsed_ns;
  std::uint64_t elapsed_cycles;
};

__device__ std::uint64_t global_ns() {
  std::uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

__device__ std::uint32_t load_flag(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ void store_flag(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

// One thread waits for the block. Reading %globaltimer costs more than a poll, so it is read at every 64th.
__device__ bool await_flag(const std::uint32_t* flag, std::uint32_t value, std::uint64_t deadline_ns, EndRecord* end) {
  for (std::uint32_t poll = 1;; ++poll) {
    const std::uint32_t found = load_flag(flag);
    if (found == value) return true;
    if (found == kStopFlag) return false;
    if (poll % 64 == 0 && global_ns() > deadline_ns) {
      end->has_timed_out = 1;
      return false;
    }
  }
}

// volatile: the data changes under the kernel, so nothing of it may be kept from an earlier round.
__device__ void check_data(const PingPongPlan& plan, std::uint32_t round, EndRecord* end) {
  const volatile std::uint64_t* data = plan.data;
  for (std::uint64_t i = threadIdx.x; i < plan.data_bytes / 8; i += blockDim.x) {
    const std::uint64_t found = data[i];
    if (found == ping_pong_word(round, i)) continue;
    if (atomicExch(&end->has_mismatch, 1U) == 0) {
      end->mismatch_round = round;
      end->mismatch_offset_bytes = i * 8;
      end->mismatch_found = found;
    }
  }
}

__device__ void write_data(const PingPongPlan& plan, std::uint32_t round) {
  volatile std::uint64_t* data = plan.data;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < plan.data_bytes / 8; i += threads) {
    data[i] = ping_pong_word(round, i);
  }
  __threadfence_system();
}

// The whole block waits for the flag of its first thread; false for all when it will not come.
__device__ bool block_await(const PingPongPlan& plan, std::uint32_t round, std::uint64_t deadline_ns, EndRecord* end) {
  bool is_there = true;
  if (threadIdx.x == 0) is_there = await_flag(plan.device_flag, round, deadline_ns, end);
  if (blockDim.x > 1) is_there = __syncthreads_and(is_there) != 0;
  if (plan.data_bytes != 0) __threadfence_system();
  return is_there;
}

__device__ void block_tell(const PingPongPlan& plan, std::uint32_t round) {
  if (plan.data_bytes != 0) __threadfence_system();
  if (blockDim.x > 1) __syncthreads();
  if (threadIdx.x == 0) store_flag(plan.host_flags + blockIdx.x, round);
}

__global__ void answer_flags(PingPongPlan plan, EndRecord* end) {
  const std::uint64_t start_ns = global_ns();
  const std::uint64_t deadline_ns = start_ns + plan.timeout_ns;
  std::uint32_t round = 1;
  for (; round <= plan.rounds; ++round) {
    if (!block_await(plan, round, deadline_ns, end)) break;
    if (plan.data_bytes != 0) check_data(plan, round, end);
    block_tell(plan, round);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    end->rounds_done = round - 1;
    end->elapsed_ns = global_ns() - start_ns;
  }
}

__global__ void send_flags(PingPongPlan plan, EndRecord* end) {
  const std::uint64_t start_ns = global_ns();
  const std::uint64_t deadline_ns = start_ns + plan.timeout_ns;
  const bool keeps_time = blockIdx.x == 0 && threadIdx.x == 0;
  const std::uint64_t start_cycles = clock64();
  std::uint32_t round = 1;
  for (; round <= plan.rounds; ++round) {
    const std::uint64_t before = clock64();
    if (plan.data_bytes != 0) write_data(plan, round);
    block_tell(plan, round);
    if (!block_await(plan, round, deadline_ns, end)) break;
    if (keeps_time) plan.samples[round - 1] = clock64() - before;
  }
  if (keeps_time) {
    end->rounds_done = round - 1;
    end->elapsed_ns = global_ns() - start_ns;
    end->elapsed_cycles = clock64() - start_cycles;
  }
}

Error cuda_failure(const char* operation, cudaError_t code) {
  return Error({Status::device_error,
                operation,
                "flag kernel",
                {NativeDomain::cuda_driver, code, cudaGetErrorName(code)},
                cudaGetErrorString(code),
                ""});
}

class RunningKernel : public PingPong {
 public:
  static Result<std::unique_ptr<PingPong>> start(const PingPongPlan& plan) {
    auto kernel = std::make_unique<RunningKernel>();
    if (const cudaError_t code = kernel->prepare(); code != cudaSuccess) return cuda_failure("prepare kernel", code);
    if (plan.device_starts) {
      send_flags<<<plan.block_count, plan.threads_per_block, 0, kernel->stream_>>>(plan, kernel->end_);
    } else {
      answer_flags<<<plan.block_count, plan.threads_per_block, 0, kernel->stream_>>>(plan, kernel->end_);
    }
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return cuda_failure("launch kernel", code);
    cudaStreamQuery(kernel->stream_);  // hands the launch to the device now
    return std::unique_ptr<PingPong>(std::move(kernel));
  }

  ~RunningKernel() override {
    if (stream_ != nullptr) {
      cudaStreamSynchronize(stream_);
      cudaStreamDestroy(stream_);
    }
    cudaFree(end_);
  }

  Result<PingPongEnd> wait() override {
    if (const cudaError_t code = cudaStreamSynchronize(stream_); code != cudaSuccess) return cuda_failure("await kernel", code);
    EndRecord end{};
    if (const cudaError_t code = cudaMemcpy(&end, end_, sizeof end, cudaMemcpyDefault); code != cudaSuccess) {
      return cuda_failure("read kernel's report", code);
    }
    PingPongEnd told;
    told.rounds_done = end.rounds_done;
    told.has_timed_out = end.has_timed_out != 0;
    told.has_mismatch = end.has_mismatch != 0;
    told.mismatch_round = end.mismatch_round;
    told.mismatch_offset_bytes = end.mismatch_offset_bytes;
    told.mismatch_found = end.mismatch_found;
    told.elapsed_ns = static_cast<double>(end.elapsed_ns);
    told.elapsed_cycles = end.elapsed_cycles;
    return told;
  }

 private:
  cudaError_t prepare() {
    cudaError_t code = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaMalloc(&end_, sizeof(EndRecord));
    if (code == cudaSuccess) code = cudaMemset(end_, 0, sizeof(EndRecord));
    if (code == cudaSuccess) code = cudaDeviceSynchronize();
    return code;
  }

  cudaStream_t stream_ = nullptr;
  EndRecord* end_ = nullptr;
};

// Blocks that wait for the CPU must all be on the device at once: one that is not would never answer.
Result<std::uint32_t> resident_blocks(const PingPongPlan& plan) {
  int device = 0;
  int processors = 0;
  int per_processor = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int threads = static_cast<int>(plan.threads_per_block);
  if (code == cudaSuccess) {
    code = plan.device_starts ? cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, send_flags, threads, 0)
                              : cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, answer_flags, threads, 0);
  }
  if (code != cudaSuccess) return cuda_failure("ask for the device's room", code);
  return static_cast<std::uint32_t>(processors * per_processor);
}

}  // namespace

Result<std::unique_ptr<PingPong>> start_ping_pong(const PingPongPlan& plan) {
  auto room = resident_blocks(plan);
  if (!room) return std::move(room).error();
  if (plan.block_count > *room) {
    return Error({Status::invalid_argument,
                  "start kernel",
                  "flag kernel",
                  {},
                  std::to_string(plan.block_count) + " blocks of " + std::to_string(plan.threads_per_block) +
                      " threads, but the device holds " + std::to_string(*room) + " at once and each must answer",
                  "use fewer blocks (-B) or threads (-T)"});
  }
  return RunningKernel::start(plan);
}

}  // namespace gigabar::tool
