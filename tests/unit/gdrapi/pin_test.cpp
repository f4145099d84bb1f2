// SPDX-License-Identifier: Apache-2.0
// gdr_pin_buffer, gdr_unpin_buffer, gdr_get_info: what is accepted, what is refused, what is reported.
#include <time.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>

#include "base/cycles.hpp"
#include "unit/gdrapi/support.hpp"

#undef gdr_get_info
extern "C" int gdr_get_info(gdr_t g, gdr_mh_t handle, void* info);

namespace gigabar::test {
namespace {

// Layout of GDRCopy 2.6 on LP64.
static_assert(sizeof(gdr_mh_t) == 8);
static_assert(sizeof(gdr_info_t) == 48);
static_assert(offsetof(gdr_info_t, va) == 0);
static_assert(offsetof(gdr_info_t, mapped_size) == 8);
static_assert(offsetof(gdr_info_t, page_size) == 16);
static_assert(offsetof(gdr_info_t, tm_cycles) == 24);
static_assert(offsetof(gdr_info_t, cycles_per_ms) == 32);
static_assert(offsetof(gdr_info_t, mapping_type) == 40);
static_assert(GDR_API_VERSION == 0x00020006 && MINIMUM_GDRDRV_VERSION == 0x00020000);
static_assert(GPU_PAGE_SIZE == 65536 && GPU_PAGE_MASK == ~65535UL && GPU_PAGE_OFFSET == 65535);
static_assert(GDR_MAPPING_TYPE_NONE == 0 && GDR_MAPPING_TYPE_WC == 1 && GDR_MAPPING_TYPE_CACHING == 2 &&
              GDR_MAPPING_TYPE_DEVICE == 3);
static_assert(GDR_PIN_FLAG_DEFAULT == 0 && GDR_PIN_FLAG_FORCE_PCIE == 1);
static_assert(GDR_MAP_FLAG_DEFAULT == 0 && GDR_MAP_FLAG_REQ_WC_MAPPING == 1 && GDR_MAP_FLAG_REQ_CACHE_MAPPING == 2 &&
              GDR_MAP_FLAG_REQ_DEVICE_MAPPING == 3);
static_assert(GDR_ATTR_USE_PERSISTENT_MAPPING == 1 && GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE == 2 &&
              GDR_ATTR_USING_DMA_BUF_MMAP == 3 && GDR_ATTR_MAX == 4);

class Pin : public GdrTest {
 protected:
  gdr_info_t info(gdr_mh_t handle) {
    gdr_info_t result = {};
    EXPECT_EQ(gdr_get_info_v2(g_, handle, &result), 0);
    return result;
  }
  void expect_refused(unsigned long address, std::size_t bytes, int code = EINVAL) {
    gdr_mh_t handle = {77};
    EXPECT_EQ(gdr_pin_buffer(g_, address, bytes, 0, 0, &handle), code) << std::hex << address << " +" << bytes;
    EXPECT_EQ(gdr_pin_buffer_v2(g_, address, bytes, GDR_PIN_FLAG_DEFAULT, &handle), code) << std::hex << address << " +" << bytes;
    EXPECT_EQ(handle.h, 77U);
  }
};

TEST_F(Pin, BitfieldsLieAtByte36) {
  gdr_info_t info = {};
  info.mapped = 1;
  unsigned word = 0;
  std::memcpy(&word, reinterpret_cast<const char*>(&info) + 36, sizeof word);
  EXPECT_EQ(word, 1U);
  info.mapped = 0;
  info.wc_mapping = 1;
  std::memcpy(&word, reinterpret_cast<const char*>(&info) + 36, sizeof word);
  EXPECT_EQ(word, 2U);
}

TEST_F(Pin, RefusesWhatIsNoRange) {
  const DeviceMemory memory = allocate(1 << 20);
  expect_refused(0, 4096);
  expect_refused(address_of(memory), 0);
  expect_refused(address_of(memory), ~std::size_t{0});
  expect_refused(address_of(memory), ~std::size_t{0} - address_of(memory));
  expect_refused(~0UL, 1);
  expect_refused(~0UL - 65536, 65536);
}

TEST_F(Pin, RefusesHostMemory) {
  std::vector<char> heap(1 << 20);
  expect_refused(reinterpret_cast<unsigned long>(heap.data()), heap.size());
  expect_refused(reinterpret_cast<unsigned long>(heap.data() + GPU_PAGE_SIZE) & GPU_PAGE_MASK, 65536);
  int local = 0;
  expect_refused(reinterpret_cast<unsigned long>(&local), sizeof local);
  HostMemoryOptions options;
  options.pages = HostPages::pageable;
  const auto host = HostMemory::allocate(1 << 16, options);
  ASSERT_TRUE(host);
  expect_refused(reinterpret_cast<unsigned long>(host->address()), host->bytes());
}

TEST_F(Pin, RefusesRangesBeyondTheAllocation) {
  const DeviceMemory memory = allocate(3 * GPU_PAGE_SIZE);
  expect_refused(address_of(memory), 3 * GPU_PAGE_SIZE + 1);
  expect_refused(address_of(memory, GPU_PAGE_SIZE), 3 * GPU_PAGE_SIZE);
  expect_refused(address_of(memory) + 3 * GPU_PAGE_SIZE, 1);
}

TEST_F(Pin, RefusesFreedMemory) {
  unsigned long address = 0;
  {
    const DeviceMemory memory = allocate(4096);
    address = address_of(memory);
  }
  expect_refused(address, 4096);
}

TEST_F(Pin, RefusesUnknownFlagsAndTokens) {
  const DeviceMemory memory = allocate(4096);
  gdr_mh_t handle = {77};
  for (const uint32_t flags : {2U, 3U, 0x80000000U, ~0U}) {
    EXPECT_EQ(gdr_pin_buffer_v2(g_, address_of(memory), 4096, flags, &handle), EINVAL) << flags;
  }
  EXPECT_EQ(gdr_pin_buffer(g_, address_of(memory), 4096, 1, 0, &handle), EINVAL);
  EXPECT_EQ(gdr_pin_buffer(g_, address_of(memory), 4096, 0, 1, &handle), EINVAL);
  // Stand-in memory is not behind PCIe.
  EXPECT_EQ(gdr_pin_buffer_v2(g_, address_of(memory), 4096, GDR_PIN_FLAG_FORCE_PCIE, &handle), EINVAL);
  EXPECT_EQ(handle.h, 77U);
}

TEST_F(Pin, ReportsWholeGpuPages) {
  const DeviceMemory memory = allocate(5 * GPU_PAGE_SIZE);
  struct Case {
    std::size_t offset_bytes, bytes, first_page, page_count;
  };
  for (const Case& c :
       {Case{0, 1, 0, 1}, Case{0, GPU_PAGE_SIZE, 0, 1}, Case{0, GPU_PAGE_SIZE + 1, 0, 2}, Case{GPU_PAGE_SIZE - 1, 1, 0, 1},
        Case{GPU_PAGE_SIZE - 1, 2, 0, 2}, Case{GPU_PAGE_SIZE + 4, GPU_PAGE_SIZE, 1, 2}, Case{3, 5 * GPU_PAGE_SIZE - 3, 0, 5},
        Case{4 * GPU_PAGE_SIZE + 12345, 7, 4, 1}}) {
    const gdr_mh_t handle = pin(address_of(memory, c.offset_bytes), c.bytes);
    const gdr_info_t got = info(handle);
    EXPECT_EQ(got.va, address_of(memory, c.first_page * GPU_PAGE_SIZE)) << c.offset_bytes << " +" << c.bytes;
    EXPECT_EQ(got.mapped_size, c.page_count * GPU_PAGE_SIZE) << c.offset_bytes << " +" << c.bytes;
    EXPECT_EQ(got.page_size, GPU_PAGE_SIZE);
    EXPECT_EQ(got.mapped, 0U);
    EXPECT_EQ(got.wc_mapping, 0U);
    EXPECT_EQ(got.mapping_type, GDR_MAPPING_TYPE_NONE);
    EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
  }
}

TEST_F(Pin, AcceptsRangesThatTheCallerRoundedToGpuPages) {
  const DeviceMemory memory = allocate(GPU_PAGE_SIZE + 100);
  const gdr_mh_t handle = pin(address_of(memory), 2 * GPU_PAGE_SIZE);
  EXPECT_GE(info(handle).mapped_size, GPU_PAGE_SIZE + 100);
  const gdr_mh_t tail = pin(address_of(memory, GPU_PAGE_SIZE), GPU_PAGE_SIZE);
  EXPECT_EQ(info(tail).va, address_of(memory, GPU_PAGE_SIZE));
  expect_refused(address_of(memory), 2 * GPU_PAGE_SIZE + 1);
}

TEST_F(Pin, OldInfoFunctionFillsFortyBytes) {
  const DeviceMemory memory = allocate(GPU_PAGE_SIZE);
  const gdr_mh_t handle = pin(memory);
  map(handle, GPU_PAGE_SIZE);
  unsigned char old_info[56];
  std::memset(old_info, 0xa5, sizeof old_info);
  ASSERT_EQ(gdr_get_info(g_, handle, old_info), 0);
  const gdr_info_t new_info = info(handle);
  EXPECT_EQ(std::memcmp(old_info, &new_info, 20), 0);                 // va, mapped_size, page_size
  EXPECT_EQ(std::memcmp(old_info + 24, &new_info.tm_cycles, 12), 0);  // tm_cycles, cycles_per_ms
  EXPECT_EQ(old_info[36], 1) << "mapped";
  for (std::size_t i = 40; i < sizeof old_info; ++i) EXPECT_EQ(old_info[i], 0xa5) << "byte " << i << " is behind the old structure";
}

TEST_F(Pin, CyclesMeasureThePin) {
  if (cycle_count() == 0) {
    const DeviceMemory memory = allocate(4096);
    EXPECT_EQ(info(pin(memory)).cycles_per_ms, 0U);
    return;
  }
  const CycleMoment begin;
  const timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
  const DeviceMemory memory = allocate(4096);
  const std::uint64_t before = cycle_count();
  const gdr_mh_t handle = pin(memory);
  const std::uint64_t after = cycle_count();
  EXPECT_GT(info(handle).tm_cycles, 0U);
  EXPECT_LE(info(handle).tm_cycles, after - before);
  // Two clocks are read one after the other, and a busy machine may stop the thread in between: a rate is right when it is found
  // again.
  const double told = info(handle).cycles_per_ms;
  double rate = 0;
  for (int turn = 0; turn < 50 && std::abs(told - rate) > rate / 20; ++turn) {
    nanosleep(&pause, nullptr);
    rate = cycles_per_ms(begin, CycleMoment{});
  }
  EXPECT_NEAR(told, rate, rate / 20);
}

TEST(Cycles, NoTimeBetweenGivesNoRate) {
  const CycleMoment moment;
  EXPECT_EQ(cycles_per_ms(moment, moment), 0U);
  CycleMoment earlier = moment;
  earlier.ns -= 2'000'000;
  earlier.cycles = moment.cycles - 6'000'000;
  EXPECT_EQ(cycles_per_ms(earlier, moment), 3'000'000U);
  EXPECT_EQ(cycles_per_ms(moment, earlier), 0U);
}

TEST_F(Pin, BogusHandlesAreRefused) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t good = pin(memory);
  char byte = 0;
  for (const unsigned long number :
       {0UL, 1UL, 2UL, good.h + 1, good.h ^ (1UL << 63), good.h + (1UL << 20), ~0UL, address_of(memory)}) {
    const gdr_mh_t handle = {number};
    gdr_info_t info = {};
    int flag = 7;
    void* va = nullptr;
    EXPECT_EQ(gdr_get_info_v2(g_, handle, &info), EINVAL) << std::hex << number;
    EXPECT_EQ(gdr_get_callback_flag(g_, handle, &flag), EINVAL);
    EXPECT_EQ(gdr_map(g_, handle, &va, 4096), EINVAL);
    EXPECT_EQ(gdr_unmap(g_, handle, memory.address(), 4096), EINVAL);
    EXPECT_EQ(gdr_copy_to_mapping(handle, memory.address(), &byte, 1), EINVAL);
    EXPECT_EQ(gdr_copy_from_mapping(handle, &byte, memory.address(), 1), EINVAL);
    EXPECT_EQ(gdr_unpin_buffer(g_, handle), EINVAL);
    EXPECT_EQ(flag, 7);
    EXPECT_EQ(va, nullptr);
  }
  EXPECT_EQ(gdr_unpin_buffer(g_, good), 0);
  EXPECT_EQ(gdr_unpin_buffer(g_, good), EINVAL) << "unpinned twice";
}

TEST_F(Pin, StaleHandlesNeverMeanTheNextBuffer) {
  const DeviceMemory memory = allocate(4096);
  std::set<unsigned long> given;
  gdr_mh_t last = {0};
  for (int i = 0; i < 1000; ++i) {
    const gdr_mh_t handle = pin(memory);
    EXPECT_TRUE(given.insert(handle.h).second) << "a number was given twice";
    if (last.h != 0) {
      EXPECT_EQ(gdr_unpin_buffer(g_, last), EINVAL);
    }
    EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
    last = handle;
  }
}

TEST_F(Pin, CallbackFlagIsAlwaysZero) {
  auto memory = std::optional(allocate(4096));
  const gdr_mh_t handle = pin(*memory);
  memory.reset();  // frees: persistent mappings are not taken back
  int flag = 7;
  EXPECT_EQ(gdr_get_callback_flag(g_, handle, &flag), 0);
  EXPECT_EQ(flag, 0);
}

TEST_F(Pin, KeepsMemoryThatIsFreed) {
  auto memory = std::optional(allocate(4096));
  const gdr_mh_t handle = pin(*memory);
  memory.reset();
  const auto data = sample_bytes(4096, 1);
  std::vector<unsigned char> back(4096);
  char* va = map(handle, 4096);  // the first map after the free
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, data.data(), data.size()), 0);
  EXPECT_EQ(gdr_copy_from_mapping(handle, back.data(), va, back.size()), 0);
  EXPECT_EQ(back, data);
}

}  // namespace
}  // namespace gigabar::test
