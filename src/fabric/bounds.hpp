// SPDX-License-Identifier: Apache-2.0
// How much an engine remembers, and how much of it peers can cause.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/types.hpp"

namespace gigabar::fabric {

inline constexpr std::size_t kMaxMessages = 65536;  // posted and not waited for

// What a peer can make this rank remember. One that keeps to the protocol has no more under way; who goes beyond is lost with an
// error that says so.
inline constexpr std::size_t kMaxOutbox = std::size_t{1} << 20;       // answers that it does not take
inline constexpr std::size_t kMaxMarks = 65536;                       // of fences that did not come yet
inline constexpr std::size_t kMaxHeldBytes = std::size_t{256} << 20;  // behind marks and staged writes
inline constexpr std::size_t kMaxAheadBytes = kMaxHeldBytes / 4;      // the writer's: a quarter, answers come on top
inline constexpr std::size_t kMaxPosted = std::size_t{kQueues} * kQueueDepth;
// Reads. Twice what can be posted: who has heard that a read is over may ask for another before this rank has looked at the
// completion of its write.
inline constexpr std::size_t kMaxAnswers = 2 * kMaxPosted;
// Staged writes: of messages, of queues, and those that answer this rank's reads.
inline constexpr std::size_t kMaxStaged = kMaxMessages + kMaxPosted + kMaxAnswers;
inline constexpr std::size_t kMaxSaidBytes = 2000;  // of a reason that a peer gives
inline constexpr std::size_t kMaxParts = 16384;     // of collectives that this rank has not come to
// Decisions of which each has a text of its own, with reasons that peers give. What comes after has none.
inline constexpr std::size_t kMaxChoices = 4096;
inline constexpr std::size_t kRecords = 4096;  // for report(), of the operations posted last

constexpr bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t length) noexcept {
  return offset <= length && bytes <= length - offset;
}

}  // namespace gigabar::fabric
