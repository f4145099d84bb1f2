// SPDX-License-Identifier: Apache-2.0
// A build without CUDA's headers says so.
#include <gtest/gtest.h>

#include "driver/cuda/cuda.hpp"

namespace gigabar {
namespace {

TEST(CudaWithoutHeaders, IsNotBuiltAndSaysHowToBuildIt) {
  const Availability& availability = cuda::driver().availability;
  EXPECT_EQ(availability.code, AvailabilityCode::not_built);
  EXPECT_FALSE(availability.reason.empty());
  EXPECT_NE(availability.remedy.find("cuda.h"), std::string::npos);
}

}  // namespace
}  // namespace gigabar
