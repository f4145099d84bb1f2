// SPDX-License-Identifier: Apache-2.0
// How the engine reads GPU memory by itself, on a fake libcuda.
#include "fabric/local_memory.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "copy/readback/readback.hpp"
#include "gigabar/copy.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kBytes = 65536;
constexpr std::size_t kRead = 8192;  // by a copy engine without the readback kernel

ISOLATED_TEST(LocalMemory, IsReadByTheReadbackKernelWhereItIsInUse) {
  test::MappingSession session;
  session.machine().runs_kernels = true;
  session.start();
  const CUdeviceptr address = test::FakeSession::allocate(kBytes);
  const auto content = test::pattern(kBytes, 5);
  test::FakeSession::write(address, content.data(), kBytes);
  {
    const auto memory = LocalMemory::look_at(reinterpret_cast<void*>(address), kBytes);
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(memory->mapped_load_bytes(), kMaxMappedLoadBytes);
    std::vector<unsigned char> got(kRead);
    const fake::Fault& engine = session.plant(fake::Call::cuda, "cuMemcpyDtoHAsync", CUDA_ERROR_LAUNCH_FAILED, fake::kForEver);
    EXPECT_FALSE(memory->load(3, got.data(), kRead)) << "nobody asked for the kernel";
    EXPECT_GT(engine.hits, 0U);
    session.remove_faults();
    if (readback_kernel_image() != nullptr) {
      const Result<void> used = use_readback_kernel(0);
      ASSERT_TRUE(used) << used.message();
      EXPECT_EQ(memory->mapped_load_bytes(), kMaxReadbackBytes);
      session.plant(fake::Call::cuda, "cuMemcpyDtoHAsync", CUDA_ERROR_LAUNCH_FAILED, fake::kForEver);
      const Deadline deadline = Deadline::after_ns(30'000'000'000);
      while (!memory->load(3, got.data(), kRead)) {
        ASSERT_FALSE(deadline.has_passed());
        std::this_thread::yield();
      }
      EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin() + 3));
      session.remove_faults();
      session.expect_kept_mapping();
    }
  }
  test::FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar::fabric
