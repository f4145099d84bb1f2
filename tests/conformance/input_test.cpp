// SPDX-License-Identifier: Apache-2.0
// Bad input of every public call: an error that names the argument, and nothing done.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <thread>

#include "conformance/rank_segment.hpp"
#include "gigabar/device_session.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr SegmentId kUnknown = 999;

PostOptions on(QueueId queue) { return {.queue = queue, .policy = std::nullopt}; }

// What only the peer can know is told by wait or flush. It ends here, so that its failure is not another call's.
template <class Posted>
void expect_refused(Fabric& fabric, Rank rank, const Posted& posted, std::string_view text) {
  if (!posted.is_ok()) {
    EXPECT_TRUE(refuses(posted, text));
    return;
  }
  Result<void> late = fabric.wait(0, kPatience);
  if (late) late = fabric.flush(rank, kPatience);
  EXPECT_TRUE(refuses(late, text)) << "neither the call nor wait nor flush";
}
// An explanation may also say that it is not possible.
void expect_not_possible(const Result<Explanation>& said, std::string_view text) {
  if (said.is_ok()) {
    EXPECT_FALSE(said->is_possible) << said->reason;
  } else {
    EXPECT_TRUE(refuses(said, text));
  }
}

// Wrong arguments of one-sided operations, with `rank` as a right peer.
void refuse_places(Fabric& fabric, Rank rank, Rank wrong_rank) {
  const LocalPlace here{kOrigin, 0};
  const RemotePlace there{rank, kTarget, 0};
  struct Case {
    LocalPlace local;
    RemotePlace remote;
    std::uint64_t bytes;
    const char* text;
  };
  const std::array<Case, 15> cases{{
      {{kUnknown, 0}, there, 8, "999"},
      {{kMaxSegments, 0}, there, 8, "1024"},
      {{65535, 0}, there, 8, "65535"},
      {{kOrigin, kBytes}, there, 1, "4096"},
      {{kOrigin, 0}, there, kBytes + 1, "4097"},
      {{kOrigin, kMost}, there, 1, ""},
      {{kOrigin, kMost - 7}, there, 16, ""},
      {{kOrigin, 8}, there, kMost, ""},
      {here, {wrong_rank, kTarget, 0}, 8, "rank"},
      {here, {kAnyRank, kTarget, 0}, 8, "rank"},
      {here, {rank, kMaxSegments, 0}, 8, "1024"},
      {here, {rank, kUnknown, 0}, 8, "999"},
      {here, {rank, kTarget, kBytes}, 1, ""},
      {here, {rank, kTarget, kMost}, 1, ""},
      {here, {rank, kTarget, kMost - 7}, 16, ""},
  }};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const auto& [local, remote, bytes, text] = cases[i];
    expect_refused(fabric, rank, fabric.write(local, remote, bytes), text);
    expect_refused(fabric, rank, fabric.read(local, remote, bytes), text);
    expect_refused(fabric, rank, fabric.write_notify(local, remote, bytes, 1, 1), text);
    expect_refused(fabric, rank, fabric.write_notify_add(local, remote, bytes, 1, 1), text);
    expect_not_possible(fabric.explain_write(local, remote, bytes, kPatience), text);
    expect_not_possible(fabric.explain_read(local, remote, bytes, kPatience), text);
    const std::array<ListPiece, 2> pieces{{{here, kTarget, 0, 8}, {local, remote.segment, remote.offset_bytes, bytes}}};
    expect_refused(fabric, rank, fabric.write_list(remote.rank, pieces), text);
    expect_refused(fabric, rank, fabric.read_list(remote.rank, pieces), text);
    expect_refused(fabric, rank, fabric.write_list_notify(remote.rank, pieces, kTarget, 1, 1), text);
  }
}

void refuse_posts(Fabric& fabric, Rank rank) {
  const LocalPlace here{kOrigin, 0};
  const RemotePlace there{rank, kTarget, 0};
  EXPECT_TRUE(refuses(fabric.write(here, there, 8, on(kQueues)), "16"));
  EXPECT_TRUE(refuses(fabric.read(here, there, 8, on(255)), "255"));
  EXPECT_TRUE(refuses(fabric.wait(kQueues, kPatience), "16"));
  const std::array<ListPiece, 1> one{{{here, kTarget, 0, 8}}};
  EXPECT_TRUE(refuses(fabric.write_list(rank, one, on(kQueues)), "16"));
  EXPECT_TRUE(refuses(fabric.post_send(rank, 1, nullptr, 0, on(kQueues)), "16"));
  EXPECT_TRUE(refuses(fabric.post_recv(rank, 1, 0, nullptr, 0, on(kQueues)), "16"));
  EXPECT_TRUE(refuses(fabric.flush(kAnyRank, kPatience), "rank"));
  const std::vector<ListPiece> too_many(kMaxListPieces + 1, ListPiece{here, kTarget, 0, 1});
  EXPECT_TRUE(refuses(fabric.write_list(rank, too_many), "1025"));
  const std::span<const ListPiece> nowhere(static_cast<const ListPiece*>(nullptr), 1);
  EXPECT_TRUE(refuses(fabric.write_list(rank, nowhere), "pieces"));
  EXPECT_TRUE(refuses(fabric.read_list(rank, nowhere), "pieces"));
  const PathPolicy two{.gdr = Preference::require, .staged = Preference::require};
  EXPECT_TRUE(refuses(fabric.write(here, there, 8, {.queue = 0, .policy = two}), "require"));
  for (const std::uint64_t chunk_bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4095}}) {
    PostOptions options;
    options.chunk_bytes = chunk_bytes;
    EXPECT_TRUE(refuses(fabric.write(here, there, 8, options), "chunk_bytes"));
    EXPECT_TRUE(refuses(fabric.read(here, there, 8, options), "chunk_bytes"));
  }
  EXPECT_TRUE(refuses(fabric.report(Operation{kMost})));
  EXPECT_TRUE(refuses(fabric.report(Operation{0})));
}

void refuse_notifications(Fabric& fabric, Rank rank) {
  const LocalPlace here{kOrigin, 0};
  const RemotePlace there{rank, kTarget, 0};
  EXPECT_TRUE(refuses(fabric.notify(rank, kTarget, kNotifications, 1), "65536"));
  EXPECT_TRUE(refuses(fabric.notify(rank, kTarget, 1, 0), "value"));
  EXPECT_TRUE(refuses(fabric.write_notify(here, there, 8, kNotifications, 1), "65536"));
  EXPECT_TRUE(refuses(fabric.write_notify(here, there, 8, 1, 0), "value"));
  EXPECT_TRUE(refuses(fabric.notify_add(rank, kTarget, kNotifications, 1), "65536"));
  expect_refused(fabric, rank, fabric.notify(rank, kUnknown, 1, 1), "999");
  expect_refused(fabric, rank, fabric.notify_add(rank, kMaxSegments, 1, 1), "1024");
  EXPECT_TRUE(refuses(fabric.notification_wait(kUnknown, 0, 1, Timeout::test()), "999"));
  EXPECT_TRUE(refuses(fabric.notification_wait(kTarget, kNotifications, 1, Timeout::test())));
  EXPECT_TRUE(refuses(fabric.notification_wait(kTarget, 1, kNotifications, Timeout::test())));
  EXPECT_TRUE(refuses(fabric.notification_wait(kTarget, 0xffffffff, 0xffffffff, Timeout::test())));
  EXPECT_FALSE(fabric.notification_wait(kTarget, 0, 0, Timeout::test()).is_ok());
  EXPECT_TRUE(refuses(fabric.notification_wait_count(kTarget, kNotifications, 1, Timeout::test())));
  EXPECT_TRUE(refuses(fabric.notification_wait_count(kUnknown, 0, 1, Timeout::test()), "999"));
  EXPECT_TRUE(refuses(fabric.notification_reset(kTarget, kNotifications), "65536"));
  EXPECT_TRUE(refuses(fabric.notification_reset(kUnknown, 0), "999"));
}

void refuse_atomics(Fabric& fabric, Rank rank, Rank wrong_rank) {
  EXPECT_TRUE(refuses(fabric.fetch_add({rank, kTarget, 4}, 1, kPatience), "8"));
  EXPECT_TRUE(refuses(fabric.compare_swap({rank, kTarget, 1}, 1, 2, kPatience), "8"));
  EXPECT_TRUE(refuses(fabric.fetch_add({rank, kTarget, kBytes}, 1, kPatience)));
  EXPECT_TRUE(refuses(fabric.fetch_add({rank, kTarget, kMost - 7}, 1, kPatience)));
  EXPECT_TRUE(refuses(fabric.fetch_add({rank, kUnknown, 0}, 1, kPatience), "999"));
  EXPECT_TRUE(refuses(fabric.compare_swap({rank, kMaxSegments, 0}, 1, 2, kPatience), "1024"));
  EXPECT_FALSE(fabric.fetch_add({wrong_rank, kTarget, 0}, 1, kPatience).is_ok());
}

void refuse_messages(Fabric& fabric, Rank wrong_rank) {
  std::array<char, 8> buffer{};
  EXPECT_TRUE(refuses(fabric.post_send(0, 1, nullptr, 8), "source"));
  EXPECT_TRUE(refuses(fabric.post_recv(0, 1, 1, nullptr, 8), "destination"));
  for (const Rank rank : {wrong_rank, kAnyRank}) {
    EXPECT_TRUE(refuses(fabric.post_send(rank, 1, buffer.data(), 8), "rank"));
  }
  EXPECT_TRUE(refuses(fabric.post_recv(wrong_rank, 1, 1, buffer.data(), 8), "rank"));
  EXPECT_TRUE(refuses(fabric.send(wrong_rank, 1, buffer.data(), 8, kPatience), "rank"));
  EXPECT_TRUE(refuses(fabric.recv(wrong_rank, 1, buffer.data(), 8, kPatience), "rank"));
  EXPECT_TRUE(refuses(fabric.wait_message(Operation{kMost}, Timeout::test())));
  EXPECT_FALSE(fabric.cancel_recv(Operation{kMost}).is_ok());
  const auto written = fabric.write({kOrigin, 0}, {0, kTarget, 0}, 8);
  ASSERT_TRUE(is_ok(written));
  EXPECT_FALSE(fabric.wait_message(*written, Timeout::test()).is_ok()) << "a write is no message";
  EXPECT_FALSE(fabric.cancel_recv(*written).is_ok());
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
}

void refuse_groups(Fabric& fabric, Rank me, Rank count) {
  const std::array<std::int64_t, kMaxReduceElements + 1> many{};
  std::array<std::int64_t, kMaxReduceElements + 1> results{};
  EXPECT_TRUE(refuses(fabric.barrier({me, me}, kPatience), "group"));
  EXPECT_FALSE(fabric.barrier({me, count}, kPatience).is_ok()) << "no such rank";
  EXPECT_FALSE(fabric.barrier({kAnyRank}, kPatience).is_ok());
  if (count > 1) {
    EXPECT_TRUE(refuses(fabric.barrier({1, 0}, kPatience), "group"));
    EXPECT_TRUE(refuses(fabric.barrier({1 - me}, kPatience), "group")) << "it is not of this group";
  }
  const std::span<std::int64_t> room(results);
  EXPECT_FALSE(fabric.all_reduce({me}, ReduceOperation::sum, many, room, kPatience).is_ok()) << "256 elements";
  EXPECT_TRUE(fails(fabric.all_reduce({me}, ReduceOperation::sum, std::span(many).first(4), room.first(3), kPatience),
                    Status::invalid_argument, "results"));
  EXPECT_FALSE(fabric.all_reduce({me}, ReduceOperation(77), std::span(many).first(1), room.first(1), kPatience).is_ok());
}

void refuse_segments(Fabric& fabric) {
  std::array<char, 64> memory{};
  EXPECT_TRUE(refuses(fabric.register_segment(50, nullptr, 64), "address"));
  EXPECT_TRUE(refuses(fabric.register_segment(50, memory.data(), 0), "bytes"));
  EXPECT_TRUE(refuses(fabric.register_segment(kMaxSegments, memory.data(), 64), "1024"));
  EXPECT_TRUE(refuses(fabric.register_segment(kOrigin, memory.data(), 64), "1")) << "the id is in use";
  EXPECT_FALSE(fabric.register_segment(50, memory.data(), std::numeric_limits<std::size_t>::max()).is_ok())
      << "beyond all addresses";
  EXPECT_FALSE(fabric.register_segment(50, reinterpret_cast<void*>(std::uintptr_t{4096}), 64).is_ok()) << "nothing is there";
  void* gone = ::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(gone, 65536);
  EXPECT_FALSE(fabric.register_segment(50, gone, 65536).is_ok()) << "it is mapped no more";
  for (const SegmentId id : {SegmentId{60}, SegmentId{kMaxSegments}, SegmentId{65535}}) {
    EXPECT_FALSE(fabric.quiesce(id, kPatience).is_ok());
    EXPECT_FALSE(fabric.enable(id).is_ok());
    EXPECT_TRUE(refuses(fabric.deregister_segment(id, kPatience), std::to_string(id)));
    EXPECT_TRUE(refuses(fabric.remote_segment(0, id, kPatience), std::to_string(id)));
  }
  EXPECT_FALSE(fabric.remote_segment(kAnyRank, kTarget, kPatience).is_ok());
  EXPECT_FALSE(fabric.connect(kAnyRank, kPatience).is_ok());
  EXPECT_FALSE(fabric.forget(kAnyRank).is_ok());
}

RANK_BODY(refuse_bad_input) {
  const Rank count = me.rank_count(), other = (me.rank() + 1) % count;
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kBytes), target(fabric, kTarget, MemoryChoice::host, kBytes);
  ASSERT_TRUE(me.meet());
  refuse_places(fabric, other, count);
  refuse_posts(fabric, other);
  refuse_notifications(fabric, other);
  refuse_atomics(fabric, other, count);
  refuse_groups(fabric, me.rank(), count);
  refuse_segments(fabric);
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.is_untouched_around(0, 8)) << "the first piece of a bad list may or may not be written";
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 0, kNotifications, Timeout::test()), Status::timed_out))
      << "a refused operation raised a notification";
  ASSERT_TRUE(me.meet());
  refuse_messages(fabric, count);
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric.write({kOrigin, 0}, {other, kTarget, 8}, 8))) << "right ones work afterwards";
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(me.meet());
}

// Pieces of one list that lie over each other are written in some order: each byte is of one of them.
RANK_BODY(write_overlapping_lists) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, 2048), target(fabric, kTarget, me.setup().target, 2048);
  origin.put_pattern(0, 1024, 1, 0);
  origin.put_pattern(1024, 1024, 2, 0);
  const Rank other = (me.rank() + 1) % me.rank_count();
  ASSERT_TRUE(me.meet());
  const std::array<ListPiece, 2> pieces{{{{kOrigin, 0}, kTarget, 0, 1024}, {{kOrigin, 1024}, kTarget, 0, 1024}}};
  ASSERT_TRUE(is_ok(fabric.write_list(other, pieces)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(other, kPatience)));
  ASSERT_TRUE(me.meet());
  const auto seen = target.take(0, 1024);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    ASSERT_TRUE(seen[i] == pattern_byte(i, 1) || seen[i] == pattern_byte(i, 2)) << "byte " << i;
  }
  EXPECT_TRUE(target.is_untouched_around(0, 1024));
  ASSERT_TRUE(me.meet());
}

// --- A fabric that is gone ------------------------------------------------------------------------------------------------------

// Every call, each of which has to answer with `status`.
void every_call_fails(Fabric& fabric, Status status) {
  std::array<char, 64> memory{};
  const std::array<ListPiece, 1> piece{{{{kOrigin, 0}, kTarget, 0, 8}}};
  const std::array<std::int64_t, 1> one{1};
  const std::array<double, 1> real{1};
  std::array<std::int64_t, 1> sum{};
  std::array<double, 1> real_sum{};
  const Timeout soon = Timeout::of(std::chrono::seconds(5));
  EXPECT_TRUE(fails(fabric.connect(0, soon), status));
  EXPECT_TRUE(fails(fabric.forget(0), status));
  EXPECT_TRUE(fails(fabric.register_segment(60, memory.data(), 64), status));
  EXPECT_TRUE(fails(fabric.quiesce(kTarget, soon), status));
  EXPECT_TRUE(fails(fabric.enable(kTarget), status));
  EXPECT_TRUE(fails(fabric.deregister_segment(60, soon), status));
  EXPECT_TRUE(fails(fabric.remote_segment(0, kTarget, soon), status));
  EXPECT_TRUE(fails(fabric.write({kOrigin, 0}, {0, kTarget, 0}, 8), status));
  EXPECT_TRUE(fails(fabric.read({kOrigin, 0}, {0, kTarget, 0}, 8), status));
  EXPECT_TRUE(fails(fabric.write_list(0, piece), status));
  EXPECT_TRUE(fails(fabric.read_list(0, piece), status));
  EXPECT_TRUE(fails(fabric.write_notify({kOrigin, 0}, {0, kTarget, 0}, 8, 1, 1), status));
  EXPECT_TRUE(fails(fabric.write_list_notify(0, piece, kTarget, 1, 1), status));
  EXPECT_TRUE(fails(fabric.notify(0, kTarget, 1, 1), status));
  EXPECT_TRUE(fails(fabric.notify_add(0, kTarget, 1, 1), status));
  EXPECT_TRUE(fails(fabric.write_notify_add({kOrigin, 0}, {0, kTarget, 0}, 8, 1, 1), status));
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 0, 1, soon), status));
  EXPECT_TRUE(fails(fabric.notification_wait_count(kTarget, 0, 1, soon), status));
  EXPECT_TRUE(fails(fabric.notification_reset(kTarget, 0), status));
  EXPECT_TRUE(fails(fabric.wait(0, soon), status));
  EXPECT_TRUE(fails(fabric.flush(0, soon), status));
  EXPECT_TRUE(fails(fabric.report(Operation{1}), status));
  EXPECT_TRUE(fails(fabric.explain_write({kOrigin, 0}, {0, kTarget, 0}, 8, soon), status));
  EXPECT_TRUE(fails(fabric.explain_read({kOrigin, 0}, {0, kTarget, 0}, 8, soon), status));
  EXPECT_TRUE(fails(fabric.fetch_add({0, kTarget, 0}, 1, soon), status));
  EXPECT_TRUE(fails(fabric.compare_swap({0, kTarget, 0}, 1, 2, soon), status));
  EXPECT_TRUE(fails(fabric.post_send(0, 1, memory.data(), 8), status));
  EXPECT_TRUE(fails(fabric.post_recv(0, 1, 1, memory.data(), 8), status));
  EXPECT_TRUE(fails(fabric.wait_message(Operation{1}, soon), status));
  EXPECT_TRUE(fails(fabric.cancel_recv(Operation{1}), status));
  EXPECT_TRUE(fails(fabric.send(0, 1, memory.data(), 8, soon), status));
  EXPECT_TRUE(fails(fabric.recv(0, 1, memory.data(), 8, soon), status));
  EXPECT_TRUE(fails(fabric.barrier({}, soon), status));
  EXPECT_TRUE(fails(fabric.all_reduce({}, ReduceOperation::sum, one, sum, soon), status));
  EXPECT_TRUE(fails(fabric.all_reduce({}, ReduceOperation::sum, real, real_sum, soon), status));
}

BARE_RANK_BODY(use_after_close) {
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  RankMemory memory(MemoryChoice::host, 4096);
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.address(), 4096)));
  ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
  ASSERT_TRUE(is_ok(fabric->close(kPatience)));
  every_call_fails(*fabric, Status::unavailable);
  EXPECT_TRUE(fails(fabric->close(kPatience), Status::unavailable));
  EXPECT_TRUE(fabric->peers().empty() || !fabric->peers().front().is_connected);
  EXPECT_EQ(fabric->rank(), me.rank());
  static_cast<void>(fabric->settings());
  static_cast<void>(fabric->statistics());
}

BARE_RANK_BODY(use_after_move) {
  auto opened = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(opened));
  Fabric first = std::move(*opened);
  Fabric second = std::move(first);
  every_call_fails(first, Status::unavailable);  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_TRUE(fails(DeviceSession::open(first, {}), Status::unavailable, "moved from"));
  EXPECT_FALSE(first.close(kPatience).is_ok());
  EXPECT_TRUE(first.peers().empty());
  EXPECT_EQ(second.rank(), me.rank());
  ASSERT_TRUE(is_ok(second.barrier({}, kPatience))) << "the fabric itself moved";
  first = std::move(second);
  ASSERT_TRUE(is_ok(first.barrier({}, kPatience)));
  ASSERT_TRUE(is_ok(first.close(kPatience)));
}

// A child that was forked can do nothing with the fabric, its end does not disturb it either.
RANK_BODY(use_in_a_forked_child) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kBytes), target(fabric, kTarget, MemoryChoice::host, kBytes);
  ASSERT_TRUE(is_ok(fabric.barrier({}, kPatience)));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    every_call_fails(fabric, Status::foreign_process);
    EXPECT_TRUE(fails(fabric.close(kPatience), Status::foreign_process));
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the failures of the child are above";
  const pid_t destroying = ::fork();
  ASSERT_GE(destroying, 0);
  if (destroying == 0) {
    ::alarm(20);
    {
      const Fabric taken = std::move(fabric);
    }  // its destructor runs here
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(destroying, &status, 0), destroying);
  EXPECT_EQ(status, 0) << "the destructor in the child";
  const Rank other = (me.rank() + 1) % me.rank_count();
  EXPECT_TRUE(is_ok(fabric.write({kOrigin, 0}, {other, kTarget, 0}, 8)));
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  EXPECT_TRUE(is_ok(fabric.flush(other, kPatience)));
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "the parent's fabric goes on";
  ASSERT_TRUE(me.meet());
}

class FabricInput : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricInput, BadArgumentsAreNamed) { run_ranks("refuse_bad_input", GetParam()); }
TEST_P(FabricInput, ClosedFabric) { run_ranks("use_after_close", GetParam()); }
TEST_P(FabricInput, MovedFromFabric) { run_ranks("use_after_move", GetParam()); }
TEST_P(FabricInput, ForkedChild) { run_ranks("use_in_a_forked_child", GetParam()); }
INSTANTIATE_TEST_SUITE_P(OneRank, FabricInput, testing::ValuesIn(each_transport(1)), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoRanks, FabricInput, testing::ValuesIn(each_transport(2)), setup_name);

class FabricOverlap : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricOverlap, EachByteIsOfOnePiece) { run_ranks("write_overlapping_lists", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricOverlap, testing::ValuesIn(memory_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
