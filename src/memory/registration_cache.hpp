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
  using Index = std::multimap<std::uintptr_t, std::shared_ptr<Record>>;  // by the allocation's base
  struct Record {
    std::uint64_t buffer_id;
    std::uintptr_t begin;
    std::size_t bytes;
    std::size_t held_bytes;  // what stays allocated while the value lives
    std::unique_ptr<Value> value;
    std::size_t user_count = 0;
    bool is_indexed = true;
    typename Index::iterator place;
    typename std::list<Record*>::iterator list_place;  // in idle_ or leased_ while it is indexed
    std::shared_ptr<Record> next_dropped;
  };

 public:
  // Use of a value. While one lives the value does. Move-only.
  class Lease {
   public:
    Lease() noexcept = default;
    Lease(Lease&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), record_(std::move(other.record_)) {}
    Lease& operator=(Lease&& other) noexcept {
      Lease moved(std::move(other));
      std::swap(cache_, moved.cache_);
      std::swap(record_, moved.record_);
      return *this;
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      if (record_) cache_->give_back(record_);
    }

    explicit operator bool() const noexcept { return record_ != nullptr; }
    Value& operator*() const noexcept { return *record_->value; }
    Value* operator->() const noexcept { return record_->value.get(); }

    // Lets go without telling the cache, whose lock may be held for ever: for a forked child. The value is never destroyed.
    // A record that holds itself stays, and there may be no memory for another owner.
    void abandon() noexcept {
      cache_ = nullptr;
      Record* const kept = record_.get();
      if (kept != nullptr) kept->next_dropped = std::move(record_);
    }

   private:
    friend class RegistrationCache;
    Lease(RegistrationCache* cache, std::shared_ptr<Record> record) noexcept : cache_(cache), record_(std::move(record)) {}
    RegistrationCache* cache_ = nullptr;
    std::shared_ptr<Record> record_;
  };

  // Values without a lease are kept until they hold more than `idle_limit_bytes` together; the longest idle go first.
  explicit RegistrationCache(std::size_t idle_limit_bytes) noexcept : idle_limit_bytes_(idle_limit_bytes) {}

  // A value of the allocation `memory` (as it is now) that serves [begin, begin + bytes) and that `accepts`; empty when there is
  // none. Entries of an earlier allocation at the same base are dropped on the way.
  template <class Accepts>
  Lease find(const PointerInfo& memory, std::uintptr_t begin, std::size_t bytes, const Accepts& accepts) {
    Dropped dropped;
    const std::lock_guard lock(mutex_);
    auto [at, end] = index_.equal_range(memory.base);
    while (at != end) {
      const std::shared_ptr<Record> record = at->second;
      ++at;
      if (record->buffer_id != memory.buffer_id) {
        ++stale_count_;
        drop(record, dropped);
      } else if (record->begin <= begin && begin - record->begin <= record->bytes &&
                 bytes <= record->bytes - (begin - record->begin) && accepts(*record->value)) {
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
    Dropped dropped;
    const std::lock_guard lock(mutex_);
    for (auto at = index_.begin(); at != index_.end() && at->first < memory.base + memory.length_bytes;) {
      const std::shared_ptr<Record> record = at->second;
      ++at;
      const bool overlaps = record->begin < memory.base + memory.length_bytes && memory.base < record->begin + record->bytes;
      if (overlaps && record->buffer_id != memory.buffer_id) {
        ++stale_count_;
        drop(record, dropped);
      }
    }
    // Whatever runs out of memory from here on, the cache is as before.
    auto record = std::make_shared<Record>();
    record->buffer_id = memory.buffer_id;
    record->begin = begin;
    record->bytes = bytes;
    record->held_bytes = held_bytes;
    record->value = std::move(value);
    std::list<Record*> node(1, record.get());
    record->list_place = node.begin();
    record->place = index_.emplace(memory.base, record);
    leased_.splice(leased_.end(), node);
    ++record->user_count;
    return Lease(this, record);
  }

  // Destroys idle values, longest idle first, until at most `keep_bytes` are held by them; returns the bytes let go.
  std::size_t trim(std::size_t keep_bytes) {
    Dropped dropped;
    const std::lock_guard lock(mutex_);
    return trim_locked(keep_bytes, dropped);
  }

  RegistrationStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return {index_.size(), idle_.size(), idle_bytes_, hit_count_, miss_count_, stale_count_};
  }

 private:
  // Declared before the lock, so that what it holds is destroyed after the lock is released. A chain: giving back must not need
  // memory.
  struct Dropped {
    std::shared_ptr<Record> first;
    void add(std::shared_ptr<Record> record) noexcept {
      record->next_dropped = std::move(first);
      first = std::move(record);
    }
    ~Dropped() {
      while (first) first = std::exchange(first->next_dropped, nullptr);
    }
  };

  Lease lease(const std::shared_ptr<Record>& record) noexcept {
    if (record->user_count++ == 0) {
      leased_.splice(leased_.end(), idle_, record->list_place);
      idle_bytes_ -= record->held_bytes;
    }
    return Lease(this, record);
  }

  // The caller's reference outlives the lock.
  void give_back(const std::shared_ptr<Record>& record) noexcept {
    Dropped dropped;
    const std::lock_guard lock(mutex_);
    const bool is_last = --record->user_count == 0;
    if (is_last && record->is_indexed) {
      idle_.splice(idle_.end(), leased_, record->list_place);
      idle_bytes_ += record->held_bytes;
      trim_locked(idle_limit_bytes_, dropped);
    }
  }

  // Takes a record out of the index; it dies with its last lease.
  void drop(std::shared_ptr<Record> record, Dropped& dropped) noexcept {
    if (record->user_count == 0) idle_bytes_ -= record->held_bytes;
    (record->user_count == 0 ? idle_ : leased_).erase(record->list_place);
    record->is_indexed = false;
    index_.erase(record->place);
    dropped.add(std::move(record));
  }

  std::size_t trim_locked(std::size_t keep_bytes, Dropped& dropped) {
    const std::size_t before = idle_bytes_;
    while (idle_bytes_ > keep_bytes) drop(idle_.front()->place->second, dropped);
    return before - idle_bytes_;
  }

  const std::size_t idle_limit_bytes_;
  mutable std::mutex mutex_;
  Index index_;
  std::list<Record*> idle_;    // longest idle first
  std::list<Record*> leased_;  // the others
  std::size_t idle_bytes_ = 0;
  std::uint64_t hit_count_ = 0;
  std::uint64_t miss_count_ = 0;
  std::uint64_t stale_count_ = 0;
};

}  // namespace gigabar::inline v0
