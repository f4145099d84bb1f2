// SPDX-License-Identifier: Apache-2.0
// A thread is cancelled inside the library: the call does what it was called for, the thread ends at its next cancellation point
// behind it, and neither the process nor what the thread worked with comes to harm. A callback that ends its thread ends the call.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gigabar/copy.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/streams.hpp"
#include "gigabar/topology.hpp"
#include "support/cancellable.hpp"
#include "support/descriptors.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/own_threads.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

using test::Cancellable;
using test::ScopedEnvironment;

constexpr std::chrono::seconds kPatience{20};

// Rank 0 of two; the other one never comes.
FabricOptions of_a_lone_rank() {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 2;
  options.master_address = "127.0.0.1";
  options.master_port = test::free_port();
  return options;
}

// The control: what waits outside of the library ends there.
TEST(Cancellation, EndsAThreadThatWaitsByItself) {
  std::atomic<bool> is_done = false;
  pthread_t thread{};
  const auto wait = [](void* done) -> void* {
    ::pthread_cancel(::pthread_self());
    ::pthread_testcancel();
    *static_cast<std::atomic<bool>*>(done) = true;
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, nullptr, wait, &is_done), 0);
  void* answer = nullptr;
  ASSERT_EQ(::pthread_join(thread, &answer), 0);
  EXPECT_EQ(answer, PTHREAD_CANCELED);
  EXPECT_FALSE(is_done);
}

// The other rank never comes. What sleeps in the kernel is not woken, so that the time goes by.
ISOLATED_TEST(Cancellation, OfAThreadInABarrier) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  auto fabric = Fabric::open(of_a_lone_rank());
  ASSERT_TRUE(fabric) << fabric.message();
  std::atomic<bool> has_begun = false;
  std::optional<Status> status;
  const Cancellable thread([&] {
    has_begun = true;
    status = fabric->barrier({}, std::chrono::seconds(1)).status();
  });
  while (!has_begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  thread.cancel();
  thread.expect_cancelled_behind_it();
  EXPECT_EQ(status, Status::timed_out);
  // No lock is held and nothing is half done.
  std::vector<char> memory(8192, 'a');
  ASSERT_TRUE(fabric->register_segment(1, memory.data(), memory.size()));
  ASSERT_TRUE(fabric->write({1, 0}, {0, 1, 4096}, 64));
  EXPECT_TRUE(fabric->wait(0, kPatience));
  EXPECT_TRUE(fabric->deregister_segment(1, kPatience));
  EXPECT_TRUE(fabric->close(kPatience));
}

// Another thread is at the queue until it has given up a rank that never comes.
ISOLATED_TEST(Cancellation, OfAThreadThatWaitsForAQueue) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  FabricOptions options = of_a_lone_rank();
  options.connect_timeout = std::chrono::seconds(2);
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(fabric) << fabric.message();
  std::vector<char> memory(8192, 'a');
  ASSERT_TRUE(fabric->register_segment(1, memory.data(), memory.size()));
  std::thread other([&] { EXPECT_EQ(fabric->write({1, 0}, {1, 1, 0}, 8).status(), Status::peer_lost); });
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (fabric->wait(0, Timeout::test()) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  std::optional<Status> status;
  const Cancellable thread([&] {
    ::pthread_cancel(::pthread_self());
    status = fabric->wait(0, std::chrono::milliseconds(50)).status();
  });
  thread.expect_cancelled_behind_it();
  EXPECT_EQ(status, Status::timed_out);
  other.join();
  ASSERT_TRUE(fabric->write({1, 0}, {0, 1, 4096}, 64));
  EXPECT_TRUE(fabric->wait(0, kPatience));
}

// Every call that may wait, read a file, log or close, and the destructors, on a thread that is cancelled already: whatever of it
// were a cancellation point would end it there.
void with_a_cancellation_pending(std::function<void()> body) {
  const Cancellable thread([&] {
    ::pthread_cancel(::pthread_self());
    body();
  });
  thread.expect_cancelled_behind_it();
}

ISOLATED_TEST(Cancellation, IsHeldBackByMemoryAndCopies) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  with_a_cancellation_pending([] {
    EXPECT_TRUE(devices());
    EXPECT_FALSE(drivers().empty());
    {
      const auto device = DeviceMemory::allocate(0, 1 << 20);
      const auto host = HostMemory::allocate(1 << 20);
      ASSERT_TRUE(device && host);
      EXPECT_TRUE(describe(device->address()));
      const auto mapping = map(device->address(), device->bytes());
      ASSERT_TRUE(mapping);
      EXPECT_TRUE(copy_to_parallel(*mapping, 0, host->address(), 1 << 20, 2));
      EXPECT_TRUE(copy({*mapping, 0}, host->address(), 4096));
      EXPECT_EQ(copy_to(*mapping, 1 << 20, host->address(), 1).status(), Status::out_of_range);
      EXPECT_EQ(publish(*mapping, 2, std::uint32_t{1}).status(), Status::invalid_argument);
      EXPECT_TRUE(mapping_backends(0));
    }
    trim_mapping_cache(0);
    EXPECT_FALSE(map(nullptr, 1));
    EXPECT_FALSE(Calibration::load("/nowhere/calibration.json"));
    EXPECT_EQ(calibration_in_use(0).is_measured, false);
  });
}

ISOLATED_TEST(Cancellation, IsHeldBackByFabricsAndSessions) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  with_a_cancellation_pending([] {
    FabricOptions options;
    options.rank = 0;
    options.rank_count = 1;
    std::vector<char> memory(8192, 'a');
    auto fabric = Fabric::open(options);
    ASSERT_TRUE(fabric);
    EXPECT_TRUE(fabric->register_segment(1, memory.data(), memory.size()));
    EXPECT_TRUE(fabric->write_notify({1, 0}, {0, 1, 4096}, 64, 3, 1));
    EXPECT_TRUE(fabric->wait(0, kPatience));
    EXPECT_TRUE(fabric->notification_wait(1, 3, 1, kPatience));
    const auto receive = fabric->post_recv(0, 5, ~Tag{0}, memory.data() + 4096, 64);
    ASSERT_TRUE(receive);
    EXPECT_TRUE(fabric->send(0, 5, memory.data(), 64, kPatience));
    EXPECT_TRUE(fabric->wait_message(*receive, kPatience));
    EXPECT_EQ(fabric->recv(0, 6, memory.data(), 64, std::chrono::milliseconds(5)).status(), Status::timed_out);
    EXPECT_TRUE(fabric->barrier({}, kPatience));
    DeviceSessionOptions wanted;
    wanted.segment_count = 2;
    wanted.notification_count = 16;
    {
      auto session = DeviceSession::open(*fabric, wanted);
      EXPECT_TRUE(session);
    }
    EXPECT_TRUE(fabric->deregister_segment(1, kPatience));
    EXPECT_TRUE(fabric->close(kPatience));
  });
}

ISOLATED_TEST(Cancellation, IsHeldBackByStreamsTopologyAndDoctor) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const test::TemporaryFolder folder;
  with_a_cancellation_pending([&] {
    const auto transfers = parse_transfers("gpu0->host cpu:2 bytes=64K iterations=2", {}, 1);
    ASSERT_TRUE(transfers);
    StreamPlan plan;
    plan.transfers = *transfers;
    plan.repeats = 1;
    EXPECT_TRUE(run_streams(plan));
    {
      const Machine machine = Machine::here();
      EXPECT_TRUE(discover_topology(machine));
      ExamineOptions options;
      options.only = {"iommu"};
      options.with_probes = false;
      EXPECT_TRUE(examine(machine, options));
      EXPECT_FALSE(availability(machine).empty());
      EXPECT_TRUE(machine.capture(folder.path() + "/a capture of this test"));
    }
    EXPECT_FALSE(Machine::open("/nowhere"));
    EXPECT_FALSE(diagnose("cannot register GPU memory: errno 14 (EFAULT)").lines.empty());
  });
}

// --- Callbacks that end their thread ---------------------------------------------------------------------------------------------

// `call` runs a callback that ends the thread: by pthread_exit(), then by a cancellation that the callback lets happen. It leaves
// neither threads nor descriptors behind.
void expect_callback_can_end_thread(const std::function<void(const std::function<void()>& callback)>& call) {
  static int with = 0;
  call([] {});  // opens what stays open
  const std::size_t descriptors = test::open_descriptors(), threads = test::own_threads().size();
  const auto expect_ended = [&](const std::function<void()>& callback, void* answer) {
    Cancellable([&] { call(callback); }).expect_ended_inside(answer);
    EXPECT_EQ(test::open_descriptors(), descriptors);
    EXPECT_EQ(test::own_threads().size(), threads);
  };
  expect_ended([] { ::pthread_exit(&with); }, &with);
  expect_ended(
      [] {
        ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
        ::pthread_cancel(::pthread_self());
        ::pthread_testcancel();
      },
      PTHREAD_CANCELED);
  call([] {});
}

ISOLATED_TEST(ThreadEnd, InTheProgressOfStreams) {
  const ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const auto transfers = parse_transfers("gpu0->host seconds=0.2; host->gpu1 cpu:2; gpu1->gpu0 background", {}, 2);
  ASSERT_TRUE(transfers) << transfers.message();
  StreamPlan plan;
  plan.transfers = *transfers;
  for (Transfer& transfer : plan.transfers) transfer.bytes = 65536;
  plan.repeats = 1;
  expect_callback_can_end_thread([&](const std::function<void()>& callback) {
    StreamOptions options;
    options.progress_interval_ms = 1;
    options.progress = [&](unsigned, std::span<const StreamProgress>) { callback(); };
    const auto report = run_streams(plan, options);
    EXPECT_TRUE(report) << report.message();
  });
}

ISOLATED_TEST(ThreadEnd, BeforeACheckOfTheDoctor) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const Machine machine = Machine::here();
  expect_callback_can_end_thread([&](const std::function<void()>& callback) {
    ExamineOptions options;
    options.only = {"iommu"};
    options.on_begin = [&](const CheckInfo&) { callback(); };
    const auto examination = examine(machine, options);
    EXPECT_TRUE(examination) << examination.message();
  });
}

}  // namespace
}  // namespace gigabar
