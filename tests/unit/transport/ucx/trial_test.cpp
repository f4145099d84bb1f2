// SPDX-License-Identifier: Apache-2.0
// UCX's library where it ends the process, or never comes back: another process finds that out.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/clock.hpp"
#include "driver/ucp/ucp.hpp"
#include "fakes/paths.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport {
namespace {

using gigabar::test::ScopedEnvironment;

// What open_ucx() says of a library that plays `part`.
void expect_refusal(const char* part, const std::string& text) {
  const ScopedEnvironment library("GIGABAR_UCP_LIBRARY", gigabar::test::kFakeUcpLibrary);
  const ScopedEnvironment variable("GIGABAR_FAKE_UCP", part);
  const auto refused = open_ucx({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_NE(refused.error().record().cause.find(text), std::string::npos) << refused.error().message();
  EXPECT_NE(refused.error().record().remedy.find("GIGABAR_TRANSPORTS"), std::string::npos) << refused.error().message();
  EXPECT_EQ(ucp::availability().code, AvailabilityCode::not_supported);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "the process of the trial is left";
}

ISOLATED_TEST(UcxTrial, AnAbortWhenItIsOpened) {
  expect_refusal("abort", "libucp ended a trial process with SIGABRT: the fake gives up");
}
ISOLATED_TEST(UcxTrial, AnAbortInItsFirstCall) {
  expect_refusal("abort in init", "libucp ended a trial process with SIGABRT: an assertion of the fake");
}
ISOLATED_TEST(UcxTrial, ACrash) { expect_refusal("crash", "libucp ended a trial process with SIGSEGV: it printed nothing"); }
ISOLATED_TEST(UcxTrial, AnExit) { expect_refusal("exit", "libucp ended a trial process with exit status 0: it printed nothing"); }

ISOLATED_TEST(UcxTrial, AHang) {
  const ScopedEnvironment seconds("GIGABAR_TRIAL_SECONDS", "1");
  const std::int64_t begin_ns = now_ns();
  expect_refusal("hang", "libucp did not come back from a trial process within 1 s");
  EXPECT_LT(now_ns() - begin_ns, 20'000'000'000);
}

// A program that ignores SIGCHLD is told nothing of how its children end.
ISOLATED_TEST(UcxTrial, WhereNobodyIsToldOfEnds) {
  ASSERT_NE(std::signal(SIGCHLD, SIG_IGN), SIG_ERR);
  expect_refusal("abort", "libucp ended a trial process: the fake gives up");
}

// What comes back is opened here, and says by itself what it lacks.
ISOLATED_TEST(UcxTrial, AFailureIsTheLibrarysOwn) {
  const ScopedEnvironment library("GIGABAR_UCP_LIBRARY", gigabar::test::kFakeUcpLibrary);
  const ScopedEnvironment variable("GIGABAR_FAKE_UCP", "well");
  const auto refused = open_ucx({});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(ucp::availability().is_ok()) << ucp::availability().reason;
  EXPECT_NE(refused.error().message().find("ucp_init"), std::string::npos) << refused.error().message();
}

// The control: without a trial such a library ends the process.
ISOLATED_TEST(UcxTrial, NoneIsMadeWhereTheUserWantsNone) {
  const ScopedEnvironment seconds("GIGABAR_TRIAL_SECONDS", "0");
  const ScopedEnvironment library("GIGABAR_UCP_LIBRARY", gigabar::test::kFakeUcpLibrary);
  const ScopedEnvironment variable("GIGABAR_FAKE_UCP", "abort");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    static_cast<void>(open_ucx({}));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

}  // namespace
}  // namespace gigabar::transport
