// SPDX-License-Identifier: Apache-2.0
// What peers reach of a process, and with which keys.
#include <gtest/gtest.h>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "support/scoped_environment.hpp"
#include "transport/placing.hpp"

namespace gigabar::transport {
namespace {

constexpr Rank kPeer = 3;

// Through a mapping that is of use no more, as in a forked child, nothing is placed.
TEST(PlacingHome, AMappingThatFailsIsTold) {
  const gigabar::test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  auto memory = DeviceMemory::allocate(0, 4096);
  ASSERT_TRUE(memory);
  auto mapping = map(memory->address(), 4096);
  ASSERT_TRUE(mapping);
  Home home("TCP");
  const std::byte data[8] = {};
  const std::uint32_t whole = home.add_region({nullptr, 4096, std::move(*mapping), {{kPeer, 5}}});
  const std::uint32_t gone = home.add_region({nullptr, 4096, std::move(*mapping), {{kPeer, 5}}});  // moved from: without memory
  const Guard right{kPeer, 5}, wrong{kPeer, 6};
  EXPECT_EQ(home.copy_to(0, {whole, 0, right}, data), Placed::ok);
  EXPECT_EQ(home.copy_to(0, {gone, 0, right}, data), Placed::failed);
  EXPECT_EQ(home.copy_to({whole, 0, right}, data), Placed::ok);
  EXPECT_EQ(home.copy_to({gone, 0, right}, data), Placed::failed);
  EXPECT_EQ(home.copy_to({whole, 0, wrong}, data), Placed::not_allowed);
  EXPECT_EQ(home.copy_to({whole, 4089, right}, data), Placed::not_allowed);
  EXPECT_EQ(home.copy_to(0, {whole, 0, wrong}, data), Placed::not_allowed);
  EXPECT_EQ(home.memory({whole, 0, {}}, 8), nullptr) << "it is not the CPU's own";
}

TEST(PlacingHome, AKeyIsOfOnePeerUntilItIsTakenBack) {
  auto home = std::make_shared<Home>("TCP");
  std::array<std::byte, 64> memory{};
  const std::byte data[8] = {};
  auto region = PlacedRegion::make(home, {memory.data(), memory.size()});
  ASSERT_TRUE(region);
  Peer first, second;
  first.rank = 1;
  second.rank = 2;
  const auto guard_for = [&](const Peer& peer) { return decode_region_key((*region)->key(peer)->bytes)->guard; };
  const std::uint64_t of_first = guard_for(first), of_second = guard_for(second);
  EXPECT_NE(of_first, of_second);
  EXPECT_EQ(guard_for(first), of_first) << "asked again";
  const std::uint32_t number = decode_region_key((*region)->key(first)->bytes)->region;
  const auto copy = [&](Rank rank, std::uint64_t guard) { return home->copy_to({number, 0, Guard{rank, guard}}, data); };
  EXPECT_EQ(copy(1, of_first), Placed::ok);
  EXPECT_EQ(copy(2, of_second), Placed::ok);
  EXPECT_EQ(copy(1, of_second), Placed::not_allowed) << "another peer's";
  EXPECT_EQ(home->copy_to(0, {number, 0, Guard{1, of_second}}, data), Placed::not_allowed) << "on a lane too";
  EXPECT_EQ(home->copy_to(0, {number, 0, Guard{1, of_first}}, data), Placed::ok);
  (*region)->take_back_key(1);
  EXPECT_EQ(copy(1, of_first), Placed::not_allowed);
  EXPECT_EQ(home->memory({number, 0, Guard{1, of_first}}, 8), nullptr);
  EXPECT_EQ(copy(2, of_second), Placed::ok) << "the other one's stays";
  const std::uint64_t anew = guard_for(first);
  EXPECT_NE(anew, of_first);
  EXPECT_EQ(copy(1, of_first), Placed::not_allowed);
  EXPECT_EQ(copy(1, anew), Placed::ok);
}

}  // namespace
}  // namespace gigabar::transport
