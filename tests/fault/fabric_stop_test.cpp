// SPDX-License-Identifier: Apache-2.0
// Ranks that stand still, never come, or hold another key: every wait ends in its time, and what can go on goes on.
#include <sys/uio.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"
#include "transport/transport.hpp"

namespace gigabar::test {
namespace {

constexpr Rank kStopped = 1;
constexpr Rank kOther = 2;
const Timeout kShort = Timeout::of(std::chrono::milliseconds(300));
constexpr std::int64_t kSlackNs = 5'000'000'000;  // a wait of 300 ms on a loaded machine

// Ends in its time, not as the peer's loss.
void expect_in_time(const char* what, const std::function<Result<void>()>& call, bool may_succeed) {
  const std::int64_t begin_ns = now_ns();
  const Result<void> outcome = call();
  EXPECT_LT(now_ns() - begin_ns, kSlackNs) << what;
  EXPECT_TRUE(outcome.status() == Status::timed_out || (may_succeed && outcome.is_ok())) << what << ": " << outcome.message();
}
template <class T>
Result<void> outcome_of(const Result<T>& result) {
  return result ? Result<void>() : Result<void>(Error(result.error()));
}

// While rank 1 stands still. Memory that is mapped can be written without it.
void wait_in_vain(Fabric& fabric, Operation receive) {
  expect_in_time("wait_message", [&] { return outcome_of(fabric.wait_message(receive, kShort)); }, false);
  expect_in_time("fetch_add", [&] { return outcome_of(fabric.fetch_add({kStopped, kTarget, 64}, 1, kShort)); }, false);
  expect_in_time("flush", [&] { return fabric.flush(kStopped, kShort); }, true);
  expect_in_time("wait", [&] { return fabric.wait(0, kShort); }, true);
  expect_in_time("barrier", [&] { return fabric.barrier({}, kShort); }, false);
  expect_in_time("notification_wait", [&] { return outcome_of(fabric.notification_wait(kTarget, 1, 1, kShort)); }, false);
  EXPECT_TRUE(is_ok(fabric.send(kOther, 9, nullptr, 0, kPatience))) << "another rank";
  EXPECT_TRUE(is_ok(fabric.barrier({0, kOther}, kPatience))) << "another rank";
}

RANK_BODY(stand_still_and_go_on) {
  constexpr std::size_t kBytes = 100000;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kBytes), target(fabric, kTarget, me.setup().target, kBytes);
  origin.put_pattern(0, kBytes, me.rank(), 0);
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  if (me.rank() == kStopped) {
    me.tell("up");
    EXPECT_EQ(me.hear(), "go on");
    EXPECT_TRUE(is_ok(fabric.send(0, 7, nullptr, 0, kPatience)));
    EXPECT_TRUE(is_ok(fabric.notification_wait(kTarget, 3, 1, kPatience)));
    EXPECT_TRUE(target.holds_pattern(0, 64, 0, 0)) << "before it was stopped";
    EXPECT_TRUE(target.holds_pattern(1000, 50000, 0, 1000)) << "while it was stopped";
  } else if (me.rank() == kOther) {
    EXPECT_TRUE(is_ok(fabric.recv(0, 9, nullptr, 0, Timeout::of(std::chrono::seconds(40)))));
    EXPECT_TRUE(is_ok(fabric.barrier({0, kOther}, kPatience)));
  } else {
    EXPECT_TRUE(is_ok(fabric.write({kOrigin, 0}, {kStopped, kTarget, 0}, 64)));
    EXPECT_TRUE(is_ok(fabric.flush(kStopped, kPatience)));
    const auto receive = fabric.post_recv(kStopped, 7, ~Tag{0}, nullptr, 0);
    ASSERT_TRUE(is_ok(receive));
    me.tell("ready");
    ASSERT_EQ(me.hear(), "stopped");
    EXPECT_TRUE(is_ok(fabric.write_notify({kOrigin, 1000}, {kStopped, kTarget, 1000}, 50000, 3, 1)));
    wait_in_vain(fabric, *receive);
    me.tell("waited");
    EXPECT_TRUE(is_ok(fabric.wait_message(*receive, kPatience))) << "after it went on";
    const auto before = fabric.fetch_add({kStopped, kTarget, 64}, 1, kPatience);
    const auto after = fabric.fetch_add({kStopped, kTarget, 64}, 0, kPatience);
    ASSERT_TRUE(is_ok(before) && is_ok(after));
    EXPECT_EQ(*after, *before + 1) << "the one that timed out, and no other";
    EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
    EXPECT_TRUE(is_ok(fabric.flush(kStopped, kPatience)));
  }
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "where it timed out";
  ASSERT_TRUE(me.meet());
}

class FabricStop : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricStop, TimesOutAndGoesOn) {
  RankJob job("stand_still_and_go_on", GetParam());
  job.start_all();
  ASSERT_TRUE(job.hear(kStopped, "up"));
  ASSERT_TRUE(job.hear(0, "ready"));
  job.send_signal(kStopped, SIGSTOP);
  job.tell(0, "stopped");
  const bool has_waited = job.hear(0, "waited");
  job.send_signal(kStopped, SIGCONT);
  job.tell(kStopped, "go on");
  if (has_waited) job.finish();
}
std::vector<RankSetup> stop_setups() {
  std::vector<RankSetup> all = memory_setups(3);
  std::erase_if(all, [](const RankSetup& setup) { return setup.origin != setup.target; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricStop, testing::ValuesIn(stop_setups()), setup_name);

// --- A target that takes no part -------------------------------------------------------------------------------------------------

constexpr std::size_t kStoppedBytes = 200'000;

// The writer stores few bytes into memory that it maps, of a GPU or of a stand-in for one; else a message has them, for which
// somebody must be there.
bool takes_few_bytes(const RankSetup& setup) {
  return setup.transport == TransportKind::local && setup.target == MemoryChoice::stand_in;
}

// Rank 1 tells where its memory is, and stands still while rank 0 writes.
RANK_BODY(be_written_while_stopped) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kStoppedBytes), target(fabric, kTarget, me.setup().target, kStoppedBytes);
  origin.put_pattern(0, kStoppedBytes, me.rank(), 0);
  if (me.rank() == kStopped) me.tell(std::to_string(reinterpret_cast<std::uintptr_t>(target.address())));
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  if (me.rank() == kStopped) {
    ASSERT_EQ(me.hear(), "go on");
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 3, 1, kPatience)));
    const auto value = fabric.notification_reset(kTarget, 3);
    ASSERT_TRUE(is_ok(value));
    EXPECT_EQ(*value, 77U);
    EXPECT_TRUE(target.holds_pattern(0, kStoppedBytes, 0, 0));
  } else {
    ASSERT_TRUE(is_ok(fabric.remote_segment(kStopped, kTarget, kPatience)));
    me.tell("ready");
    ASSERT_EQ(me.hear(), "stopped");
    const auto write = [&](std::size_t bytes, NotificationId id) {
      const auto posted = fabric.write_notify({kOrigin, 0}, {kStopped, kTarget, 0}, bytes, id, 77);
      ASSERT_TRUE(is_ok(posted));
      ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
      const auto report = fabric.report(*posted);
      ASSERT_TRUE(is_ok(report));
      EXPECT_EQ(report->notification.find("a word behind the data"), 0U) << report->notification;
    };
    if (takes_few_bytes(me.setup())) {
      ASSERT_NO_FATAL_FAILURE(write(64, 4));  // with the engine's lock
      ASSERT_NO_FATAL_FAILURE(write(64, 5));  // with its queue's
    }
    ASSERT_NO_FATAL_FAILURE(write(kStoppedBytes, 3));
    me.tell("written");
  }
  ASSERT_TRUE(me.meet());
}

// From here, while the process stands still.
std::vector<unsigned char> memory_of(pid_t process, std::uintptr_t address, std::size_t bytes) {
  std::vector<unsigned char> taken(bytes);
  const iovec here{taken.data(), bytes}, there{reinterpret_cast<void*>(address), bytes};
  EXPECT_EQ(::process_vm_readv(process, &here, 1, &there, 1, 0), static_cast<ssize_t>(bytes)) << std::strerror(errno);
  return taken;
}

// Whether one of the process's segments has notification `id` at `value`.
bool has_notification(pid_t process, NotificationId id, std::uint32_t value) {
  std::ifstream mappings("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(mappings, line);) {
    if (line.find("gigabar-notifications") == std::string::npos) continue;
    const auto end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    // Neighbours may be one mapping.
    for (auto words = std::stoull(line, nullptr, 16); words < end; words += transport::bytes_of_words(kNotifications)) {
      std::uint32_t there = 0;
      std::memcpy(&there, memory_of(process, words + transport::word_value_at(id), sizeof there).data(), sizeof there);
      if (there == value) return true;
    }
  }
  return false;
}
bool gets_notification(pid_t process, NotificationId id, std::uint32_t value) {
  const Deadline deadline = Deadline::after_ns(10'000'000'000);
  while (!has_notification(process, id, value)) {
    if (deadline.has_passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

class FabricStoppedTarget : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricStoppedTarget, HasDataAndNotificationBeforeItGoesOn) {
  RankJob job("be_written_while_stopped", GetParam());
  job.start_all();
  ASSERT_TRUE(job.hear(0, "ready"));
  const auto address = job.word_of(kStopped);
  ASSERT_TRUE(address) << "it told before rank 0 did";
  job.send_signal(kStopped, SIGSTOP);
  EXPECT_FALSE(has_notification(job.process(kStopped), 3, 77));
  job.tell(0, "stopped");
  if (job.hear(0, "written")) {
    EXPECT_TRUE(gets_notification(job.process(kStopped), 3, 77));
    if (takes_few_bytes(GetParam())) {
      EXPECT_TRUE(gets_notification(job.process(kStopped), 4, 77));
      EXPECT_TRUE(gets_notification(job.process(kStopped), 5, 77));
    }
    EXPECT_TRUE(is_pattern(memory_of(job.process(kStopped), std::stoull(*address), kStoppedBytes).data(), kStoppedBytes, 0, 0));
  }
  job.send_signal(kStopped, SIGCONT);
  job.tell(kStopped, "go on");
  job.finish();
}
std::vector<RankSetup> stopped_setups() {
  std::vector<RankSetup> all = memory_setups(2);
  std::erase_if(all, [](const RankSetup& setup) {
    return setup.origin != setup.target || is_by_sockets(setup.transport) || setup.target == MemoryChoice::device;
  });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricStoppedTarget, testing::ValuesIn(stopped_setups()), setup_name);

// --- Ranks that never come ------------------------------------------------------------------------------------------------------

// The job has two ranks; only rank 0 is started.
BARE_RANK_BODY(wait_for_nobody) {
  FabricOptions options = me.options();
  // Longer than the first calls take on a slow machine: behind it the rank is lost.
  options.connect_timeout = Timeout::of(std::chrono::seconds(4));
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric)) << "opening waits for no other rank";
  RankSegment origin(*fabric, kOrigin, MemoryChoice::host, 64);
  expect_in_time("connect", [&] { return fabric->connect(1, kShort); }, false);
  expect_in_time("barrier", [&] { return fabric->barrier({}, kShort); }, false);
  expect_in_time("recv", [&] { return outcome_of(fabric->recv(1, 1, nullptr, 0, kShort)); }, false);
  expect_in_time("remote_segment", [&] { return outcome_of(fabric->remote_segment(1, kTarget, kShort)); }, false);
  const std::int64_t begin_ns = now_ns();
  const auto posted = fabric->write({kOrigin, 0}, {1, kTarget, 0}, 64);
  const Result<void> lost = posted ? fabric->wait(0, kPatience) : Result<void>(Error(posted.error()));
  EXPECT_TRUE(lost.status() == Status::timed_out || lost.status() == Status::peer_lost) << lost.message();
  EXPECT_NE(lost.message().find('1'), std::string::npos) << lost.message();
  EXPECT_LT(now_ns() - begin_ns, 15'000'000'000) << "its connection was to be made within four seconds";
}

// Only rank 1 is started: there is no directory.
BARE_RANK_BODY(wait_for_the_directory) {
  FabricOptions options = me.options();
  options.connect_timeout = Timeout::of(std::chrono::milliseconds(500));
  const std::int64_t begin_ns = now_ns();
  const auto fabric = Fabric::open(options);
  EXPECT_TRUE(fails(fabric, Status::timed_out));
  EXPECT_LT(now_ns() - begin_ns, kSlackNs);
}

class FabricNever : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricNever, ComesAPeer) {
  RankJob job("wait_for_nobody", GetParam());
  job.start(0);
  job.finish();
}
TEST_P(FabricNever, ComesTheDirectory) {
  RankJob job("wait_for_the_directory", GetParam());
  job.start(1);
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricNever, testing::ValuesIn(each_transport(2)), setup_name);

// --- Another key ----------------------------------------------------------------------------------------------------------------

BARE_RANK_BODY(come_with_another_key) {
  FabricOptions options = me.options();
  options.connect_timeout = Timeout::of(std::chrono::seconds(10));
  const auto fabric = Fabric::open(options);
  EXPECT_TRUE(fails(fabric, Status::no_permission)) << "the directory keeps to itself";
}
RANK_BODY(count_strangers) {
  EXPECT_TRUE(is_ok(fabric.barrier({0, 1}, kPatience))) << "those with the key";
  ASSERT_EQ(me.hear(), "refused");
  EXPECT_TRUE(is_ok(fabric.barrier({0, 1}, kPatience)));
  if (me.rank() == 0) {
    EXPECT_GE(fabric.statistics().refused_strangers, 1U);
  }
}

class FabricKey : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricKey, AnotherOneIsRefused) {
  RankJob job("count_strangers", GetParam());
  job.set_body(2, "come_with_another_key");
  job.set_environment(2, "GIGABAR_JOB_KEY", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  job.excuse(2);
  job.start_all();
  job.wait_end(2);
  for (const Rank rank : {0U, 1U}) job.tell(rank, "refused");
  job.finish();
}
TEST_P(FabricKey, NoneIsRefused) {
  RankJob job("count_strangers", GetParam());
  job.set_body(2, "come_with_another_key");
  job.set_environment(2, "GIGABAR_JOB_KEY", nullptr);
  job.excuse(2);
  job.start_all();
  job.wait_end(2);
  for (const Rank rank : {0U, 1U}) job.tell(rank, "refused");
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricKey, testing::ValuesIn(each_transport(3)), setup_name);

}  // namespace
}  // namespace gigabar::test
