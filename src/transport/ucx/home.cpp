// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/home.hpp"

#include <sched.h>

#include <cstring>
#include <utility>

#include "gigabar/copy.hpp"

namespace gigabar::transport::ucx {
namespace {

Placed copy_to_place(const HomeRegion& region, std::uint64_t offset, std::span<const std::byte> data) {
  if (region.mapping) return copy_to(*region.mapping, offset, data.data(), data.size()) ? Placed::ok : Placed::failed;
  std::memcpy(region.address + offset, data.data(), data.size());
  return Placed::ok;
}

}  // namespace

std::uint32_t Home::add_region(HomeRegion region) {
  const std::lock_guard guard(mutex_);
  while (next_region_ == 0 || regions_.contains(next_region_)) ++next_region_;
  regions_.emplace(next_region_, std::move(region));
  return next_region_++;
}

void Home::remove_region(std::uint32_t number) {
  // A lane may still be copying through its mapping: that goes last.
  decltype(regions_)::node_type removed;
  {
    const std::lock_guard guard(mutex_);
    removed = regions_.extract(number);
  }
  for (const Busy& busy : busy_) {
    while (busy.region.load(std::memory_order_acquire) == number) sched_yield();
  }
}

void Home::add_link(std::uint64_t number) {
  const std::lock_guard guard(mutex_);
  links_.insert(number);
}

void Home::remove_link(std::uint64_t number) {
  {
    const std::lock_guard guard(mutex_);
    links_.erase(number);
  }
  for (const Busy& busy : busy_) {
    while (busy.link.load(std::memory_order_acquire) == number) sched_yield();
  }
}

// Without the mutex for the thread that alone changes what is read; lanes have it.
const HomeRegion* Home::find(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes,
                             std::optional<std::uint64_t> guard) const {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return nullptr;
  const HomeRegion& home = found->second;
  if (guard && *guard != home.guard) return nullptr;
  return offset <= home.bytes && bytes <= home.bytes - offset ? &home : nullptr;
}

std::byte* Home::memory(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, std::optional<std::uint64_t> guard) const {
  const HomeRegion* const home = find(region, offset, bytes, guard);
  return home == nullptr || home->mapping ? nullptr : home->address + offset;
}

Placed Home::place(const Access& to, std::span<const std::byte> data) const {
  if (data.empty() || to.bytes != data.size()) return Placed::not_allowed;
  const HomeRegion* const home = find(to.region, to.offset, to.bytes, to.guard);
  return home == nullptr ? Placed::not_allowed : copy_to_place(*home, to.offset, data);
}

Placed Home::place(unsigned lane, std::uint64_t link, const Access& to, std::span<const std::byte> data) {
  Busy& busy = busy_[lane];
  const HomeRegion* home = nullptr;
  {
    const std::lock_guard guard(mutex_);
    if (!links_.contains(link)) return Placed::no_link;
    if (data.empty() || to.bytes != data.size()) return Placed::not_allowed;
    home = find(to.region, to.offset, to.bytes, to.guard);
    if (home == nullptr) return Placed::not_allowed;
    busy.link.store(link, std::memory_order_relaxed);
    busy.region.store(to.region, std::memory_order_relaxed);
  }
  // Neither goes while it is marked: references into the map stay when others come.
  const Placed placed = copy_to_place(*home, to.offset, data);
  busy.link.store(0, std::memory_order_release);
  busy.region.store(0, std::memory_order_release);
  return placed;
}

}  // namespace gigabar::transport::ucx
