// SPDX-License-Identifier: Apache-2.0
// Messages to a peer, in order: behind the data that was written on any rail, and behind those that the link did not take yet.
#include <new>

#include "base/errors.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

using transport::Posted;

bool is_of_data(MessageType type) noexcept {
  return type == MessageType::put || type == MessageType::notify || type == MessageType::place || type == MessageType::stage_open;
}

}  // namespace

// Makes the first rail wait for what was written on the others. True: nothing is before what is posted next on the first rail.
bool Engine::seal(Peer& peer) {
  for (std::size_t index = 1; index < peer.rails.size(); ++index) {
    Rail& rail = peer.rails[index];
    if (!rail.is_dirty) continue;
    const Message mark{.type = MessageType::mark, .a = peer.fence_number + 1};
    if (rail.link->post_message(pack(mark), {}) != Posted::ok) return false;
    rail.is_dirty = false;
    ++peer.fence_marks;
  }
  if (peer.fence_marks == 0) return true;
  if (!flush_outbox(peer)) return false;
  const auto marks = static_cast<std::uint8_t>(peer.fence_marks);
  const Message fence{.type = MessageType::fence, .count = marks, .a = peer.fence_number + 1};
  if (peer.rails.front().link->post_message(pack(fence), {}) != Posted::ok) return false;
  ++peer.fence_number;
  close_targets(peer);
  ++peer.data_said;
  peer.fence_marks = 0;
  return true;
}

bool Engine::post_after_data(Peer& peer, Message message, std::span<const std::byte> payload) {
  if (!seal(peer)) return false;
  message.c = peer.staged_opened;
  return say_first(peer, message, payload);
}

bool Engine::flush_outbox(Peer& peer) {
  while (!peer.outbox.empty()) {
    const HeldMessage& first = peer.outbox.front();
    if (peer.rails.empty()) return false;
    const auto payload = std::as_bytes(std::span(first.payload));
    if (peer.rails.front().link->post_message(pack(first.message), payload) != Posted::ok) return false;
    peer.outbox.pop_front();
  }
  return true;
}

bool Engine::say_first(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  if (peer.rails.empty() || !flush_outbox(peer)) return false;
  if (peer.rails.front().link->post_message(pack(message), payload) != Posted::ok) return false;
  peer.said_bytes += sizeof(HeldMessage) + payload.size();
  if (is_of_data(message.type)) {
    close_targets(peer);
    ++peer.data_said;
  }
  return true;
}

// The peer holds messages behind marks of slower rails and behind staged writes, while its link goes on taking more. A ping comes
// behind all of them: with its answer they are done with. Answers to the peer do not wait for it, so that two ranks never wait for
// each other.
bool Engine::is_too_far_ahead(Peer& peer) {
  const std::uint64_t ahead_bytes = peer.said_bytes - peer.placed_bytes;
  if (ahead_bytes < kMaxAheadBytes / 2) return false;
  ask_placed(peer);
  return ahead_bytes >= kMaxAheadBytes;
}

void Engine::ask_placed(Peer& peer) {
  if (peer.has_window_ping || !seal(peer)) return;
  peer.has_window_ping = true;
  peer.window_bytes = peer.said_bytes;
  peer.window_data = peer.data_said;
  say(peer, {.type = MessageType::ping, .a = kWindowPing, .c = peer.staged_opened});
}

// --- Notifications that are words -----------------------------------------------------------------------------------------------

void Engine::find_way(const Peer& peer, RemoteState& remote, transport::WordKind kind) {
  const transport::Link& link = *peer.rails.front().link;
  std::string why = remote.words ? link.why_no_word(kind, *remote.words) : remote.why_no_words;
  if (!settings_.notification_words) why = kWordsAreOff;
  RemoteState::Way& way = remote.ways[static_cast<std::size_t>(kind)];
  way.is_word = remote.words != nullptr && why.empty();
  why = way.is_word ? text("a word behind the data, over ", link.rail(), ", without the peer's CPU") : text("in a message: ", why);
  // Peers give reasons too, and could go on giving new ones.
  if (ways_.size() >= kMaxChoices) why = way.is_word ? "a word behind the data" : "in a message";
  way.reason = ways_.insert(std::move(why)).first->c_str();
}

bool Engine::is_by_word(Peer& peer, RemoteState& remote, std::uint8_t flags, NotificationId id, const char*& way) {
  constexpr const char* kOtherRails = "in a message: the data took several rails, which only the peer's CPU brings together";
  constexpr const char* kBehindMessages = "in a message: what was before it went through the peer's CPU, and may not be in place";
  static const std::string beyond_the_words =
      text("in a message: adapters write the notifications below ", transport::kCountedWords, " only, so that no more is pinned");
  const transport::WordKind kind = word_kind(flags);
  RemoteState::Way& known = remote.ways[static_cast<std::size_t>(kind)];
  if (known.reason == nullptr) find_way(peer, remote, kind);
  way = known.reason;
  if (!known.is_word) return false;
  if (id >= transport::words_in(remote.words->bytes())) way = beyond_the_words.c_str();
  for (std::size_t index = 1; index < peer.rails.size(); ++index) {
    if (peer.rails[index].is_dirty) way = kOtherRails;
  }
  if (peer.data_said != peer.data_placed || peer.fence_marks != 0) way = kBehindMessages;
  return way == known.reason;
}

// A message with a notification was posted: when it is in place, the next one can be a word.
void Engine::ask_for_words(Peer& peer, const RemoteState& remote, std::uint8_t flags) {
  if (remote.ways[static_cast<std::size_t>(word_kind(flags))].is_word) ask_placed(peer);
}

bool Engine::post_word(Peer& peer, const RemoteState& remote, std::uint8_t flags, NotificationId id, std::uint32_t value) {
  transport::Link& link = *peer.rails.front().link;
  if (link.post_word(word_kind(flags), *remote.words, id, value) != Posted::ok) return false;
  if (link.limits().words_wake) return true;
  ++peer.silent_words;
  if (peer.wants_wake) wake(peer);
  return true;
}

void Engine::wake(Peer& peer) {
  peer.silent_words = 0;
  peer.wants_wake = false;
  say(peer, {.type = MessageType::wake});
}

// While links are made the peer's may all stand and carry messages already: what answers them waits until these do.
void Engine::say(Peer& peer, const Message& message, std::span<const std::byte> payload) noexcept {
  const bool is_ready = peer.state == Peer::State::ready;
  if (!is_ready && peer.state != Peer::State::linking) return;
  try {
    if (is_ready && say_first(peer, message, payload)) return;
    if (peer.outbox.size() >= kMaxOutbox)
      return accuse(peer, text("it has not taken the ", kMaxOutbox, " answers that wait for it"));
    close_targets(peer);
    peer.outbox.push_back({message, std::string(text_of(payload))});
    if (is_ready) list_busy(peer);
  } catch (const std::bad_alloc&) {
    starve(peer);
  }
}

}  // namespace gigabar::fabric
