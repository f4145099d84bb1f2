// SPDX-License-Identifier: Apache-2.0
// What peers ask of this rank, and what they answer. Everything in a message is checked against the segment it names.
#include <algorithm>
#include <new>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "fabric/engine.hpp"
#include "fabric/tuning.hpp"

namespace gigabar::fabric {
namespace {

// What waits for the staged writes before it.
bool is_ordered(MessageType type) noexcept {
  return type == MessageType::notify || type == MessageType::place || type == MessageType::get_done ||
         type == MessageType::rendezvous_done || type == MessageType::ping;
}

// Whether staged writes that are before it are not in place yet.
bool is_late(const Peer& peer, const Message& message) noexcept {
  return peer.staged_seen < message.staged() ||
         (!peer.staged_under_way.empty() && *peer.staged_under_way.begin() <= message.staged());
}

}  // namespace

void Engine::message(transport::Link& link, const transport::Header& header, std::span<const std::byte> payload) try {
  Peer* const owner = owner_of(link);
  if (owner == nullptr) return;
  Peer& peer = *owner;
  const Message message = unpack(header);
  ++changes_;
  ++statistics_.messages;
  // The peer may have found the link ready before this side was told.
  if (peer.state == Peer::State::linking) become_ready(peer);
  if (message.type == MessageType::mark) {
    if (peer.marks.size() >= kMaxMarks && !peer.marks.contains(message.a)) return overrun(peer, "marks of fences");
    ++peer.marks[message.a];
    return pass_fences(peer);
  }
  if (peer.stalled_fence != 0) return hold(peer, peer.stalled, message, payload);
  handle(peer, message, payload);
  if (peer.stalled_fence != 0) pass_fences(peer);
} catch (const std::bad_alloc&) {
  if (Peer* const peer = owner_of(link); peer != nullptr) starve(*peer);
}

void Engine::overrun(Peer& peer, const char* what) {
  accuse(peer, text("it sent more ", what, " than one that keeps to the protocol has under way"));
}

void Engine::hold(Peer& peer, std::deque<HeldMessage>& list, const Message& message, std::span<const std::byte> payload) {
  HeldMessage held{message, std::string(text_of(payload))};
  if (peer.held_bytes + held.bytes() > kMaxHeldBytes) return overrun(peer, "messages behind writes that do not end");
  peer.held_bytes += held.bytes();
  list.push_back(std::move(held));
}

// As far as marks are in. A loop: there may be tens of thousands of fences behind one another.
void Engine::pass_fences(Peer& peer) {
  while (peer.stalled_fence != 0) {
    const auto marks = peer.marks.find(peer.stalled_fence);
    if (marks == peer.marks.end() || marks->second < peer.stalled_marks) return;
    peer.marks.erase(marks);
    peer.stalled_fence = 0;
    while (!peer.stalled.empty() && peer.stalled_fence == 0) {
      const HeldMessage next = std::move(peer.stalled.front());
      peer.stalled.pop_front();
      peer.held_bytes -= next.bytes();
      handle(peer, next.message, std::as_bytes(std::span(next.payload)));
    }
  }
}

void Engine::handle(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  if (is_ordered(message.type) && is_late(peer, message)) return hold(peer, peer.held, message, payload);
  switch (message.type) {
    case MessageType::put:
    case MessageType::place: on_put(peer, message, payload); return;
    case MessageType::notify: on_notify(peer, message); return;
    case MessageType::get_done:
    case MessageType::rendezvous_done: on_bytes_done(peer, message); return;
    case MessageType::ping: say(peer, {.type = MessageType::pong, .a = message.a}); return;
    case MessageType::fence:
      // It stops what comes behind it on the first rail until all of its marks are in.
      peer.stalled_fence = message.a;
      peer.stalled_marks = message.count;
      return;
    case MessageType::stage_open: on_stage_open(peer, message, payload); return;
    case MessageType::stage_grant: on_stage_grant(peer, message); return;
    case MessageType::stage_chunk: on_stage_chunk(peer, message); return;
    case MessageType::stage_end: on_stage_end(peer, message); return;
    case MessageType::stage_abort: on_stage_abort(peer, message, payload); return;
    case MessageType::get: on_get(peer, message, payload); return;
    case MessageType::eager: on_eager(peer, message, payload); return;
    case MessageType::rendezvous_request: on_rendezvous_request(peer, message); return;
    case MessageType::rendezvous_reply: on_rendezvous_reply(peer, message, payload); return;
    case MessageType::rendezvous_cancelled: on_rendezvous_cancelled(peer, message); return;
    case MessageType::eager_taken: peer.eager_in_flight -= std::min(peer.eager_in_flight, message.a); return;
    case MessageType::pong: on_pong(peer, message); return;
    case MessageType::atomic: on_atomic(peer, message, payload); return;
    case MessageType::atomic_done:
      if (const auto answer = atomics_.find(message.c); answer != atomics_.end() && answer->second.asked.remote.rank == peer.rank) {
        answer->second.is_done = true;
        answer->second.old = message.a;
        answer->second.status = status_of(message.b);
      }
      return;
    case MessageType::revoked: on_revoked(peer, message); return;
    case MessageType::refused: on_refused(peer, message); return;
    case MessageType::collective: on_collective(peer, message, payload); return;
    case MessageType::wake_me:
      peer.wants_wake = true;
      if (peer.silent_words != 0) wake(peer);  // which it may not have seen
      return;
    case MessageType::wake: peer.is_asked_to_wake = false; return;
    case MessageType::mark: break;
  }
  accuse(peer, text("it sent a message of unknown type ", static_cast<unsigned>(message.type)));
}

// Their numbers ascend: behind one that is late all are.
void Engine::release_held(Peer& peer) {
  while (!peer.held.empty() && !is_late(peer, peer.held.front().message)) {
    const HeldMessage next = std::move(peer.held.front());
    peer.held.pop_front();
    peer.held_bytes -= next.bytes();
    handle(peer, next.message, std::as_bytes(std::span(next.payload)));
  }
}

void Engine::refuse(Peer& peer, const Message& message, Status status) {
  const auto said = static_cast<std::uint64_t>(status);
  say(peer, {.type = MessageType::refused, .segment = message.segment, .queue = message.queue, .b = said});
}

// Everything before the last ping is in place, or its refusal has come before this.
void Engine::on_pong(Peer& peer, const Message& message) {
  if (message.a == kWindowPing && std::exchange(peer.has_window_ping, false)) {
    peer.placed_bytes = peer.window_bytes;
    peer.data_placed = std::max(peer.data_placed, peer.window_data);
    return list_busy(peer);
  }
  if (message.a > peer.ping_sent) return accuse(peer, "it answered a ping that was not sent");
  peer.pong_seen = std::max(peer.pong_seen, message.a);
  if (peer.pong_seen == peer.ping_sent) peer.data_placed = std::max(peer.data_placed, peer.flushed_data);
  if (peer.is_ping_last && peer.pong_seen == peer.ping_sent) peer.refusable_queues = 0;
}

// Buffers of messages too, after the last message to them.
void Engine::on_revoked(const Peer& peer, const Message& message) {
  if (message.segment == kStagingSegment) return;
  const auto found = segments_.find(message.segment);
  if (found != segments_.end() && found->second->epoch == message.epoch) forget_knower(message.segment, peer.rank);
}

void Engine::on_refused(Peer& peer, const Message& message) {
  if (message.queue == kNoQueue) return;
  if (message.queue >= kQueues || (peer.refusable_queues >> message.queue & 1) == 0)
    return accuse(peer, text("it refused a write of queue ", unsigned{message.queue}, ", which sent it none"));
  queues_[message.queue].fail(make_error(Status::unavailable, "write", text("segment ", message.segment, " of rank ", peer.rank),
                                         "it was quiesced or deregistered while the operation was under way",
                                         "agree with that rank when to write"));
}

void Engine::on_put(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  LocalSegment* const segment = segment_by_id(peer, message.segment);
  if (!is_usable(segment, message, message.a, payload.size())) return refuse(peer, message, Status::unavailable);
  const bool is_place = message.type == MessageType::place;
  const Result<void> stored = is_place ? segment->memory.publish(message.a, payload.data(), payload.size())
                                       : segment->memory.store(message.a, payload.data(), payload.size());
  if (!stored) return refuse(peer, message, stored.status());
  if (is_place || (message.flags & kHasNotification) == 0) return;
  Message notify = message;
  notify.type = MessageType::notify;
  handle(peer, notify, {});
}

void Engine::on_notify(Peer& peer, const Message& message) {
  LocalSegment* const segment = segment_by_id(peer, message.segment);
  if (!is_usable(segment, message, 0, 0) || !segment->notifications || message.notification() >= kNotifications)
    return refuse(peer, message, Status::unavailable);
  segment->notifications->raise(word_kind(message.flags), message.notification(), message.value());
}

// --- Reads that this rank answers by writing ------------------------------------------------------------------------------------

void Engine::on_get(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  ByteReader reader(text_of(payload));
  const auto reader_segment = reader.number<SegmentId>();
  const auto reader_offset = reader.number<std::uint64_t>();
  PathPolicy policy;
  for (Preference* preference : {&policy.gdr, &policy.p2p, &policy.bar, &policy.staged}) {
    *preference = static_cast<Preference>(reader.number<std::uint8_t>() & 3);
  }
  const auto chunk_bytes = std::max(reader.number<std::uint64_t>(), kMinChunkBytes);
  // The NIC would read GPU memory here too, so it is held to the limit of reads.
  const bool is_above_limit = message.c > limits(peer).gdr_read_bytes && policy.staged != Preference::forbid;
  if (is_above_limit && policy.gdr == Preference::allow) policy.gdr = Preference::forbid;
  Message finish{.type = MessageType::get_done, .a = message.a};
  LocalSegment* const segment = segment_by_id(peer, message.segment);
  if (!reader.is_done() || !is_usable(segment, message, message.b, message.c) || message.c == 0) {
    finish.b = static_cast<std::uint64_t>(Status::unavailable);
    return say(peer, finish);
  }
  if (peer.answer_count >= kMaxAnswers) return overrun(peer, "reads");
  ++peer.answer_count;
  Op& op = make_op(OpKind::write, 0, &peer, true);
  op.is_answer = true;
  op.use(segment, message.b);
  op.remote_id = reader_segment;
  op.remote_offset = reader_offset;
  op.bytes = message.c;
  op.policy = policy;
  op.chunk_bytes = chunk_bytes;
  op.finish = finish;
  submit(op);
}

// The peer has written the bytes of a read, or of a message that this rank receives.
void Engine::on_bytes_done(Peer& peer, const Message& message) {
  const bool is_read = message.type == MessageType::get_done;
  const auto found = peer.by_id.find(message.a);
  if (found == peer.by_id.end() || found->second->kind != (is_read ? OpKind::read : OpKind::receive)) return;
  Op& op = *found->second;
  const Status status = status_of(message.b);
  const auto path =
      static_cast<TransferPath>(std::min<std::uint64_t>(message.b >> 8 & 0xff, static_cast<std::uint64_t>(TransferPath::staged)));
  if (status != Status::ok) {
    op.fail(is_read ? make_error(status, "read", text("segment ", op.remote_id, " of rank ", peer.rank),
                                 "the peer could not send the bytes", "see that rank's log")
                    : make_error(status, "recv", text("from rank ", peer.rank), "the sender could not send the bytes",
                                 "see that rank's log"));
  } else if (is_read) {
    const Choice*& known = answered_[{op.choice, path}];
    if (known == nullptr) {
      Choice choice = *op.choice;
      choice.path = path;
      choice.reason = text("the peer wrote the bytes itself; ", op.choice->reason);
      known = keep(std::move(choice));
    }
    op.choice = known;
    op.rail_bytes[0] = op.bytes;
  }
  if (op.outstanding > 0) --op.outstanding;
  end_if_over(op);
}

// --- Atomics --------------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kMaxLeftAtomics = 1024;  // whose calls have timed out; of more the oldest are forgotten

const char* name_of(AtomicKind kind) { return kind == AtomicKind::fetch_add ? "fetch_add" : "compare_swap"; }

std::string object_of(const RemotePlace& remote) {
  return text("segment ", remote.segment, " at ", remote.offset_bytes, " of rank ", remote.rank);
}

using Atomics = std::map<std::uint64_t, AtomicAnswer>;

// Of an equal call that has timed out. 0: there is none.
std::uint64_t take_left(Atomics& atomics, const AtomicRequest& asked) noexcept {
  const auto left =
      std::ranges::find_if(atomics, [&](const auto& entry) { return entry.second.is_left && entry.second.asked == asked; });
  if (left == atomics.end()) return 0;
  left->second.is_left = false;
  return left->first;
}

void leave(Atomics& atomics, std::uint64_t request) noexcept {
  atomics[request].is_left = true;
  const auto is_left = [](const auto& entry) { return entry.second.is_left; };
  if (std::ranges::count_if(atomics, is_left) > std::ptrdiff_t{kMaxLeftAtomics})
    atomics.erase(std::ranges::find_if(atomics, is_left));
}

}  // namespace

// The request's number.
Result<std::uint64_t> Engine::ask_for_atomic(Lock& lock, const AtomicRequest& asked, const Timeout& timeout) {
  const RemotePlace& remote = asked.remote;
  if (remote.offset_bytes % 8 != 0) {
    return make_error(Status::invalid_argument, name_of(asked.kind), object_of(remote), "the offset is no multiple of 8",
                      "align it");
  }
  auto peer = ready_peer(lock, remote.rank, timeout);
  if (!peer) return std::move(peer).error();
  auto state = remote_segment(lock, **peer, remote.segment, timeout);
  if (!state) return std::move(state).error();
  if (!fits(remote.offset_bytes, 8, (*state)->bytes)) {
    return make_error(Status::out_of_range, name_of(asked.kind), object_of(remote),
                      text("the segment has ", (*state)->bytes, " bytes"), "stay inside it");
  }
  const Message message{.type = MessageType::atomic,
                        .segment = remote.segment,
                        .count = static_cast<std::uint8_t>(asked.kind),
                        .epoch = (*state)->epoch,
                        .a = remote.offset_bytes,
                        .b = asked.value,
                        .c = asked.expected};
  const std::uint64_t request = ++last_request_;
  atomics_[request].asked = asked;
  say(**peer, message, std::as_bytes(std::span(&request, 1)));
  return request;
}

Result<std::uint64_t> Engine::atomic(Lock& lock, AtomicKind kind, RemotePlace remote, std::uint64_t value, std::uint64_t expected,
                                     const Timeout& timeout) {
  const AtomicRequest asked{kind, remote, value, expected};
  std::uint64_t request = take_left(atomics_, asked);
  if (request == 0) {
    auto sent = ask_for_atomic(lock, asked, timeout);
    if (!sent) return std::move(sent).error();
    request = *sent;
  }
  if (!progress_until(lock, timeout, [&] { return atomics_[request].is_done; })) {
    leave(atomics_, request);
    return make_error(Status::timed_out, name_of(kind), object_of(remote), "the answer has not come: it may or may not be done",
                      "call again with the same arguments");
  }
  const AtomicAnswer answer = atomics_[request];
  atomics_.erase(request);
  if (answer.status == Status::peer_lost) {
    const auto peer = peers_.find(remote.rank);
    if (peer != peers_.end() && peer->second->why) return *peer->second->why;
    return make_error(Status::peer_lost, name_of(kind), object_of(remote), "the peer is lost", {});
  }
  if (answer.status != Status::ok) {
    return make_error(answer.status, name_of(kind), object_of(remote), "the segment was quiesced or deregistered",
                      "agree with that rank when to use it");
  }
  return answer.old;
}

void Engine::on_atomic(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  ByteReader reader(text_of(payload));
  const auto request = reader.number<std::uint64_t>();
  LocalSegment* const segment = segment_by_id(peer, message.segment);
  std::uint64_t old = 0;
  Status status = Status::unavailable;
  if (reader.is_done() && is_usable(segment, message, message.a, sizeof old) && message.a % 8 == 0) {
    const LocalMemory& memory = segment->memory;
    auto* const word = reinterpret_cast<std::uint64_t*>(memory.address() + message.a);
    const bool is_add = message.count == static_cast<std::uint8_t>(AtomicKind::fetch_add);
    if (memory.is_plain() && reinterpret_cast<std::uintptr_t>(word) % 8 == 0) {
      status = Status::ok;
      if (is_add) {
        old = __atomic_fetch_add(word, message.b, __ATOMIC_SEQ_CST);
      } else {
        old = message.c;
        __atomic_compare_exchange_n(word, &old, message.b, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      }
    } else {
      // All atomics of a segment come through this thread, so that reading and writing is one step among them.
      status = memory.load(message.a, &old, sizeof old).status();
      const std::uint64_t fresh = is_add ? old + message.b : old == message.c ? message.b : old;
      if (status == Status::ok) status = memory.store(message.a, &fresh, sizeof fresh).status();
    }
  }
  say(peer, {.type = MessageType::atomic_done, .a = old, .b = static_cast<std::uint64_t>(status), .c = request});
}

}  // namespace gigabar::fabric
