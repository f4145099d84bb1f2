// SPDX-License-Identifier: Apache-2.0
// The version word of the handle that kernels are given: what a kernel opens refuses a handle of another version.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "gigabar/device/channel.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::device {
namespace {

// A kernel of any version finds the word, and whoever changes one of the following sizes changes kHandleVersion too.
static_assert(offsetof(DeviceFabric, version) == 0);
static_assert(kHandleVersion == 1 && sizeof(DeviceFabric) == 104 && sizeof(DeviceSegment) == 64 && sizeof(Notification) == 16 &&
              sizeof(PeerQueue) == 1024 && sizeof(KernelWords) == 16 && sizeof(PeerRing) == 512 && sizeof(BlockGroup) == 1152);

// One rank alone, with a segment, a ring to itself and a group of blocks.
struct OneRank {
  OneRank() {
    segment.address = bytes.data();
    segment.bytes = bytes.size();
    segment.notifications = &notification;
    ring.send.lines = ring.recv.lines = lines.data();
    ring.send.line_count = ring.recv.line_count = static_cast<std::uint32_t>(lines.size());
    fabric.version = kHandleVersion;
    fabric.rank_count = fabric.segment_count = fabric.notification_count = fabric.ring_count = 1;
    fabric.segments = &segment;
    fabric.peer_status = statuses.data();
    fabric.rings = &ring;
    fabric.block_groups = groups.data();
  }

  std::array<std::byte, 64> bytes{};
  Notification notification;
  std::array<std::uint32_t, 2> statuses{};
  std::array<MessageLine, kMinRingLines> lines{};
  std::array<BlockGroup, kBlockGroups> groups{};
  DeviceSegment segment;
  PeerRing ring;
  DeviceFabric fabric;
};

// What each of the functions that open something returns.
void expect_opened(const DeviceFabric& fabric, Status wanted) {
  SendRing to;
  RecvRing from;
  Channel channel;
  BasicBlocks<Thread> blocks(Thread{});
  EXPECT_EQ(check_version(fabric), wanted);
  EXPECT_EQ(open_ring(fabric, 0, 0, to), wanted);
  EXPECT_EQ(open_ring(fabric, 0, 0, from), wanted);
  EXPECT_EQ(Channel::open(Thread{}, fabric, 0, 0, 0, 0, channel), wanted);
  EXPECT_EQ(open_blocks(fabric, 0, 1, 0, blocks, Timeout{0}), wanted);
}

TEST(DeviceHandle, OpensWhatIsOfItsVersion) {
  OneRank rank;
  expect_opened(rank.fabric, Status::ok);
}

TEST(DeviceHandle, OfAnotherVersionIsRefused) {
  OneRank rank;
  for (const std::uint32_t version : {kHandleVersion + 1, 0u}) {
    rank.fabric.version = version;
    expect_opened(rank.fabric, Status::not_supported);
  }
  EXPECT_EQ(check_version(DeviceFabric{}), Status::not_supported) << "a handle that no session has filled";
}

}  // namespace
}  // namespace gigabar::device
