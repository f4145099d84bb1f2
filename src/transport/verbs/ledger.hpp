// SPDX-License-Identifier: Apache-2.0
// What a send queue and its peer's receives have room for, and which work is under way: plain counting, no library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "gigabar/status.hpp"

namespace gigabar::transport::rdma {

inline constexpr unsigned kCredits = 64;         // receives that a peer may fill with messages, at most
inline constexpr unsigned kFirstCredits = 16;    // at first: receives are used in turn, and few of them stay in the caches
inline constexpr unsigned kControlReceives = 4;  // besides: the hello, and at most three messages of credits at a time
inline constexpr unsigned kReceives = kCredits + kControlReceives;
inline constexpr unsigned kWorkRequests = 256;   // of the send queue
inline constexpr unsigned kControlRequests = 8;  // of them, kept for hello, credits and the probe
inline constexpr unsigned kSendSlots = 32;       // messages under way that are too long for inline
inline constexpr unsigned kControlSlots = 4;     // besides, where the device has no inline
inline constexpr unsigned kOperations = 128;     // writes and reads under way
inline constexpr unsigned kMaxPieces = 16;       // work requests of one of them

// What a completion stands for: in the work request's id.
enum class WorkKind : std::uint8_t { ordered = 1, read = 2, probe = 3, receive = 4, atomic = 5, barrier = 6 };
constexpr std::uint64_t work_id(WorkKind kind, std::uint64_t number) noexcept {
  return static_cast<std::uint64_t>(kind) << 56 | (number & 0xff'ffff'ffff'ffff);
}
constexpr WorkKind kind_of(std::uint64_t id) noexcept { return static_cast<WorkKind>(id >> 56); }
constexpr std::uint64_t number_of(std::uint64_t id) noexcept { return id & 0xff'ffff'ffff'ffff; }

// Messages and writes: they complete in the order in which they were posted, so the completion of one retires all before it, also
// those that were not signalled. Reads are counted only: on siw they complete when the answer comes, after later sends.
class Ledger {
 public:
  static constexpr std::uint16_t kNoOperation = 0xffff;
  struct Entry {
    std::uint16_t operation = kNoOperation;
    bool has_slot = false;
  };

  bool has_room(unsigned requests) const noexcept { return in_use_ + requests <= kWorkRequests - kControlRequests; }
  bool has_control_room() const noexcept { return in_use_ < kWorkRequests; }
  unsigned in_use() const noexcept { return in_use_; }
  // So many from the beginning.
  std::uint64_t retired_count() const noexcept { return retired_; }
  std::uint64_t posted_count() const noexcept { return posted_; }

  // The number of the entry.
  std::uint64_t add(Entry entry) noexcept {
    entries_[posted_ % kWorkRequests] = entry;
    ++in_use_;
    return posted_++;
  }
  // Takes back the entry that was added last: its post was refused.
  void take_back() noexcept {
    --posted_;
    --in_use_;
  }
  void add_read() noexcept { ++in_use_; }
  void retire_read() noexcept { --in_use_; }

  // Calls `retired(entry)` for `number` and all before it; false when nothing of that number is under way.
  template <class Function>
  bool retire_up_to(std::uint64_t number, Function&& retired) {
    if (number < retired_ || number >= posted_) return false;
    while (retired_ <= number) {
      const Entry entry = entries_[retired_ % kWorkRequests];
      ++retired_;
      --in_use_;
      retired(entry);
    }
    return true;
  }

 private:
  std::array<Entry, kWorkRequests> entries_{};
  std::uint64_t posted_ = 0, retired_ = 0;
  unsigned in_use_ = 0;
};

// The peer's receives that may still be filled, and ours that it has not been told of. No message is ever sent without a credit:
// iWARP ends a connection that runs out of receives. A message of credits needs none; there are never more than three of them in
// the peer's receives, because each returns half of all credits there were, of which those told after it grew return half of more.
class Credits {
 public:
  bool can_send() noexcept {
    is_short_ = is_short_ || ours_ == 0;
    return ours_ > 0;
  }
  // Whether there was none since it was asked last: the peer is told, and gives more.
  bool take_shortage() noexcept { return std::exchange(is_short_, false); }
  void take() noexcept { --ours_; }
  void give_back() noexcept { ++ours_; }
  // False: the peer returned more than there are.
  bool returned(unsigned count) noexcept {
    if (count > kCredits - ours_) return false;
    ours_ += count;
    return true;
  }

  // How many receives may wait to be posted anew together, far below what the peer must hear of.
  unsigned most_unposted() const noexcept { return granted_ / 4; }
  void reposted(unsigned count) noexcept { owed_ += count; }
  unsigned owed() const noexcept { return owed_; }
  bool must_return() const noexcept { return owed_ >= granted_ / 2; }
  void told(unsigned count) noexcept { owed_ -= count; }
  // How many receives are to be posted besides for a peer that ran short, each of which is then told as reposted(); 0 the next
  // time: for good, because who once sends faster than receives come back is likely to do so again.
  unsigned grow() noexcept { return kCredits - std::exchange(granted_, kCredits); }

 private:
  unsigned ours_ = kFirstCredits;
  unsigned granted_ = kFirstCredits;
  unsigned owed_ = 0;
  bool is_short_ = false;
};

// One write or read of the caller, made of pieces.
struct OperationState {
  std::uint64_t cookie = 0;
  unsigned pieces_left = 0;  // 0: not in use
  bool fills_gpu = false;    // a read into GPU memory
};

// The operations under way.
class Operations {
 public:
  Operations() noexcept {
    for (std::uint16_t i = 0; i < kOperations; ++i) free_[i] = static_cast<std::uint16_t>(kOperations - 1 - i);
  }
  bool has_room() const noexcept { return free_count_ > 0; }
  std::uint16_t add(const OperationState& operation) noexcept {
    const std::uint16_t index = free_[--free_count_];
    all_[index] = operation;
    return index;
  }
  OperationState* find(std::uint64_t index) noexcept {
    return index < kOperations && all_[index].pieces_left > 0 ? &all_[index] : nullptr;
  }
  // True when that was the last piece: the operation is no longer there.
  bool finish_piece(std::uint16_t index) noexcept {
    if (--all_[index].pieces_left > 0) return false;
    free_[free_count_++] = index;
    return true;
  }
  void drop(std::uint16_t index) noexcept {
    all_[index].pieces_left = 0;
    free_[free_count_++] = index;
  }

 private:
  std::array<OperationState, kOperations> all_{};
  std::array<std::uint16_t, kOperations> free_{};
  unsigned free_count_ = kOperations;
};

}  // namespace gigabar::transport::rdma
