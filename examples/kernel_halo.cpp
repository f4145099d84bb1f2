// SPDX-License-Identifier: Apache-2.0
// A stencil over a grid that the ranks share by rows. One kernel per rank makes all steps; the rows at its edges go to the
// neighbours' kernels as messages: gigabar run -n 2 -- ./kernel_halo
// Compiled by nvcc (-x cu) a block of each GPU works; by a C++ compiler a thread of the CPU does.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <gigabar/device/message.hpp>
#include <gigabar/device_session.hpp>
#include <vector>

namespace device = gigabar::device;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr std::uint32_t kRows = 16, kColumns = 256, kSteps = 200;  // rows of each rank; the first and last rank are neighbours
constexpr std::uint64_t kRowBytes = kColumns * sizeof(float);
constexpr std::uint32_t kUp = 0, kDown = 1;             // rings
constexpr device::Timeout kPatience{5'000'000'000};     // ns, of one wait
constexpr std::size_t kCells = (kRows + 2) * kColumns;  // with the neighbours' rows, 0 and kRows + 1

GIGABAR_DEVICE float smooth(const float* row, std::uint32_t i) {
  const std::uint32_t left = (i + kColumns - 1) % kColumns, right = (i + 1) % kColumns;
  const float* const above = row - kColumns;
  const float* const below = row + kColumns;
  return 0.5F * row[i] + 0.125F * (row[left] + row[right] + above[i] + below[i]);
}

template <class Scope>
GIGABAR_DEVICE Status run_steps(const Scope& scope, const device::DeviceFabric& fabric, float* now, float* next) {
  const gigabar::Rank above = (fabric.rank + fabric.rank_count - 1) % fabric.rank_count;
  const gigabar::Rank below = (fabric.rank + 1) % fabric.rank_count;
  device::SendRing up, down;
  device::RecvRing from_above, from_below;
  Status status = open_ring(fabric, above, kUp, up);
  if (status == Status::ok) status = open_ring(fabric, below, kDown, down);
  if (status == Status::ok) status = open_ring(fabric, above, kDown, from_above);
  if (status == Status::ok) status = open_ring(fabric, below, kUp, from_below);
  for (std::uint32_t step = 0; step < kSteps && status == Status::ok; ++step) {
    std::uint64_t bytes = 0;
    status = send(scope, up, now + kColumns, kRowBytes, kPatience);
    if (status == Status::ok) status = send(scope, down, now + kRows * kColumns, kRowBytes, kPatience);
    if (status == Status::ok) status = recv(scope, from_above, now, kRowBytes, bytes, kPatience);
    if (status == Status::ok) status = recv(scope, from_below, now + (kRows + 1) * kColumns, kRowBytes, bytes, kPatience);
    for (std::uint32_t i = scope.rank(); i < kRows * kColumns; i += scope.size()) {
      const std::uint32_t begin = (1 + i / kColumns) * kColumns;
      next[begin + i % kColumns] = smooth(now + begin, i % kColumns);
    }
    scope.sync();
    float* const old = now;
    now = next, next = old;
  }
  up.close(scope), down.close(scope), from_above.close(scope), from_below.close(scope);
  return status;
}

#if defined(__CUDACC__)
__global__ void run_on_gpu(device::DeviceFabric fabric, float* now, float* next, Status* ended) {
  const Status status = run_steps(device::Block{}, fabric, now, next);
  if (threadIdx.x == 0) *ended = status;
}

Status run_kernel(int gpu, const device::DeviceFabric& fabric, std::vector<float>& cells) {
  Status status = Status::device_error;
  float* memory = nullptr;
  const std::size_t bytes = cells.size() * sizeof(float);
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMalloc(&memory, 2 * bytes + sizeof status) != cudaSuccess) return status;
  Status* const ended = reinterpret_cast<Status*>(memory + 2 * kCells);
  bool is_done = cudaMemcpy(memory, cells.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess;
  run_on_gpu<<<1, 256>>>(fabric, memory, memory + kCells, ended);
  is_done = is_done && cudaMemcpy(cells.data(), memory, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
  is_done = is_done && cudaMemcpy(&status, ended, sizeof status, cudaMemcpyDeviceToHost) == cudaSuccess;
  cudaFree(memory);
  return is_done ? status : Status::device_error;
}
#else
Status run_kernel(int, const device::DeviceFabric& fabric, std::vector<float>& cells) {
  std::vector<float> next(cells.size());
  return run_steps(device::Thread{}, fabric, cells.data(), next.data());
}
#endif

float first_value(std::uint32_t row, std::uint32_t column) { return row == 3 && column == 5 ? 1000.0F : 1.0F; }

// The grid of all ranks by this CPU alone, and how far the rank's rows are from it.
float greatest_error(gigabar::Rank rank, gigabar::Rank rank_count, const std::vector<float>& cells) {
  const std::uint32_t rows = rank_count * kRows;
  std::vector<float> now((rows + 2) * kColumns), next = now;
  const auto at = [](std::vector<float>& grid, std::uint32_t row) { return grid.data() + row * kColumns; };
  for (std::uint32_t i = 0; i < rows * kColumns; ++i) now[kColumns + i] = first_value(i / kColumns, i % kColumns);
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    std::copy_n(at(now, rows), kColumns, at(now, 0));
    std::copy_n(at(now, 1), kColumns, at(now, rows + 1));
    for (std::uint32_t i = 0; i < rows * kColumns; ++i) {
      next[kColumns + i] = smooth(at(now, 1 + i / kColumns), i % kColumns);
    }
    now.swap(next);
  }
  float error = 0;
  for (std::uint32_t i = 0; i < kRows * kColumns; ++i) {
    error = std::max(error, std::abs(cells[kColumns + i] - now[(1 + rank * kRows) * kColumns + i]));
  }
  return error;
}

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.error().message().c_str()), 1;
}

int main() {
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  gigabar::DeviceSessionOptions options;
  options.ring_count = 2;
  auto session = gigabar::DeviceSession::open(*fabric, options);
  if (!session) return tell(session);
  std::vector<float> cells(kCells);
  for (std::uint32_t i = 0; i < kRows * kColumns; ++i) {
    cells[kColumns + i] = first_value(fabric->rank() * kRows + i / kColumns, i % kColumns);
  }
  const auto begin = std::chrono::steady_clock::now();
  const Status status = run_kernel(fabric->device(), session->handle(), cells);
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  const float error = greatest_error(fabric->rank(), fabric->rank_count(), cells);
  std::printf("rank %u: %s, %.2f us per step, greatest error %g\n", fabric->rank(), std::string(name_of(status)).c_str(),
              elapsed.count() / kSteps, static_cast<double>(error));
  if (auto closed = session->close(10s); !closed) return tell(closed);
  if (auto closed = fabric->close(10s); !closed) return tell(closed);
  return status == Status::ok && error < 1e-3F ? 0 : 1;
}
