// Barrier and small reductions, up and down a binomial tree over the group. The tree and the order in which values are joined
// depend on the group alone, so that every rank gets the same bits.
#include <algorithm>
#include <cstring>

#include "base/errors.hpp"
#include "base/undo.hpp"
#include "fabric/bytes.hpp"
#include "fabric/engine.hpp"
#include "fabric/remaining.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::uint32_t kUp = 0, kDown = 1;
constexpr std::size_t kMostParts = 65536;  // parts of collectives that this rank has not begun

std::uint64_t hash_of(const Group& group) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const Rank rank : group) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (rank >> shift & 0xff)) * 0x100000001b3;
  }
  return hash;
}

struct Tree {
  std::optional<Rank> parent;
  std::vector<Rank> children;
};

Tree tree_of(const Group& group, std::size_t own) {
  Tree tree;
  if (own != 0) tree.parent = group[own & (own - 1)];
  for (std::size_t bit = 1; own + bit < group.size() && (own & bit) == 0; bit <<= 1) tree.children.push_back(group[own + bit]);
  return tree;
}

template <class Number>
void join(std::string& into, const std::string& from, ReduceOperation operation) {
  for (std::size_t at = 0; at + sizeof(Number) <= std::min(into.size(), from.size()); at += sizeof(Number)) {
    Number left, right;
    std::memcpy(&left, into.data() + at, sizeof left);
    std::memcpy(&right, from.data() + at, sizeof right);
    if (operation == ReduceOperation::minimum) left = std::min(left, right);
    if (operation == ReduceOperation::maximum) left = std::max(left, right);
    if (operation == ReduceOperation::sum) {
      if constexpr (std::is_integral_v<Number>) {
        // Overflow wraps, as in the unsigned numbers of the same bits.
        left = static_cast<Number>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
      } else {
        left += right;
      }
    }
    std::memcpy(into.data() + at, &left, sizeof left);
  }
}

}  // namespace

void Engine::on_collective(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  if (collective_parts_.size() >= kMostParts || payload.size() > std::size_t{8} * kMostReduceElements) {
    doom(peer, make_error(Status::peer_lost, "fabric", text("rank ", peer.rank), "its part of a collective makes no sense", {}));
    return;
  }
  collective_parts_[{message.a, message.b, static_cast<std::uint32_t>(message.c), peer.rank}] =
      std::string(1, static_cast<char>(message.count)) + std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
}

Outcome Engine::collect(Lock& lock, const Group& asked, Collective::Kind kind, ReduceOperation operation, std::string& values,
                        const Timeout& timeout) {
  const std::string name = kind == Collective::Kind::barrier ? "barrier" : "all_reduce";
  Group group = asked;
  if (group.empty()) {
    for (Rank rank = 0; rank < job_.rank_count; ++rank) group.push_back(rank);
  }
  const auto own = std::find(group.begin(), group.end(), job_.rank);
  if (own == group.end() || group.back() >= job_.rank_count ||
      std::adjacent_find(group.begin(), group.end(), std::greater_equal<>()) != group.end()) {
    return make_error(Status::invalid_argument, name, text("a group of ", group.size()),
                      own == group.end() ? "this rank is not in it" : "its ranks are not ascending, each once and of the job",
                      "give ranks of the job in ascending order, this one among them");
  }
  Collective& collective = collectives_[group];
  if (collective.is_entered) {
    return make_error(Status::busy, name, text("a group of ", group.size()), "another thread is at a collective of it",
                      "use one thread per group");
  }
  collective.is_entered = true;
  const Undo leave([&] { collective.is_entered = false; });
  const auto signature = static_cast<char>(static_cast<unsigned>(kind) | static_cast<unsigned>(operation) << 4);
  if (collective.is_under_way && (collective.kind != kind || collective.operation != operation)) {
    return make_error(Status::busy, name, text("a group of ", group.size()), "another collective of it is under way",
                      "call that one again until it is done");
  }
  const Tree tree = tree_of(group, static_cast<std::size_t>(own - group.begin()));
  const Remaining time(timeout);
  // Before it connects, which may take longer than the caller waits: from now on it is this collective that goes on.
  if (!collective.is_under_way) {
    collective.is_under_way = true;
    collective.kind = kind;
    collective.operation = operation;
    collective.round = 0;
    collective.has_said = false;
    collective.values = values;
  }
  Peer* parent = nullptr;
  if (tree.parent) {
    auto peer = collective.has_said ? find_peer(*tree.parent) : ready_peer(lock, *tree.parent, time.left());
    if (!peer) {
      const auto lost = peers_.find(*tree.parent);
      if (lost == peers_.end() || lost->second->state == Peer::State::lost) collective.is_under_way = false;
      return std::move(peer).error();
    }
    parent = *peer;
  }
  const std::uint64_t hash = hash_of(group);
  const auto tell = [&](Peer& peer, std::uint32_t way) {
    Message message;
    message.type = MessageType::collective;
    message.count = static_cast<std::uint8_t>(signature);
    message.a = hash;
    message.b = collective.sequence;
    message.c = way;
    say(peer, message, std::as_bytes(std::span(collective.values)));
  };
  std::optional<Error> error;
  const auto take = [&](Rank from, std::uint32_t way, std::string& part) {
    const auto found = collective_parts_.find({hash, collective.sequence, way, from});
    if (found == collective_parts_.end()) return false;
    part = found->second.substr(1);
    if (found->second.front() != signature || part.size() != collective.values.size()) {
      error = make_error(Status::invalid_argument, name, text("rank ", from), "it called another collective, or with other values",
                         "call the same collective with as many values at every rank of the group");
    }
    collective_parts_.erase(found);
    return true;
  };
  // A rank that has left may have done its part before.
  const auto is_lost = [&](Rank rank) {
    const auto peer = peers_.find(rank);
    if (peer == peers_.end() || peer->second->state != Peer::State::lost) return false;
    error = *peer->second->why;
    return true;
  };
  const auto someone_is_lost = [&] {
    for (std::size_t index = collective.round; index < tree.children.size(); ++index) {
      const Rank rank = tree.children[index];
      if (!collective_parts_.contains({hash, collective.sequence, kUp, rank}) && is_lost(rank)) return true;
    }
    return parent != nullptr && !collective_parts_.contains({hash, collective.sequence, kDown, parent->rank}) &&
           is_lost(parent->rank);
  };
  const auto is_done = [&] {
    std::string part;
    while (!error && collective.round < tree.children.size()) {
      if (!take(tree.children[collective.round], kUp, part)) return someone_is_lost();
      ++collective.round;
      if (kind == Collective::Kind::integers) join<std::int64_t>(collective.values, part, operation);
      if (kind == Collective::Kind::reals) join<double>(collective.values, part, operation);
    }
    if (error) return true;
    if (parent != nullptr && !collective.has_said) {
      tell(*parent, kUp);
      collective.has_said = true;
    }
    if (parent != nullptr) {
      if (!take(parent->rank, kDown, part)) return someone_is_lost();
      collective.values = part;
    }
    return true;
  };
  if (!drive(lock, time.left(), is_done)) {
    return make_error(Status::timed_out, name, text("a group of ", group.size()), "not every rank is there yet",
                      "call again with the same arguments");
  }
  if (!error) {
    for (const Rank rank : tree.children) tell(*peers_[rank], kDown);
    values = collective.values;
  }
  ++collective.sequence;
  collective.is_under_way = false;
  if (error) return std::move(*error);
  return {};
}

}  // namespace gigabar::fabric
