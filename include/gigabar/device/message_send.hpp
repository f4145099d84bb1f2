// SPDX-License-Identifier: Apache-2.0
// Messages: what the sender does. Include message.hpp, which says what is promised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gigabar/device/fabric.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/message_line.hpp"
#include "gigabar/device/message_ring.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

#if !defined(__CUDA_ARCH__)
#include <cstring>
#endif

namespace gigabar::inline v0::device {

namespace detail {

struct Credit {
  Status status;
  std::uint64_t lines;
};

// Waits until the receiver has emptied `least` lines. Called only when the known credit is not enough. Everything goes by value, so
// that the caller's ring stays in registers.
template <class Scope>
GIGABAR_DEVICE_CALLED Credit await_credit(Scope scope, const std::uint64_t* word, const std::uint32_t* peer, std::uint64_t least,
                                          Timeout timeout) {
  Status status = Status::ok;
  std::uint64_t credit = 0;
  if (scope.rank() == 0) {
    status = await(peer, nullptr, timeout, [&] {
      credit = load_acquire(word);
      return credit >= least;
    });
    // A receiver that was lost gives no more credit: the sender need not fill the ring to notice.
    if (status == Status::ok) status = status_at(peer);
  }
  credit = patient(scope, timeout).broadcast(credit);
  return {agree(scope, status), credit};
}

// Waits for credit where there is not known to be room for so many lines.
template <class Scope, class Line>
GIGABAR_DEVICE Status make_room(const Scope& scope, BasicSendRing<Line>& ring, std::uint32_t lines, Timeout timeout) {
  if (ring.pending() + lines <= ring.line_count()) return Status::ok;
  const std::uint64_t least = ring.position() + lines - ring.line_count();
  const Credit known = await_credit(scope, ring.credit(), ring.status(), least, timeout);
  if (known.status == Status::ok) ring.know(known.lines);
  return known.status;
}

// How many lines a thread loads before it looks at the first: their round trips to the memory overlap.
inline constexpr std::uint32_t kLinesAtOnce = 4;

// Bytes of a piece before line k; of the first line a number that is not below any piece's size.
template <class Line>
GIGABAR_DEVICE constexpr std::uint32_t bytes_before(std::uint32_t k) {
  return (k * Line::kWords - 1) * kWordBytes;
}
// Lines of a piece that have no less than a line's words of it, the first one counted.
template <class Line>
GIGABAR_DEVICE constexpr std::uint32_t full_lines_of(std::uint32_t bytes) {
  return (bytes / kWordBytes + 1) / Line::kWords;
}

// The words of a message in memory of any type: at an address that is a multiple of 4, with a size that is one.
struct WholeWords {
  const std::byte* bytes;

  GIGABAR_DEVICE std::uint32_t operator()(std::uint32_t i) const {
    std::uint32_t word;
    memcpy(&word, __builtin_assume_aligned(bytes + std::size_t{i} * sizeof word, sizeof word), sizeof word);
    return word;
  }
};

// Words from `first` on; word -1, before the first line's data, is asked for by nobody.
template <class Words>
GIGABAR_DEVICE auto words_from(const Words& words, std::uint32_t first) {
  return [&words, first](std::uint32_t i) { return words(first + i); };
}
// One address for the words of a line; that of word -1, and of no words at all, points nowhere.
GIGABAR_DEVICE WholeWords words_from(const WholeWords& words, std::uint32_t first) {
  const auto skip = static_cast<std::uintptr_t>(std::int64_t{static_cast<std::int32_t>(first)} * kWordBytes);
  return {reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(words.bytes) + skip)};
}

// Once for all words, also where each is loaded under a condition of its own.
template <class Words>
GIGABAR_DEVICE void compute_address_now(Words&) {}
GIGABAR_DEVICE void compute_address_now(WholeWords& words) { compute_now(words.bytes); }

// The words of line k of a piece, where it has them; `words(i)` is word i of the message, and `first_word` of them are before the
// piece.
template <class Line, class Words>
GIGABAR_DEVICE void load_line(std::uint32_t k, std::uint32_t piece, std::uint32_t first_word, const Words& words,
                              std::uint32_t (&line)[Line::kWords]) {
  const std::uint32_t begin = bytes_before<Line>(k);
  auto own = words_from(words, first_word + k * Line::kWords - 1);
  compute_address_now(own);
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    if (begin + j * kWordBytes < piece) line[j] = own(j);
  }
}

// Whether one thread of a CPU has all lines: it stores and loads them in runs.
template <class Scope, class Line>
inline constexpr bool kHasRuns =
#if defined(__CUDA_ARCH__)
    false;
#else
    std::is_same_v<Scope, Thread> && std::is_same_v<Line, SplitLine>;
#endif

// Stores the lines of a piece behind those that every thread has stored, one each.
template <class Scope, class Line, class Words>
GIGABAR_DEVICE void store_more(const Scope& scope, const BasicSendRing<Line>& ring, std::uint32_t piece, std::uint32_t first_word,
                               const Words& words) {
  constexpr std::uint32_t kWords = Line::kWords;
  const std::uint32_t step = scope.size(), full = full_lines_of<Line>(piece), count = BasicRing<Line>::lines_of(piece);
  std::uint32_t k = scope.rank() + step;
  if constexpr (kHasRuns<Scope, Line> && std::is_same_v<Words, WholeWords>) {
    for (std::uint32_t run = 0; k < full; k += run) {
      run = ring.run_of(k, full);
      Line::store_run(ring.line(k), words.bytes + std::size_t{first_word} * kWordBytes + bytes_before<Line>(k), run,
                      ring.number(k));
    }
  }
  for (; k < full; k += kLinesAtOnce * step) {
    std::uint32_t lines[kLinesAtOnce][kWords];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
      const auto own = words_from(words, first_word + (k + n * step) * kWords - 1);
      for (std::uint32_t j = 0; j < kWords; ++j) lines[n][j] = k + n * step < full ? own(j) : 0;
    }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
      if (k + n * step < full) Line::store(ring.line(k + n * step), lines[n], ring.number(k + n * step));
    }
  }
  // The last line may have less. The last thread has the least to do.
  if (full == count || full < step || scope.rank() != step - 1) return;
  std::uint32_t line[kWords] = {};
  load_line<Line>(full, piece, first_word, words, line);
  Line::store(ring.line(full), line, ring.number(full));
}

// send_words(), whatever the message.
template <class Scope, class Line, class Word>
GIGABAR_DEVICE Status send_pieces(const Scope& scope, BasicSendRing<Line>& ring, std::uint64_t bytes, const Word& word,
                                  Timeout timeout, Order order) {
  if (bytes > kMaxMessageBytes) return Status::out_of_range;
  if (ring.done_bytes != 0 && ring.message_bytes != bytes) return Status::invalid_argument;
  if (order == Order::after_writes) {
    if (!sync_all(scope)) return Status::timed_out;
    if (scope.rank() == 0) fence_system();
  }
  while (true) {
    const std::uint32_t left = static_cast<std::uint32_t>(bytes) - ring.done_bytes;
    const std::uint32_t piece = left < ring.piece_bytes() ? left : ring.piece_bytes();
    const std::uint32_t first_word = ring.done_bytes / kWordBytes, k = scope.rank();
    // A thread's first line is loaded before anything else: its round trip to the memory overlaps with the rest.
    std::uint32_t line[Line::kWords] = {left};
    load_line<Line>(k, piece, first_word, word, line);
    const std::uint32_t lines = BasicRing<Line>::lines_of(piece);
    const Status status = make_room(scope, ring, lines, timeout);
    if (status != Status::ok) return status;
    if (k < lines) Line::store(ring.line(k), line, ring.number(k));
    if (lines > scope.size()) store_more(scope, ring, piece, first_word, word);
    Line::flush();
    ring.pass(lines);
    if (piece == left) break;
    ring.message_bytes = static_cast<std::uint32_t>(bytes);
    ring.done_bytes += piece;
  }
  ring.done_bytes = 0;
  return Status::ok;
}

// What a function did that got its ring by value, so that the caller's stays in registers.
template <class Ring>
struct Called {
  Status status;
  Ring ring;
  std::uint64_t bytes;
};

template <class Scope, class Line, class Word>
GIGABAR_DEVICE_CALLED Called<BasicSendRing<Line>> send_pieces_called(Scope scope, BasicSendRing<Line> ring, std::uint64_t bytes,
                                                                     Word word, Timeout timeout, Order order) {
  const Status status = send_pieces(scope, ring, bytes, word, timeout, order);
  return {status, ring, bytes};
}

// A message of one piece, for which there is room.
template <class Scope, class Line, class Words>
GIGABAR_DEVICE void send_at_once(const Scope& scope, BasicSendRing<Line>& ring, std::uint32_t bytes, const Words& words) {
  const std::uint32_t k = scope.rank();
  std::uint32_t line[Line::kWords] = {bytes};
  load_line<Line>(k, bytes, 0, words, line);
  if (k == 0 || bytes_before<Line>(k) < bytes) Line::store(ring.line(k), line, ring.number(k));
  if (bytes > bytes_before<Line>(scope.size())) store_more(scope, ring, bytes, 0, words);
  Line::flush();
  ring.pass(BasicRing<Line>::lines_of(bytes));
}

}  // namespace detail

// Sends `bytes`, of which `word(i)` is the word i, in the byte order of the memory; what it returns beyond `bytes` is ignored. Any
// thread of the scope asks for any word, perhaps again when the call is repeated. `word` is copied; what it captures by value stays
// in registers.
// Nobody waits for the receiver while there is room in the ring. When it returns, every thread has issued its own part.
// A message of several pieces waits up to the timeout for each.
// Errors: timed_out (no room in time; repeat the call with equal arguments to continue), peer_lost, out_of_range (longer than
// kMaxMessageBytes), invalid_argument (another size than the call before, which timed out). A message that fits a piece, and that
// did not return ok, was not sent at all. The loss of the receiver is noticed when new credit is needed.
template <class Scope, class Line, class Word>
GIGABAR_DEVICE Status send_words(const Scope& scope, BasicSendRing<Line>& ring, std::uint64_t bytes, const Word& word,
                                 Timeout timeout, Order order = Order::none) {
  if (bytes < ring.room_bytes() && ring.done_bytes == 0 && order == Order::none) {
    detail::send_at_once(scope, ring, static_cast<std::uint32_t>(bytes), word);
    return Status::ok;
  }
  const auto called = detail::send_pieces_called(scope, ring, bytes, word, timeout, order);
  ring = called.ring;
  return called.status;
}

namespace detail {

GIGABAR_DEVICE bool are_whole_words(const void* address, std::uint64_t bytes = 0) {
  return (reinterpret_cast<std::uintptr_t>(address) | bytes) % kWordBytes == 0;
}

// send(), whatever the message.
template <class Scope, class Line>
GIGABAR_DEVICE_CALLED Called<BasicSendRing<Line>> send_any(Scope scope, BasicSendRing<Line> ring, const std::byte* source,
                                                           std::uint64_t bytes, Timeout timeout, Order order) {
  if (are_whole_words(source, bytes)) {
    const Status status = send_pieces(scope, ring, bytes, WholeWords{source}, timeout, order);
    return {status, ring, bytes};
  }
  const auto word_of_bytes = [=](std::uint64_t i) {
    std::uint32_t word = 0;
    for (std::uint32_t b = 0; b < sizeof word && i * sizeof word + b < bytes; ++b) {
      word |= static_cast<std::uint32_t>(source[i * sizeof word + b]) << 8 * b;
    }
    return word;
  };
  const Status status = send_pieces(scope, ring, bytes, word_of_bytes, timeout, order);
  return {status, ring, bytes};
}

// A value of up to 8 bytes as two words, and back.
template <class T>
GIGABAR_DEVICE std::uint64_t bits_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
GIGABAR_DEVICE T value_of_bits(std::uint64_t bits) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace detail

// Sends `bytes` at `source`: any address and size, fastest where both are multiples of 4. The memory may change after the call and
// scope.sync(). Errors: as send_words.
template <class Scope, class Line>
GIGABAR_DEVICE Status send(const Scope& scope, BasicSendRing<Line>& ring, const void* source, std::uint64_t bytes, Timeout timeout,
                           Order order = Order::none) {
  // In place: one piece of whole words, for which there is room.
  const auto* const from = static_cast<const std::byte*>(source);
  if (detail::are_whole_words(from, bytes) && bytes < ring.room_bytes() && ring.done_bytes == 0 && order == Order::none) {
    detail::send_at_once(scope, ring, static_cast<std::uint32_t>(bytes), detail::WholeWords{from});
    return Status::ok;
  }
  const auto called = detail::send_any(scope, ring, from, bytes, timeout, order);
  ring = called.ring;
  return called.status;
}

// Sends a value of up to 8 bytes, that of the thread of rank 0: one line between GPUs. Errors: as send_words.
template <class Scope, class Line, class T>
GIGABAR_DEVICE Status send_value(const Scope& scope, BasicSendRing<Line>& ring, const T& value, Timeout timeout,
                                 Order order = Order::none) {
  std::uint64_t bits = detail::bits_of(value);
  if constexpr (sizeof(T) <= kFirstBytes<Line>) {
    // In place: one line, for which there is room.
    if (ring.room_bytes() > sizeof value && ring.done_bytes == 0 && order == Order::none) {
      std::uint32_t line[Line::kWords] = {sizeof value};
      for (std::uint32_t j = 1; j < Line::kWords; ++j) line[j] = static_cast<std::uint32_t>(bits >> 32 * (j - 1));
      if (scope.rank() == 0) Line::store(ring.first_line(), line, ring.first_number());
      Line::flush();
      ring.pass(1);
      return Status::ok;
    }
  }
  if constexpr (sizeof(T) > kFirstBytes<Line>) bits = scope.broadcast(bits);  // another thread stores its second line
  const auto word = [bits](std::uint64_t i) { return static_cast<std::uint32_t>(bits >> 32 * i); };
  return send_words(scope, ring, sizeof value, word, timeout, order);
}

}  // namespace gigabar::inline v0::device
