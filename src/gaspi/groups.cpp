// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gaspi/process.hpp"

namespace gigabar::gaspi {

// Under the mutex.
GroupState* find_group(gaspi_group_t group) {
  const auto& groups = process().groups;
  return group < groups.size() && groups[group]->exists ? groups[group].get() : nullptr;
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
    const gaspi_return_t met = commit_group(group, timeout_of(timeout_ms), "gaspi_group_commit");
    if (met != GASPI_SUCCESS) return met;
    const std::scoped_lock lock(all.mutex);
    if (GroupState* found = find_group(group)) found->is_committed = true;
    return GASPI_SUCCESS;
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
