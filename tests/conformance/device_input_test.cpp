// SPDX-License-Identifier: Apache-2.0
// What kernels and programs may not ask of a session.
#include <array>
#include <string>

#include "conformance/device_kernels.hpp"

namespace gigabar::test {
namespace {

using device::CpuTeam;

RANK_BODY(refuse_on_the_device) {
  Kernels kernels(me, fabric, 4096);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  const Rank peer = next_of(me);
  run_block(2, [&](const CpuTeam::Member& lane) {
    const std::uint64_t most = ~std::uint64_t{0};
    for (const RemotePlace place : {RemotePlace{peer, kTarget, 4090}, RemotePlace{peer, kTarget, most},
                                    RemotePlace{peer, kNowhere, 0}, RemotePlace{peer, 999, 0}, RemotePlace{99, kTarget, 0}}) {
      EXPECT_EQ(write(lane, handle, {kOrigin, 0}, place, 8), Status::out_of_range);
      EXPECT_EQ(read(lane, handle, {kOrigin, 0}, place, 8), Status::out_of_range);
      EXPECT_EQ(write_notify(lane, handle, {kOrigin, 0}, place, 8, 1, 1), Status::out_of_range);
    }
    EXPECT_EQ(write(lane, handle, {kOrigin, 4096}, {peer, kTarget, 0}, 1), Status::out_of_range);
    EXPECT_EQ(write(lane, handle, {kOrigin, 8}, {peer, kTarget, 0}, most), Status::out_of_range);
    EXPECT_EQ(write(lane, handle, {kNowhere, 0}, {peer, kTarget, 0}, 1), Status::out_of_range);
    EXPECT_EQ(write_notify(lane, handle, {kOrigin, 0}, {peer, kTarget, 0}, 8, 1, 0), Status::invalid_argument);
    EXPECT_EQ(write_notify(lane, handle, {kOrigin, 0}, {peer, kTarget, 0}, 8, 1024, 1), Status::out_of_range);
    EXPECT_EQ(notify(lane, handle, peer, kTarget, 1024, 1), Status::out_of_range);
    EXPECT_EQ(notify(lane, handle, peer, kTarget, 1, 0), Status::invalid_argument);
    EXPECT_EQ(notify(lane, handle, peer, kNowhere, 1, 1), Status::out_of_range);
    EXPECT_EQ(notify(lane, handle, 99, kTarget, 1, 1), Status::out_of_range);
    std::uint64_t old = 0;
    EXPECT_EQ(atomic_fetch_add(lane, handle, {peer, kTarget, 4}, 1, kLong, old), Status::invalid_argument);
    EXPECT_EQ(atomic_fetch_add(lane, handle, {peer, kTarget, 4096}, 1, kLong, old), Status::out_of_range);
    EXPECT_EQ(compare_swap(lane, handle, {99, kTarget, 0}, 1, 1, kLong, old), Status::out_of_range);
    EXPECT_EQ(flush(lane, handle, 99, kLong), Status::out_of_range);
    NotificationId found = 0;
    std::uint32_t value = 0;
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 0, 1, kShort, found), Status::timed_out);
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 0, 1, device::Timeout{}, found), Status::timed_out);
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 0, 0, kLong, found), Status::out_of_range);
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 1000, 25, kLong, found), Status::out_of_range);
    EXPECT_EQ(notification_wait(lane, handle, kNowhere, 0, 1, kLong, found), Status::out_of_range);
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 0, 1, kLong, found, 99), Status::out_of_range);
    EXPECT_EQ(notification_reset(lane, handle, kTarget, 1024, value), Status::out_of_range);
    EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 0, 1, kShort, value), Status::timed_out);
    EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 0, 0, kLong, value), Status::invalid_argument);
    EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 1024, 1, kLong, value), Status::out_of_range);
    EXPECT_EQ(notification_wait_until(lane, handle, kNowhere, 0, 1, kLong, value), Status::out_of_range);
    EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 0, 1, kLong, value, 99), Status::out_of_range);
  });
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(kernels.target.is_untouched(0, 4096));
  EXPECT_TRUE(kernels.target.are_guards_whole());
  EXPECT_TRUE(refuses(kernels.session->reach(99, 0)));
  EXPECT_TRUE(refuses(kernels.session->reach(0, 999)));
  const auto known = kernels.session->reach(peer, kTarget);
  ASSERT_TRUE(is_ok(known));
  const bool is_by_queue = me.setup().word == kByQueues && me.rank_count() > 1;
  EXPECT_EQ(known->is_direct, !is_by_queue) << known->reason;
  EXPECT_EQ(known->has_queue, is_by_queue);
  EXPECT_EQ(known->reason.empty(), !is_by_queue);
  EXPECT_EQ(known->is_mapped, is_by_queue && me.setup().transport == TransportKind::local) << known->reason;
  const auto unknown = kernels.session->reach(peer, kNowhere);
  ASSERT_TRUE(is_ok(unknown));
  EXPECT_FALSE(unknown->is_direct);
  EXPECT_NE(unknown->reason, "");
  EXPECT_TRUE(fails(kernels.session->recover(99, kPatience), Status::out_of_range));
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

RANK_BODY(see_segments_of_the_session) {
  DeviceSessionOptions options = options_of(me);
  options.segments = {kOrigin};
  Kernels kernels(me, fabric, 4096, options);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  const Rank peer = next_of(me);
  run_block(2, [&](const CpuTeam::Member& lane) {
    EXPECT_EQ(write(lane, handle, {kOrigin, 0}, {peer, kTarget, 0}, 8), Status::out_of_range);
    EXPECT_EQ(write(lane, handle, {kTarget, 0}, {peer, kOrigin, 0}, 8), Status::out_of_range);
    EXPECT_EQ(notify(lane, handle, peer, kTarget, 0, 1), Status::out_of_range);
    EXPECT_EQ(notify(lane, handle, peer, kOrigin, 0, 1), Status::ok);
    NotificationId found = 0;
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 0, 1, kShort, found), Status::out_of_range);
    EXPECT_EQ(notification_wait(lane, handle, kOrigin, 0, 1, kLong, found), Status::ok);
  });
  EXPECT_TRUE(refuses(kernels.session->notify(peer, kTarget, 0, 1), "not opened for the segment"));
  const auto known = kernels.session->reach(peer, kTarget);
  ASSERT_TRUE(is_ok(known));
  EXPECT_FALSE(known->is_direct);
  EXPECT_TRUE(known->reason.starts_with("the session was not opened for it")) << known->reason;
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(kernels.target.is_untouched(0, 4096));
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

RANK_BODY(refuse_sessions) {
  const auto opens = [&](SegmentId segments, std::uint32_t notifications, SegmentId control) {
    DeviceSessionOptions options;
    options.segment_count = segments;
    options.notification_count = notifications;
    options.control_segment = control;
    options.timeout = kPatience;
    return DeviceSession::open(fabric, options);
  };
  EXPECT_TRUE(refuses(opens(0, 8, 1000), "segment_count 0"));
  EXPECT_TRUE(refuses(opens(16, 0, 1000), "notification_count 0"));
  EXPECT_TRUE(refuses(opens(16, 1 << 20, 1000), "notification_count"));
  EXPECT_TRUE(refuses(opens(16, 8, 3), "control_segment 3"));
  EXPECT_TRUE(refuses(opens(16, 8, kMaxSegments), "control_segment 1024"));
  DeviceSessionOptions options;
  options.queue_count = 17;
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "queue_count 17"));
  options.queue_count = 1;
  options.queue_depth = 100;
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "queue_depth 100"));
  options.queue_depth = 64;
  options.proxy_thread_count = 0;
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "proxy_thread_count 0"));
  options.proxy_thread_count = 1;
  options.ring_count = 1025;
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "ring_count 1025"));
  options.ring_count = 1;
  for (const std::uint32_t bytes : {32U, 1000U, 1U << 31}) {
    options.ring_bytes = bytes;
    EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "ring_bytes " + std::to_string(bytes)));
  }
  if (me.rank_count() > 1) {
    EXPECT_TRUE(refuses(opens(16, 8 + me.rank(), 1000), "notification_count"));
    options.ring_bytes = 1024;
    options.ring_count = 1 + me.rank();
    EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "ring_count"));
  }
  ASSERT_TRUE(me.meet());
  // After all of that one opens, and the fabric does not close before it.
  auto session = opens(16, 8, 1000);
  ASSERT_TRUE(is_ok(session));
  EXPECT_TRUE(refuses(opens(16, 8, 1000), "segment 1000"));
  EXPECT_TRUE(fails(fabric.close(kPatience), Status::busy, "session"));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(session->close(kPatience)));
  EXPECT_TRUE(is_ok(session->close(kPatience)));
}

// The second rank agrees on the options, and has other memory than a session's.
RANK_BODY(open_beside_no_session) {
  const DeviceSessionOptions options;
  if (me.rank() == 0) {
    EXPECT_TRUE(fails(DeviceSession::open(fabric, options), Status::peer_lost, "it has no session like this one"));
    ASSERT_TRUE(me.meet());
    return;
  }
  RankSegment control(fabric, options.control_segment, MemoryChoice::stand_in, 4096);
  const std::array<std::int64_t, 9> own{options.segment_count,
                                        options.notification_count,
                                        options.control_segment,
                                        options.queue_count,
                                        static_cast<std::int64_t>(options.engine),
                                        options.ring_count,
                                        options.ring_bytes,
                                        0,
                                        0};
  std::array<std::int64_t, 9> agreed{};
  for (const ReduceOperation operation : {ReduceOperation::minimum, ReduceOperation::maximum})
    EXPECT_TRUE(is_ok(fabric.all_reduce({}, operation, own, agreed, kPatience)));
  ASSERT_TRUE(me.meet());
}

// Without the local transport there are none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricDeviceDoor);
class FabricDeviceDoor : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDeviceDoor, IsClosedToAPeerWithoutASession) { run_ranks("open_beside_no_session", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDeviceDoor, testing::ValuesIn(direct_setups({2})), setup_name);

class FabricDeviceInput : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDeviceInput, OfKernels) { run_ranks("refuse_on_the_device", GetParam()); }
TEST_P(FabricDeviceInput, OfOtherSegments) { run_ranks("see_segments_of_the_session", GetParam()); }
TEST_P(FabricDeviceInput, OfSessions) { run_ranks("refuse_sessions", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDeviceInput, testing::ValuesIn(device_setups({1, 2, 3})), setup_name);

}  // namespace
}  // namespace gigabar::test
