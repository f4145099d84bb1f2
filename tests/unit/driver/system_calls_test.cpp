// SPDX-License-Identifier: Apache-2.0
// The seam to device files: driver/system_calls.hpp.
#include "driver/system_calls.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

namespace gigabar {
namespace {

int refuse_to_open(const char*, int) {
  errno = EACCES;
  return -1;
}

TEST(SystemCalls, ReachTheKernelUnlessReplaced) {
  EXPECT_EQ(&system_calls(), &kernel_system_calls());
  SystemCalls mine = kernel_system_calls();
  mine.open = refuse_to_open;
  replace_system_calls(&mine);
  EXPECT_EQ(system_calls().open("/dev/null", O_RDWR), -1);
  EXPECT_EQ(errno, EACCES);
  replace_system_calls(nullptr);
  const int null = system_calls().open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_GE(null, 0);
  EXPECT_EQ(system_calls().close(null), 0);
}

TEST(SystemCalls, TheRealOnesPassErrnoThrough) {
  const SystemCalls& calls = kernel_system_calls();
  EXPECT_EQ(calls.open("/nonexistent/file", O_RDWR), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(calls.close(-1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(calls.ioctl(-1, 0, nullptr), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(calls.mmap(nullptr, 4096, PROT_READ, MAP_SHARED, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
  void* page = calls.mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(calls.madvise(page, 4096, MADV_DONTFORK), 0);
  EXPECT_EQ(calls.munmap(page, 4096), 0);
  EXPECT_EQ(calls.madvise(page, 4096, MADV_DONTFORK), -1);
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace gigabar
