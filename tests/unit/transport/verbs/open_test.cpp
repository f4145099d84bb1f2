// SPDX-License-Identifier: Apache-2.0
// open_verbs(): wrong options, and why there is no RDMA.
#include <gtest/gtest.h>

#include <string>

#include "fakes/paths.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "transport/verbs/open.hpp"

namespace gigabar::transport {
namespace {

Status status_with(const std::function<void(TransportOptions&)>& change) {
  TransportOptions options;
  change(options);
  const auto opened = open_verbs(options);
  if (opened) return Status::ok;
  EXPECT_FALSE(opened.error().record().cause.empty());
  return opened.status();
}

TEST(OpenVerbs, WrongOptionsAreNamed) {
  EXPECT_EQ(status_with([](TransportOptions& options) { options.rail_count = 0; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.rail_count = 17; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.rails.assign(17, "mlx5_0"); }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.gid_index = -2; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.gid_index = 256; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.traffic_class = 256; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.connect_deadline_ns = 0; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.service_level = -2; }), Status::invalid_argument);
  EXPECT_EQ(status_with([](TransportOptions& options) { options.service_level = 16; }), Status::invalid_argument);
}

ISOLATED_TEST(OpenVerbs, SaysThatTheLibraryIsMissing) {
  const test::ScopedEnvironment library("GIGABAR_VERBS_LIBRARY", "/nowhere/libibverbs.so.1");
  const auto opened = open_verbs({});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.status(), Status::unavailable);
  EXPECT_FALSE(opened.error().record().remedy.empty());
}

#if GIGABAR_HAS_RDMACM
ISOLATED_TEST(OpenVerbs, SaysThatTheConnectionManagerIsMissing) {
  const test::ScopedEnvironment verbs("GIGABAR_VERBS_LIBRARY", test::kFakeVerbsLibrary);
  const test::ScopedEnvironment library("GIGABAR_RDMACM_LIBRARY", "/nowhere/librdmacm.so.1");
  const auto opened = open_verbs({});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.status(), Status::unavailable);
  EXPECT_NE(opened.error().message().find("librdmacm"), std::string::npos) << opened.error().message();
  EXPECT_FALSE(opened.error().record().remedy.empty());
}

// A library that is another one, or too old.
ISOLATED_TEST(OpenVerbs, SaysWhichFunctionIsMissing) {
  const test::ScopedEnvironment verbs("GIGABAR_VERBS_LIBRARY", test::kFakeVerbsLibrary);
  const test::ScopedEnvironment library("GIGABAR_RDMACM_LIBRARY", test::kFakeVerbsLibrary);
  const auto opened = open_verbs({});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.status(), Status::unavailable);
  EXPECT_NE(opened.error().message().find("rdma_create_event_channel"), std::string::npos) << opened.error().message();
}
#endif

// On a machine with RDMA it opens, else there is a reason; neither leaves anything behind.
ISOLATED_TEST(OpenVerbs, OpensOrSaysWhyNot) {
  for (int i = 0; i < 3; ++i) {
    const auto opened = open_verbs({});
    if (opened) {
      EXPECT_FALSE((*opened)->rails().empty());
      continue;
    }
    EXPECT_FALSE(opened.error().record().cause.empty());
    EXPECT_FALSE(opened.error().record().remedy.empty()) << opened.error().message();
  }
}

}  // namespace
}  // namespace gigabar::transport
