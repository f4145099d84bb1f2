// SPDX-License-Identifier: Apache-2.0
// Barrier and small reductions, up and down a binomial tree over the group. The tree and the order in which values are joined
// depend on the group alone, so that every rank gets the same bits. A member that finds another one lost tells its neighbours in
// the tree, and they theirs: all members that can be reached end with the same error.
#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/fnv.hpp"
#include "base/remaining.hpp"
#include "base/shown.hpp"
#include "base/undo.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::uint32_t kUp = 0, kDown = 1, kFailed = 2;  // a part's way; a failure goes both ways
constexpr std::size_t kMaxFailed = 1024;                  // collectives that failed, remembered for members that come later
constexpr std::size_t kMaxCauseBytes = 512;

std::uint64_t hash_of(const Group& group, CollectiveContext context) noexcept {
  const std::uint64_t hash = fnv1a({reinterpret_cast<const char*>(group.data()), group.size() * sizeof(Rank)});
  return fnv1a({reinterpret_cast<const char*>(&context), sizeof context}, hash);
}

struct Tree {
  std::optional<Rank> parent;
  std::vector<Rank> children;
  std::vector<Rank> neighbours;  // both
};

Tree tree_of(const Group& group, std::size_t own) {
  Tree tree;
  if (own != 0) tree.parent = tree.neighbours.emplace_back(group[own & (own - 1)]);
  for (std::size_t bit = 1; own + bit < group.size() && (own & bit) == 0; bit <<= 1) tree.children.push_back(group[own + bit]);
  tree.neighbours.insert(tree.neighbours.end(), tree.children.begin(), tree.children.end());
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

// The group with all its ranks. Errors: invalid_argument.
Result<Group> members_of(const Group& asked, const Job& job, const std::string& name) {
  Group group = asked;
  if (group.empty()) {
    for (Rank rank = 0; rank < job.rank_count; ++rank) group.push_back(rank);
  }
  const bool has_own = std::find(group.begin(), group.end(), job.rank) != group.end();
  const bool is_ascending = std::adjacent_find(group.begin(), group.end(), std::greater_equal<>()) == group.end();
  if (has_own && is_ascending && group.back() < job.rank_count) return group;
  return make_error(Status::invalid_argument, name, text("a group of ", group.size()),
                    has_own ? "its ranks are not ascending, each once and of the job" : "this rank is not in it",
                    "give ranks of the job in ascending order, this one among them");
}

}  // namespace

// One call: what this rank has to do in the tree, from where the call before, which ran out of time, has left it.
class Engine::CollectiveCall {
 public:
  CollectiveCall(Engine& engine, std::string name, const Group& group, CollectiveContext context, Collective& collective)
      : engine_(engine),
        name_(std::move(name)),
        tree_(tree_of(group, static_cast<std::size_t>(std::find(group.begin(), group.end(), engine.job_.rank) - group.begin()))),
        hash_(hash_of(group, context)),
        collective_(collective),
        signature_(static_cast<char>(static_cast<unsigned>(collective.kind) | static_cast<unsigned>(collective.operation) << 4)),
        watch_(engine.lost_count_, &collective.silence) {}

  // Errors: timed_out, with which nothing has changed.
  Result<void> connect_to_parent(Lock& lock, const Timeout& timeout) {
    if (!tree_.parent) return {};
    auto peer = collective_.has_said ? engine_.find_peer(*tree_.parent) : engine_.ready_peer(lock, *tree_.parent, timeout);
    if (peer) {
      parent_ = *peer;
      return {};
    }
    const auto lost = engine_.peers_.find(*tree_.parent);
    if (lost != engine_.peers_.end() && lost->second->state != Peer::State::lost) return std::move(peer).error();
    fail(*tree_.parent, std::move(peer).error());
    return {};
  }

  bool is_done() {
    // Of the neighbours in the tree: nobody else has a say, least of all ranks outside of the group.
    if (error_ || std::ranges::any_of(tree_.neighbours, [&](Rank rank) { return has_heard_of_failure(rank); })) return true;
    std::string part;
    while (collective_.round < tree_.children.size()) {
      if (!take(tree_.children[collective_.round], kUp, part)) return is_someone_lost();
      if (error_) return true;
      ++collective_.round;
      if (collective_.kind == Collective::Kind::integers) join<std::int64_t>(collective_.values, part, collective_.operation);
      if (collective_.kind == Collective::Kind::reals) join<double>(collective_.values, part, collective_.operation);
    }
    if (parent_ == nullptr) return true;
    if (!std::exchange(collective_.has_said, true)) tell(*parent_, kUp, collective_.values);
    if (!take(parent_->rank, kDown, part)) return is_someone_lost();
    if (!error_) collective_.values = std::move(part);
    return true;
  }

  // Until is_done(): the neighbours in the tree whose part is missing. A child speaks for all ranks below it, the parent for all.
  std::string awaited() const {
    std::string ranks;
    for (std::size_t index = collective_.round; index < tree_.children.size(); ++index) {
      const Rank rank = tree_.children[index];
      if (!engine_.collective_parts_.contains(key(kUp, rank))) ranks += text(ranks.empty() ? "rank " : ", rank ", rank);
    }
    return ranks.empty() && tree_.parent ? text("rank ", *tree_.parent) : ranks;
  }

  // Behind is_done().
  Result<void> finish() {
    if (!error_) {
      for (const Rank rank : tree_.children) tell(*engine_.peers_[rank], kDown, collective_.values);
    } else {
      tell_failure();
    }
    collective_.is_under_way = false;
    ++collective_.sequence;
    // What came for it after all, or too late, is nobody's.
    engine_.drop_parts(engine_.collective_parts_.lower_bound({hash_, 0, 0, 0}),
                       engine_.collective_parts_.lower_bound({hash_, collective_.sequence, 0, 0}));
    if (error_) return std::move(*error_);
    return {};
  }

 private:
  CollectivePart key(std::uint32_t way, Rank from) const { return {hash_, collective_.sequence, way, from}; }

  void tell(Peer& peer, std::uint32_t way, const std::string& values) {
    const auto signature = static_cast<std::uint8_t>(signature_);
    const Message message{.type = MessageType::collective, .count = signature, .a = hash_, .b = collective_.sequence, .c = way};
    engine_.say(peer, message, std::as_bytes(std::span(values)));
  }

  bool take(Rank from, std::uint32_t way, std::string& part) {
    const auto found = engine_.collective_parts_.find(key(way, from));
    if (found == engine_.collective_parts_.end()) return false;
    part = found->second.substr(1);
    if (found->second.front() != signature_ || part.size() != collective_.values.size()) {
      fail(from,
           make_error(Status::invalid_argument, name_, text("rank ", from), "it called another collective, or with other values",
                      "call the same collective with as many values at every rank of the group"));
    }
    engine_.drop_parts(found, std::next(found));
    return true;
  }

  // A rank that has left may have done its part before.
  bool is_someone_lost() {
    const bool is_to_probe = watch_.is_due() && watch_.may_connect();
    const auto is_lost = [&](Rank rank, std::uint32_t way) {
      if (engine_.collective_parts_.contains(key(way, rank))) return false;
      if (is_to_probe && engine_.can_still_speak(rank, true)) return false;
      const auto peer = engine_.peers_.find(rank);
      if (peer == engine_.peers_.end() || peer->second->state != Peer::State::lost) return false;
      fail(rank, *peer->second->why);
      return true;
    };
    for (std::size_t index = collective_.round; index < tree_.children.size(); ++index) {
      if (is_lost(tree_.children[index], kUp)) return true;
    }
    return parent_ != nullptr && is_lost(parent_->rank, kDown);
  }

  bool has_heard_of_failure(Rank from) {
    const auto found = engine_.collective_parts_.find(key(kFailed, from));
    if (found == engine_.collective_parts_.end()) return false;
    ByteReader reader(std::string_view(found->second).substr(1));
    const auto status = reader.number<std::uint8_t>();
    const auto rank = reader.number<Rank>();
    const std::string cause = shown(reader.string(kMaxCauseBytes), kMaxCauseBytes);
    const bool is_known = static_cast<Status>(status) == Status::invalid_argument;
    fail(rank, make_error(is_known ? Status::invalid_argument : Status::peer_lost, name_, text("rank ", rank),
                          text(cause, " (rank ", from, " says so)"), {}));
    return true;
  }

  void fail(Rank rank, Error error) {
    if (error_) return;
    failed_rank_ = rank;
    error_ = std::move(error);
  }

  // The status, the rank it is about, and the cause.
  void tell_failure() {
    ByteWriter writer;
    writer.number(static_cast<std::uint8_t>(error_->status())).number(failed_rank_);
    const std::string failure = writer.string(std::string_view(error_->record().cause).substr(0, kMaxCauseBytes)).take();
    engine_.failed_collectives_[{hash_, collective_.sequence}] = failure;
    if (engine_.failed_collectives_.size() > kMaxFailed) engine_.failed_collectives_.erase(engine_.failed_collectives_.begin());
    for (const Rank rank : tree_.neighbours) {
      const auto peer = engine_.peers_.find(rank);
      if (peer != engine_.peers_.end() && peer->second->state == Peer::State::ready) tell(*peer->second, kFailed, failure);
    }
  }

  Engine& engine_;
  const std::string name_;
  const Tree tree_;
  const std::uint64_t hash_;
  Collective& collective_;
  const char signature_;
  Watch watch_;
  Peer* parent_ = nullptr;
  std::optional<Error> error_;
  Rank failed_rank_ = 0;  // that it is about
};

void Engine::on_collective(Peer& peer, const Message& message, std::span<const std::byte> payload) {
  if (payload.size() > std::size_t{8} * kMaxReduceElements) return accuse(peer, "its part of a collective makes no sense");
  // It comes to a collective that has failed here meanwhile.
  if (const auto failed = failed_collectives_.find({message.a, message.b}); failed != failed_collectives_.end()) {
    if (message.c != kUp) return;
    Message answer = message;
    answer.c = kFailed;
    return say(peer, answer, std::as_bytes(std::span(failed->second)));
  }
  if (peer.collective_part_count >= kMaxParts) return overrun(peer, "parts of collectives");
  std::string part(1, static_cast<char>(message.count));
  part.append(text_of(payload));
  const CollectivePart key{message.a, message.b, static_cast<std::uint32_t>(message.c), peer.rank};
  if (collective_parts_.insert_or_assign(key, std::move(part)).second) ++peer.collective_part_count;
}

void Engine::drop_parts(CollectiveParts::iterator first, CollectiveParts::iterator last) noexcept {
  while (first != last) {
    if (const auto peer = peers_.find(first->first.from); peer != peers_.end()) --peer->second->collective_part_count;
    first = collective_parts_.erase(first);
  }
}

Result<void> Engine::collect(Lock& lock, const Group& asked, CollectiveContext context, Collective::Kind kind,
                             ReduceOperation operation, std::string& values, const Timeout& timeout) {
  const std::string name = kind == Collective::Kind::barrier ? "barrier" : "all_reduce";
  auto members = members_of(asked, job_, name);
  if (!members) return std::move(members).error();
  const Group& group = *members;
  Collective& collective = collectives_[{group, context}];
  const auto busy = [&](const char* cause, const char* remedy) {
    return make_error(Status::busy, name, text("a group of ", group.size()), cause, remedy);
  };
  if (collective.is_entered) return busy("another thread is at a collective of it", "use one thread per group");
  collective.is_entered = true;
  const Undo leave([&] { collective.is_entered = false; });
  if (collective.is_under_way && (collective.kind != kind || collective.operation != operation)) {
    return busy("another collective of it is under way", "call that one again until it is done");
  }
  const Remaining time(timeout);
  // Before it connects, which may take longer than the caller waits: from now on it is this collective that goes on.
  if (!collective.is_under_way) {
    collective = {.kind = kind,
                  .operation = operation,
                  .sequence = collective.sequence,
                  .is_entered = true,
                  .is_under_way = true,
                  .silence = {},
                  .values = values};
  }
  CollectiveCall call(*this, name, group, context, collective);
  if (Result<void> connected = call.connect_to_parent(lock, time.left()); !connected) return connected;
  if (!progress_until(lock, time.left(), [&] { return call.is_done(); })) {
    return make_error(Status::timed_out, name, text("a group of ", group.size()),
                      text("not every rank is there yet; it waits for ", call.awaited()), "call again with the same arguments");
  }
  Result<void> done = call.finish();
  if (done) values = collective.values;
  return done;
}

}  // namespace gigabar::fabric
