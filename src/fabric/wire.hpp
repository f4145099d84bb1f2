// SPDX-License-Identifier: Apache-2.0
// What the engines of two ranks say to each other: messages over links, in 32 bytes and a payload, and frames over channels.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "transport/transport.hpp"

namespace gigabar::fabric {

inline constexpr std::uint32_t kEngineVersion = 11;
inline constexpr std::size_t kMaxReasonBytes = 500;  // of an address: why some transports are not open
inline constexpr std::uint8_t kNoQueue = 0xff;       // of writes that answer a peer: their refusal is that peer's own matter

enum class MessageType : std::uint8_t {
  put = 1,      // payload to (segment, a = offset); notification as below
  notify,       // notification as below
  place,        // payload to (segment, a = offset), behind what a notification would be behind; c as below
  mark,         // on a further rail: everything before it on that rail is in place; a = fence number
  fence,        // on the first rail: go on when `count` marks of fence number a are in
  stage_open,   // a staged write begins: a = operation, b = offset, c = bytes, segment; payload: chunk size (0: the link places the
                // chunks, nothing is granted, and stage_end follows them), number
  stage_grant,  // to the writer: a = operation, b = offset in the staging region
  stage_chunk,  // a = operation, b = (offset in the staging region, bytes), c = offset in the segment
  stage_end,    // a staged write that the link places: everything of it was before this; c = number
  stage_abort,  // to the writer: a = operation; payload: why
  get,          // a = reader's operation, b = offset here, c = bytes; segment; payload: reader's segment, offset, policy, chunk
  get_done,     // to the reader: a = operation, b = Status
  eager,        // a message with its bytes: a = tag
  rendezvous_request,  // RTS: a message whose bytes wait: a = tag, b = sender's operation, c = bytes
  rendezvous_reply,    // CTS, to the sender: a = sender's operation, b = receiver's operation, segment, c = bytes that are wanted;
                       // payload: offset, the segment's description as in kSegmentKey or nothing
  rendezvous_done,     // to the receiver: a = receiver's operation, b = Status
  rendezvous_cancelled,  // to the receiver: a = sender's operation, whose request is void
  eager_taken,           // to the sender: a = bytes of eager messages that left the receiver's memory
  ping,                  // a = number, or kWindowPing: answer when everything before is in place
  pong,                  // a = number
  atomic,                // a = offset, b = value, c = expected, segment, count = AtomicKind; payload: request
  atomic_done,           // a = old value, b = Status, c = request
  revoked,               // nothing of this rank is under way to (segment, epoch) any more
  refused,               // a put or notification named a segment that is not there: segment, queue, b = Status
  collective,            // payload: part of a collective; a = group's hash, b = sequence, c = round
  wake_me,               // this rank goes to sleep, where words wake nobody
  wake                   // a word was written since the last one, or before this
};

// Of pings by which a writer learns how much of what it said is still held: see Engine::is_too_far_ahead().
inline constexpr std::uint64_t kWindowPing = std::uint64_t{1} << 63;

enum class AtomicKind : std::uint8_t { fetch_add, compare_swap };
enum MessageFlags : std::uint8_t { kHasNotification = 1, kAddsNotification = 2, kDiscard = 4 };

inline transport::WordKind word_kind(std::uint8_t flags) noexcept {
  return (flags & kAddsNotification) != 0 ? transport::WordKind::add : transport::WordKind::set;
}

// The header of every message. Where a message has a notification, `b` holds its id and value, and `c` the number of the last
// staged write that has to be in place before; other messages use b and c as they are.
struct Message {
  MessageType type = MessageType::put;
  std::uint8_t flags = 0;
  SegmentId segment = 0;
  std::uint8_t queue = 0;
  std::uint8_t count = 0;
  std::uint16_t epoch = 0;  // of the segment, as its key told
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;

  static constexpr std::uint64_t pair(std::uint32_t low, std::uint32_t high) noexcept { return std::uint64_t{high} << 32 | low; }
  std::uint32_t low_b() const noexcept { return static_cast<std::uint32_t>(b); }
  std::uint32_t high_b() const noexcept { return static_cast<std::uint32_t>(b >> 32); }
  NotificationId notification() const noexcept { return low_b(); }
  std::uint32_t value() const noexcept { return high_b(); }
  std::uint64_t staged() const noexcept { return c; }
};
static_assert(sizeof(Message) == transport::kHeaderBytes);

inline transport::Header pack(const Message& message) noexcept {
  transport::Header header;
  std::memcpy(header.data(), &message, sizeof message);
  return header;
}
// What a peer says of an operation. A number that is no status is an error all the same.
inline Status status_of(std::uint64_t said) noexcept {
  const auto number = static_cast<std::uint8_t>(said);
  return number <= static_cast<std::uint8_t>(Status::foreign_process) ? static_cast<Status>(number) : Status::unavailable;
}
inline std::string_view text_of(std::span<const std::byte> payload) noexcept {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}
inline Message unpack(const transport::Header& header) noexcept {
  Message message;
  std::memcpy(&message, header.data(), sizeof message);
  return message;
}

enum FrameType : std::uint16_t {
  kHello = 1,    // version, limits, the sender's address
  kLinkOffer,    // transport, rail, number of the link; parcel
  kLinkAnswer,   // number of the link; parcel, or why not
  kNoTransport,  // what was tried, and why it failed
  kSegmentAsk,
  kSegmentKey,     // id, epoch, bytes, kind, its key and that of its notifications
  kSegmentAbsent,  // id; why
  kSegmentRevoke,  // id, epoch
  kFarewell
};

}  // namespace gigabar::fabric
