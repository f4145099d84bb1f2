// SPDX-License-Identifier: Apache-2.0
// Which way an operation goes, and why not another.
#include <algorithm>
#include <array>
#include <limits>

#include "base/errors.hpp"
#include "fabric/engine.hpp"
#include "fabric/settings.hpp"

namespace gigabar::fabric {
namespace {

using transport::Direction;
using transport::Reach;

struct Candidate {
  Method method = Method::nothing;
  TransferPath path = TransferPath::none;
  bool is_possible = false;
  bool is_within_limits = false;
  std::string why;  // why it is taken, or why not
};

Preference preference_for(const PathPolicy& policy, TransferPath path) noexcept {
  switch (path) {
    case TransferPath::bar: return policy.bar;
    case TransferPath::p2p: return policy.p2p;
    case TransferPath::gdr: return policy.gdr;
    case TransferPath::staged: return policy.staged;
    case TransferPath::none:
    case TransferPath::host: break;
  }
  return Preference::allow;
}

std::optional<TransferPath> required_path(const PathPolicy& policy) noexcept {
  for (const TransferPath path : {TransferPath::bar, TransferPath::p2p, TransferPath::gdr, TransferPath::staged}) {
    if (preference_for(policy, path) == Preference::require) return path;
  }
  return std::nullopt;
}

// The candidate that the policy leaves and prefers; null: none.
const Candidate* pick(const std::array<Candidate, 3>& candidates, const PathPolicy& policy) {
  const auto required = required_path(policy);
  const auto is_allowed = [&](const Candidate& candidate) {
    if (!candidate.is_possible) return false;
    if (required && candidate.path != TransferPath::host) return candidate.path == *required;
    return preference_for(policy, candidate.path) != Preference::forbid;
  };
  for (const Candidate& candidate : candidates) {
    if (is_allowed(candidate) && preference_for(policy, candidate.path) >= Preference::prefer) return &candidate;
  }
  for (const bool must_fit : {true, false}) {
    for (const Candidate& candidate : candidates) {
      if (is_allowed(candidate) && (candidate.is_within_limits || !must_fit)) return &candidate;
    }
  }
  return nullptr;
}

}  // namespace

// How the peer will write when it answers a read: as this rank would decide in its place, with the same policy.
TransferPath Engine::path_of_answer(const Peer& peer, const LocalSegment& local, const RemoteState& remote, std::uint64_t bytes,
                                    std::uint64_t eager_bytes, const PathPolicy& policy) const {
  const bool has_device = local.memory.is_device() || remote.is_device;
  std::array<Candidate, 3> candidates;
  candidates[0] = {Method::message, has_device ? TransferPath::bar : TransferPath::host, true, bytes <= eager_bytes, {}};
  const transport::Region* const region = local.region(peer.transport->kind());
  if (region != nullptr && remote.region) {
    const Reach reach = peer.rails.front().link->reach(Direction::answer, *region, *remote.region);
    const std::uint64_t limit = std::min(limits(peer).gdr_bytes, limits(peer).gdr_read_bytes);
    candidates[1] = {Method::direct, reach.path, reach.can, reach.path != TransferPath::gdr || bytes <= limit, {}};
  }
  candidates[2] = {Method::staged, TransferPath::staged, true, true, {}};
  const Candidate* const taken = pick(candidates, policy);
  return taken == nullptr ? candidates[2].path : taken->path;
}

Result<const RemoteState::Decision*> Engine::choose(Peer& peer, Direction direction, const LocalSegment& local, RemoteState& remote,
                                                    std::uint64_t bytes, const PathPolicy& policy, bool needs_message) {
  std::uint64_t eager_bytes = std::min<std::uint64_t>(settings_.eager_bytes, peer.peer_eager_bytes);
  // Who writes loads the bytes: this rank, or the peer that answers a read.
  const bool is_device_load = direction == Direction::write ? local.memory.is_device() && !local.memory.is_plain()
                                                            : remote.is_device && remote.kind != MemoryKind::stand_in;
  if (is_device_load && peer.transport->kind() == TransportKind::local) {
    eager_bytes = std::min(eager_bytes, direction == Direction::write ? local.memory.mapped_load_bytes() : kMaxMappedLoadBytes);
  }
  const std::uint64_t gdr_bytes = direction == Direction::write ? limits(peer).gdr_bytes : limits(peer).gdr_read_bytes;
  const bool is_quick = bytes <= peer.rails.front().link->limits().quick_read_bytes;
  const bool is_one_copy = bytes <= peer.rails.front().link->limits().copied_write_bytes;
  const auto size_class = static_cast<std::uint8_t>((bytes <= eager_bytes ? 1 : 0) + (bytes <= gdr_bytes ? 2 : 0) +
                                                    (bytes <= limits(peer).gdr_bytes ? 4 : 0) + (needs_message ? 8 : 0) +
                                                    (is_quick ? 16 : 0) + (local.is_enabled ? 32 : 0) + (is_one_copy ? 64 : 0));
  for (const RemoteState::Decision& known : remote.decisions) {
    if (known.local == &local && known.local_epoch == local.epoch && known.direction == direction &&
        known.size_class == size_class && known.policy == policy)
      return &known;
  }
  const Uncancelled uncancelled;
  auto choice = decide(peer, direction, local, remote, bytes, eager_bytes, policy, needs_message);
  if (!choice) return std::move(choice).error();
  bool is_alone = false;
  if (needs_message && direction == Direction::write && (*choice)->method == Method::message) {
    const auto alone = decide(peer, direction, local, remote, bytes, eager_bytes, policy, false);
    is_alone = alone && is_one_sided((*alone)->method);
  }
  RemoteState::Decision& decision = remote.decisions[remote.next_decision++ % remote.decisions.size()];
  decision = {&local, local.epoch, direction, size_class, policy, *choice, is_alone};
  return &decision;
}

Result<const Choice*> Engine::decide(Peer& peer, Direction direction, const LocalSegment& local, const RemoteState& remote,
                                     std::uint64_t bytes, std::uint64_t eager_bytes, const PathPolicy& policy, bool needs_message) {
  const TransportKind kind = peer.transport->kind();
  const transport::Link& link = *peer.rails.front().link;
  const bool has_device = local.memory.is_device() || remote.is_device;

  const transport::Region* const region = local.region(kind);
  Reach reach;
  if (region == nullptr) {
    reach.reason = text("this rank's memory: ", local.why_not[static_cast<std::size_t>(kind)]);
  } else if (!remote.region) {
    reach.reason = text("the peer's memory: ", remote.why_not);
  } else {
    reach = link.reach(direction, *region, *remote.region);
  }

  const bool is_write = direction == Direction::write;
  // The peer answers a read with a write, which must not land in quiesced memory.
  const bool can_peer_answer = is_write || local.is_enabled;
  const TransferPath by_direct = reach.can ? reach.path : has_device ? TransferPath::gdr : TransferPath::host;
  const TransferPath by_staged = is_write ? TransferPath::staged : path_of_answer(peer, local, remote, bytes, eager_bytes, policy);
  // Without a notification that needs a message, a write needs nobody there.
  const bool may_be_alone = is_write && !needs_message && remote.region != nullptr;
  const bool may_be_stored = may_be_alone && has_device &&
                             bytes <= std::min<std::uint64_t>(eager_bytes, link.limits().copied_write_bytes) &&
                             preference_for(policy, TransferPath::bar) != Preference::forbid &&
                             required_path(policy).value_or(TransferPath::bar) == TransferPath::bar;
  const bool is_stored = may_be_stored && link.open_for_stores(*remote.region);
  const bool is_alone = may_be_alone && reach.can && reach.is_quick && reach.path == TransferPath::host;
  // A read that the peer answers takes its CPU; it is for those who ask for this path.
  std::array<Candidate, 3> candidates{{{is_stored  ? Method::store
                                        : is_write ? Method::message
                                                   : Method::get,
                                        has_device ? TransferPath::bar : TransferPath::host,
                                        can_peer_answer,
                                        false,
                                        {}},
                                       {Method::direct, by_direct, reach.can, false, {}},
                                       {is_write ? Method::staged : Method::get, by_staged, can_peer_answer, true, {}}}};
  auto& [message, direct, staged] = candidates;

  message.is_within_limits = is_write && bytes <= eager_bytes && !is_alone;
  message.why = !is_write                  ? "the peer can answer a read inside messages"
                : is_stored                ? "the CPU stores it into the peer's memory, which this process maps"
                : is_alone                 ? "the link writes it as fast, without the peer's CPU"
                : message.is_within_limits ? text("up to the eager limit of ", eager_bytes, " bytes it travels inside a message")
                                           : text("above the eager limit of ", eager_bytes, " bytes");

  const std::uint64_t limit = is_write ? limits(peer).gdr_bytes : limits(peer).gdr_read_bytes;
  const std::uint64_t quick_bytes = is_write ? std::numeric_limits<std::uint64_t>::max() : link.limits().quick_read_bytes;
  direct.is_within_limits = (direct.path != TransferPath::gdr || bytes <= limit) && bytes <= quick_bytes;
  direct.why = direct.is_within_limits || !reach.can ? reach.reason
               : bytes > quick_bytes ? text("above ", quick_bytes, " bytes the peer writes them sooner than this link reads")
                                     : text("above the GDR ", is_write ? "" : "read ", "limit of ", limit_text(limit), " bytes");

  staged.why = is_write ? "through pinned memory in chunks" : "the peer answers with a write of its own";
  if (!can_peer_answer) {
    message.why = staged.why = text("the peer would answer with a write, and segment ", local.id, " of this rank is quiesced");
  }

  considered_.clear();
  for (const Candidate& candidate : candidates) {
    considered_.push_back({text(name_of(kind), ": ", name_of(candidate.path)), candidate.why});
  }
  const Candidate* const taken = pick(candidates, policy);
  if (taken == nullptr) {
    const auto required = required_path(policy);
    std::string cause =
        required ? text("the path ", name_of(*required), " is required: ") : std::string("every path is forbidden or impossible: ");
    std::string list;
    for (const Candidate& candidate : candidates) {
      if (required && candidate.path != *required && candidate.is_possible) continue;
      list += text(list.empty() ? "" : "; ", name_of(kind), " ", name_of(candidate.path), ": ", candidate.why);
    }
    return make_error(Status::unavailable, is_write ? "write" : "read",
                      text(bytes, " bytes with rank ", peer.rank, " over ", name_of(kind)),
                      cause + (list.empty() ? text("over ", name_of(kind), " no link offers it") : list),
                      "allow another path, or remove the cause");
  }

  const Candidate& candidate = *taken;
  std::string reason = candidate.why;
  if (&candidate == &staged) {
    reason += text(": ", direct.is_possible ? direct.why : text("not directly, ", direct.why));
  }
  const std::uint64_t chunk_bytes = candidate.method == Method::staged ? limits(peer).chunk_bytes : 0;
  std::vector<Explanation::Alternative> others = considered_;
  others.erase(others.begin() + (taken - candidates.data()));
  return keep({{true, candidate.path, kind, {}, chunk_bytes, std::move(reason), std::move(others)}, candidate.method});
}

// Equal decisions are one object.
const Choice* Engine::keep(Choice choice) {
  if (const auto known = choices_.find(choice); known != choices_.end()) return &*known;
  // Peers give reasons too, and could go on giving new ones.
  if (choices_.size() >= kMaxChoices) {
    choice.reason = text("not kept: there are ", kMaxChoices, " other reasons already");
    choice.alternatives.clear();
  }
  return &*choices_.insert(std::move(choice)).first;
}

// --- Explaining ---------------------------------------------------------------------------------------------------------------

Result<Explanation> Engine::explain(Lock& lock, const Transfer& transfer, const Timeout& timeout, const PostOptions& options) {
  const RemotePlace& remote = transfer.remote;
  const std::uint64_t bytes = transfer.bytes;
  LocalSegment* segment = nullptr;
  if (Result<void> checked = check_transfer(transfer, segment); !checked) return std::move(checked).error();
  auto peer = ready_peer(lock, remote.rank, timeout);
  if (!peer) return std::move(peer).error();
  auto state = remote_segment(lock, **peer, remote.segment, timeout);
  if (!state) return std::move(state).error();
  if (Result<void> checked = check_transfer(transfer, segment); !checked) return std::move(checked).error();
  if (!fits(remote.offset_bytes, bytes, (*state)->bytes)) {
    return make_error(Status::out_of_range, "explain",
                      text("remote segment ", remote.segment, " at ", remote.offset_bytes, " +", bytes, " of rank ", remote.rank),
                      text("the segment has ", (*state)->bytes, " bytes"), "stay inside it");
  }
  Explanation explanation;
  if (bytes == 0) {
    explanation.is_possible = true;
    explanation.reason = "there is nothing to move";
    return explanation;
  }
  const Direction direction = transfer.kind == OpKind::read ? Direction::read : Direction::write;
  auto chosen = choose(**peer, direction, *segment, **state, bytes, options.policy ? *options.policy : settings_.policy, false);
  if (chosen) {
    explanation = static_cast<const Explanation&>(*(*chosen)->choice);
  } else {
    explanation.reason = chosen.error().record().cause;
    explanation.alternatives = considered_;
  }
  for (const Rail& rail : (*peer)->rails) explanation.rails.push_back(rail.link->rail());
  return explanation;
}

}  // namespace gigabar::fabric
