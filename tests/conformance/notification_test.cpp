// SPDX-License-Identifier: Apache-2.0
// Notifications: never before their data, never lost, each id for itself; counters that many ranks add to.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

// --- Order under load -----------------------------------------------------------------------------------------------------------

// A ring of slots in the consumer's segment. The producer fills a batch while the consumer has given back another.
constexpr std::uint32_t kSlots = 128;
constexpr std::uint32_t kBatch = 32;
constexpr std::size_t kSlotBytes = 512;
constexpr NotificationId kCredit = 60000;
constexpr Rank kProducer = 0;
constexpr Rank kConsumer = 1;

// Sizes change from one to the next, so that old data in a slot is never right by accident.
std::size_t load_bytes(std::uint64_t iteration) { return 1 + (iteration * 29) % kSlotBytes; }

void fill_batch(RankSegment& origin, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t i = first; i < end; ++i) origin.put_pattern((i % kSlots) * kSlotBytes, load_bytes(i), i, 0);
}

void produce(Fabric& fabric, RankSegment& origin, std::uint64_t iterations) {
  for (std::uint64_t first = 0; first < iterations; first += kBatch) {
    if (first >= kSlots) {
      ASSERT_TRUE(is_ok(fabric.notification_wait_count(kOrigin, kCredit, 1, kPatience))) << "at " << first;
    }
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << "at " << first;
    const std::uint64_t end = std::min(first + kBatch, iterations);
    fill_batch(origin, first, end);
    for (std::uint64_t i = first; i < end; ++i) {
      const std::uint64_t at = (i % kSlots) * kSlotBytes;
      const auto posted = fabric.write_notify({kOrigin, at}, {kConsumer, kTarget, at}, load_bytes(i), NotificationId(i % kSlots),
                                              std::uint32_t(i + 1));
      ASSERT_TRUE(is_ok(posted)) << "at " << i;
    }
  }
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
}

void consume(Fabric& fabric, const RankSegment& target, std::uint64_t iterations) {
  for (std::uint64_t i = 0; i < iterations; ++i) {
    const auto slot = NotificationId(i % kSlots);
    const auto seen = fabric.notification_wait(kTarget, slot, 1, kPatience);
    ASSERT_TRUE(is_ok(seen)) << "at " << i;
    ASSERT_EQ(*seen, slot);
    const auto value = fabric.notification_reset(kTarget, slot);
    ASSERT_TRUE(is_ok(value));
    ASSERT_EQ(*value, i + 1);
    ASSERT_TRUE(target.holds_pattern(slot * kSlotBytes, load_bytes(i), i, 0)) << "notification " << i << " came before its data";
    if ((i + 1) % kBatch == 0) {
      ASSERT_TRUE(is_ok(post_patiently(
          fabric, 1, [&] { return fabric.notify_add(kProducer, kOrigin, kCredit, 1, {.queue = 1, .policy = std::nullopt}); })));
    }
  }
  ASSERT_TRUE(is_ok(fabric.wait(1, kPatience)));
}

RANK_BODY(notify_under_load) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSlots * kSlotBytes),
      target(fabric, kTarget, me.setup().target, kSlots * kSlotBytes);
  ASSERT_TRUE(me.meet());
  if (me.rank() == kProducer) {
    produce(fabric, origin, me.setup().amount);
  } else if (me.rank() == kConsumer) {
    consume(fabric, target, me.setup().amount);
  }
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.are_guards_whole());
}

// Earlier plain writes of the queue, of sizes that take different ways, are covered by the last notification.
RANK_BODY(notify_covers_earlier_writes) {
  constexpr std::array<std::size_t, 6> kMixed{8, 65536, 200, (std::size_t{1} << 20) + 3, 1, 20000};
  constexpr std::size_t kPlace = (std::size_t{1} << 20) + 64;
  const std::size_t span = kMixed.size() * kPlace;
  RankSegment origin(fabric, kOrigin, me.setup().origin, span), target(fabric, kTarget, me.setup().target, span);
  ASSERT_TRUE(me.meet());
  for (std::uint32_t round = 1; round <= me.setup().amount; ++round) {
    for (std::size_t i = 0; i < kMixed.size() && me.rank() == kProducer; ++i) {
      const std::size_t bytes =
          std::min(kMixed[(i + round) % kMixed.size()], is_always_possible(me.setup(), kPlace) ? kPlace : 4096);
      origin.put_pattern(i * kPlace, bytes, round, i * kPlace);
      ASSERT_TRUE(is_ok(fabric.write({kOrigin, i * kPlace}, {kConsumer, kTarget, i * kPlace}, bytes)));
    }
    if (me.rank() == kProducer) {
      ASSERT_TRUE(is_ok(fabric.notify(kConsumer, kTarget, 5, round)));
      ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
      ASSERT_TRUE(is_ok(fabric.notification_wait(kOrigin, 6, 1, kPatience))) << "round " << round;
      ASSERT_TRUE(is_ok(fabric.notification_reset(kOrigin, 6)));
      continue;
    }
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 5, 1, kPatience))) << "round " << round;
    ASSERT_TRUE(is_ok(fabric.notification_reset(kTarget, 5)));
    for (std::size_t i = 0; i < kMixed.size(); ++i) {
      const std::size_t bytes =
          std::min(kMixed[(i + round) % kMixed.size()], is_always_possible(me.setup(), kPlace) ? kPlace : 4096);
      ASSERT_TRUE(target.holds_pattern(i * kPlace, bytes, round, i * kPlace)) << "write " << i << " of round " << round;
    }
    ASSERT_TRUE(is_ok(fabric.notify(kProducer, kOrigin, 6, 1)));
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  }
  ASSERT_TRUE(me.meet());
}

// --- Ids and values -------------------------------------------------------------------------------------------------------------

RANK_BODY(wait_for_ranges) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  const Rank other = (me.rank() + 1) % me.rank_count();
  ASSERT_TRUE(me.meet());
  for (const NotificationId id : {65535U, 900U, 50U, 70U}) ASSERT_TRUE(is_ok(fabric.notify(other, kTarget, id, id + 1)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(other, kPatience)));
  ASSERT_TRUE(me.meet());
  const auto first_of = [&](NotificationId first, std::uint32_t count) {
    const auto id = fabric.notification_wait(kTarget, first, count, kPatience);
    EXPECT_TRUE(is_ok(id));
    return id.is_ok() ? *id : NotificationId{0};
  };
  EXPECT_EQ(first_of(0, kNotifications), 50U) << "the lowest of all";
  EXPECT_EQ(first_of(51, 100), 70U);
  EXPECT_EQ(first_of(70, 1), 70U);
  EXPECT_EQ(first_of(71, kNotifications - 71), 900U);
  EXPECT_EQ(first_of(901, kNotifications - 901), 65535U);
  EXPECT_EQ(first_of(0, kNotifications), 50U) << "waiting takes nothing";
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 0, 50, Timeout::test()), Status::timed_out));
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 51, 19, Timeout::of(std::chrono::milliseconds(20))), Status::timed_out));
  for (const NotificationId id : {50U, 70U, 900U, 65535U}) {
    EXPECT_EQ(first_of(0, kNotifications), id);
    const auto value = fabric.notification_reset(kTarget, id);
    ASSERT_TRUE(is_ok(value));
    EXPECT_EQ(*value, id + 1);
    const auto again = fabric.notification_reset(kTarget, id);
    ASSERT_TRUE(is_ok(again));
    EXPECT_EQ(*again, 0U) << "it was reset before";
  }
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 0, kNotifications, Timeout::test()), Status::timed_out));
  ASSERT_TRUE(me.meet());
}

// Values that overwrite each other: whoever resets sees them ascending, and the last one for certain.
RANK_BODY(reset_is_one_step) {
  const auto last = std::uint32_t(me.setup().amount);
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  ASSERT_TRUE(me.meet());
  if (me.rank() == kProducer) {
    for (std::uint32_t value = 1; value <= last; ++value) {
      ASSERT_TRUE(is_ok(post_patiently(fabric, 0, [&] { return fabric.notify(kConsumer, kTarget, 9, value); })));
    }
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  } else {
    for (std::uint32_t before = 0; before < last;) {
      ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 9, 1, kPatience))) << "after " << before;
      const auto value = fabric.notification_reset(kTarget, 9);
      ASSERT_TRUE(is_ok(value));
      ASSERT_GT(*value, before) << "an older value came again";
      before = *value;
    }
    EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 9, 1, Timeout::of(std::chrono::milliseconds(50))), Status::timed_out));
  }
  ASSERT_TRUE(me.meet());
}

// Every rank, the owner too, adds; some with data. Nothing is lost and nothing is counted twice.
RANK_BODY(add_to_one_counter) {
  const auto each = std::uint32_t(rounds(2000));
  const Rank ranks = me.rank_count();
  const std::size_t place = 64;
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 64), target(fabric, kTarget, MemoryChoice::host, place * ranks);
  origin.put_pattern(0, 64, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  for (std::uint32_t i = 0; i < each; ++i) {
    const std::uint32_t value = 1 + i % 3;
    const auto post = [&] {
      return i % 4 == 0 ? fabric.write_notify_add({kOrigin, 0}, {0, kTarget, place * me.rank()}, place, 5, value)
                        : fabric.notify_add(0, kTarget, 5, value);
    };
    ASSERT_TRUE(is_ok(post_patiently(fabric, 0, post))) << "at " << i;
  }
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  if (me.rank() == 0) {
    std::uint32_t total = 0;
    for (std::uint32_t i = 0; i < each; ++i) total += ranks * (1 + i % 3);
    for (const std::uint32_t part : {1U, total / 3, total - 1 - total / 3}) {
      ASSERT_TRUE(is_ok(fabric.notification_wait_count(kTarget, 5, part, kPatience))) << part << " of " << total;
    }
    EXPECT_TRUE(
        fails(fabric.notification_wait_count(kTarget, 5, 1, Timeout::of(std::chrono::milliseconds(100))), Status::timed_out));
    const auto rest = fabric.notification_reset(kTarget, 5);
    ASSERT_TRUE(is_ok(rest));
    EXPECT_EQ(*rest, 0U);
    for (Rank rank = 0; rank < ranks; ++rank) EXPECT_TRUE(target.holds_pattern(place * rank, place, rank, 0)) << "from " << rank;
  }
  ASSERT_TRUE(me.meet());
}

// A waiter that has long slept is woken, by a rank and by a thread of its own process.
RANK_BODY(wake_a_sleeping_waiter) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  ASSERT_TRUE(me.meet());
  if (me.rank() == kConsumer) {
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 1, 3, kPatience)));
    ASSERT_TRUE(is_ok(fabric.notify(kConsumer, kTarget, 8, 3)));
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 8, 1, kPatience)));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    ASSERT_TRUE(is_ok(fabric.notify(kConsumer, kTarget, 3, 1)));
  }
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(me.meet());
}

// Threads wait in a segment that another one deregisters: they are told, and wait no longer.
RANK_BODY(deregister_under_waiters) {
  RankMemory memory(MemoryChoice::host, 4096);
  ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, memory.address(), 4096)));
  ASSERT_TRUE(me.meet());
  Result<void> counted, raised;
  std::thread counting([&] { counted = fabric.notification_wait_count(kTarget, 5, 1, kPatience); });
  std::thread waiting([&] {
    const auto first = fabric.notification_wait(kTarget, 0, 4, kPatience);
    if (!first) raised = Result<void>(Error(first.error()));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // by then both wait; before, they would be told the same
  EXPECT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience)));
  counting.join();
  waiting.join();
  EXPECT_TRUE(fails(counted, Status::invalid_argument, "segment"));
  EXPECT_TRUE(fails(raised, Status::invalid_argument, "segment"));
}

// Each of two threads that sleep for a word of its own is woken by it, whichever of them sleeps on the descriptors.
RANK_BODY(wake_two_sleeping_threads) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
  for (std::uint32_t round = 0; round < 4; ++round) {
    ASSERT_TRUE(me.meet());
    if (me.rank() == kConsumer) {
      const auto wait_for = [&](NotificationId id) {
        EXPECT_TRUE(is_ok(fabric.notification_wait(kTarget, id, 1, kPatience))) << "round " << round << ", thread of " << id;
        EXPECT_TRUE(is_ok(fabric.notification_reset(kTarget, id)));
      };
      std::thread other([&] { wait_for(1); });
      wait_for(2);
      other.join();
    } else {
      for (const NotificationId id : {1 + round % 2, 2 - round % 2}) {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        ASSERT_TRUE(is_ok(fabric.notify(kConsumer, kTarget, id, 1)));
      }
    }
  }
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(me.meet());
}

// Three writers count, with and without data, while the owner takes what is there by both calls: all of it, and no more.
RANK_BODY(count_while_it_is_taken) {
  const auto each = std::uint32_t(rounds(30'000));
  constexpr std::size_t kBytes = 20'000;
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kBytes), target(fabric, kTarget, MemoryChoice::host, kBytes * 4);
  origin.put_pattern(0, kBytes, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  if (me.rank() != 0) {
    for (std::uint32_t i = 0; i < each; ++i) {
      const auto post = [&] {
        return i % 16 == 0
                   ? fabric.write_notify_add({kOrigin, 0}, {0, kTarget, kBytes * me.rank()}, i % 32 == 0 ? kBytes : 40, 5, 2)
                   : fabric.notify_add(0, kTarget, 5, 2);
      };
      ASSERT_TRUE(is_ok(post_patiently(fabric, 0, post))) << "at " << i;
    }
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  } else {
    const std::uint64_t total = std::uint64_t{each} * 2 * (me.rank_count() - 1);
    std::uint64_t taken = 0;
    for (unsigned turn = 0; taken < total; ++turn) {
      if (turn % 2 == 0) {
        ASSERT_TRUE(is_ok(fabric.notification_wait_count(kTarget, 5, 2, kPatience))) << taken << " of " << total;
        taken += 2;
      } else {
        const auto value = fabric.notification_reset(kTarget, 5);
        ASSERT_TRUE(is_ok(value));
        taken += *value;
      }
    }
    EXPECT_EQ(taken, total);
    for (Rank rank = 1; rank < me.rank_count(); ++rank) EXPECT_TRUE(target.holds_pattern(kBytes * rank, kBytes, rank, 0));
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() == 0) {
    const auto rest = fabric.notification_reset(kTarget, 5);
    ASSERT_TRUE(is_ok(rest));
    EXPECT_EQ(*rest, 0U);
  }
  ASSERT_TRUE(me.meet());
}

// The notifications go with their segment: those of a new one of the same id are all 0, and peers raise them as before.
RANK_BODY(replace_the_segment) {
  for (std::uint32_t round = 1; round <= 5; ++round) {
    RankSegment target(fabric, kTarget, MemoryChoice::host, 64);
    ASSERT_TRUE(me.meet());
    if (me.rank() == kConsumer) {
      if (round > 1) {
        EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 0, 9, Timeout::test()), Status::timed_out)) << "round " << round;
      }
      ASSERT_TRUE(me.meet());
      ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 8, 1, kPatience)));
      const auto value = fabric.notification_reset(kTarget, 8);
      ASSERT_TRUE(is_ok(value));
      EXPECT_EQ(*value, round);
      ASSERT_TRUE(is_ok(fabric.notification_wait_count(kTarget, 7, round, kPatience)));
    } else {
      ASSERT_TRUE(me.meet());
      ASSERT_TRUE(is_ok(fabric.notify_add(kConsumer, kTarget, 7, round + 1)));  // one of it stays
      ASSERT_TRUE(is_ok(fabric.notify(kConsumer, kTarget, 8, round)));
      ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    }
    ASSERT_TRUE(me.meet());
  }
}

// The report says which way a notification went, and why it was not a word.
RANK_BODY(report_the_way) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 100'000), target(fabric, kTarget, MemoryChoice::host, 100'000);
  ASSERT_TRUE(me.meet());
  if (me.rank() == kProducer) {
    const auto way_of = [&](const Result<Operation>& posted) {
      EXPECT_TRUE(is_ok(posted));
      EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
      const auto report = posted ? fabric.report(*posted) : Result<OperationReport>(Error(posted.error()));
      return report ? report->notification : report.error().message();
    };
    // tests/vm names the devices.
    const char* const rails = std::getenv("GIGABAR_CONFORMANCE_RAILS");
    const bool is_iwarp = rails != nullptr && std::string(rails).find("siw") == 0;
    const std::string expected = me.setup().transport == TransportKind::local ? "a word behind the data, over shared memory"
                                 : me.setup().transport == TransportKind::ucx ? "in a message: over UCX"
                                 : me.setup().transport == TransportKind::tcp ? "in a message: over TCP"
                                 : is_iwarp                                   ? "in a message: iWARP may place a later write first"
                                                                              : "a word behind the data, over ";
    EXPECT_EQ(way_of(fabric.write({kOrigin, 0}, {kConsumer, kTarget, 0}, 100'000)), "");
    EXPECT_EQ(way_of(fabric.notify(kConsumer, kTarget, 1, 1)).find(expected), 0U) << "without data";
    EXPECT_EQ(way_of(fabric.write_notify({kOrigin, 0}, {kConsumer, kTarget, 0}, 100'000, 2, 1)).find(expected), 0U);
    // Behind bytes that travelled in a message the peer's CPU raises it, until it has said that they are in place.
    const bool is_word = expected.find("a word") == 0;
    EXPECT_TRUE(is_ok(fabric.write_in_order(&expected, {kConsumer, kTarget, 0}, 8)));
    EXPECT_EQ(way_of(fabric.notify(kConsumer, kTarget, 3, 1)).find(is_word ? "in a message: what was before it" : expected), 0U);
    ASSERT_TRUE(is_ok(fabric.flush(kConsumer, kPatience)));
    EXPECT_EQ(way_of(fabric.notify(kConsumer, kTarget, 4, 1)).find(expected), 0U);
    // Where the link writes few bytes as fast as a message, a program that only polls between its writes comes back to words too.
    const bool is_quick = me.setup().transport == TransportKind::verbs && is_word;
    EXPECT_TRUE(is_ok(fabric.write_in_order(&expected, {kConsumer, kTarget, 0}, 8)));
    const auto write_little = [&] { return way_of(fabric.write_notify({kOrigin, 0}, {kConsumer, kTarget, 64}, 8, 5, 1)); };
    EXPECT_EQ(write_little(), "in the message with the data");
    const Deadline deadline = Deadline::after_ns(kPatience.ns());
    std::string way;
    do {
      for (const Deadline gap = Deadline::after_ns(10'000'000); !gap.has_passed();) ASSERT_TRUE(is_ok(fabric.progress()));
      way = write_little();
    } while (is_quick && way.find("a word") != 0 && !deadline.has_passed());
    EXPECT_EQ(way.find(is_quick ? expected : "in the message with the data"), 0U) << way;
    ASSERT_TRUE(is_ok(fabric.flush(kConsumer, kPatience)));
    if (is_quick) {
      EXPECT_EQ(way_of(fabric.notify(kConsumer, kTarget, 60'000, 1)).find("in a message: adapters write the notifications below"),
                0U);
    } else {
      EXPECT_EQ(way_of(fabric.notify(kConsumer, kTarget, 60'000, 1)).find(expected), 0U);
    }
  } else {
    for (const NotificationId id : {1U, 2U, 3U, 4U, 5U, 60'000U})
      ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, id, 1, kPatience)));
  }
  ASSERT_TRUE(me.meet());
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

// More than a million where the link is memory: every counter of 16 bits wraps many times.
std::vector<RankSetup> load_setups() {
  std::vector<RankSetup> all;
  for (RankSetup setup : data_setups()) {
    if (setup.rank_count != 2) continue;
    const bool is_plain = setup.path == TransferPath::none && setup.origin == setup.target;
    if (setup.transport == TransportKind::local) {
      setup.amount = setup.origin == MemoryChoice::host && is_plain ? 600'000 : (is_plain ? 300'000 : 60'000);
      // Copies of a copy engine, and pipelines, take their time for each.
      if (setup.path == TransferPath::staged || setup.path == TransferPath::p2p) setup.amount = 20'000;
    } else {
      setup.amount = is_plain ? 70'000 : 10'000;
    }
    setup.amount = rounds(setup.amount);
    all.push_back(setup);
  }
  return all;
}

class FabricNotificationLoad : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricNotificationLoad, NeverBeforeItsData) { run_ranks("notify_under_load", GetParam(), std::chrono::seconds(110)); }
TEST_P(FabricNotificationLoad, CoversEarlierWrites) {
  RankSetup setup = GetParam();
  setup.amount = rounds(100);
  run_ranks("notify_covers_earlier_writes", setup);
}
INSTANTIATE_TEST_SUITE_P(Paths, FabricNotificationLoad, testing::ValuesIn(load_setups()), setup_name);

class FabricNotifications : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricNotifications, LowestOfARangeFirst) { run_ranks("wait_for_ranges", GetParam()); }
TEST_P(FabricNotifications, ManyRanksAddToOneCounter) { run_ranks("add_to_one_counter", GetParam()); }
TEST_P(FabricNotifications, EndWithTheirSegment) { run_ranks("deregister_under_waiters", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricNotifications, testing::ValuesIn(rank_setups()), setup_name);

class FabricNotificationPair : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricNotificationPair, ResetIsOneStep) {
  RankSetup setup = GetParam();
  setup.amount = rounds(setup.transport == TransportKind::local ? 100'000 : 70'000);
  run_ranks("reset_is_one_step", setup, std::chrono::seconds(100));
}
TEST_P(FabricNotificationPair, WakesASleepingWaiter) { run_ranks("wake_a_sleeping_waiter", GetParam()); }
TEST_P(FabricNotificationPair, WakesEachOfTwoSleepingThreads) { run_ranks("wake_two_sleeping_threads", GetParam()); }
TEST_P(FabricNotificationPair, GoesWithItsSegment) { run_ranks("replace_the_segment", GetParam()); }
TEST_P(FabricNotificationPair, ItsWayIsReported) { run_ranks("report_the_way", GetParam()); }
class FabricNotificationCount : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricNotificationCount, IsExactWhileItIsTaken) {
  run_ranks("count_while_it_is_taken", GetParam(), std::chrono::seconds(100));
}
INSTANTIATE_TEST_SUITE_P(Writers, FabricNotificationCount, testing::ValuesIn(each_transport(4)), setup_name);

INSTANTIATE_TEST_SUITE_P(Transports, FabricNotificationPair, testing::ValuesIn(each_transport(2)), setup_name);

}  // namespace
}  // namespace gigabar::test
