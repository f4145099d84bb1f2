// SPDX-License-Identifier: Apache-2.0
// Writes through pinned memory: the writer's chunks go out of its memory, over the wire and into the target's memory at the same
// time.
//
//   writer                                  target
//   stage_open   ------------------------>  finds the segment, grants free slots of its staging memory
//   copy to own staging (GPU: copy engine)  <-- stage_grant
//   link write to the slot, stage_chunk ->  copies the slot to its place (GPU: copy engine), grants it again
//
// Where the link itself reaches from the source to the target's staging memory, the copy in between is left out. Where it reaches
// from the writer's staging memory to the place itself, the target has nothing to do: there is nothing to grant, and stage_end
// follows the last chunk. Each peer has staging memory of its own, so that one that stops holds up nobody else.
#include <algorithm>
#include <span>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/rounding.hpp"
#include "base/shown.hpp"
#include "fabric/engine.hpp"
#include "memory/host_pages.hpp"
#include "memory/runtime.hpp"

namespace gigabar::fabric {
namespace {

using transport::Direction;
using transport::Posted;

constexpr std::uint32_t kMaxSlotBytes = ~std::uint32_t{0};  // where the peer's slots set no limit
constexpr std::uint64_t kMinChunks = 4;                     // of a write: its copies and its way over the wire overlap
constexpr std::uint64_t kPartAlignment = 4096;
constexpr std::uint64_t kWholeBytes = 737280;  // and less is not cut for that

struct StagingMemory : InPlace {
  explicit StagingMemory(PageMapping mapping) noexcept : pages(std::move(mapping)) {}
  ~StagingMemory() {
    if (pinned_by == nullptr) return;
    quietly([&] {
      if (const Result<void> unpinned = pinned_by->unpin_host(pages.address(), pages.bytes()); !unpinned)
        log(LogLevel::info, unpinned.message());
    });
  }

  // Unpinned memory works too, slower: the driver copies through its own.
  void pin() {
    auto runtime = active_runtime();
    if (!runtime || *runtime == &stand_in_runtime()) return;
    const Result<void> pinned = (*runtime)->pin_host(pages.address(), pages.bytes());
    if (pinned) pinned_by = *runtime;
    if (!pinned) log(LogLevel::info, pinned.message());
  }

  PageMapping pages;
  Runtime* pinned_by = nullptr;
};

// At most so many bytes of a write at once.
std::uint64_t chunk_bytes_of(const Op& op, const Limits& limits) noexcept {
  const std::uint64_t part = round_up(op.bytes / kMinChunks, kPartAlignment);
  return std::min({op.chunk_bytes, limits.chunk_bytes, std::max(part, kWholeBytes)});
}

// Into host memory, or through the mapping of a GPU; whoever requires staging has both ends of it.
bool is_placed_by_link(const Op& op) {
  const Peer& peer = *op.peer;
  const transport::Region* const own = peer.staging_out->region(peer.transport->kind());
  if (own == nullptr || !op.remote->region || op.policy.staged == Preference::require) return false;
  const transport::Reach reach = peer.rails.front().link->reach(Direction::write, *own, *op.remote->region);
  return reach.can &&
         (reach.path == TransferPath::host || (reach.path == TransferPath::bar && op.policy.bar != Preference::forbid));
}

}  // namespace

// From or to `memory`, of which the address is the one or the other.
Result<StagingCopy> Engine::copy_staged(const LocalMemory& memory, bool is_out, void* destination, const void* source,
                                        std::size_t bytes) {
  const int device = memory.is_plain() ? -1 : memory.device();
  std::unique_ptr<CopyStream>& stream = copy_streams_[{device, is_out}];
  if (!stream) {
    auto opened = CopyStream::open(device);
    if (!opened) return std::move(opened).error();
    stream = std::move(*opened);
  }
  const auto ticket = stream->post(is_out ? CopyWay::from_device : CopyWay::to_device, destination, source, bytes);
  if (!ticket) return ticket.error();
  return StagingCopy{stream.get(), *ticket};
}

// --- Staging memory -------------------------------------------------------------------------------------------------------------

// Shared pages, so that a peer on this host writes to them itself; locked for CUDA, so that copies go on by themselves; whole huge
// pages, from which the kernel copies faster.
Result<void> Engine::make_staging(Peer& peer, std::unique_ptr<LocalSegment>& staging) {
  if (staging) return {};
  const std::size_t slots_bytes = limits(peer).chunk_bytes * limits(peer).chunk_count;
  const std::size_t bytes = slots_bytes < kHugePageBytes ? slots_bytes : whole_huge_pages(slots_bytes);
  auto file = make_memory_file("gigabar-staging", bytes);
  if (!file) {
    edit(file.error()).object = text(bytes, " bytes of staging for rank ", peer.rank);
    edit(file.error()).remedy = "lower GIGABAR_CHUNK or GIGABAR_CHUNKS, or raise the limits of this process";
    return std::move(file).error();
  }
  auto mapped = PageMapping::make(bytes, placement_.numa_node, NodePolicy::prefer, (*file)->get());
  if (!mapped) return std::move(mapped).error();
  auto memory = std::make_shared<StagingMemory>(std::move(*mapped));
  memory->pin();
  auto segment = make_segment(memory->pages.address(), bytes, {std::move(*file), 0});
  if (!segment) return std::move(segment).error();
  (*segment)->owner = std::move(memory);
  (*segment)->id = kStagingSegment;
  staging = std::move(*segment);
  return {};
}

// --- The writer -----------------------------------------------------------------------------------------------------------------

bool Engine::post_staged(Op& op) {
  if (op.staged_number != 0) return true;  // here again because what comes behind it found the link full
  Peer& peer = *op.peer;
  if (const Result<void> made = make_staging(peer, peer.staging_out); !made) {
    log(LogLevel::info, made.message());
    return post_message_op(op);  // in messages, which always go
  }
  if (peer.out_slots.empty()) peer.out_slots.resize(limits(peer).chunk_count);
  if (is_placed_by_link(op)) {
    op.is_placed_by_link = true;
    if (!say_opened(op, 0)) return false;
    fill_slots(op);
    return true;
  }
  RemoteState& staging = ask_segment(peer, kStagingSegment);
  if (staging.know == RemoteState::Know::asked) return false;
  if (staging.know == RemoteState::Know::absent || !staging.region) return post_message_op(op);
  const auto is_reached_from = [&](const LocalSegment& source) {
    const transport::Region* const region = source.region(peer.transport->kind());
    return region != nullptr && peer.rails.front().link->reach(Direction::write, *region, *staging.region).can;
  };
  op.is_straight = is_reached_from(*op.local);
  if (!op.is_straight && !is_reached_from(*peer.staging_out)) return post_message_op(op);
  return say_opened(op, chunk_bytes_of(op, limits(peer)));
}

bool Engine::say_opened(Op& op, std::uint64_t chunk_bytes) {
  Peer& peer = *op.peer;
  const Message open{.type = MessageType::stage_open,
                     .segment = op.remote_id,
                     .queue = op.queue,
                     .epoch = op.remote->epoch,
                     .a = op.id,
                     .b = op.remote_offset,
                     .c = op.bytes};
  const std::string payload = ByteWriter().number(static_cast<std::uint32_t>(chunk_bytes)).number(peer.staged_opened + 1).take();
  if (!seal(peer) || !say_first(peer, open, std::as_bytes(std::span(payload)))) return false;
  op.staged_number = ++peer.staged_opened;
  ++statistics_.staged_operations;
  peer.by_id[op.id] = &op;
  staging_ops_.push_back(&op);
  return true;
}

void Engine::on_stage_grant(Peer& peer, const Message& message) {
  const auto found = peer.by_id.find(message.a);
  if (found == peer.by_id.end()) return;  // it failed here
  Op& op = *found->second;
  if (op.kind != OpKind::write || op.is_placed_by_link || op.grants.size() >= 64 || message.c < 1 ||
      message.c > (std::uint64_t{1} << 30))
    return accuse(peer, "its grant of staging memory makes no sense");
  op.grants.emplace_back(message.b, static_cast<std::uint32_t>(message.c));
  fill_slots(op);
}

// Starts a chunk for each grant for which there is a slot; where none is needed, for each slot. False: there was no slot.
bool Engine::fill_slots(Op& op) {
  Peer& peer = *op.peer;
  const LocalMemory& memory = op.local->memory;
  const std::uint64_t most_bytes = chunk_bytes_of(op, limits(peer));
  while ((op.is_placed_by_link || !op.grants.empty()) && op.next < op.bytes) {
    const auto free =
        std::find_if(peer.out_slots.begin(), peer.out_slots.end(), [](const OutSlot& slot) { return slot.op == nullptr; });
    if (free == peer.out_slots.end()) return false;
    OutSlot& slot = *free;
    const auto [target_offset, slot_bytes] =
        op.is_placed_by_link ? std::pair(op.remote_offset + op.next, kMaxSlotBytes) : op.grants.front();
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>({op.bytes - op.next, most_bytes, slot_bytes}));
    slot = {};
    if (op.is_straight) {
      slot.source = op.local->region(peer.transport->kind());
      slot.local_offset = op.local_offset + op.next;
    } else {
      slot.source = peer.staging_out->region(peer.transport->kind());
      slot.local_offset = static_cast<std::uint64_t>(&slot - peer.out_slots.data()) * limits(peer).chunk_bytes;
      auto copy = copy_staged(memory, true, peer.staging_out->memory.address() + slot.local_offset,
                              memory.address() + op.local_offset + op.next, bytes);
      if (!copy) {
        // The target waits for bytes that will not come: only a new connection helps.
        fail(peer, std::move(copy).error());
        return true;
      }
      slot.copy = *copy;
    }
    if (!op.is_placed_by_link) op.grants.erase(op.grants.begin());
    slot.op = &op;
    slot.target_offset = target_offset;
    slot.segment_offset = op.next;
    slot.bytes = bytes;
    op.next += bytes;
    ++op.outstanding;
    ++op.chunks;
    if (op.is_straight || memory.is_plain()) out_copy_done(op, slot);
  }
  return true;
}

// The chunk is in staging memory: it goes over the wire, and the word of it behind it. Tried again by poll_copies() when the link
// is full.
void Engine::out_copy_done(Op& op, OutSlot& slot) {
  Peer& peer = *op.peer;
  const transport::RemoteRegion* target = op.is_placed_by_link ? op.remote->region.get() : nullptr;
  if (const auto found = peer.segments.find(kStagingSegment); !op.is_placed_by_link && found != peer.segments.end()) {
    target = found->second->region.get();
  }
  if (target == nullptr || peer.rails.empty() || !flush_outbox(peer)) return;
  close_targets(peer);
  const auto cookie = reinterpret_cast<std::uint64_t>(&slot) | 1;
  if (peer.rails.front().link->post_write(*slot.source, slot.local_offset, *target, slot.target_offset, slot.bytes, cookie) !=
      Posted::ok) {
    ++op.retries;
    return;
  }
  slot.is_written = true;
  op.rail_bytes[0] += slot.bytes;
  op.staged_sent += slot.bytes;
  if (op.is_placed_by_link) {
    if (op.staged_sent >= op.bytes) say(peer, {.type = MessageType::stage_end, .c = op.staged_number});
    return;
  }
  const std::uint64_t where = Message::pair(static_cast<std::uint32_t>(slot.target_offset), slot.bytes);
  say(peer, {.type = MessageType::stage_chunk, .a = op.id, .b = where, .c = slot.segment_offset});
}

void Engine::on_stage_abort(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  const auto found = peer.by_id.find(message.a);
  if (found == peer.by_id.end()) return;
  Op& op = *found->second;
  if (op.kind != OpKind::write || op.staged_sent != 0 || op.next != 0) return;  // granted already: it goes on
  const std::string why = shown(text_of(payload), kMaxSaidBytes);
  op.fail(make_error(Status::unavailable, "write", text("segment ", op.remote_id, " of rank ", peer.rank), why,
                     "the segment was quiesced or deregistered"));
  end_if_over(op);
}

// --- The target -----------------------------------------------------------------------------------------------------------------

void Engine::on_stage_open(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  ByteReader reader(text_of(payload));
  const auto chunk_bytes = reader.number<std::uint32_t>();
  const auto sequence = reader.number<std::uint64_t>();
  const bool is_placed_by_link = chunk_bytes == 0;
  if (!reader.is_done() || sequence != peer.staged_seen + 1 ||
      (!is_placed_by_link && (peer.incoming.contains(message.a) || !peer.staging_in)))
    return accuse(peer, "its staged write is malformed");
  if (peer.staged_under_way.size() >= kMaxStaged) return overrun(peer, "staged writes");
  peer.staged_seen = sequence;
  if (is_placed_by_link) {
    peer.staged_under_way.insert(sequence);
    return;
  }
  LocalSegment* const segment = segment_by_id(peer, message.segment);
  const bool is_good = is_usable(segment, message, message.b, message.c) && segment != peer.staging_in.get() && message.c != 0;
  if (!is_good) {
    static constexpr std::string_view kWhy = "the segment is not there, is quiesced, or is shorter";
    say(peer, {.type = MessageType::stage_abort, .a = message.a}, std::as_bytes(std::span(kWhy)));
    return release_held(peer);
  }
  if (peer.in_slots.empty()) peer.in_slots.resize(limits(peer).chunk_count, false);
  const IncomingStaged incoming{
      .sequence = sequence,
      .segment = segment,
      .offset = message.b,
      .bytes = message.c,
      .chunk_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_bytes, limits(peer).chunk_bytes))};
  peer.staged_under_way.insert(sequence);
  peer.incoming.emplace(message.a, incoming);
  ++segment->users;  // given back by whoever erases it
  grant(peer);
}

// The link has placed everything that came before this.
void Engine::on_stage_end(Peer& peer, const Message& message) {
  if (peer.staged_under_way.erase(message.c) == 0) return accuse(peer, "it ended a staged write that it did not begin");
  release_held(peer);
}

// Free slots go to the oldest writes first.
void Engine::grant(Peer& peer) {
  for (auto& [number, incoming] : peer.incoming) {
    while (incoming.granted < incoming.bytes) {
      const auto free = std::find(peer.in_slots.begin(), peer.in_slots.end(), false);
      if (free == peer.in_slots.end()) return;
      *free = true;
      incoming.granted += incoming.chunk_bytes;
      const std::uint64_t offset = static_cast<std::uint64_t>(free - peer.in_slots.begin()) * limits(peer).chunk_bytes;
      say(peer, {.type = MessageType::stage_grant, .a = number, .b = offset, .c = incoming.chunk_bytes});
    }
  }
}

void Engine::on_stage_chunk(Peer& peer, const Message& message) {
  const auto found = peer.incoming.find(message.a);
  const std::uint64_t slot_offset = message.low_b();
  const std::uint64_t slot = slot_offset / limits(peer).chunk_bytes;
  const std::uint64_t bytes = message.high_b();
  const bool is_good = found != peer.incoming.end() && slot_offset % limits(peer).chunk_bytes == 0 && slot < peer.in_slots.size() &&
                       peer.in_slots[slot] && bytes != 0 && bytes <= found->second.chunk_bytes &&
                       fits(slot_offset, bytes, peer.staging_in->memory.bytes()) && fits(message.c, bytes, found->second.bytes) &&
                       bytes <= found->second.bytes - found->second.arrived;
  if (!is_good) return accuse(peer, "its chunk of a staged write makes no sense");
  // When all that it has announced is placed no copy is under way any more: the segment may go.
  IncomingStaged& incoming = found->second;
  incoming.arrived += bytes;
  const LocalMemory& memory = incoming.segment->memory;
  auto copy = copy_staged(memory, false, memory.address() + incoming.offset + message.c,
                          peer.staging_in->memory.address() + slot_offset, static_cast<std::size_t>(bytes));
  if (!copy) return fail(peer, std::move(copy).error());
  const InCopy chunk{&peer, message.a, slot_offset, static_cast<std::uint32_t>(bytes), *copy};
  if (memory.is_plain()) {
    in_chunk_placed(peer, chunk);
  } else {
    in_copies_.push_back(chunk);
  }
}

void Engine::in_chunk_placed(Peer& peer, const InCopy& copy) {
  const auto found = peer.incoming.find(copy.op);
  if (found == peer.incoming.end()) return;
  IncomingStaged& incoming = found->second;
  peer.in_slots[copy.slot_offset / limits(peer).chunk_bytes] = false;
  incoming.placed += copy.bytes;
  if (incoming.placed >= incoming.bytes) {
    LocalSegment* const segment = incoming.segment;
    peer.staged_under_way.erase(incoming.sequence);
    peer.incoming.erase(found);
    release(segment);
    release_held(peer);
  }
  grant(peer);
}

// --- Copies under way -----------------------------------------------------------------------------------------------------------

bool Engine::poll_copies() {
  bool has_changed = false;
  // Each stream is asked once in a row of copies: the driver takes about a microsecond for an answer.
  CopyStream* asked = nullptr;
  std::uint64_t done_up_to = 0;
  const auto is_done = [&](const StagingCopy& copy) -> Result<bool> {
    if (copy.stream == nullptr) return true;
    if (copy.stream != asked) {
      auto done = copy.stream->done();
      if (!done) return std::move(done).error();
      asked = copy.stream;
      done_up_to = *done;
    }
    return copy.ticket <= done_up_to;
  };
  for (std::size_t index = 0; index < in_copies_.size();) {
    const InCopy chunk = in_copies_[index];
    const bool is_wanted = chunk.peer->state != Peer::State::lost;
    auto done = is_wanted ? is_done(chunk.copy) : Result<bool>(false);
    if (!done) {
      fail(*chunk.peer, std::move(done).error());
      return true;
    }
    if (!*done) {
      ++index;
      continue;
    }
    in_copies_.erase(in_copies_.begin() + static_cast<std::ptrdiff_t>(index));
    in_chunk_placed(*chunk.peer, chunk);
    has_changed = true;
  }
  const std::vector<Op*> ops = staging_ops_;
  const Peer* full = nullptr;  // has no slot for a further chunk
  for (Op* op : ops) {
    if (op->id == 0 || op->local == nullptr || op->peer->state == Peer::State::lost) continue;
    Peer& peer = *op->peer;
    // Of many operations few have chunks under way.
    for (OutSlot& slot : op->outstanding != 0 ? std::span(peer.out_slots) : std::span<OutSlot>()) {
      if (slot.op != op || slot.is_written) continue;
      auto done = is_done(slot.copy);
      if (!done) {
        fail(peer, std::move(done).error());
        return true;
      }
      if (!*done) continue;
      out_copy_done(*op, slot);
      has_changed = has_changed || slot.is_written;
    }
    if (&peer == full) continue;
    const std::uint64_t before = op->next;
    if (!fill_slots(*op)) full = &peer;
    has_changed = has_changed || op->next != before;
  }
  return has_changed;
}

// Copies that only a look tells of, or chunks that the link had no room for. What waits for the peer or the link is told.
bool Engine::has_copies_under_way() const {
  const auto is_copying = [](const OutSlot& slot) { return slot.op != nullptr && !slot.is_written; };
  return !in_copies_.empty() ||
         std::ranges::any_of(staging_ops_, [&](const Op* op) { return std::ranges::any_of(op->peer->out_slots, is_copying); });
}

// Before a lost peer's staging memory goes: no copy may still read or write it.
bool Engine::is_staging_settled(const Peer& peer) const {
  const auto is_settled = [](const StagingCopy& copy) {
    const auto done_up_to = copy.stream != nullptr ? copy.stream->done() : Result<std::uint64_t>(copy.ticket);
    return !done_up_to || *done_up_to >= copy.ticket;
  };
  return std::ranges::all_of(in_copies_, [&](const InCopy& chunk) { return chunk.peer != &peer || is_settled(chunk.copy); }) &&
         std::ranges::all_of(peer.out_slots, [&](const OutSlot& slot) { return slot.is_written || is_settled(slot.copy); });
}

}  // namespace gigabar::fabric
