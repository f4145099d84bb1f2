// SPDX-License-Identifier: Apache-2.0
// Copies from a GPU by the readback kernel: data always checked, times printed, and what else runs on the GPU meanwhile.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "gigabar/copy.hpp"
#include "gigabar/memory.hpp"
#include "gpu/gpu_fixture.hpp"
#include "memory/runtime.hpp"

namespace gigabar {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) { return std::chrono::duration<double, std::micro>(Clock::now() - begin).count(); }

// Ends by itself.
__global__ void occupy(std::uint64_t ns) {
  std::uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

class GpuReadback : public test::GpuTest {
 protected:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const Result<void> used = use_readback_kernel(0);
    ASSERT_TRUE(used) << used.message();
    buffer_.emplace(kBytes);
    auto mapping = map(buffer_->address(), kBytes);
    ASSERT_TRUE(mapping) << mapping.error().message();
    mapping_.emplace(std::move(*mapping));
  }
  void TearDown() override {
    mapping_.reset();
    buffer_.reset();
    if (device_count_ > 0) {
      EXPECT_TRUE(use_readback_kernel(0, false));
    }
  }
  void send(const void* source, std::size_t offset, std::size_t bytes) const {
    const auto to = reinterpret_cast<std::uintptr_t>(buffer_->address()) + offset;
    const Result<void> sent = engine_copy_to(0, to, source, bytes);
    ASSERT_TRUE(sent) << sent.message();
  }
  Result<CopyMethod> read(void* destination, std::size_t offset, std::size_t bytes,
                          std::optional<CopyMethod> required = CopyMethod::readback) const {
    return copy(destination, MappedPlace{*mapping_, offset}, bytes, required);
  }
  // Copies of 4 KiB that follow each other, until one of them is the kernel's.
  bool is_asked_soon() const {
    std::vector<std::byte> host(4096);
    for (unsigned i = 0; i < 1000; ++i) {
      if (read(host.data(), 0, host.size(), std::nullopt).value() == CopyMethod::readback) return true;
    }
    return false;
  }

  std::optional<test::CudaBuffer> buffer_;
  std::optional<Mapping> mapping_;
};

TEST_F(GpuReadback, EveryByteArrivesAndNoOther) {
  std::mt19937 random(7);
  std::vector<std::byte> sent(kMaxReadbackBytes + 64), got(kMaxReadbackBytes + 128);
  for (unsigned round = 0; round < 4000; ++round) {
    const std::size_t bytes = round < 200 ? round + 1 : 1 + random() % (std::size_t{1} << (random() % 16));
    const std::size_t offset = random() % 64, at = random() % 64;
    std::ranges::generate(sent, [&] { return static_cast<std::byte>(random()); });
    std::ranges::fill(got, std::byte{0x5a});
    send(sent.data(), 0, sent.size());
    const auto method = read(got.data() + at, offset, bytes);
    ASSERT_TRUE(method) << method.error().message();
    ASSERT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(at), got.begin() + static_cast<std::ptrdiff_t>(at + bytes),
                           sent.begin() + static_cast<std::ptrdiff_t>(offset)))
        << bytes << " from " << offset << ", round " << round;
    ASSERT_TRUE(
        std::all_of(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(at), [](std::byte b) { return b == std::byte{0x5a}; }));
    ASSERT_TRUE(std::all_of(got.begin() + static_cast<std::ptrdiff_t>(at + bytes), got.end(),
                            [](std::byte b) { return b == std::byte{0x5a}; }))
        << bytes << " from " << offset;
  }
}

// Stores through the mapping, whose order with the request is the CPU's: none may be read from a cache.
TEST_F(GpuReadback, SeesEveryStoreBeforeIt) {
  std::vector<std::uint32_t> sent(1024), got(1024);
  for (std::uint32_t round = 1; round <= 100000; ++round) {
    std::ranges::fill(sent, round);
    ASSERT_TRUE(copy_to(*mapping_, 0, sent.data(), 4096));
    ASSERT_TRUE(read(got.data(), 0, 4096));
    ASSERT_EQ(got, sent) << round;
  }
}

TEST_F(GpuReadback, IsAskedWhenCopiesFollowEachOther) {
  ASSERT_TRUE(is_asked_soon());
  std::vector<std::byte> host(4096);
  unsigned asked = 0;
  for (unsigned i = 0; i < 20000; ++i) asked += read(host.data(), 0, 4096, std::nullopt).value() == CopyMethod::readback ? 1 : 0;
  EXPECT_GT(asked, 19000U);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NE(read(host.data(), 0, 4096, std::nullopt).value(), CopyMethod::readback) << "it stayed";
  EXPECT_EQ(read(host.data(), 0, 8, std::nullopt).value(), CopyMethod::cpu);
}

TEST_F(GpuReadback, WaitsForTheDeviceEnd) {
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    std::vector<std::byte> host(4096);
    while (!is_over) EXPECT_TRUE(read(host.data(), 0, 4096, std::nullopt));
  });
  double longest_us = 0;
  for (unsigned i = 0; i < 50; ++i) {
    const auto begin = Clock::now();
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    longest_us = std::max(longest_us, us_since(begin));
    const test::CudaBuffer other(1 << 20);
  }
  is_over = true;
  reader.join();
  std::printf("cudaDeviceSynchronize: at most %.0f us\n", longest_us);
  EXPECT_LT(longest_us, 200000);
  ASSERT_TRUE(is_asked_soon());
  const auto begin = Clock::now();
  EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
  EXPECT_LT(us_since(begin), 20000) << "silence must end it";
}

TEST_F(GpuReadback, AFullGpuHoldsNoCopyUp) {
  ASSERT_TRUE(is_asked_soon());
  ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaSuccess, cudaGetDeviceProperties(&properties, 0));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr std::uint64_t kNs = 300'000'000;
  occupy<<<static_cast<unsigned>(properties.multiProcessorCount) * 2, 1024, 0, stream>>>(kNs);
  std::vector<std::byte> host(4096);
  const auto begin = Clock::now();
  double longest_us = 0;
  while (us_since(begin) < 200000) {
    const auto start = Clock::now();
    ASSERT_TRUE(read(host.data(), 0, 4096, std::nullopt));
    longest_us = std::max(longest_us, us_since(start));
  }
  EXPECT_EQ(cudaErrorNotReady, cudaStreamQuery(stream));
  std::printf("beside a full GPU: at most %.0f us\n", longest_us);
  EXPECT_LT(longest_us, 50000);
  EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
  cudaStreamDestroy(stream);
  EXPECT_TRUE(is_asked_soon()) << "it is back when there is room";
}

TEST_F(GpuReadback, LeavesACaptureAlone) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  occupy<<<1, 1, 0, stream>>>(0);
  EXPECT_TRUE(is_asked_soon());
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamEndCapture(stream, &graph));
  std::size_t nodes = 0;
  ASSERT_EQ(cudaSuccess, cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1U);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(GpuReadback, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<std::byte> sent(8192), got(8192);
      for (unsigned round = 0; round < 3000; ++round) {
        std::ranges::fill(sent, static_cast<std::byte>(round + thread * 50));
        ASSERT_TRUE(copy_to(*mapping_, thread * 8192, sent.data(), sent.size()));
        ASSERT_TRUE(read(got.data(), thread * 8192, got.size(), std::nullopt));
        ASSERT_EQ(got, sent) << thread << ", " << round;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GpuReadback, OtherMemoryIsForOtherMethods) {
  auto memory = DeviceMemory::allocate(0, 1 << 16, DeviceAllocator::vmm);
  ASSERT_TRUE(memory) << memory.error().message();
  auto mapping = map(memory->address(), 1 << 16);
  ASSERT_TRUE(mapping) << mapping.error().message();
  std::vector<std::byte> host(4096);
  EXPECT_EQ(copy(host.data(), {*mapping, 0}, 4096, CopyMethod::readback).status(), Status::not_supported);
  for (unsigned i = 0; i < 100; ++i) ASSERT_TRUE(copy(host.data(), {*mapping, 0}, 4096));
}

TEST_F(GpuReadback, EveryDeviceHasItsOwn) {
  for (int device = 1; device < device_count_; ++device) {
    ASSERT_TRUE(use_readback_kernel(device));
    auto memory = DeviceMemory::allocate(device, 8192);
    ASSERT_TRUE(memory);
    auto mapping = map(memory->address(), 8192);
    ASSERT_TRUE(mapping);
    std::vector<std::byte> sent(8192, std::byte{0x31}), got(8192);
    ASSERT_TRUE(copy_to(*mapping, 0, sent.data(), sent.size()));
    const auto method = copy(got.data(), {*mapping, 0}, got.size(), CopyMethod::readback);
    ASSERT_TRUE(method) << method.error().message();
    EXPECT_EQ(got, sent);
    EXPECT_TRUE(use_readback_kernel(device, false));
  }
}

TEST_F(GpuReadback, Times) {
  std::vector<std::byte> host(kMaxReadbackBytes);
  for (std::size_t bytes = 1024; bytes <= kMaxReadbackBytes; bytes *= 2) {
    std::printf("%6zu bytes:", bytes);
    for (const std::optional<CopyMethod> method : {std::optional<CopyMethod>(), std::optional(CopyMethod::readback),
                                                   std::optional(CopyMethod::cpu), std::optional(CopyMethod::copy_engine)}) {
      std::vector<double> times;
      for (unsigned i = 0; i < 10000; ++i) {
        const auto begin = Clock::now();
        const auto used = read(host.data(), 0, bytes, method);
        times.push_back(us_since(begin));
        ASSERT_TRUE(used) << used.error().message();
      }
      std::ranges::sort(times);
      std::printf("  %s %.2f (p99 %.2f)", method ? std::string(name_of(*method)).c_str() : "copy()", times[5000], times[9900]);
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace gigabar
