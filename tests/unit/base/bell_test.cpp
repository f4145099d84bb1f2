// SPDX-License-Identifier: Apache-2.0
#include "base/bell.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>

namespace gigabar {
namespace {

bool is_readable(const Bell& bell) {
  pollfd watched{bell.descriptor(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1;
}

TEST(Bell, RingsOnceForEachSleep) {
  Bell bell;
  ASSERT_TRUE(bell.open());
  bell.ring();
  EXPECT_FALSE(is_readable(bell)) << "nobody sleeps";
  bell.arm();
  bell.ring();
  bell.ring();
  EXPECT_TRUE(is_readable(bell));
  bell.disarm();
  EXPECT_FALSE(is_readable(bell));
}

// A thread that rings has seen that the bell is armed, and writes when it is not any more.
TEST(Bell, ALateRingCanBeCleared) {
  Bell bell;
  ASSERT_TRUE(bell.open());
  bell.arm();
  bell.disarm();
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(bell.descriptor(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  bell.disarm();
  EXPECT_TRUE(is_readable(bell)) << "it was not armed, and the kernel is not asked";
  bell.clear();
  EXPECT_FALSE(is_readable(bell));
  bell.arm();
  bell.ring();
  EXPECT_TRUE(is_readable(bell));
}

}  // namespace
}  // namespace gigabar
