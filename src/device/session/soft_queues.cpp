// SPDX-License-Identifier: Apache-2.0
// Queues with a software HCA behind the doorbells: rings in pinned host memory, CQs in device memory, and a wire over the fabric
// for each queue.
#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/remaining.hpp"
#include "base/undo.hpp"
#include "device/fabric_wire/fabric_wire.hpp"
#include "device/session/session_queues.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/memory.hpp"

namespace gigabar::inline v0 {
namespace {

using soft_hca::Access;
using soft_hca::Place;

constexpr QueueId kLastFabricQueue = kQueues - 1;  // programs count from 0

// The proxies run beside the calling thread.
class SoftQueues final : public SessionQueues {
 public:
  SoftQueues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options)
      : fabric_(fabric), memory_(memory), options_(options) {}
  // Ends the proxies first.
  ~SoftQueues() override;

  QueueEngine engine() const noexcept override { return QueueEngine::software_hca; }
  Result<std::uint32_t> add_segment(const soft_hca::FabricRange& segment) override;
  Result<void> connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) override;
  device::Remote place(Rank rank, SegmentId id) const override { return {0, soft_hca::fabric_key(rank, id)}; }
  void leave(Rank rank) noexcept override;
  Result<void> finish(Rank rank, const Timeout& timeout) override;
  bool has(Rank rank) const noexcept override { return ranks_.contains(rank); }
  std::string why_not_mapped(Rank rank, SegmentId id) const override;
  Result<void> start() override;
  void stop() noexcept override { proxies_.reset(); }
  Result<void> drain(const Timeout& timeout) override {
    return await("close", timeout, [this] { return hca_.is_idle(); });
  }

 private:
  struct PeerEnd {
    HostMemory memory;  // ring, results, record, doorbell, CQE
    std::unique_ptr<soft_hca::FabricWire> wire;
    std::uint32_t number = 0;
    std::uint32_t results_key = 0;
  };
  // What small writes to a rank are stored to directly.
  struct MappedRank {
    std::vector<soft_hca::FabricRange> segments;
    std::map<SegmentId, std::string> why_not;
  };
  // Looks until it is so.
  template <class IsDone>
  static Result<void> await(const char* operation, const Timeout& timeout, const IsDone& is_done) {
    const std::int64_t begin_ns = now_ns();
    while (!is_done()) {
      if (!timeout.is_forever() && now_ns() - begin_ns > timeout.ns()) {
        return make_error(Status::timed_out, operation, "device session", "operations that kernels posted are not done yet",
                          "call again");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return {};
  }
  // Moves bytes between scratch memory and each of the rank's segments, both ways: what a path allocates or loads at its first use
  // would wait for kernels that run. Errors: those of the operations.
  Result<void> warm_up(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);
  Result<PeerEnd> make_end(Rank rank, std::uint32_t index, device::PeerQueue& queue);
  void drop(std::vector<PeerEnd>& ends);
  void map_segments(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);

  Fabric& fabric_;
  ControlMemory& memory_;
  const DeviceSessionOptions& options_;
  std::vector<soft_hca::FabricRange> local_;
  std::map<Rank, std::vector<PeerEnd>> ranks_;
  std::map<Rank, MappedRank> mapped_;
  std::vector<std::vector<PeerEnd>> dropped_;  // what their wires began may still land
  soft_hca::SoftHca hca_;                      // behind the wires: destroyed before them
  std::unique_ptr<soft_hca::ProxyThreads> proxies_;
};

SoftQueues::~SoftQueues() {
  proxies_.reset();
  while (!mapped_.empty()) leave(mapped_.begin()->first);
}

// The HCA never looks at the bytes of a segment: the wire names it to the fabric.
Result<std::uint32_t> SoftQueues::add_segment(const soft_hca::FabricRange& segment) {
  local_.push_back(segment);
  return hca_.memory().register_memory(
      soft_hca::MemoryRange::plain(segment.cpu, segment.bytes, Access::local_read | Access::local_write));
}

Result<SoftQueues::PeerEnd> SoftQueues::make_end(Rank rank, std::uint32_t index, device::PeerQueue& queue) {
  // What the GPU writes and what the CPU writes have lines of their own.
  const std::size_t results_at = std::size_t{options_.queue_depth} * sizeof(device::mlx5::Block);
  const std::size_t result_bytes = device::kResultWords * sizeof(std::uint64_t);
  const std::size_t record_at = to_line(results_at + result_bytes), doorbell_at = record_at + kLine, cqe_at = doorbell_at + kLine;
  auto memory = HostMemory::allocate(cqe_at + kLine);
  if (!memory) return std::move(memory).error();
  auto* const base = static_cast<std::byte*>(memory->address());
  PeerEnd end{std::move(*memory), nullptr, 0, 0};

  soft_hca::FabricWireOptions wire;
  wire.peer = rank;
  wire.local = local_;
  wire.remote = mapped_[rank].segments;
  wire.queue = static_cast<QueueId>(kLastFabricQueue - index % options_.proxy_thread_count);
  wire.moves_fabric = ranks_.empty() && index == 0;
  end.wire = std::make_unique<soft_hca::FabricWire>(fabric_, wire);

  soft_hca::QueueMemory places{Place::plain(base), Place::plain(base + record_at), Place::plain(base + doorbell_at),
                               Place::plain(base + cqe_at), nullptr};
  if (const auto cqe = memory_.cqe(rank, index)) {
    places.cq = *cqe;
    places.drain = [] { detail::fence_stores(); };
  }
  std::byte* const results = base + results_at;
  auto key = hca_.memory().register_memory(soft_hca::MemoryRange::plain(results, result_bytes, Access::local_write));
  if (!key) return std::move(key).error();
  Undo deregister([&] { hca_.memory().deregister_memory(*key); });
  end.results_key = *key;
  // Last: the HCA uses the memory from then on.
  soft_hca::QueueOptions options;
  options.depth = options_.queue_depth;
  auto number = hca_.create_queue(options, places, *end.wire, queue.queue);
  if (!number) return std::move(number).error();
  deregister.call_off();
  end.number = *number;
  queue.results = {reinterpret_cast<std::uintptr_t>(results), *key};
  const std::uint32_t control_key = soft_hca::fabric_key(rank, options_.control_segment);
  queue.barrier_words = {memory_.layout().barrier_at, control_key};
  queue.flush_word = {memory_.layout().flush_word_at, control_key};
  return end;
}

void SoftQueues::drop(std::vector<PeerEnd>& ends) {
  for (const PeerEnd& end : ends) {
    static_cast<void>(hca_.close_queue(end.number).is_ok());
    hca_.memory().deregister_memory(end.results_key);
  }
  if (!ends.empty()) dropped_.push_back(std::move(ends));
}

// What cannot be mapped is reached over the fabric alone.
void SoftQueues::map_segments(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) {
  MappedRank& mapped = mapped_[rank];
  mapped.segments.reserve(mapped.segments.size() + segments.size());  // what is mapped is noted
  for (const RemoteBytes& segment : segments) {
    auto address = fabric_.map_segment(rank, segment.id, timeout, MappedFor::cpu);
    if (address)
      mapped.segments.push_back({segment.id, static_cast<std::byte*>(*address), segment.bytes});
    else
      mapped.why_not[segment.id] = address.error().record().cause;
  }
}

void SoftQueues::leave(Rank rank) noexcept {
  const auto found = mapped_.find(rank);
  if (found == mapped_.end()) return;
  for (const soft_hca::FabricRange& segment : found->second.segments) {
    if (const Result<void> left = fabric_.unmap_segment(rank, segment.segment, MappedFor::cpu); !left)
      log(LogLevel::warning, left.message());
  }
  mapped_.erase(found);
}

std::string SoftQueues::why_not_mapped(Rank rank, SegmentId id) const {
  const auto found = mapped_.find(rank);
  if (found == mapped_.end()) return "the rank has no queues";
  const auto reason = found->second.why_not.find(id);
  return reason == found->second.why_not.end() ? std::string() : reason->second;
}

Result<void> SoftQueues::connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) {
  const Remaining time(timeout);
  dropped_.reserve(dropped_.size() + 2);  // a queue that is dropped is noted: its number is used again
  if (const auto old = ranks_.find(rank); old != ranks_.end()) drop(old->second);
  leave(rank);
  // Kernels store to their own rank's memory themselves: queues to it carry notifications for its CPU alone.
  if (rank != fabric_.rank()) {
    if (Result<void> warm = warm_up(rank, segments, time.left()); !warm) return warm;
    map_segments(rank, segments, time.left());
  }
  std::vector<device::PeerQueue> queues(memory_.layout().queue_count);
  std::vector<PeerEnd> ends;
  ends.reserve(queues.size());
  Undo drop_again([&] { drop(ends); });  // the HCA must know nothing of them when their memory goes
  for (std::uint32_t index = 0; index < queues.size(); ++index) {
    auto end = make_end(rank, index, queues[index]);
    if (!end) return std::move(end).error();
    ends.push_back(std::move(*end));
  }
  std::vector<PeerEnd>& kept = ranks_[rank];
  drop_again.call_off();
  kept = std::move(ends);
  return memory_.put_queues(rank, queues);
}

Result<void> SoftQueues::warm_up(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) {
  const PostOptions options{.queue = kLastFabricQueue, .policy = std::nullopt};
  const LocalPlace scratch{options_.control_segment, memory_.layout().scratch_at};
  const auto settle = [&](const Result<Operation>& posted) -> Result<void> {
    if (!posted) return Error(posted.error());
    return fabric_.wait(kLastFabricQueue, timeout);
  };
  for (const RemoteBytes& segment : segments) {
    if (segment.id == options_.control_segment) continue;
    const std::uint64_t bytes = std::min<std::uint64_t>(segment.bytes, ControlLayout::kScratchBytes);
    if (Result<void> done = settle(fabric_.read(scratch, {rank, segment.id, 0}, bytes, options)); !done) return done;
  }
  const RemotePlace there{rank, options_.control_segment, scratch.offset_bytes};
  if (Result<void> done = settle(fabric_.write(scratch, there, ControlLayout::kScratchBytes, options)); !done) return done;
  return fabric_.flush(rank, timeout);
}

Result<void> SoftQueues::finish(Rank rank, const Timeout& timeout) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return {};
  return await("recover", timeout, [&] {
    return std::all_of(found->second.begin(), found->second.end(), [this](const PeerEnd& end) { return hca_.is_idle(end.number); });
  });
}

Result<void> SoftQueues::start() {
  if (ranks_.empty()) return {};
  auto started = soft_hca::ProxyThreads::start(hca_, options_.proxy_thread_count);
  if (!started) return std::move(started).error();
  proxies_ = std::move(*started);
  return {};
}

}  // namespace

std::unique_ptr<SessionQueues> make_soft_queues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options) {
  return std::make_unique<SoftQueues>(fabric, memory, options);
}

}  // namespace gigabar::inline v0
