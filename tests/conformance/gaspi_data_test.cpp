// SPDX-License-Identifier: Apache-2.0
// Segments, writes, reads, lists, notifications, queues, passive communication, atomics: data, and the code for each wrong
// argument.
#include <array>
#include <thread>

#include "conformance/gaspi_ranks.hpp"
#include "conformance/rank_memory.hpp"

namespace gigabar::test {
namespace {

constexpr gaspi_segment_id_t kFrom = 1, kTo = 2;
constexpr gaspi_size_t kBytes = 1 << 20;

gaspi_rank_t next(const RankProcess& me) { return gaspi_rank_t((me.rank() + 1) % me.rank_count()); }
gaspi_rank_t previous(const RankProcess& me) { return gaspi_rank_t((me.rank() + me.rank_count() - 1) % me.rank_count()); }

void make_segments() {
  ASSERT_DONE(gaspi_segment_create(kFrom, kBytes, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  ASSERT_DONE(gaspi_segment_create(kTo, kBytes, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
}

// --- Segments -------------------------------------------------------------------------------------------------------------------

GASPI_BODY(gaspi_segments) {
  gaspi_segment_id_t id = 99;
  gaspi_number_t number = 99;
  gaspi_pointer_t pointer = nullptr;
  gaspi_size_t size = 0;
  ASSERT_DONE(gaspi_segment_avail_local(&id));
  EXPECT_EQ(id, 0);
  EXPECT_CODE(GASPI_ERR_INV_SEGSIZE, gaspi_segment_alloc(0, 0, GASPI_MEM_INITIALIZED));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_alloc(255, 8, GASPI_MEM_INITIALIZED));
  EXPECT_CODE(GASPI_ERR_MEMALLOC, gaspi_segment_alloc(0, 1UL << 60, GASPI_MEM_INITIALIZED)) << "there is not so much";
  ASSERT_DONE(gaspi_segment_alloc(0, 4096, GASPI_MEM_INITIALIZED)) << "the id is still free";
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_alloc(0, 4096, GASPI_MEM_INITIALIZED)) << "it exists";
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_create(0, 4096, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  EXPECT_TRUE(is_filled(numbers<char>(0), 4096, 0));
  ASSERT_DONE(gaspi_segment_register(0, next(me), kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_segment_register(0, gaspi_rank_t(me.rank_count()), kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_register(9, next(me), kLong));
  std::vector<double> own(512, 1.5);
  ASSERT_DONE(gaspi_segment_bind(5, own.data(), 4096, 0));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_segment_bind(6, nullptr, 4096, 0));
  EXPECT_CODE(GASPI_ERR_INV_SEGSIZE, gaspi_segment_bind(6, own.data(), 0, 0));
  EXPECT_CODE(GASPI_ERR_DEVICE, gaspi_segment_bind(6, own.data(), 4096, GASPI_MEM_GPU)) << "it is host memory";
  ASSERT_DONE(gaspi_segment_ptr(5, &pointer));
  EXPECT_EQ(pointer, own.data());
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_ptr(6, &pointer));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_segment_ptr(5, nullptr));
  std::vector<double> used(512, 2.5);
  ASSERT_DONE(gaspi_segment_use(8, used.data(), 4096, GASPI_GROUP_ALL, kLong, 0));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_segment_use(9, used.data(), 4096, 7, kLong, 0));
  EXPECT_CODE(GASPI_ERR_INV_GROUP, gaspi_segment_create(9, 4096, 7, kLong, 0));
  ASSERT_DONE(gaspi_segment_num(&number));
  EXPECT_EQ(number, 3U);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_segment_num(nullptr));
  std::array<gaspi_segment_id_t, 4> ids{};
  ASSERT_DONE(gaspi_segment_list(3, ids.data()));
  EXPECT_EQ(ids, (std::array<gaspi_segment_id_t, 4>{0, 5, 8, 0}));
  EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_segment_list(4, ids.data()));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_segment_list(3, nullptr));
  ASSERT_DONE(gaspi_segment_avail_local(&id));
  EXPECT_EQ(id, 1);
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_segment_avail_local(nullptr));
  ASSERT_DONE(gaspi_segment_size(8, next(me), &size));
  EXPECT_EQ(size, 4096U);
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_size(33, next(me), &size));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_segment_size(8, gaspi_rank_t(me.rank_count()), &size));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_segment_size(8, next(me), nullptr));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  for (const int each : {0, 5, 8}) EXPECT_DONE(gaspi_segment_delete(gaspi_segment_id_t(each)));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_segment_delete(0));
  ASSERT_DONE(gaspi_segment_create(0, 128, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED)) << "the id is free again";
}

// The late rank makes the others' first call time out; the same call goes on.
GASPI_BODY(gaspi_create_goes_on) {
  if (me.rank() != 0) {
    EXPECT_CODE(GASPI_TIMEOUT, gaspi_segment_create(3, 256, GASPI_GROUP_ALL, 100, GASPI_MEM_INITIALIZED));
    EXPECT_CODE(GASPI_ERR_ACTIVE_COLL, gaspi_barrier(GASPI_GROUP_ALL, 100));
    EXPECT_CODE(GASPI_ERR_ACTIVE_COLL, gaspi_segment_create(4, 256, GASPI_GROUP_ALL, 100, GASPI_MEM_INITIALIZED));
    gaspi_number_t number = 0;
    ASSERT_DONE(gaspi_segment_num(&number));
    EXPECT_EQ(number, 1U) << "a refused call has made a segment";
  }
  ASSERT_TRUE(me.meet());
  ASSERT_DONE(gaspi_segment_create(3, 256, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// A segment goes, and another one of its id comes, while other ranks remember the first.
GASPI_BODY(gaspi_segment_again) {
  ASSERT_DONE(gaspi_segment_create(kFrom, 256, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  ASSERT_DONE(gaspi_segment_create(kTo, 64, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  fill_pattern(numbers<char>(kFrom), 256, me.rank());
  ASSERT_DONE(gaspi_write(kFrom, 0, next(me), kTo, 0, 64, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_REM_OFF, gaspi_write(kFrom, 0, next(me), kTo, 0, 65, 0, kLong));
  ASSERT_DONE(gaspi_wait(0, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_segment_delete(kTo));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_write(kFrom, 0, next(me), kTo, 0, 8, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify(kTo, next(me), 0, 1, 0, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_segment_create(kTo, 256, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED));
  ASSERT_DONE(gaspi_write_notify(kFrom, 0, next(me), kTo, 0, 256, 3, 9, 0, kLong));
  EXPECT_EQ(take(kTo, 3), 9U);
  EXPECT_TRUE(is_pattern(numbers<char>(kTo), 256, previous(me)));
  ASSERT_DONE(gaspi_wait(0, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// Memory of a GPU, here of a stand-in, by policy and by description.
GASPI_BODY(gaspi_gpu_segments) {
  const RankMemory own(MemoryChoice::stand_in, 8192);
  ASSERT_DONE(gaspi_segment_create(kFrom, 8192, GASPI_GROUP_ALL, kLong, GASPI_MEM_INITIALIZED | GASPI_MEM_GPU));
  ASSERT_DONE(gaspi_segment_use(kTo, own.address(), 8192, GASPI_GROUP_ALL, kLong, GASPI_MEM_GPU));
  fill_pattern(numbers<char>(kFrom), 8192, me.rank());  // a stand-in: the CPU may
  ASSERT_DONE(gaspi_write_notify(kFrom, 0, next(me), kTo, 0, 8192, 4, 1, 0, kLong));
  EXPECT_EQ(take(kTo, 4), 1U);
  EXPECT_TRUE(is_pattern(own.address(), 8192, previous(me)));
  ASSERT_DONE(gaspi_wait(0, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_segment_delete(kTo));
}

// --- Writes and reads -----------------------------------------------------------------------------------------------------------

GASPI_BODY(gaspi_write_and_read) {
  make_segments();
  fill_pattern(numbers<char>(kFrom), kBytes, me.rank());
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_write(kFrom, 0, next(me), kTo, 0, kBytes, 3, kLong));
  ASSERT_DONE(gaspi_write(kFrom, 8, next(me), kTo, 8, 0, 3, kLong)) << "no bytes";
  gaspi_number_t size = 99;
  ASSERT_DONE(gaspi_queue_size(3, &size));
  EXPECT_EQ(size, 1U) << "a write of nothing is no request";
  ASSERT_DONE(gaspi_notify(kTo, next(me), 1, 77, 3, kLong));
  EXPECT_EQ(take(kTo, 1), 77U);
  EXPECT_TRUE(is_pattern(numbers<char>(kTo), kBytes, previous(me))) << "it came before the write of its queue";
  ASSERT_DONE(gaspi_wait(3, kLong));
  ASSERT_DONE(gaspi_queue_size(3, &size));
  EXPECT_EQ(size, 0U);
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_read(kTo, 4096, next(me), kFrom, 100, 5000, 0, kLong));
  ASSERT_DONE(gaspi_wait(0, kLong));
  EXPECT_TRUE(is_pattern(numbers<char>(kTo) + 4096, 5000, next(me), 100));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

GASPI_BODY(gaspi_arguments) {
  make_segments();
  const gaspi_rank_t to = next(me);
  const auto ranks = gaspi_rank_t(me.rank_count());
  using Post = gaspi_return_t (*)(gaspi_segment_id_t, gaspi_offset_t, gaspi_rank_t, gaspi_segment_id_t, gaspi_offset_t,
                                  gaspi_size_t, gaspi_queue_id_t, gaspi_timeout_t);
  const Post write_notify = [](gaspi_segment_id_t from, gaspi_offset_t at, gaspi_rank_t rank, gaspi_segment_id_t segment,
                               gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue, gaspi_timeout_t timeout) {
    return gaspi_write_notify(from, at, rank, segment, there, size, 0, 1, queue, timeout);
  };
  const Post read_notify = [](gaspi_segment_id_t from, gaspi_offset_t at, gaspi_rank_t rank, gaspi_segment_id_t segment,
                              gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue, gaspi_timeout_t timeout) {
    return gaspi_read_notify(from, at, rank, segment, there, size, 0, queue, timeout);
  };
  const Post write_list = [](gaspi_segment_id_t from, gaspi_offset_t at, gaspi_rank_t rank, gaspi_segment_id_t segment,
                             gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue, gaspi_timeout_t timeout) {
    return gaspi_write_list(1, &from, &at, rank, &segment, &there, &size, queue, timeout);
  };
  const Post read_list = [](gaspi_segment_id_t from, gaspi_offset_t at, gaspi_rank_t rank, gaspi_segment_id_t segment,
                            gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue, gaspi_timeout_t timeout) {
    return gaspi_read_list(1, &from, &at, rank, &segment, &there, &size, queue, timeout);
  };
  const Post write_list_notify = [](gaspi_segment_id_t from, gaspi_offset_t at, gaspi_rank_t rank, gaspi_segment_id_t segment,
                                    gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue, gaspi_timeout_t timeout) {
    return gaspi_write_list_notify(1, &from, &at, rank, &segment, &there, &size, kTo, 0, 1, queue, timeout);
  };
  const Post read_list_notify = [](gaspi_segment_id_t from, gaspi_offset_t at, gaspi_rank_t rank, gaspi_segment_id_t segment,
                                   gaspi_offset_t there, gaspi_size_t size, gaspi_queue_id_t queue, gaspi_timeout_t timeout) {
    return gaspi_read_list_notify(1, &from, &at, rank, &segment, &there, &size, kFrom, 0, queue, timeout);
  };
  unsigned which = 0;
  for (const Post post : {Post(gaspi_write), Post(gaspi_read), write_notify, read_notify, write_list, read_list, write_list_notify,
                          read_list_notify}) {
    SCOPED_TRACE("function " + std::to_string(which++));
    EXPECT_CODE(GASPI_ERR_INV_SEG, post(9, 0, to, kTo, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_SEG, post(255, 0, to, kTo, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_LOC_OFF, post(kFrom, kBytes - 7, to, kTo, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_LOC_OFF, post(kFrom, ~0UL, to, kTo, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_RANK, post(kFrom, 0, ranks, kTo, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_SEG, post(kFrom, 0, to, 9, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_SEG, post(kFrom, 0, to, 255, 0, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_REM_OFF, post(kFrom, 0, to, kTo, kBytes - 7, 8, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, post(kFrom, 0, to, kTo, 0, (1UL << 30) + 1, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_QUEUE, post(kFrom, 0, to, kTo, 0, 8, 8, kLong)) << "it was not created";
    EXPECT_CODE(GASPI_ERR_INV_QUEUE, post(kFrom, 0, to, kTo, 0, 8, 200, kLong));
  }
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_VAL, gaspi_notify(kTo, to, 0, 0, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify(kTo, to, 65536, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify(9, to, 0, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_notify(kTo, ranks, 0, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_notify(kTo, to, 0, 1, 9, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_VAL, gaspi_write_notify(kFrom, 0, to, kTo, 0, 8, 0, 0, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_write_notify(kFrom, 0, to, kTo, 0, 8, 65536, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_read_notify(kFrom, 0, to, kTo, 0, 8, 65536, 0, kLong));
  gaspi_segment_id_t from = kFrom, there = kTo;
  gaspi_offset_t zero = 0;
  gaspi_size_t eight = 8;
  for (const gaspi_number_t number : {0U, 256U}) {
    EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_write_list(number, &from, &zero, to, &there, &zero, &eight, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_read_list(number, &from, &zero, to, &there, &zero, &eight, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_write_list_notify(number, &from, &zero, to, &there, &zero, &eight, kTo, 0, 1, 0, kLong));
    EXPECT_CODE(GASPI_ERR_INV_NUM, gaspi_read_list_notify(number, &from, &zero, to, &there, &zero, &eight, kTo, 0, 0, kLong));
  }
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_write_list(1, nullptr, &zero, to, &there, &zero, &eight, 0, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_read_list(1, &from, nullptr, to, &there, &zero, &eight, 0, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_write_list_notify(1, &from, &zero, to, nullptr, &zero, &eight, kTo, 0, 1, 0, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_read_list_notify(1, &from, &zero, to, &there, &zero, nullptr, kTo, 0, 0, kLong));
  gaspi_number_t size = 99;
  ASSERT_DONE(gaspi_queue_size(0, &size));
  EXPECT_EQ(size, 0U) << "a refused call has posted something";
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// --- Lists ----------------------------------------------------------------------------------------------------------------------

GASPI_BODY(gaspi_lists) {
  make_segments();
  constexpr gaspi_number_t kPieces = 255;
  fill_pattern(numbers<char>(kFrom), kBytes, me.rank());
  std::vector<gaspi_segment_id_t> from(kPieces, kFrom), to(kPieces, kTo);
  std::vector<gaspi_offset_t> there(kPieces), here(kPieces);
  std::vector<gaspi_size_t> sizes(kPieces);
  for (gaspi_number_t i = 0; i < kPieces; ++i) {
    there[i] = 2000 * i;
    here[i] = 1000 * i;
    sizes[i] = 1 + i;
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_write_list_notify(kPieces, from.data(), here.data(), next(me), to.data(), there.data(), sizes.data(), kTo, 30,
                                      5, 1, kLong));
  EXPECT_EQ(take(kTo, 30), 5U);
  for (gaspi_number_t i = 0; i < kPieces; ++i) {
    ASSERT_TRUE(is_pattern(numbers<char>(kTo) + there[i], sizes[i], previous(me), here[i])) << i;
    ASSERT_TRUE(is_filled(numbers<char>(kTo) + there[i] + sizes[i], 100, 0)) << i;
  }
  gaspi_number_t size = 0;
  ASSERT_DONE(gaspi_queue_size(1, &size));
  EXPECT_EQ(size, kPieces + 1);
  ASSERT_DONE(gaspi_wait(1, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  ASSERT_DONE(gaspi_write_list(kPieces, from.data(), here.data(), next(me), to.data(), here.data(), sizes.data(), 1, kLong));
  ASSERT_DONE(gaspi_wait(1, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  std::memset(numbers<char>(kTo), 0, kBytes);
  ASSERT_DONE(gaspi_read_list(kPieces, to.data(), there.data(), next(me), from.data(), here.data(), sizes.data(), 2, kLong));
  ASSERT_DONE(gaspi_wait(2, kLong));
  for (gaspi_number_t i = 0; i < kPieces; ++i)
    ASSERT_TRUE(is_pattern(numbers<char>(kTo) + there[i], sizes[i], next(me), here[i])) << i;
  std::memset(numbers<char>(kTo), 0, kBytes);
  ASSERT_DONE(gaspi_read_list_notify(kPieces, to.data(), there.data(), next(me), from.data(), here.data(), sizes.data(), kFrom, 31,
                                     2, kLong));
  EXPECT_EQ(take(kFrom, 31), 1U);
  for (gaspi_number_t i = 0; i < kPieces; ++i)
    ASSERT_TRUE(is_pattern(numbers<char>(kTo) + there[i], sizes[i], next(me), here[i])) << i;
  ASSERT_DONE(gaspi_wait(2, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// --- Notifications --------------------------------------------------------------------------------------------------------------

GASPI_BODY(gaspi_notifications) {
  make_segments();
  gaspi_notification_id_t first = 99;
  gaspi_notification_t value = 99;
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify_waitsome(9, 0, 1, &first, GASPI_TEST));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify_waitsome(kTo, 65536, 1, &first, GASPI_TEST));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify_waitsome(kTo, 65535, 2, &first, GASPI_TEST));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_notify_waitsome(kTo, 0, 1, nullptr, GASPI_TEST));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_notify_reset(9, 0, &value));
  EXPECT_CODE(GASPI_ERR_INV_NOTIF_ID, gaspi_notify_reset(kTo, 65536, &value));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_notify_reset(kTo, 0, nullptr));
  EXPECT_DONE(gaspi_notify_waitsome(kTo, 0, 0, &first, GASPI_BLOCK)) << "of none";
  EXPECT_EQ(first, 99U);
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_notify_waitsome(kTo, 0, 65536, &first, GASPI_TEST));
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_notify_waitsome(kTo, 0, 65536, &first, 50));
  ASSERT_TRUE(me.meet());
  for (const gaspi_notification_id_t id : {65535U, 900U, 70U}) ASSERT_DONE(gaspi_notify(kTo, next(me), id, id + 1, 0, kLong));
  ASSERT_DONE(gaspi_wait(0, kLong));
  for (const gaspi_notification_id_t id : {70U, 900U, 65535U}) {
    ASSERT_DONE(gaspi_notify_waitsome(kTo, id, 1, &first, GASPI_BLOCK));
    ASSERT_DONE(gaspi_notify_waitsome(kTo, 0, 65536, &first, GASPI_TEST)) << "one is in hand";
    EXPECT_EQ(first, id) << "the lowest";
    ASSERT_DONE(gaspi_notify_reset(kTo, id, &value));
    EXPECT_EQ(value, id + 1);
    ASSERT_DONE(gaspi_notify_reset(kTo, id, &value));
    EXPECT_EQ(value, 0U) << "it was taken";
  }
  ASSERT_TRUE(me.meet());
}

// Several threads take from one range: each notification has one taker. Few of them, since the fabric's lock goes from thread to
// thread with each call, and a busy machine takes its time to switch between threads.
GASPI_BODY(gaspi_many_takers) {
  make_segments();
  constexpr unsigned kCount = 100;
  if (me.rank() == 0) {
    for (unsigned i = 0; i < kCount; ++i) {
      gaspi_return_t posted = GASPI_QUEUE_FULL;
      while ((posted = gaspi_notify(kTo, 1, i, i + 1, 0, kLong)) == GASPI_QUEUE_FULL) ASSERT_DONE(gaspi_wait(0, kLong));
      ASSERT_DONE(posted);
    }
    ASSERT_DONE(gaspi_wait(0, kLong));
  } else if (me.rank() == 1) {
    std::atomic<unsigned> taken{0};
    std::atomic<std::uint64_t> sum{0};
    const auto take_some = [&] {
      while (taken < kCount) {
        gaspi_notification_id_t first = 0;
        gaspi_notification_t value = 0;
        if (gaspi_notify_waitsome(kTo, 0, kCount, &first, 20) != GASPI_SUCCESS) continue;
        if (gaspi_notify_reset(kTo, first, &value) != GASPI_SUCCESS || value == 0) continue;
        ++taken;
        sum += value;
      }
    };
    std::thread one(take_some), two(take_some);
    one.join();
    two.join();
    EXPECT_EQ(taken, kCount);
    EXPECT_EQ(sum, std::uint64_t(kCount) * (kCount + 1) / 2);
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

GASPI_BODY(gaspi_read_and_notify) {
  make_segments();
  fill_pattern(numbers<char>(kFrom), kBytes, me.rank());
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  for (unsigned i = 0; i < 50; ++i) {
    std::memset(numbers<char>(kTo), 0, 70000);
    ASSERT_DONE(gaspi_read_notify(kTo, 0, next(me), kFrom, i, 70000, 9, 4, kLong));
    EXPECT_EQ(take(kTo, 9), 1U);
    ASSERT_TRUE(is_pattern(numbers<char>(kTo), 70000, next(me), i)) << "the notification came before the data, round " << i;
    ASSERT_DONE(gaspi_wait(4, kLong));
  }
  // It is there after the wait too, without anybody looking before; of no bytes too.
  for (const gaspi_size_t bytes : {8UL, 0UL}) {
    ASSERT_DONE(gaspi_read_notify(kTo, 0, next(me), kFrom, 0, bytes, 10, 4, kLong));
    ASSERT_DONE(gaspi_wait(4, kLong));
    gaspi_notification_t value = 0;
    ASSERT_DONE(gaspi_notify_reset(kTo, 10, &value));
    EXPECT_EQ(value, 1U) << bytes << " bytes";
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// More operations end, on other queues, than the fabric keeps reports of, before anybody looks whether the read has.
GASPI_BODY(gaspi_read_and_notify_late) {
  make_segments();
  constexpr gaspi_number_t kPieces = 255;
  constexpr gaspi_queue_id_t kOwn = 0, kUsed = 7;
  std::vector<gaspi_segment_id_t> here(kPieces, kTo), there(kPieces, kFrom);
  std::vector<gaspi_offset_t> at(kPieces, 64);
  std::vector<gaspi_size_t> sizes(kPieces, 8);
  const auto count = static_cast<unsigned>(rounds(10));
  for (unsigned round = 1; round <= count; ++round) {
    ASSERT_DONE(gaspi_read_notify(kTo, 0, next(me), kFrom, 0, 8, round, kOwn, kLong));
    for (gaspi_queue_id_t queue = 1; queue < kUsed; ++queue) {
      for (int list = 0; list < 4; ++list)
        ASSERT_DONE(
            gaspi_read_list(kPieces, here.data(), at.data(), next(me), there.data(), at.data(), sizes.data(), queue, kLong));
    }
    ASSERT_EQ(take(kTo, round), 1U) << "round " << round;
    for (gaspi_queue_id_t queue = 0; queue < kUsed; ++queue) ASSERT_DONE(gaspi_wait(queue, kLong));
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// --- Queues ---------------------------------------------------------------------------------------------------------------------

GASPI_BODY(gaspi_queues) {
  make_segments();
  gaspi_number_t number = 0, most = 0;
  gaspi_queue_id_t queue = 99;
  ASSERT_DONE(gaspi_queue_num(&number));
  EXPECT_EQ(number, 8U);
  ASSERT_DONE(gaspi_queue_max(&most));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_queue_num(nullptr));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_queue_create(nullptr, kLong));
  for (unsigned id = number; id < most; ++id) {
    ASSERT_DONE(gaspi_queue_create(&queue, kLong));
    EXPECT_EQ(queue, id);
    EXPECT_DONE(gaspi_write(kFrom, 0, next(me), kTo, 0, 8, queue, kLong));
  }
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_queue_create(&queue, kLong)) << "there are no more";
  EXPECT_CODE(GASPI_ERROR, gaspi_queue_delete(queue)) << "it is not empty";
  for (unsigned id = number; id < most; ++id) {
    EXPECT_DONE(gaspi_wait(gaspi_queue_id_t(id), kLong));
    EXPECT_DONE(gaspi_queue_delete(gaspi_queue_id_t(id)));
  }
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_queue_delete(queue));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_wait(queue, kLong));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_queue_purge(queue, kLong));
  EXPECT_CODE(GASPI_ERR_INV_QUEUE, gaspi_queue_size(queue, &number));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_queue_size(0, nullptr));
  // A write with its notification is one request.
  gaspi_number_t depth = 0;
  ASSERT_DONE(gaspi_queue_size_max(&depth));
  for (gaspi_number_t i = 0; i < depth; ++i)
    ASSERT_DONE(gaspi_write_notify(kFrom, 0, next(me), kTo, 0, 8, i % 100, 1, 5, kLong)) << i;
  EXPECT_CODE(GASPI_QUEUE_FULL, gaspi_write_notify(kFrom, 0, next(me), kTo, 0, 8, 0, 1, 5, kLong));
  ASSERT_DONE(gaspi_queue_size(5, &number));
  EXPECT_EQ(number, depth);
  gaspi_return_t waited = GASPI_TIMEOUT;
  for (int i = 0; i < 2'000'000 && (waited = gaspi_wait(5, GASPI_TEST)) == GASPI_TIMEOUT; ++i) {
  }
  EXPECT_DONE(waited);
  ASSERT_DONE(gaspi_queue_purge(5, kLong));
  ASSERT_DONE(gaspi_queue_size(5, &number));
  EXPECT_EQ(number, 0U);
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// Threads of one process share a queue.
GASPI_BODY(gaspi_threads_of_a_queue) {
  make_segments();
  std::atomic<unsigned> failures{0};
  const auto post_many = [&](unsigned thread) {
    for (unsigned i = 0; i < 300; ++i) {
      gaspi_return_t code = gaspi_write_notify(kFrom, 0, next(me), kTo, 8 * thread, 8, thread, i + 1, 0, kLong);
      if (code == GASPI_QUEUE_FULL) code = gaspi_wait(0, kLong);
      if (code != GASPI_SUCCESS) ++failures;
    }
  };
  std::thread one(post_many, 1), two(post_many, 2);
  one.join();
  two.join();
  EXPECT_EQ(failures, 0U);
  ASSERT_DONE(gaspi_wait(0, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// --- Passive and atomic ---------------------------------------------------------------------------------------------------------

GASPI_BODY(gaspi_passive) {
  make_segments();
  const auto ranks = gaspi_rank_t(me.rank_count());
  gaspi_rank_t from = 99;
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_passive_send(9, 0, next(me), 8, kLong));
  EXPECT_CODE(GASPI_ERR_INV_LOC_OFF, gaspi_passive_send(kFrom, kBytes, next(me), 8, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_passive_send(kFrom, 0, ranks, 8, kLong));
  EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, gaspi_passive_send(kFrom, 0, next(me), 0, kLong));
  EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, gaspi_passive_send(kFrom, 0, next(me), 65536, kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_passive_receive(9, 0, &from, 8, kLong));
  EXPECT_CODE(GASPI_ERR_INV_LOC_OFF, gaspi_passive_receive(kTo, kBytes, &from, 8, kLong));
  EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, gaspi_passive_receive(kTo, 0, &from, 65536, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_passive_receive(kTo, 0, nullptr, 8, kLong));
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_passive_receive(kTo, 0, &from, 8, GASPI_TEST));
  EXPECT_CODE(GASPI_TIMEOUT, gaspi_passive_receive(kTo, 0, &from, 8, 50));
  ASSERT_TRUE(me.meet());
  for (const gaspi_size_t bytes : {1UL, 64UL, 4096UL, 65535UL}) {
    fill_pattern(numbers<char>(kFrom), bytes, me.rank() + bytes);
    std::thread receiver([&] { EXPECT_DONE(gaspi_passive_receive(kTo, 100, &from, bytes, kLong)); });
    EXPECT_DONE(gaspi_passive_send(kFrom, 0, next(me), bytes, kLong));
    receiver.join();
    EXPECT_EQ(from, previous(me));
    EXPECT_TRUE(is_pattern(numbers<char>(kTo) + 100, bytes, previous(me) + bytes));
    ASSERT_TRUE(me.meet());
  }
  EXPECT_DONE(gaspi_passive_queue_purge(kLong));
  if (me.rank() == 0) {
    EXPECT_DONE(gaspi_passive_send(kFrom, 0, 1, 100, kLong));
  } else if (me.rank() == 1) {
    EXPECT_CODE(GASPI_ERR_INV_COMMSIZE, gaspi_passive_receive(kTo, 0, &from, 50, kLong)) << "it is longer";
  }
  ASSERT_TRUE(me.meet());
}

GASPI_BODY(gaspi_atomics) {
  make_segments();
  const auto ranks = gaspi_rank_t(me.rank_count());
  gaspi_atomic_value_t old = 99;
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_atomic_fetch_add(9, 0, 0, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_atomic_fetch_add(kTo, 0, ranks, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_INV_REM_OFF, gaspi_atomic_fetch_add(kTo, kBytes, 0, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_UNALIGN_OFF, gaspi_atomic_fetch_add(kTo, 4, 0, 1, &old, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_atomic_fetch_add(kTo, 0, 0, 1, nullptr, kLong));
  EXPECT_CODE(GASPI_ERR_INV_SEG, gaspi_atomic_compare_swap(9, 0, 0, 1, 2, &old, kLong));
  EXPECT_CODE(GASPI_ERR_INV_RANK, gaspi_atomic_compare_swap(kTo, 0, ranks, 1, 2, &old, kLong));
  EXPECT_CODE(GASPI_ERR_INV_REM_OFF, gaspi_atomic_compare_swap(kTo, kBytes, 0, 1, 2, &old, kLong));
  EXPECT_CODE(GASPI_ERR_UNALIGN_OFF, gaspi_atomic_compare_swap(kTo, 12, 0, 1, 2, &old, kLong));
  EXPECT_CODE(GASPI_ERR_NULLPTR, gaspi_atomic_compare_swap(kTo, 0, 0, 1, 2, nullptr, kLong));
  constexpr unsigned kTimes = 200;
  for (unsigned i = 0; i < kTimes; ++i) ASSERT_DONE(gaspi_atomic_fetch_add(kTo, 8, 0, me.rank() + 1, &old, kLong));
  // A lock by compare and swap, around a counter that is no atomic's.
  for (unsigned i = 0; i < 20; ++i) {
    do ASSERT_DONE(gaspi_atomic_compare_swap(kTo, 16, 0, 0, me.rank() + 1, &old, kLong));
    while (old != 0);
    ASSERT_DONE(gaspi_read(kFrom, 0, 0, kTo, 24, 8, 0, kLong));
    ASSERT_DONE(gaspi_wait(0, kLong));
    ++*numbers<std::uint64_t>(kFrom);
    ASSERT_DONE(gaspi_write_notify(kFrom, 0, 0, kTo, 24, 8, 60 + me.rank(), 1, 0, kLong));
    ASSERT_DONE(gaspi_wait(0, kLong));
    ASSERT_DONE(gaspi_disconnect(0, kLong));  // the write is in place there
    ASSERT_DONE(gaspi_atomic_compare_swap(kTo, 16, 0, me.rank() + 1, 0, &old, kLong));
    ASSERT_EQ(old, me.rank() + 1);
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  if (me.rank() == 0) {
    EXPECT_EQ(numbers<std::uint64_t>(kTo)[1], std::uint64_t(kTimes) * ranks * (ranks + 1U) / 2);
    EXPECT_EQ(numbers<std::uint64_t>(kTo)[3], 20U * ranks);
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

std::vector<RankSetup> two_and_three() {
  std::vector<RankSetup> all = each_transport(2);
  for (const RankSetup& setup : each_transport(3)) all.push_back(setup);
  return all;
}

class GaspiData : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiData, Segments) { run_gaspi("gaspi_segments", GetParam()); }
TEST_P(GaspiData, SegmentCreateGoesOn) { run_gaspi("gaspi_create_goes_on", GetParam()); }
TEST_P(GaspiData, SegmentComesAgain) { run_gaspi("gaspi_segment_again", GetParam()); }
TEST_P(GaspiData, SegmentsOfAGpu) { run_gaspi("gaspi_gpu_segments", GetParam()); }
TEST_P(GaspiData, WriteAndRead) { run_gaspi("gaspi_write_and_read", GetParam()); }
TEST_P(GaspiData, EachWrongArgumentHasItsCode) { run_gaspi("gaspi_arguments", GetParam()); }
TEST_P(GaspiData, Lists) { run_gaspi("gaspi_lists", GetParam()); }
TEST_P(GaspiData, Notifications) { run_gaspi("gaspi_notifications", GetParam()); }
TEST_P(GaspiData, ManyTakersOfNotifications) { run_gaspi("gaspi_many_takers", GetParam()); }
TEST_P(GaspiData, ReadNotify) { run_gaspi("gaspi_read_and_notify", GetParam()); }
TEST_P(GaspiData, ReadNotifyBehindManyOperations) { run_gaspi("gaspi_read_and_notify_late", GetParam()); }
TEST_P(GaspiData, Queues) { run_gaspi("gaspi_queues", GetParam()); }
TEST_P(GaspiData, ThreadsShareAQueue) { run_gaspi("gaspi_threads_of_a_queue", GetParam()); }
TEST_P(GaspiData, Passive) { run_gaspi("gaspi_passive", GetParam()); }
TEST_P(GaspiData, Atomics) { run_gaspi("gaspi_atomics", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, GaspiData, testing::ValuesIn(two_and_three()), setup_name);

}  // namespace
}  // namespace gigabar::test
