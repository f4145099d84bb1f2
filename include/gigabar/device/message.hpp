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
// - A line is one access of 16 bytes (ld and st.relaxed.sys.b128), or two of 8 bytes that each carry the number (SplitLine). PTX
//   performs each as one, so a line that carries the expected number has the data of that number.
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
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

#if !defined(__CUDA_ARCH__)
#include <cstring>
#endif

namespace gigabar::device {

// --- Lines -----------------------------------------------------------------------------------------------------------------------

// 12 bytes of data and one number. For writers and readers that access 16 bytes at once: GPUs.
struct WholeLine {
  static constexpr std::uint32_t kWords = 3;  // of data

  GIGABAR_DEVICE static void store(MessageLine* to, const std::uint32_t (&words)[kWords], std::uint32_t number) {
#if defined(__CUDA_ARCH__)
    asm volatile(
        "{ .reg .b64 low, high; .reg .b128 all; mov.b64 low, {%1, %2}; mov.b64 high, {%3, %4}; mov.b128 all, {low, high}; "
        "st.relaxed.sys.global.b128 [%0], all; }"
        :
        : "l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(number)
        : "memory");
#else
    store_relaxed(&to->halves[0], words[0] | std::uint64_t{words[1]} << 32);
    store_release(&to->halves[1], words[2] | std::uint64_t{number} << 32);
#endif
  }
  // Returns whether the line carries the number. Everything released before the line is visible then, if `O` is after_writes.
  template <Order O>
  GIGABAR_DEVICE static bool load(const MessageLine* from, std::uint32_t number, std::uint32_t (&words)[kWords]) {
#if defined(__CUDA_ARCH__)
    std::uint32_t found;
    if constexpr (O == Order::after_writes) {
      asm volatile(
          "{ .reg .b64 low, high; .reg .b128 all; ld.acquire.sys.global.b128 all, [%4]; mov.b128 {low, high}, all; "
          "mov.b64 {%0, %1}, low; mov.b64 {%2, %3}, high; }"
          : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(found)
          : "l"(from)
          : "memory");
    } else {
      asm volatile(
          "{ .reg .b64 low, high; .reg .b128 all; ld.relaxed.sys.global.b128 all, [%4]; mov.b128 {low, high}, all; "
          "mov.b64 {%0, %1}, low; mov.b64 {%2, %3}, high; }"
          : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(found)
          : "l"(from)
          : "memory");
    }
    return found == number;
#else
    const std::uint64_t high = load_acquire(&from->halves[1]);
    const std::uint64_t low = load_relaxed(&from->halves[0]);
    words[0] = static_cast<std::uint32_t>(low);
    words[1] = static_cast<std::uint32_t>(low >> 32);
    words[2] = static_cast<std::uint32_t>(high);
    return static_cast<std::uint32_t>(high >> 32) == number;
#endif
  }
  // After the lines of a piece.
  GIGABAR_DEVICE static void flush() {}
};

// 8 bytes of data; each half carries the number. For a CPU as writer or reader: it accesses 8 aligned bytes at once, but its
// write-combining buffers may write a line in parts and in any order (Intel SDM volume 3, "Write Combining (WC) Memory Type").
struct SplitLine {
  static constexpr std::uint32_t kWords = 2;

  GIGABAR_DEVICE static void store(MessageLine* to, const std::uint32_t (&words)[kWords], std::uint32_t number) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(to), "l"(words[0] | std::uint64_t{number} << 32), "l"(words[1] | std::uint64_t{number} << 32)
                 : "memory");
#else
    store_release(&to->halves[0], words[0] | std::uint64_t{number} << 32);
    store_release(&to->halves[1], words[1] | std::uint64_t{number} << 32);
#endif
  }
  template <Order O>
  GIGABAR_DEVICE static bool load(const MessageLine* from, std::uint32_t number, std::uint32_t (&words)[kWords]) {
    std::uint64_t low, high;
#if defined(__CUDA_ARCH__)
    if constexpr (O == Order::after_writes) {
      low = load_acquire(&from->halves[0]);
      high = load_acquire(&from->halves[1]);
    } else {
      asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
    }
#else
    low = load_acquire(&from->halves[0]);
    high = load_acquire(&from->halves[1]);
#endif
    words[0] = static_cast<std::uint32_t>(low);
    words[1] = static_cast<std::uint32_t>(high);
    return static_cast<std::uint32_t>(low >> 32) == number && static_cast<std::uint32_t>(high >> 32) == number;
  }
  // Empties the write-combining buffers of a CPU.
  GIGABAR_DEVICE static void flush() {
#if !defined(__CUDA_ARCH__)
    fence_system();
#endif
  }
};

// --- Rings -----------------------------------------------------------------------------------------------------------------------

inline constexpr std::uint64_t kMaxMessageBytes = 0xffffffff;

// Data of a piece's first line.
template <class Line>
inline constexpr std::uint64_t kFirstBytes = (Line::kWords - 1) * sizeof(std::uint32_t);

// One end of a ring, open. It belongs to one scope from open_ring() to close(); each thread of the scope has its own
// object, with equal values. Another scope may open the end after a barrier with this one.
template <class Line>
class BasicRing {
 public:
  // The greatest piece of a message, half the ring. Longer messages wait for credit between pieces.
  GIGABAR_DEVICE std::uint64_t piece_bytes() const {
    return sizeof(std::uint32_t) * (std::uint64_t{line_count_ / 2} * Line::kWords - 1);
  }
  // Lines that a piece of so many bytes takes; one word of the first line says how many bytes follow.
  GIGABAR_DEVICE static std::uint64_t lines_of(std::uint64_t bytes) {
    return (bytes / sizeof(std::uint32_t) + (bytes % sizeof(std::uint32_t) != 0) + Line::kWords) / Line::kWords;
  }

  GIGABAR_DEVICE void open(RingEnd& end) {
    kept_ = &end;
    lines_ = end.lines;
    line_count_ = end.line_count;
    credit_ = end.credit;
    status_ = end.status;
    state_ = end.state;
  }
  // Keeps the state for who opens the end next.
  template <class Scope>
  GIGABAR_DEVICE void close(const Scope& scope) {
    if (kept_ != nullptr && scope.rank() == 0) kept_->state = state_;
    kept_ = nullptr;
  }

  // For the functions below.
  GIGABAR_DEVICE MessageLine* line(std::uint64_t index) const { return lines_ + (index & (line_count_ - 1)); }
  GIGABAR_DEVICE std::uint32_t number(std::uint64_t index) const {
    return static_cast<std::uint32_t>(index >> lowest_bit(line_count_)) + 1;
  }
  GIGABAR_DEVICE std::uint64_t line_count() const { return line_count_; }
  GIGABAR_DEVICE std::uint64_t* credit() const { return credit_; }
  GIGABAR_DEVICE const std::uint32_t* status() const { return status_; }
  GIGABAR_DEVICE RingState& state() { return state_; }

 private:
  RingEnd* kept_ = nullptr;
  MessageLine* lines_ = nullptr;
  std::uint64_t* credit_ = nullptr;
  const std::uint32_t* status_ = nullptr;
  std::uint32_t line_count_ = 0;
  RingState state_;
};

template <class Line>
class BasicSendRing : public BasicRing<Line> {};
template <class Line>
class BasicRecvRing : public BasicRing<Line> {};

using SendRing = BasicSendRing<WholeLine>;
using RecvRing = BasicRecvRing<WholeLine>;
// Of rings with a CPU at one end.
using CpuSendRing = BasicSendRing<SplitLine>;
using CpuRecvRing = BasicRecvRing<SplitLine>;

namespace detail {

GIGABAR_DEVICE Status find_rings(const DeviceFabric& fabric, Rank rank, std::uint32_t ring, PeerRing*& found) {
  if (rank >= fabric.rank_count || ring >= fabric.ring_count) return Status::out_of_range;
  found = fabric.rings + static_cast<std::size_t>(rank) * fabric.ring_count + ring;
  return found->send.lines == nullptr ? Status::unavailable : Status::ok;
}

}  // namespace detail

// Opens ring `number` to `rank`, and the one of that number from `rank`. One scope at a time has an end open.
// Errors: out_of_range (no such rank or ring), unavailable (the rank is not load/store accessible).
GIGABAR_DEVICE Status open_ring(const DeviceFabric& fabric, Rank rank, std::uint32_t number, SendRing& ring) {
  PeerRing* found = nullptr;
  const Status status = detail::find_rings(fabric, rank, number, found);
  if (status == Status::ok) ring.open(found->send);
  return status;
}
GIGABAR_DEVICE Status open_ring(const DeviceFabric& fabric, Rank rank, std::uint32_t number, RecvRing& ring) {
  PeerRing* found = nullptr;
  const Status status = detail::find_rings(fabric, rank, number, found);
  if (status == Status::ok) ring.open(found->recv);
  return status;
}

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

// Stores a piece: its first line says that `bytes` of the message are left, and `piece` of them are in these lines. `word(i)` is
// word i of the piece. Four lines at once: their words are loaded before the first store.
template <class Scope, class Line, class Word>
GIGABAR_DEVICE void store_piece(const Scope& scope, BasicSendRing<Line>& ring, std::uint64_t bytes, std::uint64_t piece,
                                const Word& word) {
  constexpr std::uint32_t kWords = Line::kWords;
  const std::uint64_t begin = ring.state().position;
  const std::uint64_t word_count = (piece + sizeof(std::uint32_t) - 1) / sizeof(std::uint32_t);
  const std::uint64_t count = BasicRing<Line>::lines_of(piece);
  const std::uint64_t step = scope.size();
  if (scope.rank() == 0) {
    std::uint32_t words[kWords] = {static_cast<std::uint32_t>(bytes)};
    for (std::uint32_t j = 1; j < kWords; ++j) words[j] = j - 1 < word_count ? word(j - 1) : 0;
    Line::store(ring.line(begin), words, ring.number(begin));
  }
  constexpr std::uint32_t kAtOnce = 4;
  for (std::uint64_t k = 1 + scope.rank(); k < count; k += kAtOnce * step) {
    std::uint32_t words[kAtOnce][kWords] = {};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kAtOnce; ++n) {
      for (std::uint32_t j = 0; j < kWords; ++j) {
        const std::uint64_t i = (k + n * step) * kWords - 1 + j;
        if (i < word_count) words[n][j] = word(i);
      }
    }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kAtOnce; ++n) {
      const std::uint64_t index = begin + k + n * step;
      if (k + n * step < count) Line::store(ring.line(index), words[n], ring.number(index));
    }
  }
  Line::flush();
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
  RingState& state = ring.state();
  if (bytes > kMaxMessageBytes) return Status::out_of_range;
  if (state.done_bytes != 0 && state.message_bytes != bytes) return Status::invalid_argument;
  if (order == Order::after_writes) {
    if (!detail::sync_all(scope)) return Status::timed_out;
    if (scope.rank() == 0) fence_system();
  }
  while (true) {
    const std::uint64_t left = bytes - state.done_bytes;
    const std::uint64_t piece = left < ring.piece_bytes() ? left : ring.piece_bytes();
    const std::uint64_t lines = BasicRing<Line>::lines_of(piece);
    if (state.position + lines > state.credit + ring.line_count()) {
      const std::uint64_t least = state.position + lines - ring.line_count();
      const detail::Credit known = detail::await_credit(scope, ring.credit(), ring.status(), least, timeout);
      if (known.status != Status::ok) return known.status;
      state.credit = known.lines;
    }
    const std::uint64_t first = state.done_bytes / sizeof(std::uint32_t);
    detail::store_piece(scope, ring, left, piece, [&](std::uint64_t i) { return word(first + i); });
    state.position += lines;
    if (piece == left) break;
    state.message_bytes = bytes;
    state.done_bytes += piece;
  }
  state.done_bytes = 0;
  return Status::ok;
}

namespace detail {

// The words of memory at any address, of any type.
struct WordsFrom {
  const std::byte* bytes;
  std::uint64_t count;

  GIGABAR_DEVICE std::uint32_t operator()(std::uint64_t i) const {
    const std::byte* const at = bytes + i * sizeof(std::uint32_t);
    const std::uint64_t left = count - i * sizeof(std::uint32_t);
    if (left >= sizeof(std::uint32_t) && reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint32_t) == 0) {
#if defined(__CUDA_ARCH__)
      return load_relaxed(reinterpret_cast<const std::uint32_t*>(at));
#else
      std::uint32_t whole = 0;
      memcpy(&whole, at, sizeof whole);
      return whole;
#endif
    }
    std::uint32_t word = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (std::uint32_t b = 0; b < sizeof word && b < left; ++b) {
      word |= std::uint32_t{reinterpret_cast<const volatile std::uint8_t*>(at)[b]} << 8 * b;
    }
    return word;
  }
};

struct WordsTo {
  std::byte* bytes;

  GIGABAR_DEVICE void operator()(std::uint64_t i, std::uint32_t word, std::uint32_t count) const {
    std::byte* const at = bytes + i * sizeof word;
    if (count == sizeof word && reinterpret_cast<std::uintptr_t>(at) % sizeof word == 0) {
      memcpy(__builtin_assume_aligned(at, sizeof word), &word, sizeof word);
      return;
    }
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // seldom run, and instantiated at many places
#endif
    for (std::uint32_t b = 0; b < count; ++b) at[b] = static_cast<std::byte>(word >> 8 * b);
  }
};

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

// Sends `bytes` at `source`: any address; the memory may change after the call and scope.sync(). Errors: as send_words.
template <class Scope, class Line>
GIGABAR_DEVICE Status send(const Scope& scope, BasicSendRing<Line>& ring, const void* source, std::uint64_t bytes, Timeout timeout,
                           Order order = Order::none) {
  return send_words(scope, ring, bytes, detail::WordsFrom{static_cast<const std::byte*>(source), bytes}, timeout, order);
}

// Sends a value of up to 8 bytes, that of the thread of rank 0: one line between GPUs. Errors: as send_words.
template <class Scope, class Line, class T>
GIGABAR_DEVICE Status send_value(const Scope& scope, BasicSendRing<Line>& ring, const T& value, Timeout timeout,
                                 Order order = Order::none) {
  const std::uint64_t bits = detail::bits_of(value);
  const auto word = [&](std::uint64_t i) { return static_cast<std::uint32_t>(bits >> 32 * i); };
  return send_words(scope, ring, sizeof value, word, timeout, order);
}

// --- Receiving -------------------------------------------------------------------------------------------------------------------

namespace detail {

// What the first line of the next piece says.
template <class Line>
struct PieceHead {
  std::uint64_t left = 0;                  // bytes of the message, from this piece on
  std::uint64_t bytes = 0;                 // of this piece
  std::uint32_t words[Line::kWords] = {};  // the line's; its data begin at the second
};

// The words of one line that belong to the message go to `take`. `i`: the first word's place in the message.
template <std::uint32_t Begin, std::uint32_t End, class Take>
GIGABAR_DEVICE void take_words(const std::uint32_t (&words)[End], std::uint64_t i, std::uint64_t end_bytes, const Take& take) {
  for (std::uint32_t j = Begin; j < End; ++j, ++i) {
    const std::uint64_t at = i * sizeof(std::uint32_t);
    if (at >= end_bytes) return;
    const std::uint64_t left = end_bytes - at;
    take(i, words[j], static_cast<std::uint32_t>(left < sizeof(std::uint32_t) ? left : sizeof(std::uint32_t)));
  }
}

// This thread's part of a piece. Every thread reads the first line itself. A thread's first own line is loaded together with it,
// so that a message of one line for each thread takes one round trip to the memory behind the last poll.
template <class Scope, class Line, class Take>
GIGABAR_DEVICE Status take_piece(const Scope& scope, BasicRecvRing<Line>& ring, std::uint64_t capacity, const Take& take,
                                 Timeout timeout, Order order, PieceHead<Line>& head) {
  constexpr std::uint32_t kWords = Line::kWords;
  const RingState& state = ring.state();
  const std::uint64_t begin = state.position;
  const std::uint64_t step = scope.size();
  const bool is_longer = capacity > kFirstBytes<Line>;
  const bool is_acquiring = order == Order::after_writes && scope.rank() == 0;
  std::uint64_t k = 1 + scope.rank();
  std::uint32_t own[kWords];
  bool has_own = false;
  Deadline deadline(timeout);
  Status status = await(ring.status(), nullptr, deadline, [&] {
    if (is_longer) has_own = Line::template load<Order::none>(ring.line(begin + k), ring.number(begin + k), own);
    return is_acquiring ? Line::template load<Order::after_writes>(ring.line(begin), ring.number(begin), head.words)
                        : Line::template load<Order::none>(ring.line(begin), ring.number(begin), head.words);
  });
  if (status != Status::ok) return status;
  head.left = head.words[0];
  head.bytes = head.left < ring.piece_bytes() ? head.left : ring.piece_bytes();
  if (state.done_bytes + head.left > capacity) return Status::out_of_range;
  const std::uint64_t first_word = state.done_bytes / sizeof(std::uint32_t);
  const std::uint64_t end_bytes = state.done_bytes + head.bytes;
  if (scope.rank() == 0) take_words<1>(head.words, first_word, end_bytes, take);
  const std::uint64_t count = BasicRing<Line>::lines_of(head.bytes);
  const auto take_line = [&](const std::uint32_t(&words)[kWords], std::uint64_t line) {
    take_words<0>(words, first_word + line * kWords - 1, end_bytes, take);
  };
  if (has_own && k < count) {
    take_line(own, k);
    k += step;
  }
  constexpr std::uint32_t kAtOnce = 4;
  for (; k < count; k += kAtOnce * step) {
    std::uint32_t words[kAtOnce][kWords];
    bool has[kAtOnce];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kAtOnce; ++n) {
      const std::uint64_t index = begin + k + n * step;
      has[n] = k + n * step < count && Line::template load<Order::none>(ring.line(index), ring.number(index), words[n]);
    }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kAtOnce; ++n) {
      const std::uint64_t line = k + n * step;
      if (line >= count) break;
      const std::uint64_t index = begin + line;
      const auto look = [&] { return Line::template load<Order::none>(ring.line(index), ring.number(index), words[n]); };
      if (!has[n]) status = await(ring.status(), nullptr, deadline, look);
      if (status != Status::ok) return status;
      take_line(words[n], line);
    }
  }
  return Status::ok;
}

// Gives the lines before `position` back, behind a barrier: once per quarter of the ring.
template <class Scope, class Line>
GIGABAR_DEVICE void give_credit(const Scope& scope, BasicRecvRing<Line>& ring) {
  RingState& state = ring.state();
  if (state.position - state.credit < ring.line_count() / 4) return;
  state.credit = state.position;
  if (scope.rank() != 0) return;
  store_release(ring.credit(), state.position);
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
template <class Scope, class Line, class Take>
GIGABAR_DEVICE Status recv_pieces(const Scope& scope, BasicRecvRing<Line>& ring, std::uint64_t capacity, const Take& take,
                                  std::uint64_t& bytes, Timeout timeout, Order order, PieceHead<Line>& head) {
  RingState& state = ring.state();
  while (true) {
    const Status status = take_piece(scope, ring, capacity, take, timeout, order, head);
    const std::uint64_t all = state.done_bytes + head.left;
    if (scope.any(status != Status::ok)) {
      const Failure failure = agree_on_failure(scope, status, static_cast<std::uint32_t>(all));
      bytes = failure.bytes;
      return failure.status;
    }
    state.position += BasicRing<Line>::lines_of(head.bytes);
    state.done_bytes += head.bytes;
    give_credit(scope, ring);
    if (head.bytes != head.left) continue;
    state.done_bytes = 0;
    bytes = all;
    return Status::ok;
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
  return detail::recv_pieces(scope, ring, capacity, take, bytes, timeout, order, head);
}

// Receives the next message into `destination`: any address. Errors: as recv_words; the contents are undefined then.
template <class Scope, class Line>
GIGABAR_DEVICE Status recv(const Scope& scope, BasicRecvRing<Line>& ring, void* destination, std::uint64_t capacity,
                           std::uint64_t& bytes, Timeout timeout, Order order = Order::none) {
  return recv_words(scope, ring, capacity, detail::WordsTo{static_cast<std::byte*>(destination)}, bytes, timeout, order);
}

// Receives a value of up to 8 bytes, to every thread of the scope. Bytes that the message does not have are 0.
// Errors: as recv_words; `value` is then unchanged.
template <class Scope, class Line, class T>
GIGABAR_DEVICE Status recv_value(const Scope& scope, BasicRecvRing<Line>& ring, T& value, Timeout timeout,
                                 Order order = Order::none) {
  detail::PieceHead<Line> head;
  std::uint64_t bits = 0, bytes = 0;
  const auto take = [&](std::uint64_t i, std::uint32_t word, std::uint32_t) { bits |= std::uint64_t{word} << 32 * i; };
  const Status status = detail::recv_pieces(scope, ring, sizeof value, take, bytes, timeout, order, head);
  if (status != Status::ok) return status;
  if constexpr (sizeof(T) <= kFirstBytes<Line>) {
    bits = head.words[1];
    if constexpr (sizeof(T) > sizeof(std::uint32_t)) bits |= std::uint64_t{head.words[2]} << 32;
  } else {
    bits = scope.broadcast(bits);
  }
  if (bytes < sizeof bits) bits &= (std::uint64_t{1} << 8 * bytes) - 1;
  value = detail::value_of_bits<T>(bits);
  return Status::ok;
}

}  // namespace gigabar::device
