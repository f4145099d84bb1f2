// SPDX-License-Identifier: Apache-2.0
// Segments: memory that peers may name. A peer asks for a segment's key at first use and keeps it until it is told not to.
//
// Revoking: the owner says so on the channel; the peer starts nothing new on that key, and when nothing of it is under way answers
// down its links, behind everything it has written. After that answer, or after its links are gone, nothing can land.
#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/shown.hpp"
#include "base/undo.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kIdleAnonymous = 32;  // registrations of device memory that are kept for the next message

void take_back_key(LocalSegment& segment, Rank rank) noexcept {
  segment.known_by.erase(rank);
  for (const auto& region : segment.regions) {
    if (region != nullptr) region->take_back_key(rank);
  }
}

}  // namespace

std::string segment_text(SegmentId id) {
  if (id == kStagingSegment) return "staging memory";
  if (id >= kFirstAnonymous) return text("message buffer ", id);
  return text("segment ", id);
}

Result<LocalSegment*> Engine::local_segment(SegmentId id) {
  if (LocalSegment* const found = find_segment(id)) return found;
  return make_error(Status::invalid_argument, "segment", segment_text(id), "it is not registered at this rank",
                    "register it first");
}

LocalSegment* Engine::search_segment(SegmentId id) noexcept {
  const auto found = segments_.find(id);
  return found == segments_.end() || id >= kFirstAnonymous ? nullptr : recent_segment_ = found->second.get();
}

void Engine::erase_segment(SegmentId id) {
  recent_segment_ = nullptr;
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  if (id < kFirstAnonymous) close_targets_from(*found->second);
  if (found->second->notifications != nullptr) word_readers_.close(*found->second->notifications);
  segments_.erase(found);
}

Result<std::unique_ptr<LocalSegment>> Engine::make_segment(void* address, std::size_t bytes, SharedPages pages) {
  auto memory = LocalMemory::look_at(address, bytes);
  if (!memory) return std::move(memory).error();
  auto segment = std::make_unique<LocalSegment>(std::move(*memory));
  segment->epoch = ++last_epoch_;
  if (pages.file == nullptr) pages = find_shared_host_memory(reinterpret_cast<std::uintptr_t>(address), bytes);
  transport::MemoryRange range{address, bytes, segment->memory.kind(), segment->memory.device()};
  range.descriptor = pages.file != nullptr ? pages.file->get() : -1;
  range.descriptor_offset_bytes = pages.offset_bytes;
  for (const auto& transport : transports_) {
    const auto index = static_cast<std::size_t>(transport->kind());
    auto region = transport->register_memory(range);
    if (region) {
      segment->regions[index] = std::move(*region);
    } else {
      segment->why_not[index] = region.error().record().cause;
    }
  }
  return segment;
}

Result<void> Engine::register_segment(SegmentId id, void* address, std::size_t bytes) {
  if (id >= kMaxSegments) {
    return make_error(Status::out_of_range, "register", segment_text(id), text("there are ", kMaxSegments, " segments"),
                      "give an id below that");
  }
  if (segments_.contains(id)) {
    return make_error(Status::invalid_argument, "register", segment_text(id), "the id is in use",
                      "deregister it, or give another id");
  }
  auto segment = make_segment(address, bytes);
  if (!segment) return std::move(segment).error();
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if ((*segment)->memory.kind() == MemoryKind::host_pageable && !is_memory_of_this_process(begin, bytes)) {
    return make_error(Status::invalid_argument, "register", range_text(begin, bytes), "it is not memory of this process",
                      "give memory that is allocated");
  }
  (*segment)->id = id;
  auto notifications = Notifications::make(word_pages_);
  if (!notifications) return std::move(notifications).error();
  (*segment)->notifications = std::move(*notifications);
  segments_[id] = std::move(*segment);
  return {};
}

LocalSegment* Engine::segment_by_id(Peer& peer, SegmentId id) {
  if (id == kStagingSegment) return peer.staging_in.get();
  if (id < kFirstAnonymous) return find_segment(id);
  const auto found = segments_.find(id);
  return found == segments_.end() || !found->second->is_open_to(peer.rank) ? nullptr : found->second.get();
}

// --- Buffers of messages --------------------------------------------------------------------------------------------------------

LocalSegment* Engine::covering_segment(const void* address, std::uint64_t bytes, std::uint64_t& offset) {
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto covers = [&](const LocalSegment& segment) {
    const LocalMemory& memory = segment.memory;
    if (segment.is_retiring || !segment.is_enabled || begin < memory.address()) return false;
    offset = static_cast<std::uint64_t>(begin - memory.address());
    return fits(offset, bytes, memory.bytes());
  };
  if (recent_segment_ != nullptr && covers(*recent_segment_)) return recent_segment_;
  for (const auto& [id, segment] : segments_) {
    if (id >= kFirstAnonymous) break;
    if (covers(*segment)) return recent_segment_ = segment.get();
  }
  offset = 0;
  return nullptr;
}

void Engine::use_buffer(Op& op) {
  if (op.local != nullptr) return;
  std::uint64_t offset = 0;
  if (LocalSegment* const segment = covering_segment(op.buffer, op.bytes, offset)) return op.use(segment, offset);
  const std::uint64_t buffer_id = op.memory != nullptr ? op.memory->buffer_id() : 0;
  for (const SegmentId id : idle_anonymous_) {
    LocalSegment& segment = *segments_[id];
    // CUDA's buffer ids are never used again: the same one is the same memory.
    if (!segment.is_retiring && segment.memory.address() == op.buffer && segment.memory.bytes() == op.bytes &&
        segment.memory.buffer_id() == buffer_id && buffer_id != 0)
      return op.use(&segment, 0);
  }
  SegmentId id = next_anonymous_;
  for (unsigned tries = 0; segments_.contains(id); ++tries) {
    if (tries > kEndAnonymous - kFirstAnonymous) {
      return op.fail(make_error(Status::busy, "message", range_text(reinterpret_cast<std::uintptr_t>(op.buffer), op.bytes),
                                "too many large messages are under way", "wait for some of them"));
    }
    id = static_cast<SegmentId>(id + 1 == kEndAnonymous ? kFirstAnonymous : id + 1);
  }
  next_anonymous_ = static_cast<SegmentId>(id + 1 == kEndAnonymous ? kFirstAnonymous : id + 1);
  auto segment = make_segment(op.buffer, op.bytes);
  if (!segment) return op.fail(std::move(segment).error());
  (*segment)->id = id;
  (*segment)->users = 1;  // the operation
  LocalSegment* const made = segment->get();
  segments_[id] = std::move(*segment);
  Undo erase([&] {
    std::erase(idle_anonymous_, id);
    erase_segment(id);
  });
  if (made->memory.buffer_id() != 0 && made->memory.kind() != MemoryKind::stand_in) {
    idle_anonymous_.push_back(id);
    if (idle_anonymous_.size() > kIdleAnonymous) {
      const auto old = std::ranges::find_if(idle_anonymous_, [&](SegmentId idle) { return segments_[idle]->users == 0; });
      if (old != idle_anonymous_.end()) retire(*segments_[*old]);
    }
  }
  erase.call_off();
  op.local = made;
  op.local_offset = 0;
}

void Engine::release(LocalSegment* segment) {
  if (segment == nullptr || segment->users == 0) return;
  if (--segment->users != 0) return;
  const SegmentId id = segment->id;
  if (segment->is_retiring) return drop_if_retired(*segment);
  if (id < kFirstAnonymous || id >= kEndAnonymous) return;
  const bool is_kept = std::find(idle_anonymous_.begin(), idle_anonymous_.end(), id) != idle_anonymous_.end();
  if (!is_kept) retire(*segment);
}

void Engine::retire(LocalSegment& segment) {
  segment.is_retiring = true;
  segment.is_enabled = false;
  std::erase(idle_anonymous_, segment.id);
  revoke(segment);
  drop_if_retired(segment);
}

void Engine::drop_if_retired(const LocalSegment& segment) {
  if (segment.is_retiring && segment.users == 0 && segment.known_by.empty()) erase_segment(segment.id);
}

void Engine::forget_knower(SegmentId id, Rank rank) {
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  take_back_key(*found->second, rank);
  drop_if_retired(*found->second);
}

void Engine::revoke(LocalSegment& segment) {
  const std::set<Rank> knowers = segment.known_by;
  for (const Rank rank : knowers) {
    const auto peer = peers_.find(rank);
    if (peer == peers_.end() || peer->second->state == Peer::State::lost) {
      take_back_key(segment, rank);
      continue;
    }
    (void)send_frame(*peer->second, kSegmentRevoke, ByteWriter().number(segment.id).number(segment.epoch).take());
  }
}

// --- Quiescing ------------------------------------------------------------------------------------------------------------------

Result<void> Engine::quiesce(Lock& lock, SegmentId id, const Timeout& timeout) {
  auto found = local_segment(id);
  if (!found) return std::move(found).error();
  LocalSegment& segment = **found;
  segment.is_enabled = false;
  revoke(segment);
  // Another thread may deregister it meanwhile: then it is quiet, and not there any more.
  const auto is_quiet = [&] { return find_segment(id) != &segment || (segment.known_by.empty() && segment.users == 0); };
  if (progress_until(lock, timeout, is_quiet)) return {};
  // Who keeps a write or a read of its own under way is cut off, and so is who does not answer: without its links nothing of it can
  // land. Copies of another process of this host, which has not given its key back, go on without them.
  const auto is_local = [](const Peer& peer) {
    return peer.transport != nullptr && peer.transport->kind() == TransportKind::local;
  };
  std::string local_ranks;
  for (auto& [rank, peer] : peers_) {
    const bool is_silent = segment.known_by.contains(rank);
    if (is_silent && is_local(*peer)) {
      local_ranks += text(local_ranks.empty() ? "" : ", ", rank);
      continue;
    }
    const bool is_under_way = !peer->is_self && has_under_way_on(*peer, segment, Whose::of_peer);
    if (!is_under_way && !is_silent) continue;
    const std::string cause = is_under_way ? text("a write or a read of it on ", segment_text(id), " did not end in time")
                                           : text("it did not answer in time that it has left ", segment_text(id));
    retire(*peer, make_error(Status::peer_lost, "quiesce", text("rank ", rank), cause + "; its connection was cut", {}));
  }
  // Copies of a lost one, which nothing can stop, end soon.
  const auto is_of_lost = [&] {
    return std::ranges::any_of(peers_, [&](const auto& entry) {
      return entry.second->is_half_lost && has_under_way_on(*entry.second, segment, Whose::of_both);
    });
  };
  if (progress_until(lock, Timeout::of(kLossTime), [&] { return is_quiet() || !is_of_lost(); }) && is_quiet()) return {};
  return make_error(Status::timed_out, "quiesce", segment_text(id),
                    local_ranks.empty() ? std::string("operations of this rank are under way on it")
                                        : text("these ranks of this host did not answer: ", local_ranks),
                    "call again, or end those ranks");
}

// Of the peer: its staged writes, and its reads, which end when it takes what it asked for.
bool Engine::has_under_way_on(const Peer& peer, const LocalSegment& segment, Whose whose) const {
  return std::ranges::any_of(peer.incoming, [&](const auto& entry) { return entry.second.segment == &segment; }) ||
         std::ranges::any_of(op_store_, [&](const Op& op) {
           return op.id != 0 && !op.is_over && (op.is_answer || whose == Whose::of_both) && op.peer == &peer &&
                  op.local == &segment;
         });
}

Result<void> Engine::enable(SegmentId id) {
  auto found = local_segment(id);
  if (!found) return std::move(found).error();
  // Those who know it go on, and leave it when the epoch is revoked that they know.
  if ((*found)->is_enabled) return {};
  // Keys that were given out before do not fit any more.
  (*found)->epoch = ++last_epoch_;
  (*found)->is_enabled = true;
  return {};
}

Result<void> Engine::deregister(Lock& lock, SegmentId id, const Timeout& timeout) {
  const LocalSegment* const segment = find_segment(id);
  if (Result<void> quiet = quiesce(lock, id, timeout); !quiet) return quiet;
  if (find_segment(id) == segment) erase_segment(id);
  return {};
}

// --- The owner's side -----------------------------------------------------------------------------------------------------------

// What the peer has to know of it; the descriptors go beside the bytes.
std::vector<Descriptor> Engine::describe_segment(const Peer& peer, const LocalSegment& segment, ByteWriter& writer) {
  const auto kind = peer.transport != nullptr ? static_cast<std::size_t>(peer.transport->kind()) : 0;
  std::vector<Descriptor> descriptors;
  const auto write_key = [&](const transport::Region* region, const std::string& why_not) {
    Result<transport::Parcel> key = make_error(Status::not_supported, "key", "segment", why_not);
    if (region != nullptr) key = region->key(peer.identity);
    if (key) std::ranges::move(key->descriptors, std::back_inserter(descriptors));
    writer.number(static_cast<std::uint8_t>(key.is_ok())).number(static_cast<std::uint8_t>(key ? key->descriptors.size() : 0));
    writer.string(key ? key->bytes : key.error().record().cause);
  };
  writer.number(segment.epoch).number(std::uint64_t{segment.memory.bytes()});
  writer.number(static_cast<std::uint8_t>(segment.memory.kind())).number(static_cast<std::uint8_t>(segment.memory.is_device()));
  write_key(segment.regions[kind].get(), segment.why_not[kind]);
  // Of buffers there are none. They are registered for the first peer that asks, and pinned, where adapters write them.
  Notifications* const notifications = segment.notifications.get();
  if (notifications == nullptr || !settings_.notification_words || peer.transport == nullptr) {
    write_key(nullptr, notifications == nullptr ? std::string() : text("at the peer ", kWordsAreOff));
    return descriptors;
  }
  notifications->register_with(*peer.transport);
  write_key(notifications->regions[kind].get(), notifications->why_not[kind]);
  return descriptors;
}

void Engine::on_segment_ask(Peer& peer, const Frame& frame) {
  ByteReader reader(frame.body);
  const auto id = reader.number<SegmentId>();
  if (!reader.is_done()) return accuse(peer, "its question for a segment is malformed");
  Result<void> staging;
  if (id == kStagingSegment) staging = make_staging(peer, peer.staging_in);
  LocalSegment* const segment = segment_by_id(peer, id);
  std::string why = !staging               ? staging.record().cause
                    : segment == nullptr   ? "it is not registered there"
                    : !segment->is_enabled ? "it is quiesced or being deregistered"
                                           : "";
  ByteWriter writer;
  writer.number(id);
  FrameType type = kSegmentAbsent;
  std::vector<Descriptor> descriptors;
  if (!why.empty() || segment == nullptr) {
    writer.number(static_cast<std::uint8_t>(segment == nullptr ? Status::out_of_range : Status::unavailable)).string(why);
  } else {
    type = kSegmentKey;
    segment->known_by.insert(peer.rank);
    descriptors = describe_segment(peer, *segment, writer);
  }
  (void)send_frame(peer, type, writer.take(), std::move(descriptors));
}

// --- The user's side ------------------------------------------------------------------------------------------------------------

RemoteState& Engine::ask_segment(Peer& peer, SegmentId id) {
  auto known = peer.segments.find(id);
  if (known != peer.segments.end() && known->second->know != RemoteState::Know::absent) return *known->second;
  if (known == peer.segments.end()) {
    auto unknown = std::make_unique<RemoteState>();
    unknown->know = RemoteState::Know::absent;
    known = peer.segments.emplace(id, std::move(unknown)).first;
  }
  RemoteState& state = *known->second;
  state.id = id;
  state.know = RemoteState::Know::asked;
  try {
    (void)send_frame(peer, kSegmentAsk, ByteWriter().number(id).take());
  } catch (const std::bad_alloc&) {
    state.know = RemoteState::Know::absent;  // it is asked for anew
    throw;
  }
  return state;
}

Result<RemoteState*> Engine::remote_segment(Lock& lock, Peer& peer, SegmentId id, const Timeout& timeout) {
  if (peer.recent_segment != nullptr && peer.recent_segment->id == id) return peer.recent_segment;
  const Uncancelled uncancelled;
  const AwaitedPeer awaited(peer);
  RemoteState& asked = ask_segment(peer, id);
  const auto is_over = [&] {
    if (peer.state != Peer::State::ready || awaited.is_lost()) return true;
    const auto now = peer.segments.find(id);
    // A key that was revoked while the question was under way is asked for anew.
    if (now == peer.segments.end()) {
      ask_segment(peer, id);
      return false;
    }
    return now->second->know != RemoteState::Know::asked;
  };
  if (asked.know == RemoteState::Know::asked && !progress_until(lock, timeout, is_over)) {
    return make_error(Status::timed_out, "segment", text(segment_text(id), " of rank ", peer.rank), "the rank has not answered",
                      "call again");
  }
  if (awaited.is_lost()) return awaited.why("segment");
  RemoteState& remote = *peer.segments[id];
  if (remote.know == RemoteState::Know::absent) {
    return make_error(remote.absence, "segment", text(segment_text(id), " of rank ", peer.rank), remote.why_not,
                      "register it at that rank before others use it");
  }
  return peer.recent_segment = &remote;
}

void Engine::on_segment_key(Peer& peer, Frame& frame) {
  ByteReader reader(frame.body);
  const auto id = reader.number<SegmentId>();
  const auto found = peer.segments.find(id);
  const bool is_asked = found != peer.segments.end() && found->second->know == RemoteState::Know::asked;
  if (!is_asked || !learn_segment(peer, *found->second, reader, std::move(frame.descriptors), frame.lacks_descriptors))
    return accuse(peer, "its key of a segment is malformed");
  list_busy(peer);
}

// The other end of describe_segment(). False: malformed, or of a segment that operations use: its memory stays what it is.
bool Engine::learn_segment(Peer& peer, RemoteState& remote, ByteReader& reader, std::vector<Descriptor> descriptors,
                           bool lacks_descriptors) {
  const auto epoch = reader.number<std::uint16_t>();
  const auto bytes = reader.number<std::uint64_t>();
  const auto kind = reader.number<std::uint8_t>();
  const auto is_device = reader.number<std::uint8_t>();
  struct {
    std::uint8_t is_there, descriptor_count;
    std::string_view bytes;
  } keys[2];
  std::size_t descriptor_count = 0;
  for (auto& key : keys) {
    key.is_there = reader.number<std::uint8_t>();
    descriptor_count += key.descriptor_count = reader.number<std::uint8_t>();
    key.bytes = reader.string(transport::kMaxParcelBytes);
  }
  if (!reader.is_done() || (descriptor_count != descriptors.size() && !lacks_descriptors) ||
      kind > static_cast<std::uint8_t>(MemoryKind::stand_in) || remote.users != 0)
    return false;
  remote.epoch = epoch;
  remote.bytes = bytes;
  remote.kind = static_cast<MemoryKind>(kind);
  remote.is_device = is_device != 0;
  auto descriptor = std::make_move_iterator(descriptors.begin());
  const auto open = [&](const auto& key,
                        std::uint64_t needed_bytes) -> std::pair<std::unique_ptr<transport::RemoteRegion>, std::string> {
    if (key.descriptor_count != 0 && lacks_descriptors) return {nullptr, "this process had no room for its descriptor (ulimit -n)"};
    transport::Parcel parcel{std::string(key.bytes), {descriptor, descriptor + key.descriptor_count}};
    descriptor += key.descriptor_count;
    if (key.is_there == 0)
      return {nullptr, key.bytes.empty() ? "the peer has no key for it, and gives no reason" : shown(key.bytes, kMaxSaidBytes)};
    if (peer.transport == nullptr) return {};
    auto region = peer.transport->open_region(peer.identity, std::move(parcel));
    if (!region) return {nullptr, region.error().record().cause};
    if ((*region)->bytes() < needed_bytes) return {nullptr, "its key is for less than its bytes"};
    return {std::move(*region), std::string()};
  };
  std::tie(remote.region, remote.why_not) = open(keys[0], bytes);
  std::tie(remote.words, remote.why_no_words) = open(keys[1], transport::bytes_of_words(1));
  remote.ways = {};
  remote.know = RemoteState::Know::known;
  return true;
}

void Engine::on_segment_absent(Peer& peer, const Frame& frame) {
  ByteReader reader(frame.body);
  const auto id = reader.number<SegmentId>();
  const auto status = reader.number<std::uint8_t>();
  const std::string_view why = reader.string(kMaxSaidBytes);
  const auto found = peer.segments.find(id);
  if (!reader.is_done() || found == peer.segments.end()) return;
  if (found->second->know != RemoteState::Know::asked) return;  // what writes may use stays as it is
  peer.recent_segment = nullptr;
  found->second->know = RemoteState::Know::absent;
  found->second->absence = status == static_cast<std::uint8_t>(Status::unavailable) ? Status::unavailable : Status::out_of_range;
  found->second->why_not = shown(why, kMaxSaidBytes);
  list_busy(peer);
}

void Engine::on_segment_revoke(Peer& peer, const Frame& frame) {
  ByteReader reader(frame.body);
  const auto id = reader.number<SegmentId>();
  const auto epoch = reader.number<std::uint16_t>();
  if (!reader.is_done()) return;
  // Asked again: it is answered when nothing uses it any more.
  const auto is_it = [&](const auto& remote) { return remote->id == id && remote->epoch == epoch; };
  if (std::any_of(peer.revoked.begin(), peer.revoked.end(), is_it)) return;
  const auto found = peer.segments.find(id);
  if (found == peer.segments.end() || found->second->epoch != epoch || found->second->know != RemoteState::Know::known) {
    // Nothing is known of it any more; the owner still waits for the answer.
    return say(peer, {.type = MessageType::revoked, .segment = id, .epoch = epoch});
  }
  close_targets(peer);
  list_busy(peer);
  peer.revoked.push_back(nullptr);  // there is room for it
  peer.revoked.back() = std::move(found->second);
  peer.segments.erase(found);
  peer.recent_segment = nullptr;
}

void Engine::release(Peer& peer, RemoteState* remote) {
  if (remote == nullptr || remote->users == 0) return;
  if (remote->users == 1 && !peer.revoked.empty()) list_busy(peer);  // it may be one of those
  --remote->users;
}

}  // namespace gigabar::fabric
