// SPDX-License-Identifier: Apache-2.0
// Sessions and handles of libgdrapi: numbers given to the program, and what they stand for.
//
// A gdr_mh_t is <generation, slot>, so that a number that was unpinned never means another buffer. Slots are never freed, so that a
// copy can look at one without a lock, whatever the number. Everything in a slot is changed under the table's mutex, for which
// nobody waits longer than a few stores take: pins are made and destroyed outside it.
//
// Copies must not take that mutex, and must not lose the mapping under their feet. A copy counts itself in and out of its slot
// (one of several counters, by thread, so that threads do not share a cache line); an unpin first withdraws the mapping, then looks
// at the counters, and destroys the pin only when all are zero. Otherwise the last copy that leaves destroys it. Both sides
// write, then read what the other wrote, with sequential consistency: one of them always sees the other.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/in_place.hpp"
#include "gdrapi.h"
#include "gdrapi/session.hpp"

namespace gigabar::gdrapi {

struct Slot {
  static constexpr std::size_t kCounterCount = 8;
  struct alignas(64) Counter {
    std::atomic<std::uint32_t> copies{0};
  };

  std::array<Counter, kCounterCount> counters;  // copies in flight, and callers that find out that they may not copy
  std::atomic<std::size_t> mapped_bytes{0};     // 0: not mapped. Else handle and pin are constant until the counters are zero
  unsigned long handle = 0;                     // now or last in this slot; 0: never used
  std::unique_ptr<const Pin> pin;               // null: the slot is free
  gdr_t session = nullptr;
  std::size_t asked_bytes = 0;  // size of the gdr_map
  bool is_retired = false;      // unpinned, waiting for copies to leave
  Slot* next_free = nullptr;
};

class Table : InPlace {
 public:
  // The process's table. Made on first use and never destroyed: threads of the program may copy until the very end.
  static Table& instance();

  Table();

  // All return 0 or a positive errno. Threads: any.

  gdr_t open(const Session& session);  // never null; throws bad_alloc
  int find(gdr_t g, Session& session);
  // Withdraws and destroys every pin of the session, then forgets it.
  int close(gdr_t g);

  // On failure the pin is destroyed.
  int insert(gdr_t g, std::unique_ptr<const Pin> pin, gdr_mh_t& handle);
  int remove(gdr_t g, gdr_mh_t handle);

  int describe(gdr_t g, gdr_mh_t handle, gdr_info_v2_t& info);
  int map(gdr_t g, gdr_mh_t handle, std::size_t bytes, gdr_mapping_type_t required, void*& address);
  int unmap(gdr_t g, gdr_mh_t handle, const void* address, std::size_t bytes);

 private:
  friend class CopyGuard;
  static constexpr std::size_t kSlotsPerChunk = 64;
  static constexpr unsigned kSlotBits = 20;
  static constexpr std::size_t kSlotCount = std::size_t{1} << kSlotBits;
  struct Chunk {
    std::array<Slot, kSlotsPerChunk> slots;
  };

  Slot* slot_of(unsigned long handle) const noexcept;
  Slot* take_free_slot();
  int check_session(gdr_t g) const;
  int check(gdr_t g, gdr_mh_t handle, Slot*& slot) const;
  std::unique_ptr<const Pin> retire(Slot& slot) noexcept;
  std::unique_ptr<const Pin> reclaim(Slot& slot) noexcept;
  void leave(Slot& slot) noexcept;

  std::mutex mutex_;
  std::map<gdr_t, Session> sessions_;
  std::uint64_t session_count_ = 0;  // ever opened
  std::size_t slot_count_ = 0;       // ever used; they lie in the first chunks
  Slot* free_slots_ = nullptr;
  std::array<std::atomic<Chunk*>, kSlotCount / kSlotsPerChunk> chunks_{};
};

// The right to copy through a handle's mapping for as long as the guard lives. Takes no lock.
class CopyGuard : InPlace {
 public:
  CopyGuard(Table& table, gdr_mh_t handle) noexcept;
  ~CopyGuard();

  // 0 when `bytes` bytes at `address` may be copied; then `offset_bytes` is where in the mapping they lie.
  int check(const void* address, std::size_t bytes, std::size_t& offset_bytes) const noexcept;
  const Mapping& mapping() const noexcept { return slot_->pin->mapping; }  // only after check() gave 0

 private:
  Table& table_;
  Slot* slot_;
  std::atomic<std::uint32_t>* copies_ = nullptr;
  std::size_t mapped_bytes_ = 0;  // 0: not mapped, or not this handle
};

}  // namespace gigabar::gdrapi
