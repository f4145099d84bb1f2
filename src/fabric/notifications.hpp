// SPDX-License-Identifier: Apache-2.0
// The notifications of a segment: words in registered memory of their own, which peers write by themselves.
//
// Their keys travel with the segment's. Peers that cannot write them ask in a message, and this rank's thread writes the word. What
// is seen of a notification is its value and what adapters have counted since this rank took it last; see transport.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/in_place.hpp"
#include "gigabar/types.hpp"
#include "transport/transport.hpp"

namespace gigabar::fabric {

inline constexpr std::string_view kWordsAreOff = "notification_words is off (GIGABAR_NOTIFICATION_WORDS)";

// Pages of one memory file for the words of all segments, so that a fabric needs one descriptor for them. Each place in the file is
// used once: what a process that was given up still writes goes nowhere.
class WordPages {
 public:
  struct Taken {
    std::shared_ptr<std::byte> memory;  // zeros; unmapped, and given back to the kernel, with the last reference
    int descriptor = -1;                // kept by `memory`; -1: of no file
    std::uint64_t offset_bytes = 0;
    std::string why_no_file;
  };
  // Pages that nobody touches take no memory. Where there is no memory file they are this process's alone. Errors: out_of_memory.
  Result<Taken> take(std::size_t wanted_bytes);  // whole pages of them

 private:
  std::shared_ptr<const Descriptor> file_;
  std::uint64_t used_bytes_ = 0;
};

class Notifications : InPlace {
 public:
  // kNotifications, all 0. Errors: out_of_memory.
  static Result<std::unique_ptr<Notifications>> make(WordPages& pages);
  ~Notifications();

  // For peers of that transport, once: what it does not take is in `why_not`. Adapters pin the words that they may write.
  void register_with(transport::Transport& transport);

  // The following by threads that have the engine's lock, or a lock of WordReaders while no adapter counts; peers write at any
  // time.
  struct Seen {
    std::uint32_t stored = 0;
    std::uint32_t counted = 0;  // by adapters, since it was taken
    std::uint32_t value() const noexcept { return stored + counted; }
    bool is_at_least(std::uint32_t value) const noexcept { return std::uint64_t{stored} + counted >= value; }
  };
  Seen look(NotificationId id) const noexcept { return {stored_at(id).load(std::memory_order_acquire), counted(id)}; }
  // Sets it to 0; what was counted since it was seen stays. False: another value has been stored since.
  bool take_all(NotificationId id, Seen seen) noexcept;
  // Subtracts `value`; false: it is less.
  bool take(NotificationId id, std::uint32_t value) noexcept;
  void raise(transport::WordKind kind, NotificationId id, std::uint32_t value) noexcept;

  std::array<std::unique_ptr<transport::Region>, kTransportKinds> regions;
  std::array<std::string, kTransportKinds> why_not;

 private:
  explicit Notifications(WordPages::Taken pages) noexcept : pages_(std::move(pages)) {}
  std::atomic_ref<std::uint32_t> stored_at(NotificationId id) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(pages_.memory.get() + transport::word_value_at(id)));
  }
  std::uint32_t counted(NotificationId id) const noexcept {
    if (!has_counters_ || id >= transport::kCountedWords) return 0;
    const auto* const counter = reinterpret_cast<std::uint64_t*>(pages_.memory.get() + transport::word_counter_at(id));
    return static_cast<std::uint32_t>(__atomic_load_n(counter, __ATOMIC_ACQUIRE)) - taken_[id];
  }

  const WordPages::Taken pages_;
  bool has_counters_ = false;                                    // adapters may count
  std::array<std::uint32_t, transport::kCountedWords> taken_{};  // of each counter; not in memory that peers write
};

}  // namespace gigabar::fabric
