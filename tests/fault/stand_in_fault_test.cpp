// SPDX-License-Identifier: Apache-2.0
// Bad settings and exhausted limits without a GPU.
#include <gtest/gtest.h>

#include <string>

#include "gigabar/mapping.hpp"
#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

TEST(BadSettings, StandInCountsThatAreNone) {
  for (const char* bad : {"0", "-1", "65", "x", "1e1", "  ", "184467440737095516160"}) {
    const test::ScopedEnvironment count("GIGABAR_STAND_IN", bad);
    EXPECT_EQ(devices().status(), Status::invalid_argument) << "'" << bad << "'";
    EXPECT_EQ(DeviceMemory::allocate(0, 1).status(), Status::invalid_argument) << "'" << bad << "'";
    EXPECT_EQ(mapping_backends(0).status(), Status::invalid_argument) << "'" << bad << "'";
  }
  const test::ScopedEnvironment count("GIGABAR_STAND_IN", "3");
  EXPECT_EQ(devices()->size(), 3u);
  EXPECT_TRUE(mapping_backends(2));
}

// The count changes while memory of a stand-in is in use: what is mapped stays so, and the error names the variable.
TEST(BadSettings, StandInCountThatTurnsBad) {
  const test::ScopedEnvironment good("GIGABAR_STAND_IN", "1");
  const auto memory = DeviceMemory::allocate(0, 4096);
  const auto mapping = map(memory->address(), 4096);
  ASSERT_TRUE(mapping);
  {
    const test::ScopedEnvironment bad("GIGABAR_STAND_IN", "nonsense");
    const auto refused = DeviceMemory::allocate(0, 4096);
    EXPECT_NE(refused.error().message().find("nonsense"), std::string::npos) << refused.error().message();
    mapping->address()[0] = std::byte{1};
  }
  EXPECT_TRUE(map(memory->address(), 4096));
}

TEST(BadSettings, MappingBackendsThatAreNone) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const auto memory = DeviceMemory::allocate(0, 4096);
  for (const char* bad : {"none", "RM", "rm,host", "dmabuf ", "0"}) {
    const test::ScopedEnvironment backend("GIGABAR_MAPPING", bad);
    const auto refused = map(memory->address(), 4096);
    EXPECT_EQ(refused.status(), Status::invalid_argument) << "'" << bad << "'";
    EXPECT_FALSE(refused.error().record().remedy.empty());
  }
  for (const char* good : {"", "host"}) {
    const test::ScopedEnvironment backend("GIGABAR_MAPPING", good);
    EXPECT_TRUE(map(memory->address(), 4096)) << "'" << good << "'";
  }
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
// Mapping memory that exists needs no descriptor, so it works when there is none left.
ISOLATED_TEST(Limits, StandInsMapWithoutDescriptors) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const auto memory = DeviceMemory::allocate(0, 4096);
  const auto mapping = test::without_descriptors([&] { return map(memory->address(), 4096); });
  EXPECT_TRUE(mapping) << mapping.error().message();
  const auto refused = test::without_descriptors([] { return DeviceMemory::allocate(0, 4096); });
  EXPECT_EQ(refused.status(), Status::out_of_descriptors);
}
#endif

}  // namespace
}  // namespace gigabar
