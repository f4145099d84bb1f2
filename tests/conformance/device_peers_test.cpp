// SPDX-License-Identifier: Apache-2.0
// Kernels whose peer ends: those that wait for it are told, the others go on.
#include <atomic>
#include <csignal>
#include <thread>

#include "conformance/device_kernels.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::test {
namespace {

constexpr Rank kWaiting = 0, kWitness = 1, kVictim = 2;

constexpr std::uint32_t kLastRound = 0xffffffff;

void say_round(const DeviceFabric& handle, Rank other, std::uint32_t round) {
  ASSERT_EQ(write_notify(device::Thread(), handle, {kOrigin, 0}, {other, kTarget, 0}, 512, 9, round), Status::ok);
}

std::uint32_t hear_round(const DeviceFabric& handle, Rank other) {
  NotificationId found = 0;
  std::uint32_t round = 0;
  EXPECT_EQ(notification_wait(device::Thread(), handle, kTarget, 9, 1, kLong, found, other), Status::ok);
  EXPECT_EQ(notification_reset(device::Thread(), handle, kTarget, 9, round), Status::ok);
  return round;
}

// Goes on between these two while the third dies.
void lead_rounds(const DeviceFabric& handle, const std::atomic<bool>& is_over) {
  for (std::uint32_t round = 1;; ++round) {
    const std::uint32_t said = is_over ? kLastRound : round;
    say_round(handle, kWitness, said);
    ASSERT_EQ(hear_round(handle, kWitness), said);
    if (said == kLastRound) return;
  }
}

void follow_rounds(const DeviceFabric& handle) {
  for (std::uint32_t round = 0; round != kLastRound;) {
    round = hear_round(handle, kWaiting);
    ASSERT_NE(round, 0U);
    say_round(handle, kWaiting, round);
  }
}

// Kernels that wait for the one that dies are told, those that wait for another go on.
RANK_BODY(wait_for_the_victim) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  const device::Thread thread;
  ASSERT_TRUE(me.meet());
  std::atomic<bool> is_over{false};
  std::thread traffic([&] { me.rank() == kWaiting ? lead_rounds(handle, is_over) : follow_rounds(handle); });
  NotificationId found = 0;
  if (me.rank() == kWaiting) {
    me.tell("waiting");
    EXPECT_EQ(notification_wait(thread, handle, kTarget, 3, 1, device::kForever, found, kVictim), Status::peer_lost);
    EXPECT_EQ(notification_wait(thread, handle, kTarget, 3, 1, kShort, found), Status::peer_lost) << "somebody is lost";
    EXPECT_EQ(notification_wait(thread, handle, kTarget, 3, 1, kShort, found, kWitness), Status::timed_out);
    EXPECT_EQ(barrier(thread, handle, device::kForever), Status::peer_lost);
    EXPECT_EQ(peer_status(handle, kVictim), Status::peer_lost);
    EXPECT_EQ(peer_status(handle, kWitness), Status::ok);
    EXPECT_EQ(write(thread, handle, {kOrigin, 0}, {kVictim, kTarget, 0}, 4096), Status::peer_lost);
    EXPECT_EQ(notify(thread, handle, kVictim, kTarget, 0, 1), Status::peer_lost);
    std::uint64_t old = 0;
    EXPECT_EQ(atomic_fetch_add(thread, handle, {kVictim, kTarget, 0}, 1, kLong, old), Status::peer_lost);
    EXPECT_EQ(flush(thread, handle, kVictim, kLong), Status::peer_lost);
    device::RecvRing from;
    device::SendRing to;
    if (open_ring(handle, kVictim, 0, from) == Status::ok && open_ring(handle, kVictim, 0, to) == Status::ok) {
      std::uint32_t value = 0;
      EXPECT_EQ(recv_value(thread, from, value, device::kForever), Status::ok) << "it was sent before";
      EXPECT_EQ(value, 7U);
      EXPECT_EQ(recv_value(thread, from, value, device::kForever), Status::peer_lost);
      Status sent = Status::ok;
      for (int i = 0; i < 65 && sent == Status::ok; ++i) sent = send_value(thread, to, i, device::kForever);
      EXPECT_EQ(sent, Status::peer_lost) << "the ring has 64 lines";
    } else {
      EXPECT_EQ(me.setup().word, kByQueues);
    }
    me.tell("told");
  }
  EXPECT_EQ(me.hear(), "enough");
  is_over = true;
  traffic.join();
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

RANK_BODY(be_the_victim) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  device::SendRing to;
  if (open_ring(kernels.handle(), kWaiting, 0, to) == Status::ok) {
    EXPECT_EQ(send_value(device::Thread(), to, 7U, kLong), Status::ok);
  }
  static_cast<void>(me.meet());
  NotificationId found = 0;
  static_cast<void>(notification_wait(device::Thread(), kernels.handle(), kTarget, 0, 1, device::kForever, found));
}

class FabricDeviceKill : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDeviceKill, WaitsEndWithThePeersError) {
  RankJob job("wait_for_the_victim", GetParam());
  job.set_body(kVictim, "be_the_victim");
  job.start_all();
  ASSERT_TRUE(job.hear(kWaiting, "waiting"));
  job.send_signal(kVictim, SIGKILL);
  ASSERT_TRUE(job.hear(kWaiting, "told"));
  job.tell(kWaiting, "enough");
  job.tell(kWitness, "enough");
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDeviceKill, testing::ValuesIn(device_setups({3})), setup_name);

}  // namespace
}  // namespace gigabar::test
