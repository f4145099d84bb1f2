// SPDX-License-Identifier: Apache-2.0
// Packs the left columns of a matrix into one piece of memory, as a kernel does before it sends the edge of its part to a
// neighbour. All threads of the scope copy each row together, 16 bytes at a time. Compiled by nvcc (-x cu) a block of the GPU
// packs; by a C++ compiler four threads that act as a block.
#include <cstdio>
#include <cstdlib>
#include <gigabar/device/copy.hpp>
#include <gigabar/device/scope.hpp>
#include <thread>
#include <vector>

namespace device = gigabar::device;

struct Rows {
  const std::byte* first = nullptr;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;         // to take of each
  std::uint64_t stride_bytes = 0;  // from one to the next
};

// Behind it every thread of the scope sees all of `to`.
template <class Scope>
GIGABAR_DEVICE void pack(const Scope& scope, std::byte* to, const Rows& rows) {
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    copy_bytes(scope, to + i * rows.bytes, rows.first + i * rows.stride_bytes, rows.bytes);
  }
  scope.sync();
}

#if defined(__CUDACC__)
__global__ void pack_on_gpu(std::byte* to, Rows rows) { pack(device::Block{}, to, rows); }

std::byte* allocate(std::uint64_t bytes) {
  void* memory = nullptr;
  return cudaMallocManaged(&memory, bytes) == cudaSuccess ? static_cast<std::byte*>(memory) : nullptr;
}
void release(std::byte* memory) { cudaFree(memory); }
bool run(std::byte* to, const Rows& rows) {
  pack_on_gpu<<<1, 256>>>(to, rows);
  return cudaDeviceSynchronize() == cudaSuccess;
}
#else
std::byte* allocate(std::uint64_t bytes) { return static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)); }
void release(std::byte* memory) { std::free(memory); }
bool run(std::byte* to, const Rows& rows) {
  constexpr std::uint32_t kThreads = 4;
  device::CpuTeam team(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] { pack(device::CpuTeam::Member(team, rank), to, rows); });
  }
  for (std::thread& thread : threads) thread.join();
  return true;
}
#endif

std::byte pattern(std::uint64_t row, std::uint64_t column) { return static_cast<std::byte>(row * 31 + column * 7 + 1); }

int main() {
  constexpr std::uint64_t kRows = 300, kStrideBytes = 4096, kEdgeBytes = 200;
  std::byte* const matrix = allocate(kRows * kStrideBytes);
  std::byte* const packed = allocate(kRows * kEdgeBytes + 1);  // and a byte behind, which must stay as it is
  if (matrix == nullptr || packed == nullptr) return std::puts("no memory"), 1;
  for (std::uint64_t i = 0; i < kRows * kStrideBytes; ++i) matrix[i] = pattern(i / kStrideBytes, i % kStrideBytes);
  packed[kRows * kEdgeBytes] = std::byte{0};

  if (!run(packed, Rows{matrix, kRows, kEdgeBytes, kStrideBytes})) return std::puts("the kernel failed"), 1;

  std::uint64_t wrong = packed[kRows * kEdgeBytes] == std::byte{0} ? 0 : 1;
  for (std::uint64_t i = 0; i < kRows * kEdgeBytes; ++i) wrong += packed[i] == pattern(i / kEdgeBytes, i % kEdgeBytes) ? 0 : 1;
  std::printf("%llu rows of %llu bytes packed, %llu wrong bytes\n", static_cast<unsigned long long>(kRows),
              static_cast<unsigned long long>(kEdgeBytes), static_cast<unsigned long long>(wrong));
  release(matrix);
  release(packed);
  return wrong == 0 ? 0 : 1;
}
