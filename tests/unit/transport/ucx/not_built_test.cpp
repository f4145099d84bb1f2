// SPDX-License-Identifier: Apache-2.0
// A build without UCX's headers says so.
#include <gtest/gtest.h>

#include "driver/ucp/ucp.hpp"
#include "transport/ucx/open.hpp"

namespace gigabar::transport {
namespace {

TEST(UcxWithoutHeaders, IsNotBuiltAndSaysHowToBuildIt) {
  EXPECT_EQ(ucp::availability().code, AvailabilityCode::not_built);
  EXPECT_NE(ucp::availability().remedy.find("libucx-dev"), std::string::npos);
  const auto refused = open_ucx({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
}

}  // namespace
}  // namespace gigabar::transport
