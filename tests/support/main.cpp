// SPDX-License-Identifier: Apache-2.0
// main() of every test program. Two things that are wrong in any test are checked here, once: a warning or error in the log that
// the test did not announce, and file descriptors left open.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "support/expect_log.hpp"
#include "transport/ucx/trial.hpp"

namespace {

struct Descriptors {
  int count = 0;
  bool has_gpu = false;  // CUDA was used in this process
};

Descriptors open_descriptors() {
  Descriptors all;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return {-1, false};
  while (const dirent* entry = readdir(folder)) {
    ++all.count;
    char target[32] = {};
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0) {
      all.has_gpu |= std::strncmp(target, "/dev/nvidia", std::strlen("/dev/nvidia")) == 0;
    }
  }
  closedir(folder);
  return all;
}

class StrictListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    gigabar::test::take_log();
    descriptors_ = open_descriptors();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const std::string& line : gigabar::test::take_log()) ADD_FAILURE() << "unexpected log: " << line;
    // The first use of a driver opens descriptors that the process keeps; only growth without bound is a leak, so tests that
    // repeat an action check it themselves with DescriptorGuard.
    // CUDA opens its own, some dozens, at its first use.
    const Descriptors now = open_descriptors();
    if (now.has_gpu && !descriptors_.has_gpu) return;
    EXPECT_LE(now.count, descriptors_.count + (now.has_gpu ? 16 : 8)) << "file descriptors leaked";
  }
  Descriptors descriptors_;
};

}  // namespace

int main(int argc, char** argv) {
  gigabar::transport::serve_ucx_trials(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  gigabar::set_log_handler(gigabar::test::record_log);
  testing::UnitTest::GetInstance()->listeners().Append(new StrictListener);
  return RUN_ALL_TESTS();
}
