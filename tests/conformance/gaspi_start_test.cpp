// SPDX-License-Identifier: Apache-2.0
// Start, end, configuration, limits, texts, statistics, the host.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "conformance/gaspi_ranks.hpp"
#include "support/cancellable.hpp"
#include "support/own_threads.hpp"

namespace gigabar::test {

void run_between(RankProcess& me, void (*body)(RankProcess&)) {
  ASSERT_DONE(gaspi_proc_init(kLong));
  body(me);
  if (testing::Test::HasFailure() || !me.meet()) return;
  EXPECT_DONE(gaspi_proc_term(kLong));
}

namespace {

BARE_RANK_BODY(gaspi_start_twice) {
  gaspi_number_t is_initialized = 7;
  ASSERT_DONE(gaspi_initialized(&is_initialized));
  EXPECT_EQ(is_initialized, 0U);
  ASSERT_DONE(gaspi_proc_init(GASPI_BLOCK));
  ASSERT_DONE(gaspi_initialized(&is_initialized));
  EXPECT_EQ(is_initialized, 1U);
  EXPECT_CODE(GASPI_ERR_INITED, gaspi_proc_init(kLong));
  gaspi_rank_t rank = 99, count = 99, local = 99, local_count = 99;
  ASSERT_DONE(gaspi_proc_rank(&rank));
  ASSERT_DONE(gaspi_proc_num(&count));
  ASSERT_DONE(gaspi_proc_local_rank(&local));
  EXPECT_EQ(rank, me.rank());
  EXPECT_EQ(count, me.rank_count());
  EXPECT_EQ(local, me.rank());
  if (me.setup().transport == TransportKind::local) {
    ASSERT_DONE(gaspi_proc_local_num(&local_count));
    EXPECT_EQ(local_count, me.rank_count());
  }
  for (void* place : {static_cast<void*>(nullptr)}) {
    EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_proc_rank(static_cast<gaspi_rank_t*>(place)));
    EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_proc_num(static_cast<gaspi_rank_t*>(place)));
    EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_proc_local_rank(static_cast<gaspi_rank_t*>(place)));
    EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_proc_local_num(static_cast<gaspi_rank_t*>(place)));
    EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_initialized(static_cast<gaspi_number_t*>(place)));
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
  EXPECT_CODE(GASPI_ERR_NOINIT, gaspi_proc_term(kLong));
  EXPECT_CODE(GASPI_ERR_NOINIT, gaspi_proc_rank(&rank));
  // And once more, with all that a job has.
  ASSERT_TRUE(me.meet());
  ASSERT_DONE(gaspi_proc_init(kLong));
  EXPECT_DONE(gaspi_proc_ping(gaspi_rank_t((me.rank() + 1) % me.rank_count()), kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// Every function that needs a job says so without one.
BARE_RANK_BODY(gaspi_without_start) {
  gaspi_rank_t rank = 0;
  gaspi_number_t number = 0;
  gaspi_group_t group = 0;
  gaspi_queue_id_t queue = 0;
  gaspi_pointer_t pointer = nullptr;
  gaspi_segment_id_t segment = 0;
  gaspi_size_t size = 8;
  gaspi_offset_t offset = 0;
  gaspi_notification_t value = 0;
  gaspi_network_t network = GASPI_IB;
  gaspi_state_t state = GASPI_STATE_HEALTHY;
  gaspi_atomic_value_t old = 0;
  int data = 0;
  const auto join = [](gaspi_pointer_t, gaspi_pointer_t, gaspi_pointer_t, gaspi_reduce_state_t, gaspi_number_t, gaspi_size_t,
                       gaspi_timeout_t) { return GASPI_SUCCESS; };
  for (const gaspi_return_t code : {gaspi_proc_term(0),
                                    gaspi_proc_num(&rank),
                                    gaspi_proc_kill(1, 0),
                                    gaspi_proc_ping(1, 0),
                                    gaspi_proc_local_rank(&rank),
                                    gaspi_proc_local_num(&rank),
                                    gaspi_connect(1, 0),
                                    gaspi_disconnect(1, 0),
                                    gaspi_state_vec_get(&state),
                                    gaspi_network_type(&network),
                                    gaspi_group_create(&group),
                                    gaspi_group_delete(1),
                                    gaspi_group_add(1, 0),
                                    gaspi_group_commit(1, 0),
                                    gaspi_group_num(&number),
                                    gaspi_group_size(0, &number),
                                    gaspi_group_ranks(0, &rank),
                                    gaspi_segment_alloc(0, 8, 0),
                                    gaspi_segment_register(0, 0, 0),
                                    gaspi_segment_create(0, 8, 0, 0, 0),
                                    gaspi_segment_bind(0, &data, 4, 0),
                                    gaspi_segment_use(0, &data, 4, 0, 0, 0),
                                    gaspi_segment_delete(0),
                                    gaspi_segment_num(&number),
                                    gaspi_segment_list(0, &segment),
                                    gaspi_segment_ptr(0, &pointer),
                                    gaspi_segment_avail_local(&segment),
                                    gaspi_segment_size(0, 0, &size),
                                    gaspi_write(0, 0, 0, 0, 0, 8, 0, 0),
                                    gaspi_read(0, 0, 0, 0, 0, 8, 0, 0),
                                    gaspi_write_list(1, &segment, &offset, 0, &segment, &offset, &size, 0, 0),
                                    gaspi_read_list(1, &segment, &offset, 0, &segment, &offset, &size, 0, 0),
                                    gaspi_wait(0, 0),
                                    gaspi_notify(0, 0, 0, 1, 0, 0),
                                    gaspi_write_notify(0, 0, 0, 0, 0, 8, 0, 1, 0, 0),
                                    gaspi_write_list_notify(1, &segment, &offset, 0, &segment, &offset, &size, 0, 0, 1, 0, 0),
                                    gaspi_read_notify(0, 0, 0, 0, 0, 8, 0, 0, 0),
                                    gaspi_read_list_notify(1, &segment, &offset, 0, &segment, &offset, &size, 0, 0, 0, 0),
                                    gaspi_notify_waitsome(0, 0, 1, &number, 0),
                                    gaspi_notify_reset(0, 0, &value),
                                    gaspi_passive_send(0, 0, 0, 8, 0),
                                    gaspi_passive_receive(0, 0, &rank, 8, 0),
                                    gaspi_passive_queue_purge(0),
                                    gaspi_atomic_fetch_add(0, 0, 0, 1, &old, 0),
                                    gaspi_atomic_compare_swap(0, 0, 0, 1, 2, &old, 0),
                                    gaspi_barrier(0, 0),
                                    gaspi_allreduce(&data, &data, 1, GASPI_OP_SUM, GASPI_TYPE_INT, 0, 0),
                                    gaspi_allreduce_user(&data, &data, 1, 4, join, nullptr, 0, 0),
                                    gaspi_queue_create(&queue, 0),
                                    gaspi_queue_delete(0),
                                    gaspi_queue_purge(0, 0),
                                    gaspi_queue_size(0, &number),
                                    gaspi_queue_num(&number)}) {
    EXPECT_CODE(GASPI_ERR_NOINIT, code);
  }
  ASSERT_TRUE(me.meet());
}

BARE_RANK_BODY(gaspi_configuration) {
  gaspi_config_t config{};
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_config_get(nullptr));
  ASSERT_DONE(gaspi_config_get(&config));
  EXPECT_EQ(config.queue_num, 8U);
  EXPECT_EQ(config.queue_size_max, 1024U);
  EXPECT_EQ(config.notification_num, 65536U);
  const auto refuses = [&](auto gaspi_config_t::* member, auto value) {
    gaspi_config_t other = config;
    other.*member = value;
    EXPECT_CODE(GASPI_ERR_CONFIG, gaspi_config_set(other));
  };
  refuses(&gaspi_config_t::queue_num, 0U);
  refuses(&gaspi_config_t::queue_num, 100U);
  refuses(&gaspi_config_t::queue_size_max, 0U);
  refuses(&gaspi_config_t::queue_size_max, 5000U);
  refuses(&gaspi_config_t::group_max, 0U);
  refuses(&gaspi_config_t::segment_max, 256U);
  refuses(&gaspi_config_t::transfer_size_max, 0UL);
  refuses(&gaspi_config_t::notification_num, 65537U);
  refuses(&gaspi_config_t::passive_transfer_size_max, 65536U);
  refuses(&gaspi_config_t::allreduce_buf_size, 1UL << 30);
  refuses(&gaspi_config_t::allreduce_elem_max, 256U);
  refuses(&gaspi_config_t::sn_port, 65536U);
  config.queue_num = 3;
  config.queue_size_max = 16;
  config.group_max = 2;
  config.segment_max = 2;
  config.notification_num = 100;
  config.transfer_size_max = 4096;
  config.passive_transfer_size_max = 64;
  config.build_infrastructure = GASPI_TOPOLOGY_STATIC;
  ASSERT_DONE(gaspi_config_set(config));
  ASSERT_DONE(gaspi_proc_init(kLong));
  EXPECT_CODE(GASPI_ERR_INITED, gaspi_config_set(config));
  gaspi_number_t number = 0;
  ASSERT_DONE(gaspi_queue_num(&number));
  EXPECT_EQ(number, 3U);
  ASSERT_DONE(gaspi_build_infrastructure(&number));
  EXPECT_EQ(number, unsigned(GASPI_TOPOLOGY_STATIC));
  gaspi_group_t group = 0, second = 0;
  EXPECT_DONE(gaspi_group_create(&group));
  EXPECT_CODE(GASPI_ERR_MANY_GRP, gaspi_group_create(&second));
  EXPECT_DONE(gaspi_segment_alloc(0, 8192, GASPI_MEM_INITIALIZED));
  EXPECT_DONE(gaspi_segment_alloc(7, 8192, GASPI_MEM_INITIALIZED));
  EXPECT_CODE(GASPI_ERR_MANY_SEG, gaspi_segment_alloc(3, 8192, GASPI_MEM_INITIALIZED));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  const gaspi_rank_t other = gaspi_rank_t((me.rank() + 1) % me.rank_count());
  EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, gaspi_write(0, 0, other, 7, 0, 4097, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify(7, other, 100, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, gaspi_passive_send(0, 0, other, 65, kLong));
  for (int i = 0; i < 16; ++i) EXPECT_DONE(gaspi_write(0, 0, other, 7, 0, 64, 2, kLong)) << i;
  EXPECT_CODE(GASPI_QUEUE_FULL, gaspi_write(0, 0, other, 7, 0, 64, 2, kLong));
  EXPECT_CODE(GASPI_QUEUE_FULL, gaspi_notify(7, other, 0, 1, 2, kLong));
  EXPECT_DONE(gaspi_wait(2, kLong));
  // One place is left: a read with its notification needs two, a list as many as it has elements.
  for (int i = 0; i < 15; ++i) EXPECT_DONE(gaspi_write(0, 0, other, 7, 0, 64, 2, kLong)) << i;
  std::array<gaspi_segment_id_t, 2> from{0, 0}, to{7, 7};
  std::array<gaspi_offset_t, 2> at{0, 64};
  std::array<gaspi_size_t, 2> sizes{64, 64};
  EXPECT_CODE(GASPI_QUEUE_FULL, gaspi_read_notify(0, 0, other, 7, 0, 64, 1, 2, kLong));
  EXPECT_CODE(GASPI_QUEUE_FULL, gaspi_write_list(2, from.data(), at.data(), other, to.data(), at.data(), sizes.data(), 2, kLong));
  EXPECT_CODE(GASPI_QUEUE_FULL,
              gaspi_write_list_notify(1, from.data(), at.data(), other, to.data(), at.data(), sizes.data(), 7, 0, 1, 2, kLong));
  EXPECT_DONE(gaspi_read_list(1, from.data(), at.data(), other, to.data(), at.data(), sizes.data(), 2, kLong));
  ASSERT_DONE(gaspi_queue_size(2, &number));
  EXPECT_EQ(number, 16U);
  EXPECT_DONE(gaspi_wait(2, kLong));
  EXPECT_DONE(gaspi_notify(7, other, 0, 1, 2, kLong));
  EXPECT_DONE(gaspi_wait(2, kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// GASPI's own variables, as a launcher of GPI-2 sets them.
BARE_RANK_BODY(gaspi_environment) {
  ASSERT_DONE(gaspi_proc_init(kLong));
  gaspi_rank_t rank = 99, count = 99;
  ASSERT_DONE(gaspi_proc_rank(&rank));
  ASSERT_DONE(gaspi_proc_num(&count));
  EXPECT_EQ(rank, me.rank());
  EXPECT_EQ(count, me.rank_count());
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

BARE_RANK_BODY(gaspi_bad_environment) {
  EXPECT_CODE(GASPI_ERR_ENV, gaspi_proc_init(kLong));
  ASSERT_TRUE(me.meet());
}

// Rank 0 alone: the time-out is kept, and the same call succeeds when the others come.
BARE_RANK_BODY(gaspi_missing_rank) {
  if (me.rank() == 0) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_proc_init(300));
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_proc_init(GASPI_TEST));
    gaspi_rank_t rank = 0;
    EXPECT_CODE(GASPI_ERR_NOINIT, gaspi_proc_rank(&rank));
    me.tell("timed out");
  }
  ASSERT_DONE(gaspi_proc_init(kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// Calls that only look start a job too, one after the other, also where rank 0, which all others join at, comes last.
BARE_RANK_BODY(gaspi_start_by_looking) {
  gaspi_return_t code = gaspi_proc_init(GASPI_TEST);
  if (me.rank() == 1) {
    EXPECT_CODE(GASPI_TIMEOUT, code);
    me.tell("looks");
  }
  const Deadline deadline = Deadline::after_ns(20'000'000'000);
  while (code == GASPI_TIMEOUT && !deadline.has_passed()) {
    ::usleep(1000);
    code = gaspi_proc_init(GASPI_TEST);
  }
  ASSERT_DONE(code);
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

// Rank 2 is later than three calls of rank 3, which reaches the others by way of it. The fourth goes on.
BARE_RANK_BODY(gaspi_late_rank) {
  for (int i = 0; me.rank() == 3 && i < 3; ++i) EXPECT_CODE(GASPI_TIMEOUT, gaspi_proc_init(200)) << i;
  me.tell("timed out");
  ASSERT_DONE(gaspi_proc_init(kLong));
  ASSERT_TRUE(me.meet());
  EXPECT_DONE(gaspi_proc_term(kLong));
}

template <class Number>
void expect_limit(gaspi_return_t (*function)(Number*), std::uint64_t expected) {
  Number value = 0;
  EXPECT_DONE(function(&value));
  EXPECT_EQ(std::uint64_t(value), expected);
  EXPECT_CODE(GASPI_ERR_NULLPTR, function(nullptr));
}

TEST(GaspiLimits, AreThoseOfTheConfiguration) {
  expect_limit<gaspi_number_t>(gaspi_group_max, 32);
  expect_limit<gaspi_number_t>(gaspi_segment_max, 255);
  expect_limit<gaspi_number_t>(gaspi_queue_size_max, 1024);
  expect_limit<gaspi_number_t>(gaspi_queue_max, 15);
  expect_limit<gaspi_size_t>(gaspi_transfer_size_min, 1);
  expect_limit<gaspi_size_t>(gaspi_transfer_size_max, std::uint64_t{1} << 30);
  expect_limit<gaspi_number_t>(gaspi_notification_num, 65536);
  expect_limit<gaspi_size_t>(gaspi_passive_transfer_size_min, 1);
  expect_limit<gaspi_size_t>(gaspi_passive_transfer_size_max, 65535);
  expect_limit<gaspi_atomic_value_t>(gaspi_atomic_max, ~std::uint64_t{0});
  expect_limit<gaspi_size_t>(gaspi_allreduce_buf_size, 2040);
  expect_limit<gaspi_number_t>(gaspi_allreduce_elem_max, 255);
  expect_limit<gaspi_number_t>(gaspi_rw_list_elem_max, 255);
  expect_limit<gaspi_number_t>(gaspi_build_infrastructure, GASPI_TOPOLOGY_DYNAMIC);
}

TEST(GaspiTexts, EachCodeHasItsOwn) {
  std::set<std::string> texts;
  for (int code = GASPI_ERROR; code <= GASPI_ERR_MEMALLOC; ++code) {
    gaspi_string_t text = nullptr;
    ASSERT_DONE(gaspi_print_error(gaspi_return_t(code), &text));
    EXPECT_STREQ(text, gaspi_error_str(gaspi_return_t(code)));
    texts.insert(text);
    std::free(text);
  }
  EXPECT_EQ(texts.size(), 30U) << "a code has no text of its own";
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_print_error(GASPI_ERROR, nullptr));
}

TEST(GaspiHost, TimeVersionAndProcessors) {
  float version = 0;
  EXPECT_DONE(gaspi_version(&version));
  EXPECT_FLOAT_EQ(version, 17.1F);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_version(nullptr));
  gaspi_cycles_t first = 0, second = 0;
  EXPECT_DONE(gaspi_time_ticks(&first));
  gaspi_delay();
  EXPECT_DONE(gaspi_time_ticks(&second));
  EXPECT_GE(second, first);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_time_ticks(nullptr));
  gaspi_time_t before = -1, after = -1;
  EXPECT_DONE(gaspi_time_get(&before));
  EXPECT_DONE(gaspi_time_get(&after));
  EXPECT_GE(before, 0);
  EXPECT_GE(after, before);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_time_get(nullptr));
  gaspi_float mhz = -1;
  EXPECT_DONE(gaspi_cpu_frequency(&mhz));
  EXPECT_GE(mhz, 0);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_cpu_frequency(nullptr));
  gaspi_uchar node = 255;
  EXPECT_DONE(gaspi_numa_socket(&node));
  EXPECT_LT(node, 64);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_numa_socket(nullptr));
  EXPECT_CODE(GASPI_ERROR, gaspi_set_socket_affinity(200)) << "there is no node 200";
  char type[16] = "";
  EXPECT_DONE(gaspi_machine_type(type));
  EXPECT_TRUE(std::string(type) == "CPU" || std::string(type) == "GPU") << type;
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_machine_type(nullptr));
  testing::internal::CaptureStdout();
  gaspi_print_affinity_mask();
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(printed.begin(), printed.end(), ' '), 3 + CPU_COUNT(&cpus)) << printed;
  testing::internal::CaptureStdout();
  gaspi_printf("line %d\n", 7);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("line 7\n"), std::string::npos);
  EXPECT_DONE(gaspi_pcontrol(nullptr));
}

// A thread that is cancelled ends behind the call, also of functions that open files or print.
TEST(GaspiHost, ACancelledThreadEndsBehindTheCall) {
  const auto call_cancelled = [](const std::function<void()>& call) {
    Cancellable([&] {
      ::pthread_cancel(::pthread_self());
      call();
    }).expect_cancelled_behind_it();
  };
  gaspi_float mhz = -1;
  call_cancelled([&] { EXPECT_DONE(gaspi_cpu_frequency(&mhz)); });
  EXPECT_GE(mhz, 0);
  call_cancelled([] { EXPECT_CODE(GASPI_ERROR, gaspi_set_socket_affinity(200)); });
  std::array<char, 16> type{};
  call_cancelled([&] { EXPECT_DONE(gaspi_machine_type(type.data())); });
  testing::internal::CaptureStdout();
  call_cancelled([] { gaspi_printf("line %d\n", 8); });
  call_cancelled(gaspi_print_affinity_mask);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("line 8\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("CPUs of this thread: "), std::string::npos) << printed;
}

GASPI_BODY(gaspi_statistics) {
  gaspi_statistic_counter_t counters = 0;
  ASSERT_DONE(gaspi_statistic_counter_max(&counters));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_statistic_counter_max(nullptr));
  gaspi_statistic_argument_t argument = GASPI_STATISTIC_ARGUMENT_RANK;
  gaspi_string_t name = nullptr, text = nullptr;
  gaspi_number_t level = 0;
  gaspi_ulong value = 0;
  std::map<std::string, gaspi_statistic_counter_t> found;
  for (gaspi_statistic_counter_t counter = 0; counter < counters; ++counter) {
    ASSERT_DONE(gaspi_statistic_counter_info(counter, &argument, &name, &text, &level));
    EXPECT_EQ(argument, GASPI_STATISTIC_ARGUMENT_NONE);
    EXPECT_GT(std::string(text).size(), 10U);
    EXPECT_EQ(level, 1U);
    found[name] = counter;
  }
  EXPECT_EQ(found.size(), counters);
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_statistic_counter_info(counters, &argument, &name, &text, &level));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_statistic_counter_info(0, nullptr, &name, &text, &level));
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_statistic_counter_get(counters, 0, &value));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_statistic_counter_get(0, 0, nullptr));
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_statistic_counter_reset(counters));
  ASSERT_DONE(gaspi_segment_create(0, 1024, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  const auto rank = gaspi_rank_t(me.rank());
  const auto expect_bytes = [&](gaspi_ulong expected) {
    ASSERT_DONE(gaspi_statistic_counter_get(found.at("write_bytes"), 0, &value));
    EXPECT_EQ(value, expected);
  };
  ASSERT_DONE(gaspi_write(0, 0, rank, 0, 512, 100, 0, kLong));
  expect_bytes(0);
  ASSERT_DONE(gaspi_statistic_verbosity_level(1));
  ASSERT_DONE(gaspi_write(0, 0, rank, 0, 512, 100, 0, kLong));
  expect_bytes(100);
  EXPECT_CODE(GASPI_ERR_INV_REM_OFF, gaspi_write(0, 0, rank, 0, 1000, 100, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_write_notify(0, 0, rank, 0, 512, 100, 1, 1, 9, kLong));
  expect_bytes(100);
  ASSERT_DONE(gaspi_statistic_counter_reset(found.at("write_bytes")));
  expect_bytes(0);
  ASSERT_DONE(gaspi_wait(0, kLong));
}

GASPI_BODY(gaspi_signals) {
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  EXPECT_GE(expect_signals_blocked_beside_main(), 2U) << "the fabric's and the one that looks what other ranks ask";
}

class GaspiStart : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiStart, OnceAndEndOnce) { run_gaspi("gaspi_start_twice", GetParam()); }
TEST_P(GaspiStart, ConfigurationIsChecked) { run_gaspi("gaspi_configuration", GetParam()); }
TEST_P(GaspiStart, StatisticsCount) { run_gaspi("gaspi_statistics", GetParam()); }
TEST_P(GaspiStart, ThreadsLeaveSignalsToTheProgram) { run_gaspi("gaspi_signals", GetParam()); }
TEST_P(GaspiStart, WaitsForAMissingRank) {
  GaspiJob job("gaspi_missing_rank", GetParam());
  job.start(0);
  ASSERT_TRUE(job.hear(0, "timed out"));
  for (Rank rank = 1; rank < GetParam().rank_count; ++rank) job.start(rank);
  job.finish();
}
TEST_P(GaspiStart, ByCallsThatOnlyLook) {
  GaspiJob job("gaspi_start_by_looking", GetParam());
  job.start(1);
  ASSERT_TRUE(job.hear(1, "looks"));
  job.start(0);
  job.finish();
}
TEST_P(GaspiStart, ARankMayBeLaterThanACallWaits) {
  RankSetup setup = GetParam();
  setup.rank_count = 4;
  GaspiJob job("gaspi_late_rank", setup);
  for (const Rank rank : {0U, 1U, 3U}) job.start(rank);
  ASSERT_TRUE(job.hear(3, "timed out"));
  job.start(2);
  job.finish();
}
// The variables of every rank, but for `name`, which names the job's ranks and where rank 0 is.
void start_by_own_variables(const RankSetup& setup, const std::vector<std::pair<const char*, std::string>>& name) {
  GaspiJob job("gaspi_environment", setup);
  for (Rank rank = 0; rank < setup.rank_count; ++rank) {
    for (const char* other : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      job.set_environment(rank, other, nullptr);
    job.set_environment(rank, "GASPI_RANK", std::to_string(rank).c_str());
    for (const auto& [variable, value] : name) job.set_environment(rank, variable, value.c_str());
    job.set_environment(rank, "GASPI_SOCKET", std::to_string(rank).c_str());
    job.set_environment(rank, "GIGABAR_MASTER_PORT", std::to_string(job.master_port()).c_str());
  }
  job.start_all();
  job.finish();
}
TEST_P(GaspiStart, ByGaspisOwnVariables) {
  start_by_own_variables(GetParam(), {{"GASPI_NRANKS", std::to_string(GetParam().rank_count)}, {"GASPI_MASTER", "127.0.0.1"}});
}
// A line is a rank, the first one's host is the master; empty lines, and what else an editor leaves, are none.
TEST_P(GaspiStart, ByAMachineFile) {
  const std::string path = testing::TempDir() + "gaspi_machines_" + std::to_string(::getpid());
  std::ofstream file(path);
  file << "\r\n \n  127.0.0.1\r\n";
  for (Rank rank = 1; rank < GetParam().rank_count; ++rank) file << "127.0.0.1 slots=1\n";
  file.close();
  start_by_own_variables(GetParam(), {{"GASPI_MFILE", path}});
  std::remove(path.c_str());
}
INSTANTIATE_TEST_SUITE_P(Transports, GaspiStart, testing::ValuesIn(each_transport(2)), setup_name);

RankSetup alone() {
  RankSetup setup;
  setup.rank_count = 1;
  return setup;
}

TEST(GaspiStartAlone, FunctionsNeedAJob) { run_gaspi("gaspi_without_start", alone()); }
TEST(GaspiStartAlone, HalfAnEnvironmentIsRefused) {
  for (const bool has_count : {false, true}) {
    GaspiJob job("gaspi_bad_environment", alone());
    for (const char* other : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      job.set_environment(0, other, nullptr);
    job.set_environment(0, "GASPI_RANK", "3");
    job.set_environment(0, "GASPI_NRANKS", has_count ? "2" : nullptr);
    job.set_environment(0, "GASPI_MASTER", "127.0.0.1");
    job.start_all();
    job.finish();
  }
}

}  // namespace
}  // namespace gigabar::test
