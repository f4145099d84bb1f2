// libnvidia-ml.so.1 at run time: driver/nvml/nvml.hpp.
#include "driver/nvml/nvml.hpp"

#include <gtest/gtest.h>

#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

ISOLATED_TEST(Nvml, AnswersForItsDevice) {
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", GIGABAR_FAKE_NVML_LIBRARY);
  ASSERT_TRUE(nvml::availability().is_ok()) << nvml::availability().reason;
  EXPECT_EQ(nvml::driver_version(), "570.86.10");
  EXPECT_EQ(nvml::device_minor("0000:06:00.0"), 5u);
  EXPECT_FALSE(nvml::device_minor("0000:07:00.0"));
  const auto bar1 = nvml::bar1("0000:06:00.0");
  ASSERT_TRUE(bar1);
  EXPECT_EQ(bar1->total_bytes, 1ull << 38);
  EXPECT_EQ(bar1->used_bytes, 1ull << 20);
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
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", GIGABAR_FAKE_NVML_LIBRARY);
  const test::ScopedEnvironment denies("GIGABAR_FAKE_NVML_DENIES", "1");
  EXPECT_EQ(nvml::availability().code, AvailabilityCode::no_permission);
}

}  // namespace
}  // namespace gigabar
