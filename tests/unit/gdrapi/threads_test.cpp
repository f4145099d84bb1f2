// SPDX-License-Identifier: Apache-2.0
// Many threads on one session and on one handle, also while it is unmapped, unpinned and closed. Meant for ThreadSanitizer too.
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "support/descriptors.hpp"
#include "unit/gdrapi/support.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kThreadCount = 4;
constexpr std::size_t kPartBytes = 4096;  // of the buffer, one part per thread

class GdrThreads : public GdrTest {
 protected:
  template <class Body>
  static void run(std::size_t count, Body&& body) {
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (std::size_t index = 0; index < count; ++index) threads.emplace_back([&body, index] { body(index); });
    for (std::thread& thread : threads) thread.join();
  }

  // Copies its part there and back; the codes a copy may give while others unmap.
  static bool copy_round_trip(gdr_mh_t handle, char* va, std::size_t part, unsigned seed, std::atomic<std::size_t>& copied) {
    const auto data = sample_bytes(kPartBytes, seed);
    std::vector<unsigned char> back(kPartBytes);
    char* const place = va + part * kPartBytes;
    const int to = gdr_copy_to_mapping(handle, place, data.data(), kPartBytes);
    const int from = gdr_copy_from_mapping(handle, back.data(), place, kPartBytes);
    if (to == 0 && from == 0) {
      ++copied;
      return back == data;
    }
    return (to == 0 || to == EINVAL) && (from == 0 || from == EINVAL);
  }
};

TEST_F(GdrThreads, WholeLifeOnOneSession) {
  const DeviceMemory memory = allocate(kThreadCount * kPartBytes);
  std::atomic<int> failures{0};
  run(kThreadCount, [&](std::size_t index) {
    for (unsigned round = 0; round < 200; ++round) {
      const unsigned long d_ptr = address_of(memory, index * kPartBytes);
      gdr_mh_t handle = {0};
      void* va = nullptr;
      gdr_info_t info = {};
      std::atomic<std::size_t> copied{0};
      bool is_good = gdr_pin_buffer(g_, d_ptr, kPartBytes, 0, 0, &handle) == 0;
      is_good = is_good && gdr_map(g_, handle, &va, kPartBytes) == 0 && gdr_get_info(g_, handle, &info) == 0;
      is_good = is_good && copy_round_trip(handle, static_cast<char*>(va) + (d_ptr - info.va), 0, round, copied) && copied == 1;
      is_good = is_good && gdr_unmap(g_, handle, va, kPartBytes) == 0 && gdr_unpin_buffer(g_, handle) == 0;
      if (!is_good) ++failures;
    }
  });
  EXPECT_EQ(failures, 0);
}

// C programs cancel threads: one ends behind the call that it is in.
TEST_F(GdrThreads, ACancelledOneEndsBehindItsCalls) {
  struct Life {
    unsigned long address;
    bool is_good = false;
    static void* run(void* given) {
      auto& life = *static_cast<Life*>(given);
      ::pthread_cancel(::pthread_self());
      gdr_mh_t handle = {0};
      void* va = nullptr;
      const gdr_t g = gdr_open();
      life.is_good = g != nullptr && gdr_pin_buffer(g, life.address, kPartBytes, 0, 0, &handle) == 0 &&
                     gdr_map(g, handle, &va, kPartBytes) == 0 && gdr_map(g, handle, &va, kPartBytes) != 0 &&
                     gdr_unmap(g, handle, va, kPartBytes) == 0 && gdr_unpin_buffer(g, handle) == 0 && gdr_close(g) == 0;
      ::pthread_testcancel();
      return nullptr;
    }
  };
  const DeviceMemory memory = allocate(kPartBytes);
  Life life{address_of(memory)};
  pthread_t thread{};
  void* answer = nullptr;
  ASSERT_EQ(::pthread_create(&thread, nullptr, &Life::run, &life), 0);
  ASSERT_EQ(::pthread_join(thread, &answer), 0);
  EXPECT_EQ(answer, PTHREAD_CANCELED);
  EXPECT_TRUE(life.is_good);
}

TEST_F(GdrThreads, CopiesWhileAnotherThreadMapsAndUnmaps) {
  const DeviceMemory memory = allocate(kThreadCount * kPartBytes);
  const gdr_mh_t handle = pin(memory);
  char* const va = map(handle, memory.bytes());
  std::atomic<bool> is_over{false};
  std::atomic<int> failures{0};
  std::atomic<std::size_t> copied{0};
  run(kThreadCount + 1, [&](std::size_t index) {
    if (index < kThreadCount) {
      for (unsigned round = 0; !is_over; ++round) {
        if (!copy_round_trip(handle, va, index, round, copied)) ++failures;
      }
      return;
    }
    for (int burst = 0; burst < 20 || copied < 100; ++burst) {
      for (int round = 0; round < 100; ++round) {
        void* again = nullptr;
        const bool is_good = gdr_unmap(g_, handle, va, memory.bytes()) == 0 && gdr_map(g_, handle, &again, memory.bytes()) == 0;
        if (!is_good || again != va) ++failures;
      }
      std::this_thread::yield();
    }
    is_over = true;
  });
  EXPECT_EQ(failures, 0);
}

TEST_F(GdrThreads, CopiesWhileTheHandleIsUnpinned) {
  for (unsigned round = 0; round < 40; ++round) {
    const DeviceMemory memory = allocate(kThreadCount * kPartBytes);
    const gdr_mh_t handle = pin(memory);
    char* const va = map(handle, memory.bytes());
    std::atomic<int> failures{0};
    std::atomic<std::size_t> copied{0};
    std::atomic<bool> is_unpinned{false};
    run(kThreadCount + 1, [&](std::size_t index) {
      if (index == kThreadCount) {
        while (copied < 3) std::this_thread::yield();
        if (gdr_unpin_buffer(g_, handle) != 0) ++failures;
        is_unpinned = true;
        return;
      }
      while (!is_unpinned) {
        if (!copy_round_trip(handle, va, index, round, copied)) ++failures;
      }
      char byte = 0;
      if (gdr_copy_from_mapping(handle, &byte, va, 1) != EINVAL) ++failures;
    });
    ASSERT_EQ(failures, 0);
  }
}

TEST_F(GdrThreads, CloseWhileOthersPinAndCopy) {
  for (unsigned round = 0; round < 30; ++round) {
    const DeviceMemory memory = allocate(kThreadCount * kPartBytes);
    gdr_t g = gdr_open();
    ASSERT_NE(g, nullptr);
    std::atomic<int> failures{0};
    std::atomic<std::size_t> copied{0};
    run(kThreadCount + 1, [&](std::size_t index) {
      if (index == kThreadCount) {
        while (copied < 3) std::this_thread::yield();
        if (gdr_close(g) != 0) ++failures;
        return;
      }
      for (;;) {
        gdr_mh_t handle = {0};
        void* va = nullptr;
        if (gdr_pin_buffer(g, address_of(memory), memory.bytes(), 0, 0, &handle) == EINVAL) return;
        if (gdr_map(g, handle, &va, memory.bytes()) == EINVAL) return;
        if (!copy_round_trip(handle, static_cast<char*>(va), index, round, copied)) ++failures;
      }
    });
    ASSERT_EQ(failures, 0);
  }
}

// The last copy that leaves gives the memory back, whoever that is.
TEST_F(GdrThreads, NothingIsKeptAfterRacingUnpins) {
  trim_mapping_cache(0);
  const std::size_t before = mapped_ranges("gigabar-stand-in");
  for (unsigned round = 0; round < 60; ++round) {
    auto memory = std::optional(allocate(kThreadCount * kPartBytes));
    const gdr_mh_t handle = pin(*memory);
    char* const va = map(handle, memory->bytes());
    memory.reset();
    std::atomic<std::size_t> copied{0};
    run(3, [&](std::size_t index) {
      if (index == 0) {
        while (copied < 2) std::this_thread::yield();
        EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
        return;
      }
      char byte = 0;
      while (gdr_copy_from_mapping(handle, &byte, va + index, 1) == 0) ++copied;
    });
  }
  trim_mapping_cache(0);
  EXPECT_EQ(mapped_ranges("gigabar-stand-in"), before);
}

}  // namespace
}  // namespace gigabar::test
