// SPDX-License-Identifier: Apache-2.0
// A kernel of each of two ranks writes to the other's memory and waits for what the other writes, with no call to the CPU between:
// gigabar run -n 2 -- ./kernel_exchange. For a C++ compiler a thread of the CPU plays the kernel, over memory of a stand-in.
#include <cstdio>
#include <gigabar/device_session.hpp>

namespace device = gigabar::device;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr gigabar::SegmentId kSource = 1, kDestination = 2;
constexpr gigabar::NotificationId kArrived = 5;
constexpr std::uint64_t kBytes = 65536;

// Called by all threads of the scope together: a Block, a Warp or one Thread.
template <class Scope>
GIGABAR_DEVICE Status exchange(const Scope& scope, const device::DeviceFabric& fabric) {
  const gigabar::Rank peer = 1 - fabric.rank;
  // A reader that sees the notification also sees the bytes.
  const Status written = write_notify(scope, fabric, {kSource, 0}, {peer, kDestination, 0}, kBytes, kArrived, 1);
  if (written != Status::ok) return written;
  gigabar::NotificationId found = 0;
  const device::Timeout timeout{5'000'000'000};                                              // ns
  return notification_wait(scope, fabric, kDestination, kArrived, 1, timeout, found, peer);  // ok, timed_out or peer_lost
}

#if defined(__CUDACC__)
__global__ void exchange_on_gpu(device::DeviceFabric fabric, Status* ended) {
  const Status status = exchange(device::Block{}, fabric);
  if (threadIdx.x == 0) *ended = status;
}

Status run_kernel(int gpu, const device::DeviceFabric& fabric) {
  Status status = Status::device_error;
  Status* ended = nullptr;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMalloc(&ended, sizeof status) != cudaSuccess) return status;
  exchange_on_gpu<<<1, 512>>>(fabric, ended);
  if (cudaMemcpy(&status, ended, sizeof status, cudaMemcpyDeviceToHost) != cudaSuccess) status = Status::device_error;
  cudaFree(ended);
  return status;
}
#else
Status run_kernel(int, const device::DeviceFabric& fabric) { return exchange(device::Thread{}, fabric); }
#endif

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.error().message().c_str()), 1;
}

int main() {
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  auto source = gigabar::DeviceMemory::allocate(fabric->device(), kBytes);
  if (!source) return tell(source);
  auto destination = gigabar::DeviceMemory::allocate(fabric->device(), kBytes);
  if (!destination) return tell(destination);
  if (auto done = fabric->register_segment(kSource, source->address(), kBytes); !done) return tell(done);
  if (auto done = fabric->register_segment(kDestination, destination->address(), kBytes); !done) return tell(done);
  auto session = gigabar::DeviceSession::open(*fabric);  // at every rank, with the segments registered
  if (!session) return tell(session);
  const Status status = run_kernel(fabric->device(), session->handle());
  std::printf("rank %u: %s\n", fabric->rank(), std::string(name_of(status)).c_str());
  if (auto closed = session->close(10s); !closed) return tell(closed);
  if (auto done = fabric->deregister_segment(kSource, 10s); !done) return tell(done);
  if (auto done = fabric->deregister_segment(kDestination, 10s); !done) return tell(done);
  if (auto closed = fabric->close(10s); !closed) return tell(closed);
  return status == Status::ok ? 0 : 1;
}
