// SPDX-License-Identifier: Apache-2.0
// Messages between two kernels, or a kernel and a CPU, whose every line carries its own number: no fence, no flag.
//
// A ring of 16-byte lines lies in the receiver's memory. The sender stores lines of data and a number; the receiver looks at each
// line until it carries the number that it expects. Lines need no order among each other, so no release stands between data and
// notification. A kernel opens its end of a ring, sends or receives, and closes it.
//
// The number of a line is its lap around the ring, counted from 1. Every line of every lap is written, so a line that is not yet
// written carries the number of the previous lap, or 0. The first line of a piece also says how many bytes of the message follow;
// messages that are longer than half the ring go in several pieces.
//
// The receiver returns credits: the number of lines that it has emptied, a word in the sender's memory, once per quarter of the
// ring. A sender without credit waits, so a slow receiver stops it and no memory grows.
//
// Ordering.
// - A line is one access of 16 bytes (st.relaxed.sys.b128, ld.volatile.b128), or two of 8 bytes that each carry the number
//   (SplitLine). PTX performs each as one, so a line that carries the expected number has the data of that number.
// - Messages of one ring arrive in the order in which they were sent. Two rings have no order.
// - A message orders nothing else. With Order::after_writes at both ends, the receiver also sees everything that the sending scope
//   wrote before. The senders meet at scope.sync(), then the thread of rank 0 executes fence.acq_rel.sys and stores the first line:
//   a release pattern. The receiving thread of rank 0 loads that line by ld.acquire.sys and meets the others at a barrier.
// - A line is overwritten only after it was read: all threads of the receiver meet at a barrier after their loads, then one thread
//   stores the credit by st.release.sys; the thread of rank 0 of the sender loads it by ld.acquire.sys, and meets the others at a
//   barrier before they store. These are the only fences, one per quarter of the ring.
//
// Source: PTX ISA, "Memory Consistency Model": vector data types, release and acquire patterns, causality order.
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

// --- Sending ---------------------------------------------------------------------------------------------------------------------

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
  credit = scope.broadcast(credit);
  return {agree(scope, status), credit};
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

// The words of line k of a piece, where it has them; `words(i)` is word i of the message, and `first_word` of them are before the
// piece.
template <class Line, class Words>
GIGABAR_DEVICE void load_line(std::uint32_t k, std::uint32_t piece, std::uint32_t first_word, const Words& words,
                              std::uint32_t (&line)[Line::kWords]) {
  const std::uint32_t begin = bytes_before<Line>(k);
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    if (begin + j * kWordBytes < piece) line[j] = words(first_word + k * Line::kWords - 1 + j);
  }
}

// Stores the lines of a piece behind those that every thread has stored, one each.
template <class Scope, class Line, class Words>
GIGABAR_DEVICE void store_more(const Scope& scope, const BasicSendRing<Line>& ring, std::uint32_t piece, std::uint32_t first_word,
                               const Words& words) {
  constexpr std::uint32_t kWords = Line::kWords;
  const std::uint32_t step = scope.size(), full = full_lines_of<Line>(piece), count = BasicRing<Line>::lines_of(piece);
  std::uint32_t k = scope.rank() + step;
  for (; k < full; k += kLinesAtOnce * step) {
    std::uint32_t lines[kLinesAtOnce][kWords];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
      for (std::uint32_t j = 0; j < kWords; ++j) {
        lines[n][j] = k + n * step < full ? words(first_word + (k + n * step) * kWords - 1 + j) : 0;
      }
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

}  // namespace detail

// Sends `bytes`, of which `word(i)` is the word i, in the byte order of the memory; what it returns beyond `bytes` is ignored. Any
// thread of the scope asks for any word, perhaps again when the call is repeated.
// Nobody waits for the receiver while there is room in the ring. When it returns, every thread has issued its own part.
// A message of several pieces waits up to the timeout for each.
// Errors: timed_out (no room in time; repeat the call with equal arguments to continue), peer_lost, out_of_range (longer than
// kMaxMessageBytes), invalid_argument (another size than the call before, which timed out). A message that fits a piece, and that
// did not return ok, was not sent at all. The loss of the receiver is noticed when new credit is needed.
template <class Scope, class Line, class Word>
GIGABAR_DEVICE Status send_words(const Scope& scope, BasicSendRing<Line>& ring, std::uint64_t bytes, const Word& word,
                                 Timeout timeout, Order order = Order::none) {
  if (bytes > kMaxMessageBytes) return Status::out_of_range;
  if (ring.done_bytes != 0 && ring.message_bytes != bytes) return Status::invalid_argument;
  if (order == Order::after_writes) {
    if (!detail::sync_all(scope)) return Status::timed_out;
    if (scope.rank() == 0) fence_system();
  }
  while (true) {
    const std::uint32_t left = static_cast<std::uint32_t>(bytes) - ring.done_bytes;
    const std::uint32_t piece = left < ring.piece_bytes() ? left : ring.piece_bytes();
    const std::uint32_t first_word = ring.done_bytes / detail::kWordBytes, k = scope.rank();
    // A thread's first line is loaded before anything else: its round trip to the memory overlaps with the rest.
    std::uint32_t line[Line::kWords] = {left};
    detail::load_line<Line>(k, piece, first_word, word, line);
    const std::uint32_t lines = BasicRing<Line>::lines_of(piece);
    if (ring.pending() + lines > ring.line_count()) {
      const std::uint64_t least = ring.position() + lines - ring.line_count();
      const detail::Credit known = detail::await_credit(scope, ring.credit(), ring.status(), least, timeout);
      if (known.status != Status::ok) return known.status;
      ring.know(known.lines);
    }
    if (k < lines) Line::store(ring.line(k), line, ring.number(k));
    if (lines > scope.size()) detail::store_more(scope, ring, piece, first_word, word);
    Line::flush();
    ring.pass(lines);
    if (piece == left) break;
    ring.message_bytes = static_cast<std::uint32_t>(bytes);
    ring.done_bytes += piece;
  }
  ring.done_bytes = 0;
  return Status::ok;
}

namespace detail {

GIGABAR_DEVICE bool are_whole_words(const void* address, std::uint64_t bytes = 0) {
  return (reinterpret_cast<std::uintptr_t>(address) | bytes) % kWordBytes == 0;
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

// What a function did that got its ring by value, so that the caller's stays in registers.
template <class Ring>
struct Called {
  Status status;
  Ring ring;
  std::uint64_t bytes;
};

// send(), whatever the message.
template <class Scope, class Line>
GIGABAR_DEVICE_CALLED Called<BasicSendRing<Line>> send_any(Scope scope, BasicSendRing<Line> ring, const std::byte* source,
                                                           std::uint64_t bytes, Timeout timeout, Order order) {
  if (are_whole_words(source, bytes)) {
    const Status status = send_words(scope, ring, bytes, WholeWords{source}, timeout, order);
    return {status, ring, bytes};
  }
  const auto word_of_bytes = [=](std::uint64_t i) {
    std::uint32_t word = 0;
    for (std::uint32_t b = 0; b < sizeof word && i * sizeof word + b < bytes; ++b) {
      word |= static_cast<std::uint32_t>(source[i * sizeof word + b]) << 8 * b;
    }
    return word;
  };
  const Status status = send_words(scope, ring, bytes, word_of_bytes, timeout, order);
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
    const std::uint32_t k = scope.rank(), size = static_cast<std::uint32_t>(bytes);
    std::uint32_t line[Line::kWords] = {size};
    detail::load_line<Line>(k, size, 0, detail::WholeWords{from}, line);
    if (k == 0 || detail::bytes_before<Line>(k) < size) Line::store(ring.line(k), line, ring.number(k));
    if (size > detail::bytes_before<Line>(scope.size())) detail::store_more(scope, ring, size, 0, detail::WholeWords{from});
    Line::flush();
    ring.pass(BasicRing<Line>::lines_of(size));
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
  if constexpr (sizeof(T) > kFirstBytes<Line>) bits = scope.broadcast(bits);  // another thread stores its second line
  const auto word = [&](std::uint64_t i) { return static_cast<std::uint32_t>(bits >> 32 * i); };
  return send_words(scope, ring, sizeof value, word, timeout, order);
}

// --- Receiving -------------------------------------------------------------------------------------------------------------------

namespace detail {

// The next piece, of which its first line tells.
template <class Line>
struct PieceHead {
  std::uint32_t left = 0;                  // bytes of the message, from this piece on
  std::uint32_t bytes = 0;                 // of this piece
  std::uint32_t words[Line::kWords] = {};  // the first line's; its data begin at the second
  std::uint32_t more[Line::kWords] = {};   // the second line's, if every thread reads it
};

// The words of line k that belong to a piece go to `take`.
template <class Line, class Take>
GIGABAR_DEVICE void take_line(std::uint32_t k, std::uint32_t piece, std::uint32_t first_word,
                              const std::uint32_t (&line)[Line::kWords], const Take& take) {
  const std::uint32_t begin = bytes_before<Line>(k), rest = piece % kWordBytes;
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    if (begin + j * kWordBytes < piece - rest) take(first_word + k * Line::kWords - 1 + j, line[j], kWordBytes);
  }
  if (rest == 0) return;
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    if (begin + j * kWordBytes == piece - rest) take(first_word + k * Line::kWords - 1 + j, line[j], rest);
  }
}

// Takes a thread's lines of a piece from line `k` on.
template <class Scope, class Line, class Take>
GIGABAR_DEVICE Status take_more(const Scope& scope, const BasicRecvRing<Line>& ring, std::uint32_t piece, std::uint32_t first_word,
                                std::uint32_t k, const Take& take, Deadline& deadline) {
  constexpr std::uint32_t kWords = Line::kWords;
  const std::uint32_t step = scope.size(), full = full_lines_of<Line>(piece), count = BasicRing<Line>::lines_of(piece);
  for (; k < count; k += kLinesAtOnce * step) {
    std::uint32_t lines[kLinesAtOnce][kWords];
    const Status status = await(ring.status(), nullptr, deadline, [&] {
      bool has_all = true;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
      for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
        const std::uint32_t at = k + n * step;
        if (at < count) has_all &= Line::template load<Order::none>(ring.line(at), ring.number(at), lines[n]);
      }
      return has_all;
    });
    if (status != Status::ok) return status;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
      const std::uint32_t at = k + n * step;
      if (at >= full) {
        if (at < count) take_line<Line>(at, piece, first_word, lines[n], take);
        continue;
      }
      for (std::uint32_t j = 0; j < kWords; ++j) take(first_word + at * kWords - 1 + j, lines[n][j], kWordBytes);
    }
  }
  return Status::ok;
}

// What a thread has of a piece at first.
template <class Line>
struct FirstLines {
  static constexpr std::uint32_t kOwn = kLinesAtOnce + 1;  // with them, a block of 512 threads has 24 KiB

  std::uint32_t head[Line::kWords] = {};  // the first line: what is left of the message, and data
  std::uint32_t own[kOwn][Line::kWords] = {};
};

// Who reads which lines of a piece at first. For a value every thread reads all, which are one or two.
enum class Reads : std::uint8_t { first, first_two, own, all_own };

// Waits until the first line of a piece is here and, where the piece has them, the others that this thread reads. Each poll loads
// all at once. `room`: bytes that the message may still have.
template <Reads What, class Scope, class Line>
GIGABAR_DEVICE Status await_lines(const Scope& scope, const BasicRecvRing<Line>& ring, std::uint32_t room, Deadline& deadline,
                                  Order order, FirstLines<Line>& lines) {
  const std::uint32_t k = What == Reads::first_two ? 1 : scope.rank(), step = scope.size();
  // The first line is the own one of the thread of rank 0.
  const std::uint32_t own_begin = k == 0 ? 0 : bytes_before<Line>(k);
  const bool is_acquiring = order == Order::after_writes && scope.rank() == 0;
  const bool has_more = What == Reads::all_own && room > bytes_before<Line>(step);
  return await(ring.status(), nullptr, deadline, [&] {
    bool has_head = false, has[FirstLines<Line>::kOwn] = {};
    const auto load_all = [&](std::uint32_t count) {
      has_head = is_acquiring ? Line::template load<Order::after_writes>(ring.line(0), ring.number(0), lines.head)
                              : Line::template load<Order::none>(ring.line(0), ring.number(0), lines.head);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
      for (std::uint32_t n = 0; n < count; ++n) {
        has[n] = Line::template load<Order::none>(ring.line(k + n * step), ring.number(k + n * step), lines.own[n]);
      }
    };
    if constexpr (What == Reads::first) {
      load_all(0);
      return has_head;
    }
    // What is left behind this piece comes later, perhaps only when this one is received.
    const auto piece = [&] { return lines.head[0] < ring.piece_bytes() ? lines.head[0] : ring.piece_bytes(); };
    bool has_all = true;
    if (has_more) {
      load_all(FirstLines<Line>::kOwn);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
      for (std::uint32_t n = 1; n < FirstLines<Line>::kOwn; ++n) {
        has_all = has_all && (has[n] || bytes_before<Line>(k + n * step) >= piece());
      }
    } else {
      load_all(1);
    }
    has_all = has_all && (has[0] || own_begin >= piece());
    return has_head && (has_all || lines.head[0] > room);
  });
}

// This thread's part of a piece.
template <Reads What, class Scope, class Line, class Take>
GIGABAR_DEVICE Status take_piece(const Scope& scope, const BasicRecvRing<Line>& ring, std::uint32_t room, const Take& take,
                                 Timeout timeout, Order order, PieceHead<Line>& head) {
  const std::uint32_t k = scope.rank(), step = scope.size(), first_word = ring.done_bytes / kWordBytes;
  FirstLines<Line> lines;
  Deadline deadline(timeout);
  const Status status = await_lines<What>(scope, ring, room, deadline, order, lines);
  if (status != Status::ok) return status;
  head.left = lines.head[0];
  head.bytes = head.left < ring.piece_bytes() ? head.left : ring.piece_bytes();
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    head.words[j] = lines.head[j];
    head.more[j] = lines.own[0][j];
  }
  if (head.left > room) return Status::out_of_range;
  if constexpr (What == Reads::own) {
    take_line<Line>(k, head.bytes, first_word, lines.own[0], take);
    if (bytes_before<Line>(step) < head.bytes) return take_more(scope, ring, head.bytes, first_word, k + step, take, deadline);
  }
  return Status::ok;
}

// Gives the emptied lines back, behind a barrier: once per quarter of the ring.
template <class Scope, class Line>
GIGABAR_DEVICE void give_credit(const Scope& scope, BasicRecvRing<Line>& ring) {
  if (ring.pending() < ring.line_count() / 4) return;
  ring.know(ring.position());
  if (scope.rank() != 0) return;
  store_release(ring.credit(), ring.position());
  Line::flush();
}

struct Failure {
  Status status;
  std::uint32_t bytes;  // of the message, if it is too long
};

// When some thread of the scope did not succeed: the answer for all. Others may have seen less than the thread of rank 0, or more.
template <class Scope>
GIGABAR_DEVICE_CALLED Failure agree_on_failure(Scope scope, Status status, std::uint32_t bytes) {
  const bool is_lost = scope.any(status == Status::peer_lost);
  if (agree_on(scope, status, bytes) == Status::out_of_range) return {Status::out_of_range, bytes};
  return {is_lost && !is_broken(scope) ? Status::peer_lost : Status::timed_out, 0};
}

// recv_words(); `head` is that of the last piece.
template <Reads What, class Scope, class Line, class Take>
GIGABAR_DEVICE Status recv_pieces(const Scope& scope, BasicRecvRing<Line>& ring, std::uint64_t capacity, const Take& take,
                                  std::uint64_t& bytes, Timeout timeout, Order order, PieceHead<Line>& head) {
  while (true) {
    const auto most = static_cast<std::uint32_t>(capacity < kMaxMessageBytes ? capacity : kMaxMessageBytes);
    const std::uint32_t room = most > ring.done_bytes ? most - ring.done_bytes : 0;
    const Status status = take_piece<What>(scope, ring, room, take, timeout, order, head);
    const std::uint32_t all = ring.done_bytes + head.left;
    if (scope.any(status != Status::ok)) {
      const Failure failure = agree_on_failure(scope, status, all);
      bytes = failure.bytes;
      return failure.status;
    }
    ring.pass(BasicRing<Line>::lines_of(head.bytes));
    give_credit(scope, ring);
    if (head.bytes == head.left) {
      ring.done_bytes = 0;
      bytes = all;
      return Status::ok;
    }
    ring.done_bytes += head.bytes;
  }
}

}  // namespace detail

// Receives the next message, of up to `capacity` bytes. `take(i, word, count)` gets each of its words, by any thread of the scope,
// as it arrives: word i, whose first `count` bytes (4, or fewer in the last one) belong to the message. `bytes` is the message's
// size. When it returns, every thread sees what the others did in `take`.
// Errors: timed_out (the message or some of its lines did not arrive in time; repeat the call with equal arguments to continue,
// `take` then gets words of the current piece again), peer_lost (the sender was lost, and the message is not complete),
// out_of_range (the message is longer than `capacity`: it stays, and `bytes` is its size).
template <class Scope, class Line, class Take>
GIGABAR_DEVICE Status recv_words(const Scope& scope, BasicRecvRing<Line>& ring, std::uint64_t capacity, const Take& take,
                                 std::uint64_t& bytes, Timeout timeout, Order order = Order::none) {
  detail::PieceHead<Line> head;
  return detail::recv_pieces<detail::Reads::own>(scope, ring, capacity, take, bytes, timeout, order, head);
}

namespace detail {

GIGABAR_DEVICE_CALLED void store_bytes_of_word(std::byte* to, std::uint32_t word, std::uint32_t count) {
  for (std::uint32_t b = 0; b < count; ++b) to[b] = static_cast<std::byte>(word >> 8 * b);
}

GIGABAR_DEVICE void store_word(std::byte* to, std::uint32_t word) {
  memcpy(__builtin_assume_aligned(to, sizeof word), &word, sizeof word);
}

// A thread's lines behind its first one, of a message of one piece and whole words.
template <class Scope, class Line>
GIGABAR_DEVICE Status store_more_words(const Scope& scope, const BasicRecvRing<Line>& ring, std::uint32_t size, std::byte* to,
                                       const FirstLines<Line>& lines, Deadline& deadline) {
  const std::uint32_t step = scope.size();
  std::uint32_t k = scope.rank() + step;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (std::uint32_t n = 1; n < FirstLines<Line>::kOwn; ++n, k += step) {
    const std::uint32_t begin = bytes_before<Line>(k);
    for (std::uint32_t j = 0; j < Line::kWords; ++j) {
      if (begin + j * kWordBytes < size) store_word(to + begin + std::size_t{j} * kWordBytes, lines.own[n][j]);
    }
  }
  if (bytes_before<Line>(FirstLines<Line>::kOwn * step) >= size) return Status::ok;
  const auto take = [=](std::uint64_t i, std::uint32_t word, std::uint32_t) { store_word(to + i * sizeof word, word); };
  return take_more(scope, ring, size, 0, k, take, deadline);
}

// recv(), whatever the message.
template <class Scope, class Line>
GIGABAR_DEVICE_CALLED Called<BasicRecvRing<Line>> recv_any(Scope scope, BasicRecvRing<Line> ring, std::byte* destination,
                                                           std::uint64_t capacity, Timeout timeout, Order order) {
  std::uint64_t bytes = 0;
  Status status;
  if (are_whole_words(destination)) {
    const auto take = [=](std::uint64_t i, std::uint32_t word, std::uint32_t count) {
      std::byte* const at = destination + i * sizeof word;
      if (count == sizeof word)
        store_word(at, word);
      else
        store_bytes_of_word(at, word, count);
    };
    status = recv_words(scope, ring, capacity, take, bytes, timeout, order);
  } else {
    const auto take = [=](std::uint64_t i, std::uint32_t word, std::uint32_t count) {
      store_bytes_of_word(destination + i * sizeof word, word, count);
    };
    status = recv_words(scope, ring, capacity, take, bytes, timeout, order);
  }
  return {status, ring, bytes};
}

}  // namespace detail

// Receives the next message into `destination`: any address, fastest at a multiple of 4. Errors: as recv_words; the contents are
// undefined then.
template <class Scope, class Line>
GIGABAR_DEVICE Status recv(const Scope& scope, BasicRecvRing<Line>& ring, void* destination, std::uint64_t capacity,
                           std::uint64_t& bytes, Timeout timeout, Order order = Order::none) {
  auto* const to = static_cast<std::byte*>(destination);
  // In place: one piece of whole words. What does not depend on the message is computed before it comes.
  if (detail::are_whole_words(to) && capacity != 0 && ring.done_bytes == 0) {
    const std::uint32_t k = scope.rank(), step = scope.size();
    std::uint32_t room = ring.piece_bytes(), begin = detail::bytes_before<Line>(k);
    if (capacity < room) room = static_cast<std::uint32_t>(capacity);
    std::byte* at = to + std::uint64_t{k} * Line::kWords * detail::kWordBytes;
    compute_now(room);
    compute_now(begin);
    compute_now(at);
    detail::FirstLines<Line> lines;
    Deadline deadline(timeout);
    Status status = detail::await_lines<detail::Reads::all_own>(scope, ring, room, deadline, order, lines);
    const std::uint32_t size = lines.head[0];
    const bool is_quick = size <= room && size % detail::kWordBytes == 0;
    if (is_quick && status == Status::ok) {
      for (std::uint32_t j = 0; j < Line::kWords; ++j) {
        if (begin + j * detail::kWordBytes < size)
          detail::store_word(at + std::size_t{j} * detail::kWordBytes - detail::kWordBytes, lines.own[0][j]);
      }
      if (size > detail::bytes_before<Line>(step)) status = detail::store_more_words(scope, ring, size, to, lines, deadline);
    }
    if (!scope.any(!is_quick || status != Status::ok)) {
      ring.pass(BasicRing<Line>::lines_of(size));
      detail::give_credit(scope, ring);
      bytes = size;
      return Status::ok;
    }
    if (scope.any(status != Status::ok)) {
      const detail::Failure failure = detail::agree_on_failure(scope, status, 0);
      bytes = 0;
      return failure.status;
    }
  }
  const auto called = detail::recv_any(scope, ring, to, capacity, timeout, order);
  ring = called.ring;
  bytes = called.bytes;
  return called.status;
}

// Receives a value of up to 8 bytes, to every thread of the scope. Bytes that the message does not have are 0.
// Errors: as recv_words; `value` is then unchanged.
template <class Scope, class Line, class T>
GIGABAR_DEVICE Status recv_value(const Scope& scope, BasicRecvRing<Line>& ring, T& value, Timeout timeout,
                                 Order order = Order::none) {
  constexpr bool kIsShort = sizeof(T) <= kFirstBytes<Line>;
  detail::PieceHead<Line> head;
  std::uint64_t bytes = 0;
  const auto nothing = [](std::uint64_t, std::uint32_t, std::uint32_t) {};
  const Status status = detail::recv_pieces<kIsShort ? detail::Reads::first : detail::Reads::first_two>(
      scope, ring, sizeof value, nothing, bytes, timeout, order, head);
  if (status != Status::ok) return status;
  std::uint64_t bits = head.words[1];
  if constexpr (!kIsShort)
    bits |= std::uint64_t{head.more[0]} << 32;
  else if constexpr (sizeof(T) > sizeof(std::uint32_t))
    bits |= std::uint64_t{head.words[2]} << 32;
  if (bytes < sizeof bits) bits &= (std::uint64_t{1} << 8 * bytes) - 1;
  value = detail::value_of_bits<T>(bits);
  return Status::ok;
}

}  // namespace gigabar::inline v0::device
