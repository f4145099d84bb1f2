// SPDX-License-Identifier: Apache-2.0
// Device memory that the CPU has mapped: written to by links, never read by them. Kinds as in link_suite.hpp.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/scoped_environment.hpp"
#include "unit/transport/placing/pair.hpp"

namespace gigabar::transport::pairs {

template <class Kind>
class MappedLinks : public testing::Test {};
TYPED_TEST_SUITE_P(MappedLinks);

inline constexpr std::size_t kMappedBytes = (std::size_t{3} << 20) + 77;

inline MemoryRange range_of(const DeviceMemory& memory) {
  return {memory.address(), memory.bytes(), MemoryKind::stand_in, memory.device(), -1, 0};
}

// A pair whose far end has device memory, of bytes 0x11.
template <class Kind>
struct MappedPair : Kind::Pair {
  MappedPair() {
    EXPECT_TRUE(memory);
    std::memset(memory->address(), 0x11, memory->bytes());
    auto registered = this->far->register_memory(range_of(*memory));
    EXPECT_TRUE(registered) << registered.error().message();
    region = std::move(*registered);
  }
  const std::byte* data() const { return static_cast<const std::byte*>(memory->address()); }

  const gigabar::test::ScopedEnvironment one{"GIGABAR_STAND_IN", "1"};
  Result<DeviceMemory> memory = DeviceMemory::allocate(0, kMappedBytes);
  std::unique_ptr<Region> region;
};

TYPED_TEST_P(MappedLinks, WritesOfAllSizesLandInDeviceMemory) {
  MappedPair<TypeParam> pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  EXPECT_EQ(pair.region->how(), "mapped");
  Buffer source(*pair.near, kMappedBytes);
  const auto remote = pair.open_far(*pair.region);
  ASSERT_NE(remote, nullptr);
  std::uint64_t seed = 0;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{63}, std::size_t{4097}, std::size_t{65536}, std::size_t{1'000'003}, kMappedBytes - 5}) {
    ++seed;
    for (std::size_t i = 0; i < bytes; ++i) source.data()[i] = pattern(i, seed);
    std::memset(pair.memory->address(), 0x11, kMappedBytes);
    const Reach reach = pair.near_link->reach(Direction::write, *source.region, *remote);
    EXPECT_TRUE(reach.can);
    EXPECT_EQ(reach.path, TransferPath::bar);
    pair.post([&] { return pair.near_link->post_write(*source.region, 0, *remote, 3, bytes, seed); });
    pair.post([&] { return pair.near_link->post_message(header_of(seed), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == seed; })) << bytes;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes; ++i) wrong += pair.data()[3 + i] != pattern(i, seed) ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << bytes;
    EXPECT_EQ(pair.data()[2], std::byte{0x11});
    EXPECT_EQ(pair.data()[3 + bytes], std::byte{0x11});
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.contains(seed); }));
    EXPECT_EQ(pair.near_sink.dones[seed], "");
  }
}

// What the link would have to load from device memory it says no to, and refuses where it is asked all the same.
TYPED_TEST_P(MappedLinks, NothingIsReadFromIt) {
  MappedPair<TypeParam> pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer host(*pair.near, 4096);
  const auto remote = pair.open_far(*pair.region);
  auto own = DeviceMemory::allocate(0, 4096);
  ASSERT_TRUE(own);
  const auto mapped = pair.near->register_memory(range_of(*own));
  ASSERT_TRUE(mapped);
  EXPECT_FALSE(pair.near_link->reach(Direction::read, *host.region, *remote).can);
  EXPECT_FALSE(pair.near_link->reach(Direction::read, **mapped, *remote).can);
  EXPECT_FALSE(pair.near_link->reach(Direction::answer, *host.region, *remote).can);
  const Reach sent = pair.near_link->reach(Direction::write, **mapped, *remote);
  EXPECT_FALSE(sent.can);
  EXPECT_NE(sent.reason.find(std::string(TypeParam::kName) + " does not send GPU memory"), std::string::npos);

  Buffer far_host(*pair.far, 4096);
  const auto remote_host = pair.open_far(*far_host.region);
  const Reach answered = pair.near_link->reach(Direction::answer, **mapped, *remote_host);
  EXPECT_TRUE(answered.can);
  EXPECT_EQ(answered.path, TransferPath::bar);

  EXPECT_EQ(pair.near_link->post_write(**mapped, 0, *remote_host, 0, 64, 1), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.dones.contains(1); }));
  EXPECT_NE(pair.near_sink.dones[1].find(std::string(TypeParam::kName) + " does not send GPU memory"), std::string::npos);
  EXPECT_EQ(pair.near_link->state(), LinkState::ready);

  // A liar asks for it.
  EXPECT_EQ(pair.near_link->post_read(*host.region, 0, *remote, 0, 64, 2), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
  EXPECT_NE(pair.far_sink.errors[pair.far_link.get()].find("broke the rules"), std::string::npos);
}

TYPED_TEST_P(MappedLinks, ARegionThatGoesWhileItIsWritten) {
  for (int round = 0; round < 5; ++round) {
    MappedPair<TypeParam> pair;
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Buffer source(*pair.near, kMappedBytes);
    std::memset(source.data(), 0x77, kMappedBytes);
    const auto remote = pair.open_far(*pair.region);
    for (std::uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kMappedBytes, i), Posted::ok);
    }
    for (int i = 0; i < 50 * round; ++i) pair.poll();
    pair.region.reset();
    std::memset(pair.memory->address(), 0x22, kMappedBytes);
    // One more, were they all through before.
    const Posted posted = pair.near_link->post_write(*source.region, 0, *remote, 0, kMappedBytes, 8);
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
    EXPECT_EQ(pair.near_sink.dones.size(), posted == Posted::ok ? 9u : 8u);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kMappedBytes; ++i) wrong += pair.data()[i] != std::byte{0x22} ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(MappedLinks, WritesOfAllSizesLandInDeviceMemory, NothingIsReadFromIt, ARegionThatGoesWhileItIsWritten);

}  // namespace gigabar::transport::pairs
