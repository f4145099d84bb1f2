// SPDX-License-Identifier: Apache-2.0
// UCX's library where it ends the process, or never comes back: another process finds that out.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "driver/probe.hpp"
#include "driver/ucp/ucp.hpp"
#include "fakes/paths.hpp"
#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "transport/ucx/open.hpp"

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
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "the process of the probe is left";
}

ISOLATED_TEST(UcxProbe, AnAbortWhenItIsOpened) {
  expect_refusal("abort", "libucp ended a probe process with SIGABRT: the fake gives up");
}
ISOLATED_TEST(UcxProbe, AnAbortInItsFirstCall) {
  expect_refusal("abort in init", "libucp ended a probe process with SIGABRT: an assertion of the fake");
}
ISOLATED_TEST(UcxProbe, ACrash) { expect_refusal("crash", "libucp ended a probe process with SIGSEGV: it printed nothing"); }
ISOLATED_TEST(UcxProbe, AnExit) { expect_refusal("exit", "libucp ended a probe process with exit status 0: it printed nothing"); }

ISOLATED_TEST(UcxProbe, AHang) {
  const ScopedEnvironment seconds("GIGABAR_PROBE_SECONDS", "1");
  const std::int64_t begin_ns = now_ns();
  expect_refusal("hang", "libucp did not come back from a probe process within 1 s");
  EXPECT_LT(now_ns() - begin_ns, 20'000'000'000);
}

// The probe process says nothing of it: what it says last is quoted as the library's.
ISOLATED_TEST(UcxProbe, TheOldNameOfItsTimeIsTaken) {
  const ScopedEnvironment seconds("GIGABAR_TRIAL_SECONDS", "10");
  expect_refusal("crash", "libucp ended a probe process with SIGSEGV: it printed nothing");
  EXPECT_EQ(gigabar::test::take_log(), std::vector<std::string>{"GIGABAR_TRIAL_SECONDS is called GIGABAR_PROBE_SECONDS now"});
}

// Ranks that try their libraries at once on a loaded host: four threads compute on the one processor that the other process has
// too.
ISOLATED_TEST(UcxProbe, ALoadedHostIsNoFaultOfTheLibrary) {
  const ScopedEnvironment seconds("GIGABAR_PROBE_SECONDS", "2");
  const ScopedEnvironment library("GIGABAR_UCP_LIBRARY", gigabar::test::kFakeUcpLibrary);
  const ScopedEnvironment variable("GIGABAR_FAKE_UCP", "work");
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      while (!is_over) continue;
    });
  }
  const std::int64_t begin_ns = now_ns();
  const Availability tried = try_library("libucp");
  const std::int64_t took_ns = now_ns() - begin_ns;
  is_over = true;
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(tried.is_ok()) << tried.reason;
  EXPECT_GT(took_ns, 2'000'000'000) << "it was not loaded enough to show anything";
}

// From /proc/PID/stat: behind the name stands the state, then the parent.
struct ProcessState {
  char letter = 'X';  // gone
  pid_t parent = 0;
};
ProcessState state_of(pid_t process) {
  const std::string line = read_small_file("/proc/" + std::to_string(process) + "/stat").value_or("");
  ProcessState state;
  const auto end = line.rfind(')');
  if (end != std::string::npos) std::sscanf(line.c_str() + end + 1, " %c %d", &state.letter, &state.parent);
  return state;
}

pid_t child_of(pid_t parent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process > 0 && state_of(process).parent == parent) return process;
  }
  return -1;
}

template <class IsSo>
bool is_so_within(int seconds, const IsSo& is_so) {
  const std::int64_t end_ns = now_ns() + std::int64_t{1'000'000'000} * seconds;
  while (!is_so() && now_ns() < end_ns) ::usleep(10'000);
  return is_so();
}

// Whatever becomes of the process that waits for it: `signal`.
void expect_end_of_probe_behind(int signal) {
  const ScopedEnvironment seconds("GIGABAR_PROBE_SECONDS", "1");
  const ScopedEnvironment library("GIGABAR_UCP_LIBRARY", gigabar::test::kFakeUcpLibrary);
  const ScopedEnvironment variable("GIGABAR_FAKE_UCP", "hang");
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    static_cast<void>(try_library("libucp"));
    ::_exit(0);
  }
  pid_t probe = -1;
  EXPECT_TRUE(is_so_within(10, [&] { return (probe = child_of(parent)) > 0; }));
  // As soon as it has limited itself.
  EXPECT_TRUE(is_so_within(10, [&] {
    const auto limits = read_small_file("/proc/" + std::to_string(probe) + "/limits").value_or("");
    return limits.find("Max cpu time              2 ") != std::string::npos &&
           limits.find("Max core file size        0 ") != std::string::npos;
  }));
  EXPECT_EQ(::kill(parent, signal), 0);
  EXPECT_TRUE(is_so_within(20, [&] {
    const char state = state_of(probe).letter;
    return state == 'X' || state == 'Z';
  })) << "it is left for good";
  ::kill(parent, SIGKILL);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
}

ISOLATED_TEST(UcxProbe, EndsWithItsParent) { expect_end_of_probe_behind(SIGKILL); }
ISOLATED_TEST(UcxProbe, EndsByItselfWhereItsParentStandsStill) { expect_end_of_probe_behind(SIGSTOP); }

// A program that ignores SIGCHLD is told nothing of how its children end.
ISOLATED_TEST(UcxProbe, WhereNobodyIsToldOfEnds) {
  ASSERT_NE(std::signal(SIGCHLD, SIG_IGN), SIG_ERR);
  expect_refusal("abort", "libucp ended a probe process: the fake gives up");
}

// What comes back is opened here, and says by itself what it lacks.
ISOLATED_TEST(UcxProbe, AFailureIsTheLibrarysOwn) {
  const ScopedEnvironment library("GIGABAR_UCP_LIBRARY", gigabar::test::kFakeUcpLibrary);
  const ScopedEnvironment variable("GIGABAR_FAKE_UCP", "well");
  const auto refused = open_ucx({});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(ucp::availability().is_ok()) << ucp::availability().reason;
  EXPECT_NE(refused.error().message().find("ucp_init"), std::string::npos) << refused.error().message();
}

// The control: without a probe such a library ends the process.
ISOLATED_TEST(UcxProbe, NoneIsMadeWhereTheUserWantsNone) {
  const ScopedEnvironment seconds("GIGABAR_PROBE_SECONDS", "0");
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
