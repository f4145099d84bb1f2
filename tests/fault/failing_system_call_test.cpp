// SPDX-License-Identifier: Apache-2.0
// Each call of the system that components make on their way up fails once, in turn: the error names the call or what it was for,
// nothing stays open, and the next attempt works.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "fabric/job/directories.hpp"
#include "fabric/notifications.hpp"
#include "fabric/tuning.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"
#include "memory/host_pages.hpp"
#include "platform/numa.hpp"
#include "secure/sockets.hpp"
#include "support/descriptors.hpp"
#include "support/failing_calls.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar {
namespace {

using test::errors_of_each;
using test::FailingCall;
using test::ScopedEnvironment;

// A call that fails, its errno, and what one of the errors then says.
struct Case {
  const char* function;
  int error;
  const char* part;
};

void expect_errors(const std::vector<Case>& cases, const std::function<Result<void>()>& body) {
  ASSERT_TRUE(body());
  const std::size_t descriptors = test::open_descriptors();
  for (const Case& one : cases) {
    const std::string errors = errors_of_each(one.function, one.error, body);
    EXPECT_NE(errors.find(one.part), std::string::npos) << one.function << ": '" << one.part << "' is not said of\n" << errors;
    EXPECT_EQ(test::open_descriptors(), descriptors) << one.function;
  }
}

template <class T>
Result<void> error_of(const Result<T>& result) {
  if (!result) return result.error();
  return {};
}

ISOLATED_TEST(FailingSystemCalls, Poller) {
  expect_errors({{"timerfd_create", EMFILE, "watch sockets: timerfd_create"}, {"epoll_ctl", ENOSPC, "watch sockets: epoll_ctl"}},
                [] { return error_of(secure::Poller::open()); });
}

ISOLATED_TEST(FailingSystemCalls, BootstrapServer) {
  fabric::Job job;
  job.rank_count = 2;
  job.id = "test";
  job.key = fabric::JobKey("sixteen bytes or more");
  job.master_address = "127.0.0.1";
  job.master_port = test::free_port();
  expect_errors({{"epoll_ctl", ENOSPC, "listen: the job's directory: No space left"}, {"listen", ENOBUFS, "No buffer space"}},
                [&] { return error_of(fabric::open_bootstrap_server(job)); });
}

FabricOptions alone() {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 1;
  return options;
}

ISOLATED_TEST(FailingSystemCalls, Fabric) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  expect_errors({{"eventfd", EMFILE, "fabric open: epoll: no descriptor to sleep on"},
                 {"epoll_create1", EMFILE, "fabric open: epoll: no descriptor to sleep on"}},
                [] { return error_of(Fabric::open(alone())); });
}

ISOLATED_TEST(FailingSystemCalls, ConnectionOfARankToItself) {
  expect_errors({{"memfd_create", EMFILE, "local: Too many open files; allow the local transport"}}, []() -> Result<void> {
    auto fabric = Fabric::open(alone());
    if (!fabric) return fabric.error();
    return fabric->connect(0, std::chrono::seconds(10));
  });
}

// Without staging memory the bytes go in messages, and the log says why.
ISOLATED_TEST(FailingSystemCalls, StagingMemory) {
  constexpr std::size_t kBytes = 65536;
  std::mutex mutex;
  std::string told;
  const LogHandler before = set_log_handler([&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    told += std::string(line) + "\n";
  });
  const auto write = []() -> Result<void> {
    std::vector<char> memory(2 * kBytes, 'a');
    std::fill_n(memory.begin(), kBytes, 'b');
    auto fabric = Fabric::open(alone());
    if (!fabric) return fabric.error();
    if (Result<void> registered = fabric->register_segment(1, memory.data(), memory.size()); !registered) return registered;
    PathPolicy staged;
    staged.staged = Preference::require;
    const auto posted = fabric->write({1, 0}, {0, 1, kBytes}, kBytes, {.queue = 0, .policy = staged});
    if (!posted) return posted.error();
    Result<void> waited = fabric->wait(0, std::chrono::seconds(10));
    const Result<void> flushed = fabric->flush(0, std::chrono::seconds(10));
    EXPECT_TRUE(flushed) << flushed.message();
    if (waited) {
      EXPECT_EQ(std::count(memory.begin(), memory.end(), 'b'), std::ptrdiff_t(2 * kBytes));
    }
    return waited;
  };
  const struct {
    const char* function;
    int error;
    const char* line;
  } kCases[] = {{"memfd_create", EMFILE, "no memory file: Too many open files"},
                {"ftruncate", EFBIG, "no memory file: File too large"},
                {"fcntl", EPERM, "no memory file: Operation not permitted"}};
  for (const auto& one : kCases) {
    errors_of_each(one.function, one.error, write);
    const std::lock_guard lock(mutex);
    EXPECT_NE(told.find("of staging for rank 0: " + std::string(one.line)), std::string::npos) << told;
    told.clear();
  }
  set_log_handler(before);
}

// Of a segment: without memory for them it is not registered.
ISOLATED_TEST(FailingSystemCalls, MemoryOfNotifications) {
  fabric::WordPages pages;
  expect_errors({{"mmap", ENOMEM, "register: 65536 notifications: ENOMEM (ENOMEM); free memory, or raise vm.max_map_count"}},
                [&] { return error_of(fabric::Notifications::make(pages)); });
}

ISOLATED_TEST(FailingSystemCalls, FileOfAJobKey) {
  const test::TemporaryFolder folder;
  folder.write("key", "00112233445566778899aabbccddeeff");
  const std::string path = folder.path() + "/key";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const ScopedEnvironment key("GIGABAR_JOB_KEY_FILE", path.c_str()), tuning("GIGABAR_TUNING", "none");
  expect_errors(
      {{"fstat", EIO, "the file cannot be read: Input/output error"}, {"read", EIO, "the file cannot be read: Input/output error"}},
      [] { return error_of(Fabric::open(alone())); });
}

ISOLATED_TEST(FailingSystemCalls, LockOfATuningFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/tuning.json";
  fabric::TunedPair pair;
  expect_errors({{"flock", ENOLCK, "cannot be locked"}}, [&] { return fabric::store_tuned(path, MachineFingerprint{}, pair); });
}

ISOLATED_TEST(FailingSystemCalls, LocalTransport) {
  expect_errors({{"getrandom", ENOSYS, "the kernel gives no random bytes"}}, [] { return error_of(transport::open_local({})); });
}

// The link is made, and is broken from the beginning.
ISOLATED_TEST(FailingSystemCalls, LocalLink) {
  const auto one = transport::test::open_one();
  const transport::Peer peer = transport::test::peer_of(*one, 1);
  const auto make = [&]() -> Result<void> {
    transport::Parcel offer;
    transport::test::Recorder told;
    auto link = one->offer(peer, 0, offer);
    if (!link) return link.error();
    one->poll(told);
    if (told.broken_count == 0) return {};
    return Error(ErrorRecord{Status::peer_lost, "link", "", {}, told.why, "", ""});
  };
  expect_errors({{"epoll_ctl", ENOSPC, "raise fs.epoll.max_user_watches"}}, make);
}

ISOLATED_TEST(FailingSystemCalls, NumaPolicy) {
  std::string errors;
  for (int skip = 0; skip < 2; ++skip) {  // not in a loop until it works: the policy is taken back with the same call
    const FailingCall failing("syscall", EPERM, skip);
    const auto policy = NumaAllocationPolicy::bind(0);
    ASSERT_TRUE(failing.has_failed());
    ASSERT_FALSE(policy);
    errors += policy.error().message() + "\n";
  }
  EXPECT_NE(errors.find("get_mempolicy: Operation not permitted"), std::string::npos) << errors;
  EXPECT_NE(errors.find("set_mempolicy: Operation not permitted"), std::string::npos) << errors;
}

ISOLATED_TEST(FailingSystemCalls, HostPages) {
  expect_errors({{"mmap", ENOMEM, "mmap"}, {"madvise", ENOMEM, "populating pages"}},
                [] { return error_of(PageMapping::make(1 << 20, -1)); });
}

// Whether there are huge pages at all is this machine's.
ISOLATED_TEST(FailingSystemCalls, HugePages) {
  const auto make = []() -> Result<void> {
    const auto made = PageMapping::make_huge(2 << 20, -1);
    if (!made && made.error().message().find("came on huge pages") == std::string::npos) return made.error();
    return {};
  };
  expect_errors({{"mmap", ENOMEM, "mmap"},
                 {"mprotect", ENOMEM, "mprotect"},
                 {"madvise", EACCES, "this kernel has no transparent huge pages"},
                 {"madvise", ENOMEM, "populating pages"},
                 {"read", EIO, "the kernel does not tell whether the pages are huge"}},
                make);
}

ISOLATED_TEST(FailingSystemCalls, FileOfStandInMemory) {
  const test::TemporaryFolder folder;
  folder.write("memory", std::string(1 << 20, '\0'));
  const std::string path = folder.path() + "/memory";
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1"), file("GIGABAR_STAND_IN_MEMORY", path.c_str());
  const auto allocate = [] { return error_of(DeviceMemory::allocate(0, 65536)); };
  expect_errors({{"fcntl", EIO, "its ranges cannot be locked: Input/output error"}, {"mmap", ENOMEM, "mmap: Cannot allocate"}},
                allocate);
  // Somebody's lock to the end of it, however far that is.
  const Descriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  ASSERT_EQ(::fcntl(other.get(), F_OFD_SETLK, &lock), 0);
  const Result<void> refused = allocate();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::out_of_memory) << refused.message();
}

ISOLATED_TEST(FailingSystemCalls, WriteCombinedStandInMemory) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  HostMemoryOptions options;
  options.pages = HostPages::write_combined;
  expect_errors({{"mmap", ENOMEM, "allocate write-combined memory"}},
                [&] { return error_of(HostMemory::allocate(1 << 20, options)); });
}

}  // namespace
}  // namespace gigabar
