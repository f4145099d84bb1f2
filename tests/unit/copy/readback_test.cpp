// SPDX-License-Identifier: Apache-2.0
// The readback kernel of the fake GPU machine: when it comes and goes, and what happens when it does not.
#include "copy/readback/readback.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "gigabar/copy.hpp"
#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;
using test::pattern;

constexpr std::int64_t kLongNs = 30'000'000'000;

bool await(const auto& condition) {
  const Deadline deadline = Deadline::after_ns(kLongNs);
  while (!condition()) {
    if (deadline.has_passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

class ReadbackTest {
 public:
  static constexpr std::size_t kBytes = 65536;

  explicit ReadbackTest(unsigned gpus = 1) {
    session.machine().gpu_count = gpus;
    session.machine().runs_kernels = true;
    session.start();
    memory = FakeSession::allocate(kBytes);
    FakeSession::write(memory, content.data(), kBytes);
  }
  ~ReadbackTest() {
    readback.reset();
    trim_mapping_cache(0);
    FakeSession::free(memory);
  }
  // An image is not looked at here. The limits are those of a busy machine.
  void open() {
    auto opened = Readback::open(0, "an image", {.kernel_ns = 400'000'000, .idle_ns = 40'000'000});
    ASSERT_TRUE(opened) << opened.error().message();
    readback = std::move(*opened);
  }
  Status status_of_open() const {
    const auto refused = Readback::open(0, "an image");
    trim_mapping_cache(0);
    return refused.status();
  }
  bool has_copied(std::size_t offset, std::size_t bytes) {
    std::vector<unsigned char> got(bytes);
    if (!readback->try_copy(memory + offset, got.data(), bytes)) return false;
    EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin() + static_cast<std::ptrdiff_t>(offset)));
    return true;
  }
  // Copies that follow each other, until one is the kernel's.
  bool is_asked_soon() {
    return await([this] { return has_copied(0, 4096); });
  }
  static bool is_gone() {
    return await([] { return FakeSession::counts().kernels == 0; });
  }

  MappingSession session;
  CUdeviceptr memory = 0;
  const std::vector<unsigned char> content = pattern(kBytes, 3);
  std::unique_ptr<Readback> readback;
};

ISOLATED_TEST(ReadbackCuda, ComesWhenCopiesAreCloseAndGoesInSilence) {
  ReadbackTest test;
  test.open();
  EXPECT_TRUE(ReadbackTest::is_gone()) << "the trial's";
  const auto launches = FakeSession::counts().total_launches;
  EXPECT_FALSE(test.has_copied(0, 4096)) << "one copy is none that follows another";
  EXPECT_EQ(FakeSession::counts().total_launches, launches);
  ASSERT_TRUE(test.is_asked_soon());
  for (const std::size_t bytes : {1U, 5U, 4096U, 5000U, 32768U}) {
    EXPECT_TRUE(await([&] { return test.has_copied(bytes % 5, bytes); })) << bytes;
  }
  EXPECT_TRUE(ReadbackTest::is_gone());
  EXPECT_FALSE(test.has_copied(0, 4096));
  EXPECT_TRUE(test.is_asked_soon()) << "and comes back";
}

ISOLATED_TEST(ReadbackCuda, RequiredItIsStartedAndWaitedFor) {
  ReadbackTest test;
  test.open();
  std::vector<unsigned char> got(1000);
  for (unsigned round = 0; round < 5; ++round) {
    std::fill(got.begin(), got.end(), 0);
    const Result<void> copied = test.readback->copy(test.memory + 3, got.data(), got.size());
    ASSERT_TRUE(copied) << copied.message();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), test.content.begin() + 3));
    if (round == 2) {
      EXPECT_TRUE(ReadbackTest::is_gone());
    }
  }
}

// A kernel that reads memory which is not its context's ends the context.
ISOLATED_TEST(ReadbackCuda, ReadsMemoryOfItsContextOnly) {
  ReadbackTest test(2);
  test.open();
  ASSERT_TRUE(test.is_asked_soon());
  std::vector<unsigned char> got(ReadbackTest::kBytes);
  const auto refused = [&](CUdeviceptr address, std::size_t bytes) {
    EXPECT_FALSE(test.readback->try_copy(address, got.data(), bytes));
    return test.readback->copy(address, got.data(), bytes).status();
  };
  EXPECT_EQ(refused(test.memory, 0), Status::not_supported);
  EXPECT_EQ(refused(test.memory, kMaxReadbackBytes + 1), Status::not_supported);
  EXPECT_EQ(refused(test.memory + ReadbackTest::kBytes - 1, 2), Status::not_supported) << "beyond its end";
  const CUdeviceptr exportable = FakeSession::allocate_vmm(0, std::size_t{2} << 20, true);
  EXPECT_EQ(refused(exportable, 64), Status::not_supported);
  FakeSession::free_vmm(exportable, std::size_t{2} << 20);
  const CUdeviceptr freed = FakeSession::allocate(std::size_t{4} << 20);
  FakeSession::free(freed);
  EXPECT_EQ(refused(freed, 64), Status::not_supported);
  EXPECT_EQ(refused(reinterpret_cast<CUdeviceptr>(got.data()), 64), Status::not_supported);
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(CUDA(cuCtxPushCurrent)(other), CUDA_SUCCESS);
  const CUdeviceptr far = FakeSession::allocate(4096);
  EXPECT_EQ(refused(far, 64), Status::not_supported);
  FakeSession::free(far);
  CUDA(cuCtxPopCurrent)(nullptr);
}

ISOLATED_TEST(ReadbackCuda, AFullGpuHoldsNoCopyUp) {
  ReadbackTest test;
  test.open();
  EXPECT_TRUE(ReadbackTest::is_gone());
  std::atomic_ref(test.session.machine().is_full).store(true);
  const auto launches = FakeSession::counts().total_launches;
  for (unsigned i = 0; i < 1000; ++i) ASSERT_FALSE(test.has_copied(0, 64));
  EXPECT_LE(FakeSession::counts().total_launches, launches + 1) << "one waits for room";
  std::vector<unsigned char> got(64);
  EXPECT_EQ(test.readback->copy(test.memory, got.data(), 64).status(), Status::timed_out);
  std::atomic_ref(test.session.machine().is_full).store(false);
  EXPECT_TRUE(test.is_asked_soon());
}

ISOLATED_TEST(ReadbackCuda, IsNotUsedWhereLaunchesWait) {
  ReadbackTest test;
  test.session.machine().waits_for_kernels = true;
  const auto refused = Readback::open(0, "an image");
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_NE(refused.error().message().find("CUDA_LAUNCH_BLOCKING"), std::string::npos) << refused.error().message();
}

ISOLATED_TEST(ReadbackCuda, IsNotUsedWhenItDeliversOtherBytes) {
  ReadbackTest test;
  test.session.machine().is_kernel_wrong = true;
  EXPECT_EQ(test.status_of_open(), Status::verification_failed);
}

ISOLATED_TEST(ReadbackCuda, IsUnavailableWithoutCodeOrFunctions) {
  ReadbackTest test;
  EXPECT_EQ(Readback::open(0, nullptr).status(), Status::unavailable);
  EXPECT_EQ(Readback::open(7, "an image").status(), Status::invalid_argument);
}

ISOLATED_TEST(ReadbackCuda, FailuresOfOpenLeaveNothing) {
  ReadbackTest test;
  test.open();
  test.readback.reset();
  trim_mapping_cache(0);
  const fake::Counts before = FakeSession::counts();
  EXPECT_EQ(before.modules, 0U);
  for (const char* function :
       {"cuModuleLoadData", "cuModuleGetFunction", "cuStreamCreate", "cuLaunchKernel", "cuMemAlloc", "cuMemHostRegister"}) {
    for (std::uint32_t skip = 0; skip < 2; ++skip) {
      const fake::Fault& fault = test.session.plant(fake::Call::cuda, function, CUDA_ERROR_OUT_OF_MEMORY, 1, skip);
      const Status status = test.status_of_open();
      EXPECT_TRUE(fault.hits == 0 || status != Status::ok) << function;
      test.session.remove_faults();
      const fake::Counts after = FakeSession::counts();
      EXPECT_EQ(after.modules, before.modules) << function << " " << skip;
      EXPECT_EQ(after.streams, before.streams) << function << " " << skip;
      EXPECT_EQ(after.host_registrations, before.host_registrations) << function << " " << skip;
      EXPECT_EQ(after.device_allocations, before.device_allocations) << function << " " << skip;
    }
  }
}

ISOLATED_TEST(ReadbackCuda, ACaptureThatForbidsALaunchPassesAnotherErrorDoesNot) {
  ReadbackTest test;
  test.open();
  EXPECT_TRUE(ReadbackTest::is_gone());
  const fake::Fault& capture =
      test.session.plant(fake::Call::cuda, "cuLaunchKernel", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, fake::kForEver);
  EXPECT_TRUE(await([&] { return !test.has_copied(0, 64) && capture.hits != 0; }));
  test.session.remove_faults();
  EXPECT_TRUE(test.is_asked_soon());
  EXPECT_TRUE(ReadbackTest::is_gone());
  const fake::Fault& lost = test.session.plant(fake::Call::cuda, "cuLaunchKernel", CUDA_ERROR_ILLEGAL_ADDRESS, fake::kForEver);
  EXPECT_TRUE(await([&] { return !test.has_copied(0, 64) && lost.hits != 0; }));
  const auto hits = lost.hits;
  for (unsigned i = 0; i < 100; ++i) EXPECT_FALSE(test.has_copied(0, 64));
  EXPECT_EQ(lost.hits, hits) << "not tried again";
  std::vector<unsigned char> got(64);
  EXPECT_EQ(test.readback->copy(test.memory, got.data(), 64).status(), Status::device_error);
  EXPECT_EQ(test::take_log().size(), 1U);
  test.session.remove_faults();
}

// The kernel began and gives no answer: the driver tells that the context is lost.
ISOLATED_TEST(ReadbackCuda, ALostContextEndsTheWait) {
  ReadbackTest test;
  test.open();
  EXPECT_TRUE(ReadbackTest::is_gone());
  const fake::Fault& lost = test.session.plant(fake::Call::cuda, "cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS, fake::kForEver);
  const std::atomic_ref is_stuck(test.session.machine().is_kernel_stuck);
  // On a busy machine the time of a kernel may be over before it is asked, which is no loss: then the next one is.
  EXPECT_TRUE(await([&] {
    is_stuck.store(true);
    const Deadline soon = Deadline::after_ns(20'000'000);
    while (lost.hits == 0 && !soon.has_passed()) EXPECT_FALSE(test.has_copied(0, 64));
    if (lost.hits != 0) return true;
    is_stuck.store(false);
    EXPECT_TRUE(ReadbackTest::is_gone());
    return false;
  }));
  std::vector<unsigned char> got(64);
  EXPECT_EQ(test.readback->copy(test.memory, got.data(), 64).status(), Status::device_error);
  EXPECT_EQ(test::take_log().size(), 1U);
  test.session.remove_faults();
  is_stuck.store(false);
  EXPECT_TRUE(ReadbackTest::is_gone());
}

ISOLATED_TEST(ReadbackCuda, AForkedChildDoesNotUseIt) {
  ReadbackTest test;
  test.open();
  ASSERT_TRUE(test.is_asked_soon());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned char got[64];
    const bool is_refused = !test.readback->try_copy(test.memory, got, sizeof got) &&
                            test.readback->copy(test.memory, got, sizeof got).status() == Status::not_supported;
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

ISOLATED_TEST(ReadbackCuda, ThreadsThatMeetAtItUseOtherMethods) {
  ReadbackTest test;
  test.open();
  std::atomic<unsigned> copied = 0;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned i = 0; i < 500; ++i) copied += test.has_copied(i % 64, 1000 + thread) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(test.is_asked_soon());
}

// copy() asks it only when it may, and falls back to what it would use otherwise.
ISOLATED_TEST(ReadbackCuda, CopyUsesItWhenItIsToldTo) {
  ReadbackTest test;
  {
    const Mapping mapping = test::must_map(test.memory, ReadbackTest::kBytes);
    std::vector<unsigned char> got(8192);
    const auto method = [&](std::size_t bytes) {
      const auto used = copy(got.data(), MappedPlace{mapping, 0}, bytes);
      EXPECT_TRUE(used) << used.error().message();
      EXPECT_TRUE(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(bytes), test.content.begin()));
      return used.value();
    };
    EXPECT_EQ(copy(MappedPlace{mapping, 0}, got.data(), 64, CopyMethod::readback).status(), Status::not_supported);
    for (unsigned i = 0; i < 100; ++i) EXPECT_EQ(method(8192), CopyMethod::copy_engine) << "nobody asked for it";
    EXPECT_FALSE(has_copied_by_readback(got.data(), mapping, 0, 8192));
    const Result<void> used = use_readback_kernel(0);
    if (readback_kernel_image() == nullptr) {
      EXPECT_EQ(used.status(), Status::unavailable);
    } else {
      ASSERT_TRUE(used) << used.message();
      const auto launches = FakeSession::counts().total_launches;
      EXPECT_TRUE(await([&] { return method(8192) == CopyMethod::readback || FakeSession::counts().total_launches > launches; }));
      EXPECT_EQ(method(8), CopyMethod::cpu);
      // A kernel that has no processor for a second is said to be late: one of the calls finds it there.
      EXPECT_TRUE(await([&] {
        const auto copied = copy(got.data(), {mapping, 0}, 100, CopyMethod::readback);
        EXPECT_TRUE(copied || copied.status() != Status::not_supported) << copied.error().message();
        return copied && *copied == CopyMethod::readback;
      }));
      ASSERT_TRUE(use_readback_kernel(0, false));
      EXPECT_EQ(method(8192), CopyMethod::copy_engine);
      test.session.expect_kept_mapping();  // it is opened once and for all
    }
    EXPECT_EQ(use_readback_kernel(1).status(), Status::invalid_argument);
    EXPECT_EQ(use_readback_kernel(-1).status(), Status::invalid_argument);
  }
}

}  // namespace
}  // namespace gigabar
