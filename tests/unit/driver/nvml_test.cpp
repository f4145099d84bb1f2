// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 at run time: driver/nvml/nvml.hpp.
#include "driver/nvml/nvml.hpp"

#include <gtest/gtest.h>

#include "fakes/paths.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

ISOLATED_TEST(Nvml, AnswersForItsDevice) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  ASSERT_TRUE(nvml::availability().is_ok()) << nvml::availability().reason;
  EXPECT_EQ(nvml::driver_version(), "570.86.10");
  EXPECT_EQ(nvml::device_minor("0000:06:00.0"), 5u);
  EXPECT_FALSE(nvml::device_minor("0000:07:00.0"));
  const auto bar1 = nvml::bar1("0000:06:00.0");
  ASSERT_TRUE(bar1);
  EXPECT_EQ(bar1->total_bytes, 1ull << 38);
  EXPECT_EQ(bar1->used_bytes, 1ull << 20);
}

ISOLATED_TEST(Nvml, AnswersForLinksAndMemory) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                                     "0000:06:00.0 pcie=5x16 idle=1 links=2>switch@26562 links=1>10000:3b:00.0@25781 "
                                     "memory=6016@3201; 0000:07:00.0 links=4>0000:06:00.0@0 common=14062 c2c=10@44712");
  const auto pcie = nvml::pcie_link("0000:06:00.0");
  ASSERT_TRUE(pcie);
  EXPECT_EQ(pcie->generation, 5u);
  EXPECT_EQ(pcie->width, 16u);
  EXPECT_FALSE(nvml::pcie_link("0000:07:00.0")) << "that one does not tell";

  const auto links = nvml::nvlinks("0000:06:00.0");
  ASSERT_TRUE(links);
  ASSERT_EQ(links->size(), 4u);
  EXPECT_FALSE(links->at(0).is_active);
  EXPECT_TRUE(links->at(1).is_active && links->at(1).is_switch);
  EXPECT_EQ(links->at(1).mb_per_s, 26562u);
  EXPECT_FALSE(links->at(3).is_switch);
  EXPECT_EQ(links->at(3).remote_pci, "00010000:3B:00.0");
  const auto older = nvml::nvlinks("0000:07:00.0");
  ASSERT_TRUE(older);
  EXPECT_EQ(older->at(0).mb_per_s, 14062u) << "told for all links together";

  const auto bus = nvml::memory_bus("0000:06:00.0");
  ASSERT_TRUE(bus);
  EXPECT_EQ(bus->width_bits, 6016u);
  EXPECT_EQ(bus->max_clock_mhz, 3201u);
  EXPECT_FALSE(nvml::memory_bus("0000:07:00.0"));

  EXPECT_EQ(nvml::c2c_links("0000:06:00.0")->active_count, 0u);
  EXPECT_EQ(nvml::c2c_links("0000:07:00.0")->active_count, 10u);
  EXPECT_EQ(nvml::c2c_links("0000:07:00.0")->mb_per_s, 44712u);
  EXPECT_FALSE(nvml::c2c_links("0000:08:00.0"));
}

ISOLATED_TEST(Nvml, AnswersForWhatOthersDo) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                                     "0000:06:00.0 traffic=23100 carried=10 process=4711 process=12; 0000:07:00.0");
  EXPECT_DOUBLE_EQ(nvml::pcie_traffic_gb_per_s("0000:06:00.0").value_or(0), 23.1) << "of the busier direction";
  EXPECT_FALSE(nvml::pcie_traffic_gb_per_s("0000:07:00.0"));
  const auto before = nvml::nvlink_carried_bytes("0000:06:00.0"), after = nvml::nvlink_carried_bytes("0000:06:00.0");
  ASSERT_TRUE(before && after);
  EXPECT_GT(*before, std::uint64_t{1} << 50) << "64 bits";
  EXPECT_EQ(*after - *before, 40u * 1024) << "ten KiB with each of the two questions, for two counters";
  EXPECT_FALSE(nvml::nvlink_carried_bytes("0000:07:00.0"));
  EXPECT_EQ(nvml::compute_processes("0000:06:00.0"), (std::vector<unsigned>{4711, 12}));
  EXPECT_TRUE(nvml::compute_processes("0000:07:00.0").empty());
  EXPECT_TRUE(nvml::compute_processes("0000:08:00.0").empty());
}

ISOLATED_TEST(Nvml, TellsFactsOfDevices) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                                     "10000:3b:00.0 pcie=1x16 most=5x16 mig=0 persistence=1 fabric=2 reasons=68 retirement=1 "
                                     "peers=0,3,2; 0000:07:00.0 remap=1 remap-failed=0 peers=4,1,9");
  EXPECT_EQ(nvml::devices(), (std::vector<std::string>{"10000:3b:00.0", "0000:07:00.0"}));
  const nvml::DeviceFacts first = nvml::facts("10000:3b:00.0");
  EXPECT_EQ(first.name, "a GPU of the fake NVML");
  EXPECT_EQ(first.uuid, "GPU-of-10000:3b:00.0");
  EXPECT_EQ(first.pcie_most_generation, 5u);
  EXPECT_EQ(first.pcie_most_width, 16u);
  EXPECT_EQ(first.is_mig_enabled, false);
  EXPECT_EQ(first.is_persistence_enabled, true);
  EXPECT_EQ(first.fabric_state, "in_progress");
  EXPECT_EQ(first.clocks_event_reasons, 68u);
  EXPECT_EQ(first.is_page_retirement_pending, true);
  EXPECT_FALSE(first.is_row_remap_pending);
  EXPECT_FALSE(first.has_row_remap_failed);
  const nvml::DeviceFacts second = nvml::facts("0000:07:00.0");
  EXPECT_EQ(second.is_row_remap_pending, true);
  EXPECT_EQ(second.has_row_remap_failed, false);
  EXPECT_FALSE(second.pcie_most_generation || second.pcie_most_width || second.is_mig_enabled || second.is_persistence_enabled ||
               second.fabric_state || second.clocks_event_reasons || second.is_page_retirement_pending);
  EXPECT_TRUE(nvml::facts("0000:99:00.0").name.empty());

  using enum nvml::PeerCapability;
  EXPECT_EQ(nvml::peer_status("10000:3b:00.0", "0000:07:00.0", read), "ok");
  EXPECT_EQ(nvml::peer_status("10000:3b:00.0", "0000:07:00.0", write), "topology_not_supported");
  EXPECT_EQ(nvml::peer_status("10000:3b:00.0", "0000:07:00.0", atomics), "gpu_not_supported");
  EXPECT_EQ(nvml::peer_status("0000:07:00.0", "10000:3b:00.0", read), "disabled_by_regkey");
  EXPECT_EQ(nvml::peer_status("0000:07:00.0", "10000:3b:00.0", write), "chipset_not_supported");
  EXPECT_EQ(nvml::peer_status("0000:07:00.0", "10000:3b:00.0", atomics), "unknown") << "a number that NVML does not have";
  EXPECT_FALSE(nvml::peer_status("0000:07:00.0", "0000:99:00.0", read));
}

ISOLATED_TEST(Nvml, NeverListsMoreDevicesThanItMay) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  std::string many = "none";  // an address that cannot be read is left out
  for (int i = 0; i < 100; ++i) many += "; 0000:" + std::to_string(10 + i % 90) + ":00.0";
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", many.c_str());
  EXPECT_EQ(nvml::devices().size(), nvml::kMaxDevices - 1);
}

ISOLATED_TEST(Nvml, AnOldLibraryDoesWhatItCan) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeOldNvmlLibrary);
  ASSERT_TRUE(nvml::availability().is_ok()) << nvml::availability().reason;
  EXPECT_EQ(nvml::device_minor("0000:06:00.0"), 5u);
  EXPECT_FALSE(nvml::pcie_link("0000:06:00.0"));
  EXPECT_TRUE(nvml::devices().empty());
  EXPECT_FALSE(nvml::facts("0000:06:00.0").is_mig_enabled);
  EXPECT_FALSE(nvml::peer_status("0000:06:00.0", "0000:06:00.0", nvml::PeerCapability::read));
  EXPECT_FALSE(nvml::nvlinks("0000:06:00.0"));
  EXPECT_FALSE(nvml::memory_bus("0000:06:00.0"));
  EXPECT_EQ(nvml::c2c_links("0000:06:00.0")->active_count, 0u) << "older than such links";
}

ISOLATED_TEST(Nvml, MissingLibrary) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1");
  EXPECT_EQ(nvml::availability().code, AvailabilityCode::library_missing);
  EXPECT_FALSE(nvml::availability().remedy.empty());
  EXPECT_FALSE(nvml::driver_version());
  EXPECT_FALSE(nvml::bar1("0000:06:00.0"));
}

ISOLATED_TEST(Nvml, LibraryWithoutItsFunctions) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", "libm.so.6");
  EXPECT_EQ(nvml::availability().code, AvailabilityCode::symbol_missing);
  EXPECT_NE(nvml::availability().reason.find("nvmlInit_v2"), std::string::npos);
}

ISOLATED_TEST(Nvml, NotPermitted) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  const test::ScopedEnvironment denies("GIGABAR_FAKE_NVML_DENIES", "1");
  EXPECT_EQ(nvml::availability().code, AvailabilityCode::no_permission);
}

}  // namespace
}  // namespace gigabar
