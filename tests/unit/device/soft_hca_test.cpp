// SPDX-License-Identifier: Apache-2.0
// SoftHca: what it refuses, and each fault that it can make.
#include "device/soft_hca/soft_hca.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <vector>

#include "rig.hpp"

namespace gigabar::soft_hca::test {
namespace {

TEST(SoftHca, RefusesOptionsAndPlaces) {
  SoftHca hca;
  MemoryTable peer;
  MemoryWire wire(peer);
  device::Queue queue;
  Bytes memory(64 << 10);
  const QueueMemory good{Place::plain(memory.data()), Place::plain(memory.data() + 4096), Place::plain(memory.data() + 8192),
                         Place::plain(memory.data() + 16384)};
  QueueOptions options = Rig::small_ring();
  ASSERT_TRUE(hca.create_queue(options, good, wire, queue));
  for (const std::uint32_t depth : {0U, 3U, 65536U}) {
    options.depth = depth;
    EXPECT_EQ(hca.create_queue(options, good, wire, queue).status(), Status::invalid_argument) << depth;
  }
  options = Rig::small_ring();
  options.is_collapsed = false;
  for (const std::uint32_t cq_depth : {8U, 24U}) {
    options.cq_depth = cq_depth;
    EXPECT_EQ(hca.create_queue(options, good, wire, queue).status(), Status::invalid_argument) << cq_depth;
  }
  options = Rig::small_ring();
  for (Place QueueMemory::* place : {&QueueMemory::ring, &QueueMemory::doorbell_record, &QueueMemory::doorbell, &QueueMemory::cq}) {
    for (const Place bad : {Place{}, Place::plain(memory.data() + 4), Place{memory.data(), 4}}) {
      QueueMemory memory_with_one_bad = good;
      memory_with_one_bad.*place = bad;
      EXPECT_EQ(hca.create_queue(options, memory_with_one_bad, wire, queue).status(), Status::invalid_argument);
    }
  }
}

TEST(SoftHca, HasSoManyQueues) {
  SoftHca hca;
  MemoryTable peer;
  MemoryWire wire(peer);
  device::Queue queue;
  Bytes memory(64 << 10);
  const QueueMemory places{Place::plain(memory.data()), Place::plain(memory.data() + 4096), Place::plain(memory.data() + 8192),
                           Place::plain(memory.data() + 16384)};
  for (std::uint32_t i = 0; i < kMaxQueues; ++i) ASSERT_TRUE(hca.create_queue(Rig::small_ring(), places, wire, queue));
  EXPECT_EQ(hca.create_queue(Rig::small_ring(), places, wire, queue).status(), Status::out_of_memory);
  // Those that were closed make room, in whichever order.
  for (const std::uint32_t index : {700U, 3U, kMaxQueues - 1}) ASSERT_TRUE(hca.close_queue(kFirstQueueNumber + index));
  for (const std::uint32_t index : {3U, 700U, kMaxQueues - 1}) {
    const auto number = hca.create_queue(Rig::small_ring(), places, wire, queue);
    ASSERT_TRUE(number) << number.message();
    EXPECT_EQ(*number, kFirstQueueNumber + index);
    EXPECT_EQ(queue.number, *number);
  }
  EXPECT_EQ(hca.create_queue(Rig::small_ring(), places, wire, queue).status(), Status::out_of_memory);
}

// A number is given out again as late as can be, and the queue that has it then is another one.
TEST(SoftHca, UsesPlacesOfClosedQueuesAgain) {
  Rig rig;
  const std::uint32_t first = rig.queues[0].number;
  Bytes memory(64 << 10);
  const QueueMemory places{Place::plain(memory.data()), Place::plain(memory.data() + 4096), Place::plain(memory.data() + 8192),
                           Place::plain(memory.data() + 16384)};
  device::Queue queue;
  std::uint32_t last = first;
  for (std::uint32_t i = 0; i < 3 * kMaxQueues; ++i) {
    const auto number = rig.hca.create_queue(Rig::small_ring(), places, rig.wires.front(), queue);
    ASSERT_TRUE(number) << number.message() << " after " << i;
    EXPECT_NE(*number, first) << "which is open";
    EXPECT_NE(*number, last) << "which was closed just now";
    last = *number;
    ASSERT_TRUE(rig.hca.close_queue(last));
  }
  Ticket ticket;
  ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), inline_value(1), ticket, kShort), Status::ok);
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::ok);
}

TEST(SoftHca, DoesNothingOfAClosedQueue) {
  Rig rig;
  const std::uint32_t number = rig.queues[0].number;
  Ticket ticket;
  ASSERT_TRUE(rig.hca.close_queue(number));
  EXPECT_EQ(rig.hca.close_queue(number).status(), Status::invalid_argument);
  EXPECT_EQ(rig.hca.set_faults(number, {}).status(), Status::invalid_argument);
  EXPECT_EQ(rig.hca.statistics(number + 1).status(), Status::invalid_argument);
  ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), inline_value(1), ticket, kShort), Status::ok);
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::timed_out);
  EXPECT_TRUE(rig.is_peer_zero());
}

// --- Doorbells -------------------------------------------------------------------------------------------------------------------

Ticket post_word(Rig& rig, std::uint64_t value, std::size_t queue = 0) {
  Ticket ticket;
  EXPECT_EQ(
      device::post_inline_write<kAlone>(Thread{}, rig.queue(queue), rig.at_peer(8 * queue), inline_value(value), ticket, kShort),
      Status::ok);
  return ticket;
}
Status look(Rig& rig, Ticket ticket, std::size_t queue = 0) {
  return device::wait<kAlone>(Thread{}, rig.queue(queue), ticket, Timeout{0});
}

TEST(SoftHca, GoesNoFurtherThanTheRecord) {
  Rig rig;
  const Ticket ticket = post_word(rig, 5);
  std::uint32_t& record = *rig.queue().doorbell_record;
  const std::uint32_t right = record;
  record = mlx5::doorbell_record(0);
  rig.run();
  EXPECT_EQ(look(rig, ticket), Status::timed_out);
  EXPECT_GT(rig.statistics().late_records, 0U);
  record = right;
  rig.run();
  EXPECT_EQ(look(rig, ticket), Status::ok);
}

TEST(SoftHca, GoesNoFurtherThanTheDoorbell) {
  Rig rig;
  const Ticket first = post_word(rig, 5);
  const std::uint64_t doorbell = *rig.queue().doorbell;
  const Ticket second = post_word(rig, 6);
  const std::uint64_t last = std::exchange(*rig.queue().doorbell, doorbell);
  rig.run();
  EXPECT_EQ(look(rig, first), Status::ok);
  EXPECT_EQ(look(rig, second), Status::timed_out);
  *rig.queue().doorbell = last;
  rig.run();
  EXPECT_EQ(look(rig, second), Status::ok);
}

TEST(SoftHca, IgnoresDoorbellsThatAreNotItsOwn) {
  Rig rig;
  const Ticket ticket = post_word(rig, 5);
  const std::uint64_t right = *rig.queue().doorbell;
  for (const std::uint64_t wrong : {mlx5::doorbell(1, rig.queue().number + 1), mlx5::doorbell(17, rig.queue().number)}) {
    *rig.queue().doorbell = wrong;
    rig.run();
    EXPECT_EQ(look(rig, ticket), Status::timed_out);
  }
  EXPECT_EQ(rig.statistics().ignored_doorbells, 2U);
  *rig.queue().doorbell = right;
  rig.run();
  EXPECT_EQ(look(rig, ticket), Status::ok);
}

// --- Stamps ----------------------------------------------------------------------------------------------------------------------

// The words of a WQE, taken out of the ring before the HCA looks, and put back in parts.
class HeldBack {
 public:
  explicit HeldBack(mlx5::Block& block, const mlx5::Block& before) : block_(&block), all_(std::exchange(block, before)) {}
  void let(std::size_t segment) { block_->segments[segment] = all_.segments[segment]; }

 private:
  mlx5::Block* block_;
  mlx5::Block all_;
};

TEST(SoftHca, WaitsForEachSegmentOfATaggedRequest) {
  constexpr std::size_t kSegments = mlx5::kTaggedSegments;
  std::array<std::size_t, kSegments> order{0, 1, 2};
  QueueOptions patient = Rig::small_ring();
  patient.most_late_polls = 1'000'000;
  do {
    Rig rig(patient);
    // A lap whose inline bytes look like stamps of the next one.
    for (std::uint64_t i = 0; i < 16; ++i) {
      const std::uint64_t like_stamp = mlx5::sequence_tag(i + 16);
      Ticket ticket;
      const Inline payload{{like_stamp << 32 | like_stamp, like_stamp, 0, 0}, 12};
      ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(64), payload, ticket, kShort), Status::ok);
      rig.run();
      ASSERT_EQ(look(rig, ticket), Status::ok);
    }
    mlx5::Block& block = rig.queue().ring[0];
    const mlx5::Block before = block;
    const Ticket ticket = post_word(rig, 0x1234'5678'9abc'def0);
    HeldBack request(block, before);
    for (const std::size_t segment : order) {
      rig.run();
      EXPECT_EQ(look(rig, ticket), Status::timed_out);
      EXPECT_EQ(rig.remote.at<std::uint64_t>(0), 0U);
      request.let(segment);
    }
    EXPECT_GT(rig.statistics().late_requests, 0U);
    rig.run();
    EXPECT_EQ(look(rig, ticket), Status::ok);
    EXPECT_EQ(rig.remote.at<std::uint64_t>(0), 0x1234'5678'9abc'def0U);
    for (std::size_t i = 0; i < kSegments; ++i) EXPECT_EQ(block.segments[i].words[mlx5::kTagWord], 0U);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SoftHca, TakesARequestThatNeverComesForAnError) {
  Rig rig;
  mlx5::Block& block = rig.queue().ring[0];
  const mlx5::Block before = block;
  const Ticket ticket = post_word(rig, 5);
  const HeldBack request(block, before);
  rig.run();
  EXPECT_EQ(rig.statistics().late_requests, 2U);
  EXPECT_EQ(look(rig, ticket), Status::device_error);
  EXPECT_EQ(device::error_of<kAlone>(rig.queue()).syndrome, Syndrome::local_operation);
}

// It never arrives either, and is not carried out when it is taken all the same.
TEST(SoftHca, TakesARequestOfAnotherQueueForAnError) {
  Rig rig;
  const Ticket ticket = post_word(rig, 5);
  std::uint32_t& whose = rig.queue().ring[0].segments[0].words[1];
  whose = mlx5::big_endian(mlx5::big_endian(whose) + (1 << 8));
  rig.run();
  EXPECT_EQ(look(rig, ticket), Status::device_error);
  EXPECT_EQ(device::error_of<kAlone>(rig.queue()).syndrome, Syndrome::local_operation);
}

// Only a thread that has the queue to itself, few bytes, and a software HCA: everybody else's WQEs are those of hardware.
TEST(SoftHca, OthersHaveNoStamps) {
  const auto tag_flag = [](Rig& rig) {
    return mlx5::big_endian(rig.queue().ring[0].segments[0].words[0]) & mlx5::kSequenceTagFlag;
  };
  Ticket ticket;
  Rig alone, many, shared, hardware;
  post_word(alone, 5);
  EXPECT_NE(tag_flag(alone), 0U);
  ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, many.queue(), many.at_peer(0), Inline{{1, 2}, 9}, ticket, kShort),
            Status::ok);
  EXPECT_EQ(tag_flag(many), 0U);
  ASSERT_EQ(device::post_inline_write<Sharing::block>(Thread{}, shared.queue(), shared.at_peer(0), inline_value(1), ticket, kShort),
            Status::ok);
  EXPECT_EQ(tag_flag(shared), 0U);
  hardware.queue().waits_for_stores = false;
  post_word(hardware, 5);
  EXPECT_EQ(tag_flag(hardware), 0U);
}

// A number below `end`.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::uint32_t operator()(std::uint64_t end) { return static_cast<std::uint32_t>(random_() % end); }
  std::uint32_t any() { return static_cast<std::uint32_t>(random_()); }

 private:
  std::mt19937 random_;
};

void fill_with_anything(Rig& rig, std::uint32_t index, Draw& draw) {
  constexpr std::uint8_t kOpcodes[] = {0x00, 0x08, 0x09, 0x0a, 0x10, 0x11, 0x12, 0x23, 0x25, 0xff};
  constexpr std::uint8_t kSegmentCounts[] = {1, 3, 3, 3, 3, 4, 4, 2, 3, 3};
  mlx5::Segment* segments = rig.queue().ring[index].segments;
  for (std::uint32_t i = 0; i < 16; ++i) segments[i / 4].words[i % 4] = draw(3) == 0 ? 0 : draw.any();
  if (draw(8) != 0) {
    const std::uint32_t kind = draw(std::size(kOpcodes));
    const std::uint32_t count = draw(4) == 0 ? draw(6) : kSegmentCounts[kind];
    segments[0] =
        mlx5::control_segment(index, static_cast<mlx5::Opcode>(kOpcodes[kind]), rig.queue().number, count, mlx5::kCqUpdate);
  }
  if (draw(2) == 0) segments[1] = mlx5::remote_segment(kPeerBase + draw(2 * kMemoryBytes), rig.peer_key);
  const std::uint32_t bytes = draw(4) == 0 ? draw.any() : draw(64);
  const std::uint32_t data = draw(4);
  if (data < 2) segments[2] = mlx5::data_segment(kLocalBase + draw(2 * kMemoryBytes), rig.local_key, bytes);
  if (data == 2) segments[2].words[0] = mlx5::big_endian(bytes | mlx5::kInlineFlag);
}

// Rings and doorbells are memory that a program can write anything to: whatever stands there, only registered memory is touched,
// and the queue comes to its end.
TEST(SoftHca, SurvivesAnyBytesInTheRing) {
  Draw draw(7);
  int good_count = 0;
  for (int round = 0; round < 2000; ++round) {
    Rig rig;
    for (std::uint32_t i = 0; i < 16; ++i) fill_with_anything(rig, i, draw);
    rig.queue().reserved = rig.queue().ready = 16;
    device::detail::ring_doorbell(rig.queue(), 16, false);
    rig.run();
    EXPECT_NE(device::flush<kAlone>(Thread{}, rig.queue(), Timeout{0}), Status::timed_out);
    const QueueStatistics statistics = rig.statistics();
    if (statistics.cqes > statistics.error_cqes) ++good_count;
  }
  EXPECT_GT(good_count, 100);  // not all of it was nonsense
}

// Any doorbell with any record: the ring holds nothing valid, so nothing is done.
TEST(SoftHca, SurvivesAnyDoorbell) {
  Draw draw(8);
  Rig rig;
  for (int round = 0; round < 3000; ++round) {
    const std::uint64_t index = draw(70000);
    *rig.queue().doorbell = draw(2) == 0 ? mlx5::doorbell(index, rig.queue().number) : std::uint64_t{draw.any()} << 16;
    *rig.queue().doorbell_record = draw(2) == 0 ? mlx5::doorbell_record(index) : draw.any();
    rig.run();
  }
  EXPECT_TRUE(rig.is_peer_zero());
}

// --- Faults ----------------------------------------------------------------------------------------------------------------------

TEST(Faults, ALateRecordDelays) {
  Rig rig;
  Faults faults;
  faults.late_record_polls = 3;
  rig.set_faults(faults);
  const Ticket ticket = post_word(rig, 1);
  for (int i = 0; i < 3; ++i) {
    rig.hca.poll();
    EXPECT_EQ(look(rig, ticket), Status::timed_out) << i;
  }
  rig.hca.poll();
  EXPECT_EQ(look(rig, ticket), Status::ok);
  EXPECT_EQ(rig.statistics().faults.late_records, 1U);
}

TEST(Faults, AStalledHcaEndsWaitsByTheirDeadline) {
  Rig rig;
  Faults faults;
  faults.is_stalled = true;
  rig.set_faults(faults);
  const Ticket ticket = post_word(rig, 1);
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::timed_out);
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig.queue(), kShort), Status::timed_out);
  const std::uint64_t polls_stalled = rig.statistics().faults.polls_stalled;
  EXPECT_GT(polls_stalled, 0U);
  rig.set_faults({});
  rig.run();
  EXPECT_EQ(look(rig, ticket), Status::ok);
  EXPECT_EQ(rig.statistics().faults.polls_stalled, polls_stalled);
}

// Only the request that was to fail counts: those behind it are flushed, and an earlier failure leaves none.
TEST(Faults, AnErrorIsCountedOnce) {
  for (const std::uint64_t at : {1U, 3U}) {
    Rig rig;
    Faults faults;
    faults.error_at_wqe = at;
    faults.error_syndrome = mlx5::Syndrome::remote_access;
    rig.set_faults(faults);
    Ticket ticket;
    post_word(rig, 1);
    ASSERT_EQ(
        device::post_inline_write<kAlone>(Thread{}, rig.queue(), {kPeerBase, rig.peer_key + 1}, inline_value(2), ticket, kShort),
        Status::ok);  // fails by itself
    post_word(rig, 3);
    rig.run();
    EXPECT_EQ(device::poll<kAlone>(Thread{}, rig.queue()), Status::peer_lost);
    EXPECT_EQ(rig.statistics().faults.errors, at == 1 ? 1U : 0U);
    EXPECT_EQ(rig.statistics().error_cqes, at == 1 ? 3U : 2U);
    EXPECT_EQ(rig.remote.at<std::uint64_t>(0), at == 1 ? 0U : 1U);
  }
}

TEST(Faults, QueuesFallBehindEachOther) {
  Rig rig;
  rig.add_queue(Rig::small_ring());
  Faults faults;
  faults.sit_out_percent = 50;
  rig.set_faults(faults, 0);
  rig.set_faults(faults, 1);
  int first_led = 0, second_led = 0;
  for (std::uint64_t round = 1; round <= 100; ++round) {
    const Ticket first = post_word(rig, round, 0);
    const Ticket second = post_word(rig, round, 1);
    Status first_status = Status::timed_out, second_status = Status::timed_out;
    while (first_status != Status::ok || second_status != Status::ok) {
      rig.hca.poll();
      if (first_status != Status::ok) first_status = look(rig, first, 0);
      if (second_status != Status::ok) second_status = look(rig, second, 1);
      if (first_status == Status::ok && second_status != Status::ok) ++first_led;
      if (first_status != Status::ok && second_status == Status::ok) ++second_led;
    }
    ASSERT_EQ(rig.remote.at<std::uint64_t>(8), round);
  }
  EXPECT_GT(first_led, 0);
  EXPECT_GT(second_led, 0);
  EXPECT_GT(rig.statistics(0).faults.polls_sat_out, 0U);
}

// Without confirmation the ticket of a read says too much; with it, and behind a fence, it says the truth.
TEST(Faults, LateDataOfReadsAreSeenOnlyWithConfirmation) {
  for (const bool confirms_reads : {false, true}) {
    QueueOptions options = Rig::small_ring();
    options.confirms_reads = confirms_reads;
    Rig rig(options);
    Faults faults;
    faults.late_read_polls = 5;
    rig.set_faults(faults);
    rig.remote.at<std::uint64_t>(0) = 42;
    Ticket ticket;
    ASSERT_EQ(device::post_read<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), rig.at_local(0), 8, ticket, kShort), Status::ok);
    for (int polls = 0; polls < 100 && look(rig, ticket) != Status::ok; ++polls) rig.hca.poll();
    EXPECT_EQ(look(rig, ticket), Status::ok);
    EXPECT_EQ(rig.local.at<std::uint64_t>(0), confirms_reads ? 42U : 0U);
    Ticket behind;
    ASSERT_EQ(device::post_nop<kAlone>(Thread{}, rig.queue(), behind, kShort, Fence::before), Status::ok);
    for (int polls = 0; polls < 100 && look(rig, behind) != Status::ok; ++polls) rig.hca.poll();
    EXPECT_EQ(look(rig, behind), Status::ok);
    EXPECT_EQ(rig.local.at<std::uint64_t>(0), 42U);
    EXPECT_EQ(rig.statistics().faults.late_reads, 1U);
  }
}

// --- Wires -----------------------------------------------------------------------------------------------------------------------

// Ends its operations only when it is told to, and has room for few.
class SlowWire final : public Wire {
 public:
  bool begin(const WireOperation& operation) override {
    if (begun_.size() == 3) return false;
    begun_.push_back(operation);
    return true;
  }
  std::optional<Syndrome> poll() override {
    if (allowed_ == 0 || begun_.empty()) return std::nullopt;
    --allowed_;
    begun_.pop_front();
    return answer_;
  }
  void end(std::size_t count, Syndrome answer = Syndrome::none) {
    allowed_ += count;
    answer_ = answer;
  }
  std::size_t begun_count() const { return begun_.size(); }

 private:
  std::deque<WireOperation> begun_;
  std::size_t allowed_ = 0;
  Syndrome answer_ = Syndrome::none;
};

struct SlowRig : Rig {
  SlowWire wire;
  device::Queue& slow = TwoSides::add_queue(small_ring(), wire).queue;
};

TEST(SoftHca, WaitsForASlowWireAndCompletesInOrder) {
  SlowRig rig;
  Ticket tickets[6];
  for (Ticket& ticket : tickets) {
    ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.slow, rig.at_peer(0), rig.at_local(0), 8, ticket, kShort), Status::ok);
  }
  rig.run();
  EXPECT_EQ(rig.wire.begun_count(), 3U);
  for (std::size_t done = 0; done < 6; ++done) {
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.slow, tickets[i], Timeout{0}), i < done ? Status::ok : Status::timed_out);
    }
    rig.wire.end(1);
    rig.run();
  }
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig.slow, Timeout{0}), Status::ok);
}

TEST(SoftHca, AFenceWaitsForResultsOnly) {
  SlowRig rig;
  Ticket ticket;
  ASSERT_EQ(device::post_read<kAlone>(Thread{}, rig.slow, rig.at_peer(0), rig.at_local(0), 8, ticket, kShort), Status::ok);
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.slow, rig.at_peer(0), rig.at_local(0), 8, ticket, kShort), Status::ok);
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.slow, rig.at_peer(0), rig.at_local(0), 8, ticket, kShort, Fence::before),
            Status::ok);
  rig.run();
  EXPECT_EQ(rig.wire.begun_count(), 2U);  // the read, and the write that did not ask to wait
  rig.wire.end(1);
  rig.run();
  EXPECT_EQ(rig.wire.begun_count(), 2U);  // both writes
  rig.wire.end(2);
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.slow, ticket, Timeout{0}), Status::ok);
}

TEST(SoftHca, WhatTheWireHadBegunIsFlushedBehindAFailure) {
  SlowRig rig;
  Ticket tickets[5];
  for (Ticket& ticket : tickets) {
    ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.slow, rig.at_peer(0), rig.at_local(0), 8, ticket, kShort), Status::ok);
  }
  rig.run();
  rig.wire.end(1, Syndrome::retries_exceeded);
  rig.run();
  EXPECT_EQ(device::poll<kAlone>(Thread{}, rig.slow), Status::peer_lost);
  EXPECT_EQ(device::error_of<kAlone>(rig.slow).syndrome, Syndrome::retries_exceeded);
  rig.wire.end(2);  // two more had begun, and go well
  rig.run();
  for (const Ticket ticket : tickets) EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.slow, ticket, Timeout{0}), Status::peer_lost);
  EXPECT_EQ(rig.wire.begun_count(), 0U);
  const QueueStatistics statistics = *rig.hca.statistics(rig.slow.number);
  EXPECT_EQ(statistics.error_cqes, 5U);
}

TEST(MemoryWire, DoesNothingBehindAFailure) {
  Rig rig;
  std::uint64_t value = 7;
  WireOperation operation{Opcode::rdma_write, reinterpret_cast<std::byte*>(&value), 8, kPeerBase, rig.peer_key + 1};
  MemoryWire wire(rig.peer);
  ASSERT_TRUE(wire.begin(operation));
  operation.remote_key = rig.peer_key;
  ASSERT_TRUE(wire.begin(operation));
  EXPECT_EQ(wire.poll(), Syndrome::remote_access);
  EXPECT_EQ(wire.poll(), Syndrome::flushed);
  EXPECT_EQ(wire.poll(), std::nullopt);
  EXPECT_TRUE(rig.is_peer_zero());
}

TEST(ProxyThreads, RefusesCounts) {
  SoftHca hca;
  EXPECT_EQ(ProxyThreads::start(hca, 0).status(), Status::invalid_argument);
  EXPECT_EQ(ProxyThreads::start(hca, ProxyThreads::kMaxThreads + 1).status(), Status::invalid_argument);
}

}  // namespace
}  // namespace gigabar::soft_hca::test
