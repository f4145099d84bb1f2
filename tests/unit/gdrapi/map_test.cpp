// SPDX-License-Identifier: Apache-2.0
// gdr_map, gdr_unmap, gdr_copy_*: the address that is handed out, and the bounds of what may be done with it.
#include <cerrno>
#include <cstring>
#include <string>

#include "unit/gdrapi/support.hpp"

namespace gigabar::test {
namespace {

class Map : public GdrTest {};

TEST_F(Map, AddressCorrespondsToInfo) {
  const DeviceMemory memory = allocate(3 * GPU_PAGE_SIZE);
  const auto data = sample_bytes(memory.bytes(), 2);
  std::memcpy(memory.address(), data.data(), data.size());  // stand-in memory is host memory
  for (const std::size_t offset : {std::size_t{0}, std::size_t{4}, std::size_t{513}, GPU_PAGE_SIZE - 1, GPU_PAGE_SIZE + 260}) {
    const unsigned long d_ptr = address_of(memory, offset);
    const gdr_mh_t handle = pin(d_ptr, 5000);
    char* va = map(handle, 5000);
    const gdr_info_t got = info(handle);
    EXPECT_EQ(got.mapped, 1U);
    EXPECT_EQ(got.mapping_type, GDR_MAPPING_TYPE_CACHING);
    EXPECT_EQ(got.wc_mapping, 0U);
    char* buffer = va + (d_ptr - got.va);
    EXPECT_EQ(std::memcmp(buffer, data.data() + offset, 5000), 0) << "offset " << offset;
    std::vector<unsigned char> back(5000);
    EXPECT_EQ(gdr_copy_from_mapping(handle, back.data(), buffer, back.size()), 0);
    EXPECT_EQ(std::memcmp(back.data(), data.data() + offset, back.size()), 0) << "offset " << offset;
    EXPECT_EQ(gdr_unmap(g_, handle, va, 5000), 0);
    EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
  }
}

TEST_F(Map, SizeMustBeWithinThePinnedPages) {
  const DeviceMemory memory = allocate(2 * GPU_PAGE_SIZE);
  const gdr_mh_t handle = pin(address_of(memory), GPU_PAGE_SIZE);
  void* va = &va;
  EXPECT_EQ(gdr_map(g_, handle, &va, 0), EINVAL);
  EXPECT_EQ(gdr_map(g_, handle, &va, GPU_PAGE_SIZE + 1), EINVAL);
  EXPECT_EQ(gdr_map(g_, handle, &va, ~std::size_t{0}), EINVAL);
  EXPECT_EQ(va, &va);
  EXPECT_EQ(info(handle).mapped, 0U);
  EXPECT_EQ(gdr_map(g_, handle, &va, GPU_PAGE_SIZE), 0);
}

TEST_F(Map, TwiceIsAgain) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  char* va = map(handle, 4096);
  void* second = nullptr;
  EXPECT_EQ(gdr_map(g_, handle, &second, 4096), EAGAIN);
  EXPECT_EQ(gdr_map_v2(g_, handle, &second, 0, GDR_MAP_FLAG_REQ_WC_MAPPING), EAGAIN);
  EXPECT_EQ(second, nullptr);
  char byte = 1;
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, &byte, 1), 0) << "the first mapping was lost";
  EXPECT_EQ(gdr_unmap(g_, handle, va, 4096), 0);
  EXPECT_EQ(gdr_map(g_, handle, &second, 4096), 0);
}

TEST_F(Map, RequestedType) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  void* va = nullptr;
  EXPECT_EQ(gdr_map_v2(g_, handle, &va, 4096, GDR_MAP_FLAG_REQ_WC_MAPPING), EOPNOTSUPP);
  EXPECT_EQ(gdr_map_v2(g_, handle, &va, 4096, GDR_MAP_FLAG_REQ_DEVICE_MAPPING), EOPNOTSUPP);
  for (const int flags : {-1, 4, 5, 1 << 30}) EXPECT_EQ(gdr_map_v2(g_, handle, &va, 4096, flags), EINVAL) << flags;
  EXPECT_EQ(va, nullptr);
  ASSERT_EQ(gdr_map_v2(g_, handle, &va, 4096, GDR_MAP_FLAG_REQ_CACHE_MAPPING), 0);
  EXPECT_EQ(gdr_unmap(g_, handle, va, 4096), 0);
  EXPECT_EQ(gdr_map_v2(g_, handle, &va, 4096, GDR_MAP_FLAG_DEFAULT), 0);
}

TEST_F(Map, UnmapNeedsTheSameAddressAndSize) {
  const DeviceMemory memory = allocate(4 * GPU_PAGE_SIZE);
  const gdr_mh_t handle = pin(memory);
  EXPECT_EQ(gdr_unmap(g_, handle, memory.address(), 4096), EINVAL) << "not mapped yet";
  char* va = map(handle, 3 * GPU_PAGE_SIZE);
  char byte = 1;
  const auto expect_refused = [&](void* address, std::size_t bytes) {
    EXPECT_EQ(gdr_unmap(g_, handle, address, bytes), EINVAL) << address << " +" << bytes;
    EXPECT_EQ(gdr_copy_to_mapping(handle, va + 3 * GPU_PAGE_SIZE - 1, &byte, 1), 0) << "a refused unmap took something away";
  };
  expect_refused(nullptr, 3 * GPU_PAGE_SIZE);
  expect_refused(va + 1, 3 * GPU_PAGE_SIZE);
  expect_refused(va + GPU_PAGE_SIZE, 2 * GPU_PAGE_SIZE);
  expect_refused(va, 0);
  expect_refused(va, GPU_PAGE_SIZE);
  expect_refused(va, 3 * GPU_PAGE_SIZE - 4096 * 16);
  expect_refused(va, 4 * GPU_PAGE_SIZE);
  expect_refused(va, ~std::size_t{0});
  EXPECT_EQ(gdr_unmap(g_, handle, va, 3 * GPU_PAGE_SIZE), 0);
  EXPECT_EQ(gdr_unmap(g_, handle, va, 3 * GPU_PAGE_SIZE), EINVAL) << "unmapped twice";
  EXPECT_EQ(info(handle).mapped, 0U);
  EXPECT_EQ(info(handle).mapping_type, GDR_MAPPING_TYPE_NONE);
}

TEST_F(Map, UnmapTakesSizesRoundedToHostPages) {
  const DeviceMemory memory = allocate(GPU_PAGE_SIZE);
  const gdr_mh_t handle = pin(memory);
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(gdr_unmap(g_, handle, map(handle, 100), page_bytes), 0);
  EXPECT_EQ(gdr_unmap(g_, handle, map(handle, page_bytes), 100), 0);
}

TEST_F(Map, UnmappedAddressIsRefusedByCopies) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  char byte = 1;
  EXPECT_EQ(gdr_copy_to_mapping(handle, memory.address(), &byte, 1), EINVAL) << "pinned, not mapped";
  char* va = map(handle, 4096);
  EXPECT_EQ(gdr_unmap(g_, handle, va, 4096), 0);
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, &byte, 1), EINVAL);
  EXPECT_EQ(gdr_copy_from_mapping(handle, &byte, va, 1), EINVAL);
  EXPECT_EQ(gdr_copy_from_mapping(handle, &byte, va, 0), EINVAL);
}

TEST_F(Map, UnpinUnmaps) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  char* va = map(handle, 4096);
  EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
  char byte = 1;
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, &byte, 1), EINVAL);
  EXPECT_EQ(gdr_unmap(g_, handle, va, 4096), EINVAL);
}

TEST_F(Map, CopiesStayWithinTheMapping) {
  const DeviceMemory memory = allocate(2 * GPU_PAGE_SIZE);
  const gdr_mh_t handle = pin(memory);
  char* va = map(handle, GPU_PAGE_SIZE);  // half of what is pinned
  std::vector<unsigned char> host(2 * GPU_PAGE_SIZE, 0x5a);
  const auto before = std::vector<unsigned char>(static_cast<unsigned char*>(memory.address()),
                                                 static_cast<unsigned char*>(memory.address()) + memory.bytes());
  const auto expect_refused = [&](char* place, std::size_t bytes) {
    EXPECT_EQ(gdr_copy_to_mapping(handle, place, host.data(), bytes), EINVAL) << place - va << " +" << bytes;
    EXPECT_EQ(gdr_copy_from_mapping(handle, host.data(), place, bytes), EINVAL) << place - va << " +" << bytes;
  };
  expect_refused(va, GPU_PAGE_SIZE + 1);
  expect_refused(va + 1, GPU_PAGE_SIZE);
  expect_refused(va + GPU_PAGE_SIZE, 1);
  expect_refused(va + GPU_PAGE_SIZE + 1, 0);
  expect_refused(va - 1, 1);
  expect_refused(va - 1, 2);
  expect_refused(va, ~std::size_t{0});
  expect_refused(va + 8, ~std::size_t{0} - 4);
  expect_refused(nullptr, 1);
  EXPECT_EQ(std::memcmp(memory.address(), before.data(), before.size()), 0) << "a refused copy stored something";
  EXPECT_EQ(gdr_copy_to_mapping(handle, va + GPU_PAGE_SIZE - 1, host.data(), 1), 0);
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, host.data(), GPU_PAGE_SIZE), 0);
}

// How far copies reach behind what map() was asked for: to the end of the host page, and never beyond the pinned GPU pages (of
// 65536 bytes). Counted from the start of the first GPU page, which the address of the map is.
TEST_F(Map, ReachesToTheEndOfTheHostPageAndNotBeyondThePin) {
  const struct {
    std::size_t pinned_at, pinned, mapped, reached;
  } kCases[] = {
      {0, 65536, 1, 4096},           {0, 65536, 4096, 4096},       {0, 65536, 4097, 8192}, {0, 1, 65536, 65536},
      {100, 8192, 4000, 8192},       {100, 8192, 3996, 4096},      {4095, 10, 1, 4096},    {4095, 10, 2, 8192},
      {65530, 100, 131072, 131072},  {65530, 100, 5, 65536},       {65530, 100, 7, 69632}, {65536, 65536, 65536, 65536},
      {131000, 200, 131072, 131072}, {131000, 200, 70000, 131072},
  };
  const DeviceMemory memory = allocate(4 * GPU_PAGE_SIZE);
  for (const auto& one : kCases) {
    const gdr_mh_t handle = pin(address_of(memory, one.pinned_at), one.pinned);
    char* const va = map(handle, one.mapped);
    const std::string what =
        std::to_string(one.mapped) + " of a pin of " + std::to_string(one.pinned) + " at " + std::to_string(one.pinned_at);
    char byte = 0;
    EXPECT_EQ(gdr_copy_from_mapping(handle, &byte, va + one.reached - 1, 1), 0) << what;
    EXPECT_EQ(gdr_copy_from_mapping(handle, &byte, va + one.reached, 1), EINVAL) << what;
    EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0);
  }
}

TEST_F(Map, NothingToCopyAndNowhereToCopy) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  char* va = map(handle, 4096);
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, nullptr, 0), 0);
  EXPECT_EQ(gdr_copy_from_mapping(handle, nullptr, va, 0), 0);
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, nullptr, 1), EINVAL);
  EXPECT_EQ(gdr_copy_from_mapping(handle, nullptr, va, 1), EINVAL);
}

}  // namespace
}  // namespace gigabar::test
