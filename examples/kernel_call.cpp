// SPDX-License-Identifier: Apache-2.0
// A kernel asks a kernel of another rank and gets its answer, 8 bytes each way: gigabar run -n 2 -- ./kernel_call
// The bytes travel inside notifications, the fastest message there is: one store each, without a fence. The Channel keeps the way
// in registers. Compiled by nvcc (-x cu) one warp of each GPU works; by a C++ compiler a thread of the CPU does.
#include <cstdio>
#include <gigabar/device/channel.hpp>
#include <gigabar/device_session.hpp>

namespace device = gigabar::device;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr gigabar::SegmentId kSegment = 0;
constexpr gigabar::NotificationId kQuestion = 0, kAnswer = 1;
constexpr std::uint32_t kCalls = 1000;
constexpr gigabar::Rank kServer = 0;
constexpr device::Timeout kPatience{5'000'000'000};  // ns, of one wait

GIGABAR_DEVICE std::uint64_t answer_to(std::uint64_t question) { return question * question + 1; }

// Call k raises both notifications to k, so that a wait knows its own message. `wrong`: answers that were not expected.
template <class Scope>
GIGABAR_DEVICE Status run_calls(const Scope& scope, const device::DeviceFabric& fabric, std::uint32_t& wrong) {
  device::Channel peer;
  Status status = device::Channel::open(scope, fabric, 1 - fabric.rank, kSegment, kSegment, 0, peer);
  if (status != Status::ok) return status;
  const bool is_server = fabric.rank == kServer;
  for (std::uint32_t k = 1; k <= kCalls && status == Status::ok; ++k) {
    std::uint32_t value = 0;
    std::uint64_t bytes = 0;
    if (!is_server) status = peer.notify(scope, kQuestion, k, device::Order::none, k, kPatience);
    if (status == Status::ok) {
      status = peer.notification_wait_until(scope, is_server ? kQuestion : kAnswer, k, kPatience, value, &bytes);
    }
    if (status != Status::ok) break;
    if (is_server) {
      status = peer.notify(scope, kAnswer, k, device::Order::none, answer_to(bytes), kPatience);
    } else if (bytes != answer_to(k)) {
      ++wrong;
    }
  }
  peer.close(scope);
  return status;
}

struct Ended {
  Status status = Status::device_error;
  std::uint32_t wrong = 0;
};

#if defined(__CUDACC__)
__global__ void run_on_gpu(device::DeviceFabric fabric, Ended* ended) {
  std::uint32_t wrong = 0;
  const Status status = run_calls(device::Warp{}, fabric, wrong);
  if (threadIdx.x == 0) *ended = {status, wrong};
}

Ended run_kernel(int gpu, const device::DeviceFabric& fabric) {
  Ended result;
  Ended* ended = nullptr;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMalloc(&ended, sizeof *ended) != cudaSuccess) return result;
  run_on_gpu<<<1, 32>>>(fabric, ended);
  if (cudaMemcpy(&result, ended, sizeof result, cudaMemcpyDeviceToHost) != cudaSuccess) result.status = Status::device_error;
  cudaFree(ended);
  return result;
}
#else
Ended run_kernel(int, const device::DeviceFabric& fabric) {
  Ended result;
  result.status = run_calls(device::Thread{}, fabric, result.wrong);
  return result;
}
#endif

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.error().message().c_str()), 1;
}

int main() {
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  if (fabric->rank_count() != 2) return std::puts("start two ranks: gigabar run -n 2 -- ./kernel_call"), 1;
  // Nothing is written to the segment; its notifications are what is used.
  auto memory = gigabar::DeviceMemory::allocate(fabric->device(), 4096);
  if (!memory) return tell(memory);
  if (auto done = fabric->register_segment(kSegment, memory->address(), memory->bytes()); !done) return tell(done);
  auto session = gigabar::DeviceSession::open(*fabric);
  if (!session) return tell(session);

  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = run_kernel(fabric->device(), session->handle());
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  std::printf("rank %u: %s, %u wrong answers, %.2f us per call\n", fabric->rank(), std::string(name_of(ended.status)).c_str(),
              ended.wrong, elapsed.count() / kCalls);

  if (auto closed = session->close(10s); !closed) return tell(closed);
  if (auto done = fabric->deregister_segment(kSegment, 10s); !done) return tell(done);
  if (auto closed = fabric->close(10s); !closed) return tell(closed);
  return ended.status == Status::ok && ended.wrong == 0 ? 0 : 1;
}
