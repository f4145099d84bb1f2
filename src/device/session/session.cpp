// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/remaining.hpp"
#include "base/start_thread.hpp"
#include "base/uncancelled.hpp"
#include "device/fabric_wire/fabric_wire.hpp"
#include "device/session/control_memory.hpp"
#include "device/session/session_queues.hpp"
#include "gigabar/device_session.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::chrono::milliseconds kLookAtPeers(5);  // how late kernels hear of a lost peer
constexpr std::int64_t kLastWaitNs = 10'000'000'000;
constexpr std::chrono::milliseconds kWaitForMemory(1);

// Equal for equal lists, and else hardly ever.
std::int64_t digest_of(const std::vector<SegmentId>& segments) {
  std::uint64_t digest = segments.size();
  for (const SegmentId id : segments) digest = (digest ^ id) * 0x100000001b3;
  return static_cast<std::int64_t>(digest);
}

}  // namespace

struct DeviceSession::State {
  State(Fabric shared_fabric, const DeviceSessionOptions& chosen) : fabric(std::move(shared_fabric)), options(chosen) {}

  Result<void> open();
  Result<void> agree_on_options(const Remaining& time);
  Result<void> recover(Rank rank, const Timeout& timeout);
  Result<void> make_anew(Rank rank, const Remaining& time);
  Result<void> close(const Timeout& timeout);
  Result<void> close_at_last() noexcept;
  static void end(std::unique_ptr<State> state) noexcept;
  Result<void> leave_rank(Rank rank);
  Result<void> start_queues() { return queues == nullptr ? Result<void>() : queues->start(); }
  bool has_segment(SegmentId id) const {
    return options.segments.empty() || std::binary_search(options.segments.begin(), options.segments.end(), id);
  }
  bool notifies_cpu(SegmentId id) const { return std::binary_search(options.cpu_segments.begin(), options.cpu_segments.end(), id); }
  Result<void> check_notification(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value) const;
  // Where a kernel of `rank` takes it.
  RemotePlace place_of(Rank rank, SegmentId segment, NotificationId id) const;
  void watch();
  void stop_watching();

  // What of a rank is in reach, and what of it work requests would name.
  struct Survey : ReachedRank {
    std::vector<RemoteBytes> there;
    bool needs_queue = false;
  };
  Result<Survey> survey(Rank rank, const Remaining& time);
  // Queues to those that need them, by one engine.
  using Surveys = std::vector<Survey>;
  Result<void> connect(Rank rank, Survey& found, const Remaining& time);
  Result<void> connect_all(Surveys& ranks, const Remaining& time);
  Result<void> make_queues(Surveys& ranks, const Remaining& time);
  Result<void> try_hca(Surveys& ranks, const Remaining& time);
  Result<bool> is_so_everywhere(bool value, const Remaining& time);

  // One segment of `rank`, mapped. Errors: those of the connection.
  struct Reached {
    void* address = nullptr;
    std::uint64_t bytes = 0;  // 0: the rank has none of that id
    std::string why_not;
    std::string why_no_atomics;
  };
  Result<Reached> reach_segment(Rank rank, SegmentId id, const Remaining& time);

  Fabric fabric;
  const DeviceSessionOptions options;
  const std::uint32_t generation = detail::process_generation();
  ControlLayout layout;
  std::unique_ptr<ControlMemory> memory;
  std::unique_ptr<SessionQueues> queues;  // behind memory and options: it goes first
  std::string why_engine;                 // not another one
  device::DeviceFabric handle;
  bool is_registered = false;  // the control segment
  std::atomic<bool> is_closed{false};
  std::vector<std::vector<SegmentId>> mapped;            // [rank]
  std::vector<std::vector<std::string>> why_not;         // [rank][id]; empty: it is in reach
  std::vector<std::vector<std::string>> why_no_atomics;  // [rank][id], of those in reach

  std::mutex mutex;  // of what follows, and of statuses
  std::condition_variable wake;
  bool is_stopping = false;
  std::thread watcher;
};

// --- Reaching --------------------------------------------------------------------------------------------------------------------

Result<DeviceSession::State::Reached> DeviceSession::State::reach_segment(Rank rank, SegmentId id, const Remaining& time) {
  Reached reached;
  auto known = fabric.remote_segment(rank, id, time.left());
  if (!known && known.status() == Status::out_of_range) return reached;
  if (!known) return std::move(known).error();
  reached.bytes = known->bytes;
  mapped[rank].reserve(mapped[rank].size() + 1);  // what is mapped is noted
  auto address = fabric.map_segment(rank, id, time.left());
  if (address) {
    reached.address = *address;
    mapped[rank].push_back(id);
    auto no_atomics = fabric.why_no_atomics(rank, id);
    if (!no_atomics) return std::move(no_atomics).error();
    reached.why_no_atomics = std::move(*no_atomics);
  } else if (address.status() == Status::not_supported) {
    reached.why_not = address.error().record().cause;
  } else {
    return std::move(address).error();
  }
  return reached;
}

Result<DeviceSession::State::Survey> DeviceSession::State::survey(Rank rank, const Remaining& time) {
  auto control = reach_segment(rank, options.control_segment, time);
  if (!control) return std::move(control).error();
  if (control->bytes != layout.shared_bytes) {
    return make_error(Status::peer_lost, "device session", text("rank ", rank), "it has no session like this one",
                      "open sessions with equal options at all ranks");
  }
  const bool is_own = rank == fabric.rank();
  const bool is_by_queue = options.queues == QueueUse::always && !is_own;
  if (is_by_queue) control->why_not = "queues are asked for";
  Survey found;
  found.shared = is_by_queue ? nullptr : static_cast<std::byte*>(control->address);
  found.has_atomics = found.shared != nullptr && control->why_no_atomics.empty();
  found.segments.resize(layout.segment_count);
  bool is_all_direct = found.shared != nullptr;
  for (SegmentId id = 0; id < options.segment_count; ++id) {
    why_not[rank][id] = has_segment(id) ? "the rank has no such segment" : "the session was not opened for it";
    why_no_atomics[rank][id].clear();
    if (!has_segment(id)) continue;
    auto reached = reach_segment(rank, id, time);
    if (!reached) return std::move(reached).error();
    if (reached->bytes == 0) continue;
    // Bytes without their notifications are of no use, nor the other way round.
    const bool is_direct = found.shared != nullptr && reached->address != nullptr;
    why_not[rank][id] = found.shared == nullptr ? control->why_not : reached->why_not;
    found.segments[id].bytes = reached->bytes;
    found.segments[id].notifies_cpus = notifies_cpu(id);
    found.there.push_back({id, reached->bytes});
    is_all_direct = is_all_direct && is_direct;
    if (!is_direct) continue;
    why_no_atomics[rank][id] = reached->why_no_atomics;
    found.segments[id].has_atomics = reached->why_no_atomics.empty();
    found.segments[id].address = static_cast<std::byte*>(reached->address);
    if (found.segments[id].notifies_cpus) continue;
    found.segments[id].notifications = reinterpret_cast<device::Notification*>(found.shared + layout.notifications_at(id));
  }
  found.there.push_back({options.control_segment, layout.shared_bytes});
  found.needs_queue = ((!is_all_direct && !is_own) || !options.cpu_segments.empty()) && layout.queue_count != 0;
  return found;
}

// --- Queues ----------------------------------------------------------------------------------------------------------------------

Result<void> DeviceSession::State::connect(Rank rank, Survey& found, const Remaining& time) {
  if (!found.needs_queue) return {};
  if (Result<void> connected = queues->connect(rank, found.there, time.left()); !connected) return connected;
  const device::Remote control = queues->place(rank, options.control_segment);
  for (SegmentId id = 0; id < options.segment_count; ++id) {
    device::DeviceSegment& segment = found.segments[id];
    if (segment.bytes == 0) continue;
    segment.remote = queues->place(rank, id);
    segment.remote_notifications = {control.address + layout.notifications_at(id), control.key};
    if (segment.notifies_cpus) segment.remote_notifications = {soft_hca::kCpuNotificationsAt, segment.remote.key};
  }
  return {};
}

Result<void> DeviceSession::State::connect_all(Surveys& ranks, const Remaining& time) {
  for (SegmentId id = 0; id < options.segment_count; ++id) {
    device::DeviceSegment& own = ranks[fabric.rank()].segments[id];
    if (own.address == nullptr) continue;
    auto key = queues->add_segment({id, own.address, own.bytes});
    if (!key) return std::move(key).error();
    own.local_key = *key;
  }
  for (Rank rank = 0; rank < ranks.size(); ++rank) {
    if (Result<void> connected = connect(rank, ranks[rank], time); !connected) return connected;
  }
  return {};
}

Result<bool> DeviceSession::State::is_so_everywhere(bool value, const Remaining& time) {
  const std::array<std::int64_t, 1> own{value ? 1 : 0};
  std::array<std::int64_t, 1> least{};
  if (Result<void> joined = fabric.all_reduce({}, ReduceOperation::minimum, own, least, time.left()); !joined)
    return std::move(joined).error();
  return least[0] == 1;
}

// The same engine at every rank, because a queue pair has two ends: what one rank cannot do ends it for all, and `why_engine` says
// so. Errors: those of the meetings only.
Result<void> DeviceSession::State::try_hca(Surveys& ranks, const Remaining& time) {
  auto opened = open_hca_queues(fabric, *memory, options);
  if (!opened) why_engine = opened.error().message();
  const auto is_open = is_so_everywhere(opened.is_ok(), time);
  if (!is_open) return is_open.error();
  if (!*is_open) {
    if (opened) why_engine = "there is no HCA at another rank";
    return {};
  }
  queues = std::move(*opened);
  // What comes instead needs time too.
  const bool is_forever = time.left().is_forever();
  const Remaining half(is_forever ? time.left() : Timeout::of(std::chrono::nanoseconds(time.left().ns() / 2)));
  Result<void> connected = connect_all(ranks, half);
  if (!connected) {
    for (Rank rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].needs_queue && !queues->has(rank)) queues->refuse(rank);
    }
  }
  const auto is_connected = is_so_everywhere(connected.is_ok(), time);
  why_engine = queues->describe();
  if (is_connected && *is_connected) return {};
  why_engine += text(": ", connected ? "it failed at another rank" : connected.message());
  queues.reset();
  if (!is_connected) return is_connected.error();
  return {};
}

Result<void> DeviceSession::State::make_queues(Surveys& ranks, const Remaining& time) {
  const bool has_need = std::any_of(ranks.begin(), ranks.end(), [](const Survey& rank) { return rank.needs_queue; });
  const auto is_unneeded = is_so_everywhere(!has_need, time);
  if (!is_unneeded) return is_unneeded.error();
  if (*is_unneeded) return {};
  if (options.engine != QueueEngine::software_hca && options.cpu_segments.empty()) {
    if (Result<void> tried = try_hca(ranks, time); !tried) return tried;
    if (queues != nullptr) return {};
    log(LogLevel::info, text("device session: no queues of an HCA: ", why_engine));
    if (options.engine != QueueEngine::automatic) {
      return make_error(Status::unavailable, "device session", text("engine ", name_of(options.engine)), why_engine,
                        "choose QueueEngine::automatic or software_hca, or see to the adapters");
    }
  }
  queues = make_soft_queues(fabric, *memory, options);
  return connect_all(ranks, time);
}

// Errors: out_of_memory; then some are still mapped.
Result<void> DeviceSession::State::leave_rank(Rank rank) {
  std::vector<SegmentId>& ids = mapped[rank];
  for (; !ids.empty(); ids.pop_back()) {
    Result<void> left = fabric.unmap_segment(rank, ids.back());
    if (left.status() == Status::out_of_memory) return left;
    if (!left) log(LogLevel::warning, left.message());
  }
  return {};
}

// --- Opening ---------------------------------------------------------------------------------------------------------------------

// The ranks also meet here, each with its control segment registered.
Result<void> DeviceSession::State::agree_on_options(const Remaining& time) {
  const std::array<std::pair<const char*, std::int64_t>, 9> chosen{{{"segment_count", options.segment_count},
                                                                    {"notification_count", options.notification_count},
                                                                    {"control_segment", options.control_segment},
                                                                    {"queue_count", layout.queue_count},
                                                                    {"engine", static_cast<std::int64_t>(options.engine)},
                                                                    {"ring_count", options.ring_count},
                                                                    {"ring_bytes", options.ring_bytes},
                                                                    {"digest of segments", digest_of(options.segments)},
                                                                    {"digest of cpu_segments", digest_of(options.cpu_segments)}}};
  using Words = std::array<std::int64_t, chosen.size()>;
  Words own{}, least{}, most{};
  std::ranges::transform(chosen, own.begin(), [](const auto& option) { return option.second; });
  const auto join = [&](ReduceOperation operation, Words& result) {
    return fabric.all_reduce({}, operation, own, result, time.left());
  };
  if (Result<void> joined = join(ReduceOperation::minimum, least); !joined) return joined;
  if (Result<void> joined = join(ReduceOperation::maximum, most); !joined) return joined;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (least[i] == most[i]) continue;
    return make_error(Status::invalid_argument, "device session", text(chosen[i].first, " ", own[i]),
                      text("other ranks chose other values, from ", least[i], " to ", most[i]), "give the same at every rank");
  }
  return {};
}

Result<void> DeviceSession::State::open() {
  const Remaining time(options.timeout);
  layout = ControlLayout({.rank_count = fabric.rank_count(),
                          .segment_count = options.segment_count,
                          .notification_count = options.notification_count,
                          .queue_count = options.queues == QueueUse::never ? 0 : options.queue_count,
                          .ring_count = options.ring_count,
                          .ring_line_count = static_cast<std::uint32_t>(options.ring_bytes / sizeof(device::MessageLine))});
  auto allocated = ControlMemory::allocate(fabric.device(), layout);
  if (!allocated) return std::move(allocated).error();
  memory = std::move(*allocated);
  handle = memory->handle(fabric.rank());
  if (Result<void> done = fabric.register_segment(options.control_segment, memory->shared_address(), layout.shared_bytes); !done) {
    return done;
  }
  is_registered = true;
  if (Result<void> agreed = agree_on_options(time); !agreed) return agreed;
  mapped.resize(layout.rank_count);
  why_not.assign(layout.rank_count, std::vector<std::string>(layout.segment_count));
  why_no_atomics = why_not;
  Surveys ranks(layout.rank_count);
  for (Rank rank = 0; rank < layout.rank_count; ++rank) {
    auto found = survey(rank, time);
    if (!found) return std::move(found).error();
    ranks[rank] = std::move(*found);
  }
  if (layout.queue_count != 0) {
    if (Result<void> made = make_queues(ranks, time); !made) return made;
  }
  for (Rank rank = 0; rank < layout.rank_count; ++rank) {
    if (Result<void> put = memory->put_tables(fabric.rank(), rank, ranks[rank]); !put) return put;
  }
  if (Result<void> started = start_queues(); !started) return started;
  // No kernel of another rank tells this one before its tables stand.
  if (Result<void> met = fabric.barrier({}, time.left()); !met) return met;
  return start_thread(watcher, "device session", "thread that watches the peers", [this] { watch(); });
}

// --- Peers that are lost ---------------------------------------------------------------------------------------------------------

void DeviceSession::State::watch() {
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, kLookAtPeers, [&] { return is_stopping; })) {
    // Without memory for them: none, this time.
    quietly([&] {
      for (const PeerState& peer : fabric.peers()) {
        if (!peer.is_broken || memory->status(peer.rank) != Status::ok) continue;
        log(LogLevel::info, text("device session: rank ", peer.rank, " is lost: ", peer.why));
        if (const Result<void> put = memory->put_status(peer.rank, Status::peer_lost); !put) log(LogLevel::warning, put.message());
      }
    });
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

Result<void> DeviceSession::State::recover(Rank rank, const Timeout& timeout) {
  const Remaining time(timeout);
  if (rank >= fabric.rank_count()) {
    return make_error(Status::out_of_range, "recover", text("rank ", rank),
                      text("there are ", counted(fabric.rank_count(), "rank")), "give a number below that");
  }
  if (rank == fabric.rank()) {
    return make_error(Status::invalid_argument, "recover", text("rank ", rank), "it is this rank, which is never lost to itself",
                      "name the peer");
  }
  const std::lock_guard lock(mutex);
  if (queues != nullptr) {
    if (Result<void> finished = queues->finish(rank, time.left()); !finished) return finished;
    queues->stop();
  }
  Result<void> made;
  try {
    made = make_anew(rank, time);
  } catch (...) {
    made = error_of_exception("device session recover");
  }
  // The queues to the others go on whatever became of this one.
  Result<void> started = start_queues();
  return made ? std::move(started) : std::move(made);
}

Result<void> DeviceSession::State::make_anew(Rank rank, const Remaining& time) {
  if (Result<void> left = leave_rank(rank); !left) return left;
  if (queues != nullptr) queues->leave(rank);
  // Busy: the connection stands, because the other side has made it already, or because only queues to the rank have failed.
  if (Result<void> forgotten = fabric.forget(rank); !forgotten && forgotten.status() != Status::busy) return forgotten;
  auto found = survey(rank, time);
  if (!found) return std::move(found).error();
  if (queues != nullptr) {
    if (Result<void> connected = connect(rank, *found, time); !connected) return connected;
  }
  if (Result<void> put = memory->put_tables(fabric.rank(), rank, *found); !put) return put;
  return memory->put_status(rank, Status::ok);
}

// --- Notifying from the CPU ------------------------------------------------------------------------------------------------------

Result<void> DeviceSession::State::check_notification(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value) const {
  const auto refuse = [&](Status status, std::string cause, std::string remedy) {
    return make_error(status, "notify", text("notification ", id, " of segment ", segment, " of rank ", rank), std::move(cause),
                      std::move(remedy));
  };
  if (value == 0) return refuse(Status::invalid_argument, "value 0 means that it is not raised", "give another value");
  if (rank >= layout.rank_count || segment >= layout.segment_count || id >= layout.notification_count) {
    return refuse(Status::out_of_range,
                  text("the session has ", counted(layout.rank_count, "rank"), ", ", counted(layout.segment_count, "segment"),
                       " and ", counted(layout.notification_count, "notification"), " of each"),
                  "give numbers below those");
  }
  if (!has_segment(segment))
    return refuse(Status::out_of_range, "the session was not opened for the segment", "name it in DeviceSessionOptions::segments");
  if (is_closed) return refuse(Status::unavailable, "the session is closed", "open another one");
  return {};
}

RemotePlace DeviceSession::State::place_of(Rank rank, SegmentId segment, NotificationId id) const {
  return {rank, options.control_segment,
          layout.notifications_at(segment) + id * sizeof(device::Notification) + offsetof(device::Notification, value)};
}

Result<Operation> DeviceSession::notify(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                        const PostOptions& options) try {
  if (Result<void> checked = state_->check_notification(rank, segment, id, value); !checked) return std::move(checked).error();
  if (state_->notifies_cpu(segment)) return state_->fabric.notify(rank, segment, id, value, options);
  return state_->fabric.write_in_order(&value, state_->place_of(rank, segment, id), sizeof value, options);
} catch (...) {
  return error_of_exception("notify");
}

Result<Operation> DeviceSession::write_notify(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                              std::uint32_t value, const PostOptions& options) try {
  Result<void> checked = state_->check_notification(remote.rank, remote.segment, id, value);
  if (!checked) return std::move(checked).error();
  if (state_->notifies_cpu(remote.segment)) return state_->fabric.write_notify(local, remote, bytes, id, value, options);
  if (auto written = state_->fabric.write(local, remote, bytes, options); !written) return written;
  return state_->fabric.write_in_order(&value, state_->place_of(remote.rank, remote.segment, id), sizeof value, options);
} catch (...) {
  return error_of_exception("write_notify");
}

// --- Closing ---------------------------------------------------------------------------------------------------------------------

Result<void> DeviceSession::State::close(const Timeout& timeout) try {
  const Remaining time(timeout);
  if (is_closed) return {};
  if (Result<void> idle = wait_until_idle(fabric.device(), timeout.is_forever() ? -1 : timeout.ns()); !idle) return idle;
  if (queues != nullptr) {
    if (Result<void> drained = queues->drain(time.left()); !drained) return drained;
  }
  stop_watching();
  queues.reset();
  for (Rank rank = 0; rank < mapped.size(); ++rank) {
    if (Result<void> left = leave_rank(rank); !left) return left;
  }
  if (is_registered) {
    if (Result<void> quiet = fabric.deregister_segment(options.control_segment, time.left()); !quiet) return quiet;
  }
  is_registered = false;
  memory.reset();
  is_closed = true;
  return {};
} catch (...) {
  return error_of_exception("device session close");
}

// Nobody calls again: where there is no memory for it, it waits for some.
Result<void> DeviceSession::State::close_at_last() noexcept {
  const Remaining time(Timeout::of(std::chrono::nanoseconds(kLastWaitNs)));
  while (true) {
    Result<void> closed = close(time.left());
    if (closed.status() != Status::out_of_memory || time.left().ns() <= 0) return closed;
    std::this_thread::sleep_for(kWaitForMemory);
  }
}

DeviceSession::DeviceSession(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceSession::DeviceSession(DeviceSession&&) noexcept = default;

DeviceSession& DeviceSession::operator=(DeviceSession&& other) noexcept {
  DeviceSession old(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

DeviceSession::~DeviceSession() {
  const Uncancelled uncancelled;
  State::end(std::move(state_));
}

void DeviceSession::State::end(std::unique_ptr<State> state) noexcept {
  if (!state || state->is_closed) return;
  // In a forked child everything of it is the parent's.
  if (state->generation != detail::process_generation()) {
    [[maybe_unused]] State* const left_alone = state.release();
    return;
  }
  const Result<void> closed = state->close_at_last();
  if (closed) return;
  quietly([&] { log(LogLevel::warning, text("device session: its memory is never freed: ", closed.message())); });
  state->stop_watching();
  [[maybe_unused]] State* const left_alone = state.release();
}

Result<DeviceSession> DeviceSession::open(Fabric& fabric, const DeviceSessionOptions& options) try {
  const Uncancelled uncancelled;
  if (Result<void> checked = check_options(options); !checked) return std::move(checked).error();
  if (!fabric.state_) {
    return make_error(Status::unavailable, "device session", "fabric", "it was moved from or never opened",
                      "open the fabric first");
  }
  DeviceSession session(std::make_unique<State>(Fabric(fabric.state_), options));
  if (Result<void> opened = session.state_->open(); !opened) return std::move(opened).error();
  return session;
} catch (...) {
  return error_of_exception("device session open");
}

const device::DeviceFabric& DeviceSession::handle() const noexcept { return state_->handle; }

Result<DeviceReach> DeviceSession::reach(Rank rank, SegmentId id) const try {
  const Uncancelled uncancelled;
  if (rank >= state_->why_not.size() || id >= state_->options.segment_count) {
    return make_error(
        Status::out_of_range, "reach", text("segment ", id, " of rank ", rank),
        text("there are ", counted(state_->why_not.size(), "rank"), " and ", counted(state_->options.segment_count, "segment")),
        "give numbers below those");
  }
  const std::string& reason = state_->why_not[rank][id];
  const bool has_queue = state_->queues != nullptr && state_->queues->has(rank);
  if (!has_queue || reason.empty()) {
    return DeviceReach{reason.empty(), has_queue, false, QueueEngine::automatic, reason, state_->why_no_atomics[rank][id]};
  }
  const std::string why_not = state_->queues->why_not_mapped(rank, id);
  std::string reasons = why_not.empty() ? reason : text(reason, "; not mapped for the CPU: ", why_not);
  if (!state_->why_engine.empty()) reasons += text("; ", name_of(state_->queues->engine()), ": ", state_->why_engine);
  return DeviceReach{false, true, why_not.empty(), state_->queues->engine(), std::move(reasons), {}};
} catch (...) {
  return error_of_exception("device session reach");
}

Result<void> DeviceSession::recover(Rank rank, Timeout timeout) try {
  const Uncancelled uncancelled;
  return state_->recover(rank, timeout);
} catch (...) {
  return error_of_exception("device session recover");
}
Result<void> DeviceSession::close(Timeout timeout) {
  const Uncancelled uncancelled;
  return state_->close(timeout);
}

}  // namespace gigabar::inline v0
