// main() of every test program. Two things that are wrong in any test are checked here, once: a warning or error in the log that
// the test did not announce, and file descriptors left open.
#include <dirent.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "support/expect_log.hpp"

namespace {

int open_descriptor_count() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class StrictListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    gigabar::test::take_log();
    descriptors_ = open_descriptor_count();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const std::string& line : gigabar::test::take_log()) ADD_FAILURE() << "unexpected log: " << line;
    // The first use of a driver opens descriptors that the process keeps; only growth without bound is a leak, so tests that
    // repeat an action check it themselves with DescriptorGuard.
    const int now = open_descriptor_count();
    EXPECT_LE(now, descriptors_ + 8) << "file descriptors leaked";
  }
  int descriptors_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  gigabar::set_log_handler(gigabar::test::record_log);
  testing::UnitTest::GetInstance()->listeners().Append(new StrictListener);
  return RUN_ALL_TESTS();
}
