// SPDX-License-Identifier: Apache-2.0
// map() from many threads at once, while memory comes and goes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;
using test::pointer;

constexpr std::size_t kBlock = std::size_t{2} << 20;

void run_threads(unsigned count, const std::function<void(unsigned)>& body) {
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < count; ++id) threads.emplace_back(body, id);
  for (std::thread& thread : threads) thread.join();
}

ISOLATED_TEST(Threads, OneAllocationOneWindow) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  std::atomic<int> failures{0};
  run_threads(4, [&](unsigned id) {
    for (std::size_t turn = 0; turn < 200; ++turn) {
      const std::size_t offset = id * 4096 + turn * 8;
      const auto mapping = map(pointer(address + offset), 8);
      if (!mapping) {
        ++failures;
        continue;
      }
      const std::uint64_t value = id * 1000 + turn;
      std::memcpy(mapping->address(), &value, sizeof value);
      if (std::memcmp(mapping->address(), &value, sizeof value) != 0) ++failures;
    }
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(mapping_cache_statistics().window_count, 1u);
  FakeSession::free(address);
}

// Each thread allocates, maps, checks and frees; addresses and handles go from one thread to another all the time.
ISOLATED_TEST(Threads, MemoryThatComesAndGoes) {
  MappingSession session;
  session.machine().gpu_count = 2;
  session.start();
  std::atomic<int> wrong{0};
  run_threads(4, [&](unsigned id) {
    std::minstd_rand random(id + 1);
    for (int turn = 0; turn < 60; ++turn) {
      const int device = static_cast<int>(random() % 2);
      const std::size_t bytes = random() % 3 == 0 ? kBlock : 1000 + random() % 50000;
      const auto memory = DeviceMemory::allocate(device, bytes);
      const std::size_t offset = random() % bytes;
      const auto mapping =
          memory ? map(static_cast<const std::byte*>(memory->address()) + offset, bytes - offset) : Result<Mapping>(memory.error());
      if (!mapping) {
        ADD_FAILURE() << mapping.error().message();
        ++wrong;
        continue;
      }
      const auto value = static_cast<unsigned char>(random() % 255 + 1);
      std::memset(mapping->address(), value, mapping->bytes());
      unsigned char seen = 0;
      CUcontext context = nullptr;
      CUDA(cuDevicePrimaryCtxRetain)(&context, device);
      CUDA(cuCtxPushCurrent)(context);
      CUDA(cuMemcpyDtoH)(&seen, mapping->device_address() + mapping->bytes() - 1, 1);
      CUDA(cuCtxPopCurrent)(nullptr);
      if (seen != value || mapping->device() != device) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

ISOLATED_TEST(Threads, TrimmingWhileOthersMap) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4 * kBlock);
  std::atomic<bool> is_done{false};
  std::atomic<int> failures{0};
  std::thread trimmer([&] {
    while (!is_done) {
      trim_mapping_cache(0);
      mapping_cache_statistics();
    }
  });
  run_threads(3, [&](unsigned id) {
    for (int turn = 0; turn < 100; ++turn) {
      const auto mapping = map(pointer(address + id * kBlock), 64);
      if (!mapping) {
        ++failures;
        continue;
      }
      std::memset(mapping->address(), static_cast<int>(id), 64);
    }
  });
  is_done = true;
  trimmer.join();
  EXPECT_EQ(failures, 0);
  FakeSession::free(address);
}

// Freeing waits for kernels, and a kernel may wait for who makes a window.
ISOLATED_TEST(Threads, TrimmingHoldsUpNoMapWhileAKernelRuns) {
  MappingSession session;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(kBlock), second = FakeSession::allocate(kBlock);
  ASSERT_TRUE(map(pointer(first), 64));
  std::atomic_ref is_busy(session.machine().is_busy);
  is_busy = true;
  std::thread trimmer([] { trim_mapping_cache(0); });
  const std::atomic_ref waiting_count(session.machine().waiting_count);
  while (waiting_count == 0) std::this_thread::yield();  // until it frees
  std::atomic<bool> is_mapped{false};
  std::thread mapper([&] { is_mapped = map(pointer(second), 64).is_ok(); });
  for (int waited_ms = 0; waited_ms < 10'000 && !is_mapped; ++waited_ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(is_mapped) << "while the kernel runs";
  is_busy = false;
  trimmer.join();
  mapper.join();
  FakeSession::free(first);
  FakeSession::free(second);
}

// One mapping, read and written by many threads at their own places.
ISOLATED_TEST(Threads, OneMappingForAll) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  {
    const auto mapping = map(pointer(address), kBlock);
    ASSERT_TRUE(mapping);
    run_threads(4, [&](unsigned id) { std::memset(mapping->address() + id * 1000, static_cast<int>(id + 1), 1000); });
    const auto seen = FakeSession::read(address, 4000);
    for (unsigned id = 0; id < 4; ++id) {
      EXPECT_EQ(seen[id * 1000], id + 1);
      EXPECT_EQ(seen[id * 1000 + 999], id + 1);
    }
  }
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
