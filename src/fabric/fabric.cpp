// SPDX-License-Identifier: Apache-2.0
// The public face: checks arguments and threads, takes the lock, and leaves the rest to the engine.
//
// Calls that post, and that look at what has come, are not Uncancelled as a whole: the 10 ns of it would be felt. What of them may
// enter the kernel is: Engine::Waiter, what posting prepares, and the transports' system calls.
#include "gigabar/fabric.hpp"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "fabric/calls.hpp"
#include "fabric/settings.hpp"
#include "fabric/tuning.hpp"

namespace gigabar::fabric {

Error why_unusable(const Engine* engine, std::string_view operation) {
  if (engine != nullptr && !engine->belongs_to_this_process()) {
    return make_error(Status::foreign_process, std::string(operation), "fabric", "it belongs to the parent of this process",
                      "open a fabric in this process");
  }
  return make_error(Status::unavailable, std::string(operation), "fabric",
                    engine == nullptr ? "it was moved from or never opened" : "it is closed", "open the fabric first");
}

Error bad_queue(std::string_view operation, QueueId queue) {
  return make_error(Status::out_of_range, std::string(operation), text("queue ", static_cast<unsigned>(queue)),
                    text("there are ", kQueues, " queues"), "give a number below that");
}

Error QueueGuard::why_not(std::string_view operation) const {
  if (!engine_.is_open()) return why_unusable(&engine_, operation);
  return make_error(Status::timed_out, std::string(operation), text("queue ", static_cast<unsigned>(queue_)),
                    "another thread is using it", "call again, or use one queue per thread");
}

std::optional<Error> look_at_options(std::string_view operation, const PostOptions& options) {
  if (options.chunk_bytes && *options.chunk_bytes < kMinChunkBytes) {
    return make_error(Status::invalid_argument, std::string(operation), text("chunk_bytes ", *options.chunk_bytes),
                      "it is below 4096", "give at least 4096, or none for the fabric's");
  }
  if (!options.policy) return std::nullopt;
  return refuse_policy(operation, *options.policy);
}

}  // namespace gigabar::fabric

namespace gigabar::inline v0 {

using fabric::bad_queue;
using fabric::Engine;
using fabric::guarded;
using fabric::is_usable;
using fabric::locked;
using fabric::Notifications;
using fabric::OpKind;
using fabric::QueueGuard;
using fabric::refuse_options;
using fabric::told;
using fabric::unless_closed;
using fabric::unusable;

namespace {

Error bad_notification(std::string_view operation, NotificationId first, std::uint32_t count) {
  return make_error(Status::out_of_range, std::string(operation),
                    text("notification ", first, count > 1 ? text(" and ", count, " from there") : ""),
                    text("a segment has ", kNotifications), "give ids below that");
}

std::optional<Error> refuse_notification(const char* operation, NotificationId first, std::uint32_t count) {
  if (first < kNotifications && count <= kNotifications - first) return std::nullopt;
  return bad_notification(operation, first, count);
}

std::optional<Error> refuse_value(const char* operation, std::uint32_t value) {
  if (value != 0) return std::nullopt;
  return make_error(Status::invalid_argument, operation, "value", "0 means that there is no notification", "give another value");
}

}  // namespace

Fabric::Fabric(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
Fabric::Fabric(Fabric&&) noexcept = default;
Fabric& Fabric::operator=(Fabric&& other) noexcept {
  const Uncancelled uncancelled;
  state_ = std::move(other.state_);
  return *this;
}

Fabric::~Fabric() {
  const Uncancelled uncancelled;
  state_.reset();
}

Result<Fabric> Fabric::open(const FabricOptions& options) try {
  const Uncancelled uncancelled;
  auto engine = Engine::open(options);
  if (!engine) return std::move(engine).error();
  auto state = std::make_shared<State>();
  state->engine = std::move(*engine);
  return Fabric(std::move(state));
} catch (...) {
  return error_of_exception("fabric open");
}

Result<void> Fabric::close(Timeout timeout) {
  return guarded(state_, "close", [&](Engine& engine, auto& lock) -> Result<void> {
    if (engine.has_mapped_segments()) {
      return make_error(Status::busy, "close", "fabric", "segments are mapped: kernels or threads may be using them",
                        "unmap them, or close the device session, first");
    }
    for (QueueId queue = 0; queue < kQueues; ++queue) {
      if (const Result<void> done = engine.wait(lock, queue, timeout); done.status() == Status::timed_out)
        return Error(done.record());
    }
    for (const PeerState& peer : engine.peers()) {
      if (!peer.is_connected) continue;
      if (const Result<void> flushed = engine.flush(lock, peer.rank, timeout); flushed.status() == Status::timed_out) {
        return Error(flushed.record());
      }
    }
    engine.farewell();
    return {};
  });
}

Rank Fabric::rank() const noexcept { return state_ && state_->engine ? state_->engine->job().rank : 0; }
Rank Fabric::rank_count() const noexcept { return state_ && state_->engine ? state_->engine->job().rank_count : 0; }
Rank Fabric::local_rank() const noexcept { return state_ && state_->engine ? state_->engine->job().local_rank.value_or(0) : 0; }

int Fabric::device() const noexcept { return state_ && state_->engine ? state_->engine->device() : -1; }

std::vector<int> Fabric::cpus() const {
  return told(state_, [](const Engine& engine) { return engine.placement().cpus; });
}

std::vector<Setting> Fabric::settings() const {
  return told(state_, [](const Engine& engine) { return engine.settings().table; });
}

FabricStatistics Fabric::statistics() const {
  return told(state_, [](const Engine& engine) { return engine.statistics(); });
}

std::vector<PeerState> Fabric::peers() const {
  return told(state_, [](const Engine& engine) { return engine.peers(); });
}

Result<void> Fabric::connect(Rank rank, Timeout timeout) {
  return guarded(state_, "connect", [&](Engine& engine, auto& lock) -> Result<void> {
    auto peer = engine.ready_peer(lock, rank, timeout);
    if (!peer) return std::move(peer).error();
    return {};
  });
}

Result<void> Fabric::forget(Rank rank) {
  return guarded(state_, "forget", [&](Engine& engine, auto& lock) { return engine.forget(lock, rank); });
}

// --- Segments -------------------------------------------------------------------------------------------------------------------

Result<void> Fabric::register_segment(SegmentId id, void* address, std::size_t bytes) {
  return guarded(state_, {"register", "register_segment"},
                 [&](Engine& engine, auto&) { return engine.register_segment(id, address, bytes); });
}

Result<void> Fabric::quiesce(SegmentId id, Timeout timeout) {
  return guarded(state_, "quiesce", [&](Engine& engine, auto& lock) { return engine.quiesce(lock, id, timeout); });
}

Result<void> Fabric::enable(SegmentId id) {
  return guarded(state_, "enable", [&](Engine& engine, auto&) { return engine.enable(id); });
}

Result<void> Fabric::deregister_segment(SegmentId id, Timeout timeout) {
  return guarded(state_, {"deregister", "deregister_segment"},
                 [&](Engine& engine, auto& lock) { return engine.deregister(lock, id, timeout); });
}

Result<RemoteSegment> Fabric::remote_segment(Rank rank, SegmentId id, Timeout timeout) {
  return guarded(state_, {"segment", "remote_segment"}, [&](Engine& engine, auto& lock) -> Result<RemoteSegment> {
    auto peer = engine.ready_peer(lock, rank, timeout);
    if (!peer) return std::move(peer).error();
    auto remote = engine.remote_segment(lock, **peer, id, timeout);
    if (!remote) return std::move(remote).error();
    return RemoteSegment{(*remote)->bytes, (*remote)->kind};
  });
}

Result<void*> Fabric::map_segment(Rank rank, SegmentId id, Timeout timeout, MappedFor who) {
  return guarded(state_, {"map segment", "map_segment"},
                 [&](Engine& engine, auto& lock) { return engine.map_segment(lock, {rank, id, who}, timeout); });
}

Result<std::string> Fabric::why_no_atomics(Rank rank, SegmentId id) const {
  return guarded(state_, {"why no atomics", "why_no_atomics"},
                 [&](Engine& engine, auto&) { return engine.why_no_atomics({rank, id, MappedFor::kernels}); });
}

Result<void> Fabric::unmap_segment(Rank rank, SegmentId id, MappedFor who) {
  return guarded(state_, {"unmap segment", "unmap_segment"},
                 [&](Engine& engine, auto&) { return engine.unmap_segment({rank, id, who}); });
}

// --- One-sided ------------------------------------------------------------------------------------------------------------------

namespace {

template <class State>
Result<Operation> post(const State& state, const char* operation, const Engine::Transfer& transfer,
                       const PostOptions& options) try {
  if (!is_usable(state)) return unusable(state, operation);
  if (options.queue >= kQueues) return bad_queue(operation, options.queue);
  if (auto refused = refuse_options(operation, options)) return std::move(*refused);
  if ((transfer.flags & fabric::kHasNotification) != 0) {
    if (auto refused = refuse_notification(operation, transfer.notification, 1)) return std::move(*refused);
    if (auto refused = refuse_value(operation, transfer.value)) return std::move(*refused);
  }
  if (const auto posted = state->engine->post_stores(transfer, options)) return *posted;
  auto lock = state->engine->lock();
  const QueueGuard guard(*state->engine, lock, options.queue, state->engine->connect_timeout());
  if (!guard.is_entered()) return guard.why_not(operation);
  return state->engine->post(lock, transfer, options);
} catch (...) {
  return error_of_exception(operation);
}

template <class State>
Result<Operation> post_list(const State& state, const char* operation, OpKind kind, Rank rank, std::span<const ListPiece> pieces,
                            const PostOptions& options, std::optional<Engine::Transfer> notification) try {
  if (!is_usable(state)) return unusable(state, operation);
  if (options.queue >= kQueues) return bad_queue(operation, options.queue);
  if (pieces.data() == nullptr && !pieces.empty()) {
    return make_error(Status::invalid_argument, operation, "pieces", "the list is null", "give a list");
  }
  if (auto refused = refuse_options(operation, options)) return std::move(*refused);
  auto lock = state->engine->lock();
  const QueueGuard guard(*state->engine, lock, options.queue, state->engine->connect_timeout());
  if (!guard.is_entered()) return guard.why_not(operation);
  return state->engine->post_list(lock, kind, rank, pieces, options, notification);
} catch (...) {
  return error_of_exception(operation);
}

constexpr std::uint8_t kSets = fabric::kHasNotification;
constexpr std::uint8_t kAdds = fabric::kHasNotification | fabric::kAddsNotification;

}  // namespace

Result<Operation> Fabric::write(LocalPlace local, RemotePlace remote, std::uint64_t bytes, const PostOptions& options) {
  return post(state_, "write", {OpKind::write, local, remote, bytes, 0, 0, 0}, options);
}

Result<Operation> Fabric::read(LocalPlace local, RemotePlace remote, std::uint64_t bytes, const PostOptions& options) {
  return post(state_, "read", {OpKind::read, local, remote, bytes, 0, 0, 0}, options);
}

Result<Operation> Fabric::write_list(Rank rank, std::span<const ListPiece> pieces, const PostOptions& options) {
  return post_list(state_, "write_list", OpKind::write, rank, pieces, options, std::nullopt);
}

Result<Operation> Fabric::read_list(Rank rank, std::span<const ListPiece> pieces, const PostOptions& options) {
  return post_list(state_, "read_list", OpKind::read, rank, pieces, options, std::nullopt);
}

Result<Operation> Fabric::write_notify(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                       std::uint32_t value, const PostOptions& options) {
  return post(state_, "write_notify", {OpKind::write, local, remote, bytes, kSets, id, value}, options);
}

Result<Operation> Fabric::write_notify_add(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                           std::uint32_t value, const PostOptions& options) {
  return post(state_, "write_notify_add", {OpKind::write, local, remote, bytes, kAdds, id, value}, options);
}

Result<Operation> Fabric::write_list_notify(Rank rank, std::span<const ListPiece> pieces, SegmentId segment, NotificationId id,
                                            std::uint32_t value, const PostOptions& options) try {
  if (auto refused = refuse_notification("write_list_notify", id, 1)) return std::move(*refused);
  if (auto refused = refuse_value("write_list_notify", value)) return std::move(*refused);
  const Engine::Transfer notification{OpKind::notify, {}, {rank, segment, 0}, 0, kSets, id, value};
  return post_list(state_, "write_list_notify", OpKind::write, rank, pieces, options, notification);
} catch (...) {
  return error_of_exception("write_list_notify");
}

Result<Operation> Fabric::notify(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value, const PostOptions& options) {
  return post(state_, "notify", {OpKind::notify, {}, {rank, segment, 0}, 0, kSets, id, value}, options);
}

Result<Operation> Fabric::notify_add(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                     const PostOptions& options) {
  return post(state_, "notify_add", {OpKind::notify, {}, {rank, segment, 0}, 0, kAdds, id, value}, options);
}

Result<Operation> Fabric::write_in_order(const void* source, RemotePlace remote, std::uint64_t bytes,
                                         const PostOptions& options) try {
  if (bytes > kMaxOrderedBytes) {
    return make_error(Status::out_of_range, "write_in_order", text(bytes, " bytes"), text("it takes at most ", kMaxOrderedBytes),
                      "use write and a notification");
  }
  if (source == nullptr && bytes != 0) {
    return make_error(Status::invalid_argument, "write_in_order", "source", "it is null", "give the bytes");
  }
  return post(state_, "write_in_order", {OpKind::place, {}, remote, bytes, 0, 0, 0, source}, options);
} catch (...) {
  return error_of_exception("write_in_order");
}

Result<NotificationId> Fabric::notification_wait(SegmentId segment, NotificationId first, std::uint32_t count,
                                                 Timeout timeout) try {
  if (!is_usable(state_)) return unusable(state_, "notification_wait");
  if (auto refused = refuse_notification("notification_wait", first, count)) return std::move(*refused);
  if (count == 0) return make_error(Status::invalid_argument, "notification_wait", "count", "it is 0", "wait for at least one id");
  NotificationId raised = 0;
  const auto look_at = [&](const Notifications& notifications) {
    for (std::uint32_t index = 0; index < count; ++index) {
      if (notifications.look(first + index).value() == 0) continue;
      raised = first + index;
      return true;
    }
    return false;
  };
  auto lock = state_->engine->look_or_lock(segment, timeout, look_at);
  if (!lock.owns_lock()) return raised;
  auto found = state_->engine->open_reader(segment);
  if (!found) return std::move(found).error();
  const auto look = [&] {
    // Looked up each time: another thread may deregister it.
    const auto* const now = state_->engine->find_segment(segment);
    return now == nullptr || look_at(*now->notifications);
  };
  auto is_over = state_->engine->wait_for_words(lock, timeout, "notification_wait", look);
  if (!is_over) return std::move(is_over).error();
  if (!*is_over) {
    return make_error(Status::timed_out, "notification_wait", text("segment ", segment, ", ", count, " from ", first),
                      "none is raised", "call again");
  }
  auto still = state_->engine->local_segment(segment);
  if (!still) return std::move(still).error();
  if (Result<void> flushed = state_->engine->flush_gpu_writes(); !flushed) return std::move(flushed).error();
  return raised;
} catch (...) {
  return error_of_exception("notification_wait");
}

Result<void> Fabric::notification_wait_count(SegmentId segment, NotificationId id, std::uint32_t value, Timeout timeout) try {
  if (!is_usable(state_)) return unusable(state_, "notification_wait_count");
  if (auto refused = refuse_notification("notification_wait_count", id, 1)) return std::move(*refused);
  auto lock = state_->engine->look_or_lock(segment, timeout, [&](Notifications& words) { return words.take(id, value); });
  if (!lock.owns_lock()) return {};
  auto found = state_->engine->open_reader(segment);
  if (!found) return std::move(found).error();
  bool is_gone = false;
  Result<void> flushed;
  const auto take = [&] {
    auto now = state_->engine->local_segment(segment);
    is_gone = !now;
    if (is_gone) return true;
    Notifications& notifications = *(*now)->notifications;
    if (!notifications.look(id).is_at_least(value)) return false;
    // Before it is taken: an error leaves it as it is.
    flushed = state_->engine->flush_gpu_writes();
    return !flushed || notifications.take(id, value);
  };
  auto is_over = state_->engine->wait_for_words(lock, timeout, "notification_wait_count", take);
  if (!is_over) return std::move(is_over).error();
  if (!*is_over) {
    return make_error(Status::timed_out, "notification_wait_count", text("segment ", segment, ", notification ", id),
                      text("it has not reached ", value), "call again");
  }
  if (is_gone) {
    return make_error(Status::invalid_argument, "notification_wait_count", text("segment ", segment), "it was deregistered", {});
  }
  return flushed;
} catch (...) {
  return error_of_exception("notification_wait_count");
}

Result<std::uint32_t> Fabric::notification_reset(SegmentId segment, NotificationId id) try {
  if (!is_usable(state_)) return unusable(state_, "notification_reset");
  if (auto refused = refuse_notification("notification_reset", id, 1)) return std::move(*refused);
  std::uint32_t value = 0;
  const auto take = [&](Notifications& words) {
    Notifications::Seen seen = words.look(id);
    while (!words.take_all(id, seen)) seen = words.look(id);
    value = seen.value();
    return true;
  };
  if (state_->engine->look_at_words(segment, take)) return value;
  auto lock = state_->engine->lock();
  auto found = state_->engine->open_reader(segment);
  if (!found) return std::move(found).error();
  Notifications& notifications = *(*found)->notifications;
  for (;;) {
    const Notifications::Seen seen = notifications.look(id);
    if (Result<void> flushed = state_->engine->flush_gpu_writes(); !flushed) return std::move(flushed).error();
    if (notifications.take_all(id, seen)) return seen.value();
  }
} catch (...) {
  return error_of_exception("notification_reset");
}

Result<void> Fabric::wait(QueueId queue, Timeout timeout) try {
  if (!is_usable(state_)) return unusable(state_, "wait");
  if (queue >= kQueues) return bad_queue("wait", queue);
  if (state_->engine->wait_at_once(queue)) return {};
  auto lock = state_->engine->lock();
  const QueueGuard guard(*state_->engine, lock, queue, timeout);
  if (!guard.is_entered()) return guard.why_not("wait");
  return unless_closed(state_, "wait", state_->engine->wait(lock, queue, guard.left()));
} catch (...) {
  return error_of_exception("wait");
}

Result<void> Fabric::progress() {
  return guarded(state_, "progress", [](Engine& engine, auto&) -> Result<void> {
    engine.take_over_polling();
    engine.progress();
    return {};
  });
}

Result<void> Fabric::flush(Rank rank, Timeout timeout) {
  return locked(state_, "flush", [&](Engine& engine, auto& lock) { return engine.flush(lock, rank, timeout); });
}

Result<OperationReport> Fabric::report(Operation operation) const {
  return locked(state_, "report", [&](Engine& engine, auto&) { return engine.report(operation); });
}

Result<Explanation> Fabric::explain_write(LocalPlace local, RemotePlace remote, std::uint64_t bytes, Timeout timeout,
                                          const PostOptions& options) {
  return guarded(state_, {"explain", "explain_write"}, [&](Engine& engine, auto& lock) -> Result<Explanation> {
    if (auto refused = refuse_options("explain", options)) return std::move(*refused);
    return engine.explain(lock, {OpKind::write, local, remote, bytes}, timeout, options);
  });
}

Result<Explanation> Fabric::explain_read(LocalPlace local, RemotePlace remote, std::uint64_t bytes, Timeout timeout,
                                         const PostOptions& options) {
  return guarded(state_, {"explain", "explain_read"}, [&](Engine& engine, auto& lock) -> Result<Explanation> {
    if (auto refused = refuse_options("explain", options)) return std::move(*refused);
    return engine.explain(lock, {OpKind::read, local, remote, bytes}, timeout, options);
  });
}

std::string Explanation::to_text() const try {
  std::string line = is_possible ? text(transport ? name_of(*transport) : "none", " ", name_of(path)) : std::string("not possible");
  for (const std::string& rail : rails) line += text(&rail == rails.data() ? " on " : ", ", rail);
  if (chunk_bytes != 0) line += text(" in chunks of ", chunk_bytes, " bytes");
  line += text("\n  because: ", reason, "\n");
  for (const Alternative& alternative : alternatives) line += text("  ", alternative.name, ": ", alternative.why_not, "\n");
  return line;
} catch (...) {
  return {};
}

Result<std::uint64_t> Fabric::fetch_add(RemotePlace remote, std::uint64_t value, Timeout timeout) {
  return guarded(state_, "fetch_add", [&](Engine& engine, auto& lock) {
    return engine.atomic(lock, fabric::AtomicKind::fetch_add, remote, value, 0, timeout);
  });
}

Result<std::uint64_t> Fabric::compare_swap(RemotePlace remote, std::uint64_t expected, std::uint64_t desired, Timeout timeout) {
  return guarded(state_, "compare_swap", [&](Engine& engine, auto& lock) {
    return engine.atomic(lock, fabric::AtomicKind::compare_swap, remote, desired, expected, timeout);
  });
}

// --- Messages -------------------------------------------------------------------------------------------------------------------

Result<Operation> Fabric::post_send(Rank to, Tag tag, const void* source, std::uint64_t bytes, const PostOptions& options) try {
  if (!is_usable(state_)) return unusable(state_, "send");
  if (options.queue >= kQueues) return bad_queue("send", options.queue);
  if (auto refused = refuse_options("send", options)) return std::move(*refused);
  auto lock = state_->engine->lock();
  return state_->engine->post_send(lock, to, tag, source, bytes, options);
} catch (...) {
  return error_of_exception("post_send");
}

Result<Operation> Fabric::post_recv(Rank from, Tag tag, Tag mask, void* destination, std::uint64_t bytes,
                                    const PostOptions& options) try {
  if (!is_usable(state_)) return unusable(state_, "recv");
  if (options.queue >= kQueues) return bad_queue("recv", options.queue);
  auto lock = state_->engine->lock();
  return state_->engine->post_recv(from, tag, mask, destination, bytes, options);
} catch (...) {
  return error_of_exception("post_recv");
}

Result<Received> Fabric::wait_message(Operation operation, Timeout timeout) {
  return locked(state_, "wait_message", [&](Engine& engine, auto& lock) { return engine.wait_message(lock, operation, timeout); });
}

Result<void> Fabric::cancel_recv(Operation operation) {
  return guarded(state_, "cancel_recv", [&](Engine& engine, auto&) { return engine.cancel_recv(operation); });
}

namespace {

// Ended by something that the operation itself knows nothing of: it must not touch the buffer later, when the caller has left.
bool is_left_posted(Status status) noexcept { return status == Status::timed_out || status == Status::out_of_memory; }

}  // namespace

Result<void> Fabric::send(Rank to, Tag tag, const void* source, std::uint64_t bytes, Timeout timeout,
                          const PostOptions& options) try {
  auto posted = post_send(to, tag, source, bytes, options);
  if (!posted) return std::move(posted).error();
  auto sent = wait_message(*posted, timeout);
  if (is_left_posted(sent.status()) && is_usable(state_)) {
    auto lock = state_->engine->lock();
    sent = state_->engine->leave_message(lock, *posted, timeout, std::move(sent).error());
  }
  if (!sent) return std::move(sent).error();
  return {};
} catch (...) {
  return error_of_exception("send");
}

Result<Received> Fabric::recv(Rank from, Tag tag, void* destination, std::uint64_t bytes, Timeout timeout,
                              const PostOptions& options) try {
  auto posted = post_recv(from, tag, ~Tag{0}, destination, bytes, options);
  if (!posted) return std::move(posted).error();
  auto received = wait_message(*posted, timeout);
  if (!is_left_posted(received.status()) || !is_usable(state_)) return received;
  auto lock = state_->engine->lock();
  return state_->engine->leave_message(lock, *posted, timeout, std::move(received).error());
} catch (...) {
  return error_of_exception("recv");
}

// --- Collectives ----------------------------------------------------------------------------------------------------------------

Result<void> Fabric::barrier(const Group& group, Timeout timeout, CollectiveContext context) {
  return guarded(state_, "barrier", [&](Engine& engine, auto& lock) -> Result<void> {
    std::string values;
    return engine.collect(lock, group, context, fabric::Collective::Kind::barrier, ReduceOperation::sum, values, timeout);
  });
}

namespace {

template <class State, class Number>
Result<void> reduce(const State& state, const Group& group, CollectiveContext context, ReduceOperation operation,
                    std::span<const Number> values, std::span<Number> results, Timeout timeout) {
  using Kind = fabric::Collective::Kind;
  return guarded(state, "all_reduce", [&](Engine& engine, auto& lock) -> Result<void> {
    if (values.empty() || values.size() > kMaxReduceElements) {
      return make_error(Status::out_of_range, "all_reduce", text(values.size(), " values"),
                        text("1 to ", kMaxReduceElements, " are reduced at once"), "reduce in parts");
    }
    if (results.size() != values.size() || values.data() == nullptr || results.data() == nullptr) {
      return make_error(Status::invalid_argument, "all_reduce", "results", "there must be as many as values",
                        "give spans of one length");
    }
    if (operation > ReduceOperation::sum) {
      return make_error(Status::invalid_argument, "all_reduce", "operation", "it is none of minimum, maximum and sum", {});
    }
    constexpr Kind kKind = std::is_integral_v<Number> ? Kind::integers : Kind::reals;
    std::string bytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    if (Result<void> done = engine.collect(lock, group, context, kKind, operation, bytes, timeout); !done) return done;
    std::memcpy(results.data(), bytes.data(), results.size_bytes());
    return {};
  });
}

}  // namespace

Result<void> Fabric::all_reduce(const Group& group, ReduceOperation operation, std::span<const std::int64_t> values,
                                std::span<std::int64_t> results, Timeout timeout, CollectiveContext context) {
  return reduce(state_, group, context, operation, values, results, timeout);
}

Result<void> Fabric::all_reduce(const Group& group, ReduceOperation operation, std::span<const double> values,
                                std::span<double> results, Timeout timeout, CollectiveContext context) {
  return reduce(state_, group, context, operation, values, results, timeout);
}

}  // namespace gigabar::inline v0
