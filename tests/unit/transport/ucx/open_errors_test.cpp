// SPDX-License-Identifier: Apache-2.0
// What the system, or UCX, refuses while a transport is opened and links are made. A call of UCX's own that fails is an error too.
#include <cerrno>
#include <string>

#include "support/failing_calls.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "unit/transport/ucx/pair.hpp"

namespace gigabar::transport::ucx::test {
namespace {

using gigabar::test::errors_of_each;
using gigabar::test::ScopedEnvironment;

ISOLATED_TEST(UcxOpenErrors, RandomNumbersOfLinks) {
  Pair pair;
  const auto offer = [&]() -> Result<void> {
    Parcel parcel;
    const auto offered = pair.near->offer(pair.to_far, 0, parcel);
    if (!offered) return offered.error();
    return {};
  };
  const std::string errors = errors_of_each("getrandom", ENOSYS, offer);
  EXPECT_NE(errors.find("make a link: random number: getrandom failed"), std::string::npos) << errors;
}

ISOLATED_TEST(UcxOpenErrors, AConfigurationThatUcxDoesNotRead) {
  const ScopedEnvironment wrong("UCX_NUM_EPS", "much"), quiet("UCX_LOG_LEVEL", "fatal");
  const auto opened = UcxTransport::open({});
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("ucp_config_read"), std::string::npos) << opened.error().message();
}

}  // namespace
}  // namespace gigabar::transport::ucx::test
