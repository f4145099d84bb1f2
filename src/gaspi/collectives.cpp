// SPDX-License-Identifier: Apache-2.0
// Groups, their barriers and reductions. The fabric keeps what a time-out interrupts; here is remembered which call may go on with
// it.
#include <algorithm>
#include <cstring>
#include <span>

#include "gaspi/process.hpp"

namespace gigabar::gaspi {

// Under the mutex.
GroupState* find_group(gaspi_group_t group) {
  const auto& groups = process().groups;
  return group < groups.size() && groups[group]->exists ? groups[group].get() : nullptr;
}

namespace {

// Groups get contexts of their own when they are committed: commits of the same ranks have one in common.
bool is_other_committed(const GroupState& group) {
  return std::ranges::any_of(process().groups, [&](const auto& other) {
    return other.get() != &group && other->exists && other->active && other->active->kind == Collective::Kind::commit &&
           other->ranks == group.ranks;
  });
}

}  // namespace

bool is_held(const GroupState& group, const Collective& collective) {
  if (group.active) return *group.active != collective;
  return collective.kind == Collective::Kind::commit && is_other_committed(group);
}

namespace {

// One collective of a group. `run` gets the time that is left.
template <class Run>
gaspi_return_t run_collective(gaspi_group_t id, const Collective& collective, const Timeout& timeout, const char* function,
                              const Run& run) {
  Process& all = process();
  const Remaining time(timeout);
  GroupState* group = nullptr;
  {
    const std::scoped_lock lock(all.mutex);
    group = find_group(id);
    const bool may_be_new = collective.kind == Collective::Kind::commit;
    if (group == nullptr || (!group->is_committed && !may_be_new)) return GASPI_ERR_INV_GROUP;
  }
  const auto turn = lock_within(group->turn, time.left());
  if (!turn) return GASPI_TIMEOUT;
  {
    const std::scoped_lock lock(all.mutex);
    if (is_held(*group, collective)) return GASPI_ERR_ACTIVE_COLL;
    if (!group->active) {
      group->gathered.clear();
      group->gathered_count = 0;
    }
    group->active = collective;
  }
  const Result<void> done = run(*group, time);
  if (done.status() == Status::timed_out) return GASPI_TIMEOUT;
  {
    const std::scoped_lock lock(all.mutex);
    group->active.reset();
  }
  if (done) return GASPI_SUCCESS;
  return done.status() == Status::busy ? GASPI_ERR_ACTIVE_COLL : code_of(done.error(), function);
}

// --- Numbers ---------------------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kSignBit = std::uint64_t{1} << 63;

// An unsigned number that becomes a signed one with the same place in the order.
struct Flipped {
  std::uint64_t bits = 0;

  Flipped() = default;
  explicit Flipped(std::int64_t wide) : bits(static_cast<std::uint64_t>(wide) ^ kSignBit) {}
  explicit operator std::int64_t() const { return static_cast<std::int64_t>(bits ^ kSignBit); }
};

template <class Wide, class Number>
Result<void> reduce_as(const GroupState& group, const Collective& collective, const void* send, void* receive,
                       const Timeout& timeout) {
  std::array<Number, kMaxReduceElements> numbers{};
  std::array<Wide, kMaxReduceElements> wide{};
  const std::span<Wide> values(wide.data(), collective.number);
  std::memcpy(numbers.data(), send, values.size() * sizeof(Number));
  std::transform(numbers.begin(), numbers.begin() + values.size(), wide.begin(), [](Number one) { return static_cast<Wide>(one); });
  Result<void> done = process().fabric->all_reduce(group.ranks, static_cast<ReduceOperation>(collective.operation), values, values,
                                                   timeout, group.context);
  if (!done) return done;
  std::ranges::transform(values, numbers.begin(), [](Wide one) { return static_cast<Number>(one); });
  std::memcpy(receive, numbers.data(), values.size() * sizeof(Number));
  return done;
}

// Sums wrap at the width of the type, as its own additions would.
Result<void> reduce(const GroupState& group, const Collective& collective, const void* send, void* receive,
                    const Timeout& timeout) {
  const bool is_sum = static_cast<ReduceOperation>(collective.operation) == ReduceOperation::sum;
  switch (static_cast<gaspi_datatype_t>(collective.type)) {
    case GASPI_TYPE_INT: return reduce_as<std::int64_t, gaspi_int>(group, collective, send, receive, timeout);
    case GASPI_TYPE_UINT: return reduce_as<std::int64_t, gaspi_uint>(group, collective, send, receive, timeout);
    case GASPI_TYPE_FLOAT: return reduce_as<double, gaspi_float>(group, collective, send, receive, timeout);
    case GASPI_TYPE_DOUBLE: return reduce_as<double, gaspi_double>(group, collective, send, receive, timeout);
    case GASPI_TYPE_LONG: break;
    case GASPI_TYPE_ULONG:
      if (!is_sum) return reduce_as<std::int64_t, Flipped>(group, collective, send, receive, timeout);
      break;
  }
  return reduce_as<std::int64_t, gaspi_long>(group, collective, send, receive, timeout);
}

// --- The program's own operation -------------------------------------------------------------------------------------------------

// The fabric knows minimum, maximum and sum only. So every rank gets the values of all: each adds its own words to zeros in a long
// row of them, piece by piece; what a time-out interrupts goes on with the piece that it came to.
Result<void> gather(GroupState& group, std::span<const std::byte> own, const Remaining& time) {
  Process& all = process();
  const std::size_t words = (own.size() + sizeof(std::int64_t) - 1) / sizeof(std::int64_t);
  if (group.gathered.empty()) {
    const auto place = static_cast<std::size_t>(std::ranges::find(group.ranks, all.rank) - group.ranks.begin());
    group.gathered.assign(words * group.ranks.size(), 0);
    std::memcpy(group.gathered.data() + words * place, own.data(), own.size());
  }
  while (group.gathered_count < group.gathered.size()) {
    const std::size_t piece = std::min<std::size_t>(kMaxReduceElements, group.gathered.size() - group.gathered_count);
    const std::span<std::int64_t> values(group.gathered.data() + group.gathered_count, piece);
    Result<void> done = all.fabric->all_reduce(group.ranks, ReduceOperation::sum, values, values, time.left(), group.context);
    if (!done) return done;
    group.gathered_count += piece;
  }
  return {};
}

}  // namespace

gaspi_return_t group_barrier(gaspi_group_t group, const Collective& collective, const Timeout& timeout, const char* function) {
  return run_collective(group, collective, timeout, function, [&](const GroupState& of, const Remaining& time) {
    Fabric& fabric = *process().fabric;
    // A segment that is being made is registered with every rank.
    for (std::size_t i = 0; collective.kind == Collective::Kind::create && i < of.ranks.size(); ++i) {
      if (Result<void> connected = fabric.connect(of.ranks[i], time.left()); !connected) return connected;
    }
    return fabric.barrier(of.ranks, time.left(), of.context);
  });
}

}  // namespace gigabar::gaspi

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

// A call that concerns one group, under the mutex. NOINIT, INV_GROUP.
template <class Body>
gaspi_return_t with_group(gaspi_group_t group, const Body& body) {
  return when_ready([&] {
    const std::scoped_lock lock(process().mutex);
    GroupState* const found = find_group(group);
    return found == nullptr ? GASPI_ERR_INV_GROUP : body(*found);
  });
}

}  // namespace

gaspi_return_t pgaspi_group_create(gaspi_group_t* const group) {
  return when_ready([&]() -> gaspi_return_t {
    if (group == nullptr) return GASPI_ERR_NULLPTR;
    Process& all = process();
    const std::scoped_lock lock(all.mutex);
    std::size_t id = 0;
    while (id < all.groups.size() && all.groups[id]->exists) ++id;
    if (id >= all.config.group_max) return GASPI_ERR_MANY_GRP;
    if (id == all.groups.size()) all.groups.push_back(std::make_unique<GroupState>());
    GroupState& made = *all.groups[id];
    made.exists = true;
    made.is_committed = false;
    made.ranks.clear();
    made.active.reset();
    return store(group, id);
  });
}
GASPI_NAMED(gaspi_group_create);

gaspi_return_t pgaspi_group_delete(const gaspi_group_t group) {
  return with_group(group, [&](GroupState& found) {
    if (group == GASPI_GROUP_ALL) return GASPI_ERR_INV_GROUP;
    found.exists = false;
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_group_delete);

gaspi_return_t pgaspi_group_add(const gaspi_group_t group, const gaspi_rank_t rank) {
  return with_group(group, [&](GroupState& found) {
    if (found.is_committed || found.active) return GASPI_ERR_INV_GROUP;
    const auto place = std::ranges::lower_bound(found.ranks, Rank{rank});
    if (rank >= process().rank_count || (place != found.ranks.end() && *place == rank)) return GASPI_ERR_INV_RANK;
    found.ranks.insert(place, rank);
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_group_add);

gaspi_return_t pgaspi_group_commit(const gaspi_group_t group, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    Process& all = process();
    {
      const std::scoped_lock lock(all.mutex);
      const GroupState* found = find_group(group);
      if (found == nullptr || !std::ranges::binary_search(found->ranks, all.rank)) return GASPI_ERR_INV_GROUP;
      if (found->is_committed) return GASPI_SUCCESS;
    }
    const Collective collective{Collective::Kind::commit, 0, 0, 0};
    return run_collective(group, collective, timeout_of(timeout_ms), "gaspi_group_commit",
                          [&](GroupState& of, const Remaining& time) -> Result<void> {
                            std::array<std::int64_t, 1> own{}, most{};
                            {
                              const std::scoped_lock lock(all.mutex);
                              own[0] = all.next_context;
                            }
                            Result<void> agreed = all.fabric->all_reduce(of.ranks, ReduceOperation::maximum, own, most, time.left(),
                                                                         kContextOfCommits);
                            if (!agreed) return agreed;
                            const std::scoped_lock lock(all.mutex);
                            of.context = static_cast<CollectiveContext>(most[0]);
                            of.is_committed = true;
                            all.next_context = std::max(all.next_context, of.context + 1);
                            return {};
                          });
  });
}
GASPI_NAMED(gaspi_group_commit);

gaspi_return_t pgaspi_group_num(gaspi_number_t* const group_num) {
  return when_ready([&]() -> gaspi_return_t {
    const std::scoped_lock lock(process().mutex);
    return store(group_num, std::ranges::count_if(process().groups, [](const auto& one) { return one->exists; }));
  });
}
GASPI_NAMED(gaspi_group_num);

gaspi_return_t pgaspi_group_size(const gaspi_group_t group, gaspi_number_t* const group_size) {
  return with_group(group, [&](const GroupState& found) { return store(group_size, found.ranks.size()); });
}
GASPI_NAMED(gaspi_group_size);

gaspi_return_t pgaspi_group_ranks(const gaspi_group_t group, gaspi_rank_t* const group_ranks) {
  return with_group(group, [&](const GroupState& found) {
    if (group_ranks == nullptr) return GASPI_ERR_NULLPTR;
    std::ranges::transform(found.ranks, group_ranks, [](Rank rank) { return static_cast<gaspi_rank_t>(rank); });
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_group_ranks);

gaspi_return_t pgaspi_barrier(const gaspi_group_t group, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    count(Counter::barriers);
    return group_barrier(group, {Collective::Kind::barrier, 0, 0, 0}, timeout_of(timeout_ms), "gaspi_barrier");
  });
}
GASPI_NAMED(gaspi_barrier);

gaspi_return_t pgaspi_allreduce(const gaspi_pointer_t buffer_send, gaspi_pointer_t const buffer_receive, const gaspi_number_t num,
                                const gaspi_operation_t operation, const gaspi_datatype_t datatype, const gaspi_group_t group,
                                const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (buffer_send == nullptr || buffer_receive == nullptr) return GASPI_ERR_NULLPTR;
    if (num == 0 || num > process().config.allreduce_elem_max) return GASPI_ERR_INV_NUM;
    if (static_cast<unsigned>(datatype) > GASPI_TYPE_ULONG) return GASPI_ERR_INV_SIZE;
    if (static_cast<unsigned>(operation) > GASPI_OP_SUM) return GASPI_ERROR;
    count(Counter::reductions);
    const Collective collective{Collective::Kind::allreduce, num, static_cast<std::uint64_t>(operation),
                                static_cast<unsigned>(datatype)};
    return run_collective(group, collective, timeout_of(timeout_ms), "gaspi_allreduce",
                          [&](const GroupState& of, const Remaining& time) {
                            return reduce(of, collective, buffer_send, buffer_receive, time.left());
                          });
  });
}
GASPI_NAMED(gaspi_allreduce);

gaspi_return_t pgaspi_allreduce_user(const gaspi_pointer_t buffer_send, gaspi_pointer_t const buffer_receive,
                                     const gaspi_number_t num, const gaspi_size_t element_size,
                                     gaspi_reduce_operation_t const reduce_operation, gaspi_reduce_state_t const reduce_state,
                                     const gaspi_group_t group, const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (buffer_send == nullptr || buffer_receive == nullptr || reduce_operation == nullptr) return GASPI_ERR_NULLPTR;
    if (num == 0 || num > process().config.allreduce_elem_max) return GASPI_ERR_INV_NUM;
    if (element_size == 0 || element_size > process().config.allreduce_buf_size / num) return GASPI_ERR_INV_SIZE;
    count(Counter::reductions);
    const std::size_t bytes = num * element_size;
    const Collective collective{Collective::Kind::allreduce_user, num, element_size, 0};
    std::vector<std::int64_t> values;
    std::size_t ranks = 0;
    const gaspi_return_t gathered = run_collective(
        group, collective, timeout_of(timeout_ms), "gaspi_allreduce_user", [&](GroupState& of, const Remaining& time) {
          Result<void> done = gather(of, {static_cast<const std::byte*>(buffer_send), bytes}, time);
          if (done) {
            values = std::move(of.gathered);
            ranks = of.ranks.size();
          }
          return done;
        });
    if (gathered != GASPI_SUCCESS) return gathered;
    const std::size_t words = values.size() / ranks;
    std::vector<std::int64_t> sum(values.begin(), values.begin() + std::ptrdiff_t(words)), result(words);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      const gaspi_return_t joined =
          reduce_operation(sum.data(), values.data() + rank * words, result.data(), reduce_state, num, element_size, timeout_ms);
      if (joined != GASPI_SUCCESS) return joined;
      sum.swap(result);
    }
    std::memcpy(buffer_receive, sum.data(), bytes);
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_allreduce_user);
