// SPDX-License-Identifier: Apache-2.0
// How a peer is lost: what is under way with it ends with the reason, and its links are destroyed outside of their transport's
// poll.
#include <algorithm>
#include <iterator>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::int64_t kSettleNs = 10'000'000'000;

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
  retired_links_.reserve(retired_links_.size() + peer.rails.size() + 1);
  const auto drop = [&](std::unique_ptr<transport::Link> link) {
    link->owner = nullptr;
    retired_links_.emplace_back(std::move(link), &peer);
  };
  for (Rail& rail : peer.rails) drop(std::move(rail.link));
  peer.rails.clear();
  peer.offered_rails = 0;
  peer.outbox.clear();  // answers to what came by them
  if (peer.self_end) drop(std::move(peer.self_end));
}

// Those of which nothing is under way any more. Not from inside a transport's poll.
void Engine::end_retired_links() {
  for (auto retired = retired_links_.begin(); retired != retired_links_.end();) {
    retired = retired->first->stop() ? retired_links_.erase(retired) : std::next(retired);
  }
}

void Engine::starve_all() noexcept {
  for (auto& [rank, peer] : peers_) {
    if (peer->state != Peer::State::idle && peer->state != Peer::State::lost) starve(*peer);
  }
}

// Those that are starved, and those that were not lost to the end.
void Engine::retire_ill() {
  for (auto& [rank, peer] : peers_) {
    if (peer->is_starved) {
      retire(*peer, make_error(Status::peer_lost, "fabric", rank_text(rank),
                               "this process had no memory left for what was sent between them",
                               "free memory, then connect anew with forget() and connect()"));
      peer->is_starved = false;
    } else if (peer->is_half_lost) {
      retire(*peer, *peer->why);
    }
  }
  const auto has = [&](bool Peer::* flag) {
    return std::ranges::any_of(peers_, [&](const auto& entry) { return (*entry.second).*flag; });
  };
  has_starved_ = has(&Peer::is_starved);  // by what was said meanwhile
  has_half_lost_ = has(&Peer::is_half_lost);
}

// Once: nothing more comes from a peer that is lost, and nobody asks it. Begun again where memory was wanting.
void Engine::cut_off(Peer& peer) {
  if (peer.is_cut_off) return;
  if (!peer.is_self) wireup_->disconnect(peer.rank);
  std::erase(connecting_, &peer);
  // Links first: after them, and copies from and to staging memory, nothing touches the memory of operations.
  drop_links(peer);
  std::erase_if(unexpected_, [&](const Unexpected& message) { return message.peer == &peer && message.request.has_value(); });
  peer.unexpected_request_count = 0;
  for (auto& [request, answer] : atomics_) {
    if (answer.asked.remote.rank == peer.rank && !answer.is_done) {
      answer.is_done = true;
      answer.status = Status::peer_lost;
    }
  }
  for (auto next = segments_.begin(); next != segments_.end();) forget_knower((next++)->first, peer.rank);  // which may erase it
  peer.is_cut_off = true;
}

// May be left for want of memory, and is then begun again. So it is while copies are under way on the memory of the peer's
// operations: until then those are not over.
void Engine::retire(Peer& peer, const Error& said) {
  if (peer.state == Peer::State::lost && !peer.is_half_lost) return;
  if (!peer.is_half_lost) {
    Error error = final_error(said);
    log(LogLevel::info, text("fabric: ", rank_text(peer.rank), " is lost: ", error.message()));
    peer.why = std::move(error);
    peer.state = Peer::State::lost;
    peer.settle_until_ns = now_ns() + kSettleNs;
    peer.is_half_lost = has_half_lost_ = true;
    ++lost_count_;
    ++changes_;
  }
  cut_off(peer);
  end_retired_links();
  if (std::ranges::any_of(retired_links_, [&](const auto& retired) { return retired.second == &peer; })) return;
  if (!is_staging_settled(peer) && now_ns() < peer.settle_until_ns) return;
  const Error error = *peer.why;
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
    op.fail(error);
    op.is_posted = true;
    end(op);
  }
  peer.pending.clear();
  peer.by_id.clear();
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
  peer.is_half_lost = false;
  ++changes_;
}

Result<void> Engine::forget(Lock& lock, Rank rank) {
  auto found = find_peer(rank);
  if (!found) return std::move(found).error();
  Peer& peer = **found;
  if (peer.state == Peer::State::idle) return {};
  if (peer.state != Peer::State::lost) {
    return make_error(Status::busy, "forget", rank_text(rank), "its connection stands or is being made",
                      "only a lost peer can be forgotten");
  }
  const AwaitedPeer awaited(peer);
  progress_until(lock, Timeout::of(kLossTime), [&] { return !peer.is_half_lost; });
  if (awaited.is_forgotten()) return {};
  if (peer.is_half_lost) {
    return make_error(Status::busy, "forget", rank_text(rank), "what was under way with it has not ended", "call again");
  }
  // Operations that point to it are over; those not waited for keep only its rank.
  Peer fresh;
  fresh.rank = rank;
  fresh.generation = peer.generation + 1;
  fresh.is_self = peer.is_self;
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
