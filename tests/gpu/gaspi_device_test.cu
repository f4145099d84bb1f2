// SPDX-License-Identifier: Apache-2.0
// GASPI in kernels, on the hardware: ranks are processes, on two GPUs where there are two. Kernels write to each other; and a
// kernel and a CPU notify each other, with data in GPU memory that the kernel reads while it runs.
#include <GASPI_Device.hpp>
#include <thread>
#include <vector>

#include "conformance/gaspi_ranks.hpp"
#include "gpu/gpu_fixture.hpp"

namespace gigabar::test {
namespace {

namespace gpu = gigabar::device;

constexpr gaspi_segment_id_t kKernels = 0, kCpus = 1;  // whose notifications they take
constexpr std::uint64_t kBytes = 1 << 20, kWords = 8192;
constexpr unsigned kRounds = 500;

// The first code that was not expected, where, and how much data was wrong.
struct Report {
  int code = GASPI_SUCCESS;
  unsigned round = 0;
  unsigned long long wrong_count = 0;
};

__device__ bool is_done(Report* report, gaspi_return_t code, unsigned round) {
  if (code == GASPI_SUCCESS) return true;
  report->code = code;
  report->round = round;
  return false;
}

template <class Scope>
__device__ bool take_in_kernel(const Scope& scope, const gaspi_device_t& device, Report* report, gaspi_notification_id_t id,
                               unsigned round) {
  gaspi_notification_id_t found = 0;
  gaspi_notification_t value = 0;
  if (!is_done(report, gaspi_notify_waitsome(scope, device, kKernels, id, 1, &found, kLong), round)) return false;
  if (!is_done(report, gaspi_notify_reset(scope, device, kKernels, found, &value), round)) return false;
  if (value != round || found != id) atomicAdd(&report->wrong_count, 1ULL);
  return true;
}

template <class Scope>
__device__ void look_at(const Scope& scope, Report* report, const std::uint64_t* words, std::uint64_t count, std::uint64_t first) {
  unsigned long long wrong = 0;
  for (std::uint64_t i = scope.rank(); i < count; i += scope.size()) wrong += words[i] != first + i ? 1 : 0;
  if (wrong != 0) atomicAdd(&report->wrong_count, wrong);
  scope.sync();
}

// Both ranks: words from the second half of the segment to the first of the other's, and a read of them.
template <class Scope>
__global__ void exchange(gaspi_device_t device, std::uint64_t* words, std::uint64_t count, Report* report) {
  const Scope scope;
  const auto peer = static_cast<gaspi_rank_t>(1 - device.fabric.rank);
  constexpr std::uint64_t kHalf = kBytes / 2, kBack = kBytes / 4;
  for (unsigned round = 1; round <= kRounds; ++round) {
    const std::uint64_t first = round * 100'000ULL + device.fabric.rank * 50'000ULL;
    const std::uint64_t theirs = round * 100'000ULL + peer * 50'000ULL;
    for (std::uint64_t i = scope.rank(); i < count; i += scope.size()) words[kHalf / 8 + i] = first + i;
    scope.sync();
    const gaspi_size_t bytes = count * 8;
    if (!is_done(report, gaspi_write_notify(scope, device, kKernels, kHalf, peer, kKernels, 0, bytes, 3, round, 0, kLong), round))
      return;
    if (!take_in_kernel(scope, device, report, 3, round)) return;
    look_at(scope, report, words, count, theirs);
    if (!is_done(report, gaspi_read(scope, device, kKernels, kBack, peer, kKernels, kHalf, bytes, 0, kLong), round)) return;
    if (!is_done(report, gaspi_wait(scope, device, 0, kLong), round)) return;
    look_at(scope, report, words + kBack / 8, count, theirs);
    // Looked at and read: the next ones may come.
    if (!is_done(report, gaspi_notify(scope, device, kKernels, peer, 4, round, 0, kLong), round)) return;
    if (!take_in_kernel(scope, device, report, 4, round)) return;
  }
}

// The data of a question is the kernel's; its CPU's peer answers with one larger words, into the same GPU's memory.
template <class Scope>
__global__ void ask(gaspi_device_t device, std::uint64_t* words, std::uint64_t count, Report* report) {
  const Scope scope;
  const auto peer = static_cast<gaspi_rank_t>(1 - device.fabric.rank);
  for (unsigned round = 1; round <= kRounds; ++round) {
    const std::uint64_t first = round * 100'000ULL + device.fabric.rank * 50'000ULL;
    for (std::uint64_t i = scope.rank(); i < count; i += scope.size()) words[kBytes / 16 + i] = first + i;
    scope.sync();
    const gaspi_return_t asked =
        gaspi_write_notify(scope, device, kKernels, kBytes / 2, peer, kCpus, 0, count * 8, 3, round, 0, kLong);
    if (!is_done(report, asked, round)) return;
    if (!take_in_kernel(scope, device, report, 5, round)) return;
    look_at(scope, report, words, count, first + 1);
  }
}

// The CPU: questions in host memory.
void answer(gaspi_rank_t peer, std::uint64_t count) {
  auto* const words = numbers<std::uint64_t>(kCpus);
  for (unsigned round = 1; round <= kRounds; ++round) {
    ASSERT_EQ(take(kCpus, 3), round);
    const std::uint64_t first = round * 100'000ULL + peer * 50'000ULL;
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      wrong += words[i] != first + i ? 1 : 0;
      words[kWords + i] = words[i] + 1;
    }
    ASSERT_EQ(wrong, 0U) << "round " << round;
    ASSERT_DONE(gaspi_write_notify(kCpus, kWords * 8, peer, kKernels, 0, count * 8, 5, round, 0, kLong));
    ASSERT_DONE(gaspi_wait(0, kLong));
  }
}

using Kernel = void (*)(gaspi_device_t, std::uint64_t*, std::uint64_t, Report*);

struct Launch {
  Kernel kernel;
  unsigned threads;
};

// Runs the kernel, and `beside` on the CPU meanwhile.
template <class Beside>
void run(const Launch& launch, const gaspi_device_t& device, std::uint64_t count, const Beside& beside) {
  auto* const words = numbers<std::uint64_t>(kKernels);
  cudaPointerAttributes memory{};
  ASSERT_CUDA(cudaPointerGetAttributes(&memory, words));
  ASSERT_CUDA(cudaSetDevice(memory.device));
  CudaBuffer report(sizeof(Report));
  ASSERT_CUDA(cudaMemset(report.address(), 0, sizeof(Report)));
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaDeviceSynchronize());
  launch.kernel<<<1, launch.threads, 0, stream>>>(device, words, count, static_cast<Report*>(report.address()));
  ASSERT_CUDA(cudaPeekAtLastError());
  beside();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  Report found;
  ASSERT_CUDA(cudaMemcpy(&found, report.address(), sizeof found, cudaMemcpyDeviceToHost));
  EXPECT_EQ(GASPI_SUCCESS, found.code) << "round " << found.round << ", " << launch.threads << " threads, " << count << " words";
  EXPECT_EQ(0ULL, found.wrong_count) << launch.threads << " threads, " << count << " words";
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

BARE_RANK_BODY(gaspi_kernels_on_gpus) {
  ASSERT_DONE(gaspi_proc_init(kLong));
  ASSERT_DONE(gaspi_segment_create(kKernels, kBytes, GASPI_GROUP_ALL, kLong, GASPI_MEM_GPU));
  ASSERT_DONE(gaspi_segment_create(kCpus, 2 * kWords * 8, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  const gaspi_device_segment_t segments[] = {{kKernels, GASPI_NOTIFY_KERNELS}, {kCpus, GASPI_NOTIFY_CPU}};
  const gaspi_device_t* device = nullptr;
  ASSERT_DONE(gaspi_device_open(segments, 2, 1, &device, kLong));
  const auto peer = gaspi_rank_t(1 - me.rank());
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{512}, kWords}) {
    for (const Launch& launch :
         {Launch{exchange<gpu::Thread>, 1}, Launch{exchange<gpu::Warp>, 32}, Launch{exchange<gpu::Block>, 256}}) {
      if (launch.threads == 1 && count > 512) continue;
      run(launch, *device, count, [] {});
      ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
    }
    for (const Launch& launch : {Launch{ask<gpu::Thread>, 1}, Launch{ask<gpu::Warp>, 32}, Launch{ask<gpu::Block>, 256}}) {
      if (launch.threads == 1 && count > 512) continue;
      run(launch, *device, count, [&] { answer(peer, count); });
      ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
    }
  }
  ASSERT_DONE(gaspi_device_close(kLong));
  ASSERT_DONE(gaspi_proc_term(kLong));
}

TEST(DeviceGaspiTest, KernelsAndCpusOfTwoRanks) {
  int device_count = 0;
  if (cudaGetDeviceCount(&device_count) != cudaSuccess || device_count == 0) GTEST_SKIP() << "no GPU";
  RankSetup setup;
  setup.rank_count = 2;
  setup.origin = setup.target = MemoryChoice::device;
  run_gaspi("gaspi_kernels_on_gpus", setup);
}

}  // namespace
}  // namespace gigabar::test
