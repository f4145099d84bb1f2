// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>

#include "base/counted.hpp"
#include "base/rounding.hpp"
#include "cuda/runtime.hpp"
#include "gigabar/topology.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::device_ranks {
namespace {

constexpr std::size_t kMaxComplaintBytes = 8192;

// Of two GPUs of this host, by what joins them; their addresses come from the ranks' introductions.
std::string path_between(const std::vector<Json>& introductions) {
  constexpr const char* kUnknown = "direct";
  if (std::any_of(introductions.begin(), introductions.end(), ranks::is_of_stand_in)) return "cpu";
  const auto one = PciAddress::parse(ranks::text_of(introductions[0].value("device", Json()), "pci"));
  const auto other = PciAddress::parse(ranks::text_of(introductions[1].value("device", Json()), "pci"));
  if (!one || !other) return kUnknown;
  if (*one == *other) return "same GPU";
  const auto topology = discover_topology(Machine::here());
  if (!topology) return kUnknown;
  const auto index_of = [&](const PciAddress& address) {
    return static_cast<int>(std::ranges::find(topology->gpus, address, &Gpu::address) - topology->gpus.begin());
  };
  const Route route = route_between(*topology, {Endpoint::Kind::gpu, index_of(*one)}, {Endpoint::Kind::gpu, index_of(*other)});
  if (route.relation == Relation::unknown) return kUnknown;
  return route.relation == Relation::nvlink ? "nvlink" : "pcie";
}

// Of a message in a ring: lines of 16 bytes carry 12, the first one 8.
constexpr std::uint64_t line_bytes(std::uint64_t bytes) noexcept { return (bytes / 12 + 2) * 16; }

}  // namespace

void Pair::join_pair() {
  join();
  device_ = device_of(fabric().device());
  if (device_.is_stand_in) return;
  const Availability runtime = use_cuda_runtime(device_.index);
  if (!runtime.is_ok())
    fail(fmt::format("kernels of device {}: {} ({}); {}", device_.index, runtime.reason, name_of(runtime.code), runtime.remedy));
}

void Pair::open(std::uint64_t bytes, std::uint32_t notification_count) {
  constexpr std::uint32_t kMinNotifications = 64;
  session_options_.segment_count = kDataSegment + 1;
  session_options_.notification_count = std::max(kMinNotifications, notification_count);
  session_options_.timeout = timeout();
  const auto memory = std::make_shared<DeviceMemory>(tool::take(DeviceMemory::allocate(device_.index, bytes)));
  memory_.push_back(memory);
  address_ = memory->address();
  register_segment(kDataSegment, address_, bytes);
  require(fabric().connect(partner(), timeout()));
  session_.emplace(tool::take(DeviceSession::open(fabric(), session_options_)));
  const DeviceReach reach = tool::take(session_->reach(partner(), kDataSegment));
  const bool is_reached = has_queues() ? reach.has_queue : reach.is_direct;
  if (!is_reached) fail(fmt::format("kernels of rank {} do not reach rank {}'s memory: {}", rank(), partner(), reach.reason));
  if (report() != nullptr) report()->set_device(device_);
  const std::vector<Json> introductions = introduce(introduction_of(device_));
  if (report() == nullptr) return;
  path_ = path_between(introductions);
  tell_settings();
  if (has_queues()) tell_queues(reach);
  report()->document()["path"] = path_;
}

void Pair::tell_queues(const DeviceReach& reach) {
  const std::string_view engine = name_of(reach.engine);
  path_ = reach.engine == QueueEngine::software_hca ? "softhca" : engine;
  report()->print("# {} to the partner, executed by: {}", counted(session_options_.queue_count, "queue"), engine);
  if (reach.engine == QueueEngine::software_hca)
    report()->print(" of {}", counted(session_options_.proxy_thread_count, "proxy thread"));
  report()->print("; {}{}\n", reach.is_mapped ? "up to 28 bytes are stored through a mapping of the CPU; " : "", reach.reason);
  report()->document()["queues"] = {{"count", session_options_.queue_count},
                                    {"proxy_threads", session_options_.proxy_thread_count},
                                    {"engine", engine},
                                    {"is_mapped", reach.is_mapped},
                                    {"reason", reach.reason}};
}

void Pair::close() {
  meet();
  require(session_->close(patience()));
  session_.reset();
  leave(patience());
}

void Pair::send(std::uint64_t from_offset, std::uint64_t to_offset, std::uint64_t bytes, NotificationId id, std::uint32_t value) {
  tool::take(fabric().write_notify({kDataSegment, from_offset}, {partner(), kDataSegment, to_offset}, bytes, id, value));
  require(fabric().wait(PostOptions().queue, timeout()));
}

void Pair::take(NotificationId id, std::uint32_t value) {
  tool::take(fabric().notification_wait(kDataSegment, id, 1, timeout()));
  const std::uint32_t found = tool::take(fabric().notification_reset(kDataSegment, id));
  if (found != value) fail(fmt::format("wrong data: notification {} is {}, expected {}", id, found, value));
}

Timeout Pair::patience() const noexcept {
  constexpr std::int64_t kMinNs = 2'000'000'000;                              // to start kernels on a machine that does other work
  return Timeout::of(std::chrono::nanoseconds(3 * timeout().ns() + kMinNs));  // --timeout takes a day at most
}

PairPlan Pair::pair_plan() const noexcept {
  return {session_->handle(), partner(), static_cast<std::uint64_t>(std::max<std::int64_t>(timeout().ns(), 1))};
}

Complaint Pair::judge(std::string_view what, std::uint64_t bytes, std::uint32_t round_count,
                      const std::vector<UnitEnd>& ends) const {
  Complaint complaint;
  for (std::size_t unit = 0; unit < ends.size(); ++unit) {
    const UnitEnd& end = ends[unit];
    if (end.status != Status::ok) {
      fail(fmt::format("kernel of rank {}: {} with {}: {} of unit {} in round {} of {}{}", rank(), what, counted(bytes, "byte"),
                       name_of(end.status), unit, end.rounds_done, round_count,
                       end.status == Status::timed_out ? "; take fewer rounds (-i) or a longer --timeout" : ""));
    }
    if (end.wrong_count != 0 && complaint.first_wrong.empty()) {
      complaint.first_wrong = fmt::format("{}, {}, round {}, message {}, offset {}: expected {:#x}, found {:#x}", what,
                                          counted(bytes, "byte"), end.wrong_place.round, end.wrong_place.message,
                                          end.wrong_place.offset_bytes, end.wrong_expected, end.wrong_found);
    }
    complaint.wrong_count += end.wrong_count;
  }
  return complaint;
}

Complaint Pair::gather_complaints(const Complaint& own) {
  const std::vector<Json> all =
      gather_introductions({{"wrong_count", own.wrong_count}, {"first_wrong", own.first_wrong}}, kMaxComplaintBytes, patience());
  Complaint sum;
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {  // what another process sent is not trusted
      const Complaint each{all[i].at("wrong_count").get_ref<const Json::number_unsigned_t&>(),
                           plain(all[i].at("first_wrong").get<std::string>())};
      sum.add(each, fmt::format("rank {}: ", i));
    } catch (const Json::exception&) {
      fail(fmt::format("rank {} has sent something else than what it checked", i));
    }
  }
  return sum;
}

// --- Options --------------------------------------------------------------------------------------------------------------------

Grid make_grid(const GridOptions& options, ScopeKind usual_scope, std::uint32_t usual_block_count, bool is_stand_in) {
  Grid grid;
  grid.scope = options.scope.value_or(usual_scope);
  grid.block_count = options.block_count.value_or(is_stand_in ? std::min(usual_block_count, 2U) : usual_block_count);
  const bool is_thread = grid.scope == ScopeKind::thread, is_warp = grid.scope == ScopeKind::warp;
  const std::uint32_t threads = options.thread_count.value_or(is_thread ? 1 : is_warp ? kWarpThreads : kMaxBlockThreads);
  if (is_warp && threads % kWarpThreads != 0)
    refuse_usage(fmt::format("--threads {}: with --scope warp it is a multiple of {}", threads, kWarpThreads));
  if (grid.scope == ScopeKind::blocks && grid.block_count > device::kMaxScopeBlocks) {
    refuse_usage(fmt::format("--blocks {}: one scope has at most {} blocks", grid.block_count, device::kMaxScopeBlocks));
  }
  const std::uint32_t unit_threads = is_thread ? 1 : is_warp ? kWarpThreads : threads;
  grid.threads_per_unit = is_stand_in ? std::min(unit_threads, kMaxCpuLanes) : unit_threads;
  grid.threads_per_block = threads / unit_threads * grid.threads_per_unit;
  const std::uint64_t thread_count = std::uint64_t{grid.block_count} * grid.threads_per_block;
  if (is_stand_in && thread_count > kMaxCpuThreads) {
    refuse_usage(fmt::format("--blocks {} of {}: without a GPU CPU threads play them, at most {}; use fewer", grid.block_count,
                             counted(grid.threads_per_block, "thread"), kMaxCpuThreads));
  }
  if (std::uint64_t{grid.block_count} * grid.units_per_block() > kMaxUnits) {
    refuse_usage(fmt::format("--blocks {} of {} {}s: {} of them at most; use fewer --blocks or --threads", grid.block_count,
                             grid.units_per_block(), name_of(grid.scope), kMaxUnits));
  }
  return grid;
}

std::uint64_t part_of(std::uint64_t bytes, const Grid& grid) noexcept {
  return round_up((bytes + grid.unit_count() - 1) / grid.unit_count(), kPartUnit);
}

void add_rings(DeviceSessionOptions& session, std::uint64_t bytes, std::uint32_t under_way, std::uint32_t unit_count) noexcept {
  if (unit_count > kMaxRings) return;
  // Credit returns by quarters of a ring, which costs a microsecond each time: no more than one message in four pays it.
  constexpr std::uint64_t kMinBytes = 262144, kMaxRingBytes = std::uint64_t{1} << 20, kMaxAllBytes = std::uint64_t{256} << 20;
  const std::uint64_t wanted = std::bit_ceil(16 * line_bytes(bytes) * std::min<std::uint64_t>(under_way, 64));
  const std::uint64_t most = std::bit_floor(std::min(kMaxRingBytes, kMaxAllBytes / std::max(unit_count, 1U)));
  session.ring_count = unit_count;
  session.ring_bytes = static_cast<std::uint32_t>(std::clamp(wanted, std::min(kMinBytes, most), most));
}

bool are_for_messages(const DeviceSessionOptions& session, std::uint64_t bytes, std::uint32_t under_way) noexcept {
  return session.ring_count != 0 && bytes <= kMessageLimitBytes && 2 * line_bytes(bytes) * under_way <= session.ring_bytes;
}

std::string grid_text(const Grid& grid) {
  return fmt::format("{} of {}, scope {}", counted(grid.block_count, "block"), counted(grid.threads_per_block, "thread"),
                     name_of(grid.scope));
}

void require_room_for_samples(std::uint32_t round_count, const Grid& grid) {
  const std::uint64_t count = std::uint64_t{round_count} * grid.unit_count();
  if (count <= kMaxSamples) return;
  refuse_usage(fmt::format("-i {}: with {} that is {}, and {} at most are kept; take fewer rounds", round_count,
                           counted(grid.unit_count(), name_of(grid.scope)), counted(count, "sample"), kMaxSamples));
}

void add_grid_options(const Command& command, GridOptions& options, const char* scope, const char* blocks, bool takes_blocks) {
  if (scope != nullptr) {
    const std::vector<Named<ScopeKind>> scopes(kScopes.begin(), kScopes.end() - (takes_blocks ? 0 : 1));
    const std::string help = "Who calls: one thread, a warp, a block, each with the same number's at the partner";
    command.add_choice("--scope", options.scope, scopes, help + (takes_blocks ? "; or all blocks as one" : ""))->default_str(scope);
  }
  command.add_option("--threads", options.thread_count, whole_number(1, kMaxBlockThreads), "Threads of a block")
      ->default_str(scope != nullptr ? "512 of a block, 32 of a warp, 1 of a thread" : "512");
  command
      .add_option("--blocks", options.block_count, whole_number(1, kMaxBlocks),
                  "Blocks of the kernel, each with its own part and its own notifications")
      ->default_str(blocks);
}

void add_sizes(const Command& command, std::string& sizes, const char* usual) {
  add_range_option(command, "-m,--message-size", sizes, "Sizes: doubled from MIN to MAX, MIN a multiple of 4", usual);
}

void add_pair_options(const Command& command, ranks::JobOptions& options) {
  ranks::add_job_options(command, options,
                         "Of one wait, and of all that is done at one size, not of the whole run: what takes longer ends the run");
  command.footer(
      "Ranks: the two of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. The "
      "device of a rank is its local rank modulo the devices; without a GPU threads of the CPU play the kernels. Lines that do not "
      "begin with '#' are data.");
}

}  // namespace gigabar::tool::device_ranks
