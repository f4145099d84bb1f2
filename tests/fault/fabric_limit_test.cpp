// SPDX-License-Identifier: Apache-2.0
// Processes with little: no descriptor left, 64 KiB of locked memory. What does not work says so, and works when there is room.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "conformance/rank_segment.hpp"
#include "support/expect_log.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar::test {
namespace {

void limit_locked_memory(rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  limit.rlim_cur = bytes;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

// Locks nothing beyond the limit, as an ordinary user. Source: capabilities(7), CAP_IPC_LOCK.
void become_unprivileged_locker(rlim_t bytes) {
  ASSERT_NO_FATAL_FAILURE(limit_locked_memory(bytes));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  ASSERT_EQ(::syscall(SYS_capget, &header, data.data()), 0);
  for (auto* set : {&data[0].effective, &data[0].permitted, &data[0].inheritable}) *set &= ~(1U << CAP_IPC_LOCK);
  ASSERT_EQ(::syscall(SYS_capset, &header, data.data()), 0);
}

void exchange(RankProcess& me, Fabric& fabric, MemoryChoice choice, std::size_t bytes) {
  RankSegment origin(fabric, kOrigin, choice, bytes), target(fabric, kTarget, choice, bytes);
  const Rank other = (me.rank() + 1) % me.rank_count();
  origin.put_pattern(0, bytes, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {other, kTarget, 0}, bytes)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(other, kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(0, bytes, other, 0));
  ASSERT_TRUE(me.meet());
}

BARE_RANK_BODY(work_with_little_locked_memory) {
  ASSERT_NO_FATAL_FAILURE(become_unprivileged_locker(65536));
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  ASSERT_NO_FATAL_FAILURE(exchange(me, *fabric, me.setup().origin, std::size_t{4} << 20));
  static_cast<void>(take_log());  // that memory could not be locked may be told
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// NICs reach only what is pinned: the connection fails, says which limit it was, and stands when there is room.
BARE_RANK_BODY(need_locked_memory) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  ASSERT_GE(before.rlim_max, rlim_t{64} << 20) << "the test needs room to go on with";
  ASSERT_NO_FATAL_FAILURE(become_unprivileged_locker(65536));
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  ASSERT_TRUE(me.meet());
  const Rank other = 1 - me.rank();
  if (me.rank() == 0) {
    EXPECT_TRUE(fails(fabric->connect(other, kPatience), Status::unavailable, "locked memory is 65536 bytes"));
  }
  ASSERT_TRUE(me.meet());
  ASSERT_NO_FATAL_FAILURE(limit_locked_memory(before.rlim_max));
  // This side may still be about to hear that the first attempt came to nothing.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Result<void> connected;
  do {
    connected = fabric->connect(other, Timeout::of(std::chrono::seconds(3)));
    if (!connected) static_cast<void>(fabric->forget(other));
  } while (!connected && std::chrono::steady_clock::now() < give_up);
  ASSERT_TRUE(is_ok(connected)) << "with room";
  ASSERT_TRUE(me.meet());
  static_cast<void>(take_log());  // the first attempt may be told
  ASSERT_NO_FATAL_FAILURE(exchange(me, *fabric, me.setup().origin, 65536)) << "with room";
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

class FabricLockedMemory : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLockedMemory, OfSixtyFourKiB) { run_ranks("work_with_little_locked_memory", GetParam()); }
std::vector<RankSetup> locked_setups() {
  std::vector<RankSetup> all = memory_setups();
  std::erase_if(all, [](const RankSetup& setup) {
    return setup.origin != setup.target || setup.transport == TransportKind::verbs;  // NICs pin what they reach
  });
  return all;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricLockedMemory);
INSTANTIATE_TEST_SUITE_P(Memory, FabricLockedMemory, testing::ValuesIn(locked_setups()), setup_name);

class FabricPinnedMemory : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricPinnedMemory, NamesTheLimit) { run_ranks("need_locked_memory", GetParam()); }
std::vector<RankSetup> pinned_setups() {
  std::vector<RankSetup> all = each_transport(2);
  std::erase_if(all, [](const RankSetup& setup) { return setup.transport != TransportKind::verbs; });
  return all;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricPinnedMemory);
INSTANTIATE_TEST_SUITE_P(Transports, FabricPinnedMemory, testing::ValuesIn(pinned_setups()), setup_name);

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS

bool is_about_room(Status status) { return status == Status::out_of_descriptors || status == Status::unavailable; }

// Opening, registering, connecting with no descriptor left; then with.
BARE_RANK_BODY(work_without_descriptors) {
  // A library that was not there once is not looked for again.
  if (me.setup().transport == TransportKind::verbs) {
    auto first = Fabric::open(me.options());
    ASSERT_TRUE(is_ok(first));
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(is_ok(first->close(kPatience)));
    ASSERT_TRUE(me.meet());
  }
  const auto none = without_descriptors([&] { return Fabric::open(me.options()); });
  EXPECT_FALSE(none.is_ok());
  if (!none) {
    EXPECT_TRUE(is_about_room(none.status())) << none.error().message();
    const std::string said = none.error().message();
    EXPECT_TRUE(said.find("EMFILE") != std::string::npos || said.find("Too many open files") != std::string::npos) << said;
  }
  const std::size_t before = open_descriptors();
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  RankMemory memory(me.setup().target, 65536);
  const Result<void> registered =
      without_descriptors([&] { return fabric->register_segment(9, memory.address(), memory.bytes()); });
  EXPECT_TRUE(registered.is_ok() || is_about_room(registered.status())) << registered.message();
  if (registered) {
    EXPECT_TRUE(is_ok(fabric->deregister_segment(9, kPatience)));
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    const Result<void> connected = without_descriptors([&] { return fabric->connect(1, Timeout::of(std::chrono::seconds(3))); });
    EXPECT_TRUE(connected.is_ok() || connected.status() == Status::timed_out || is_about_room(connected.status()))
        << connected.message();
    if (connected.status() == Status::peer_lost) static_cast<void>(fabric->forget(1));
  }
  ASSERT_TRUE(me.meet());
  static_cast<void>(take_log());  // that there were none may be told
  ASSERT_NO_FATAL_FAILURE(exchange(me, *fabric, me.setup().origin, 65536)) << "with descriptors again";
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
  fabric = Error(ErrorRecord{});
  EXPECT_LE(open_descriptors(), before + 4) << "device files may stay open";
}

// The accepting side has none: the peer is told or tries on, and both work when there is room.
RANK_BODY(accept_without_descriptors) {
  ASSERT_TRUE(me.meet());  // both are in the job
  if (me.rank() == 0) {
    without_descriptors([&] {
      EXPECT_TRUE(me.meet());
      EXPECT_TRUE(me.meet());
      return 0;
    });
  } else {
    ASSERT_TRUE(me.meet());
    const Result<void> connected = fabric.connect(0, Timeout::of(std::chrono::seconds(2)));
    EXPECT_TRUE(connected.is_ok() || connected.status() == Status::timed_out || connected.status() == Status::peer_lost ||
                is_about_room(connected.status()))
        << connected.message();
    static_cast<void>(fabric.forget(0));
    ASSERT_TRUE(me.meet());
  }
  static_cast<void>(take_log());
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Result<void> met;
  do {
    met = fabric.barrier({}, Timeout::of(std::chrono::seconds(5)));
    if (met.status() == Status::peer_lost) static_cast<void>(fabric.forget(1 - me.rank()));
  } while (!met && std::chrono::steady_clock::now() < give_up);
  EXPECT_TRUE(is_ok(met));
}

// A rank without descriptors takes keys that bring some: it keeps the peer, and reaches its memory in other ways.
RANK_BODY(learn_keys_without_descriptors) {
  constexpr std::size_t kBytes = 65536;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kBytes), target(fabric, kTarget, me.setup().target, kBytes);
  origin.put_pattern(0, kBytes, me.rank(), 0);
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  if (me.rank() == 0) {
    const auto posted = without_descriptors([&] {
      EXPECT_TRUE(is_ok(fabric.write({kOrigin, 0}, {1, kTarget, 0}, kBytes)));
      auto notified = fabric.notify(1, kTarget, 3, 1);
      EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
      EXPECT_TRUE(is_ok(fabric.flush(1, kPatience)));
      return notified;
    });
    ASSERT_TRUE(is_ok(posted));
    const auto report = fabric.report(*posted);
    ASSERT_TRUE(is_ok(report));
    EXPECT_EQ(report->notification.find("in a message: this process had no room for its descriptor"), 0U) << report->notification;
  } else {
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 3, 1, kPatience)));
    EXPECT_TRUE(target.holds_pattern(0, kBytes, 0, 0));
  }
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "the peer is kept";
}

class FabricDescriptors : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDescriptors, NoneAreLeft) { run_ranks("work_without_descriptors", GetParam()); }
TEST(FabricKeys, AreLearnedWithoutDescriptors) { run_ranks("learn_keys_without_descriptors", RankSetup{}); }
TEST_P(FabricDescriptors, NoneAreLeftToAccept) { run_ranks("accept_without_descriptors", GetParam()); }
std::vector<RankSetup> descriptor_setups() {
  std::vector<RankSetup> all = memory_setups();
  // Without a descriptor libucp.so.0 cannot be opened, and a library that was not there once is not looked for again.
  std::erase_if(all, [](const RankSetup& setup) { return setup.origin != setup.target || setup.transport == TransportKind::ucx; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricDescriptors, testing::ValuesIn(descriptor_setups()), setup_name);

#endif

}  // namespace
}  // namespace gigabar::test
