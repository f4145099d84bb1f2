// SPDX-License-Identifier: Apache-2.0
// The two ranks of a command whose kernels speak with each other: device, memory and session of one of them, what carries the bytes
// between the two, and what units found wrong.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/counted.hpp"
#include "device_ranks/unit.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/memory.hpp"
#include "ranks/job.hpp"
#include "ranks/measure.hpp"
#include "support/names.hpp"

namespace gigabar::tool::device_ranks {

// --- Options --------------------------------------------------------------------------------------------------------------------

inline constexpr std::array<Named<ScopeKind>, 4> kScopes = {
    {{ScopeKind::thread, "thread"}, {ScopeKind::warp, "warp"}, {ScopeKind::block, "block"}, {ScopeKind::blocks, "blocks"}}};
constexpr std::string_view name_of(ScopeKind scope) noexcept { return name_in(kScopes, scope); }

// The scopes and their numbers, as typed: unset ones follow from the rest and the device.
struct GridOptions {
  std::optional<ScopeKind> scope;
  std::optional<std::uint32_t> thread_count;  // per block
  std::optional<std::uint32_t> block_count;
};

inline constexpr std::uint32_t kMaxRings = 1024;
// Rings of messages to and from the partner, one for each unit, in which so many messages of so many bytes are under way at once,
// or as many as there is memory for. None where there are more units than rings.
void add_rings(DeviceSessionOptions& session, std::uint64_t bytes, std::uint32_t under_way, std::uint32_t unit_count) noexcept;
// Whether so many messages are under way in a ring without a wait; above 64 KiB a write is faster than a message.
bool are_for_messages(const DeviceSessionOptions& session, std::uint64_t bytes, std::uint32_t under_way) noexcept;
inline constexpr std::uint64_t kMessageLimitBytes = 65536;

inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
inline constexpr std::uint32_t kMaxBlocks = 1024;
inline constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 24;  // of all units; 8 bytes each
inline constexpr std::uint32_t kMaxUnits = 16384;

// As a device plays them: on a CPU few threads, of which a few play a warp or a block. Ends the command as bad usage where threads
// do not make whole warps, or are too many.
Grid make_grid(const GridOptions& options, ScopeKind usual_scope, std::uint32_t usual_block_count, bool is_stand_in);
// "64 blocks of 512 threads, scope block".
std::string grid_text(const Grid& grid);
// Of a message, each unit's; the last ones may have less, or nothing.
std::uint64_t part_of(std::uint64_t bytes, const Grid& grid) noexcept;
// Ends the command as bad usage where the units' samples are too many.
void require_room_for_samples(std::uint32_t round_count, const Grid& grid);

inline constexpr std::uint64_t kPartUnit = 16;  // parts begin where one load of a GPU is whole
inline constexpr std::uint64_t kPage = 4096;

// --scope, --threads, --blocks, each with the default that the help shows; `scope` is null where the command has no such option.
// `takes_blocks`: all blocks may be one scope.
void add_grid_options(const Command& command, GridOptions& options, const char* scope, const char* blocks,
                      bool takes_blocks = false);
// -m.
void add_sizes(const Command& command, std::string& sizes, const char* usual);
// What all these commands have at their end.
void add_pair_options(const Command& command, ranks::JobOptions& options);

// --- The two ranks --------------------------------------------------------------------------------------------------------------

class Pair : public ranks::RankSession {
 protected:
  using RankSession::RankSession;

  // Refuses a device whose kernels cannot be started.
  void join_pair();
  // Memory of `bytes` at both ranks as kDataSegment, and a session in which kernels reach the partner's, as session_options_ says:
  // with QueueUse::always by queues, though it is in reach. Prints who is who.
  void open(std::uint64_t bytes, std::uint32_t notification_count);
  // The kernels have ended. Writes the report.
  void close();

  // What the CPU sends: bytes of this rank's segment into the partner's, behind them notification `id` of the fabric. They may be
  // changed when it returns.
  void send(std::uint64_t from_offset, std::uint64_t to_offset, std::uint64_t bytes, NotificationId id, std::uint32_t value);
  // Waits for the partner's, and takes it down. Ends the command when it has another value.
  void take(NotificationId id, std::uint32_t value);

  void meet() { RankSession::meet(patience()); }
  Rank partner() const noexcept { return 1 - rank(); }
  // While the partner runs a kernel, which ends within its own deadline and one wait of that length.
  Timeout patience() const noexcept;
  // Of a plan, once the session is open.
  PairPlan pair_plan() const noexcept;
  const DeviceInfo& device() const noexcept { return device_; }
  void* address() const noexcept { return address_; }
  // "nvlink", "pcie", "same GPU", "cpu", "direct", "softhca", "hca", "hca_cpu_doorbell"; at rank 0.
  const std::string& path() const noexcept { return path_; }

  // What units found wrong. Ends the command where one did not do all its rounds: "kernel of rank 0: write-notify with 64 bytes:
  // timed_out ...". `what`: "write-notify".
  Complaint judge(std::string_view what, std::uint64_t bytes, std::uint32_t round_count, const std::vector<UnitEnd>& ends) const;
  // Of both ranks, at rank 0; "rank 1: ...".
  Complaint gather_complaints(const Complaint& own);
  void complain(const Complaint& complaint) { RankSession::complain(complaint, counted(complaint.wrong_count, "wrong word")); }

  DeviceSessionOptions session_options_;

 private:
  void tell_queues(const DeviceReach& reach);
  bool has_queues() const noexcept { return session_options_.queues == QueueUse::always; }

  std::optional<DeviceSession> session_;
  DeviceInfo device_;
  void* address_ = nullptr;
  std::string path_;
};

}  // namespace gigabar::tool::device_ranks
