// SPDX-License-Identifier: Apache-2.0
// A session over stand-in memory, and what several tests of gdrapi.h do with it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gdrapi.h"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::test {

inline DeviceMemory allocate(std::size_t bytes, int device = 0) {
  auto memory = DeviceMemory::allocate(device, bytes);
  if (!memory) throw std::runtime_error(memory.error().message());
  return std::move(memory).value();
}

inline unsigned long address_of(const DeviceMemory& memory, std::size_t offset_bytes = 0) {
  return reinterpret_cast<unsigned long>(memory.address()) + offset_bytes;
}

// Bytes that differ from place to place and from seed to seed.
inline std::vector<unsigned char> sample_bytes(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>((i * 131 + seed * 31 + (i >> 8)) & 0xff);
  return data;
}

class GdrTest : public testing::Test {
 protected:
  void SetUp() override {
    g_ = gdr_open();
    ASSERT_NE(g_, nullptr);
  }
  void TearDown() override {
    if (g_ != nullptr) {
      EXPECT_EQ(gdr_close(std::exchange(g_, nullptr)), 0);
    }
    trim_mapping_cache(0);  // idle windows hold descriptors of stand-in memory, which every test counts
  }

  gdr_mh_t pin(const DeviceMemory& memory) { return pin(address_of(memory), memory.bytes()); }
  gdr_mh_t pin(unsigned long address, std::size_t bytes) {
    gdr_mh_t handle = {0};
    EXPECT_EQ(gdr_pin_buffer(g_, address, bytes, 0, 0, &handle), 0);
    EXPECT_NE(handle.h, 0U);
    return handle;
  }
  char* map(gdr_mh_t handle, std::size_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(gdr_map(g_, handle, &address, bytes), 0);
    EXPECT_NE(address, nullptr);
    return static_cast<char*>(address);
  }
  gdr_info_t info(gdr_mh_t handle) {
    gdr_info_t result = {};
    EXPECT_EQ(gdr_get_info(g_, handle, &result), 0);
    return result;
  }

  ScopedEnvironment stand_ins_{"GIGABAR_STAND_IN", "2"};
  ScopedEnvironment mapping_{"GIGABAR_MAPPING", nullptr};
  ScopedEnvironment dmabuf_{"GDRCOPY_USE_DMABUF_MMAP", nullptr};
  gdr_t g_ = nullptr;
};

}  // namespace gigabar::test
