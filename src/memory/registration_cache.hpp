// SPDX-License-Identifier: Apache-2.0
// Registrations of allocations (a CPU window, later a NIC's key), kept by the allocation's identity so that memory freed and
// allocated again at the same address never meets the old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/ranges.hpp"
#include "gigabar/memory.hpp"

namespace gigabar::inline v0 {

struct RegistrationStatistics {
  std::size_t count = 0;
  std::size_t idle_count = 0;
  std::size_t idle_bytes = 0;
  std::uint64_t hit_count = 0;
  std::uint64_t miss_count = 0;
  std::uint64_t stale_count = 0;
};

// A Value serves the device addresses [begin, begin + bytes) of one allocation. Identity is CUDA's buffer id, which is unique in
// the process and never reused. Threads: any. Values are destroyed outside the lock.
template <class Value>
class RegistrationCache {
  struct Record;
  using Records = std::list<Record>;  // a record goes from list to list, which needs no memory
  using Place = typename Records::iterator;
  using Index = std::multimap<std::uintptr_t, Place>;  // by the allocation's base
  struct Record {
    std::uint64_t buffer_id;
    std::uintptr_t begin;
    std::size_t bytes;
    std::size_t held_bytes;  // what stays allocated while the value lives
    std::unique_ptr<Value> value;
    std::size_t user_count;
    typename Index::iterator in_index;  // end(): it was dropped
  };

 public:
  // Use of a value. While one lives the value does. Move-only.
  class Lease {
   public:
    Lease() noexcept = default;
    Lease(Lease&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), place_(other.place_) {}
    Lease& operator=(Lease&& other) noexcept {
      Lease moved(std::move(other));
      std::swap(cache_, moved.cache_);
      std::swap(place_, moved.place_);
      return *this;
    }
    ~Lease() {
      if (cache_ != nullptr) cache_->give_back(place_);
    }

    explicit operator bool() const noexcept { return cache_ != nullptr; }
    Value& operator*() const noexcept { return *place_->value; }
    Value* operator->() const noexcept { return place_->value.get(); }

    // Lets go without telling the cache, whose lock may be held for ever: for a forked child. The value is never destroyed, as long
    // as the cache is not.
    void abandon() noexcept { cache_ = nullptr; }

   private:
    friend class RegistrationCache;
    Lease(RegistrationCache* cache, Place place) noexcept : cache_(cache), place_(place) {}
    RegistrationCache* cache_ = nullptr;  // null: of nothing
    Place place_{};
  };

  // Values without a lease are kept until they hold more than `idle_limit_bytes` together; the longest idle go first.
  explicit RegistrationCache(std::size_t idle_limit_bytes) noexcept : idle_limit_bytes_(idle_limit_bytes) {}

  // A value of the allocation `memory` (as it is now) that serves [begin, begin + bytes) and that `accepts`; empty when there is
  // none. Entries of an earlier allocation at the same base are dropped on the way.
  template <class Accepts>
  Lease find(const PointerInfo& memory, std::uintptr_t begin, std::size_t bytes, const Accepts& accepts) {
    Records dropped;  // destroyed after the lock is released, here and below
    const std::lock_guard lock(mutex_);
    auto [at, end] = index_.equal_range(memory.base);
    while (at != end) {
      const Place record = (at++)->second;
      if (record->buffer_id != memory.buffer_id) {
        ++stale_count_;
        drop(record, dropped);
      } else if (record->begin <= begin && fits(begin - record->begin, bytes, record->bytes) && accepts(*record->value)) {
        ++hit_count_;
        return lease(record);
      }
    }
    ++miss_count_;
    return {};
  }

  // Keeps `value` for the allocation. Entries of other allocations that overlap this one are stale (their memory is gone) and
  // dropped.
  Lease insert(const PointerInfo& memory, std::uintptr_t begin, std::size_t bytes, std::size_t held_bytes,
               std::unique_ptr<Value> value) {
    Records dropped, fresh(1);
    const std::lock_guard lock(mutex_);
    for (auto at = index_.begin(); at != index_.end() && at->first < memory.base + memory.length_bytes;) {
      const Place record = (at++)->second;
      const bool overlaps = record->begin < memory.base + memory.length_bytes && memory.base < record->begin + record->bytes;
      if (overlaps && record->buffer_id != memory.buffer_id) {
        ++stale_count_;
        drop(record, dropped);
      }
    }
    const Place record = fresh.begin();
    const auto in_index = index_.emplace(memory.base, record);  // where memory runs out, the cache is as before
    *record = {memory.buffer_id, begin, bytes, held_bytes, std::move(value), 1, in_index};
    leased_.splice(leased_.end(), fresh);
    return Lease(this, record);
  }

  // Destroys idle values, longest idle first, until at most `keep_bytes` are held by them; returns the bytes let go.
  std::size_t trim(std::size_t keep_bytes) {
    Records dropped;
    const std::lock_guard lock(mutex_);
    return trim_locked(keep_bytes, dropped);
  }

  RegistrationStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return {index_.size(), idle_.size(), idle_bytes_, hit_count_, miss_count_, stale_count_};
  }

 private:
  Lease lease(Place record) noexcept {
    if (record->user_count++ == 0) {
      leased_.splice(leased_.end(), idle_, record);
      idle_bytes_ -= record->held_bytes;
    }
    return Lease(this, record);
  }

  void give_back(Place record) noexcept {
    Records dropped;
    const std::lock_guard lock(mutex_);
    if (--record->user_count != 0) return;
    if (record->in_index == index_.end()) {
      dropped.splice(dropped.end(), leased_, record);
      return;
    }
    idle_.splice(idle_.end(), leased_, record);
    idle_bytes_ += record->held_bytes;
    trim_locked(idle_limit_bytes_, dropped);
  }

  // Takes a record out of the index; it dies with its last lease.
  void drop(Place record, Records& dropped) noexcept {
    index_.erase(std::exchange(record->in_index, index_.end()));
    if (record->user_count != 0) return;
    idle_bytes_ -= record->held_bytes;
    dropped.splice(dropped.end(), idle_, record);
  }

  std::size_t trim_locked(std::size_t keep_bytes, Records& dropped) {
    const std::size_t before = idle_bytes_;
    while (idle_bytes_ > keep_bytes) drop(idle_.begin(), dropped);
    return before - idle_bytes_;
  }

  const std::size_t idle_limit_bytes_;
  mutable std::mutex mutex_;
  Index index_;
  Records idle_;    // longest idle first
  Records leased_;  // also of those that were dropped
  std::size_t idle_bytes_ = 0;
  std::uint64_t hit_count_ = 0;
  std::uint64_t miss_count_ = 0;
  std::uint64_t stale_count_ = 0;
};

}  // namespace gigabar::inline v0
