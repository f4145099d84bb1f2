// SPDX-License-Identifier: Apache-2.0
// Memory of two GPUs of a fake libcuda, between two local ranks.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gigabar/memory.hpp"
#include "support/mapping_session.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar::transport {

using namespace test;
using gigabar::test::FakeSession;
using gigabar::test::pattern;

inline constexpr std::int64_t kSomebodyElse = 1;

inline MemoryRange range_of(const DeviceMemory& memory) {
  return {memory.address(), memory.bytes(), MemoryKind::device, memory.device(), -1, 0};
}
inline CUdeviceptr address_of(const MemoryRange& range) { return reinterpret_cast<CUdeviceptr>(range.address); }

// Content of a range, whatever it is; the fake's device memory cannot be touched by the CPU.
inline void put(const MemoryRange& range, const std::vector<unsigned char>& content) {
  if (range.kind == MemoryKind::host_pageable || range.kind == MemoryKind::host_pinned) {
    std::memcpy(range.address, content.data(), content.size());
  } else {
    FakeSession::write(address_of(range), content.data(), content.size());
  }
}
inline std::vector<unsigned char> got(const MemoryRange& range) {
  if (range.kind != MemoryKind::host_pageable && range.kind != MemoryKind::host_pinned)
    return FakeSession::read(address_of(range), range.bytes);
  const auto* const first = static_cast<const unsigned char*>(range.address);
  return {first, first + range.bytes};
}

struct Regions {
  Regions(Pair& pair, const MemoryRange& local_range, const MemoryRange& remote_range)
      : local(must(pair.transports[0]->register_memory(local_range))),
        shown(must(pair.transports[1]->register_memory(remote_range))),
        remote(pair.shown(1, *shown)) {}
  std::unique_ptr<Region> local;
  std::unique_ptr<Region> shown;
  std::unique_ptr<RemoteRegion> remote;
};

inline void expect_moves(Pair& pair, const MemoryRange& local_range, const MemoryRange& remote_range, std::string_view how) {
  const Regions regions(pair, local_range, remote_range);
  EXPECT_EQ(regions.shown->how(), how);
  const Reach reach = pair.links[0]->reach(Direction::write, *regions.local, *regions.remote);
  ASSERT_TRUE(reach.can) << reach.reason;
  EXPECT_EQ(reach.path, TransferPath::p2p);
  const std::size_t bytes = std::min(local_range.bytes, remote_range.bytes) - 64;
  const auto sent = pattern(local_range.bytes, 3);
  put(local_range, sent);
  put(remote_range, std::vector<unsigned char>(remote_range.bytes, 0x22));
  const std::size_t messages = pair.sinks[1].messages.size();
  pair.sinks[0].dones.clear();
  ASSERT_EQ(pair.links[0]->post_write(*regions.local, 5, *regions.remote, 33, bytes, 1), Posted::ok);
  ASSERT_EQ(pair.links[0]->post_message(header_of(1), {}), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[1].messages.size() > messages; }));
  const auto arrived = got(remote_range);
  EXPECT_TRUE(std::equal(sent.begin() + 5, sent.begin() + 5 + static_cast<std::ptrdiff_t>(bytes), arrived.begin() + 33));
  EXPECT_EQ(arrived[32], 0x22);
  EXPECT_EQ(arrived[33 + bytes], 0x22);
  put(local_range, std::vector<unsigned char>(local_range.bytes, 0x11));
  ASSERT_EQ(pair.links[0]->post_read(*regions.local, 7, *regions.remote, 33, bytes, 2), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[0].dones.size() == 2; }));
  const auto back = got(local_range);
  EXPECT_TRUE(std::equal(sent.begin() + 5, sent.begin() + 5 + static_cast<std::ptrdiff_t>(bytes), back.begin() + 7));
  EXPECT_EQ(back[6], 0x11);
  EXPECT_EQ(back[7 + bytes], 0x11);
  for (const auto& [cookie, status] : pair.sinks[0].dones) EXPECT_EQ(status, Status::ok) << cookie;
}

// A machine with two GPUs and memory on both.
struct TwoGpus {
  TwoGpus() {
    session.machine().gpu_count = 2;
    session.start();
  }
  void allocate(std::size_t bytes = 3'000'000) {
    first.emplace(must(DeviceMemory::allocate(0, bytes)));
    second.emplace(must(DeviceMemory::allocate(1, bytes)));
  }
  gigabar::test::MappingSession session;
  std::optional<DeviceMemory> first;
  std::optional<DeviceMemory> second;
};

}  // namespace gigabar::transport
