// SPDX-License-Identifier: Apache-2.0
// What device-latency, device-bw and device-rate are asked to do, as far as the command line alone tells.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device_ranks/grid.hpp"
#include "device_ranks/round_plan.hpp"
#include "gigabar/device_session.hpp"
#include "ranks/fabric_settings.hpp"
#include "ranks/plan.hpp"

namespace gigabar::tool::device_ranks {

std::string_view command_of(Measure measure) noexcept;  // "device-latency", "device-bw", "device-rate"
std::string_view name_of(Op op) noexcept;               // as --op has it: "notify-ordered"
std::string_view name_of(ScopeKind scope) noexcept;
// Those of --op; the first is the default.
std::span<const Op> ops_of(Measure measure) noexcept;
// Whether messages have a size that is chosen.
bool has_sizes(Op op) noexcept;

// The scopes and their numbers, as typed: unset ones follow from the rest and the device.
struct GridOptions {
  std::optional<ScopeKind> scope;
  std::optional<std::uint32_t> thread_count;  // per block
  std::optional<std::uint32_t> block_count;
};

// Queues to the partner, though its memory is in reach; 0: none.
struct QueueOptions {
  std::uint32_t count = 0;
  std::uint32_t proxy_count = 1;
  QueueEngine engine = QueueEngine::automatic;
  std::string hca_port;
};
inline constexpr std::uint32_t kMaxQueues = 16;
inline constexpr std::uint32_t kMaxProxies = 12;

struct Options {
  Measure measure = Measure::latency;
  Op op = Op::notify;
  std::string sizes;  // -m, as typed
  GridOptions grid;
  QueueOptions queues;
  std::optional<std::uint32_t> iteration_count;
  std::optional<std::uint32_t> warm_up_count;
  std::uint32_t window = 64;
  bool is_checked = false;
  std::optional<std::uint64_t> fault_bytes;
  std::string json_path;
  ranks::FabricSettings fabric;
};

inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
inline constexpr std::uint32_t kMaxWindow = 65536;
inline constexpr std::uint32_t kMaxBlocks = 1024;
inline constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 24;  // of all units; 8 bytes each
inline constexpr std::uint32_t kMaxUnits = 16384;

// Everything settled but the device. Ends the command as bad usage where options contradict each other.
struct Plan {
  Options options;
  std::vector<std::uint64_t> sizes;  // of messages; {0}: they have none
  FabricOptions fabric;
};
// Sizes as typed with -m. Ends the command as bad usage where they are none.
std::vector<std::uint64_t> settle_sizes(const std::string& typed, const ranks::SizeRange& usual);
Plan make_plan(const Options& options);

// As a device plays them: on a CPU few threads, of which a few play a warp or a block. Ends the command as bad usage where threads
// do not make whole warps, or are too many.
Grid make_grid(const GridOptions& options, ScopeKind usual_scope, std::uint32_t usual_block_count, bool is_stand_in);
Grid grid_of(const Options& options, bool is_stand_in);

// "64 blocks of 512 threads, scope block".
std::string grid_text(const Grid& grid);
// Of a message, each unit's; the last ones may have less, or nothing.
std::uint64_t part_of(std::uint64_t bytes, const Grid& grid) noexcept;
// Ends the command as bad usage where the units' samples are too many.
void require_room_for_samples(std::uint32_t round_count, const Grid& grid);

ranks::Counts counts_for(const Options& options, std::uint64_t bytes) noexcept;

// Who else uses a unit's queue: units take the queues in turn.
device::Sharing sharing_of(const Options& options, const Grid& grid) noexcept;

// Where messages lie, of one size; the rest of the plan is the caller's to fill in.
RoundPlan layout_of(const Options& options, const Grid& grid, std::uint64_t bytes) noexcept;
// Of the segment.
std::uint64_t segment_bytes(const RoundPlan& layout) noexcept;

// The same at ranks whose options agree in all that must agree.
std::uint64_t digest_of(const Plan& plan, const Grid& grid);

}  // namespace gigabar::tool::device_ranks
