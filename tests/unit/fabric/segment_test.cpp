// SPDX-License-Identifier: Apache-2.0
// Who may name a buffer of messages.
#include <gtest/gtest.h>

#include <vector>

#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

TEST(LocalSegment, IsOpenUntilTheLastOfARanksMessagesIsThere) {
  std::vector<char> buffer(4096);
  auto memory = LocalMemory::look_at(buffer.data(), buffer.size());
  ASSERT_TRUE(memory) << memory.error().message();
  LocalSegment segment(std::move(*memory));
  EXPECT_FALSE(segment.is_open_to(1));
  segment.open_to(1);
  segment.open_to(1);
  segment.open_to(2);
  segment.close_to(1);
  EXPECT_TRUE(segment.is_open_to(1)) << "one of two is on its way";
  segment.close_to(1);
  EXPECT_FALSE(segment.is_open_to(1)) << "though another rank's message is";
  EXPECT_TRUE(segment.is_open_to(2));
  segment.close_to(1);
  segment.close_to(2);
  EXPECT_FALSE(segment.is_open_to(2));
}

// What one rank may have under way is more than nothing beyond what it can post: ends are seen later here than there.
TEST(EngineLimits, LeaveRoomForEndsThatAreSeenLate) {
  EXPECT_GE(kMaxAnswers, 2 * std::size_t{kQueues} * kQueueDepth);
  EXPECT_GE(kMaxStaged, kMaxMessages + std::size_t{kQueues} * kQueueDepth + kMaxAnswers);
  EXPECT_LE(kMaxAheadBytes, kMaxHeldBytes / 2) << "answers come on top of what a writer says";
}

}  // namespace
}  // namespace gigabar::fabric
