// SPDX-License-Identifier: Apache-2.0
// A FakeSession for tests of map(): at its end idle windows are unmapped, so that what is left was forgotten by somebody.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gigabar/mapping.hpp"
#include "support/fake_session.hpp"

namespace gigabar::test {

class MappingSession : public FakeSession {
 public:
  ~MappingSession() { trim_mapping_cache(0); }

  // Every backend can be used: a machine whose dma-bufs can be mapped and that has gdrdrv.
  void have_all_backends() {
    machine().cuda_version = 13030;
    machine().dma_buf_mmap_supported = 1;
    machine().is_dma_buf_mappable = true;
    machine().has_gdrdrv = true;
  }
};

inline const void* pointer(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

inline MapOptions require(MappingBackend backend) {
  MapOptions options;
  options.backend = backend;
  return options;
}

// map() that has to work.
inline Mapping must_map(CUdeviceptr address, std::size_t bytes, const MapOptions& options = {}) {
  auto mapping = map(pointer(address), bytes, options);
  if (!mapping) throw std::runtime_error(mapping.error().message());
  EXPECT_EQ(mapping->bytes(), bytes);
  EXPECT_EQ(mapping->device_address(), address);
  EXPECT_TRUE(mapping->is_usable());
  return std::move(*mapping);
}

// Stores through the mapping and looks with the copy engine, then the other way round; the bytes around stay as they were.
inline void expect_shows_memory(const Mapping& mapping, unsigned seed) {
  const CUdeviceptr address = mapping.device_address();
  const auto to_gpu = pattern(mapping.bytes(), seed);
  std::memcpy(mapping.address(), to_gpu.data(), to_gpu.size());
  EXPECT_EQ(FakeSession::read(address, to_gpu.size()), to_gpu) << "stores through the mapping";
  const auto from_gpu = pattern(mapping.bytes(), seed + 1);
  FakeSession::write(address, from_gpu.data(), from_gpu.size());
  EXPECT_EQ(std::memcmp(mapping.address(), from_gpu.data(), from_gpu.size()), 0) << "loads through the mapping";
}

}  // namespace gigabar::test
