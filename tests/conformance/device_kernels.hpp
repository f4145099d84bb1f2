// SPDX-License-Identifier: Apache-2.0
// Sessions of ranks whose kernels speak with each other, over what carries them: loads and stores, or queues.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/kernel_block.hpp"
#include "conformance/rank_segment.hpp"
#include "gigabar/device_session.hpp"

namespace gigabar::test {

using device::DeviceFabric;

inline constexpr std::size_t kSpan = 256 * 1024;
inline constexpr device::Timeout kLong{20'000'000'000};
inline constexpr device::Timeout kShort{50'000'000};

inline constexpr SegmentId kNowhere = 5;  // below segment_count, registered by no rank

inline constexpr const char* kByQueues = "queues";  // a setup's word: nothing is stored directly

inline DeviceSessionOptions options_of(const RankProcess& me) {
  DeviceSessionOptions options;
  options.ring_count = 2;
  options.ring_bytes = 1024;
  if (me.setup().word != kByQueues) return options;
  options.queues = QueueUse::always;
  options.queue_depth = 32;  // full now and then
  return options;
}

// Both segments of a rank and a session over them.
class Kernels {
 public:
  Kernels(RankProcess& me, Fabric& fabric, std::size_t span = kSpan) : Kernels(me, fabric, span, options_of(me)) {}
  Kernels(RankProcess& me, Fabric& fabric, std::size_t span, const DeviceSessionOptions& options)
      : origin(fabric, kOrigin, me.setup().origin, span), target(fabric, kTarget, me.setup().target, span) {
    auto opened = DeviceSession::open(fabric, options);
    EXPECT_TRUE(is_ok(opened));
    if (opened) session.emplace(std::move(*opened));
  }
  const DeviceFabric& handle() const { return session->handle(); }

  RankSegment origin, target;
  std::optional<DeviceSession> session;
};

inline RankSetup of_stand_ins(Rank count, TransportKind transport, const std::string& word) {
  RankSetup setup;
  setup.rank_count = count;
  setup.transport = transport;
  setup.origin = setup.target = MemoryChoice::stand_in;
  setup.word = word;
  return setup;
}

// By loads and stores, where ranks share pages; and by queues, over every transport.
inline std::vector<RankSetup> direct_setups(const std::vector<Rank>& counts) {
  std::vector<RankSetup> setups;
  for (const Rank count : counts) {
    if (is_tested(TransportKind::local)) setups.push_back(of_stand_ins(count, TransportKind::local, ""));
  }
  return setups;
}
inline std::vector<RankSetup> device_setups(const std::vector<Rank>& counts) {
  std::vector<RankSetup> setups = direct_setups(counts);
  for (const TransportKind transport : tested_transports()) {
    for (const Rank count : counts) {
      if (count != 1) setups.push_back(of_stand_ins(count, transport, kByQueues));
    }
  }
  return setups;
}

}  // namespace gigabar::test
