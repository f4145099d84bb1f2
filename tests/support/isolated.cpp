// SPDX-License-Identifier: Apache-2.0
#include "support/isolated.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace gigabar::test {
namespace {

constexpr int kSkipped = 77;
constexpr const char* kVariable = "GIGABAR_TEST_ISOLATED";

void run_here(void (*body)(), unsigned limit_s) {
  ::alarm(limit_s);  // SIGALRM ends a body that hangs
  body();
  ::alarm(0);
  if (testing::Test::IsSkipped()) std::exit(kSkipped);
}

[[noreturn]] void become_the_test(const std::string& filter) {
  ::setenv(kVariable, "1", 1);
  ::execl("/proc/self/exe", "isolated", filter.c_str(), static_cast<char*>(nullptr));
  std::fprintf(stderr, "cannot start the test's process: %s\n", std::strerror(errno));
  ::_exit(126);
}

}  // namespace

void run_isolated(void (*body)(), unsigned limit_s) {
  if (std::getenv(kVariable) != nullptr) return run_here(body, limit_s);
  const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = std::string("--gtest_filter=") + info.test_suite_name() + "." + info.name();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0) << std::strerror(errno);
  if (child == 0) become_the_test(filter);
  int status = 0;
  pid_t ended;
  do {
    ended = ::waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  ASSERT_EQ(ended, child);
  if (WIFSIGNALED(status)) {
    FAIL() << "the test's process died of " << (WTERMSIG(status) == SIGALRM ? "its time limit" : strsignal(WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "skipped in its own process; the reason is above";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "failed in its own process; the failures are above";
}

}  // namespace gigabar::test
