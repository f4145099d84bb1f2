// SPDX-License-Identifier: Apache-2.0
// A kernel says how far it is while it runs, and the CPU ends it when that is far enough: here Newton's method for a square root.
// Compiled by nvcc (-x cu) a warp of the GPU works; by a C++ compiler a thread of the CPU does.
#include <cmath>
#include <cstdio>
#include <gigabar/kernel_ring.hpp>
#include <thread>

namespace device = gigabar::device;
using gigabar::Status;

constexpr double kNumber = 2e6;
constexpr device::Timeout kPatience{5'000'000'000};  // ns, of one wait

// A report for each step. The CPU answers whether the kernel goes on.
template <class Scope>
GIGABAR_DEVICE void find_root(const Scope& scope, device::RingEnd* from_cpu, device::RingEnd* to_cpu) {
  device::CpuRecvRing orders;
  device::CpuSendRing reports;
  orders.open(*from_cpu);
  reports.open(*to_cpu);
  bool is_wanted = true;
  for (double root = kNumber; is_wanted; root = 0.5 * (root + kNumber / root)) {
    if (send_value(scope, reports, root, kPatience) != Status::ok) break;
    if (recv_value(scope, orders, is_wanted, kPatience) != Status::ok) break;
  }
  orders.close(scope);
  reports.close(scope);
}

#if defined(__CUDACC__)
__global__ void find_on_gpu(device::RingEnd* from_cpu, device::RingEnd* to_cpu) { find_root(device::Warp{}, from_cpu, to_cpu); }

struct Kernel {
  explicit Kernel(const gigabar::KernelRing& ring) { find_on_gpu<<<1, 32>>>(ring.from_cpu(), ring.to_cpu()); }
  bool end() { return cudaDeviceSynchronize() == cudaSuccess; }
};
#else
struct Kernel {
  explicit Kernel(const gigabar::KernelRing& ring)
      : thread([from = ring.from_cpu(), to = ring.to_cpu()] { find_root(device::Thread{}, from, to); }) {}
  bool end() { return thread.join(), true; }
  std::thread thread;
};
#endif

int main() {
  auto ring = gigabar::KernelRing::open(0);
  if (!ring) return std::puts(ring.error().message().c_str()), 1;
  Kernel kernel(*ring);
  const device::Thread thread;
  Status status = Status::ok;
  double root = 0;
  std::uint32_t steps = 0;
  for (bool is_wanted = true; is_wanted && status == Status::ok; ++steps) {
    status = recv_value(thread, ring->from_kernel(), root, kPatience);
    if (status != Status::ok) break;
    is_wanted = std::abs(root * root - kNumber) > 1e-6 * kNumber;
    status = send_value(thread, ring->to_kernel(), is_wanted, kPatience);
  }
  ring->stop();
  const bool is_ended = kernel.end();
  std::printf("%s after %u steps: %.6f\n", std::string(name_of(status)).c_str(), steps, root);
  return is_ended && status == Status::ok ? 0 : 1;
}
