// SPDX-License-Identifier: Apache-2.0
// Queues of two ranks whose software HCAs reach each other over the fabric: payload, notification and answer go back and forth.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "conformance/rank_segment.hpp"
#include "device/fabric_wire/fabric_wire.hpp"
#include "device/soft_hca/soft_hca.hpp"

namespace gigabar::test {
namespace {

namespace mlx5 = device::mlx5;
using device::Sharing;
using device::Thread;

constexpr device::Timeout kEnough{20'000'000'000};
constexpr std::uint64_t kPayloadOffset = 4096;
constexpr std::uint32_t kMaxPayload = 1U << 20;
constexpr std::size_t kSegmentBytes = kPayloadOffset + kMaxPayload;

struct alignas(64) QueueBytes {
  mlx5::Block ring[64];
  mlx5::Cqe cq;
  std::uint64_t words[16];
};

// One queue of this rank to the other, and what executes it.
class Endpoint {
 public:
  Endpoint(Fabric& fabric, Rank peer, unsigned char* origin)
      : peer_(peer), origin_(origin), bytes_(std::make_unique<QueueBytes>()) {
    using soft_hca::Place;
    auto* cpu = reinterpret_cast<std::byte*>(origin);
    soft_hca::FabricWireOptions wire;
    wire.peer = peer;
    wire.local = {{kOrigin, cpu, kSegmentBytes}};
    wire.queue = 2;
    wire.patience = kPatience;
    wire_ = std::make_unique<soft_hca::FabricWire>(fabric, wire);
    auto key = hca_.memory().register_memory(soft_hca::MemoryRange::plain(origin, kSegmentBytes, soft_hca::Access::local_write));
    EXPECT_TRUE(is_ok(key));
    key_ = *key;
    soft_hca::QueueOptions options;
    options.depth = 64;
    options.first_index = 0xffe0;
    EXPECT_TRUE(is_ok(hca_.create_queue(
        options,
        {Place::plain(bytes_->ring), Place::plain(&bytes_->words[0]), Place::plain(&bytes_->words[8]), Place::plain(&bytes_->cq)},
        *wire_, queue_)));
    auto proxies = soft_hca::ProxyThreads::start(hca_, 1);
    EXPECT_TRUE(is_ok(proxies));
    proxies_ = std::move(*proxies);
  }

  Status send(std::uint32_t bytes, std::uint32_t round) {
    const device::Local local{reinterpret_cast<std::uintptr_t>(origin_), key_};
    const std::uint32_t key = soft_hca::fabric_key(peer_, kTarget);
    device::Ticket ticket;
    const Status posted = device::post_write_notify<Sharing::exclusive>(Thread{}, queue_, {kPayloadOffset, key}, local, bytes,
                                                                        {0, key}, round, ticket, kEnough);
    return posted == Status::ok ? device::wait<Sharing::exclusive>(Thread{}, queue_, ticket, kEnough) : posted;
  }
  // What the other side has there, and adds to it.
  Status read_and_add(std::uint64_t offset, std::uint64_t& read, std::uint64_t& before) {
    const auto base = reinterpret_cast<std::uintptr_t>(origin_);
    const device::Remote remote{offset, soft_hca::fabric_key(peer_, kTarget)};
    device::Ticket ticket;
    Status status =
        device::post_read<Sharing::exclusive>(Thread{}, queue_, remote, {base + kPayloadOffset, key_}, 8, ticket, kEnough);
    if (status == Status::ok) {
      status = device::post_fetch_add<Sharing::exclusive>(Thread{}, queue_, remote, 5, {base + kPayloadOffset + 8, key_}, ticket,
                                                          kEnough);
    }
    if (status == Status::ok) status = device::wait<Sharing::exclusive>(Thread{}, queue_, ticket, kEnough);
    std::memcpy(&read, origin_ + kPayloadOffset, sizeof read);
    std::memcpy(&before, origin_ + kPayloadOffset + 8, sizeof before);
    return status;
  }

 private:
  Rank peer_;
  unsigned char* origin_;
  std::uint32_t key_ = 0;
  std::unique_ptr<QueueBytes> bytes_;
  std::unique_ptr<soft_hca::FabricWire> wire_;
  soft_hca::SoftHca hca_;
  device::Queue queue_;
  std::unique_ptr<soft_hca::ProxyThreads> proxies_;
};

bool wait_for_round(const unsigned char* memory, std::uint32_t round) {
  device::Deadline deadline(kEnough);
  while (device::load_acquire(reinterpret_cast<const std::uint32_t*>(memory)) != round) {
    if (deadline.has_passed()) return false;
  }
  return true;
}

RANK_BODY(notify_by_soft_hca) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSegmentBytes);
  RankSegment target(fabric, kTarget, me.setup().target, kSegmentBytes);
  const std::uint64_t zero = 0, word = 1000 + me.rank();
  target.put(0, &zero, sizeof zero);
  target.put(64, &word, sizeof word);
  ASSERT_TRUE(me.meet());
  const Rank peer = 1 - me.rank();
  {
    Endpoint endpoint(fabric, peer, origin.address());
    for (std::uint32_t round = 1; round <= me.setup().amount; ++round) {
      const std::uint32_t bytes = round * 69997 % kMaxPayload + 1;
      if (me.rank() == 1) {
        ASSERT_TRUE(wait_for_round(target.address(), round)) << round;
        ASSERT_TRUE(is_pattern(target.address() + kPayloadOffset, bytes, round)) << round;
      }
      fill_pattern(origin.address(), bytes, round + me.rank());
      ASSERT_EQ(endpoint.send(bytes, round), Status::ok) << round;
      if (me.rank() == 0) {
        ASSERT_TRUE(wait_for_round(target.address(), round)) << round;
        ASSERT_TRUE(is_pattern(target.address() + kPayloadOffset, bytes, round + 1)) << round;
      }
    }
    std::uint64_t read = 0, before = 0;
    ASSERT_EQ(endpoint.read_and_add(64, read, before), Status::ok);
    EXPECT_EQ(read, 1000 + peer);
    EXPECT_EQ(before, 1000 + peer);
    ASSERT_TRUE(me.meet());
  }
  std::uint64_t now = 0;
  std::memcpy(&now, target.address() + 64, sizeof now);
  EXPECT_EQ(now, word + 5);
  EXPECT_TRUE(target.are_guards_whole());
  ASSERT_TRUE(me.meet());
}

// The CPU plays the kernel, and reaches host memory and stand-ins.
std::vector<RankSetup> reached_setups() {
  std::vector<RankSetup> all = memory_setups();
  std::erase_if(
      all, [](const RankSetup& setup) { return setup.origin == MemoryChoice::device || setup.target == MemoryChoice::device; });
  return all;
}

class SoftHcaOverFabric : public testing::TestWithParam<RankSetup> {};
TEST_P(SoftHcaOverFabric, NotificationsFollowTheirPayload) {
  RankSetup setup = GetParam();
  setup.amount = 60;
  run_ranks("notify_by_soft_hca", setup);
}
INSTANTIATE_TEST_SUITE_P(Memory, SoftHcaOverFabric, testing::ValuesIn(reached_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
