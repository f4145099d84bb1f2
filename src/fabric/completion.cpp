// SPDX-License-Identifier: Apache-2.0
// How operations end, and what is told of those that have.
#include <algorithm>
#include <new>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/remaining.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

Error no_record(std::uint64_t id, std::string cause, const char* remedy) {
  return make_error(Status::out_of_range, "report", text("operation ", id), std::move(cause), remedy);
}

// What a link says when it breaks under an operation: that the peer is lost, unless the device or the range was at fault.
Error broken_under(const Peer& peer, const transport::Link& link, const ErrorRecord& said) {
  ErrorRecord record = said;
  record.object = text("rank ", peer.rank, ": ", said.object);
  const bool is_ours = said.status == Status::device_error || said.status == Status::out_of_range;
  if (link.state() == transport::LinkState::broken && !is_ours) record.status = Status::peer_lost;
  return Error(std::move(record));
}

}  // namespace

void Engine::done(transport::Link& link, std::uint64_t cookie, const Result<void>& outcome) try {
  ++changes_;
  auto* const slot = (cookie & 1) != 0 ? reinterpret_cast<OutSlot*>(cookie & ~std::uint64_t{1}) : nullptr;
  if (slot != nullptr && slot->op == nullptr) return;
  Op& op = slot != nullptr ? *slot->op : *reinterpret_cast<Op*>(cookie);
  if (!outcome) op.fail(broken_under(*op.peer, link, outcome.record()));
  if (slot != nullptr) *slot = {};
  --op.outstanding;
  if (slot != nullptr && op.staged_sent < op.bytes) fill_slots(op);
  end_if_over(op);
} catch (const std::bad_alloc&) {
  if (Peer* const peer = owner_of(link); peer != nullptr) starve(*peer);
}

void Engine::end_if_over(Op& op) {
  if (!op.is_posted || op.outstanding != 0) return;
  // One that could not be opened went in messages.
  if (op.kind == OpKind::write && op.staged_number != 0 && op.staged_sent < op.bytes && !op.error) return;
  // A rendezvous becomes a write when its reply comes.
  if (op.kind == OpKind::rendezvous && !op.error) return;
  if (op.is_over) return;
  end(op);
}

void Engine::end(Op& op) {
  Record& record = records_[op.id % kRecords];
  record = static_cast<const Record&>(op);
  record.status = op.error ? op.error->status() : Status::ok;
  record.cycles = cycle_count() - op.begin_cycles;
  record.rank = op.peer != nullptr ? op.peer->rank : kAnyRank;
  if (std::exchange(op.has_opened_buffer, false)) op.local->close_to(op.peer->rank);
  if (op.local != nullptr) release(std::exchange(op.local, nullptr));
  if (op.remote != nullptr && op.peer->state != Peer::State::lost) release(*op.peer, op.remote);
  op.remote = nullptr;
  if (op.peer != nullptr && !op.peer->by_id.empty()) op.peer->by_id.erase(op.id);
  if (!staging_ops_.empty()) std::erase(staging_ops_, &op);
  if (std::exchange(op.is_answer, false)) --op.peer->answer_count;
  if (!op.is_internal) {
    Queue& queue = queues_[op.queue];
    if (op.error) queue.fail(*op.error);
    queue.op_count.fetch_sub(1, std::memory_order_release);
    if (op.peer != nullptr && op.peer->op_count > 0) --op.peer->op_count;
  }
  ++changes_;
  op.is_over = true;
  if (op.kind == OpKind::receive && !op.is_matched) spare_receives_.splice(spare_receives_.begin(), receives_, op.receive_place);
  // A message's operation stays until it is waited for.
  if (ops_.find(op.id) == nullptr) give_back(op);
}

void Engine::give_back(Op& op) noexcept {
  op.id = 0;
  op.memory.reset();
  free_ops_.push_back(&op);
}

Result<void> Engine::wait(Lock& lock, QueueId queue, const Timeout& timeout) {
  Queue& waited = queues_[queue];
  if (!progress_until(lock, timeout, [&] { return waited.op_count == 0; })) {
    const unsigned count = waited.op_count;
    return make_error(Status::timed_out, "wait", text("queue ", queue),
                      text(counted(count, "operation"), count == 1 ? " is" : " are", " not done"), "call again");
  }
  waited.set_posted_count(0);
  if (!waited.error) return {};
  Error error = std::move(*waited.error);
  waited.error.reset();
  waited.has_error = false;
  return error;
}

Result<void> Engine::flush(Lock& lock, Rank rank, const Timeout& timeout) {
  const Remaining time(timeout);
  auto found = find_peer(rank);
  if (!found) return std::move(found).error();
  Peer& peer = **found;
  if (peer.state == Peer::State::idle) return {};  // nothing was ever posted
  if (peer.state == Peer::State::lost) return *peer.why;
  const AwaitedPeer awaited(peer);
  const auto wait_until = [&](const auto& is_done) -> Result<void> {
    if (!progress_until(lock, time.left(), [&] { return awaited.is_lost() || is_done(); }))
      return make_error(Status::timed_out, "flush", text("rank ", rank), "not everything is in place yet", "call again");
    if (awaited.is_lost()) return awaited.why("flush");
    return {};
  };
  Result<void> posted = wait_until([&] { return peer.op_count == 0 && peer.state == Peer::State::ready; });
  if (!posted) return posted;
  // Who calls again waits for the ping of the call before: however short the calls, one of them sees its answer.
  if (!peer.is_ping_last || peer.pong_seen == peer.ping_sent) {
    Op& ping = make_op(OpKind::ping, 0, &peer, true);
    ping.remote_offset = ++peer.ping_sent;
    submit(ping);
  }
  const std::uint64_t number = peer.ping_sent;
  return wait_until([&] { return peer.pong_seen >= number; });
}

// Of one that is under way it may be another operation's.
Result<Record> Engine::record_of(std::uint64_t id) const {
  const std::uint64_t queue_number = id >> kQueueBitsOfOperation;
  const std::uint64_t number = id & ((std::uint64_t{1} << kQueueBitsOfOperation) - 1);
  const Queue* const queue = queue_number != 0 && queue_number <= kQueues ? &queues_[queue_number - 1] : nullptr;
  const auto guard = queue != nullptr ? std::unique_lock(queue->mutex) : std::unique_lock<FairMutex>();
  const std::uint64_t last = queue != nullptr ? queue->store_count : last_op_;
  if (queue_number > kQueues || number == 0 || number > last) {
    return no_record(id, "there was none of that number", "give what a post returned");
  }
  const Record& record = records_[number % kRecords];
  if (number + kRecords <= last && (queue != nullptr || record.id != id)) {
    return no_record(id, text("only the last ", kRecords, " are kept"), "ask earlier");
  }
  if (queue == nullptr) return record;
  const StoreRecord& kept = queue->records[number % kRecords];
  return Record{.id = id,
                .choice = kept.choice,
                .bytes = kept.bytes,
                .chunks = kept.choice != nullptr ? 1U : 0U,
                .cycles = kept.cycles,
                .way = kept.way,
                .rank = kept.rank,
                .rail_bytes = {kept.bytes}};
}

Result<OperationReport> Engine::report(Operation operation) const {
  const auto id = static_cast<std::uint64_t>(operation);
  auto found = record_of(id);
  if (!found) return std::move(found).error();
  const Record& record = *found;
  OperationReport report;
  if (record.id != id) return report;  // under way
  report.is_done = true;
  report.status = record.status;
  report.bytes = record.bytes;
  report.chunks = record.chunks;
  report.retries = record.retries;
  const double cycles_per_ns = cycles_per_ms(opened_at_, {}) / 1e6;
  // Counters of two processors may differ a little.
  const auto cycles = static_cast<double>(std::max<std::int64_t>(static_cast<std::int64_t>(record.cycles), 0));
  if (cycles_per_ns > 0) report.duration_ns = static_cast<std::int64_t>(cycles / cycles_per_ns);
  if (record.choice != nullptr) {
    report.path = record.choice->path;
    report.transport = record.choice->transport;
    report.reason = record.choice->reason;
  }
  if (record.way != nullptr) report.notification = record.way;
  const auto peer = peers_.find(record.rank);
  for (std::size_t index = 0; index < kMaxRails && peer != peers_.end() && index < peer->second->rails.size(); ++index) {
    if (record.rail_bytes[index] == 0) continue;
    report.rails.push_back({peer->second->rails[index].link->rail(), record.rail_bytes[index]});
  }
  return report;
}

}  // namespace gigabar::fabric
