// SPDX-License-Identifier: Apache-2.0
// One direction of a link: a ring of records in memory that two processes map, with one producer and one consumer.
//
// A record begins at a line of 64 bytes: a presence word, the header, the payload. A message of up to kQuickPayloadBytes is one
// line. The ring is mapped twice, one copy behind the other, so every record is one range.
//
// Ordering: the producer first clears the presence word of the line behind its record, then writes the record, then stores its
// presence word (release). The consumer loads the word where the next record must begin (acquire): either it is 0, or the record is
// whole and the word behind it is clear. Old bytes can therefore never pass for a record. One free line is kept for that word.
//
// Everything in this memory may be written by the peer at any time. Both halves keep their own position in private memory, and what
// they read here is bounded before it is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/transport.hpp"

namespace gigabar::transport::local {

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::uint32_t kRingLines = 16384;
inline constexpr std::size_t kRingBytes = kRingLines * kLineBytes;
inline constexpr std::size_t kMaxPayloadBytes = 65536;
inline constexpr std::size_t kRecordHeadBytes = sizeof(std::uint64_t) + kHeaderBytes;
inline constexpr std::size_t kQuickPayloadBytes = kLineBytes - kRecordHeadBytes;

// How far the consumer is, in lines since the ring began, modulo 2^32. Alone in its pair of cache lines.
struct alignas(128) RingControl {
  std::atomic<std::uint32_t> consumed_lines{0};  // written by the consumer, read by the producer when it needs room
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

// The presence word: sequence number of the record, a bit that is always set, bytes of payload.
inline constexpr std::uint64_t kPresent = 0x80000000;
constexpr std::uint64_t presence_word(std::uint32_t sequence, std::size_t payload_bytes) noexcept {
  return std::uint64_t{sequence} << 32 | kPresent | payload_bytes;
}
constexpr std::uint32_t lines_of(std::size_t payload_bytes) noexcept {
  return static_cast<std::uint32_t>((kRecordHeadBytes + payload_bytes + kLineBytes - 1) / kLineBytes);
}

inline void prefetch_to_write(const std::byte* address) noexcept {
#if defined(__x86_64__)
  // The builtin makes a prefetch for reading of it, for processors without the instruction; they take it as one that does nothing.
  asm volatile("prefetchw %0" : : "m"(*address));
#else
  __builtin_prefetch(address, 1);
#endif
}

// What both halves share: where the ring is and how far this side is.
class RingHalf {
 public:
  // `data`: the ring, mapped twice. Both sides must begin at the same position, which tests choose to see it wrap.
  RingHalf(std::byte* data, RingControl& control, std::uint32_t first_line = 0, std::uint32_t first_sequence = 0) noexcept
      : data_(data), control_(&control), position_(first_line), sequence_(first_sequence) {}

 protected:
  std::byte* line(std::uint32_t position) const noexcept { return data_ + std::size_t{position % kRingLines} * kLineBytes; }
  std::atomic_ref<std::uint64_t> presence(std::uint32_t position) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(line(position)));
  }

  std::byte* data_;
  RingControl* control_;
  std::uint32_t position_;  // lines since the beginning, modulo 2^32, of which kRingLines is a divisor
  std::uint32_t sequence_;
};

class Producer : public RingHalf {
 public:
  Producer(std::byte* data, RingControl& control, std::uint32_t first_line = 0, std::uint32_t first_sequence = 0) noexcept
      : RingHalf(data, control, first_line, first_sequence), released_(first_line) {}

  // `payload` has at most kMaxPayloadBytes. broken: the consumer's position cannot be.
  Posted post(const Header& header, std::span<const std::byte> payload) noexcept {
    const std::uint32_t lines = lines_of(payload.size());
    if (!has_room(lines) && !refresh()) return Posted::broken;
    if (!has_room(lines)) return Posted::full;
    presence(position_ + lines).store(0, std::memory_order_relaxed);
    std::byte* const record = line(position_);
    std::memcpy(record + sizeof(std::uint64_t), header.data(), kHeaderBytes);
    if (!payload.empty()) std::memcpy(record + kRecordHeadBytes, payload.data(), payload.size());
    presence(position_).store(presence_word(sequence_, payload.size()), std::memory_order_release);
    position_ += lines;
    ++sequence_;
    own_lines_ahead();
    return Posted::ok;
  }

  // Whether the longest message would find room now.
  bool has_room_for_any() noexcept {
    return has_room(lines_of(kMaxPayloadBytes)) || (refresh() && has_room(lines_of(kMaxPayloadBytes)));
  }

 private:
  // The consumer's cache still has the lines of one lap ago. To take them back now, and not while the next message waits for it,
  // makes messages of 2 and 3 lines as fast as those of one: 0.1 us of 0.6 on a Xeon. Not the line that the consumer polls.
  void own_lines_ahead() const noexcept {
    constexpr std::uint32_t kLinesAhead = 3;
    for (std::uint32_t ahead = 1; ahead <= kLinesAhead; ++ahead) prefetch_to_write(line(position_ + ahead));
  }
  bool has_room(std::uint32_t lines) const noexcept { return kRingLines - (position_ - released_) > lines; }
  // False when the position told lies outside what was produced and not yet known to be consumed.
  bool refresh() noexcept {
    const std::uint32_t consumed = control_->consumed_lines.load(std::memory_order_acquire);
    if (position_ - consumed > position_ - released_) return false;
    released_ = consumed;
    return true;
  }

  std::uint32_t released_;  // the consumer's position as far as it is known
};

enum class Taken : std::uint8_t { nothing, message, corrupted };

class Consumer : public RingHalf {
 public:
  using RingHalf::RingHalf;

  bool has_message() const noexcept { return presence(position_).load(std::memory_order_acquire) != 0; }

  // Looks at the next record. `payload` stays in the ring, valid until release().
  Taken take(Header& header, std::span<const std::byte>& payload) noexcept {
    const std::uint64_t word = presence(position_).load(std::memory_order_acquire);
    if (word == 0) return Taken::nothing;
    const std::uint64_t payload_bytes = word & ~kPresent & 0xffffffff;
    if (payload_bytes > kMaxPayloadBytes || word != presence_word(sequence_, payload_bytes)) return Taken::corrupted;
    const std::byte* const record = line(position_);
    std::memcpy(header.data(), record + sizeof(std::uint64_t), kHeaderBytes);
    payload = {record + kRecordHeadBytes, payload_bytes};
    taken_lines_ = lines_of(payload_bytes);
    return Taken::message;
  }

  // Gives the lines of the record last taken back to the producer.
  void release() noexcept {
    position_ += taken_lines_;
    ++sequence_;
    control_->consumed_lines.store(position_, std::memory_order_release);
  }

 private:
  std::uint32_t taken_lines_ = 0;
};

}  // namespace gigabar::transport::local
