// SPDX-License-Identifier: Apache-2.0
// The device memory behind a session's handle: what peers write to, and what only the host and kernels of this rank use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/rounding.hpp"
#include "device/soft_hca/send_queue.hpp"
#include "gigabar/device/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "memory/copy_stream.hpp"

namespace gigabar::inline v0 {

// What kernels write and what the host writes lie on lines of their own.
inline constexpr std::size_t kLine = 128;
constexpr std::size_t to_line(std::size_t bytes) noexcept { return round_up(bytes, kLine); }

struct ControlCounts {
  Rank rank_count = 0;
  std::uint32_t segment_count = 0;
  std::uint32_t notification_count = 0;
  std::uint32_t queue_count = 0;  // to each rank; 0: none
  std::uint32_t ring_count = 0;   // to each rank; 0: none
  std::uint32_t ring_line_count = 0;
};

// Where equal parts lie behind each other.
struct ControlParts {
  std::size_t first = 0;
  std::size_t bytes = 0;  // of each
  std::size_t operator()(std::size_t index) const noexcept { return first + index * bytes; }
};

// Offsets, in the order of the memory.
struct ControlLayout : ControlCounts {
  static constexpr std::size_t kScratchBytes = 65536;
  static constexpr std::size_t kPortBytes = 32;  // of an introduction's beginning; keys of 16 bytes follow
  static constexpr std::size_t kStateBytes = 128;

  explicit ControlLayout(const ControlCounts& counts = {});

  // Shared, the same at every rank.
  ControlParts notifications_at;  // [segment]
  std::size_t barrier_at = 0;     // the barrier's words
  std::size_t flush_word_at = 0;  // 0, which adding 0 does not change
  ControlParts lines_at;          // [ring_index()]: the lines that the rank sends, and the credit that it returns
  ControlParts counters_at;       // [rank]: of its writes
  std::size_t scratch_at = 0;     // of no meaning to anybody
  // With queues, what ranks tell each other of their adapters: of this one's, a state for each rank, and where others' are read to.
  std::size_t introduction_bytes = 0;
  std::size_t introduction_at = 0;
  ControlParts state_at;  // [rank]
  std::size_t inbox_at = 0;
  std::size_t shared_bytes = 0;

  // Own: behind the segments as this rank reaches them.
  std::size_t barrier_words_at = 0;  // lists by rank: barrier words and counters as this rank reaches them, queues
  std::size_t counter_lists_at = 0;
  std::size_t queue_lists_at = 0;
  ControlParts queues_at;  // [rank]
  ControlParts cqe_at;     // [rank * queue_count + queue]: CQs of one CQE each
  std::size_t kernel_words_at = 0;
  ControlParts rings_at;            // [rank]: ends of rings
  std::size_t block_groups_at = 0;  // where blocks meet
  std::size_t statuses_at = 0;
  std::size_t own_bytes = 0;

  std::size_t ring_index(Rank rank, std::uint32_t ring) const noexcept { return std::size_t{rank} * ring_count + ring; }
  std::size_t line_bytes() const noexcept { return std::size_t{ring_line_count} * sizeof(device::MessageLine); }
};

// What of a rank is load/store accessible.
struct ReachedRank {
  std::byte* shared = nullptr;  // its control memory; null: it is not
  bool has_atomics = false;     // on that
  std::vector<device::DeviceSegment> segments;
};

// For one thread at a time.
class ControlMemory {
 public:
  // Zeroed. Errors: out_of_memory, device_error, timed_out (the copy engine).
  static Result<std::unique_ptr<ControlMemory>> allocate(int device, const ControlLayout& layout);

  const ControlLayout& layout() const noexcept { return layout_; }
  void* shared_address() const noexcept { return shared_.address(); }
  // Its tables are filled by put_*.
  device::DeviceFabric handle(Rank rank) const noexcept;

  // Of one rank. Counts and rings go on where they were. Errors: device_error, timed_out (the copy engine).
  Result<void> put_tables(Rank own_rank, Rank rank, const ReachedRank& reached);
  // Of none: kernels find no queues to the rank any more.
  Result<void> put_queues(Rank rank, std::span<const device::PeerQueue> queues);
  // As kernels left them.
  Result<void> get_queues(Rank rank, std::span<device::PeerQueue> queues);
  // Of the shared part, for what this rank tells of itself and what it has read of others.
  Result<void> put_shared(std::size_t offset, std::span<const std::byte> bytes);
  Result<void> get_shared(std::size_t offset, std::span<std::byte> bytes);
  // Where a CQE of a queue lies; nothing: the CPU does not reach the memory.
  std::optional<soft_hca::Place> cqe(Rank rank, std::uint32_t queue) const noexcept;
  // Seen by kernels that run. Errors: device_error, timed_out (the copy engine, without a CPU mapping of the memory).
  Result<void> put_status(Rank rank, Status status);
  Status status(Rank rank) const noexcept { return known_[rank]; }

 private:
  ControlMemory(const ControlLayout& layout, DeviceMemory shared, DeviceMemory own, std::unique_ptr<CopyStream> copies);
  std::byte* own(std::size_t offset) const noexcept { return static_cast<std::byte*>(own_.address()) + offset; }
  Result<void> clear(const DeviceMemory& memory);
  Result<void> put(void* to, const void* from, std::size_t bytes) { return copy(CopyWay::to_device, to, from, bytes); }
  Result<void> copy(CopyWay way, void* to, const void* from, std::size_t bytes);
  Result<void> put_rings(Rank own_rank, Rank rank, std::byte* shared);
  Result<void> put_status_word(std::size_t index, std::uint32_t value);

  const ControlLayout layout_;
  DeviceMemory shared_;
  DeviceMemory own_;
  std::unique_ptr<CopyStream> copies_;
  std::optional<Mapping> mapping_;  // of own_, behind it: unmapped before it is freed
  std::vector<Status> known_;       // [rank]
};

}  // namespace gigabar::inline v0
