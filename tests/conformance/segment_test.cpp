// SPDX-License-Identifier: Apache-2.0
// The lives of segments: after quiesce() nothing lands, after deregistering nothing finds the old memory, whoever still writes.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr Rank kOwner = 0;

PostOptions on(QueueId queue) { return {.queue = queue, .policy = std::nullopt}; }

// One write, read or notification to the owner, of a size and at a place that change each time. What it answers is not judged:
// the segment comes and goes meanwhile.
Result<void> disturb(Fabric& fabric, std::uint64_t i, std::size_t span) {
  constexpr std::array<std::size_t, 5> kSizes{8, 300, 4096, 70000, 300000};
  const std::size_t bytes = std::min(kSizes[i % kSizes.size()], span);
  const std::uint64_t at = (i * 7919) % (span - bytes + 1);
  const auto queue = QueueId(i % 4);
  const Result<Operation> posted = i % 7 == 0   ? fabric.read({kOrigin, at}, {kOwner, kTarget, at}, bytes, on(queue))
                                   : i % 7 == 1 ? fabric.write_notify({kOrigin, at}, {kOwner, kTarget, at}, bytes, 3, 1, on(queue))
                                                : fabric.write({kOrigin, at}, {kOwner, kTarget, at}, bytes, on(queue));
  if (!posted && posted.status() != Status::busy) return Error(posted.error());
  return i % 4 == 3 ? fabric.wait(queue, Timeout::of(std::chrono::milliseconds(20))) : Result<void>();
}

// Until the owner says that it is over. A connection that was cut is made anew.
void disturb_until_told(RankProcess& me, Fabric& fabric, std::size_t span) {
  std::atomic<bool> is_over{false};
  std::thread listener([&] {
    EXPECT_EQ(me.hear(), "over");
    is_over = true;
  });
  for (std::uint64_t i = me.rank(); !is_over; ++i) {
    if (disturb(fabric, i, span).status() == Status::peer_lost) static_cast<void>(fabric.forget(kOwner));
  }
  listener.join();
  for (QueueId queue = 0; queue < 4; ++queue) {
    const Result<void> last = fabric.wait(queue, kPatience);
    EXPECT_NE(last.status(), Status::timed_out) << "queue " << int(queue) << " never came to its end";
  }
}

// After the owner has enabled the segment again a write gets through.
void expect_a_write_lands(Fabric& fabric, std::uint64_t seed) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Result<void> last;
  do {
    if (last.status() == Status::peer_lost) static_cast<void>(fabric.forget(kOwner));
    last = Result<void>();
    const auto posted = fabric.write({kOrigin, 0}, {kOwner, kTarget, 0}, 64, on(9));
    if (!posted) last = Error(posted.error());
    if (last) last = fabric.wait(9, kPatience);
    if (last) last = fabric.flush(kOwner, kPatience);
  } while (!last && std::chrono::steady_clock::now() < give_up);
  EXPECT_TRUE(is_ok(last)) << "seed " << seed;
}

// Until the others' writes land, so that it is they that are stopped.
void wait_for_fire(const RankMemory& memory, std::size_t span) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (memory.is_untouched(0, span) && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(memory.is_untouched(0, span)) << "nobody writes: the test is worth nothing";
}

RANK_BODY(quiesce_under_fire) {
  constexpr std::size_t kSpan = kMiB;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  origin.put_pattern(0, kSpan, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  if (me.rank() != kOwner) {
    disturb_until_told(me, fabric, kSpan);
    ASSERT_TRUE(me.meet());
    expect_a_write_lands(fabric, me.rank());
    ASSERT_TRUE(me.meet());
    return;
  }
  wait_for_fire(target, kSpan);
  std::uint64_t landed = 0;
  for (std::uint64_t round = 0; round < me.setup().amount; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + round % 5 * 7));
    if (!target.is_untouched(0, kSpan)) ++landed;
    // Of a segment that is enabled it changes nothing, and so nothing of what the others know of it.
    if (round % 2 == 0) {
      ASSERT_TRUE(is_ok(fabric.enable(kTarget)));
    }
    ASSERT_TRUE(is_ok(fabric.quiesce(kTarget, kPatience))) << "round " << round;
    target.fill();
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 4 == 0 ? 150 : 20));
    ASSERT_TRUE(target.is_untouched_around(0, 0)) << "round " << round << ": a write landed after quiesce()";
    ASSERT_TRUE(is_ok(fabric.enable(kTarget))) << "round " << round;
  }
  EXPECT_GT(landed, 0U) << "nobody wrote: the test is worth nothing";
  me.tell("done");
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.are_guards_whole());
}

// What this rank reads itself may land in its quiesced segment; a write of the peer that would be the answer may not, and is not
// asked for.
RANK_BODY(read_into_quiesced) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kMiB), target(fabric, kTarget, me.setup().target, kMiB);
  target.put_pattern(0, kMiB, me.rank(), 0);
  const Rank other = (me.rank() + 1) % me.rank_count();
  const bool is_plain = me.setup().origin == MemoryChoice::host && me.setup().target == MemoryChoice::host;
  ASSERT_TRUE(me.meet());
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{30000}, kMiB}) {
    for (const bool is_enabled : {true, false, true}) {
      ASSERT_TRUE(is_ok(is_enabled ? fabric.enable(kOrigin) : fabric.quiesce(kOrigin, kPatience)));
      origin.fill();
      const auto posted = fabric.read({kOrigin, 0}, {other, kTarget, 0}, bytes);
      if (!posted) {
        EXPECT_FALSE(is_enabled || is_plain) << bytes << " bytes: " << posted.error().message();
        EXPECT_TRUE(fails(posted, Status::unavailable, "is quiesced"));
        EXPECT_TRUE(origin.is_untouched(0, kMiB));
        continue;
      }
      ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << bytes << " bytes, " << (is_enabled ? "enabled" : "quiesced");
      EXPECT_TRUE(origin.holds_pattern(0, bytes, other, 0)) << bytes << " bytes";
    }
  }
  ASSERT_TRUE(me.meet());
}

// The same id with other memory, a smaller piece of it: the old memory is never written again, and nothing beside the new one.
RANK_BODY(reuse_an_id_under_fire) {
  constexpr std::size_t kLarge = kMiB, kSmall = 70000;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kLarge);
  origin.put_pattern(0, kLarge, me.rank(), 0);
  std::array<RankMemory, 2> memory{RankMemory(me.setup().target, kLarge), RankMemory(me.setup().target, kLarge)};
  if (me.rank() == kOwner) {
    EXPECT_TRUE(is_ok(fabric.register_segment(kTarget, memory[0].address(), kLarge)));
  }
  ASSERT_TRUE(me.meet());
  if (me.rank() != kOwner) {
    disturb_until_told(me, fabric, kLarge);
    ASSERT_TRUE(me.meet());
    expect_a_write_lands(fabric, me.rank());
    ASSERT_TRUE(me.meet());
    return;
  }
  wait_for_fire(memory[0], kLarge);
  for (std::uint64_t round = 0; round < me.setup().amount; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + round % 5 * 7));
    RankMemory& old = memory[round % 2];
    RankMemory& fresh = memory[(round + 1) % 2];
    ASSERT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience))) << "round " << round;
    old.fill();
    fresh.fill();
    const std::size_t bytes = round % 2 == 0 ? kSmall : kLarge;
    ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, fresh.address(), bytes))) << "round " << round;
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 4 == 0 ? 100 : 20));
    ASSERT_TRUE(old.is_untouched_around(0, 0)) << "round " << round << ": a write landed in memory that is registered no more";
    ASSERT_TRUE(fresh.is_untouched(bytes, kLarge - bytes)) << "round " << round << ": a write landed beyond the segment's end";
    ASSERT_TRUE(fresh.are_guards_whole()) << "round " << round;
  }
  me.tell("done");
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience)));
}

// A peer that knows the old segment is told that the new one is smaller.
RANK_BODY(know_the_new_size) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096);
  RankMemory large(me.setup().target, 4096), small(me.setup().target, 100);
  const Rank other = 1 - me.rank();
  ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, large.address(), 4096)));
  ASSERT_TRUE(me.meet());
  const auto write_last = [&](std::uint64_t end) -> Result<void> {
    const auto posted = fabric.write({kOrigin, 0}, {other, kTarget, end - 8}, 8);
    if (!posted) return Error(posted.error());
    Result<void> waited = fabric.wait(0, kPatience);
    return waited ? fabric.flush(other, kPatience) : std::move(waited);
  };
  EXPECT_TRUE(is_ok(write_last(4096)));
  const auto before = fabric.remote_segment(other, kTarget, kPatience);
  ASSERT_TRUE(is_ok(before));
  EXPECT_EQ(before->bytes, 4096U);
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(fails(write_last(4096), Status::out_of_range)) << "no such segment now";
  EXPECT_TRUE(fails(fabric.remote_segment(other, kTarget, kPatience), Status::out_of_range));
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, small.address(), 100)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(fails(write_last(4096), Status::out_of_range)) << "beyond the new end";
  EXPECT_TRUE(is_ok(write_last(100)));
  const auto after = fabric.remote_segment(other, kTarget, kPatience);
  ASSERT_TRUE(is_ok(after));
  EXPECT_EQ(after->bytes, 100U);
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(small.is_untouched(0, 92));
  EXPECT_TRUE(small.are_guards_whole());
  ASSERT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience)));
}

RANK_BODY(tell_the_kind) {
  RankSegment target(fabric, kTarget, me.setup().target, 12345);
  ASSERT_TRUE(me.meet());
  for (Rank rank = 0; rank < me.rank_count(); ++rank) {
    const auto seen = fabric.remote_segment(rank, kTarget, kPatience);
    ASSERT_TRUE(is_ok(seen));
    EXPECT_EQ(seen->bytes, 12345U);
    const bool is_stand_in = seen->kind == MemoryKind::stand_in;
    EXPECT_EQ(is_stand_in, me.setup().target == MemoryChoice::stand_in) << gigabar::name_of(seen->kind);
  }
  ASSERT_TRUE(me.meet());
}

// Every id at once, each with a little of one block of memory.
RANK_BODY(register_every_id) {
  constexpr std::size_t kEach = 64;
  RankMemory memory(me.setup().target, kMaxSegments * kEach);
  for (SegmentId id = 0; id < kMaxSegments; ++id) {
    ASSERT_TRUE(is_ok(fabric.register_segment(id, memory.address() + id * kEach, kEach))) << "segment " << id;
  }
  memory.put_pattern(0, kMaxSegments * kEach, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  const Rank other = (me.rank() + 1) % me.rank_count();
  for (SegmentId id = 0; id < kMaxSegments; id += 2) {  // the odd ones here take the even ones there
    const auto posted = fabric.read({SegmentId(id + 1), 0}, {other, id, 0}, kEach, on(QueueId(id % kQueues)));
    ASSERT_TRUE(is_ok(posted)) << "segment " << id;
  }
  for (QueueId queue = 0; queue < kQueues; ++queue) ASSERT_TRUE(is_ok(fabric.wait(queue, kPatience)));
  for (SegmentId id = 0; id < kMaxSegments; id += 2) {
    EXPECT_TRUE(memory.holds_pattern((id + 1U) * kEach, kEach, other, std::uint64_t{id} * kEach)) << "segment " << id;
  }
  ASSERT_TRUE(me.meet());
  for (SegmentId id = 0; id < kMaxSegments; ++id) ASSERT_TRUE(is_ok(fabric.deregister_segment(id, kPatience))) << "segment " << id;
}

// Registering again and again keeps nothing.
RANK_BODY(register_many_times) {
  RankMemory memory(me.setup().target, kMiB);
  RankSegment origin(fabric, kOrigin, me.setup().origin, 64);
  const Rank other = 1 - me.rank();
  std::size_t descriptors = 0;
  std::size_t resident = 0;
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(is_ok(fabric.register_segment(kTarget, memory.address(), kMiB)));
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
    ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {other, kTarget, std::uint64_t(round) * 64}, 64)));
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    ASSERT_TRUE(is_ok(fabric.flush(other, kPatience)));
    ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
    ASSERT_TRUE(is_ok(fabric.deregister_segment(kTarget, kPatience)));
    if (round == 50) {
      descriptors = open_descriptors();
      resident = resident_bytes();
    }
  }
  EXPECT_LE(open_descriptors(), descriptors + 2);
  EXPECT_LT(resident_bytes(), resident + 16 * kMiB);
}

// While a post waits for its peer, its own segment goes, and one of the same number and less memory comes.
BARE_RANK_BODY(shrink_under_a_post) {
  std::vector<std::byte> large(65536), small(4096);
  auto opened = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  ASSERT_TRUE(is_ok(fabric.register_segment(kOrigin, large.data(), large.size())));
  std::atomic<bool> is_begun{false};
  std::thread poster([&] {
    is_begun = true;
    EXPECT_TRUE(fails(fabric.write({kOrigin, small.size()}, {1, kTarget, 0}, 64), Status::out_of_range));
  });
  while (!is_begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it waits for rank 1, which is not there
  ASSERT_TRUE(is_ok(fabric.deregister_segment(kOrigin, kPatience)));
  ASSERT_TRUE(is_ok(fabric.register_segment(kOrigin, small.data(), small.size())));
  me.tell("changed");
  poster.join();
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());
}
RANK_BODY(come_late) {
  const RankSegment target(fabric, kTarget, MemoryChoice::host, 8192);
  ASSERT_TRUE(me.meet());
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

std::vector<RankSetup> fire_setups() {
  std::vector<RankSetup> all;
  for (RankSetup setup : data_setups()) {
    if (setup.rank_count != 2 || setup.origin != setup.target) continue;
    setup.rank_count = 3;
    setup.amount = std::max<std::uint64_t>(rounds(20), 6);
    all.push_back(setup);
  }
  return all;
}

void run_under_fire(const char* body, const RankSetup& setup) {
  RankJob job(body, setup);
  job.start_all();
  EXPECT_TRUE(job.hear(kOwner, "done"));
  for (Rank rank = 1; rank < setup.rank_count; ++rank) job.tell(rank, "over");
  job.finish();
}

class FabricSegmentsUnderFire : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricSegmentsUnderFire, NothingLandsAfterQuiesce) { run_under_fire("quiesce_under_fire", GetParam()); }
TEST_P(FabricSegmentsUnderFire, OldMemoryIsNeverWritten) { run_under_fire("reuse_an_id_under_fire", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Paths, FabricSegmentsUnderFire, testing::ValuesIn(fire_setups()), setup_name);

class FabricSegments : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricSegments, QuiescedOnesMayBeReadInto) { run_ranks("read_into_quiesced", GetParam()); }
TEST_P(FabricSegments, PeersKnowTheNewSize) { run_ranks("know_the_new_size", GetParam()); }
TEST_P(FabricSegments, TellTheirKind) { run_ranks("tell_the_kind", GetParam()); }
TEST_P(FabricSegments, EveryId) { run_ranks("register_every_id", GetParam()); }
TEST_P(FabricSegments, KeepNothing) { run_ranks("register_many_times", GetParam()); }
TEST(FabricSegment, ThatShrinksUnderAPostIsLookedAtAgain) {
  RankJob job("come_late", RankSetup{});
  job.set_body(0, "shrink_under_a_post");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "changed"));
  job.start(1);
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Memory, FabricSegments, testing::ValuesIn(memory_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
