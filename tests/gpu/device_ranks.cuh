// SPDX-License-Identifier: Apache-2.0
// Two ranks of one process, each with a kernel of its own at the same time, on two GPUs where there are two.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>

#include "conformance/ranks.hpp"
#include "gigabar/device/fabric.hpp"
#include "gigabar/device_session.hpp"
#include "gpu/gpu_fixture.hpp"

namespace gigabar::test {

namespace gpu = gigabar::device;
using gpu::DeviceFabric;

inline constexpr SegmentId kOrigin = 1, kTarget = 2;
inline constexpr std::size_t kSpan = std::size_t{1} << 20;
inline constexpr gpu::Timeout kLong{10'000'000'000};

// What a kernel found: the first status that it did not expect, and counts.
struct Report {
  std::uint32_t status = 0;
  std::uint32_t place = 0;  // which call, or round
  unsigned long long wrong_count = 0;
  std::uint64_t number = 0;
};

inline __device__ bool is_ok(Report* report, Status status, std::uint32_t place) {
  if (status == Status::ok) return true;
  report->status = static_cast<std::uint32_t>(status);
  report->place = place;
  return false;
}

// A rank in this process: its GPU, memory, fabric and session.
struct TestRank {
  int device = 0;
  std::unique_ptr<CudaBuffer> origin, target, report_memory;
  std::optional<Fabric> fabric;
  std::optional<DeviceSession> session;
  cudaStream_t stream = nullptr;
  std::uint32_t ring_count = 0;  // of messages, and how large each is
  std::uint32_t ring_bytes = 65536;

  void open(Rank rank, std::uint16_t port, int device_count, QueueUse queues, QueueEngine engine) {
    device = static_cast<int>(rank) % device_count;
    ASSERT_CUDA(cudaSetDevice(device));
    origin = std::make_unique<CudaBuffer>(kSpan);
    target = std::make_unique<CudaBuffer>(kSpan);
    report_memory = std::make_unique<CudaBuffer>(sizeof(Report));
    ASSERT_CUDA(cudaMemset(target->address(), 0xc5, kSpan));
    ASSERT_CUDA(cudaMemset(report_memory->address(), 0, sizeof(Report)));
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaDeviceSynchronize());
    FabricOptions options;
    options.rank = rank;
    options.rank_count = 2;
    options.master_address = "127.0.0.1";
    options.master_port = port;
    options.transports = {TransportKind::local};
    options.device = device;
    auto opened = Fabric::open(options);
    ASSERT_TRUE(opened.is_ok()) << opened.error().message();
    fabric.emplace(std::move(*opened));
    ASSERT_TRUE(fabric->register_segment(kOrigin, origin->address(), kSpan).is_ok());
    ASSERT_TRUE(fabric->register_segment(kTarget, target->address(), kSpan).is_ok());
    DeviceSessionOptions session_options;
    session_options.queues = queues;
    session_options.queue_depth = 64;
    session_options.ring_count = ring_count;
    session_options.ring_bytes = ring_bytes;
    session_options.engine = engine;
    auto session_opened = DeviceSession::open(*fabric, session_options);
    ASSERT_TRUE(session_opened.is_ok()) << session_opened.error().message();
    session.emplace(std::move(*session_opened));
  }

  void close() {
    if (session) EXPECT_TRUE(session->close(kPatience).is_ok());
    session.reset();
    if (fabric) {
      EXPECT_TRUE(fabric->deregister_segment(kOrigin, kPatience).is_ok());
      EXPECT_TRUE(fabric->deregister_segment(kTarget, kPatience).is_ok());
    }
    fabric.reset();
    cudaSetDevice(device);
    if (stream != nullptr) cudaStreamDestroy(stream);
    stream = nullptr;
  }

  Report* report() const { return static_cast<Report*>(report_memory->address()); }
  // Waits for the kernel.
  Report result() const {
    cudaSetDevice(device);
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
    Report found;
    EXPECT_EQ(cudaSuccess, cudaMemcpy(&found, report(), sizeof found, cudaMemcpyDeviceToHost));
    return found;
  }
  void expect_ok() const {
    const Report found = result();
    EXPECT_EQ(Status::ok, static_cast<Status>(found.status)) << "at " << found.place << " on device " << device;
    EXPECT_EQ(0ULL, found.wrong_count);
  }
};

// Who calls, and whether by loads and stores or by queues, with what behind them.
template <class S, QueueUse Q, QueueEngine E = QueueEngine::software_hca>
struct Way {
  using Scope = S;
  static constexpr QueueUse kQueues = Q;
  static constexpr QueueEngine kEngine = E;
};

template <class W>
class DeviceFabricTest : public GpuTest {
 protected:
  using Scope = typename W::Scope;
  static constexpr bool kIsByQueue = W::kQueues == QueueUse::always;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (W::kEngine != QueueEngine::software_hca && std::getenv("GIGABAR_FAKE_HCA") == nullptr) {
      GTEST_SKIP()
          << "for an HCA set GIGABAR_VERBS_LIBRARY and GIGABAR_MLX5_LIBRARY to libgigabar_fake_hca.so, GIGABAR_FAKE_HCA to mlx5_0";
    }
    const std::uint16_t port = free_port();
    std::thread other([&] { ranks_[1].open(1, port, device_count_, W::kQueues, W::kEngine); });
    ranks_[0].open(0, port, device_count_, W::kQueues, W::kEngine);
    other.join();
    if (!ranks_[0].session || !ranks_[1].session) return;
    const auto reach = ranks_[0].session->reach(1, kTarget);
    ASSERT_TRUE(reach.is_ok());
    if (!kIsByQueue) ASSERT_TRUE(reach->is_direct) << reach->reason;
    if (W::kEngine == QueueEngine::software_hca) return;
    EXPECT_NE(QueueEngine::software_hca, reach->engine) << reach->reason;
    RecordProperty("engine", std::string(name_of(reach->engine)));
  }
  // Of a test that skips itself as well: each rank answers the other one while that closes.
  void TearDown() override {
    std::thread other([&] { ranks_[1].close(); });
    ranks_[0].close();
    other.join();
  }

  // The same kernel at both ranks at once.
  template <class... Arguments>
  void launch(void (*kernel)(DeviceFabric, Report*, Arguments...), unsigned blocks, unsigned threads,
              std::type_identity_t<Arguments>... arguments) {
    for (const TestRank& rank : ranks_) launch_at(rank, kernel, blocks, threads, arguments...);
  }
  template <class... Arguments>
  void launch_at(const TestRank& rank, void (*kernel)(DeviceFabric, Report*, Arguments...), unsigned blocks, unsigned threads,
                 std::type_identity_t<Arguments>... arguments) {
    cudaSetDevice(rank.device);
    kernel<<<blocks, threads, 0, rank.stream>>>(rank.session->handle(), rank.report(), arguments...);
    ASSERT_CUDA(cudaPeekAtLastError());
  }
  // A kernel's code, before it is launched beside one that runs: loading it may wait for that one.
  template <class Kernel>
  void load(Kernel kernel) {
    cudaFuncAttributes loaded;
    for (const TestRank& rank : ranks_) {
      cudaSetDevice(rank.device);
      ASSERT_CUDA(cudaFuncGetAttributes(&loaded, kernel));
    }
  }
  unsigned threads() const { return std::is_same_v<Scope, gpu::Thread> ? 1 : std::is_same_v<Scope, gpu::Warp> ? 32 : 256; }

  std::array<TestRank, 2> ranks_;
};

}  // namespace gigabar::test
