// SPDX-License-Identifier: Apache-2.0
// What threads look at notifications with while another thread has the engine's lock.
//
// Of threads that wait for words one polls for all, and would give the lock to each of the others for every look. Therefore each
// thread keeps the segment that it waits in here, and looks at its words under a lock that it shares with few others.
//
// Locks, in the order in which they are taken: the engine's; a reader's. A thread with a reader's lock takes no other one. Readers
// are opened and closed with both, so that the words are there for as long as a reader's lock is held, and behind close() nobody
// looks at them any more.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/clock.hpp"
#include "base/fair_mutex.hpp"
#include "fabric/notifications.hpp"
#include "fabric/waiting.hpp"
#include "gigabar/types.hpp"

namespace gigabar::fabric {

class WordReaders {
 public:
  // With the engine's lock. For the calling thread, and those that share its reader.
  void open(SegmentId id, Notifications& notifications) noexcept {
    Reader& reader = own();
    if (reader.notifications.load(std::memory_order_relaxed) == &notifications) return;
    const std::lock_guard guard(reader.mutex);
    reader.id = id;
    reader.notifications.store(&notifications, std::memory_order_relaxed);
  }
  // With the engine's lock.
  void close(const Notifications& notifications) noexcept {
    for (Reader& reader : readers_) {
      if (reader.notifications.load(std::memory_order_relaxed) != &notifications) continue;
      const std::lock_guard guard(reader.mutex);
      reader.notifications.store(nullptr, std::memory_order_relaxed);
    }
  }

  // Without a lock: what `look(notifications)` of that segment returns; nothing: this thread has not opened it.
  template <class Look>
  std::optional<bool> look(SegmentId id, const Look& look) noexcept {
    Reader& reader = own();
    if (reader.notifications.load(std::memory_order_relaxed) == nullptr) return std::nullopt;
    const std::lock_guard guard(reader.mutex);
    Notifications* const notifications = reader.notifications.load(std::memory_order_relaxed);
    if (notifications == nullptr || reader.id != id) return std::nullopt;
    return look(*notifications);
  }
  // Looks as long as one of `pollers` has the engine's lock, for a while; then takes it. Owns nothing: `look` has returned true.
  template <class Look>
  std::unique_lock<FairMutex> look_or_lock(SegmentId id, const Timeout& timeout, FairMutex& engine,
                                           const std::atomic<std::uint32_t>& pollers, const Look& look) noexcept {
    const std::int64_t most_ns = timeout.is_forever() ? kSpinNs : std::min(timeout.ns(), kSpinNs);
    std::int64_t end_ns = most_ns;
    for (unsigned turn = 1; end_ns != 0; ++turn) {
      const std::optional<bool> is_over = this->look(id, look);
      if (!is_over) break;
      if (*is_over) return {};
      if (pollers.load(std::memory_order_relaxed) == 0) {
        std::unique_lock taken(engine, std::try_to_lock);
        if (taken.owns_lock()) return taken;
      }
      if (turn % kPollsPerLook != 0) continue;
      const std::int64_t now = now_ns();
      if (end_ns == most_ns) end_ns = now + most_ns;
      if (now >= end_ns) break;
    }
    return std::unique_lock(engine);
  }

 private:
  static constexpr std::size_t kReaders = 16;
  struct alignas(128) Reader {
    FairMutex mutex;
    std::atomic<Notifications*> notifications{nullptr};  // null: none
    SegmentId id = 0;
  };

  // Threads get them in turn.
  Reader& own() noexcept {
    static std::atomic<std::size_t> last{0};
    thread_local const std::size_t index = last.fetch_add(1, std::memory_order_relaxed) % kReaders;
    return readers_[index];
  }

  std::array<Reader, kReaders> readers_;
};

}  // namespace gigabar::fabric
