// SPDX-License-Identifier: Apache-2.0
// libhwloc.so.15 at run time: driver/hwloc.
#include "driver/hwloc/hwloc.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <thread>
#include <vector>

#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

#if GIGABAR_HAS_HWLOC

TEST(Hwloc, IsAvailable) {
  ASSERT_TRUE(hwloc::availability().is_ok()) << hwloc::availability().reason;
  EXPECT_NE(hwloc::availability().reason.find("hwloc"), std::string::npos);
}

TEST(Hwloc, NamesDevicesOfThisMachine) {
  for (const hwloc::PciName& device : hwloc::pci_names()) {
    EXPECT_TRUE(std::filesystem::exists("/sys/bus/pci/devices/" + device.address.to_string())) << device.address.to_string();
  }
}

TEST(Hwloc, FromManyThreadsAtOnce) {
  const std::size_t count = hwloc::pci_names().size();
  constexpr int kThreads = 6, kRounds = 5;
  std::vector<std::thread> threads;
  std::array<std::size_t, kThreads> right{};
  for (std::size_t& mine : right) {
    threads.emplace_back([&mine, count] {
      for (int round = 0; round < kRounds; ++round) mine += hwloc::pci_names().size() == count ? 1U : 0U;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::size_t rounds : right) EXPECT_EQ(rounds, static_cast<std::size_t>(kRounds));
}

ISOLATED_TEST(Hwloc, MissingLibrary) {
  const test::ScopedEnvironment library("GIGABAR_HWLOC_LIBRARY", "/nonexistent/libhwloc.so.15");
  EXPECT_EQ(hwloc::availability().code, AvailabilityCode::library_missing);
  EXPECT_NE(hwloc::availability().remedy.find("libhwloc15"), std::string::npos);
  EXPECT_TRUE(hwloc::pci_names().empty());
}

ISOLATED_TEST(Hwloc, LibraryWithoutItsFunctions) {
  const test::ScopedEnvironment library("GIGABAR_HWLOC_LIBRARY", "libm.so.6");
  EXPECT_EQ(hwloc::availability().code, AvailabilityCode::symbol_missing);
  EXPECT_NE(hwloc::availability().reason.find("hwloc_topology_init"), std::string::npos);
}

#else

TEST(Hwloc, SaysThatItIsNotBuilt) {
  EXPECT_EQ(hwloc::availability().code, AvailabilityCode::not_built);
  EXPECT_TRUE(hwloc::pci_names().empty());
}

#endif

}  // namespace
}  // namespace gigabar
