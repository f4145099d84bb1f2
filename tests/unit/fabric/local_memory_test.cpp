// SPDX-License-Identifier: Apache-2.0
// How the engine reads GPU memory by itself, on a fake libcuda.
#include "fabric/local_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "copy/readback/readback.hpp"
#include "gigabar/copy.hpp"
#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kBytes = 65536;
constexpr std::size_t kRead = 8192;  // by a copy engine without the readback kernel

// The first read opens the kernel where it may be used, which launches it.
void expect_reads(const char* wish, bool is_by_kernel) {
  const test::ScopedEnvironment asked("GIGABAR_READBACK_KERNEL", wish);
  test::MappingSession session;
  session.machine().runs_kernels = true;
  session.start();
  const CUdeviceptr address = test::FakeSession::allocate(kBytes);
  const auto content = test::pattern(kBytes, 5);
  test::FakeSession::write(address, content.data(), kBytes);
  {
    const auto memory = LocalMemory::look_at(reinterpret_cast<void*>(address), kBytes);
    ASSERT_TRUE(memory) << memory.error().message();
    std::vector<unsigned char> got(kRead);
    EXPECT_EQ(test::FakeSession::counts().total_launches, 0U);
    for (unsigned i = 0; i < 100; ++i) {
      ASSERT_TRUE(memory->load(3, got.data(), kRead));
      EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin() + 3));
    }
    EXPECT_EQ(test::FakeSession::counts().total_launches > 0, is_by_kernel);
    EXPECT_EQ(memory->mapped_load_bytes(), is_by_kernel ? kMaxReadbackBytes : kMaxMappedLoadBytes);
  }
  EXPECT_EQ(test::take_log().size(), wish[0] == '1' && !is_by_kernel ? 1U : 0U) << "a build without device code says so";
  test::FakeSession::free(address);
  if (is_by_kernel) session.expect_kept_mapping();
}

ISOLATED_TEST(LocalMemory, IsReadByTheReadbackKernelWhereItIsInUse) { expect_reads("1", readback_kernel_image() != nullptr); }
ISOLATED_TEST(LocalMemory, IsReadByTheOtherMethodsWhereItIsNot) { expect_reads("0", false); }

}  // namespace
}  // namespace gigabar::fabric
