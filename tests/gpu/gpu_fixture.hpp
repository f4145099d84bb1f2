// SPDX-License-Identifier: Apache-2.0
// What every test on a GPU needs: a device, cudaMalloc'd memory that frees itself, and a check that names the failing call.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"

namespace gigabar::test {

#define ASSERT_CUDA(call) ASSERT_EQ(cudaSuccess, (call)) << cudaGetErrorString(cudaPeekAtLastError())

// Memory of cudaMalloc.
class CudaBuffer {
 public:
  explicit CudaBuffer(std::size_t bytes) : bytes_(bytes) { EXPECT_EQ(cudaSuccess, cudaMalloc(&address_, bytes)); }
  ~CudaBuffer() { free(); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  void free() {
    if (address_ != nullptr) cudaFree(address_);
    address_ = nullptr;
  }
  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(address_) + offset; }
  void* address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_;
};

// The CUDA way to read and write, waited for.
inline std::uint64_t peek(const void* device_address) {
  std::uint64_t value = 0;
  EXPECT_EQ(cudaSuccess, cudaMemcpy(&value, device_address, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}
inline void poke(void* device_address, std::uint64_t value) {
  EXPECT_EQ(cudaSuccess, cudaMemcpy(device_address, &value, sizeof value, cudaMemcpyHostToDevice));
  EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());  // a copy from pageable memory may return before it has arrived
}

// CUDA opens its descriptors before the first test, so that a test answers for its own only.
class CudaEnvironment : public testing::Environment {
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return;
    for (int device = count - 1; device >= 0; --device) {
      cudaSetDevice(device);
      cudaFree(nullptr);
    }
    (void)devices();  // opens NVML
  }
};
inline testing::Environment* const cuda_environment = testing::AddGlobalTestEnvironment(new CudaEnvironment);

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cudaGetDeviceCount(&device_count_) != cudaSuccess || device_count_ == 0) GTEST_SKIP() << "no GPU";
    cudaSetDevice(0);
  }
  int device_count_ = 0;
};

}  // namespace gigabar::test
