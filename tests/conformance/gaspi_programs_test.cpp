// SPDX-License-Identifier: Apache-2.0
// Programs as users of GASPI write them, on host memory and on memory of (stand-in) devices. Each checks its own result.
#include <cmath>
#include <cstring>

#include "conformance/gaspi_ranks.hpp"

namespace gigabar::test {
namespace {

constexpr gaspi_segment_id_t kSegment = 0;

// Of the setup's memory; a stand-in's may be used by the CPU.
void make_segment(const RankProcess& me, gaspi_size_t bytes) {
  const gaspi_alloc_t policy =
      me.setup().target == MemoryChoice::host ? GASPI_MEM_INITIALIZED : GASPI_MEM_INITIALIZED | GASPI_MEM_GPU;
  ASSERT_DONE(gaspi_segment_create(kSegment, bytes, GASPI_GROUP_ALL, kLong, policy));
  std::memset(numbers<char>(kSegment), 0, bytes);
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

gaspi_rank_t at(const RankProcess& me, Rank distance) { return gaspi_rank_t((me.rank() + distance) % me.rank_count()); }

// A token goes round; each rank adds itself.
GASPI_BODY(program_ring) {
  constexpr unsigned kTurns = 50;
  make_segment(me, 64);
  auto* token = numbers<std::uint64_t>(kSegment);
  for (unsigned turn = 1; turn <= kTurns; ++turn) {
    if (me.rank() != 0) {
      ASSERT_EQ(take(kSegment, 0), turn);
      token[1] = token[0] + me.rank() + 1;
    } else {
      token[1] = (turn == 1 ? 0 : token[0]) + 1;
    }
    ASSERT_DONE(gaspi_write_notify(kSegment, 8, at(me, 1), kSegment, 0, 8, 0, turn, 0, kLong));
    ASSERT_DONE(gaspi_wait(0, kLong));
    if (me.rank() == 0) {
      ASSERT_EQ(take(kSegment, 0), turn);
    }
  }
  const std::uint64_t ranks = me.rank_count();
  if (me.rank() == 0) {
    EXPECT_EQ(token[0], kTurns * ranks * (ranks + 1) / 2);
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

GASPI_BODY(program_ping_pong) {
  constexpr gaspi_size_t kMax = 1 << 18;
  make_segment(me, 2 * kMax);
  auto* data = numbers<unsigned char>(kSegment);
  for (gaspi_size_t bytes = 1; bytes <= kMax && me.rank() < 2; bytes *= 4) {
    const auto other = gaspi_rank_t(1 - me.rank());
    if (me.rank() == 0) {
      std::memset(data, int(bytes % 251 + 1), bytes);
      ASSERT_DONE(gaspi_write_notify(kSegment, 0, other, kSegment, kMax, bytes, 1, 1, 0, kLong));
    }
    ASSERT_EQ(take(kSegment, 1), 1U);
    for (gaspi_size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[kMax + i], bytes % 251 + 1) << "byte " << i << " of " << bytes;
    if (me.rank() == 1) {
      ASSERT_DONE(gaspi_write_notify(kSegment, kMax, other, kSegment, kMax, bytes, 1, 1, 0, kLong));
    }
    ASSERT_DONE(gaspi_wait(0, kLong));
  }
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// Blocks of a plane on a ring of ranks in each direction: edges of rows by one write, of columns by a list.
GASPI_BODY(program_halo) {
  constexpr std::size_t kSide = 32, kRow = kSide + 2, kCells = kRow * kRow;
  make_segment(me, kCells * sizeof(double));
  auto* cell = numbers<double>(kSegment);
  const auto value = [&](Rank rank, unsigned step, std::size_t row, std::size_t column) {
    return rank * 1e6 + step * 1e4 + double(row * 100 + column);
  };
  enum : gaspi_notification_id_t { kAbove, kBelow, kLeft, kRight };
  const gaspi_rank_t before = at(me, me.rank_count() - 1), after = at(me, 1);
  const auto place = [](std::size_t row, std::size_t column) { return (row * kRow + column) * sizeof(double); };
  for (unsigned step = 0; step < 10; ++step) {
    for (std::size_t row = 1; row <= kSide; ++row) {
      for (std::size_t column = 1; column <= kSide; ++column) cell[row * kRow + column] = value(me.rank(), step, row, column);
    }
    constexpr gaspi_size_t kEdge = kSide * sizeof(double);
    ASSERT_DONE(gaspi_write_notify(kSegment, place(1, 1), before, kSegment, place(kSide + 1, 1), kEdge, kBelow, 1, 0, kLong));
    ASSERT_DONE(gaspi_write_notify(kSegment, place(kSide, 1), after, kSegment, place(0, 1), kEdge, kAbove, 1, 0, kLong));
    std::vector<gaspi_segment_id_t> segments(kSide, kSegment);
    std::vector<gaspi_offset_t> from(kSide), to(kSide);
    std::vector<gaspi_size_t> sizes(kSide, sizeof(double));
    for (const bool is_left : {true, false}) {
      for (std::size_t row = 1; row <= kSide; ++row) {
        from[row - 1] = place(row, is_left ? 1 : kSide);
        to[row - 1] = place(row, is_left ? kSide + 1 : 0);
      }
      ASSERT_DONE(gaspi_write_list_notify(kSide, segments.data(), from.data(), is_left ? before : after, segments.data(), to.data(),
                                          sizes.data(), kSegment, is_left ? kRight : kLeft, 1, 1, kLong));
    }
    for (const gaspi_notification_id_t id : {kAbove, kBelow, kLeft, kRight}) ASSERT_EQ(take(kSegment, id), 1U);
    for (std::size_t i = 1; i <= kSide; ++i) {
      ASSERT_EQ(cell[i], value(before, step, kSide, i)) << "above";
      ASSERT_EQ(cell[(kSide + 1) * kRow + i], value(after, step, 1, i)) << "below";
      ASSERT_EQ(cell[i * kRow], value(before, step, i, kSide)) << "left";
      ASSERT_EQ(cell[i * kRow + kSide + 1], value(after, step, i, 1)) << "right";
    }
    ASSERT_DONE(gaspi_wait(0, kLong));
    ASSERT_DONE(gaspi_wait(1, kLong));
    ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
  }
}

// A matrix by blocks of rows: each block goes to its rank as soon as it is packed, and is placed as soon as it comes.
GASPI_BODY(program_transpose) {
  constexpr std::size_t kBlock = 24;
  const std::size_t ranks = me.rank_count(), side = ranks * kBlock, block_bytes = kBlock * kBlock * sizeof(double);
  make_segment(me, 2 * ranks * block_bytes);
  auto* packed = numbers<double>(kSegment);
  double* arrived = packed + ranks * kBlock * kBlock;
  const auto value = [&](std::size_t row, std::size_t column) { return double(row * side + column); };
  for (std::size_t to = 0; to < ranks; ++to) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      for (std::size_t j = 0; j < kBlock; ++j)
        packed[to * kBlock * kBlock + j * kBlock + i] = value(me.rank() * kBlock + i, to * kBlock + j);
    }
    ASSERT_DONE(gaspi_write_notify(kSegment, to * block_bytes, gaspi_rank_t(to), kSegment, (ranks + me.rank()) * block_bytes,
                                   block_bytes, me.rank(), 1, 0, kLong));
  }
  std::vector<double> result(kBlock * side, -1);
  for (std::size_t done = 0; done < ranks; ++done) {
    gaspi_notification_id_t from = 0;
    gaspi_notification_t seen = 0;
    ASSERT_DONE(gaspi_notify_waitsome(kSegment, 0, gaspi_number_t(ranks), &from, kLong));
    ASSERT_DONE(gaspi_notify_reset(kSegment, from, &seen));
    ASSERT_EQ(seen, 1U);
    for (std::size_t j = 0; j < kBlock; ++j)
      std::memcpy(&result[j * side + from * kBlock], arrived + (from * kBlock + j) * kBlock, kBlock * sizeof(double));
  }
  for (std::size_t row = 0; row < kBlock; ++row) {
    for (std::size_t column = 0; column < side; ++column)
      ASSERT_EQ(result[row * side + column], value(column, me.rank() * kBlock + row)) << row << ", " << column;
  }
  ASSERT_DONE(gaspi_wait(0, kLong));
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// A reduction of notifications alone: pieces go round the ring, each rank adds what has come to its own and passes it on.
GASPI_BODY(program_notified_allreduce) {
  constexpr std::size_t kPiece = 1000;
  const std::size_t ranks = me.rank_count(), piece_bytes = kPiece * sizeof(double);
  make_segment(me, 3 * ranks * piece_bytes);
  auto* own = numbers<double>(kSegment);
  double* came = own + ranks * kPiece;  // one place for each step: nobody waits for room
  for (std::size_t i = 0; i < ranks * kPiece; ++i) own[i] = double(i % 97) * (me.rank() + 1);
  const auto piece = [&](std::size_t index) { return (index % ranks) * kPiece; };
  for (std::size_t step = 0; step + 1 < 2 * ranks - 1; ++step) {
    const std::size_t sent = piece(me.rank() + 2 * ranks - step), next = piece(me.rank() + 2 * ranks - step - 1);
    ASSERT_DONE(gaspi_write_notify(kSegment, sent * sizeof(double), at(me, 1), kSegment, (ranks + step) * piece_bytes, piece_bytes,
                                   gaspi_notification_id_t(step), 1, 0, kLong));
    ASSERT_EQ(take(kSegment, gaspi_notification_id_t(step)), 1U);
    ASSERT_DONE(gaspi_wait(0, kLong));
    for (std::size_t i = 0; i < kPiece; ++i) {
      const double value = came[step * kPiece + i];
      own[next + i] = step + 1 < ranks ? own[next + i] + value : value;
    }
  }
  const double factor = double(ranks * (ranks + 1)) / 2;
  for (std::size_t i = 0; i < ranks * kPiece; ++i) ASSERT_EQ(own[i], double(i % 97) * factor) << i;
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

// A rod, warm at one end: compared with the same steps of one process.
GASPI_BODY(program_heat) {
  constexpr std::size_t kCells = 40;
  constexpr unsigned kSteps = 60;
  const std::size_t ranks = me.rank_count(), all = ranks * kCells;
  constexpr std::size_t kRow = kCells + 2;
  make_segment(me, 2 * kRow * sizeof(double));
  auto* rod = numbers<double>(kSegment);
  std::vector<double> whole(all + 2, 0), other(all + 2, 0);
  whole[0] = other[0] = 100;
  enum : gaspi_notification_id_t { kFromLeft, kFromRight };
  const bool is_first = me.rank() == 0, is_last = me.rank() + 1 == ranks;
  if (is_first) rod[0] = rod[kRow] = 100;
  for (unsigned step = 0; step < kSteps; ++step) {
    const double* now = rod + (step % 2) * kRow;
    double* then = rod + ((step + 1) % 2) * kRow;
    for (std::size_t i = 1; i <= kCells; ++i) then[i] = now[i] + 0.25 * (now[i - 1] - 2 * now[i] + now[i + 1]);
    for (std::size_t i = 1; i <= all; ++i) other[i] = whole[i] + 0.25 * (whole[i - 1] - 2 * whole[i] + whole[i + 1]);
    whole.swap(other);
    const gaspi_offset_t base = ((step + 1) % 2) * kRow * sizeof(double);
    const auto place = [&](std::size_t i) { return base + i * sizeof(double); };
    if (!is_first) {
      ASSERT_DONE(gaspi_write_notify(kSegment, place(1), gaspi_rank_t(me.rank() - 1), kSegment, place(kCells + 1), sizeof(double),
                                     2 * (step % 2) + kFromRight, step + 1, 0, kLong));
    }
    if (!is_last) {
      ASSERT_DONE(gaspi_write_notify(kSegment, place(kCells), gaspi_rank_t(me.rank() + 1), kSegment, place(0), sizeof(double),
                                     2 * (step % 2) + kFromLeft, step + 1, 0, kLong));
    }
    if (!is_first) {
      ASSERT_EQ(take(kSegment, 2 * (step % 2) + kFromLeft), step + 1);
    }
    if (!is_last) {
      ASSERT_EQ(take(kSegment, 2 * (step % 2) + kFromRight), step + 1);
    }
    ASSERT_DONE(gaspi_wait(0, kLong));
    double warmth = 0, total = 0;
    for (std::size_t i = 1; i <= kCells; ++i) warmth += then[i];
    if (step % 20 == 19) {
      ASSERT_DONE(gaspi_allreduce(&warmth, &total, 1, GASPI_OP_SUM, GASPI_TYPE_DOUBLE, GASPI_GROUP_ALL, kLong));
    }
    if (step % 20 == 19) {
      double expected = 0;
      for (std::size_t i = 1; i <= all; ++i) expected += whole[i];
      ASSERT_NEAR(total, expected, 1e-9 * expected);
    }
  }
  const double* end = rod + (kSteps % 2) * kRow;
  for (std::size_t i = 1; i <= kCells; ++i) ASSERT_DOUBLE_EQ(end[i], whole[me.rank() * kCells + i]) << "cell " << i;
  ASSERT_DONE(gaspi_barrier(GASPI_GROUP_ALL, kLong));
}

std::vector<RankSetup> program_setups() {
  std::vector<RankSetup> all;
  for (const Rank count : {2U, 4U}) {
    for (RankSetup setup : each_transport(count)) {
      all.push_back(setup);
      setup.origin = setup.target = MemoryChoice::stand_in;
      all.push_back(setup);
    }
  }
  return all;
}

class GaspiPrograms : public testing::TestWithParam<RankSetup> {};
TEST_P(GaspiPrograms, Ring) { run_gaspi("program_ring", GetParam()); }
TEST_P(GaspiPrograms, PingPong) { run_gaspi("program_ping_pong", GetParam()); }
TEST_P(GaspiPrograms, Halo) { run_gaspi("program_halo", GetParam()); }
TEST_P(GaspiPrograms, Transpose) { run_gaspi("program_transpose", GetParam()); }
TEST_P(GaspiPrograms, NotifiedAllreduce) { run_gaspi("program_notified_allreduce", GetParam()); }
TEST_P(GaspiPrograms, Heat) { run_gaspi("program_heat", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, GaspiPrograms, testing::ValuesIn(program_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
