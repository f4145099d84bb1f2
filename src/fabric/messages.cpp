// SPDX-License-Identifier: Apache-2.0
// Messages with tags. Small ones carry their bytes; of larger ones a request (RTS) goes first. When a receive matches it, the reply
// (CTS) tells where, and the sender writes straight into its buffer, as any other write goes.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/errors.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

// Bytes of eager messages that a rank holds for one peer before anybody receives them; above it the peer asks instead.
constexpr std::uint64_t kEagerWindowBytes = 4 << 20;
constexpr std::uint64_t kEagerCostBytes = 64;         // what remembering one takes beside its bytes
constexpr std::int64_t kMinEndingNs = 1'000'000'000;  // for bytes that are under way when the caller leaves
constexpr std::size_t kMaxDescriptionBytes = 2048;    // so that a reply is one message everywhere

bool matches(const Op& receive, const Peer& peer, Tag tag) noexcept {
  return (receive.from == kAnyRank || receive.from == peer.rank) && ((receive.tag ^ tag) & receive.mask) == 0;
}

// Of the window; empty messages have a price too.
std::uint64_t cost_of(std::uint64_t bytes) noexcept { return bytes + kEagerCostBytes; }

Error truncated(const Peer& peer, std::uint64_t bytes, std::uint64_t capacity) {
  return make_error(Status::out_of_range, "recv", text("from rank ", peer.rank),
                    text("the message has ", bytes, " bytes, the buffer ", capacity), "give a larger buffer");
}

Error too_many() {
  return make_error(Status::busy, "message", "posted messages", text(kMaxMessages, " are not waited for"), "wait for some of them");
}

}  // namespace

// --- Sending --------------------------------------------------------------------------------------------------------------------

Result<Operation> Engine::post_send(Lock& lock, Rank to, Tag tag, const void* source, std::uint64_t bytes,
                                    const PostOptions& options) {
  if (source == nullptr && bytes != 0) {
    return make_error(Status::invalid_argument, "send", "source", "it is null", "give memory of this process");
  }
  if (has_most_messages()) return too_many();
  const std::uint64_t begin_cycles = cycle_count();
  poll_between_posts();
  auto peer = ready_peer(lock, to, connect_timeout());
  if (!peer) return std::move(peer).error();
  std::shared_ptr<const LocalMemory> memory;
  std::uint64_t offset = 0;
  LocalSegment* const segment = bytes == 0 ? nullptr : covering_segment(source, bytes, offset);
  if (segment == nullptr && bytes != 0) {
    auto seen = recent_memory_.look_at(const_cast<void*>(source), bytes);
    if (!seen) return std::move(seen).error();
    memory = std::move(*seen);
  }
  const PathPolicy& policy = options.policy ? *options.policy : settings_.policy;
  std::uint64_t eager_bytes = std::min<std::uint64_t>(
      {settings_.eager_bytes, (*peer)->peer_eager_bytes, (*peer)->rails.front().link->limits().payload_bytes});
  const LocalMemory* const seen = segment != nullptr ? &segment->memory : memory.get();  // null: plain host memory
  const bool is_device = seen != nullptr && seen->is_device();
  if (is_device && !seen->is_plain() && (*peer)->transport->kind() == TransportKind::local) {
    eager_bytes = std::min(eager_bytes, seen->mapped_load_bytes());
  }
  const bool may_be_eager = !is_device || policy.bar != Preference::forbid;
  const bool is_eager =
      (bytes == 0 || (bytes <= eager_bytes && may_be_eager)) && (*peer)->eager_in_flight + cost_of(bytes) <= kEagerWindowBytes;
  // Straight into the link when nothing is before it: it is over then, and what is remembered of it is for wait_message() and
  // report().
  if (is_eager && (*peer)->pending.empty()) {
    sent_.make_room();  // what is in the link cannot be taken back
    const Choice* const choice = eager_choice((*peer)->transport->kind(), is_device);
    // An error is found again below, where an operation can keep it.
    if (const auto said = say_eager(**peer, tag, source, seen, offset, bytes); said && *said) {
      (*peer)->eager_in_flight += cost_of(bytes);
      ++statistics_.operations;
      const Operation sent = record_at_once(**peer, choice, bytes, begin_cycles);
      sent_.insert(static_cast<std::uint64_t>(sent), {to, tag, bytes});
      return sent;
    }
  }
  ops_.make_room();
  Op& op = make_op(is_eager ? OpKind::eager : OpKind::rendezvous, options.queue, *peer, true);
  op.tag = tag;
  op.buffer = const_cast<void*>(source);
  op.received = {to, tag, bytes};
  op.bytes = bytes;
  op.policy = policy;
  op.memory = std::move(memory);
  op.use(segment, offset);
  ++statistics_.operations;
  const Operation id{op.id};
  ops_.insert(op.id, &op);
  if (is_eager) (*peer)->eager_in_flight += cost_of(bytes);
  submit(op);
  return id;
}

// `memory`: what the source is and where in it; null: plain host memory. False: the link takes nothing now. Errors: those of a
// load.
Result<bool> Engine::say_eager(Peer& peer, Tag tag, const void* source, const LocalMemory* memory, std::uint64_t offset,
                               std::uint64_t bytes) {
  if (!flush_outbox(peer)) return false;
  std::span<const std::byte> payload(static_cast<const std::byte*>(source), bytes);
  if (memory != nullptr && bytes != 0) {
    auto plain = plain_bytes(*memory, offset, bytes);
    if (!plain) return std::move(plain).error();
    payload = *plain;
  }
  return say_first(peer, {.type = MessageType::eager, .a = tag}, payload);
}

bool Engine::post_eager(Op& op) {
  const LocalMemory* const memory = op.local != nullptr ? &op.local->memory : op.memory.get();
  auto said = say_eager(*op.peer, op.tag, op.buffer, memory, op.local_offset, op.bytes);
  if (!said) {
    op.peer->eager_in_flight -= std::min(op.peer->eager_in_flight, cost_of(op.bytes));  // the peer will not say that it took it
    op.fail(std::move(said).error());
    return true;
  }
  if (!*said) {
    ++op.retries;
    return false;
  }
  op.rail_bytes[0] = op.bytes;
  op.chunks = 1;
  op.choice = eager_choice(op.peer->transport->kind(), memory != nullptr && memory->is_device());
  return true;
}

const Choice* Engine::eager_choice(TransportKind kind, bool is_device) {
  const Choice*& known = eager_choices_[static_cast<std::size_t>(kind)][is_device ? 1 : 0];
  if (known != nullptr) return known;
  const TransferPath path = is_device ? TransferPath::bar : TransferPath::host;
  return known = keep({{true, path, kind, {}, 0, "up to the eager limit it travels inside a message", {}}, Method::message});
}

void Engine::on_rendezvous_reply(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  Message finish{.type = MessageType::rendezvous_done, .a = message.b};
  const auto found = peer.by_id.find(message.a);
  if (found == peer.by_id.end()) {
    // The request was taken back while its reply was under way.
    finish.b = static_cast<std::uint64_t>(Status::unavailable);
    if ((message.flags & kDiscard) == 0) say(peer, finish);
    return;
  }
  if (found->second->kind != OpKind::rendezvous) return;
  Op& op = *found->second;
  peer.by_id.erase(found);  // the request is answered
  op.is_matched = true;
  if ((message.flags & kDiscard) != 0) return end(op);
  ByteReader reader(text_of(payload));
  const auto offset = reader.number<std::uint64_t>();
  const std::string_view description = reader.string(transport::kMaxParcelBytes);
  if (reader.is_done() && message.c == op.bytes) {
    learn_buffer(peer, message.segment, description);
    use_buffer(op);
  } else {
    op.fail(make_error(Status::peer_lost, "send", text("rank ", peer.rank), "its reply to a message is malformed", {}));
  }
  if (op.error) {
    finish.b = static_cast<std::uint64_t>(op.error->status());
    say(peer, finish);
    return end(op);
  }
  // From now on it is the write of its bytes.
  op.kind = OpKind::write;
  op.is_posted = false;
  op.remote_id = message.segment;
  op.remote_offset = offset;
  op.finish = finish;
  peer.is_ping_last = false;
  submit(op);
}

// --- Receiving ------------------------------------------------------------------------------------------------------------------

Result<Operation> Engine::post_recv(Rank from, Tag tag, Tag mask, void* destination, std::uint64_t bytes,
                                    const PostOptions& options) {
  if (destination == nullptr && bytes != 0) {
    return make_error(Status::invalid_argument, "recv", "destination", "it is null", "give memory of this process");
  }
  if (has_most_messages()) return too_many();
  Peer* peer = nullptr;
  if (from != kAnyRank) {
    auto found = find_peer(from);
    if (!found) return std::move(found).error();
    peer = *found;
  }
  std::shared_ptr<const LocalMemory> memory;
  std::uint64_t offset = 0;
  LocalSegment* const segment = bytes == 0 ? nullptr : covering_segment(destination, bytes, offset);
  if (segment == nullptr && bytes != 0) {
    auto seen = recent_memory_.look_at(destination, bytes);
    if (!seen) return std::move(seen).error();
    memory = std::move(*seen);
  }
  // What has come already is first; only then is a lost peer an error.
  const auto waiting = std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& message) {
    return (from == kAnyRank || message.peer->rank == from) && ((message.tag ^ tag) & mask) == 0;
  });
  if (waiting == unexpected_.end() && peer != nullptr && peer->state == Peer::State::lost) return *peer->why;
  ops_.make_room();
  if (spare_receives_.empty()) spare_receives_.emplace_back();
  Op& op = make_op(OpKind::receive, options.queue, peer, true);
  op.from = from;
  op.tag = tag;
  op.mask = mask;
  op.buffer = destination;
  op.capacity = bytes;
  op.memory = std::move(memory);
  op.is_posted = true;
  op.use(segment, offset);
  ++statistics_.operations;
  const Operation id{op.id};
  ops_.insert(op.id, &op);
  // The node that was kept, or made above.
  spare_receives_.front() = &op;
  op.receive_place = spare_receives_.begin();
  receives_.splice(receives_.end(), spare_receives_, op.receive_place);
  if (waiting == unexpected_.end()) return id;
  Unexpected message = std::move(*waiting);
  unexpected_.erase(waiting);
  try {
    if (message.request) {
      --message.peer->unexpected_request_count;
      reply_to_request(op, *message.peer, message.tag, message.bytes, *message.request);
    } else {
      deliver(op, *message.peer, message.tag, std::as_bytes(std::span(message.data)));
      if (message.generation == message.peer->generation) {
        message.peer->unexpected_bytes -= cost_of(message.bytes);
        took_eager(*message.peer, message.bytes);
      }
    }
  } catch (const std::bad_alloc&) {
    starve(*message.peer);  // which is not lost: its request has come
  }
  return id;
}

Op* Engine::find_receive(const Peer& peer, Tag tag) {
  const auto found =
      std::find_if(receives_.begin(), receives_.end(), [&](const Op* receive) { return matches(*receive, peer, tag); });
  return found == receives_.end() ? nullptr : *found;
}

void Engine::on_eager(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  if (Op* const receive = find_receive(peer, message.a)) {
    deliver(*receive, peer, message.a, payload);
    took_eager(peer, payload.size());
    return;
  }
  if (peer.unexpected_bytes + cost_of(payload.size()) > kEagerWindowBytes)
    return accuse(peer, "it sent more than its window of messages");
  peer.unexpected_bytes += cost_of(payload.size());
  unexpected_.push_back({&peer, peer.generation, message.a, payload.size(), std::string(text_of(payload)), std::nullopt});
}

// The sender may send as much again. Told in quarters of the window, so that few words go back.
void Engine::took_eager(Peer& peer, std::uint64_t bytes) {
  peer.eager_taken += cost_of(bytes);
  if (peer.eager_taken < kEagerWindowBytes / 4) return;
  say(peer, {.type = MessageType::eager_taken, .a = std::exchange(peer.eager_taken, 0)});
}

void Engine::match(Op& receive, Peer& peer, Tag tag, std::uint64_t bytes) noexcept {
  spare_receives_.splice(spare_receives_.begin(), receives_, receive.receive_place);
  receive.is_matched = true;
  receive.peer = &peer;
  receive.received = {peer.rank, tag, bytes};
  receive.bytes = bytes;
}

// The message is consumed and the receive over, whatever happens: its sender may be lost, so that nobody else would end it.
void Engine::deliver(Op& receive, Peer& peer, Tag tag, std::span<const std::byte> data) {
  match(receive, peer, tag, data.size());
  try {
    if (data.size() > receive.capacity) receive.fail(truncated(peer, data.size(), receive.capacity));
    const std::size_t bytes = std::min<std::size_t>(data.size(), receive.capacity);
    const LocalMemory* const memory = receive.local != nullptr ? &receive.local->memory : receive.memory.get();
    if (bytes != 0 && memory == nullptr) {
      std::memcpy(receive.buffer, data.data(), bytes);
    } else if (bytes != 0) {
      if (const Result<void> stored = memory->store(receive.local_offset, data.data(), bytes); !stored)
        receive.fail(Error(stored.record()));
    }
  } catch (const std::bad_alloc&) {
    receive.fail(Error::out_of_memory());
  }
  end(receive);
}

void Engine::on_rendezvous_request(Peer& peer, const Message& message) {
  if (Op* const receive = find_receive(peer, message.a)) return reply_to_request(*receive, peer, message.a, message.c, message.b);
  // It cannot wait for more of them itself.
  if (peer.unexpected_request_count >= kMaxMessages) return overrun(peer, "messages that nobody has received");
  ++peer.unexpected_request_count;
  unexpected_.push_back({&peer, peer.generation, message.a, message.c, {}, message.b});
}

void Engine::reply_to_request(Op& receive, Peer& peer, Tag tag, std::uint64_t bytes, std::uint64_t request) {
  match(receive, peer, tag, bytes);
  Message reply{.type = MessageType::rendezvous_reply, .a = request, .b = receive.id, .c = bytes};
  const auto discard = [&] {
    reply.flags = kDiscard;
    say(peer, reply);
    if (bytes > receive.capacity) receive.fail(truncated(peer, bytes, receive.capacity));
    end(receive);
  };
  if (bytes > receive.capacity || bytes == 0) return discard();
  use_buffer(receive);
  if (receive.error) return discard();
  reply.segment = receive.local->id;
  receive.local->open_to(peer.rank);
  receive.has_opened_buffer = true;
  const std::string payload = ByteWriter().number(receive.local_offset).string(description_of_buffer(peer, *receive.local)).take();
  say(peer, reply, std::as_bytes(std::span(payload)));
  peer.by_id[receive.id] = &receive;
  ++receive.outstanding;
}

// The key of a buffer that the peer does not know yet goes with the reply: asking for it would take as long as many messages.
// Empty: it knows it, or has to ask because descriptors go with it.
std::string Engine::description_of_buffer(const Peer& peer, LocalSegment& segment) {
  if (segment.id < kFirstAnonymous || segment.known_by.contains(peer.rank)) return {};
  ByteWriter writer;
  const std::vector<Descriptor> descriptors = describe_segment(peer, segment, writer);
  std::string description = writer.take();
  if (!descriptors.empty() || description.size() > kMaxDescriptionBytes) return {};
  segment.known_by.insert(peer.rank);
  return description;
}

void Engine::learn_buffer(Peer& peer, SegmentId id, std::string_view description) {
  if (description.empty() || peer.segments.contains(id)) return;
  auto remote = std::make_unique<RemoteState>();
  remote->id = id;
  ByteReader reader(description);
  if (!learn_segment(peer, *remote, reader, {})) return accuse(peer, "its key of a buffer is malformed");
  peer.segments[id] = std::move(remote);
}

void Engine::on_rendezvous_cancelled(Peer& peer, const Message& message) {
  // Where a receive has taken it, the sender answers the reply.
  peer.unexpected_request_count -= std::erase_if(
      unexpected_, [&](const Unexpected& unexpected) { return unexpected.peer == &peer && unexpected.request == message.a; });
}

// --- Waiting --------------------------------------------------------------------------------------------------------------------

// A receive for which nobody is left.
void Engine::end_if_in_vain(Op& op, bool connects) {
  std::optional<Error> error;
  if (op.from == kAnyRank) {
    error = error_when_alone("recv", "send", connects);
  } else if (!can_still_speak(op.from, connects) && !op.is_over) {
    error = op.peer->why ? *op.peer->why
                         : make_error(Status::peer_lost, "recv", text("rank ", op.from),
                                      "it is not connected, and the job's directory is gone", {});
  }
  if (!error) return;
  op.fail(std::move(*error));
  end(op);
}

bool Engine::wait_for(Lock& lock, Op& op, const Timeout& timeout) {
  if (op.kind != OpKind::receive) return progress_until(lock, timeout, [&] { return op.is_over; });
  Silence* const silence = op.from == kAnyRank ? silence_of_others(timeout) : &op.peer->silence;
  Watch watch(lost_count_, silence);
  const bool is_over = progress_until(lock, timeout, [&] {
    if (!op.is_over && !op.is_matched && watch.is_due()) end_if_in_vain(op, watch.may_connect());
    return op.is_over;
  });
  if (is_over && silence != nullptr) *silence = {};
  return is_over;
}

Result<Received> Engine::wait_message(Lock& lock, Operation operation, const Timeout& timeout) {
  const auto id = static_cast<std::uint64_t>(operation);
  if (const Received* const sent = sent_.find(id)) {
    const Received received = *sent;
    sent_.erase(id);
    return received;
  }
  Op* const* const found = ops_.find(id);
  if (found == nullptr) {
    return make_error(Status::invalid_argument, "wait_message", text("operation ", id), "it is no message that is under way",
                      "give what post_send or post_recv returned, once");
  }
  Op& op = **found;
  if (!op.is_over && !wait_for(lock, op, timeout)) {
    return make_error(Status::timed_out, "wait_message", text("operation ", id), "it is not done", "call again");
  }
  std::optional<Error> error = std::move(op.error);
  const Received received = op.received;
  ops_.erase(id);
  give_back(op);
  if (error) return std::move(*error);
  return received;
}

Result<void> Engine::cancel_recv(Operation operation) {
  const auto id = static_cast<std::uint64_t>(operation);
  Op* const* const found = ops_.find(id);
  if (found == nullptr || (*found)->kind != OpKind::receive) {
    return make_error(Status::invalid_argument, "cancel_recv", text("operation ", id), "it is no receive that is under way",
                      "give what post_recv returned");
  }
  if (take_back(**found)) return {};
  return make_error(Status::busy, "cancel_recv", text("operation ", id), "a message has matched it", "wait for it");
}

// False: its bytes are under way, or it is over.
bool Engine::take_back(Op& op) {
  if (op.is_matched || op.is_over) return false;
  if (op.kind == OpKind::rendezvous && op.is_posted) {
    say(*op.peer, {.type = MessageType::rendezvous_cancelled, .a = op.id});
  } else if (op.kind != OpKind::receive) {
    std::erase(op.peer->pending, &op);
    if (op.kind == OpKind::eager) op.peer->eager_in_flight -= std::min(op.peer->eager_in_flight, cost_of(op.bytes));
  }
  ops_.erase(op.id);
  end(op);
  return true;
}

Result<Received> Engine::leave_message(Lock& lock, Operation operation, const Timeout& timeout, Error why) {
  const auto id = static_cast<std::uint64_t>(operation);
  Op* const* const found = ops_.find(id);
  if (found == nullptr || take_back(**found)) return why;
  const bool is_short = !timeout.is_forever() && timeout.ns() < kMinEndingNs;
  auto ended = wait_message(lock, operation, is_short ? Timeout::of(std::chrono::nanoseconds(kMinEndingNs)) : timeout);
  Op* const* const left = ops_.find(id);
  if (left == nullptr) return ended;
  const Op& op = **left;
  Peer& peer = *op.peer;
  try {
    retire(peer, make_error(Status::peer_lost, "message", text("rank ", peer.rank),
                            "a message between the two did not end in time; its connection was cut", {}));
  } catch (const std::bad_alloc&) {
    starve(peer);
    throw;
  }
  // Also where another thread closes the fabric meanwhile: copies may be under way on the buffer.
  const Deadline until = Deadline::after_ns(std::chrono::nanoseconds(kLossTime).count());
  while (op.id == id && !op.is_over && !until.has_passed()) {
    progress();
    lock.unlock();
    sched_yield();
    lock.lock();
  }
  return wait_message(lock, operation, Timeout::test());
}

}  // namespace gigabar::fabric
