// SPDX-License-Identifier: Apache-2.0
#include "device/session/control_memory.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::int64_t kCopyNs = 10'000'000'000;
constexpr std::size_t kClearBytes = std::size_t{1} << 20;
constexpr std::size_t kBarrierRounds = 32;  // of any number of ranks

}  // namespace

ControlLayout::ControlLayout(const ControlCounts& counts) : ControlCounts(counts) {
  const std::size_t ranks = rank_count, segments = segment_count, word = sizeof(std::uint64_t);
  std::size_t end = 0;
  const auto behind = [&](std::size_t count, std::size_t bytes) {
    const ControlParts parts{end, bytes};
    end = parts(count);
    return parts;
  };
  const auto on_line = [&](std::size_t count, std::size_t bytes) {
    end = to_line(end);
    return behind(count, bytes);
  };
  notifications_at = behind(segments, notification_count * sizeof(device::Notification));
  barrier_at = behind(kBarrierRounds, word).first;
  flush_word_at = behind(1, word).first;
  lines_at = on_line(ranks * ring_count, line_bytes() + to_line(word));
  counters_at = on_line(ranks, device::kCounterCount * word);
  scratch_at = behind(1, kScratchBytes).first;
  if (queue_count != 0) {
    // A port's address, and a key for every segment and for this memory.
    introduction_bytes = to_line(kPortBytes + (segments + 1) * 16);
    introduction_at = behind(1, introduction_bytes).first;
    state_at = behind(ranks, kStateBytes);
    inbox_at = behind(1, introduction_bytes).first;
  }
  shared_bytes = end;

  end = ranks * segments * sizeof(device::DeviceSegment);
  barrier_words_at = on_line(ranks, sizeof(std::uint64_t*)).first;
  counter_lists_at = on_line(ranks, sizeof(std::uint64_t*)).first;
  queue_lists_at = on_line(ranks, sizeof(device::PeerQueue*)).first;
  queues_at = on_line(ranks, queue_count * sizeof(device::PeerQueue));
  cqe_at = behind(ranks * queue_count, to_line(sizeof(device::mlx5::Cqe)));
  kernel_words_at = on_line(1, sizeof(device::KernelWords)).first;
  rings_at = on_line(ranks, ring_count * sizeof(device::PeerRing));
  block_groups_at = on_line(device::kBlockGroups, sizeof(device::BlockGroup)).first;
  statuses_at = behind(ranks + 1, sizeof(std::uint32_t)).first;
  own_bytes = end;
}

ControlMemory::ControlMemory(const ControlLayout& layout, DeviceMemory shared, DeviceMemory own, std::unique_ptr<CopyStream> copies)
    : layout_(layout),
      shared_(std::move(shared)),
      own_(std::move(own)),
      copies_(std::move(copies)),
      known_(layout.rank_count, Status::ok) {}

Result<std::unique_ptr<ControlMemory>> ControlMemory::allocate(int device, const ControlLayout& layout) {
  // VMM memory of its own stays for as long as a peer has it open, and shows the peer nothing else.
  auto shared = DeviceMemory::allocate(device, layout.shared_bytes, DeviceAllocator::vmm);
  if (!shared) return std::move(shared).error();
  auto own = DeviceMemory::allocate(device, layout.own_bytes);
  if (!own) return std::move(own).error();
  auto copies = CopyStream::open(own->is_stand_in() ? -1 : device);
  if (!copies) return std::move(copies).error();
  std::unique_ptr<ControlMemory> memory(new ControlMemory(layout, std::move(*shared), std::move(*own), std::move(*copies)));
  for (const DeviceMemory* part : {&memory->shared_, &memory->own_}) {
    if (Result<void> cleared = memory->clear(*part); !cleared) return std::move(cleared).error();
  }
  auto mapping = map(memory->own(0), layout.own_bytes);
  if (mapping) {
    memory->mapping_ = std::move(*mapping);
  } else {
    log(LogLevel::info, text("device session: statuses go by the copy engine: ", mapping.error().message()));
  }
  return memory;
}

device::DeviceFabric ControlMemory::handle(Rank rank) const noexcept {
  device::DeviceFabric handle;
  handle.version = device::kHandleVersion;
  handle.rank = rank;
  handle.rank_count = layout_.rank_count;
  handle.segment_count = layout_.segment_count;
  handle.notification_count = layout_.notification_count;
  handle.segments = reinterpret_cast<const device::DeviceSegment*>(own(0));
  handle.barrier_words = reinterpret_cast<std::uint64_t* const*>(own(layout_.barrier_words_at));
  handle.queue_count = layout_.queue_count;
  handle.queues = reinterpret_cast<device::PeerQueue* const*>(own(layout_.queue_lists_at));
  handle.words = reinterpret_cast<device::KernelWords*>(own(layout_.kernel_words_at));
  handle.ring_count = layout_.ring_count;
  handle.rings = reinterpret_cast<device::PeerRing*>(own(layout_.rings_at(0)));
  handle.counters =
      reinterpret_cast<const std::uint64_t*>(static_cast<const std::byte*>(shared_.address()) + layout_.counters_at(0));
  handle.remote_counters = reinterpret_cast<std::uint64_t* const*>(own(layout_.counter_lists_at));
  handle.block_groups = reinterpret_cast<device::BlockGroup*>(own(layout_.block_groups_at));
  handle.peer_status = reinterpret_cast<const std::uint32_t*>(own(layout_.statuses_at));
  return handle;
}

Result<void> ControlMemory::copy(CopyWay way, void* to, const void* from, std::size_t bytes) {
  auto ticket = copies_->post(way, to, from, bytes);
  if (!ticket) return std::move(ticket).error();
  const std::int64_t end_ns = now_ns() + kCopyNs;
  for (;;) {
    auto done = copies_->done();
    if (!done) return std::move(done).error();
    if (*done >= *ticket) return {};
    if (now_ns() > end_ns) {
      return make_error(Status::timed_out, "device session", text("copy of ", counted(bytes, "byte")),
                        "the copy engine did not end it in 10 s", "look at what else uses the GPU");
    }
    std::this_thread::yield();
  }
}

Result<void> ControlMemory::clear(const DeviceMemory& memory) {
  const std::vector<std::byte> zeros(std::min(memory.bytes(), kClearBytes));
  for (std::size_t at = 0; at < memory.bytes(); at += zeros.size()) {
    auto* const to = static_cast<std::byte*>(memory.address()) + at;
    if (Result<void> done = put(to, zeros.data(), std::min(zeros.size(), memory.bytes() - at)); !done) return done;
  }
  return {};
}

Result<void> ControlMemory::put_tables(Rank own_rank, Rank rank, const ReachedRank& reached) {
  const auto put_pointer = [&](std::size_t list_at, bool is_in_reach, std::size_t shared_at) {
    const std::byte* const place = is_in_reach ? reached.shared + shared_at : nullptr;
    return put(own(list_at + rank * sizeof place), static_cast<const void*>(&place), sizeof place);
  };
  const std::span<const device::DeviceSegment> segments(reached.segments);
  Result<void> done = put(own(rank * segments.size_bytes()), segments.data(), segments.size_bytes());
  if (done) done = put_pointer(layout_.barrier_words_at, reached.shared != nullptr, layout_.barrier_at);
  // Where the rank counts the writes of this one.
  if (done) done = put_pointer(layout_.counter_lists_at, reached.has_atomics, layout_.counters_at(own_rank));
  if (done && layout_.ring_count != 0) done = put_rings(own_rank, rank, reached.shared);
  return done;
}

Result<void> ControlMemory::put_rings(Rank own_rank, Rank rank, std::byte* shared) {
  std::vector<device::PeerRing> rings(layout_.ring_count);
  const std::span<device::PeerRing> all(rings);
  std::byte* const place = own(layout_.rings_at(rank));
  if (Result<void> got = copy(CopyWay::from_device, all.data(), place, all.size_bytes()); !got) return got;
  auto* const here = static_cast<std::byte*>(shared_.address());
  for (std::uint32_t ring = 0; ring < layout_.ring_count; ++ring) {
    for (device::RingEnd* end : {&rings[ring].send, &rings[ring].recv}) {
      const bool is_send = end == &rings[ring].send;
      // The receiver's memory has the lines, the sender's the credit; each lies where the rank that writes it has its place.
      std::byte* const receiver = is_send ? shared : here;
      std::byte* const sender = is_send ? here : shared;
      const bool is_in_reach = shared != nullptr;
      const std::size_t lines = layout_.lines_at(layout_.ring_index(is_send ? own_rank : rank, ring));
      const std::size_t credit = layout_.lines_at(layout_.ring_index(is_send ? rank : own_rank, ring)) + layout_.line_bytes();
      end->lines = is_in_reach ? reinterpret_cast<device::MessageLine*>(receiver + lines) : nullptr;
      end->credit = is_in_reach ? reinterpret_cast<std::uint64_t*>(sender + credit) : nullptr;
      end->line_count = layout_.ring_line_count;
      end->status = reinterpret_cast<const std::uint32_t*>(own(layout_.statuses_at)) + rank;
    }
  }
  return put(place, all.data(), all.size_bytes());
}

Result<void> ControlMemory::put_queues(Rank rank, std::span<const device::PeerQueue> queues) {
  std::byte* const place = queues.empty() ? nullptr : own(layout_.queues_at(rank));
  Result<void> done = queues.empty() ? Result<void>() : put(place, queues.data(), queues.size_bytes());
  if (done) done = put(own(layout_.queue_lists_at + rank * sizeof place), static_cast<const void*>(&place), sizeof place);
  return done;
}

Result<void> ControlMemory::get_queues(Rank rank, std::span<device::PeerQueue> queues) {
  return copy(CopyWay::from_device, queues.data(), own(layout_.queues_at(rank)), queues.size_bytes());
}

Result<void> ControlMemory::put_shared(std::size_t offset, std::span<const std::byte> bytes) {
  return put(static_cast<std::byte*>(shared_.address()) + offset, bytes.data(), bytes.size());
}

Result<void> ControlMemory::get_shared(std::size_t offset, std::span<std::byte> bytes) {
  return copy(CopyWay::from_device, bytes.data(), static_cast<const std::byte*>(shared_.address()) + offset, bytes.size());
}

std::optional<soft_hca::Place> ControlMemory::cqe(Rank rank, std::uint32_t queue) const noexcept {
  if (!mapping_) return std::nullopt;
  const std::size_t offset = layout_.cqe_at(std::size_t{rank} * layout_.queue_count + queue);
  return soft_hca::Place{mapping_->address() + offset, reinterpret_cast<std::uintptr_t>(own(offset))};
}

// Kernels poll it: by one store where the CPU reaches it.
Result<void> ControlMemory::put_status_word(std::size_t index, std::uint32_t value) {
  if (!mapping_) return put(own(layout_.statuses_at + index * sizeof value), &value, sizeof value);
  auto* const word = reinterpret_cast<std::uint32_t*>(mapping_->address() + layout_.statuses_at) + index;
  std::atomic_ref(*word).store(value, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // out of the write-combining buffer
  return {};
}

Result<void> ControlMemory::put_status(Rank rank, Status status) {
  const auto is_lost = [](Status known) { return known != Status::ok; };
  const auto lost =
      std::count_if(known_.begin(), known_.end(), is_lost) - (is_lost(known_[rank]) ? 1 : 0) + (is_lost(status) ? 1 : 0);
  if (Result<void> put = put_status_word(rank, static_cast<std::uint32_t>(status)); !put) return put;
  if (Result<void> put = put_status_word(layout_.rank_count, static_cast<std::uint32_t>(lost)); !put) return put;
  known_[rank] = status;  // now: what could not be told is told with the next look
  return {};
}

}  // namespace gigabar::inline v0
