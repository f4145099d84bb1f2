// SPDX-License-Identifier: Apache-2.0
// Sessions of two ranks with a GPU each, on a fake libcuda: what their tables and reach() say of the link between the GPUs.
#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "device/hca/hca.hpp"
#include "fakes/paths.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/fake_session.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

constexpr SegmentId kTarget = 2;
constexpr std::size_t kSpan = 65536;
const Timeout kPatience = Timeout::of(std::chrono::seconds(30));

struct GpuRank {
  void open(Rank rank, std::uint16_t port) {
    auto allocated = DeviceMemory::allocate(static_cast<int>(rank), kSpan);
    ASSERT_TRUE(allocated) << allocated.error().message();
    memory.emplace(std::move(*allocated));
    FabricOptions options;
    options.rank = rank;
    options.rank_count = 2;
    options.master_address = "127.0.0.1";
    options.master_port = port;
    options.device = static_cast<int>(rank);
    options.transports = {TransportKind::local};
    auto opened = Fabric::open(options);
    ASSERT_TRUE(opened) << opened.error().message();
    fabric.emplace(std::move(*opened));
    ASSERT_TRUE(fabric->register_segment(kTarget, memory->address(), kSpan));
    DeviceSessionOptions wanted;
    wanted.segment_count = 4;
    wanted.notification_count = 16;
    wanted.queues = QueueUse::never;
    auto made = DeviceSession::open(*fabric, wanted);
    ASSERT_TRUE(made) << made.error().message();
    session.emplace(std::move(*made));
  }
  void close() {
    if (session) {
      const Result<void> closed = session->close(kPatience);
      EXPECT_TRUE(closed) << closed.message();
    }
    session.reset();
    if (fabric) {
      EXPECT_TRUE(fabric->deregister_segment(kTarget, kPatience));
    }
    fabric.reset();
    memory.reset();
  }
  // As kernels find it, in the GPU's memory.
  bool has_atomics_at(Rank rank) const {
    const device::DeviceFabric& handle = session->handle();
    const auto* const place = handle.segments + rank * handle.segment_count + kTarget;
    const auto bytes = test::FakeSession::read(reinterpret_cast<CUdeviceptr>(place), sizeof *place);
    device::DeviceSegment segment;
    std::memcpy(static_cast<void*>(&segment), bytes.data(), sizeof segment);
    EXPECT_NE(segment.address, nullptr) << "not in reach";
    return segment.has_atomics;
  }

  std::optional<DeviceMemory> memory;
  std::optional<Fabric> fabric;
  std::optional<DeviceSession> session;
};

void expect_atomics(bool has_peer_atomics) {
  test::FakeSession machine;
  machine.machine().gpu_count = 2;
  machine.machine().has_peer_atomics = has_peer_atomics;
  machine.start();
  GpuRank ranks[2];
  const std::uint16_t port = test::free_port();
  std::thread other([&] { ranks[1].open(1, port); });
  ranks[0].open(0, port);
  other.join();
  if (ranks[0].session && ranks[1].session) {
    EXPECT_TRUE(ranks[0].has_atomics_at(0)) << "its own";
    EXPECT_EQ(ranks[0].has_atomics_at(1), has_peer_atomics);
    const auto reach = ranks[0].session->reach(1, kTarget);
    ASSERT_TRUE(reach);
    EXPECT_TRUE(reach->is_direct) << reach->reason;
    EXPECT_EQ(reach->why_no_atomics.empty(), has_peer_atomics) << reach->why_no_atomics;
    if (!has_peer_atomics) {
      EXPECT_NE(reach->why_no_atomics.find("no native atomics on memory of device 1"), std::string::npos);
    }
    EXPECT_EQ(ranks[0].fabric->why_no_atomics(0, 1).status(), Status::invalid_argument) << "not mapped";
  }
  std::thread closes([&] { ranks[1].close(); });
  ranks[0].close();
  closes.join();
  trim_mapping_cache(0);
}

ISOLATED_TEST(SessionOfGpus, HasAtomicsWhereTheLinkHasThem) { expect_atomics(true); }
ISOLATED_TEST(SessionOfGpus, HasNoAtomicsWhereTheLinkHasNone) { expect_atomics(false); }

// Whose kernels may see a NIC's writes in another order than that in which they came.
ISOLATED_TEST(SessionOfGpus, HaveNoHcaWhereTheirKernelsSeeNoOrder) {
  const test::ScopedEnvironment verbs("GIGABAR_VERBS_LIBRARY", test::kFakeHcaLibrary);
  const test::ScopedEnvironment mlx5("GIGABAR_MLX5_LIBRARY", test::kFakeHcaLibrary), devices("GIGABAR_FAKE_HCA", "mlx5_0");
  test::FakeSession session;
  session.machine().needs_rdma_flushes = true;
  session.start();
  const auto refused = hca::Hca::open({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::not_supported) << refused.error().message();
  EXPECT_NE(refused.error().message().find("in another order"), std::string::npos) << refused.error().message();
}

}  // namespace
}  // namespace gigabar
