// SPDX-License-Identifier: Apache-2.0
// device::Queue with a software HCA: data, laps, a full ring, deadlines, errors; one thread, so that each step is certain.
#include "rig.hpp"

namespace gigabar::soft_hca::test {
namespace {

class EveryKind : public testing::TestWithParam<QueueOptions> {};
INSTANTIATE_TEST_SUITE_P(Queue, EveryKind, testing::ValuesIn(all_kinds(16)), kind_name);

TEST_P(EveryKind, MovesBytesOverManyLaps) {
  Rig rig(GetParam());
  for (int round = 0; round < 300; ++round) {
    const auto offset = static_cast<std::uint64_t>(round % 5) * 4096;
    const auto bytes = static_cast<std::uint32_t>(1 + round * 13 % 4000);
    rig.fill_local(static_cast<std::uint8_t>(round));
    Ticket ticket;
    ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(offset), rig.at_local(8), bytes, ticket, kShort),
              Status::ok);
    EXPECT_EQ(ticket.index, GetParam().first_index + static_cast<std::uint64_t>(round) + 1);
    ASSERT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, Timeout{0}), Status::timed_out);
    rig.run();
    ASSERT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, Timeout{0}), Status::ok) << round;
    ASSERT_EQ(std::memcmp(rig.remote.data() + offset, rig.local.data() + 8, bytes), 0) << round;
    std::memset(rig.remote.data() + offset, 0, bytes);
    ASSERT_TRUE(rig.is_peer_zero()) << round;
  }
  EXPECT_EQ(rig.queue().completed, GetParam().first_index + 300);
  EXPECT_EQ(rig.statistics().cqes, 300U);
}

TEST_P(EveryKind, FillsUpAndGoesOn) {
  Rig rig(GetParam());
  const std::uint32_t depth = GetParam().depth;
  Ticket last;
  std::uint64_t value = 1;
  for (int lap = 0; lap < 3; ++lap) {
    for (std::uint32_t i = 0; i < depth; ++i, ++value) {
      ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(8 * (value % 100)), inline_value(value), last,
                                                  kShort),
                Status::ok);
    }
    Ticket refused{last.index + 1000};
    const std::uint64_t reserved = rig.queue().reserved;
    for (const Timeout timeout : {Timeout{0}, kShort}) {
      EXPECT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), inline_value(~0U), refused, timeout),
                Status::timed_out);
    }
    EXPECT_EQ(rig.queue().reserved, reserved);
    EXPECT_EQ(refused.index, last.index + 1000);
    rig.run();
    EXPECT_EQ(rig.remote.at<std::uint64_t>(8 * ((value - 1) % 100)), value - 1);
    // What polls the full ring is the post itself.
  }
  ASSERT_EQ(device::flush<kAlone>(Thread{}, rig.queue(), kShort), Status::ok);
  EXPECT_EQ(rig.queue().completed, last.index);
}

// Only the last WQE of a post asks for a CQE, so a post of many completes with one.
TEST_P(EveryKind, ReadsAndAtomics) {
  Rig rig(GetParam());
  const std::uint64_t value = 0x1122'3344'5566'7788;
  rig.remote.at<std::uint64_t>(128) = value;
  for (std::size_t i = 0; i < 1000; ++i) rig.remote.at<std::uint8_t>(4096 + i) = static_cast<std::uint8_t>(i * 3);
  for (std::uint64_t round = 0; round < 50; ++round) {
    Ticket ticket;
    ASSERT_EQ(device::post_fetch_add<kAlone>(Thread{}, rig.queue(), rig.at_peer(128), 3, rig.at_local(0), ticket, kShort),
              Status::ok);
    const std::uint64_t now = value + 4 * round + 3;
    ASSERT_EQ(
        device::post_compare_swap<kAlone>(Thread{}, rig.queue(), rig.at_peer(128), now, now + 1, rig.at_local(8), ticket, kShort),
        Status::ok);
    ASSERT_EQ(device::post_compare_swap<kAlone>(Thread{}, rig.queue(), rig.at_peer(128), now, 0, rig.at_local(16), ticket, kShort),
              Status::ok);
    ASSERT_EQ(device::post_read<kAlone>(Thread{}, rig.queue(), rig.at_peer(4096 + round), rig.at_local(512), 333, ticket, kShort),
              Status::ok);
    rig.run();
    ASSERT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::ok);
    EXPECT_EQ(rig.local.at<std::uint64_t>(0), value + 4 * round);
    EXPECT_EQ(rig.local.at<std::uint64_t>(8), now);
    EXPECT_EQ(rig.local.at<std::uint64_t>(16), now + 1);
    EXPECT_EQ(rig.remote.at<std::uint64_t>(128), now + 1);
    EXPECT_EQ(std::memcmp(rig.local.data() + 512, rig.remote.data() + 4096 + round, 333), 0);
    EXPECT_EQ(rig.local.at<std::uint8_t>(512 + 333), 0);
  }
}

TEST(Queue, RefusesWhatIsNotAligned) {
  Rig rig;
  Ticket ticket;
  EXPECT_EQ(device::post_fetch_add<kAlone>(Thread{}, rig.queue(), rig.at_peer(4), 3, rig.at_local(0), ticket, kShort),
            Status::invalid_argument);
  EXPECT_EQ(device::post_write_notify<kAlone>(Thread{}, rig.queue(), rig.at_peer(4), rig.at_local(0), 8, rig.at_peer(2), 1, ticket,
                                              kShort),
            Status::invalid_argument);
  EXPECT_EQ(device::post_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(4), rig.at_local(0), mlx5::kMaxBytes + 1, ticket, kShort),
            Status::invalid_argument);
  rig.run();
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig.queue(), kShort), Status::ok);
  EXPECT_TRUE(rig.is_peer_zero());
}

TEST(Queue, RefusesMoreThanTheRingHas) {
  QueueOptions options;
  options.depth = 1;
  Rig rig(options);
  Ticket ticket;
  EXPECT_EQ(device::post_write_notify<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), rig.at_local(0), 8, rig.at_peer(0), 1, ticket,
                                              kLong),
            Status::invalid_argument);
  EXPECT_EQ(rig.queue().reserved, 0U);
}

// --- Errors ----------------------------------------------------------------------------------------------------------------------

struct Failure {
  const char* name;
  mlx5::Syndrome syndrome;
  Status status;
  Status (*post)(Rig& rig, Ticket& ticket);
};

Status post_foreign_write(Rig& rig, Ticket& ticket, Remote remote, Local local, std::uint32_t bytes) {
  return device::post_write<kAlone>(Thread{}, rig.queue(), remote, local, bytes, ticket, kShort);
}

const Failure kFailures[] = {
    {"unknown_remote_key", mlx5::Syndrome::remote_access, Status::peer_lost,
     [](Rig& rig, Ticket& t) { return post_foreign_write(rig, t, {kPeerBase, rig.peer_key + 1}, rig.at_local(0), 64); }},
    {"beyond_the_peers_range", mlx5::Syndrome::remote_access, Status::peer_lost,
     [](Rig& rig, Ticket& t) { return post_foreign_write(rig, t, rig.at_peer(kMemoryBytes - 63), rig.at_local(0), 64); }},
    {"before_the_peers_range", mlx5::Syndrome::remote_access, Status::peer_lost,
     [](Rig& rig, Ticket& t) { return post_foreign_write(rig, t, {kPeerBase - 1, rig.peer_key}, rig.at_local(0), 64); }},
    {"unknown_local_key", mlx5::Syndrome::local_protection, Status::device_error,
     [](Rig& rig, Ticket& t) { return post_foreign_write(rig, t, rig.at_peer(0), {kLocalBase, rig.local_key + 1}, 64); }},
    {"beyond_the_local_range", mlx5::Syndrome::local_protection, Status::device_error,
     [](Rig& rig, Ticket& t) { return post_foreign_write(rig, t, rig.at_peer(0), rig.at_local(kMemoryBytes - 1), 64); }},
    {"no_right_to_write", mlx5::Syndrome::remote_access, Status::peer_lost,
     [](Rig& rig, Ticket& t) {
       const std::uint32_t key = *rig.peer.register_memory({rig.remote.data(), kPeerBase, 64, Access::remote_read});
       return post_foreign_write(rig, t, {kPeerBase, key}, rig.at_local(0), 64);
     }},
    {"no_right_to_read", mlx5::Syndrome::remote_access, Status::peer_lost,
     [](Rig& rig, Ticket& t) {
       const std::uint32_t key = *rig.peer.register_memory({rig.remote.data(), kPeerBase, 64, Access::remote_write});
       return device::post_read<kAlone>(Thread{}, rig.queue(), {kPeerBase, key}, rig.at_local(0), 64, t, kShort);
     }},
    {"no_right_for_atomics", mlx5::Syndrome::remote_access, Status::peer_lost,
     [](Rig& rig, Ticket& t) {
       const std::uint32_t key =
           *rig.peer.register_memory({rig.remote.data(), kPeerBase, 64, Access::remote_write | Access::remote_read});
       return device::post_fetch_add<kAlone>(Thread{}, rig.queue(), {kPeerBase, key}, 1, rig.at_local(0), t, kShort);
     }},
    {"result_to_what_is_only_read", mlx5::Syndrome::local_protection, Status::device_error,
     [](Rig& rig, Ticket& t) {
       const std::uint32_t key = *rig.hca.memory().register_memory({rig.local.data(), kLocalBase, 64, Access::local_read});
       return device::post_read<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), {kLocalBase, key}, 64, t, kShort);
     }},
    {"odd_place_at_the_peer", mlx5::Syndrome::remote_operation, Status::peer_lost,
     [](Rig& rig, Ticket& t) {
       const std::uint32_t key = *rig.peer.register_memory({rig.remote.data() + 4, kPeerBase, 64, Access::everything});
       return device::post_fetch_add<kAlone>(Thread{}, rig.queue(), {kPeerBase, key}, 1, rig.at_local(0), t, kShort);
     }},
    {"a_peer_that_is_silent", mlx5::Syndrome::retries_exceeded, Status::peer_lost,
     [](Rig& rig, Ticket& t) {
       Faults faults;
       faults.error_at_wqe = rig.queue().reserved + 1;
       rig.set_faults(faults);
       return post_foreign_write(rig, t, rig.at_peer(0), rig.at_local(0), 64);
     }},
    {"a_wqe_of_another_index", mlx5::Syndrome::local_operation, Status::device_error,
     [](Rig& rig, Ticket& t) {
       const std::uint64_t index = rig.queue().reserved;
       const Status status = post_foreign_write(rig, t, rig.at_peer(0), rig.at_local(0), 64);
       std::uint32_t& what = rig.queue().ring[index % 16].segments[0].words[0];  // flags, index, opcode
       what = mlx5::big_endian((mlx5::big_endian(what) & 0xff0000ffU) | static_cast<std::uint32_t>((index + 16) & 0xffff) << 8);
       return status;
     }},
};

void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

class EveryFailure : public testing::TestWithParam<std::tuple<Failure, bool>> {};
INSTANTIATE_TEST_SUITE_P(Queue, EveryFailure, testing::Combine(testing::ValuesIn(kFailures), testing::Bool()), [](const auto& row) {
  return std::string(std::get<0>(row.param).name) + (std::get<1>(row.param) ? "_collapsed" : "_ordinary");
});

TEST_P(EveryFailure, IsToldAndStopsOnlyItsQueue) {
  const auto& [failure, is_collapsed] = GetParam();
  QueueOptions options = Rig::small_ring();
  options.is_collapsed = is_collapsed;
  Rig rig(options);
  rig.add_queue(options);
  rig.fill_local(1);
  Ticket good, bad, behind, other;

  // Two good ones, of which the first has no CQE of its own.
  ASSERT_EQ(
      device::post_write_notify<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), rig.at_local(0), 8, rig.at_peer(8), 1, good, kShort),
      Status::ok);
  rig.run();
  ASSERT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), good, kShort), Status::ok);
  std::memset(rig.remote.data(), 0, 64);
  ASSERT_EQ(failure.post(rig, bad), Status::ok);
  rig.run();
  EXPECT_EQ(device::poll<kAlone>(Thread{}, rig.queue()), failure.status);

  // A second of the same queue is refused, or flushed when it was posted before the error was seen.
  EXPECT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), inline_value(7), behind, kShort),
            failure.status);
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), bad, kLong), failure.status);
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), good, kLong), Status::ok);
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig.queue(), kLong), failure.status);
  const device::QueueError error = device::error_of<kAlone>(rig.queue());
  EXPECT_TRUE(error.is_set);
  EXPECT_EQ(error.syndrome, failure.syndrome);
  EXPECT_EQ(error.wqe_index, (bad.index - 1) & 0xffff);
  EXPECT_TRUE(rig.is_peer_zero());

  ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(1), rig.at_peer(0), inline_value(7), other, kShort), Status::ok);
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(1), other, kShort), Status::ok);
  EXPECT_EQ(rig.remote.at<std::uint64_t>(0), 7U);
  EXPECT_FALSE(device::error_of<kAlone>(rig.queue(1)).is_set);
}

// Posted before the failure is seen: those before it completed, those behind it flushed, each with a CQE.
TEST(Queue, FlushesWhatIsBehindAFailure) {
  QueueOptions options = Rig::small_ring();
  options.is_collapsed = false;
  options.first_index = 0xfffe;
  Rig rig(options);
  Faults faults;
  faults.error_at_wqe = 4;
  faults.error_syndrome = mlx5::Syndrome::not_ready_retries_exceeded;
  rig.set_faults(faults);
  Ticket tickets[8];
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(8 * i), inline_value(i + 1), tickets[i], kShort),
              Status::ok);
  }
  rig.run();
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), tickets[i], kShort), i < 3 ? Status::ok : Status::peer_lost) << i;
    EXPECT_EQ(rig.remote.at<std::uint64_t>(8 * i), i < 3 ? i + 1 : 0) << i;
  }
  EXPECT_EQ(device::error_of<kAlone>(rig.queue()).syndrome, mlx5::Syndrome::not_ready_retries_exceeded);
  EXPECT_EQ(device::error_of<kAlone>(rig.queue()).wqe_index, 1);
  EXPECT_EQ(rig.statistics().cqes, 8U);
  EXPECT_EQ(rig.statistics().error_cqes, 5U);
}

// The error's CQE stands where the good one's was, and tells of it: what is before a failure went well.
TEST(Queue, KnowsWhatWentWellBeforeAFailure) {
  Rig rig;
  Faults faults;
  faults.error_at_wqe = 3;
  rig.set_faults(faults);
  Ticket tickets[3];
  for (Ticket& ticket : tickets) {
    ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), inline_value(1), ticket, kShort),
              Status::ok);
  }
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), tickets[2], kShort), Status::peer_lost);
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), tickets[1], kShort), Status::ok);
  EXPECT_EQ(device::error_of<kAlone>(rig.queue()).syndrome, mlx5::Syndrome::retries_exceeded);
}

// The first failure may be missed on a collapsed CQ, but not that there was one.
TEST(Queue, KnowsOfAFailureWhoseCqeWasOverwritten) {
  Rig rig;
  Faults faults;
  faults.error_at_wqe = 2;
  rig.set_faults(faults);
  Ticket ticket;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), inline_value(1), ticket, kShort),
              Status::ok);
  }
  rig.run();
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::peer_lost);
  EXPECT_EQ(device::error_of<kAlone>(rig.queue()).syndrome, mlx5::Syndrome::flushed);
  EXPECT_LT(rig.queue().completed, 2U);
}

// A CQE about a WQE that cannot be there is not believed.
TEST(Queue, RefusesACqeOutOfRange) {
  Rig rig;
  Ticket ticket;
  ASSERT_EQ(device::post_nop<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::ok);
  rig.queue().cq->words[mlx5::kCqeLastWord] = mlx5::cqe_last_word(mlx5::CqeOpcode::request, 0, 100, mlx5::Opcode::nop, 1);
  EXPECT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::device_error);
  EXPECT_EQ(rig.queue().completed, 0U);
}

}  // namespace
}  // namespace gigabar::soft_hca::test
