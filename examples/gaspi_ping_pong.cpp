// SPDX-License-Identifier: Apache-2.0
// What GASPI costs above what it stands on: 8 bytes with their notification, back and forth between two ranks, by
// gaspi_write_notify and by the functions below it, on the CPU in host memory and in kernels: gigabar run -n 2 -- ./gaspi_ping_pong
// Compiled by nvcc (-x cu) a thread of the GPU plays; by a C++ compiler a thread of the CPU does, over memory of a stand-in.
#include <GASPI_Device.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <gigabar/device_session.hpp>

namespace device = gigabar::device;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr unsigned char kSegment = 0, kDeviceSegment = 1;  // host memory, and memory of the GPU
constexpr std::uint64_t kThere = 64;                       // where the 8 bytes go, from the beginning of the segment
constexpr std::uint32_t kWarmUps = 100, kRepeats = 5;
constexpr gaspi_timeout_t kTimeout = 20000;  // ms
constexpr device::Timeout kPatience{20'000'000'000};

// The next two are called on the GPU with functions of the GPU, on the CPU with functions of the CPU.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
// Rank 0 begins. `send` and `receive` return whether they did.
template <class Send, class Receive>
GIGABAR_DEVICE bool play(std::uint32_t rank, std::uint32_t rounds, const Send& send, const Receive& receive) {
  for (std::uint32_t turn = 0; turn < 2 * rounds; ++turn) {
    if (!(turn % 2 == rank ? send(turn + 1) : receive())) return false;
  }
  return true;
}

#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
// One way, in microseconds; 0: it failed.
template <class Send, class Receive>
GIGABAR_DEVICE double time_of(std::uint32_t rank, std::uint32_t rounds, const Send& send, const Receive& receive) {
  if (!play(rank, kWarmUps, send, receive)) return 0;
  const std::uint64_t begin = device::now_ns();
  if (!play(rank, rounds, send, receive)) return 0;
  return static_cast<double>(device::now_ns() - begin) / 2000.0 / rounds;
}

// --- In kernels ------------------------------------------------------------------------------------------------------------------

struct Native {
  device::DeviceFabric fabric;

  GIGABAR_DEVICE double run(std::uint32_t rounds) const {
    const device::Thread thread;
    const gigabar::Rank peer = 1 - fabric.rank;
    const auto send = [&](std::uint32_t value) {
      return write_notify(thread, fabric, {kDeviceSegment, 0}, {peer, kDeviceSegment, kThere}, 8, 0, value) == Status::ok;
    };
    const auto receive = [&] {
      gigabar::NotificationId id = 0;
      std::uint32_t value = 0;
      return notification_wait(thread, fabric, kDeviceSegment, 0, 1, kPatience, id) == Status::ok &&
             notification_reset(thread, fabric, kDeviceSegment, id, value) == Status::ok;
    };
    return time_of(fabric.rank, rounds, send, receive);
  }
};

struct Gaspi {
  gaspi_device_t handle;

  GIGABAR_DEVICE double run(std::uint32_t rounds) const {
    const device::Thread thread;
    const auto peer = static_cast<gaspi_rank_t>(1 - handle.fabric.rank);
    const auto send = [&](std::uint32_t value) {
      return gaspi_write_notify(thread, handle, kDeviceSegment, 0, peer, kDeviceSegment, kThere, 8, 0, value, 0, kTimeout) ==
             GASPI_SUCCESS;
    };
    const auto receive = [&] {
      gaspi_notification_id_t id = 0;
      gaspi_notification_t value = 0;
      return gaspi_notify_waitsome(thread, handle, kDeviceSegment, 0, 1, &id, kTimeout) == GASPI_SUCCESS &&
             gaspi_notify_reset(thread, handle, kDeviceSegment, id, &value) == GASPI_SUCCESS;
    };
    return time_of(handle.fabric.rank, rounds, send, receive);
  }
};

#if defined(__CUDACC__)
template <class Side>
__global__ void run_on_gpu(Side side, std::uint32_t rounds, double* time_us) {
  *time_us = side.run(rounds);
}

template <class Side>
double run_kernel(int gpu, const Side& side, std::uint32_t rounds) {
  double time_us = 0;
  double* result = nullptr;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMalloc(&result, sizeof time_us) != cudaSuccess) return 0;
  run_on_gpu<<<1, 1>>>(side, rounds, result);
  if (cudaMemcpy(&time_us, result, sizeof time_us, cudaMemcpyDeviceToHost) != cudaSuccess) time_us = 0;
  cudaFree(result);
  return time_us;
}
#else
template <class Side>
double run_kernel(int, const Side& side, std::uint32_t rounds) {
  return side.run(rounds);
}
#endif

// --- Two jobs of the same ranks, measured in turns -------------------------------------------------------------------------------

gigabar::Result<double> measure_host(gigabar::Fabric& fabric, std::uint32_t rounds) {
  const gigabar::Rank peer = 1 - fabric.rank();
  if (auto met = fabric.barrier({}, 20s); !met) return gigabar::Error(met.error());
  return time_of(
      fabric.rank(), rounds,
      [&](std::uint32_t value) {
        return fabric.write_notify({kSegment, 0}, {peer, kSegment, kThere}, 8, 0, value).is_ok() && fabric.wait(0, 20s).is_ok();
      },
      [&] {
        const auto id = fabric.notification_wait(kSegment, 0, 1, 20s);
        return id.is_ok() && fabric.notification_reset(kSegment, *id).is_ok();
      });
}

double measure_gaspi_host(gaspi_rank_t rank, std::uint32_t rounds) {
  const auto peer = static_cast<gaspi_rank_t>(1 - rank);
  if (gaspi_barrier(GASPI_GROUP_ALL, kTimeout) != GASPI_SUCCESS) return 0;
  return time_of(
      rank, rounds,
      [&](std::uint32_t value) {
        return gaspi_write_notify(kSegment, 0, peer, kSegment, kThere, 8, 0, value, 0, kTimeout) == GASPI_SUCCESS &&
               gaspi_wait(0, kTimeout) == GASPI_SUCCESS;
      },
      [&] {
        gaspi_notification_id_t id = 0;
        gaspi_notification_t value = 0;
        return gaspi_notify_waitsome(kSegment, 0, 1, &id, kTimeout) == GASPI_SUCCESS &&
               gaspi_notify_reset(kSegment, id, &value) == GASPI_SUCCESS;
      });
}

struct Times {
  double host = 1e9, gaspi_host = 1e9, kernel = 1e9, gaspi_kernel = 1e9;
};

// Returns whether nothing failed.
bool measure(gigabar::Fabric& fabric, const device::DeviceFabric& native, const gaspi_device_t& gaspi, std::uint32_t rounds,
             Times& best) {
  const auto rank = static_cast<gaspi_rank_t>(fabric.rank());
  for (std::uint32_t repeat = 0; repeat < kRepeats; ++repeat) {
    const auto host = measure_host(fabric, rounds);
    const double gaspi_host = measure_gaspi_host(rank, rounds);
    if (gaspi_barrier(GASPI_GROUP_ALL, kTimeout) != GASPI_SUCCESS) return false;
    const double kernel = run_kernel(fabric.device(), Native{native}, rounds);
    const double gaspi_kernel = run_kernel(fabric.device(), Gaspi{gaspi}, rounds);
    if (!host || *host == 0 || gaspi_host == 0 || kernel == 0 || gaspi_kernel == 0) return false;
    best = {std::min(best.host, *host), std::min(best.gaspi_host, gaspi_host), std::min(best.kernel, kernel),
            std::min(best.gaspi_kernel, gaspi_kernel)};
  }
  return true;
}

int tell(const gigabar::Error& error) { return std::puts(error.message().c_str()), 1; }

bool is_done(const char* what, gaspi_return_t code) {
  if (code != GASPI_SUCCESS) std::printf("%s: %s\n", what, gaspi_error_str(code));
  return code == GASPI_SUCCESS;
}

// gaspi_ping_pong [ROUNDS]: the least of some repeats.
int main(int argc, char** argv) {
  const auto rounds = static_cast<std::uint32_t>(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000);
  if (!is_done("init", gaspi_proc_init(kTimeout))) return 1;
  gaspi_rank_t count = 0;
  gaspi_proc_num(&count);
  if (count != 2) return std::puts("start two ranks: gigabar run -n 2 -- ./gaspi_ping_pong"), 1;
  if (!is_done("segment", gaspi_segment_create(kSegment, 4096, GASPI_GROUP_ALL, kTimeout, GASPI_MEM_INITIALIZED))) return 1;
  if (!is_done("GPU", gaspi_segment_create(kDeviceSegment, 4096, GASPI_GROUP_ALL, kTimeout, GASPI_MEM_GPU))) return 1;
  const gaspi_device_segment_t used{kDeviceSegment, GASPI_NOTIFY_KERNELS};
  const gaspi_device_t* gaspi = nullptr;
  if (!is_done("device side", gaspi_device_open(&used, 1, 1, &gaspi, kTimeout))) return 1;

  // The second job of these ranks meets at the next port.
  gigabar::FabricOptions options;
  const char* const port = std::getenv("MASTER_PORT");
  options.master_port = static_cast<std::uint16_t>((port == nullptr ? 29500 : std::atoi(port)) + 1);
  auto fabric = gigabar::Fabric::open(options);
  if (!fabric) return tell(fabric.error());
  gigabar::HostMemoryOptions like_segments;  // of GASPI, which ranks of this host store into
  like_segments.pages = gigabar::HostPages::pageable;
  like_segments.is_shared = true;
  auto host = gigabar::HostMemory::allocate(4096, like_segments);
  if (!host) return tell(host.error());
  auto memory = gigabar::DeviceMemory::allocate(fabric->device(), 4096);
  if (!memory) return tell(memory.error());
  if (auto done = fabric->register_segment(kSegment, host->address(), 4096); !done) return tell(done.error());
  if (auto done = fabric->register_segment(kDeviceSegment, memory->address(), 4096); !done) return tell(done.error());
  gigabar::DeviceSessionOptions like_gaspi;
  like_gaspi.notification_count = 65536;
  auto session = gigabar::DeviceSession::open(*fabric, like_gaspi);
  if (!session) return tell(session.error());

  Times best;
  if (!measure(*fabric, session->handle(), *gaspi, rounds, best)) return std::puts("a measurement failed"), 1;
  if (fabric->rank() == 0) {
    std::printf(
        "one way, 8 bytes and a notification, us: host memory %.3f by GASPI, %.3f by the fabric (%.2f x); kernels %.3f by GASPI, "
        "%.3f by the device functions (%.2f x)\n",
        best.gaspi_host, best.host, best.gaspi_host / best.host, best.gaspi_kernel, best.kernel, best.gaspi_kernel / best.kernel);
  }

  if (auto closed = session->close(20s); !closed) return tell(closed.error());
  for (const gigabar::SegmentId id : {kSegment, kDeviceSegment}) {
    if (auto done = fabric->deregister_segment(id, 20s); !done) return tell(done.error());
  }
  if (auto closed = fabric->close(20s); !closed) return tell(closed.error());
  return is_done("close", gaspi_device_close(kTimeout)) && is_done("term", gaspi_proc_term(kTimeout)) ? 0 : 1;
}
