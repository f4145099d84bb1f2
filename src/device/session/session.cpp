#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/undo.hpp"
#include "device/session/control_memory.hpp"
#include "device/session/peer_queues.hpp"
#include "fabric/remaining.hpp"
#include "gigabar/device_session.hpp"
#include "memory/device_idle.hpp"

namespace gigabar {
namespace {

constexpr std::chrono::milliseconds kLookAtPeers(5);  // how late kernels hear of a lost peer
constexpr std::int64_t kLastWaitNs = 10'000'000'000;
constexpr std::uint32_t kMostNotifications = 65536;
constexpr std::uint32_t kMostQueueCount = 16;
constexpr std::uint32_t kLeastDepth = 8;         // a batch of the largest post and some
constexpr std::uint32_t kMostProxyThreads = 12;  // each has a queue of the fabric

Outcome check(const DeviceSessionOptions& options) {
  const auto bad = [](std::string object, std::string cause, std::string remedy) {
    return make_error(Status::invalid_argument, "device session", std::move(object), std::move(cause), std::move(remedy));
  };
  if (options.segment_count == 0 || options.segment_count >= kMostSegments) {
    return bad(text("segment_count ", options.segment_count), text("it is not between 1 and ", kMostSegments - 1),
               "give such a number");
  }
  if (options.control_segment < options.segment_count || options.control_segment >= kMostSegments) {
    return bad(text("control_segment ", options.control_segment),
               "it is one of the segments that kernels name, or no segment at all",
               text("give an id from segment_count (", options.segment_count, ") to ", kMostSegments - 1));
  }
  if (options.notification_count == 0 || options.notification_count > kMostNotifications) {
    return bad(text("notification_count ", options.notification_count), text("it is not between 1 and ", kMostNotifications),
               "give such a number");
  }
  if (options.queue_count == 0 || options.queue_count > kMostQueueCount) {
    return bad(text("queue_count ", options.queue_count), text("it is not between 1 and ", kMostQueueCount), "give such a number");
  }
  if (options.queue_depth < kLeastDepth || options.queue_depth > device::kMostDepth || !std::has_single_bit(options.queue_depth)) {
    return bad(text("queue_depth ", options.queue_depth),
               text("it is no power of two between ", kLeastDepth, " and ", device::kMostDepth), "give such a number");
  }
  if (options.proxy_thread_count == 0 || options.proxy_thread_count > kMostProxyThreads) {
    return bad(text("proxy_thread_count ", options.proxy_thread_count), text("it is not between 1 and ", kMostProxyThreads),
               "give such a number");
  }
  return {};
}

}  // namespace

struct DeviceSession::State {
  State(Fabric shared_fabric, const DeviceSessionOptions& chosen) : fabric(std::move(shared_fabric)), options(chosen) {}

  Outcome open();
  Outcome agree_on_options(const Remaining& time);
  Outcome reach_rank(Rank rank, const Remaining& time);
  Outcome recover(Rank rank, const Timeout& timeout);
  Outcome close(const Timeout& timeout);
  void leave_rank(Rank rank);
  Outcome start_queues();
  void watch();
  void stop_watching();

  // One segment of `rank`, mapped; nothing: the rank has none of that id. Errors: those of the connection.
  struct Reached {
    void* address = nullptr;
    std::uint64_t bytes = 0;
    std::string why_not;
  };
  Result<std::optional<Reached>> reach_segment(Rank rank, SegmentId id, const Remaining& time);

  Fabric fabric;
  const DeviceSessionOptions options;
  const std::uint32_t generation = detail::process_generation;
  std::unique_ptr<ControlMemory> memory;
  std::unique_ptr<PeerQueues> queues;  // behind memory: it goes first
  device::DeviceFabric handle;
  bool is_registered = false;  // the control segment
  bool is_closed = false;
  std::vector<std::vector<SegmentId>> mapped;     // [rank]
  std::vector<std::vector<std::string>> why_not;  // [rank][id]; empty: it is in reach

  std::mutex mutex;  // of what follows, and of statuses
  std::condition_variable wake;
  bool is_stopping = false;
  std::thread watcher;
};

// --- Reaching --------------------------------------------------------------------------------------------------------------------

Result<std::optional<DeviceSession::State::Reached>> DeviceSession::State::reach_segment(Rank rank, SegmentId id,
                                                                                         const Remaining& time) {
  auto known = fabric.remote_segment(rank, id, time.left());
  if (!known && known.status() == Status::out_of_range) return std::optional<Reached>();
  if (!known) return std::move(known).error();
  Reached reached;
  reached.bytes = known->bytes;
  auto address = fabric.map_segment(rank, id, time.left());
  if (address) {
    reached.address = *address;
    mapped[rank].push_back(id);
  } else if (address.status() == Status::not_supported) {
    reached.why_not = address.error().record().cause;
  } else {
    return std::move(address).error();
  }
  return std::optional(std::move(reached));
}

Outcome DeviceSession::State::reach_rank(Rank rank, const Remaining& time) {
  const ControlLayout& layout = memory->layout();
  auto control = reach_segment(rank, options.control_segment, time);
  if (!control) return std::move(control).error();
  if (!*control || (*control)->bytes != layout.shared_bytes()) {
    return make_error(Status::peer_lost, "device session", text("rank ", rank), "it has no session like this one",
                      "open sessions with equal options at all ranks");
  }
  const bool is_own = rank == fabric.rank();
  const bool is_by_queue = options.queues == QueueUse::always && !is_own;
  auto* const shared = is_by_queue ? nullptr : static_cast<std::byte*>((*control)->address);
  if (is_by_queue) (*control)->why_not = "queues are asked for";
  bool is_all_direct = shared != nullptr;
  std::vector<device::DeviceSegment> segments(layout.segment_count);
  for (SegmentId id = 0; id < options.segment_count; ++id) {
    why_not[rank][id] = "the rank has no such segment";
    auto reached = reach_segment(rank, id, time);
    if (!reached) return std::move(reached).error();
    if (!*reached) continue;
    // Bytes without their notifications are of no use, nor the other way round.
    const bool is_direct = shared != nullptr && (*reached)->address != nullptr;
    why_not[rank][id] = shared == nullptr ? (*control)->why_not : (*reached)->why_not;
    segments[id].bytes = (*reached)->bytes;
    segments[id].remote = {0, soft_hca::fabric_key(rank, id)};
    segments[id].remote_notifications = {layout.notifications_at(id), soft_hca::fabric_key(rank, options.control_segment)};
    is_all_direct = is_all_direct && is_direct;
    if (!is_direct) continue;
    if (is_own && queues != nullptr) {
      auto key = queues->add_segment({id, static_cast<std::byte*>((*reached)->address), (*reached)->bytes});
      if (!key) return std::move(key).error();
      segments[id].local_key = *key;
    }
    segments[id].address = static_cast<std::byte*>((*reached)->address);
    segments[id].notifications = reinterpret_cast<device::Notification*>(shared + layout.notifications_at(id));
  }
  if (Outcome put = memory->put_segments(rank, segments); !put) return put;
  if (!is_all_direct && !is_own && queues != nullptr) {
    std::vector<PeerQueues::RemoteBytes> there;
    for (SegmentId id = 0; id < options.segment_count; ++id) {
      if (segments[id].bytes != 0) there.push_back({id, segments[id].bytes});
    }
    if (Outcome warm = queues->warm_up(rank, there, time.left()); !warm) return warm;
    there.push_back({options.control_segment, layout.shared_bytes()});
    if (Outcome connected = queues->connect(rank, there, time.left()); !connected) return connected;
  }
  return memory->put_barrier_words(rank,
                                   shared == nullptr ? nullptr : reinterpret_cast<std::uint64_t*>(shared + layout.barrier_at()));
}

void DeviceSession::State::leave_rank(Rank rank) {
  for (const SegmentId id : std::exchange(mapped[rank], {})) {
    if (const Outcome left = fabric.unmap_segment(rank, id); !left) log(LogLevel::warning, left.message());
  }
}

// --- Opening ---------------------------------------------------------------------------------------------------------------------

// The ranks also meet here, each with its control segment registered.
Outcome DeviceSession::State::agree_on_options(const Remaining& time) {
  const std::array<std::int64_t, 3> own{options.segment_count, options.notification_count, options.control_segment};
  std::array<std::int64_t, 3> least{}, most{};
  const auto join = [&](ReduceOperation operation, std::array<std::int64_t, 3>& result) {
    return fabric.all_reduce({}, operation, own, result, time.left());
  };
  if (Outcome joined = join(ReduceOperation::minimum, least); !joined) return joined;
  if (Outcome joined = join(ReduceOperation::maximum, most); !joined) return joined;
  constexpr std::array<const char*, 3> kNames{"segment_count", "notification_count", "control_segment"};
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (least[i] == most[i]) continue;
    return make_error(Status::invalid_argument, "device session", text(kNames[i], " ", own[i]),
                      text("other ranks chose other values, from ", least[i], " to ", most[i]), "give the same at every rank");
  }
  return {};
}

Outcome DeviceSession::State::open() {
  const Remaining time(options.timeout);
  ControlLayout layout;
  layout.rank_count = fabric.rank_count();
  layout.segment_count = options.segment_count;
  layout.notification_count = options.notification_count;
  layout.queue_count = options.queues == QueueUse::never ? 0 : options.queue_count;
  auto allocated = ControlMemory::allocate(fabric.device(), layout);
  if (!allocated) return std::move(allocated).error();
  memory = std::move(*allocated);
  handle = memory->handle(fabric.rank());
  if (Outcome done = fabric.register_segment(options.control_segment, memory->shared_address(), layout.shared_bytes()); !done) {
    return done;
  }
  is_registered = true;
  if (Outcome agreed = agree_on_options(time); !agreed) return agreed;
  mapped.resize(layout.rank_count);
  why_not.assign(layout.rank_count, std::vector<std::string>(layout.segment_count));
  if (layout.queue_count != 0) {
    const PeerQueueOptions wanted{options.queue_depth, options.proxy_thread_count, options.control_segment};
    queues = std::make_unique<PeerQueues>(fabric, *memory, wanted);
  }
  // This rank first: the others' queues name its segments.
  if (Outcome reached = reach_rank(fabric.rank(), time); !reached) return reached;
  for (Rank rank = 0; rank < layout.rank_count; ++rank) {
    if (rank == fabric.rank()) continue;
    if (Outcome reached = reach_rank(rank, time); !reached) return reached;
  }
  if (Outcome started = start_queues(); !started) return started;
  // No kernel of another rank tells this one before its tables stand.
  if (Outcome met = fabric.barrier({}, time.left()); !met) return met;
  watcher = std::thread([this] { watch(); });
  return {};
}

Outcome DeviceSession::State::start_queues() {
  if (queues == nullptr || queues->is_empty()) return {};
  return queues->start();
}

// --- Peers that are lost ---------------------------------------------------------------------------------------------------------

void DeviceSession::State::watch() {
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, kLookAtPeers, [&] { return is_stopping; })) {
    for (const PeerState& peer : fabric.peers()) {
      if (!peer.is_broken || memory->status(peer.rank) != Status::ok) continue;
      log(LogLevel::info, text("device session: rank ", peer.rank, " is lost: ", peer.why));
      if (const Outcome put = memory->put_status(peer.rank, Status::peer_lost); !put) log(LogLevel::warning, put.message());
    }
  }
}

void DeviceSession::State::stop_watching() {
  {
    const std::lock_guard lock(mutex);
    is_stopping = true;
  }
  wake.notify_all();
  if (watcher.joinable()) watcher.join();
}

Outcome DeviceSession::State::recover(Rank rank, const Timeout& timeout) {
  const Remaining time(timeout);
  if (rank >= fabric.rank_count()) {
    return make_error(Status::out_of_range, "recover", text("rank ", rank), text("there are ", fabric.rank_count(), " ranks"),
                      "give a number below that");
  }
  const std::lock_guard lock(mutex);
  if (queues != nullptr) queues->stop();
  const Undo start_again([&] { static_cast<void>(start_queues().is_ok()); });
  leave_rank(rank);
  if (queues != nullptr) queues->leave(rank);
  // Busy: the other side has made the connection already, or this one never lost it.
  if (const Outcome forgotten = fabric.forget(rank); !forgotten && memory->status(rank) == Status::ok)
    return Error(forgotten.record());
  if (Outcome reached = reach_rank(rank, time); !reached) return reached;
  return memory->put_status(rank, Status::ok);
}

// --- Closing ---------------------------------------------------------------------------------------------------------------------

Outcome DeviceSession::State::close(const Timeout& timeout) {
  const Remaining time(timeout);
  if (is_closed) return {};
  if (Outcome idle = wait_until_idle(fabric.device(), timeout.is_forever() ? -1 : timeout.ns()); !idle) return idle;
  if (queues != nullptr) {
    if (Outcome drained = queues->drain(time.left()); !drained) return drained;
  }
  stop_watching();
  queues.reset();
  for (Rank rank = 0; rank < mapped.size(); ++rank) leave_rank(rank);
  if (is_registered) {
    if (Outcome quiet = fabric.deregister_segment(options.control_segment, time.left()); !quiet) return quiet;
  }
  is_registered = false;
  memory.reset();
  is_closed = true;
  return {};
}

DeviceSession::DeviceSession(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceSession::DeviceSession(DeviceSession&&) noexcept = default;

DeviceSession& DeviceSession::operator=(DeviceSession&& other) noexcept {
  DeviceSession old(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

DeviceSession::~DeviceSession() {
  if (!state_ || state_->is_closed) return;
  // In a forked child everything of it is the parent's.
  if (state_->generation != detail::process_generation) {
    [[maybe_unused]] State* const left_alone = state_.release();
    return;
  }
  const Outcome closed = state_->close(Timeout::of(std::chrono::nanoseconds(kLastWaitNs)));
  if (closed) return;
  log(LogLevel::warning, text("device session: its memory is never freed: ", closed.message()));
  state_->stop_watching();
  [[maybe_unused]] State* const left_alone = state_.release();
}

Result<DeviceSession> DeviceSession::open(Fabric& fabric, const DeviceSessionOptions& options) {
  if (Outcome checked = check(options); !checked) return std::move(checked).take_error();
  if (!fabric.state_) {
    return make_error(Status::unavailable, "device session", "fabric", "it was moved from or never opened",
                      "open the fabric first");
  }
  DeviceSession session(std::make_unique<State>(Fabric(fabric.state_), options));
  if (Outcome opened = session.state_->open(); !opened) return std::move(opened).take_error();
  return session;
}

const device::DeviceFabric& DeviceSession::handle() const noexcept { return state_->handle; }

Result<DeviceReach> DeviceSession::reach(Rank rank, SegmentId id) const {
  if (rank >= state_->why_not.size() || id >= state_->options.segment_count) {
    return make_error(Status::out_of_range, "reach", text("segment ", id, " of rank ", rank),
                      text("there are ", state_->why_not.size(), " ranks and ", state_->options.segment_count, " segments"),
                      "give numbers below those");
  }
  const std::string& reason = state_->why_not[rank][id];
  const bool has_queue = state_->queues != nullptr && state_->queues->has(rank);
  if (!has_queue || reason.empty()) return DeviceReach{reason.empty(), has_queue, false, reason};
  const std::string why_not = state_->queues->why_not_mapped(rank, id);
  return DeviceReach{false, true, why_not.empty(), why_not.empty() ? reason : text(reason, "; not mapped for the CPU: ", why_not)};
}

Outcome DeviceSession::recover(Rank rank, Timeout timeout) { return state_->recover(rank, timeout); }
Outcome DeviceSession::close(Timeout timeout) { return state_->close(timeout); }

}  // namespace gigabar
