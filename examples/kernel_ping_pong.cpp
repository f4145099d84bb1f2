// SPDX-License-Identifier: Apache-2.0
// Kernels of two ranks send each other a message, back and forth, without their CPUs: gigabar run -n 2 -- ./kernel_ping_pong
// Compiled by nvcc (-x cu) a block of the GPU plays; by a C++ compiler a thread of the CPU does, over memory of a stand-in.
#include <cstdio>
#include <gigabar/device_session.hpp>

namespace device = gigabar::device;
using gigabar::Status;

constexpr gigabar::SegmentId kSegment = 0;
constexpr gigabar::NotificationId kBall = 0;
constexpr std::uint64_t kMessageBytes = 4096;  // sent from the first half of the segment into the second
constexpr std::uint32_t kRounds = 1000;
constexpr device::Timeout kPatience{5'000'000'000};  // ns, of one wait

// Rank 0 begins. Behind the notification its message is seen.
template <class Scope>
GIGABAR_DEVICE Status play(const Scope& scope, const device::DeviceFabric& fabric) {
  const gigabar::Rank peer = 1 - fabric.rank;
  for (std::uint32_t turn = 0; turn < 2 * kRounds; ++turn) {
    Status status = Status::ok;
    if (turn % 2 == fabric.rank) {
      status = write_notify(scope, fabric, {kSegment, 0}, {peer, kSegment, kMessageBytes}, kMessageBytes, kBall, turn + 1);
    } else {
      gigabar::NotificationId found = 0;
      std::uint32_t value = 0;
      status = notification_wait(scope, fabric, kSegment, kBall, 1, kPatience, found, peer);
      if (status == Status::ok) status = notification_reset(scope, fabric, kSegment, found, value);
    }
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

#if defined(__CUDACC__)
__global__ void play_on_gpu(device::DeviceFabric fabric, Status* ended) {
  const Status status = play(device::Block{}, fabric);
  if (threadIdx.x == 0) *ended = status;
}

Status run_kernel(int gpu, const device::DeviceFabric& fabric) {
  Status* ended = nullptr;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMalloc(&ended, sizeof *ended) != cudaSuccess) return Status::device_error;
  play_on_gpu<<<1, 256>>>(fabric, ended);
  Status status = Status::device_error;
  if (cudaMemcpy(&status, ended, sizeof status, cudaMemcpyDeviceToHost) != cudaSuccess) status = Status::device_error;
  cudaFree(ended);
  return status;
}
#else
Status run_kernel(int, const device::DeviceFabric& fabric) { return play(device::Thread{}, fabric); }
#endif

// 1, with the reason, where something failed.
int tell(const gigabar::Result<void>& outcome) { return outcome ? 0 : (std::puts(outcome.message().c_str()), 1); }

int main() {
  const auto patience = gigabar::Timeout::of(std::chrono::seconds(10));
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return std::puts(fabric.error().message().c_str()), 1;
  if (fabric->rank_count() != 2) return std::puts("start two ranks: gigabar run -n 2 -- ./kernel_ping_pong"), 1;

  auto memory = gigabar::DeviceMemory::allocate(fabric->device(), 2 * kMessageBytes);
  if (!memory) return std::puts(memory.error().message().c_str()), 1;
  if (tell(fabric->register_segment(kSegment, memory->address(), memory->bytes())) != 0) return 1;

  {
    auto session = gigabar::DeviceSession::open(*fabric);
    if (!session) return std::puts(session.error().message().c_str()), 1;
    const auto begin = std::chrono::steady_clock::now();
    const Status status = run_kernel(fabric->device(), session->handle());
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
    std::printf("rank %u: %s, %.2f us per round\n", fabric->rank(), std::string(name_of(status)).c_str(),
                elapsed.count() / kRounds);
    if (status != Status::ok) return 1;
    if (tell(session->close(patience)) != 0) return 1;
  }
  if (tell(fabric->deregister_segment(kSegment, patience)) != 0) return 1;
  return tell(fabric->close(patience));
}
