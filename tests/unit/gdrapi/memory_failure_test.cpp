// SPDX-License-Identifier: Apache-2.0
// Every allocation of host memory that a call makes fails once: the answer is ENOMEM, nothing is lost, and the next call works.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "unit/gdrapi/support.hpp"

namespace {

// Allocations that still succeed; negative: all do.
std::atomic<long> allocations_left{-1};

void* allocate_or_fail(std::size_t bytes, std::size_t alignment) {
  long left = allocations_left.load();
  if (left == 0) return nullptr;
  if (left > 0) allocations_left.store(left - 1);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = allocate_or_fail(bytes == 0 ? 1 : bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gigabar::test {
namespace {

class MemoryFailure : public GdrTest {
 protected:
  // Calls `call` with the first, then the second, ... allocation failing, until it succeeds. Returns how often it failed.
  template <class Call>
  static int fail_each_allocation(Call&& call) {
    for (int failed = 0; failed < 1000; ++failed) {
      allocations_left = failed;
      const int code = call();
      allocations_left = -1;
      if (code == 0) return failed;
      EXPECT_EQ(code, ENOMEM) << "allocation " << failed;
      if (code != ENOMEM) return failed;
    }
    ADD_FAILURE() << "never succeeded";
    return 0;
  }
};

TEST_F(MemoryFailure, Pin) {
  const DeviceMemory memory = allocate(4096);
  for (int i = 0; i < 70; ++i) pin(memory);  // the next pins need another chunk of the table
  gdr_mh_t handle = {77};
  const int failed = fail_each_allocation([&] {
    const int code = gdr_pin_buffer(g_, address_of(memory), 4096, 0, 0, &handle);
    if (code != 0) {
      EXPECT_EQ(handle.h, 77U);
    }
    return code;
  });
  EXPECT_GT(failed, 0) << "the test plants nothing";
  EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
}

TEST_F(MemoryFailure, PinThatOpensAWindow) {
  gdr_mh_t handle = {77};
  const DeviceMemory memory = allocate(4096);
  const int failed = fail_each_allocation([&] {
    const long planted = allocations_left.exchange(-1);
    trim_mapping_cache(0);
    allocations_left = planted;
    return gdr_pin_buffer(g_, address_of(memory), 4096, 0, 0, &handle);
  });
  EXPECT_GT(failed, 0) << "the test plants nothing";
  EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
}

TEST_F(MemoryFailure, Open) {
  gdr_t g = nullptr;
  const int failed = fail_each_allocation([&] {
    g = gdr_open();
    return g == nullptr ? errno : 0;
  });
  EXPECT_GT(failed, 0) << "the test plants nothing";
  EXPECT_EQ(gdr_close(g), 0);
}

TEST_F(MemoryFailure, AllElseNeedsNone) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  gdr_info_t info = {};
  void* va = nullptr;
  char byte = 0;
  int value = 0;
  allocations_left = 0;
  const int codes[] = {gdr_get_info(g_, handle, &info),
                       gdr_map(g_, handle, &va, 4096),
                       gdr_copy_to_mapping(handle, va, &byte, 1),
                       gdr_copy_from_mapping(handle, &byte, va, 1),
                       gdr_get_callback_flag(g_, handle, &value),
                       gdr_get_attribute(g_, GDR_ATTR_USE_PERSISTENT_MAPPING, &value),
                       gdr_driver_get_version(g_, &value, &value),
                       gdr_unmap(g_, handle, va, 4096),
                       gdr_unpin_buffer(g_, handle),
                       gdr_close(std::exchange(g_, nullptr))};
  allocations_left = -1;
  for (std::size_t i = 0; i < std::size(codes); ++i) EXPECT_EQ(codes[i], 0) << "call " << i;
}

}  // namespace
}  // namespace gigabar::test
