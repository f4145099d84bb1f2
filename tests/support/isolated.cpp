#include "support/isolated.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "support/expect_log.hpp"

namespace gigabar::test {
namespace {

constexpr int kFailed = 1, kSkipped = 77;

[[noreturn]] void run_child(void (*body)(), unsigned limit_s) {
  ::alarm(limit_s);  // SIGALRM ends a body that hangs
  try {
    body();
  } catch (const std::exception& exception) {
    ADD_FAILURE() << "exception: " << exception.what();  // must not reach the test runner of the parent, of which this is a copy
  }
  for (const std::string& line : take_log()) ADD_FAILURE() << "unexpected log: " << line;
  const int code = testing::Test::HasFailure() ? kFailed : testing::Test::IsSkipped() ? kSkipped : 0;
  std::fflush(nullptr);
  // exit() and not _exit(): what the library does when a process ends is part of the test.
  std::exit(code);
}

}  // namespace

void run_isolated(void (*body)(), unsigned limit_s) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0) << std::strerror(errno);
  if (child == 0) run_child(body, limit_s);
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
