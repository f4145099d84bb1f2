// SPDX-License-Identifier: Apache-2.0
// Messages: what the receiver does. Include message.hpp, which says what is promised.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/fabric.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/message_line.hpp"
#include "gigabar/device/message_ring.hpp"
#include "gigabar/device/message_send.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

#if !defined(__CUDA_ARCH__)
#include <cstring>
#endif

namespace gigabar::inline v0::device {

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

// Waits for a thread's lines of a piece of `count` from line `k` on. `act(k, line)` gets each.
template <class Scope, class Line, class Act>
GIGABAR_DEVICE Status await_more(const Scope& scope, const BasicRecvRing<Line>& ring, std::uint32_t count, std::uint32_t k,
                                 Deadline& deadline, const Act& act) {
  const std::uint32_t step = scope.size();
  for (; k < count; k += kLinesAtOnce * step) {
    std::uint32_t lines[kLinesAtOnce][Line::kWords];
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
      if (k + n * step < count) act(k + n * step, lines[n]);
    }
  }
  return Status::ok;
}

// Who reads which lines of a piece at first: the first one, the first two (for a value), or the first one and a line of its own.
enum class Reads : std::uint8_t { first, first_two, own };

// What a thread has of a piece at first.
template <class Line>
struct FirstLines {
  std::uint32_t head[Line::kWords] = {};  // the first line: what is left of the message, and data
  std::uint32_t own[Line::kWords] = {};
};

// Waits until the first line of a piece is here and, where the piece has it, the other that this thread reads. Each poll loads
// both. `room`: bytes that the message may still have.
template <Reads What, class Scope, class Line>
GIGABAR_DEVICE Status await_lines(const Scope& scope, const BasicRecvRing<Line>& ring, std::uint32_t room, Deadline& deadline,
                                  Order order, FirstLines<Line>& lines) {
  const std::uint32_t k = What == Reads::first_two ? 1 : scope.rank();
  // The first line is the own one of the thread of rank 0.
  const std::uint32_t own_begin = k == 0 ? 0 : bytes_before<Line>(k);
  const bool is_acquiring = order == Order::after_writes && scope.rank() == 0;
  return await(ring.status(), nullptr, deadline, [&] {
    const bool has_head = is_acquiring ? Line::template load<Order::after_writes>(ring.line(0), ring.number(0), lines.head)
                                       : Line::template load<Order::none>(ring.line(0), ring.number(0), lines.head);
    if constexpr (What == Reads::first) return has_head;
    const bool has_own = Line::template load<Order::none>(ring.line(k), ring.number(k), lines.own);
    // What is left behind this piece comes later, perhaps only when this one is received.
    const std::uint32_t piece = lines.head[0] < ring.piece_bytes() ? lines.head[0] : ring.piece_bytes();
    return has_head && (has_own || own_begin >= piece || lines.head[0] > room);
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
    head.more[j] = lines.own[j];
  }
  if (head.left > room) return Status::out_of_range;
  if constexpr (What == Reads::own) {
    take_line<Line>(k, head.bytes, first_word, lines.own, take);
    if (bytes_before<Line>(step) < head.bytes) {
      const std::uint32_t full = full_lines_of<Line>(head.bytes), count = BasicRing<Line>::lines_of(head.bytes);
      return await_more(scope, ring, count, k + step, deadline, [&](std::uint32_t at, const std::uint32_t(&line)[Line::kWords]) {
        if (at >= full) return take_line<Line>(at, head.bytes, first_word, line, take);
        for (std::uint32_t j = 0; j < Line::kWords; ++j) take(first_word + at * Line::kWords - 1 + j, line[j], kWordBytes);
      });
    }
  }
  return Status::ok;
}

// Gives the emptied lines back, behind a barrier at which every thread said that it found its lines: once per quarter of the ring.
template <class Scope, class Line>
GIGABAR_DEVICE void give_credit(const Scope& scope, BasicRecvRing<Line>& ring) {
  if (ring.pending() < ring.line_count() / 4) return;
  ring.know(ring.position());
  if (scope.rank() != 0) return;
#if defined(__CUDA_ARCH__)
  store_relaxed(ring.credit(), ring.position());
#else
  store_release(ring.credit(), ring.position());
#endif
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
    if (patient(scope, timeout).any(status != Status::ok)) {
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

// The lines of a message of one piece and whole words, whose first line is here.
template <class Line>
Status take_runs(const BasicRecvRing<Line>& ring, std::uint32_t size, std::byte* to, const std::uint32_t (&head)[Line::kWords],
                 Deadline& deadline) {
  if (size == 0) return Status::ok;
  store_word(to, head[1]);
  const std::uint32_t full = full_lines_of<Line>(size);
  std::uint32_t k = 1, taken = 0, line[Line::kWords];
  for (std::uint32_t run = 0; k < full; k += run, taken = 0) {
    run = ring.run_of(k, full);
    const Status status = await(ring.status(), nullptr, deadline, [&] {
      taken += Line::load_run(ring.line(k + taken), ring.number(k), run - taken, to + bytes_before<Line>(k + taken));
      return taken == run;
    });
    if (status != Status::ok) return status;
  }
  if (full == BasicRing<Line>::lines_of(size)) return Status::ok;
  const auto is_here = [&] { return Line::template load<Order::none>(ring.line(k), ring.number(k), line); };
  const Status status = await(ring.status(), nullptr, deadline, is_here);
  if (status == Status::ok) store_word(to + bytes_before<Line>(k), line[0]);
  return status;
}

// The words of a line that the message has; they begin `begin` bytes into it.
template <class Line>
GIGABAR_DEVICE void store_line_words(std::byte* to, std::uint32_t begin, std::uint32_t size,
                                     const std::uint32_t (&line)[Line::kWords]) {
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    if (begin + j * kWordBytes < size) store_word(to + std::size_t{j} * kWordBytes, line[j]);
  }
}
// Those of the first line, by the thread of line 1, whose words go to `own`: an address that each thread has anyway.
template <class Line>
GIGABAR_DEVICE void store_head_words(std::byte* own, std::uint32_t k, std::uint32_t size,
                                     const std::uint32_t (&head)[Line::kWords]) {
  for (std::uint32_t j = 1; j < Line::kWords; ++j) {
    if (k == 1 && (j - 1) * kWordBytes < size) store_word(own - bytes_before<Line>(1) + std::size_t{j - 1} * kWordBytes, head[j]);
  }
}

// recv_at_once() where the message may have two lines of a thread behind the first one, and no more: each poll looks at both. What
// comes later than the first would else cost a round trip to the memory of its own (0.3 us). Not one function for both counts of
// lines: with it messages of a warp took 8 to 30 ns more.
template <class Scope, class Line>
GIGABAR_DEVICE Status recv_two_lines(const Scope& scope, const BasicRecvRing<Line>& ring, std::byte* to, std::uint32_t room,
                                     std::uint32_t& size, Deadline& deadline) {
  std::uint32_t head[Line::kWords], own[2][Line::kWords], begin[2], number[2];
  const MessageLine* line[2];
  std::uint32_t step = scope.size(), k = scope.rank() + 1;
  compute_now(room);
  for (std::uint32_t n = 0; n < 2; ++n) {
    begin[n] = bytes_before<Line>(k + n * step);
    number[n] = ring.number(k + n * step);
    line[n] = begin[n] < room ? ring.line(k + n * step) : ring.first_line();
    compute_now(begin[n]);
    compute_now(number[n]);
  }
  const Status status = await(ring.status(), nullptr, deadline, [&] {
    const bool has_head = Line::template load<Order::none>(ring.first_line(), ring.first_number(), head);
    bool has_first = Line::template load<Order::none>(line[0], number[0], own[0]);
    bool has_second = Line::template load<Order::none>(line[1], number[1], own[1]);
    has_first |= begin[0] >= head[0];
    has_second |= begin[1] >= head[0];
    bool is_here = has_first & has_second;
    is_here |= head[0] > room;
    is_here &= has_head;
    return is_here;
  });
  size = head[0];
  if (status != Status::ok) return status;
  if (size > room || size % kWordBytes != 0) return Status::out_of_range;
  store_head_words<Line>(to + begin[0], k, size, head);
  for (std::uint32_t n = 0; n < 2; ++n) store_line_words<Line>(to + begin[n], begin[n], size, own[n]);
  return Status::ok;
}

// A message of one piece and whole words, of up to `room` bytes. All threads read its first line, each the one behind those of the
// threads before, then several at once of the rest. A message takes as long as its instructions, hence the few of them.
// Errors: out_of_range (another message), timed_out, peer_lost.
template <class Scope, class Line>
GIGABAR_DEVICE Status recv_at_once(const Scope& scope, const BasicRecvRing<Line>& ring, std::byte* to, std::uint32_t room,
                                   std::uint32_t& size, Timeout timeout) {
  std::uint32_t head[Line::kWords], own[Line::kWords];
  Deadline deadline(timeout);
  if constexpr (kHasRuns<Scope, Line>) {
    const auto is_here = [&] { return Line::template load<Order::none>(ring.first_line(), ring.first_number(), head); };
    const Status status = await(ring.status(), nullptr, deadline, is_here);
    if (status != Status::ok) return status;
    size = head[0];
    return size > room || size % kWordBytes != 0 ? Status::out_of_range : take_runs(ring, size, to, head, deadline);
  }
  // What does not depend on the message is computed before it comes. The first look is under way meanwhile: of messages that lie
  // behind each other a warp receives a tenth more.
  bool has_head = Line::template load<Order::none>(ring.first_line(), ring.first_number(), head);
  std::uint32_t k = scope.rank() + 1, begin = bytes_before<Line>(k), number = ring.number(k);
  // A thread that can have no line of its own looks at the first one again: a branch would cost more than the load.
  const MessageLine* const line = begin < room ? ring.line(k) : ring.first_line();
  compute_now(number);
  bool has_own = Line::template load<Order::none>(line, number, own);
  std::uint32_t step = scope.size();
  std::byte* at = to + begin;
  compute_now(step);
  compute_now(room);
  compute_now(begin);
  compute_now(at);
  const auto is_here = [&] {  // without branches, which would lie between two polls
    bool has_all = has_own;
    has_all |= begin >= head[0];
    has_all |= head[0] > room;
    has_all &= has_head;
    return has_all;
  };
  Status status = Status::ok;
  if (!is_here()) {
    if (room > bytes_before<Line>(step + 1) && room <= bytes_before<Line>(2 * step + 1)) {
      return recv_two_lines(scope, ring, to, room, size, deadline);
    }
    status = await(ring.status(), nullptr, deadline, [&] {
      has_head = Line::template load<Order::none>(ring.first_line(), ring.first_number(), head);
      has_own = Line::template load<Order::none>(line, number, own);
      return is_here();
    });
  }
  size = head[0];
  if (status != Status::ok) return status;
  if (size > room || size % kWordBytes != 0) return Status::out_of_range;
  store_head_words<Line>(at, k, size, head);
  store_line_words<Line>(at, begin, size, own);
  if (size <= bytes_before<Line>(step + 1)) return Status::ok;
  for (k += step; bytes_before<Line>(k) < size; k += kLinesAtOnce * step) {
    std::uint32_t rest[kLinesAtOnce][Line::kWords];
    status = await(ring.status(), nullptr, deadline, [&] {
      bool has_all = true;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
      for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
        has_all &= Line::template load<Order::none>(ring.line(k + n * step), ring.number(k + n * step), rest[n]) ||
                   bytes_before<Line>(k + n * step) >= size;
      }
      return has_all;
    });
    if (status != Status::ok) return status;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::uint32_t n = 0; n < kLinesAtOnce; ++n) {
      begin = bytes_before<Line>(k + n * step);
      store_line_words<Line>(to + begin, begin, size, rest[n]);
    }
  }
  return Status::ok;
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
  if (detail::are_whole_words(to) && capacity != 0 && ring.done_bytes == 0 && order == Order::none) {
    const std::uint32_t room = capacity < ring.piece_bytes() ? static_cast<std::uint32_t>(capacity) : ring.piece_bytes();
    std::uint32_t size = 0;
    const Status status = detail::recv_at_once(scope, ring, to, room, size, timeout);
    if (!detail::patient(scope, timeout).any(status != Status::ok)) {
      ring.pass(BasicRing<Line>::lines_of(size));
      detail::give_credit(scope, ring);
      bytes = size;
      return Status::ok;
    }
    const Status waited = status == Status::out_of_range ? Status::ok : status;
    if (scope.any(waited != Status::ok)) {
      bytes = 0;
      return detail::agree_on_failure(scope, waited, 0).status;
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
  if (kIsShort && ring.done_bytes == 0 && order == Order::none) {
    // In place: one line. What does not depend on it is computed before it comes.
    BasicRecvRing<Line> next = ring;
    next.pass_early(1);
    std::uint32_t words[Line::kWords];
    const Status status = detail::await(ring.status(), nullptr, timeout, [&] {
      return Line::template load<Order::none>(ring.first_line(), ring.first_number(), words);
    });
    if (!detail::patient(scope, timeout).any(status != Status::ok || words[0] != sizeof value)) {
      ring = next;
      detail::give_credit(scope, ring);
      value = detail::value_of_bits<T>(words[1] | std::uint64_t{words[Line::kWords - 1]} << 32);
      return Status::ok;
    }
    if (scope.any(status != Status::ok)) return detail::agree_on_failure(scope, status, 0).status;
  }
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
