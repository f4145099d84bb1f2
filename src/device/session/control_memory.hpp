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
#include "gigabar/device/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "memory/copy_stream.hpp"

namespace gigabar::inline v0 {

// What kernels write and what the host writes lie on lines of their own.
inline constexpr std::size_t kLine = 128;
constexpr std::size_t to_line(std::size_t bytes) noexcept { return round_up(bytes, kLine); }

struct ControlLayout {
  Rank rank_count = 0;
  std::uint32_t segment_count = 0;
  std::uint32_t notification_count = 0;
  std::uint32_t queue_count = 0;  // to each rank; 0: none
  std::uint32_t ring_count = 0;   // to each rank; 0: none
  std::uint32_t ring_line_count = 0;

  // Shared, the same at every rank: notifications of every segment, then the barrier's words, one to flush by, of each rank the
  // lines that it sends and the credit that it returns for each ring, and the counters of its writes, scratch; and with queues what
  // ranks tell each other of their adapters: of this one's, a state for each rank, and where others' are read to.
  std::size_t notifications_at(std::size_t segment) const noexcept {
    return segment * notification_count * sizeof(device::Notification);
  }
  std::size_t barrier_at() const noexcept { return notifications_at(segment_count); }
  std::size_t flush_word_at() const noexcept;  // 0, which adding 0 does not change
  std::size_t lines_at(Rank rank, std::uint32_t ring) const noexcept;
  std::size_t credit_at(Rank rank, std::uint32_t ring) const noexcept;
  std::size_t counters_at(Rank rank) const noexcept;
  static constexpr std::size_t kScratchBytes = 65536;
  std::size_t scratch_at() const noexcept;       // of no meaning to anybody
  static constexpr std::size_t kPortBytes = 32;  // of an introduction's beginning; keys of 16 bytes follow
  static constexpr std::size_t kStateBytes = 128;
  std::size_t introduction_at() const noexcept { return scratch_at() + kScratchBytes; }
  std::size_t introduction_bytes() const noexcept;
  std::size_t state_at(Rank rank) const noexcept { return introduction_at() + introduction_bytes() + rank * kStateBytes; }
  std::size_t inbox_at() const noexcept { return state_at(rank_count); }
  std::size_t shared_bytes() const noexcept { return queue_count == 0 ? introduction_at() : inbox_at() + introduction_bytes(); }

  // Own: segments, barrier words and counters as this rank reaches them, queues, their CQs of one CQE each, kernel words, ends of
  // rings, where blocks meet, statuses.
  std::size_t barrier_words_at() const noexcept;
  std::size_t counter_lists_at() const noexcept;
  std::size_t queue_lists_at() const noexcept;
  std::size_t queues_at(Rank rank) const noexcept;
  std::size_t cqe_at(Rank rank, std::uint32_t queue) const noexcept;
  std::size_t kernel_words_at() const noexcept;
  std::size_t rings_at(Rank rank) const noexcept;
  std::size_t block_groups_at() const noexcept;
  std::size_t statuses_at() const noexcept;
  std::size_t status_bytes() const noexcept { return (std::size_t{rank_count} + 1) * sizeof(std::uint32_t); }
  std::size_t own_bytes() const noexcept { return statuses_at() + status_bytes(); }
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
  Result<void> put_queues(Rank rank, std::span<const device::PeerQueue> queues);
  // Kernels find none to the rank any more.
  Result<void> take_queues(Rank rank);
  // As kernels left them.
  Result<void> get_queues(Rank rank, std::span<device::PeerQueue> queues);
  // Of the shared part, for what this rank tells of itself and what it has read of others.
  Result<void> put_shared(std::size_t offset, std::span<const std::byte> bytes);
  Result<void> get_shared(std::size_t offset, std::span<std::byte> bytes);
  // Where a CQE of a queue lies for the CPU, and for kernels; nothing: the CPU does not reach the memory.
  struct Place {
    std::byte* cpu = nullptr;
    std::byte* device = nullptr;
  };
  std::optional<Place> cqe(Rank rank, std::uint32_t queue) const noexcept;
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
