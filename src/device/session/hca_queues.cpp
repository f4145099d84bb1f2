// SPDX-License-Identifier: Apache-2.0
// Queues of an adapter of mlx5, on which nothing of the CPU executes anything. Ranks tell each other of their adapters through
// their control segments.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/remaining.hpp"
#include "base/start_thread.hpp"
#include "device/hca/hca.hpp"
#include "device/session/session_queues.hpp"

namespace gigabar::inline v0 {
#if GIGABAR_HAS_MLX5DV && GIGABAR_HAS_RDMACM
namespace {

constexpr QueueId kFabricQueue = kQueues - 1;  // programs count from 0
constexpr auto kLookAgain = std::chrono::microseconds(200);
constexpr std::int64_t kTryNs = 2'000'000'000;  // behind all retries of an adapter
constexpr std::int64_t kForeverNs = std::int64_t{1} << 60;
constexpr std::uint32_t kVainLooks = 4096;  // before the ringing thread lets others run

std::int64_t ns_of(const Timeout& timeout) { return timeout.is_forever() ? kForeverNs : std::max<std::int64_t>(timeout.ns(), 0); }

template <class Value>
std::span<const std::byte> bytes_of(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

// For one thread at a time; beside it runs one that rings for kernels which may not.
class HcaQueues final : public SessionQueues {
 public:
  HcaQueues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options, std::unique_ptr<hca::Hca> hca)
      : fabric_(fabric), memory_(memory), options_(options), hca_(std::move(hca)) {}
  ~HcaQueues() override { stop(); }

  QueueEngine engine() const noexcept override {
    return ringer_ == hca::Ringer::kernel ? QueueEngine::hca : QueueEngine::hca_cpu_doorbell;
  }
  std::string describe() const override {
    return why_cpu_.empty() ? hca_->name() : text(hca_->name(), "; kernels cannot ring: ", why_cpu_);
  }
  Result<std::uint32_t> add_segment(const soft_hca::FabricRange& segment) override;
  // Ends with a request of the CPU's in each queue.
  Result<void> connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) override;
  void refuse(Rank rank) override;
  device::Remote place(Rank rank, SegmentId id) const override {
    const SegmentKey& key = key_of(peers_.at(rank), id);
    return {key.address, key.key};
  }
  void leave(Rank) noexcept override {}
  bool has(Rank rank) const noexcept override { return peers_.contains(rank); }
  std::string why_not_mapped(Rank, SegmentId) const override { return "an HCA writes them"; }
  Result<void> start() override;
  void stop() noexcept override {
    is_stopping_ = true;
    if (ringing_.joinable()) ringing_.join();
  }
  Result<void> drain(const Timeout& timeout) override;

 private:
  // Of a segment, as the adapter of the rank that tells it has it.
  struct SegmentKey {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t is_there = 0;
  };
  // How far a rank has come with another. What stands in its state may be used by who sees it there.
  enum class Step : std::uint32_t { none, failed, made, connected, drained };
  // For one peer.
  struct QueueState {
    std::uint32_t attempt = 0;  // that both are at
    Step step = Step::none;
    std::uint32_t queue_count = 0;
    std::array<std::uint32_t, 16> numbers{};
  };
  static_assert(sizeof(QueueState) <= ControlLayout::kStateBytes && sizeof(SegmentKey) == 16);
  static_assert(sizeof(hca::PortAddress) <= ControlLayout::kPortBytes);
  struct Peer {
    std::vector<std::unique_ptr<hca::HcaQueue>> queues;
    std::vector<SegmentKey> keys;  // [id], that of the control segment last
    QueueState told;
  };

  Result<std::vector<std::byte>> read(Rank rank, std::size_t offset, std::size_t bytes, const Timeout& timeout);
  Result<QueueState> read_state(Rank rank, const Timeout& timeout);
  Result<void> tell(Rank rank, QueueState& state);
  Result<QueueState> await(Rank rank, QueueState& own, Step least, const Timeout& timeout);
  Result<void> make_queues(Peer& peer);
  Result<void> meet(Rank rank, Peer& peer, std::span<const RemoteBytes> segments, const Timeout& timeout);
  Result<void> join(Rank rank, Peer& peer, std::span<const RemoteBytes> segments, const Timeout& timeout);
  const SegmentKey& key_of(const Peer& peer, SegmentId id) const {
    return id == options_.control_segment ? peer.keys.back() : peer.keys[id];
  }
  Result<void> empty_queues(Rank rank, const Timeout& timeout);
  void ring_all() noexcept;

  Fabric& fabric_;
  ControlMemory& memory_;
  const DeviceSessionOptions& options_;
  std::unique_ptr<hca::Hca> hca_;
  bool is_open_ = false;  // a rank whose connect() failed may try again
  hca::Ringer ringer_ = hca::Ringer::kernel;
  std::string why_cpu_;
  std::map<Rank, std::uint32_t> attempts_;
  std::map<Rank, Peer> peers_;  // behind hca_: destroyed before it
  std::atomic<bool> is_stopping_{false};
  std::thread ringing_;
};

Result<std::uint32_t> HcaQueues::add_segment(const soft_hca::FabricRange& segment) {
  const auto keys = hca_->register_memory(segment.cpu, segment.bytes);
  if (!keys) return keys.error();
  const SegmentKey key{reinterpret_cast<std::uintptr_t>(segment.cpu), keys->remote, 1};
  const std::size_t at = memory_.layout().introduction_at + ControlLayout::kPortBytes + segment.segment * sizeof key;
  if (Result<void> told = memory_.put_shared(at, bytes_of(key)); !told) return std::move(told).error();
  return keys->local;
}

// --- What ranks tell each other --------------------------------------------------------------------------------------------------

Result<std::vector<std::byte>> HcaQueues::read(Rank rank, std::size_t offset, std::size_t bytes, const Timeout& timeout) {
  const PostOptions options{.queue = kFabricQueue, .policy = std::nullopt};
  const std::size_t inbox = memory_.layout().inbox_at;
  auto posted = fabric_.read({options_.control_segment, inbox}, {rank, options_.control_segment, offset}, bytes, options);
  if (!posted) return std::move(posted).error();
  if (Result<void> done = fabric_.wait(kFabricQueue, timeout); !done) return std::move(done).error();
  std::vector<std::byte> content(bytes);
  if (Result<void> got = memory_.get_shared(inbox, content); !got) return std::move(got).error();
  return content;
}

// The step goes last: who sees it sees the rest.
Result<void> HcaQueues::tell(Rank rank, QueueState& state) {
  const Step step = std::exchange(state.step, Step::none);
  const std::size_t at = memory_.layout().state_at(rank);
  if (Result<void> put = memory_.put_shared(at, bytes_of(state)); !put) return put;
  state.step = step;
  std::atomic_thread_fence(std::memory_order_release);  // where the memory is a stand-in, and the peer maps it
  return memory_.put_shared(at + offsetof(QueueState, step), bytes_of(step));
}

Result<HcaQueues::QueueState> HcaQueues::read_state(Rank rank, const Timeout& timeout) {
  const auto bytes = read(rank, memory_.layout().state_at(fabric_.rank()), sizeof(QueueState), timeout);
  if (!bytes) return bytes.error();
  QueueState state;
  std::memcpy(&state, bytes->data(), sizeof state);
  return state;
}

// The peer's state, when both are at the same attempt and it has come to `least`. Who comes later with a higher one takes the other
// along: an attempt that only one side made must not keep the two apart.
Result<HcaQueues::QueueState> HcaQueues::await(Rank rank, QueueState& own, Step least, const Timeout& timeout) {
  const Remaining time(timeout);
  while (true) {
    const auto state = read_state(rank, time.left());
    if (!state) return state.error();
    const bool is_told = state->step != Step::none && state->attempt >= own.attempt;
    if (is_told && state->attempt > own.attempt) {
      attempts_[rank] = own.attempt = state->attempt;
      if (Result<void> told = tell(rank, own); !told) return std::move(told).error();
    }
    if (is_told && state->step == Step::failed && !is_open_)
      return make_error(Status::not_supported, "connect queues", text("rank ", rank),
                        "it could not connect its queues; its log has the reason");
    if (is_told && state->step >= least) {
      // Seen in one piece now: nothing of it changes behind its step.
      std::atomic_thread_fence(std::memory_order_acquire);
      return read_state(rank, time.left());
    }
    if (!timeout.is_forever() && time.left().ns() <= 0)
      return make_error(Status::timed_out, "connect queues", text("rank ", rank), "it did not connect its queues in time",
                        "look whether it runs");
    std::this_thread::sleep_for(kLookAgain);
  }
}

// --- Connecting ------------------------------------------------------------------------------------------------------------------

Result<void> HcaQueues::make_queues(Peer& peer) {
  const std::uint32_t count = memory_.layout().queue_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto queue = hca::HcaQueue::create(*hca_, options_.queue_depth);
    if (!queue) return std::move(queue).error();
    peer.told.numbers[i] = (*queue)->number();
    ringer_ = (*queue)->ringer();
    why_cpu_ = (*queue)->why_cpu();
    peer.queues.push_back(std::move(*queue));
  }
  peer.told.queue_count = count;
  return {};
}

// Tells the rank of this side's queues, learns of its, and connects them.
Result<void> HcaQueues::meet(Rank rank, Peer& peer, std::span<const RemoteBytes> segments, const Timeout& timeout) {
  const Remaining time(timeout);
  Result<void> made = make_queues(peer);
  peer.told.step = made ? Step::made : Step::failed;
  if (Result<void> told = tell(rank, peer.told); !told) return told;
  if (!made) return made;
  auto state = await(rank, peer.told, Step::made, time.left());
  if (!state) return std::move(state).error();
  auto bytes = read(rank, memory_.layout().introduction_at, memory_.layout().introduction_bytes, time.left());
  if (!bytes) return std::move(bytes).error();
  hca::PortAddress address;
  std::memcpy(&address, bytes->data(), sizeof address);
  peer.keys.resize(memory_.layout().segment_count + 1);
  std::memcpy(peer.keys.data(), bytes->data() + ControlLayout::kPortBytes, peer.keys.size() * sizeof(SegmentKey));
  if (state->queue_count != peer.queues.size())
    return make_error(Status::peer_lost, "connect queues", text("rank ", rank),
                      text("it has ", counted(state->queue_count, "queue"), ", this rank ", peer.queues.size()),
                      "open sessions with equal options at all ranks");
  for (const RemoteBytes& segment : segments) {
    if (key_of(peer, segment.id).is_there != 0) continue;
    return make_error(Status::not_supported, "connect queues", text("segment ", segment.id, " of rank ", rank),
                      "it is not in the memory of that rank's device, and only such is registered with its adapter",
                      "use the software HCA, or DeviceMemory");
  }
  for (std::size_t i = 0; i < peer.queues.size(); ++i) {
    if (Result<void> connected = peer.queues[i]->connect(address, state->numbers[i]); !connected) return connected;
  }
  return {};
}

Result<void> HcaQueues::join(Rank rank, Peer& peer, std::span<const RemoteBytes> segments, const Timeout& timeout) {
  const Remaining time(timeout);
  if (Result<void> met = meet(rank, peer, segments, time.left()); !met) return met;
  peer.told.step = Step::connected;
  if (Result<void> told = tell(rank, peer.told); !told) return told;
  if (auto state = await(rank, peer.told, Step::connected, time.left()); !state) return std::move(state).error();
  const SegmentKey& control = peer.keys.back();
  const ControlLayout& layout = memory_.layout();
  std::vector<device::PeerQueue> queues;
  for (const auto& queue : peer.queues) {
    device::PeerQueue& made = queue->queue();
    made.barrier_words = {control.address + layout.barrier_at, control.key};
    made.flush_word = {control.address + layout.flush_word_at, control.key};
    if (Result<void> works = queue->try_out(made.flush_word, std::min(kTryNs, ns_of(time.left()))); !works) return works;
    queues.push_back(made);
  }
  return memory_.put_queues(rank, queues);
}

Result<void> HcaQueues::connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) {
  if (Result<void> taken = memory_.put_queues(rank, {}); !taken) return taken;
  peers_.erase(rank);
  Peer peer;
  peer.told.attempt = ++attempts_[rank];
  if (Result<void> joined = join(rank, peer, segments, timeout); !joined) {
    refuse(rank);
    return joined;
  }
  peers_[rank] = std::move(peer);
  return {};
}

void HcaQueues::refuse(Rank rank) {
  QueueState state;
  state.attempt = std::max(attempts_[rank], 1U);
  state.step = Step::failed;
  if (const Result<void> told = tell(rank, state); !told) log(LogLevel::warning, told.message());
}

// --- While kernels run -----------------------------------------------------------------------------------------------------------

void HcaQueues::ring_all() noexcept {
  pthread_setname_np(pthread_self(), "gigabar-bell");
  std::uint32_t vain_looks = 0;
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    bool has_rung = false;
    for (const auto& [rank, peer] : peers_) {
      for (const auto& queue : peer.queues) has_rung = queue->ring() || has_rung;
    }
    vain_looks = has_rung ? 0 : vain_looks + 1;
    if (vain_looks < kVainLooks) continue;
    vain_looks = kVainLooks;
    std::this_thread::yield();
  }
}

Result<void> HcaQueues::start() {
  if (peers_.empty()) return {};
  is_open_ = true;
  if (ringer_ == hca::Ringer::kernel || ringing_.joinable()) return {};
  is_stopping_ = false;
  return start_thread(ringing_, "start a thread", "that rings doorbells", [this] { ring_all(); });
}

// By the functions of kernels, on a copy of what they left. A queue in error does nothing any more.
Result<void> HcaQueues::empty_queues(Rank rank, const Timeout& timeout) {
  std::vector<device::PeerQueue> queues(memory_.layout().queue_count);
  if (Result<void> got = memory_.get_queues(rank, queues); !got) return got;
  for (device::PeerQueue& queue : queues) {
    const device::Timeout time{static_cast<std::uint64_t>(ns_of(timeout))};
    if (device::flush<device::Sharing::exclusive>(device::Thread{}, queue.queue, time) != Status::timed_out) continue;
    return make_error(Status::timed_out, "close", "device session", "operations that kernels posted are not done yet",
                      "call again");
  }
  return {};
}

// A queue pair must stay until its peer writes to it no more. A peer whose state can no longer be read has gone on or is lost.
Result<void> HcaQueues::drain(const Timeout& timeout) {
  const Remaining time(timeout);
  for (auto& [rank, peer] : peers_) {
    if (peer.told.step == Step::drained) continue;
    if (Result<void> emptied = empty_queues(rank, time.left()); !emptied) return emptied;
    QueueState drained = peer.told;
    drained.step = Step::drained;
    if (Result<void> told = tell(rank, drained); !told) return told;
    peer.told = drained;
  }
  for (auto& [rank, peer] : peers_) {
    if (memory_.status(rank) != Status::ok) continue;
    const auto state = await(rank, peer.told, Step::drained, time.left());
    if (!state && state.status() == Status::timed_out) return Error(state.error().record());
    if (!state) log(LogLevel::info, text("device session: rank ", rank, " is not waited for: ", state.error().message()));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SessionQueues>> open_hca_queues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options) {
  hca::HcaOptions wanted{fabric.device(), options.hca_port, options.hca_gid_index, std::nullopt, fabric.local_rank()};
  if (options.engine == QueueEngine::hca) wanted.ringer = hca::Ringer::kernel;
  if (options.engine == QueueEngine::hca_cpu_doorbell) wanted.ringer = hca::Ringer::cpu;
  auto hca = hca::Hca::open(wanted);
  if (!hca) return std::move(hca).error();
  const ControlLayout& layout = memory.layout();
  if (Result<void> told = memory.put_shared(layout.introduction_at, bytes_of((*hca)->address())); !told)
    return std::move(told).error();
  auto queues = std::make_unique<HcaQueues>(fabric, memory, options, std::move(*hca));
  auto key = queues->add_segment(
      {static_cast<SegmentId>(layout.segment_count), static_cast<std::byte*>(memory.shared_address()), layout.shared_bytes});
  if (!key) return std::move(key).error();
  return std::unique_ptr<SessionQueues>(std::move(queues));
}

#else

Result<std::unique_ptr<SessionQueues>> open_hca_queues(Fabric&, ControlMemory&, const DeviceSessionOptions& options) {
  hca::HcaOptions wanted;
  wanted.port = options.hca_port;
  return hca::Hca::open(wanted).error();
}

#endif
}  // namespace gigabar::inline v0
