// SPDX-License-Identifier: Apache-2.0
// FabricWire: a queue whose HCA reaches its peer through a fabric. The peer is this rank itself, over the local transport.
#include "device/fabric_wire/fabric_wire.hpp"

#include <atomic>
#include <optional>
#include <thread>

#include "device/soft_hca/soft_hca.hpp"
#include "rig.hpp"

namespace gigabar::soft_hca::test {
namespace {

constexpr SegmentId kOrigin = 1, kTarget = 2;
constexpr std::size_t kSpanBytes = std::size_t{2} << 20;  // more than the local transport copies at once
constexpr gigabar::Timeout kPatience = gigabar::Timeout::of(std::chrono::seconds(20));

class FabricWireRig : public testing::Test {
 protected:
  void open(bool is_mapped) {
    FabricOptions options;
    options.rank = 0;
    options.rank_count = 1;
    options.transports = {TransportKind::local};
    auto opened = Fabric::open(options);
    ASSERT_TRUE(opened) << opened.error().message();
    fabric.emplace(std::move(*opened));
    ASSERT_TRUE(fabric->register_segment(kOrigin, local.data(), kSpanBytes));
    ASSERT_TRUE(fabric->register_segment(kTarget, remote.data(), kSpanBytes));
    FabricWireOptions wire_options;
    wire_options.local = {{kOrigin, local.data(), kSpanBytes}};
    if (is_mapped) wire_options.remote = {{kTarget, remote.data(), kSpanBytes}};
    wire_options.queue = 1;
    wire_options.patience = kPatience;
    wire = std::make_unique<FabricWire>(*fabric, wire_options);
    local_key = *hca.memory().register_memory({local.data(), kLocalBase, kSpanBytes, Access::local_write});
    rig.emplace(hca, Rig::small_ring(), *wire);
  }
  void TearDown() override {
    proxies.reset();
    wire.reset();
    if (!fabric) return;
    const Result<void> closed = fabric->close(kPatience);
    EXPECT_TRUE(closed) << closed.message();
  }
  void run() {
    auto started = ProxyThreads::start(hca, 1);
    ASSERT_TRUE(started);
    proxies = std::move(*started);
  }
  Remote at_peer(std::uint64_t offset, SegmentId segment = kTarget) const { return {offset, fabric_key(0, segment)}; }
  Local at_local(std::uint64_t offset) const { return {kLocalBase + offset, local_key}; }
  Status wait(Ticket ticket) { return device::wait<kAlone>(Thread{}, rig->queue, ticket, kLong); }

  Bytes local{kSpanBytes}, remote{kSpanBytes};
  std::optional<Fabric> fabric;
  std::unique_ptr<FabricWire> wire;
  SoftHca hca;
  std::optional<QueueRig> rig;
  std::uint32_t local_key = 0;
  std::unique_ptr<ProxyThreads> proxies;
};

// With the peer's memory mapped, and over the fabric alone.
class FabricWireTest : public FabricWireRig, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { open(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(FabricWire, FabricWireTest, testing::Bool(),
                         [](const auto& is_mapped) { return is_mapped.param ? "mapped" : "not_mapped"; });

TEST_P(FabricWireTest, WritesReadsAndChanges) {
  run();
  for (std::size_t i = 0; i < 5000; ++i) local.at<std::uint8_t>(i) = static_cast<std::uint8_t>(i * 7 + 1);
  Ticket ticket;
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig->queue, at_peer(100), at_local(0), 5000, ticket, kLong), Status::ok);
  ASSERT_EQ(wait(ticket), Status::ok);
  EXPECT_EQ(std::memcmp(remote.data() + 100, local.data(), 5000), 0);
  ASSERT_EQ(device::post_read<kAlone>(Thread{}, rig->queue, at_peer(100), at_local(20000), 5000, ticket, kLong), Status::ok);
  ASSERT_EQ(wait(ticket), Status::ok);
  EXPECT_EQ(std::memcmp(local.data() + 20000, local.data(), 5000), 0);
  const Inline long_payload{{1, 2, 3, 4}, 28};
  ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig->queue, at_peer(8192), long_payload, ticket, kLong), Status::ok);
  ASSERT_EQ(device::post_fetch_add<kAlone>(Thread{}, rig->queue, at_peer(8200), 40, at_local(40000), ticket, kLong), Status::ok);
  ASSERT_EQ(device::post_compare_swap<kAlone>(Thread{}, rig->queue, at_peer(8200), 42, 77, at_local(40008), ticket, kLong),
            Status::ok);
  ASSERT_EQ(wait(ticket), Status::ok);
  EXPECT_EQ(local.at<std::uint64_t>(40000), 2U);
  EXPECT_EQ(local.at<std::uint64_t>(40008), 42U);
  EXPECT_EQ(remote.at<std::uint64_t>(8192), 1U);
  EXPECT_EQ(remote.at<std::uint64_t>(8200), 77U);
  EXPECT_EQ(remote.at<std::uint32_t>(8192 + 24), 4U);
  EXPECT_EQ(remote.at<std::uint32_t>(8192 + 28), 0U);
}

// More operations than the fabric's queue keeps unwaited for, in bursts that fill the ring.
TEST_P(FabricWireTest, GoesOnForManyOperations) {
  run();
  Ticket ticket;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    local.at<std::uint64_t>(64 * (i % 16)) = i;
    ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig->queue, at_peer(64 * (i % 16)), at_local(64 * (i % 16)), 64, ticket, kLong),
              Status::ok);
    if (i % 16 == 15) {
      ASSERT_EQ(wait(ticket), Status::ok) << i;
    }
  }
  ASSERT_EQ(wait(ticket), Status::ok);
  for (std::uint64_t i = 2984; i < 3000; ++i) EXPECT_EQ(remote.at<std::uint64_t>(64 * (i % 16)), i);
}

TEST_P(FabricWireTest, ANotificationNeverComesBeforeItsPayload) {
  run();
  std::uint32_t answer = 0;
  std::atomic<int> wrong_count{0};
  constexpr std::uint32_t kRounds = 200;
  const auto wait_for = [](const std::uint32_t& word, std::uint32_t value) {
    device::Deadline deadline(kLong);
    while (device::load_acquire(&word) != value) {
      if (deadline.has_passed()) return false;
    }
    return true;
  };
  std::thread receiver([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      if (!wait_for(remote.at<std::uint32_t>(0), round)) return static_cast<void>(++wrong_count);
      for (std::size_t i = 0; i < 4000; ++i) {
        if (remote.at<std::uint32_t>(4096 + 4 * i) != round + i) ++wrong_count;
      }
      device::store_release(&answer, round);
    }
  });
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    for (std::size_t i = 0; i < 4000; ++i) local.at<std::uint32_t>(4 * i) = round + static_cast<std::uint32_t>(i);
    Ticket ticket;
    ASSERT_EQ(device::post_write_notify<kAlone>(Thread{}, rig->queue, at_peer(4096), at_local(0), 16000, at_peer(0), round, ticket,
                                                kLong),
              Status::ok);
    if (!wait_for(answer, round)) {
      ADD_FAILURE() << "no answer to " << round;
      break;
    }
    ASSERT_EQ(wait(ticket), Status::ok);
  }
  receiver.join();
  EXPECT_EQ(wrong_count, 0);
}

// Whatever the alignment, the bytes and no others; and in the order of the posts, those behind a large write too.
TEST_P(FabricWireTest, SmallWritesOfEverySizeAtEveryAlignment) {
  run();
  Ticket ticket;
  for (std::uint32_t bytes = 1; bytes <= device::mlx5::kMaxInlineBytes; ++bytes) {
    for (const std::uint64_t offset : {64U, 65U, 70U, 76U}) {
      Inline payload{{}, bytes};
      for (std::uint32_t i = 0; i < bytes; ++i)
        payload.words[i / 8] |= std::uint64_t{((offset + bytes + i) & 0xff) | 1} << i % 8 * 8;
      std::memset(remote.data(), 0, 256);
      ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig->queue, at_peer(offset), payload, ticket, kLong), Status::ok);
      // It brings the reply to what went before.
      ASSERT_EQ(device::post_fetch_add<kAlone>(Thread{}, rig->queue, at_peer(512), 1, at_local(40000), ticket, kLong), Status::ok);
      ASSERT_EQ(wait(ticket), Status::ok);
      for (std::uint64_t i = 0; i < 256; ++i) {
        const bool is_inside = i >= offset && i < offset + bytes;
        ASSERT_EQ(remote.at<std::uint8_t>(i), is_inside ? ((i + bytes) & 0xff) | 1 : 0)
            << bytes << " bytes at " << offset << ": " << i;
      }
    }
  }
}

// Large: the local transport has copied it when it is posted, or only its first MiB.
TEST_P(FabricWireTest, SmallWritesGoBehindLargeOnes) {
  run();
  for (const std::uint32_t bytes : {std::uint32_t{30000}, std::uint32_t{kSpanBytes - 4096}}) {
    for (std::uint64_t round = 1; round <= (bytes == 30000 ? 200U : 20U); ++round) {
      Ticket ticket;
      std::memset(local.data(), static_cast<int>(round & 0x7f), bytes);
      ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig->queue, at_peer(0), at_local(0), bytes, ticket, kLong), Status::ok);
      ASSERT_EQ(
          device::post_inline_write<kAlone>(Thread{}, rig->queue, at_peer(bytes - 8), inline_value(round << 8), ticket, kLong),
          Status::ok);
      ASSERT_EQ(device::post_read<kAlone>(Thread{}, rig->queue, at_peer(bytes - 8), at_local(kSpanBytes - 8), 8, ticket, kLong),
                Status::ok);
      ASSERT_EQ(wait(ticket), Status::ok);
      ASSERT_EQ(local.at<std::uint64_t>(kSpanBytes - 8), round << 8) << "behind " << bytes << " bytes";
    }
  }
}

// By stores through the mapping, or not at all: what is out of place, or behind an operation that is under way, is to be begun.
TEST_P(FabricWireTest, PlacesOnlyWhatIsDoneAtOnce) {
  std::uint64_t value = 7;
  WireOperation write;
  write.opcode = Opcode::rdma_write;
  write.local = reinterpret_cast<std::byte*>(&value);
  write.bytes = sizeof value;
  write.remote_address = 64;
  write.remote_key = fabric_key(0, kTarget);
  EXPECT_EQ(wire->place(write), GetParam());
  wire->idle();
  EXPECT_EQ(remote.at<std::uint64_t>(64), GetParam() ? 7U : 0U);
  for (const auto& [offset, key] :
       {std::pair{std::uint64_t{kSpanBytes} - 7, fabric_key(0, kTarget)}, std::pair{std::uint64_t{64}, fabric_key(1, kTarget)},
        std::pair{std::uint64_t{64}, fabric_key(0, 9)}}) {
    WireOperation wrong = write;
    wrong.remote_address = offset;
    wrong.remote_key = key;
    EXPECT_FALSE(wire->place(wrong)) << offset << " of " << key;
  }
  value = 8;
  WireOperation large = write;
  large.local = local.data();
  large.bytes = 4096;
  large.remote_address = 4096;
  ASSERT_TRUE(wire->begin(large));
  EXPECT_FALSE(wire->place(write));
  EXPECT_EQ(remote.at<std::uint64_t>(64), GetParam() ? 7U : 0U);
}

struct Wrong {
  const char* name;
  std::uint64_t offset;
  std::uint32_t key;
};
class WrongPlace : public FabricWireRig, public testing::WithParamInterface<Wrong> {
 protected:
  void SetUp() override { open(true); }
};
INSTANTIATE_TEST_SUITE_P(FabricWire, WrongPlace,
                         testing::Values(Wrong{"unknown_segment", 0, fabric_key(0, 9)},
                                         Wrong{"beyond_the_segment", kSpanBytes - 63, fabric_key(0, kTarget)},
                                         Wrong{"another_rank", 0, fabric_key(1, kTarget)},
                                         Wrong{"among_notifications_of_cpus", kCpuNotificationsAt, fabric_key(0, kTarget)}),
                         [](const auto& wrong) { return wrong.param.name; });

TEST_P(WrongPlace, IsARemoteAccessErrorAndFlushesTheRest) {
  run();
  local.at<std::uint64_t>(0) = 7;
  Ticket bad, behind;
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig->queue, {GetParam().offset, GetParam().key}, at_local(0), 64, bad, kLong),
            Status::ok);
  const Status posted = device::post_inline_write<kAlone>(Thread{}, rig->queue, at_peer(0), inline_value(7), behind, kLong);
  EXPECT_TRUE(posted == Status::ok || posted == Status::peer_lost);
  EXPECT_EQ(wait(bad), Status::peer_lost);
  EXPECT_EQ(device::flush<kAlone>(Thread{}, rig->queue, kLong), Status::peer_lost);
  proxies->stop();
  for (std::size_t i = 0; i < kSpanBytes; ++i) ASSERT_EQ(remote.at<std::uint8_t>(i), 0) << i;
}

TEST_P(WrongPlace, IsAnErrorOfSmallWritesToo) {
  run();
  Ticket good, bad;
  ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, rig->queue, at_peer(0), inline_value(7), good, kLong), Status::ok);
  ASSERT_EQ(wait(good), Status::ok);
  const Inline long_payload{{1, 2, 3, 4}, 28};
  ASSERT_EQ(
      device::post_inline_write<kAlone>(Thread{}, rig->queue, {GetParam().offset + 40, GetParam().key}, long_payload, bad, kLong),
      Status::ok);
  EXPECT_EQ(wait(bad), Status::peer_lost);
  EXPECT_EQ(device::error_of<kAlone>(rig->queue).syndrome, device::mlx5::Syndrome::remote_access);
  proxies->stop();
  EXPECT_EQ(remote.at<std::uint64_t>(0), 7U);
  for (std::size_t i = 8; i < kSpanBytes; ++i) ASSERT_EQ(remote.at<std::uint8_t>(i), 0) << i;
}

}  // namespace
}  // namespace gigabar::soft_hca::test
