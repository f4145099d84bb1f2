// SPDX-License-Identifier: Apache-2.0
// The notifications of a segment: words in registered memory of their own, which peers write by themselves.
//
// Their keys travel with the segment's. Peers that cannot write them ask in a message, and this rank's thread writes the word. What
// is seen of a notification is its value and what adapters have counted since this rank took it last; see transport.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/descriptor.hpp"
#include "gigabar/types.hpp"
#include "transport/transport.hpp"

namespace gigabar::fabric {

class Notifications {
 public:
  // kNotifications, all 0, in pages of a new memory file: those that are never raised are never present. Errors: out_of_memory,
  // out_of_descriptors.
  static Result<std::unique_ptr<Notifications>> make(Descriptor& file);
  ~Notifications();
  Notifications(const Notifications&) = delete;
  Notifications& operator=(const Notifications&) = delete;

  // For peers of that transport; `file` as of make(). What it does not take is in `why_not`.
  void register_with(transport::Transport& transport, const Descriptor& file);

  // The following by threads that have the engine's lock; peers write at any time.
  std::uint32_t value(NotificationId id) const noexcept {
    const std::uint32_t stored = stored_at(id).load(std::memory_order_acquire);
    return has_counters_ ? stored + counted(id) : stored;
  }
  // Sets it to 0; returns what it was. What is raised meanwhile is in the result or stays.
  std::uint32_t reset(NotificationId id) noexcept;
  // Subtracts `value`; false: it is less.
  bool take(NotificationId id, std::uint32_t value) noexcept;
  void raise(transport::WordKind kind, NotificationId id, std::uint32_t value) noexcept;

  std::array<std::unique_ptr<transport::Region>, kTransportKinds> regions;
  std::array<std::string, kTransportKinds> why_not;

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  struct Unmap {
    void operator()(std::byte* memory) const noexcept;
  };

  Notifications() = default;
  std::atomic_ref<std::uint32_t> stored_at(NotificationId id) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(memory_.get() + transport::word_value_at(id)));
  }
  // By adapters, since it was taken.
  std::uint32_t counted(NotificationId id) const noexcept {
    const auto* const counter = reinterpret_cast<std::uint64_t*>(memory_.get() + transport::word_counter_at(id, kNotifications));
    return static_cast<std::uint32_t>(__atomic_load_n(counter, __ATOMIC_ACQUIRE)) - taken_[id];
  }

  std::unique_ptr<std::byte, Unmap> memory_;
  bool has_counters_ = false;                     // adapters may count
  std::unique_ptr<std::uint32_t[], Free> taken_;  // of each counter; not in memory that peers write
};

}  // namespace gigabar::fabric
