// SPDX-License-Identifier: Apache-2.0
// main() of every test program. What is wrong in any test is checked here, once: a warning or error in the log that the test did
// not announce, and file descriptors left open. A program of which no test ran has failed: nothing was tested.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "conformance/ranks_words.hpp"
#include "support/expect_log.hpp"
#include "support/free_port.hpp"
#include "transport/ucx/open.hpp"

namespace {

// Memory and device files of the fake GPU machine, which lives as long as its process. What the library holds of them FakeSession
// counts.
constexpr std::string_view kOfTheFakes = "/memfd:gigabar-fake-";

// The open descriptors: number and what it leads to.
std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> all;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return all;
  while (const dirent* entry = readdir(folder)) {
    const int number = std::atoi(entry->d_name);
    char target[256] = {};
    if (entry->d_name[0] == '.' || number == dirfd(folder)) continue;
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0) all.emplace(number, target);
  }
  closedir(folder);
  return all;
}

bool has_gpu(const std::map<int, std::string>& descriptors) {
  return std::any_of(descriptors.begin(), descriptors.end(), [](const auto& one) { return one.second.starts_with("/dev/nvidia"); });
}

// librdmacm closes no device that it has opened: of each it keeps one descriptor, and one of the device's events.
class OfRdmacm {
 public:
  explicit OfRdmacm(const std::map<int, std::string>& descriptors) {
    for (const auto& [number, target] : descriptors) ++counts_[target];
    for (const auto& [target, count] : counts_) device_count_ += target.starts_with(kDevice);
  }
  bool has(const std::string& target) const {
    if (target.starts_with(kDevice)) return counts_.at(target) == 1;
    return target == kEvents && counts_.at(target) <= device_count_;
  }

 private:
  static constexpr std::string_view kDevice = "/dev/infiniband/uverbs", kEvents = "anon_inode:[infinibandevent]";
  std::map<std::string, std::size_t> counts_;
  std::size_t device_count_ = 0;
};

// Where a library keeps one until the process ends: RecordProperty("keeps_descriptors", why).
bool keeps_descriptors(const testing::TestInfo& test) {
  for (int i = 0; i < test.result()->test_property_count(); ++i)
    if (std::string_view(test.result()->GetTestProperty(i).key()) == "keeps_descriptors") return true;
  return false;
}

class StrictListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    gigabar::test::take_log();
    descriptors_ = open_descriptors();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    for (const std::string& line : gigabar::test::take_log()) ADD_FAILURE() << "unexpected log: " << line;
    if (keeps_descriptors(test)) return;
    const std::map<int, std::string> now = open_descriptors();
    // CUDA's driver opens some dozens of its own at its first use, pipes and sockets beside its devices, and a few more later.
    if (has_gpu(now)) {
      EXPECT_TRUE(!has_gpu(descriptors_) || now.size() <= descriptors_.size() + 16) << "file descriptors leaked";
      return;
    }
    const OfRdmacm of_rdmacm(now);
    for (const auto& [number, target] : now) {
      if (!descriptors_.contains(number) && !target.starts_with(kOfTheFakes) && !of_rdmacm.has(target))
        ADD_FAILURE() << "descriptor " << number << " is left open: " << target;
    }
  }
  std::map<int, std::string> descriptors_;
};

// Why a run in which no test failed is a failure all the same; null: it is none.
const char* why_nothing_was_tested() {
  const testing::UnitTest& run = *testing::UnitTest::GetInstance();
  if (GTEST_FLAG_GET(list_tests)) return nullptr;
  if (run.test_to_run_count() == 0) return "no test ran: the filter names none";
  if (run.skipped_test_count() == run.test_to_run_count()) return "no test ran: all were skipped";
  // Whoever starts a guest sees no more of its tests than one exit code; and a guest has everything that they ask for.
  if (run.skipped_test_count() > 0 && std::getenv("GIGABAR_VM_RANK") != nullptr) return "a test was skipped in a guest";
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  gigabar::transport::serve_ucx_probes(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  gigabar::set_log_handler(gigabar::test::record_log);
  testing::UnitTest::GetInstance()->listeners().Append(new StrictListener);
  if (std::getenv(gigabar::test::kRankVariable) == nullptr) gigabar::test::port_block();  // ranks start no jobs
  const int result = RUN_ALL_TESTS();
  const char* const why = result == 0 ? why_nothing_was_tested() : nullptr;
  if (why == nullptr) return result;
  std::printf("[  FAILED  ] %s\n", why);
  return 1;
}
