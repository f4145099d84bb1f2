// SPDX-License-Identifier: Apache-2.0
// Writes, reads and lists of them: every size, odd places, nothing beside the place touched, over every transport, memory and path.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLargest = kMiB + 3;
constexpr std::size_t kSpan = kLargest + 64;
constexpr std::array<std::size_t, 22> kSizes{0,     1,     7,     8,          63,       64,      65,   255,
                                             1024,  4095,  4096,  4097,       8191,     8192,    8193, 30 * 1024,
                                             65535, 65536, 65537, 128 * 1024, kMiB - 1, kLargest};

struct Places {
  std::size_t local, remote;
};
// At odd places, and at the very end of both segments.
std::array<Places, 2> places(std::size_t bytes) { return {{{13, 7}, {kSpan - bytes, kSpan - bytes}}}; }

Rank next(const RankProcess& me) { return (me.rank() + 1) % me.rank_count(); }
Rank previous(const RankProcess& me) { return (me.rank() + me.rank_count() - 1) % me.rank_count(); }

void write_once(RankProcess& me, Fabric& fabric, RankSegment& origin, std::size_t bytes, const Places& at) {
  origin.put_pattern(at.local, bytes, me.rank(), at.local);
  const auto posted = fabric.write({kOrigin, at.local}, {next(me), kTarget, at.remote}, bytes);
  ASSERT_TRUE(is_ok(posted)) << bytes << " bytes";
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << bytes << " bytes";
  ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience))) << bytes << " bytes";
  if (next(me) != me.rank()) expect_report(fabric, *posted, me.setup(), bytes);
}

RANK_BODY(write_every_size) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  for (const std::size_t bytes : kSizes) {
    if (!is_always_possible(me.setup(), bytes)) continue;
    for (const Places& at : places(bytes)) {
      target.fill();
      ASSERT_TRUE(me.meet());
      ASSERT_NO_FATAL_FAILURE(write_once(me, fabric, origin, bytes, at));
      ASSERT_TRUE(me.meet());
      ASSERT_TRUE(target.holds_pattern(at.remote, bytes, previous(me), at.local)) << bytes << " bytes to " << at.remote;
      ASSERT_TRUE(target.is_untouched_around(at.remote, bytes)) << bytes << " bytes to " << at.remote;
    }
  }
  EXPECT_TRUE(origin.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

void read_once(RankProcess& me, Fabric& fabric, RankSegment& origin, std::size_t bytes, const Places& at) {
  origin.fill();
  const auto posted = fabric.read({kOrigin, at.local}, {next(me), kTarget, at.remote}, bytes);
  ASSERT_TRUE(is_ok(posted)) << bytes << " bytes";
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << bytes << " bytes";
  ASSERT_TRUE(origin.holds_pattern(at.local, bytes, next(me), at.remote)) << bytes << " bytes to " << at.local;
  ASSERT_TRUE(origin.is_untouched_around(at.local, bytes)) << bytes << " bytes to " << at.local;
  if (next(me) != me.rank()) expect_report(fabric, *posted, me.setup(), bytes);
}

RANK_BODY(read_every_size) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  target.put_pattern(0, kSpan, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  for (const std::size_t bytes : kSizes) {
    if (!is_always_possible(me.setup(), bytes)) continue;
    for (const Places& at : places(bytes)) ASSERT_NO_FATAL_FAILURE(read_once(me, fabric, origin, bytes, at));
  }
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(0, kSpan, me.rank(), 0)) << "reads changed what they read";
  EXPECT_TRUE(target.are_guards_whole());
}

// Segments that begin and end inside a page, side by side with other data.
RANK_BODY(write_and_read_between_odd_segments) {
  constexpr std::size_t kBytes = 100003;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kBytes, 24), target(fabric, kTarget, me.setup().target, kBytes, 1000);
  origin.put_pattern(0, kBytes, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  const std::size_t bytes = me.setup().path == TransferPath::bar ? 4000 : kBytes;
  ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {next(me), kTarget, kBytes - bytes}, bytes)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(kBytes - bytes, bytes, previous(me), 0));
  EXPECT_TRUE(target.is_untouched_around(kBytes - bytes, bytes));
  ASSERT_TRUE(is_ok(fabric.read({kOrigin, 0}, {next(me), kTarget, kBytes - bytes}, bytes)));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  EXPECT_TRUE(origin.holds_pattern(0, bytes, me.rank(), 0)) << "what was written came back";
  EXPECT_TRUE(origin.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

// `amount` bytes there and back.
RANK_BODY(write_and_read_one_large) {
  const std::size_t bytes = me.setup().amount;
  RankSegment origin(fabric, kOrigin, me.setup().origin, bytes + 64), target(fabric, kTarget, me.setup().target, bytes + 64);
  origin.put_pattern(3, bytes, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  ASSERT_NO_FATAL_FAILURE([&] {
    const auto posted = fabric.write({kOrigin, 3}, {next(me), kTarget, 5}, bytes);
    ASSERT_TRUE(is_ok(posted));
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
    expect_report(fabric, *posted, me.setup(), bytes);
  }());
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(5, bytes, previous(me), 0));
  EXPECT_TRUE(target.is_untouched_around(5, bytes));
  origin.fill();
  const auto posted = fabric.read({kOrigin, 1}, {next(me), kTarget, 5}, bytes);
  ASSERT_TRUE(is_ok(posted));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  expect_report(fabric, *posted, me.setup(), bytes);
  EXPECT_TRUE(origin.holds_pattern(1, bytes, me.rank(), 0));
  EXPECT_TRUE(origin.is_untouched_around(1, bytes));
  ASSERT_TRUE(me.meet());
}

// --- Lists ----------------------------------------------------------------------------------------------------------------------

constexpr std::size_t kStride = 256;
constexpr std::size_t kListSpan = kMaxListPieces * kStride;

// Pieces of many sizes, in another order there than here, to two segments in turn.
std::vector<ListPiece> scattered(std::size_t count, std::size_t local_shift) {
  std::vector<ListPiece> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    pieces.push_back({.local = {kOrigin, local_shift + i * kStride + i % 7},
                      .remote_segment = i % 2 == 0 ? kTarget : kSecondTarget,
                      .remote_offset_bytes = (count - 1 - i) * kStride + i % 5,
                      .bytes = (i * 37) % 200});  // some pieces have no bytes
  }
  return pieces;
}

// Bytes outside the pieces are untouched, those inside hold the piece's data.
void expect_scattered(const RankSegment& target, SegmentId id, const std::vector<ListPiece>& pieces, std::uint64_t seed) {
  const std::vector<unsigned char> seen = target.take(0, kListSpan);
  std::vector<unsigned char> right(kListSpan, kCanary);
  for (const ListPiece& piece : pieces) {
    if (piece.remote_segment == id) {
      fill_pattern(right.data() + piece.remote_offset_bytes, piece.bytes, seed, piece.local.offset_bytes);
    }
  }
  const auto wrong = std::mismatch(seen.begin(), seen.end(), right.begin());
  EXPECT_EQ(wrong.first, seen.end()) << pieces.size() << " pieces, segment " << id << ", first difference at "
                                     << wrong.first - seen.begin();
  EXPECT_TRUE(target.are_guards_whole());
}

RANK_BODY(write_and_read_lists) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, 2 * kListSpan), target(fabric, kTarget, me.setup().target, kListSpan),
      second(fabric, kSecondTarget, me.setup().target, kListSpan);
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{255}, std::size_t{kMaxListPieces}}) {
    origin.put_pattern(0, kListSpan, me.rank(), 0);
    target.fill();
    second.fill();
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(is_ok(fabric.write_list(next(me), scattered(count, 0)))) << count << " pieces";
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    ASSERT_TRUE(is_ok(fabric.flush(next(me), kPatience)));
    ASSERT_TRUE(me.meet());
    expect_scattered(target, kTarget, scattered(count, 0), previous(me));
    expect_scattered(second, kSecondTarget, scattered(count, 0), previous(me));
    ASSERT_TRUE(is_ok(fabric.read_list(next(me), scattered(count, kListSpan)))) << count << " pieces";
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    for (const ListPiece& piece : scattered(count, kListSpan)) {
      const std::size_t at = piece.local.offset_bytes;
      ASSERT_TRUE(origin.holds_pattern(at, piece.bytes, me.rank(), at - kListSpan)) << "piece read to " << at;
    }
    ASSERT_TRUE(me.meet());
  }
}

RANK_BODY(notify_after_a_list) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kListSpan), target(fabric, kTarget, me.setup().target, kListSpan),
      second(fabric, kSecondTarget, me.setup().target, kListSpan);
  for (std::uint32_t round = 1; round <= rounds(20); ++round) {
    origin.put_pattern(0, kListSpan, 1000 * round + me.rank(), 0);
    target.fill();
    second.fill();
    ASSERT_TRUE(me.meet());
    const auto pieces = scattered(255, 0);
    ASSERT_TRUE(is_ok(fabric.write_list_notify(next(me), pieces, kTarget, 77, round)));
    ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 77, 1, kPatience)));
    const auto value = fabric.notification_reset(kTarget, 77);
    ASSERT_TRUE(is_ok(value));
    EXPECT_EQ(*value, round);
    expect_scattered(target, kTarget, pieces, 1000 * round + previous(me));
    expect_scattered(second, kSecondTarget, pieces, 1000 * round + previous(me));
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
    ASSERT_TRUE(me.meet());
  }
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

class FabricData : public testing::TestWithParam<RankSetup> {};

TEST_P(FabricData, WritesEverySize) { run_ranks("write_every_size", GetParam()); }
TEST_P(FabricData, ReadsEverySize) { run_ranks("read_every_size", GetParam()); }
TEST_P(FabricData, OddSegments) { run_ranks("write_and_read_between_odd_segments", GetParam()); }
TEST_P(FabricData, Lists) { run_ranks("write_and_read_lists", GetParam()); }
TEST_P(FabricData, NotifiesAfterAList) { run_ranks("notify_after_a_list", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Paths, FabricData, testing::ValuesIn(data_setups()), setup_name);

std::vector<RankSetup> large_setups(std::uint64_t bytes) {
  std::vector<RankSetup> all;
  for (RankSetup setup : data_setups()) {
    if (setup.path == TransferPath::bar || setup.rank_count != 2) continue;
    setup.amount = bytes;
    all.push_back(setup);
  }
  return all;
}

class FabricLargeData : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLargeData, ThereAndBack) { run_ranks("write_and_read_one_large", GetParam(), std::chrono::seconds(100)); }
INSTANTIATE_TEST_SUITE_P(SixteenMiB, FabricLargeData, testing::ValuesIn(large_setups(16 * kMiB + 5)), setup_name);
// Four times that memory is needed: only where it was asked for.
INSTANTIATE_TEST_SUITE_P(OneGiB, FabricLargeData,
                         testing::ValuesIn(std::getenv("GIGABAR_CONFORMANCE_LARGE") != nullptr ? large_setups(1024 * kMiB)
                                                                                               : std::vector<RankSetup>{}),
                         setup_name);

}  // namespace
}  // namespace gigabar::test
