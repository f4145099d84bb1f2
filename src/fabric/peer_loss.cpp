// SPDX-License-Identifier: Apache-2.0
// How a peer is lost: what is under way with it ends with the reason, and its links are destroyed outside of their transport's
// poll.
#include <algorithm>
#include <new>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

// To a caller timed_out means that the same call may succeed. Of a connection that did not stand in its time none does before
// forget().
Error final_error(const Error& said) {
  Error error = said;
  if (error.status() != Status::timed_out) return error;
  ErrorRecord& record = edit(error);
  record.remedy += "; connect anew with forget() and connect()";
  record.status = Status::peer_lost;
  return error;
}

}  // namespace

void Engine::fail(Peer& peer, Error error) { failures_.emplace_back(&peer, std::move(error)); }

void Engine::accuse(Peer& peer, std::string cause, const char* operation) {
  fail(peer, make_error(Status::peer_lost, operation, rank_text(peer.rank), std::move(cause), {}));
}

void Engine::drop_links(Peer& peer) {
  close_targets(peer);
  peer.failed_candidate.reset();
  for (Rail& rail : peer.rails) {
    rail.link->owner = nullptr;
    retired_links_.push_back(std::move(rail.link));
  }
  peer.rails.clear();
  if (peer.self_end) {
    peer.self_end->owner = nullptr;
    retired_links_.push_back(std::move(peer.self_end));
  }
}

// At once, and without memory: nobody polls any more, so no link is ended from inside itself.
void Engine::end_links(Peer& peer) noexcept {
  close_targets(peer);
  for (const Rail& rail : peer.rails) rail.link->owner = nullptr;
  if (peer.self_end) peer.self_end->owner = nullptr;
  peer.rails.clear();
  peer.self_end.reset();
}

void Engine::starve_all() noexcept {
  for (auto& [rank, peer] : peers_) {
    if (peer->state != Peer::State::idle && peer->state != Peer::State::lost) starve(*peer);
  }
}

void Engine::retire_starved() {
  for (auto& [rank, peer] : peers_) {
    if (!peer->is_starved) continue;
    retire(*peer, make_error(Status::peer_lost, "fabric", rank_text(rank),
                             "this process had no memory left for what was sent between them",
                             "free memory, then connect anew with forget() and connect()"));
    peer->is_starved = false;
  }
  has_starved_ = false;
}

// May be left for want of memory, and is then begun again.
void Engine::retire(Peer& peer, const Error& said) {
  if (peer.state == Peer::State::lost && !peer.is_half_lost) return;
  const Error error = final_error(said);
  log(LogLevel::info, text("fabric: ", rank_text(peer.rank), " is lost: ", error.message()));
  if (!std::exchange(peer.is_half_lost, true)) {
    peer.state = Peer::State::lost;
    peer.why = error;
    ++lost_count_;
  }
  if (!peer.is_self) wireup_->disconnect(peer.rank);
  std::erase(connecting_, &peer);
  // Links first: after them nothing touches the memory of operations.
  drop_links(peer);
  retired_links_.clear();
  settle_copies(peer);
  std::erase_if(in_copies_, [&](const InCopy& copy) { return copy.peer == &peer; });
  for (auto& [number, incoming] : peer.incoming) release(incoming.segment);
  peer.incoming.clear();
  peer.staged_under_way.clear();
  for (OutSlot& slot : peer.out_slots) slot = {};
  for (Op& op : op_store_) {
    if (op.peer != &peer || op.id == 0 || op.is_over) continue;
    if (op.kind == OpKind::receive && op.from == kAnyRank && !op.is_matched) continue;
    op.outstanding = 0;
    op.finish.reset();
    fail(op, error);
    op.is_posted = true;
    end(op);
  }
  peer.pending.clear();
  peer.by_id.clear();
  peer.outbox.clear();
  peer.held.clear();
  peer.stalled.clear();
  peer.held_bytes = 0;
  peer.marks.clear();
  peer.recent_segment = nullptr;
  for (auto& [place, mapped] : mapped_segments_) {
    if (place.rank == peer.rank) mapped.remote = nullptr;
  }
  peer.segments.clear();
  peer.revoked.clear();
  peer.staging_in.reset();
  peer.staging_out.reset();
  std::erase_if(unexpected_, [&](const Unexpected& message) { return message.peer == &peer && message.request.has_value(); });
  peer.unexpected_request_count = 0;
  for (auto& [request, answer] : atomics_) {
    if (answer.asked.remote.rank == peer.rank && !answer.is_done) {
      answer.is_done = true;
      answer.status = Status::peer_lost;
    }
  }
  std::vector<SegmentId> known;
  for (const auto& [id, segment] : segments_) known.push_back(id);
  for (const SegmentId id : known) forget_knower(id, peer.rank);
  peer.is_half_lost = false;
  ++changes_;
}

Result<void> Engine::forget(Rank rank) {
  if (auto named = find_peer(rank); !named) return std::move(named).error();
  const auto found = peers_.find(rank);
  if (found == peers_.end() || found->second->state == Peer::State::idle) return {};
  Peer& peer = *found->second;
  if (peer.state != Peer::State::lost) {
    return make_error(Status::busy, "forget", rank_text(rank), "its connection stands or is being made",
                      "only a lost peer can be forgotten");
  }
  const bool is_self = peer.is_self;
  // Operations that point to it are over; those not waited for keep only its rank.
  Peer fresh;
  fresh.rank = rank;
  fresh.generation = peer.generation + 1;
  fresh.is_self = is_self;
  fresh.identity.rank = rank;
  fresh.is_listed = peer.is_listed;
  fresh.collective_part_count = peer.collective_part_count;
  peer = std::move(fresh);
  return {};
}

void Engine::farewell() {
  for (auto& [rank, peer] : peers_) {
    if (peer->is_self || !peer->has_greeted || peer->state == Peer::State::lost) continue;
    (void)send_frame(*peer, kFarewell, {});
    wireup_->disconnect(rank);
  }
  // A job that these ranks open next finds a directory of its own.
  connecting_.clear();
  directory_.reset();
  is_open_ = false;
  // Threads that wait wait for nobody any more.
  ++changes_;
  changed_.notify_all();
  wake_sleeper();
  for (auto& [rank, peer] : peers_) close_targets(*peer);
}

}  // namespace gigabar::fabric
