// SPDX-License-Identifier: Apache-2.0
// Threads take tasks of different length from one counter until none is left. What the counter costs depends on who shares it,
// which is a parameter: threads of one block, or of the whole GPU. Compiled by nvcc (-x cu) a kernel works; by a C++ compiler
// threads do.
#include <cstdio>
#include <gigabar/device/memory.hpp>
#include <gigabar/device/sharing.hpp>
#include <thread>
#include <vector>

namespace device = gigabar::device;
using device::Sharing;

constexpr std::uint64_t kTasks = 20000;

struct Work {
  alignas(128) std::uint64_t next = 0;  // task that nobody has taken
  alignas(128) std::uint64_t sum = 0;   // of all results
};

// The next task, or kTasks when none is left.
template <Sharing S>
GIGABAR_DEVICE std::uint64_t take(Work& work) {
  std::uint64_t task = device::Shared<S>::load(&work.next);
  while (task < kTasks && !device::Shared<S>::compare_swap(&work.next, task, task + 1)) {
    task = device::Shared<S>::load(&work.next);  // another thread has taken it
  }
  return task;
}

GIGABAR_DEVICE std::uint64_t perform(std::uint64_t task) {
  std::uint64_t result = 0;
  for (std::uint64_t i = 0; i <= task % 64; ++i) result += i ^ task;
  return result;
}

// What each thread does. It adds its own sum once, instead of every result.
template <Sharing S>
GIGABAR_DEVICE void work_on(Work& work) {
  std::uint64_t sum = 0;
  for (std::uint64_t task = take<S>(work); task < kTasks; task = take<S>(work)) sum += perform(task);
  device::fetch_add_device(&work.sum, sum);
}

#if defined(__CUDACC__)
template <Sharing S>
__global__ void work_on_gpu(Work* work) {
  work_on<S>(*work);
}

// One block, or several where the whole GPU shares the counter.
template <Sharing S>
bool run(std::uint64_t& sum) {
  Work* work = nullptr;
  if (cudaMallocManaged(&work, sizeof *work) != cudaSuccess) return false;
  *work = Work{};
  work_on_gpu<S><<<S == Sharing::device ? 8 : 1, 128>>>(work);
  const bool is_done = cudaDeviceSynchronize() == cudaSuccess;
  sum = work->sum;
  cudaFree(work);
  return is_done;
}
#else
template <Sharing S>
bool run(std::uint64_t& sum) {
  Work work;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { work_on<S>(work); });
  for (std::thread& thread : threads) thread.join();
  sum = work.sum;
  return true;
}
#endif

int main() {
  std::uint64_t expected = 0, by_block = 0, by_device = 0;
  for (std::uint64_t task = 0; task < kTasks; ++task) expected += perform(task);
  if (!run<Sharing::block>(by_block) || !run<Sharing::device>(by_device)) return std::puts("the kernel failed"), 1;
  std::printf("block: %s; device: %s\n", by_block == expected ? "right" : "wrong", by_device == expected ? "right" : "wrong");
  return by_block == expected && by_device == expected ? 0 : 1;
}
