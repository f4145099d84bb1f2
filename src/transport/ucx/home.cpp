#include "transport/ucx/home.hpp"

#include <sched.h>

#include <cstring>

namespace gigabar::transport::ucx {

std::uint32_t Home::add_region(const HomeRegion& region) {
  const std::lock_guard guard(mutex_);
  while (next_region_ == 0 || regions_.contains(next_region_)) ++next_region_;
  regions_.emplace(next_region_, region);
  return next_region_++;
}

void Home::remove_region(std::uint32_t number) {
  {
    const std::lock_guard guard(mutex_);
    regions_.erase(number);
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
std::byte* Home::memory(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, std::optional<std::uint64_t> guard) const {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return nullptr;
  const HomeRegion& home = found->second;
  if (guard && *guard != home.guard) return nullptr;
  if (offset > home.bytes || bytes > home.bytes - offset) return nullptr;
  return home.address + offset;
}

Placed Home::place(unsigned lane, std::uint64_t link, const Access& to, std::span<const std::byte> data) {
  Busy& busy = busy_[lane];
  std::byte* place = nullptr;
  {
    const std::lock_guard guard(mutex_);
    if (!links_.contains(link)) return Placed::no_link;
    if (data.empty() || to.bytes != data.size()) return Placed::not_allowed;
    place = memory(to.region, to.offset, to.bytes, to.guard);
    if (place == nullptr) return Placed::not_allowed;
    busy.link.store(link, std::memory_order_relaxed);
    busy.region.store(to.region, std::memory_order_relaxed);
  }
  std::memcpy(place, data.data(), data.size());
  busy.link.store(0, std::memory_order_release);
  busy.region.store(0, std::memory_order_release);
  return Placed::ok;
}

}  // namespace gigabar::transport::ucx
