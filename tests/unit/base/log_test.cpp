// SPDX-License-Identifier: Apache-2.0
// Levels, handlers and lines: base/log.hpp. GIGABAR_LOG is read once, so each level is tried in a process of its own.
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "support/expect_log.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

TEST(LogHandler, GetsEveryLevelAndIsGivenBack) {
  std::vector<std::pair<LogLevel, std::string>> seen;
  const LogHandler before = set_log_handler([&](LogLevel level, std::string_view line) { seen.emplace_back(level, line); });
  log(LogLevel::debug, "one");
  log(LogLevel::error, "two");
  log(LogLevel::off, "never");
  const LogHandler mine = set_log_handler(before);
  EXPECT_TRUE(mine);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], std::make_pair(LogLevel::debug, std::string("one")));
  EXPECT_EQ(seen[1], std::make_pair(LogLevel::error, std::string("two")));
}

TEST(LogHandler, EachErrorIsLoggedOnceAtInfo) {
  int count = 0;
  LogLevel level = LogLevel::off;
  const LogHandler before = set_log_handler([&](LogLevel seen, std::string_view) {
    ++count;
    level = seen;
  });
  const Error error = make_error(Status::busy, "test", "object", "cause");
  const Error copy = error;
  set_log_handler(before);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(level, LogLevel::info);
}

TEST(LogRecording, NoticesWarningsAndNothingBelow) {
  log(LogLevel::warning, "taken by the test");
  log(LogLevel::info, "not a warning");
  EXPECT_EQ(test::take_log(), std::vector<std::string>{"taken by the test"});
}

// Runs this same test in a new process with that level, where it logs one line of each; answers what arrived on standard error.
std::string lines_at(const char* level) {
  constexpr const char* kProbe = "GIGABAR_TEST_LOG_PROBE";
  if (std::getenv(kProbe) != nullptr) {
    set_log_handler({});
    log(LogLevel::error, "e");
    log(LogLevel::warning, "w");
    log(LogLevel::info, "i");
    log(LogLevel::debug, "d");
    set_log_handler(test::record_log);
    std::_Exit(0);
  }
  const test::ScopedEnvironment probe(kProbe, "1");
  const test::ScopedEnvironment environment("GIGABAR_LOG", level);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string command = "'" + self + "' --gtest_filter=" + info.test_suite_name() + "." + info.name() + " 2>&1 >/dev/null";
  FILE* pipe = ::popen(command.c_str(), "re");
  std::string lines;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) lines += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0);
  return lines;
}

TEST(LogLevels, DefaultIsWarning) { EXPECT_EQ(lines_at(nullptr), "gigabar error: e\ngigabar warning: w\n"); }
TEST(LogLevels, Off) { EXPECT_EQ(lines_at("off"), ""); }
TEST(LogLevels, Error) { EXPECT_EQ(lines_at("error"), "gigabar error: e\n"); }
TEST(LogLevels, Info) { EXPECT_EQ(lines_at("info"), "gigabar error: e\ngigabar warning: w\ngigabar info: i\n"); }
TEST(LogLevels, Debug) {
  EXPECT_EQ(lines_at("debug"), "gigabar error: e\ngigabar warning: w\ngigabar info: i\ngigabar debug: d\n");
}
TEST(LogLevels, NonsenseIsTheDefault) { EXPECT_EQ(lines_at("loud"), "gigabar error: e\ngigabar warning: w\n"); }

TEST(LogThreads, LinesOfSeveralThreadsAllArrive) {
  std::vector<std::string> seen;
  const LogHandler before = set_log_handler([&](LogLevel, std::string_view line) { seen.emplace_back(line); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < 100; ++n) log(LogLevel::warning, "line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  set_log_handler(before);
  EXPECT_EQ(seen.size(), 400u);
}

}  // namespace
}  // namespace gigabar
