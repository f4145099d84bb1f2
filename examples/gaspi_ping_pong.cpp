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

constexpr unsigned char kSegment = 0;
constexpr std::uint64_t kThere = 64;  // where the 8 bytes go, from the beginning of the segment
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
      return write_notify(thread, fabric, {kSegment, 0}, {peer, kSegment, kThere}, 8, 0, value) == Status::ok;
    };
    const auto receive = [&] {
      gigabar::NotificationId id = 0;
      std::uint32_t value = 0;
      return notification_wait(thread, fabric, kSegment, 0, 1, kPatience, id) == Status::ok &&
             notification_reset(thread, fabric, kSegment, id, value) == Status::ok;
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
      return gaspi_write_notify(thread, handle, kSegment, 0, peer, kSegment, kThere, 8, 0, value, 0, kTimeout) == GASPI_SUCCESS;
    };
    const auto receive = [&] {
      gaspi_notification_id_t id = 0;
      gaspi_notification_t value = 0;
      return gaspi_notify_waitsome(thread, handle, kSegment, 0, 1, &id, kTimeout) == GASPI_SUCCESS &&
             gaspi_notify_reset(thread, handle, kSegment, id, &value) == GASPI_SUCCESS;
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

// --- A job for each measurement --------------------------------------------------------------------------------------------------

struct Times {
  double host = 0, kernels = 0;
};

Times tell(const gigabar::Error& error) { return std::puts(error.message().c_str()), Times{}; }

// Of the fabric and the device functions.
Times measure_native(std::uint32_t rounds) {
  Times times;
  auto opened = gigabar::Fabric::open({});
  if (!opened) return tell(opened.error());
  gigabar::Fabric& fabric = *opened;
  const gigabar::Rank peer = 1 - fabric.rank();
  auto host = gigabar::HostMemory::allocate(4096);
  if (!host) return tell(host.error());
  if (auto done = fabric.register_segment(kSegment, host->address(), 4096); !done) return tell(done.error());
  if (auto met = fabric.barrier({}, 20s); !met) return tell(met.error());
  times.host = time_of(
      fabric.rank(), rounds,
      [&](std::uint32_t value) {
        return fabric.write_notify({kSegment, 0}, {peer, kSegment, kThere}, 8, 0, value).is_ok() && fabric.wait(0, 20s).is_ok();
      },
      [&] {
        const auto id = fabric.notification_wait(kSegment, 0, 1, 20s);
        return id.is_ok() && fabric.notification_reset(kSegment, *id).is_ok();
      });
  if (auto met = fabric.barrier({}, 20s); !met) return tell(met.error());
  if (auto done = fabric.deregister_segment(kSegment, 20s); !done) return tell(done.error());
  auto memory = gigabar::DeviceMemory::allocate(fabric.device(), 4096);
  if (!memory) return tell(memory.error());
  if (auto done = fabric.register_segment(kSegment, memory->address(), 4096); !done) return tell(done.error());
  gigabar::DeviceSessionOptions options;
  options.notification_count = 65536;  // as GASPI has them
  auto session = gigabar::DeviceSession::open(fabric, options);
  if (!session) return tell(session.error());
  times.kernels = run_kernel(fabric.device(), Native{session->handle()}, rounds);
  if (auto closed = session->close(20s); !closed) return tell(closed.error());
  if (auto done = fabric.deregister_segment(kSegment, 20s); !done) return tell(done.error());
  if (auto closed = fabric.close(20s); !closed) return tell(closed.error());
  return times;
}

bool is_done(const char* what, gaspi_return_t code) {
  if (code != GASPI_SUCCESS) std::printf("%s: %s\n", what, gaspi_error_str(code));
  return code == GASPI_SUCCESS;
}

Times measure_gaspi(int gpu, std::uint32_t rounds) {
  Times times;
  gaspi_rank_t rank = 0;
  if (!is_done("init", gaspi_proc_init(kTimeout)) || !is_done("rank", gaspi_proc_rank(&rank))) return {};
  const auto peer = static_cast<gaspi_rank_t>(1 - rank);
  if (!is_done("segment", gaspi_segment_create(kSegment, 4096, GASPI_GROUP_ALL, kTimeout, GASPI_MEM_INITIALIZED))) return {};
  times.host = time_of(
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
  if (!is_done("barrier", gaspi_barrier(GASPI_GROUP_ALL, kTimeout)) || !is_done("delete", gaspi_segment_delete(kSegment)))
    return {};
  if (!is_done("GPU segment", gaspi_segment_create(kSegment, 4096, GASPI_GROUP_ALL, kTimeout, GASPI_MEM_GPU))) return {};
  const gaspi_device_segment_t segment{kSegment, GASPI_NOTIFY_KERNELS};
  const gaspi_device_t* handle = nullptr;
  if (!is_done("device side", gaspi_device_open(&segment, 1, 1, &handle, kTimeout))) return {};
  times.kernels = run_kernel(gpu, Gaspi{*handle}, rounds);
  if (!is_done("close", gaspi_device_close(kTimeout)) || !is_done("term", gaspi_proc_term(kTimeout))) return {};
  return times;
}

// gaspi_ping_pong [ROUNDS]: the least of some repeats, in turns, of both ranks' jobs.
int main(int argc, char** argv) {
  const auto rounds = static_cast<std::uint32_t>(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000);
  int gpu = 0;
  {
    auto fabric = gigabar::Fabric::open({});
    if (!fabric) return std::puts(fabric.error().message().c_str()), 1;
    if (fabric->rank_count() != 2) return std::puts("start two ranks: gigabar run -n 2 -- ./gaspi_ping_pong"), 1;
    gpu = fabric->device();
    if (auto closed = fabric->close(20s); !closed) return std::puts(closed.message().c_str()), 1;
  }
  Times native{1e9, 1e9}, gaspi{1e9, 1e9};
  for (std::uint32_t repeat = 0; repeat < kRepeats; ++repeat) {
    for (const bool is_native : {true, false}) {
      const Times now = is_native ? measure_native(rounds) : measure_gaspi(gpu, rounds);
      if (now.host == 0 || now.kernels == 0) return std::puts("a measurement failed"), 1;
      Times& best = is_native ? native : gaspi;
      best = {std::min(best.host, now.host), std::min(best.kernels, now.kernels)};
    }
  }
  std::printf(
      "one way, 8 bytes and a notification, us: host memory %.3f by GASPI, %.3f by the fabric (%.2f x); kernels %.3f by GASPI, "
      "%.3f by the device functions (%.2f x)\n",
      gaspi.host, native.host, gaspi.host / native.host, gaspi.kernels, native.kernels, gaspi.kernels / native.kernels);
  return 0;
}
