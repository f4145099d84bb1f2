// SPDX-License-Identifier: Apache-2.0
// GASPI in kernels, from GASPI_Device.hpp and GASPI_Ext.h, here with threads of the CPU as lanes, over memory of stand-ins: by
// loads and stores between ranks that share pages, and by queues over the other transports.
#include <GASPI_Device.hpp>

#include <csignal>
#include <thread>

#include "base/clock.hpp"
#include "conformance/gaspi_ranks.hpp"
#include "conformance/kernel_block.hpp"
#include "conformance/rank_memory.hpp"

namespace gigabar::test {
namespace {

using device::CpuTeam;
using device::Thread;

constexpr gaspi_segment_id_t kKernels = 2, kCpus = 3;  // whose notifications they take
constexpr gaspi_segment_id_t kOther = 1;               // of no device side
constexpr gaspi_size_t kBytes = 65536;

gaspi_rank_t next(const RankProcess& me) { return gaspi_rank_t(next_of(me)); }
gaspi_rank_t previous(const RankProcess& me) { return gaspi_rank_t(previous_of(me)); }

const gaspi_device_segment_t kSegments[] = {{kCpus, GASPI_NOTIFY_CPU}, {kKernels, GASPI_NOTIFY_KERNELS}};

const gaspi_device_t* open_both() {
  for (const gaspi_segment_id_t id : {kKernels, kCpus})
    EXPECT_DONE(gaspi_segment_create(id, kBytes, GASPI_GROUP_ALL, kLong, GASPI_MEM_GPU));
  const gaspi_device_t* device = nullptr;
  EXPECT_DONE(gaspi_device_open(kSegments, 2, 2, &device, kLong));
  return device;
}

// Of a kernel.
template <class Scope>
gaspi_notification_t take_in_kernel(const Scope& scope, const gaspi_device_t& device, gaspi_notification_id_t first,
                                    gaspi_number_t number, gaspi_notification_id_t expected) {
  gaspi_notification_id_t found = ~0U;
  gaspi_notification_t value = 0;
  EXPECT_DONE(gaspi_notify_waitsome(scope, device, kKernels, first, number, &found, kLong));
  EXPECT_EQ(found, expected);
  EXPECT_DONE(gaspi_notify_reset(scope, device, kKernels, found, &value));
  return value;
}

// Kernels of all ranks: to the next one, and back by a read of what it wrote.
GASPI_BODY(gaspi_between_kernels) {
  const gaspi_device_t* const device = open_both();
  ASSERT_NE(device, nullptr);
  char* const memory = numbers<char>(kKernels);
  constexpr gaspi_offset_t kIn = 16384, kBack = 32768, kSecond = 49152;
  gaspi_notification_t round = 0;
  for (const gaspi_size_t bytes : {0UL, 1UL, 8UL, 28UL, 29UL, 1000UL, 16384UL}) {
    ++round;
    fill_pattern(memory, bytes, me.rank() + round * 16);
    run_block(3, [&](const CpuTeam::Member& lane) {
      EXPECT_DONE(gaspi_write_notify(lane, *device, kKernels, 0, next(me), kKernels, kIn, bytes, 65535, round, 1, kLong));
      EXPECT_EQ(take_in_kernel(lane, *device, 4, 65532, 65535), round);
      // By two calls of one queue; those of the other have no order with it.
      EXPECT_DONE(gaspi_write(lane, *device, kKernels, kIn, next(me), kKernels, kSecond, bytes, 0, kLong));
      EXPECT_DONE(gaspi_notify(lane, *device, kKernels, next(me), 3, round + 1, 0, kLong));
      EXPECT_EQ(take_in_kernel(lane, *device, 3, 1, 3), round + 1);
      EXPECT_DONE(gaspi_read(lane, *device, kKernels, kBack, previous(me), kKernels, 0, bytes, 1, kLong));
      EXPECT_DONE(gaspi_wait(lane, *device, 1, kLong));
      EXPECT_DONE(gaspi_wait(lane, *device, 0, kLong));
    });
    std::vector<char> expected(bytes), expected_second(bytes);
    fill_pattern(expected.data(), bytes, previous(me) + round * 16);
    const unsigned before = (me.rank() + 2 * me.rank_count() - 2) % me.rank_count();
    fill_pattern(expected_second.data(), bytes, before + round * 16);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory + kIn)) << bytes << " bytes written";
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory + kBack)) << bytes << " bytes read";
    EXPECT_TRUE(std::equal(expected_second.begin(), expected_second.end(), memory + kSecond)) << bytes << " bytes passed on";
    ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  }
  ASSERT_DONE(gaspi_device_close(kLong));
}

// A kernel asks the next rank's CPU, which answers by each call that raises a notification.
GASPI_BODY(gaspi_kernel_and_cpu) {
  const gaspi_device_t* const device = open_both();
  ASSERT_NE(device, nullptr);
  auto* const asked = numbers<std::uint64_t>(kCpus);
  auto* const answered = numbers<std::uint64_t>(kKernels);
  constexpr unsigned kRounds = 12;
  std::thread kernel([&] {
    const Thread thread;
    for (unsigned round = 1; round <= kRounds; ++round) {
      answered[8] = round * 1000 + me.rank();
      EXPECT_DONE(gaspi_write_notify(thread, *device, kKernels, 64, next(me), kCpus, 0, 8, 77, round, 0, kLong));
      EXPECT_EQ(take_in_kernel(thread, *device, 0, 65536, 5), round % 4 == 3 ? 1U : round);
      EXPECT_EQ(answered[0], round * 1000 + me.rank() + 7) << "round " << round;
    }
  });
  for (unsigned round = 1; round <= kRounds; ++round) {
    EXPECT_EQ(take(kCpus, 77), round);
    EXPECT_EQ(asked[0], round * 1000 + previous(me));
    asked[1] = asked[0] + 7;
    gaspi_segment_id_t local[1] = {kCpus}, remote[1] = {kKernels};
    gaspi_offset_t from[1] = {8}, to[1] = {0};
    gaspi_size_t size[1] = {8};
    switch (round % 4) {
      case 0: EXPECT_DONE(gaspi_write_notify(kCpus, 8, previous(me), kKernels, 0, 8, 5, round, 1, kLong)); break;
      case 1:
        EXPECT_DONE(gaspi_write(kCpus, 8, previous(me), kKernels, 0, 8, 1, kLong));
        EXPECT_DONE(gaspi_notify(kKernels, previous(me), 5, round, 1, kLong));
        break;
      case 2:
        EXPECT_DONE(gaspi_write_list_notify(1, local, from, previous(me), remote, to, size, kKernels, 5, round, 1, kLong));
        break;
      default:  // the kernel's own CPU reads the answer for it
        EXPECT_DONE(gaspi_notify(kCpus, previous(me), 78, round, 1, kLong));
        EXPECT_EQ(take(kCpus, 78), round);
        EXPECT_DONE(gaspi_read_notify(kKernels, 0, next(me), kCpus, 8, 8, 5, 2, kLong));
        EXPECT_DONE(gaspi_wait(2, kLong));
    }
    EXPECT_DONE(gaspi_wait(1, kLong));
  }
  kernel.join();
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  gaspi_number_t size = 99;
  EXPECT_DONE(gaspi_queue_size(1, &size));
  EXPECT_EQ(size, 0U);
  // gaspi_proc_term ends the device side.
}

GASPI_BODY(gaspi_atomics_of_kernels) {
  const gaspi_device_t* const device = open_both();
  ASSERT_NE(device, nullptr);
  constexpr unsigned kTimes = 30;
  const auto ranks = gaspi_rank_t(me.rank_count());
  run_block(2, [&](const CpuTeam::Member& lane) {
    gaspi_atomic_value_t old = 99, last = 0;
    for (unsigned i = 0; i < kTimes; ++i) {
      EXPECT_DONE(gaspi_atomic_fetch_add(lane, *device, kKernels, 8, 0, me.rank() + 1, &old, GASPI_TEST));
      EXPECT_TRUE(i == 0 || old > last) << old;
      last = old;
    }
    EXPECT_DONE(gaspi_atomic_compare_swap(lane, *device, kKernels, 16 + 8 * me.rank(), 0, 0, me.rank() + 7, &old, kLong));
    EXPECT_EQ(old, 0U);
    EXPECT_DONE(gaspi_atomic_compare_swap(lane, *device, kKernels, 16 + 8 * me.rank(), 0, 1, 9, &old, kLong));
    EXPECT_EQ(old, me.rank() + 7);
  });
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  if (me.rank() == 0) {
    EXPECT_EQ(numbers<std::uint64_t>(kKernels)[1], std::uint64_t(kTimes) * ranks * (ranks + 1U) / 2);
    EXPECT_EQ(numbers<std::uint64_t>(kKernels)[2 + ranks - 1], ranks + 6U);
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_device_close(kLong));
}

// What a kernel's call names wrongly, in the codes of the host.
GASPI_BODY(gaspi_arguments_of_kernels) {
  ASSERT_DONE(gaspi_segment_create(kOther, 64, GASPI_GROUP_ALL, kLong, GASPI_MEM_GPU));
  const gaspi_device_t* const opened = open_both();
  ASSERT_NE(opened, nullptr);
  const gaspi_device_t& device = *opened;
  const Thread t;
  const gaspi_rank_t to = next(me);
  const auto none = gaspi_rank_t(me.rank_count());
  const auto write = [&](gaspi_segment_id_t local, gaspi_offset_t from, gaspi_rank_t rank, gaspi_segment_id_t remote,
                         gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue) {
    const gaspi_return_t code = gaspi_write(t, device, local, from, rank, remote, there, size, queue, kLong);
    EXPECT_EQ(gaspi_read(t, device, local, from, rank, remote, there, size, queue, kLong), code);
    EXPECT_EQ(gaspi_write_notify(t, device, local, from, rank, remote, there, size, 1, 1, queue, kLong), code);
    return code;
  };
  EXPECT_CODE(GASPI_ERR_INV_SEG, write(9, 0, to, kKernels, 0, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_SEG, write(kOther, 0, to, kKernels, 0, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_SEG, write(kKernels, 0, to, kOther, 0, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_SEG, write(kKernels, 0, to, 255, 0, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_LOC_OFF, write(kKernels, kBytes - 7, to, kKernels, 0, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_REM_OFF, write(kKernels, 0, to, kKernels, kBytes - 7, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_RANK, write(kKernels, 0, none, kKernels, 0, 8, 0));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, write(kKernels, 0, to, kKernels, 0, 8, 2));
  EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, write(kKernels, 0, to, kKernels, 0, device.transfer_size_max + 1, 0));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify(t, device, kKernels, to, 65536, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_VAL, gaspi_notify(t, device, kKernels, to, 0, 0, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_VAL, gaspi_write_notify(t, device, kKernels, 0, to, kKernels, 0, 8, 1, 0, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_notify(t, device, kKernels, to, 0, 1, 2, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_notify(t, device, kKernels, none, 0, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify(t, device, kOther, to, 0, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_wait(t, device, 2, kLong));

  gaspi_notification_id_t found = 99;
  gaspi_notification_t value = 99;
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify_waitsome(t, device, kOther, 0, 1, &found, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify_waitsome(t, device, kKernels, 65535, 2, &found, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_notify_waitsome(t, device, kKernels, 0, 1, nullptr, kLong));
  EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_notify_waitsome(t, device, kCpus, 0, 1, &found, kLong));
  EXPECT_DONE(gaspi_notify_waitsome(t, device, kKernels, 0, 0, &found, GASPI_TEST));
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_notify_waitsome(t, device, kKernels, 0, 65536, &found, GASPI_TEST));
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_notify_waitsome(t, device, kKernels, 0, 10, &found, 30));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify_reset(t, device, kOther, 0, &value));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify_reset(t, device, kKernels, 65536, &value));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_notify_reset(t, device, kKernels, 0, nullptr));
  EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_notify_reset(t, device, kCpus, 0, &value));
  EXPECT_EQ(value, 99U);
  EXPECT_DONE(gaspi_notify_reset(t, device, kKernels, 0, &value));
  EXPECT_EQ(value, 0U);
  EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_notify_waitsome(kKernels, 0, 1, &found, kLong)) << "kernels take them";
  EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_notify_reset(kKernels, 0, &value)) << "kernels take them";
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_notify_waitsome(kCpus, 0, 1, &found, GASPI_TEST));
  EXPECT_EQ(found, 99U);

  gaspi_atomic_value_t old = 99;
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_atomic_fetch_add(t, device, kOther, 0, to, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_atomic_fetch_add(t, device, kKernels, 0, none, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_UNALIGN_OFF, gaspi_atomic_fetch_add(t, device, kKernels, 4, to, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_INV_REM_OFF, gaspi_atomic_fetch_add(t, device, kKernels, kBytes, to, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_atomic_compare_swap(t, device, kKernels, 0, to, 0, 1, nullptr, kLong));
  EXPECT_EQ(old, 99U);
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_notify_waitsome(t, device, kKernels, 0, 65536, &found, GASPI_TEST)) << "nothing was raised";
  for (gaspi_size_t i = 0; i < kBytes; ++i) ASSERT_EQ(numbers<char>(kKernels)[i], 0) << "byte " << i;
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_device_close(kLong));
}

GASPI_BODY(gaspi_device_sides) {
  const gaspi_device_t* device = nullptr;
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_device_close(kLong)) << "there is none";
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_device_open(kSegments, 2, 1, &device, kLong)) << "the segments are not there";
  const gaspi_device_t* const opened = open_both();
  ASSERT_NE(opened, nullptr);
  EXPECT_CODE(GASPI_ERR_INITED, gaspi_device_open(kSegments, 2, 1, &device, kLong));
  EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_segment_delete(kKernels)) << "kernels may use it";
  ASSERT_DONE(gaspi_device_close(kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_device_open(nullptr, 2, 1, &device, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_device_open(kSegments, 2, 1, nullptr, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_device_open(kSegments, 0, 1, &device, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_device_open(kSegments, 2, 0, &device, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_device_open(kSegments, 2, 16, &device, kLong));
  const gaspi_device_segment_t twice[] = {{kCpus, GASPI_NOTIFY_CPU}, {kCpus, GASPI_NOTIFY_CPU}};
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_device_open(twice, 2, 1, &device, kLong));
  // The CPU takes all notifications again, and raises them.
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  EXPECT_DONE(gaspi_notify(kKernels, next(me), 9, 4, 0, kLong));
  EXPECT_EQ(take(kKernels, 9), 4U);
  // Another one, with the takers exchanged.
  const gaspi_device_segment_t exchanged[] = {{kKernels, GASPI_NOTIFY_CPU}, {kCpus, GASPI_NOTIFY_KERNELS}};
  ASSERT_DONE(gaspi_device_open(exchanged, 2, 15, &device, kLong));
  EXPECT_DONE(gaspi_notify(Thread(), *device, kKernels, next(me), 8, 3, 14, kLong));
  EXPECT_EQ(take(kKernels, 8), 3U);
  ASSERT_DONE(gaspi_device_close(kLong));
  EXPECT_DONE(gaspi_segment_delete(kKernels));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// A thread of rank 0 waits in gaspi_device_open for the others, which first meet its other thread: that one's calls go on.
GASPI_BODY(gaspi_beside_open) {
  for (const gaspi_segment_id_t id : {kKernels, kCpus})
    ASSERT_DONE(gaspi_segment_create(id, kBytes, GASPI_GROUP_ALL, kLong, GASPI_MEM_GPU));
  const gaspi_device_t* device = nullptr;
  const gaspi_device_t* other = nullptr;
  const auto open = [&] { EXPECT_DONE(gaspi_device_open(kSegments, 2, 2, &device, kLong)); };
  std::thread opening;
  if (me.rank() == 0) {
    opening = std::thread(open);
    const Deadline deadline = Deadline::after_ns(20'000'000'000);
    while (gaspi_device_close(GASPI_TEST) == GASPI_ERR_NULLPTR && !deadline.has_passed()) std::this_thread::yield();
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_device_close(GASPI_TEST));
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_device_open(kSegments, 2, 2, &other, 20));
  }
  EXPECT_DONE(gaspi_segment_create(kOther, 64, GASPI_GROUP_ALL, kLong, GASPI_MEM_GPU));
  gaspi_group_t group = 0;
  EXPECT_DONE(gaspi_group_create(&group));
  for (Rank rank = 0; rank < me.rank_count(); ++rank) EXPECT_DONE(gaspi_group_add(group, gaspi_rank_t(rank)));
  EXPECT_DONE(gaspi_group_commit(group, kLong));
  EXPECT_DONE(gaspi_segment_delete(kOther));
  if (me.rank() == 0) {
    EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_segment_delete(kKernels)) << "kernels are about to use it";
  }
  EXPECT_DONE(gaspi_barrier(group, kLong));
  if (opening.joinable()) {
    opening.join();
  } else {
    open();
  }
  ASSERT_NE(device, nullptr);
  ASSERT_DONE(gaspi_device_close(kLong));
  EXPECT_DONE(gaspi_segment_delete(kKernels));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// A kernel that waits without end is told when nobody is left.
BARE_RANK_BODY(gaspi_kernel_left_alone) {
  gaspi_config_t config{};
  ASSERT_DONE(gaspi_config_get(&config));
  config.logger = 0;
  ASSERT_DONE(gaspi_config_set(config));
  ASSERT_DONE(gaspi_proc_init(kLong));
  const gaspi_device_t* const device = open_both();
  ASSERT_NE(device, nullptr);
  me.tell("ready");
  if (me.rank() == 1) {
    static_cast<void>(me.hear());  // until it is killed
    return;
  }
  gaspi_notification_id_t found = 0;
  EXPECT_CODE(GASPI_ERROR, gaspi_notify_waitsome(Thread(), *device, kKernels, 0, 10, &found, GASPI_BLOCK));
  EXPECT_CODE(GASPI_ERROR, gaspi_notify(Thread(), *device, kKernels, 1, 0, 1, 0, 2000));
  // A notification in hand is not lost with the rank.
  EXPECT_DONE(gaspi_notify(Thread(), *device, kKernels, 0, 4, 1, 0, kLong));
  EXPECT_DONE(gaspi_notify_waitsome(Thread(), *device, kKernels, 0, 10, &found, GASPI_BLOCK));
  EXPECT_EQ(found, 4U);
  EXPECT_DONE(gaspi_proc_term(kLong));
}

std::vector<RankSetup> device_sides() {
  std::vector<RankSetup> all = each_transport(2);
  for (const RankSetup& setup : each_transport(3)) all.push_back(setup);
  return all;
}

class GaspiKernels : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiKernels, WriteReadAndNotify) { run_gaspi("gaspi_between_kernels", GetParam()); }
TEST_P(GaspiKernels, AndCpusNotifyEachOther) { run_gaspi("gaspi_kernel_and_cpu", GetParam()); }
TEST_P(GaspiKernels, Atomics) { run_gaspi("gaspi_atomics_of_kernels", GetParam()); }
TEST_P(GaspiKernels, EachWrongArgumentHasItsCode) { run_gaspi("gaspi_arguments_of_kernels", GetParam()); }
TEST_P(GaspiKernels, OtherCallsGoOnBesideOpen) { run_gaspi("gaspi_beside_open", GetParam()); }
TEST_P(GaspiKernels, OpenAndClose) { run_gaspi("gaspi_device_sides", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, GaspiKernels, testing::ValuesIn(device_sides()), setup_name);

class GaspiKernelFaults : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiKernelFaults, LeftAlone) {
  GaspiJob job("gaspi_kernel_left_alone", GetParam());
  job.start_all();
  for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(job.hear(rank, "ready"));
  job.send_signal(1, SIGKILL);
  job.wait_end(1);
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, GaspiKernelFaults, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
