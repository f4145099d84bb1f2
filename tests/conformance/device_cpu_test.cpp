// SPDX-License-Identifier: Apache-2.0
// Notifications between kernels and CPUs, from device_session.hpp: a CPU waits for what a kernel of another rank writes, and a
// kernel for what a CPU writes.
#include <thread>

#include "conformance/device_kernels.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::test {
namespace {

using device::CpuTeam;
using device::Order;

constexpr SegmentId kOwn = 4;  // of the CPU alone
constexpr NotificationId kFromKernel = 1023, kFromCpu = 7;

DeviceSessionOptions with_cpu_segment(const RankProcess& me) {
  DeviceSessionOptions options = options_of(me);
  options.cpu_segments = {kSecondTarget};
  return options;
}

// The data of each message differs from that before it.
std::uint64_t seed_of(Rank from, std::uint32_t round, bool is_of_kernel) {
  return (round * 16 + from) * 2 + (is_of_kernel ? 1 : 0);
}

// One message of a kernel to the next rank's CPU, and the answer of that CPU, for each round.
void play_kernel(const CpuTeam::Member& lane, const RankProcess& me, Kernels& kernels, const std::vector<std::uint64_t>& sizes) {
  const DeviceFabric& handle = kernels.handle();
  std::uint32_t round = 0;
  for (const std::uint64_t bytes : sizes) {
    ++round;
    if (lane.rank() == 0) fill_pattern(kernels.origin.address(), bytes, seed_of(me.rank(), round, true));
    lane.sync();
    // By one call, and by two with any sharing: the notification comes behind the bytes in any case.
    const RemotePlace there{next_of(me), kSecondTarget, 0};
    if (round % 3 == 0) {
      EXPECT_EQ(write_notify(lane, handle, {kOrigin, 0}, there, bytes, kFromKernel, round), Status::ok);
    } else {
      device::Post post;
      if (round % 3 == 1) post.sharing = device::Sharing::exclusive;
      EXPECT_EQ(write(lane, handle, {kOrigin, 0}, there, bytes, post), Status::ok);
      EXPECT_EQ(notify(lane, handle, there.rank, kSecondTarget, kFromKernel, round, Order::after_writes, 0, post), Status::ok);
    }
    NotificationId found = 0;
    EXPECT_EQ(notification_wait(lane, handle, kTarget, 0, 1024, kLong, found, next_of(me)), Status::ok) << "round " << round;
    EXPECT_EQ(found, kFromCpu);
    if (lane.rank() == 0) {
      EXPECT_TRUE(kernels.target.holds_pattern(0, bytes, seed_of(next_of(me), round, false), 0)) << bytes << " bytes";
    }
    std::uint32_t value = 0;
    EXPECT_EQ(notification_reset(lane, handle, kTarget, kFromCpu, value), Status::ok);
    EXPECT_EQ(value, round);
  }
}

void play_cpu(Fabric& fabric, const RankProcess& me, Kernels& kernels, const std::vector<std::uint64_t>& sizes, RankMemory& mailbox,
              RankMemory& own) {
  std::uint32_t round = 0;
  for (const std::uint64_t bytes : sizes) {
    ++round;
    const auto found = fabric.notification_wait(kSecondTarget, 0, 1024, kPatience);
    ASSERT_TRUE(is_ok(found)) << "round " << round;
    EXPECT_EQ(*found, kFromKernel);
    EXPECT_TRUE(mailbox.holds_pattern(0, bytes, seed_of(previous_of(me), round, true), 0)) << bytes;
    const auto value = fabric.notification_reset(kSecondTarget, *found);
    ASSERT_TRUE(is_ok(value));
    EXPECT_EQ(*value, round);
    fill_pattern(own.address(), bytes, seed_of(me.rank(), round, false));
    const RemotePlace there{previous_of(me), kTarget, 0};
    if (round % 2 == 0) {
      ASSERT_TRUE(is_ok(kernels.session->write_notify({kOwn, 0}, there, bytes, kFromCpu, round)));
    } else {
      ASSERT_TRUE(is_ok(fabric.write({kOwn, 0}, there, bytes)));
      ASSERT_TRUE(is_ok(kernels.session->notify(there.rank, kTarget, kFromCpu, round)));
    }
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  }
}

RANK_BODY(notify_cpus_and_kernels) {
  RankSegment mailbox(fabric, kSecondTarget, MemoryChoice::stand_in, kSpan), own(fabric, kOwn, MemoryChoice::host, kSpan);
  Kernels kernels(me, fabric, kSpan, with_cpu_segment(me));
  ASSERT_TRUE(kernels.session);
  std::vector<std::uint64_t> sizes{0, 1, 4, 8, 28, 29, 64, 1000, 4096, 65536 + 5, 8, 0};
  for (std::uint32_t i = 0; i < me.setup().amount; ++i) sizes.push_back(i % 50);
  std::thread kernel([&] { run_block(2, [&](const CpuTeam::Member& lane) { play_kernel(lane, me, kernels, sizes); }); });
  play_cpu(fabric, me, kernels, sizes, mailbox, own);
  kernel.join();
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
  EXPECT_TRUE(fails(kernels.session->notify(me.rank(), kTarget, 0, 1), Status::unavailable, "closed"));
  ASSERT_TRUE(me.meet());
}

RANK_BODY(refuse_wrong_takers) {
  RankSegment mailbox(fabric, kSecondTarget, MemoryChoice::stand_in, 4096);
  Kernels kernels(me, fabric, kSpan, with_cpu_segment(me));
  ASSERT_TRUE(kernels.session);
  const device::Thread thread;
  const DeviceFabric& handle = kernels.handle();
  NotificationId found = 0;
  std::uint32_t value = 0;
  EXPECT_EQ(notification_wait(thread, handle, kSecondTarget, 0, 1, kLong, found), Status::unavailable);
  EXPECT_EQ(notification_wait_until(thread, handle, kSecondTarget, 0, 1, kLong, value), Status::unavailable);
  EXPECT_EQ(notification_reset(thread, handle, kSecondTarget, 0, value), Status::unavailable);
  EXPECT_EQ(notify(thread, handle, next_of(me), kSecondTarget, 0, 1, Order::none, 5), Status::not_supported);
  EXPECT_EQ(notify(thread, handle, next_of(me), kSecondTarget, 1024, 1), Status::out_of_range);
  EXPECT_EQ(notify(thread, handle, next_of(me), kSecondTarget, 0, 0), Status::invalid_argument);
  device::Channel channel;
  EXPECT_EQ(device::Channel::open(thread, handle, next_of(me), kSecondTarget, kOrigin, 0, channel), Status::unavailable);
  EXPECT_EQ(device::Channel::open(thread, handle, next_of(me), kTarget, kSecondTarget, 0, channel), Status::unavailable);
  EXPECT_TRUE(fails(kernels.session->notify(next_of(me), kTarget, 0, 0), Status::invalid_argument, "value 0"));
  EXPECT_TRUE(refuses(kernels.session->notify(99, kTarget, 0, 1), "rank 99"));
  EXPECT_TRUE(refuses(kernels.session->notify(next_of(me), 16, 0, 1), "segment 16"));
  EXPECT_TRUE(refuses(kernels.session->write_notify({kOrigin, 0}, {next_of(me), kTarget, 0}, 8, 1024, 1), "notification 1024"));
  EXPECT_TRUE(refuses(kernels.session->write_notify({kOrigin, 0}, {next_of(me), kTarget, kSpan}, 8, 0, 1)));
  // None of that was raised.
  ASSERT_TRUE(me.meet());
  EXPECT_EQ(notification_wait(thread, handle, kTarget, 0, 1024, device::Timeout{}, found), Status::timed_out);
  EXPECT_TRUE(fails(fabric.notification_wait(kSecondTarget, 0, kNotifications, Timeout::test()), Status::timed_out));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
  DeviceSessionOptions options = with_cpu_segment(me);
  options.engine = QueueEngine::hca;
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "cpu_segments"));
  options.engine = QueueEngine::automatic;
  options.queues = QueueUse::never;
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "cpu_segments"));
  options = with_cpu_segment(me);
  options.cpu_segments = {3, 3};
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "cpu_segments"));
  options.cpu_segments = {16};
  EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "cpu_segments"));
  if (me.rank_count() > 1) {
    options.cpu_segments = {static_cast<SegmentId>(1 + me.rank())};
    EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "cpu_segments"));
    options = options_of(me);
    options.segments = {static_cast<SegmentId>(1 + me.rank())};
    EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "segments"));
  }
  for (const std::vector<SegmentId>& wrong : {std::vector<SegmentId>{3, 3}, {3, 2}, {16}}) {
    options = options_of(me);
    options.segments = wrong;
    EXPECT_TRUE(refuses(DeviceSession::open(fabric, options), "segments"));
  }
  ASSERT_TRUE(me.meet());
}

class FabricDeviceCpu : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDeviceCpu, KernelsAndCpusNotifyEachOther) {
  RankSetup setup = GetParam();
  setup.amount = rounds(setup.word == kByQueues ? 50 : 100);
  run_ranks("notify_cpus_and_kernels", setup);
}
TEST_P(FabricDeviceCpu, TheOtherTakerIsRefused) { run_ranks("refuse_wrong_takers", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDeviceCpu, testing::ValuesIn(device_setups({1, 2, 3})), setup_name);

}  // namespace
}  // namespace gigabar::test
