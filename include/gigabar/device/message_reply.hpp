// SPDX-License-Identifier: Apache-2.0
// Messages: an answer to each word, from registers. Include message.hpp, which says what is promised.
#pragma once

#include <cstdint>

#include "gigabar/device/fabric.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/message_recv.hpp"
#include "gigabar/device/message_ring.hpp"
#include "gigabar/device/message_send.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0::device {

namespace detail {

// Where a line's answer goes, and with which number.
struct AnswerLine {
  MessageLine* line;
  std::uint32_t number;
};

// Stores the answer to line k of a message of `size` bytes.
template <class Line, class Word>
GIGABAR_DEVICE void answer_line(const AnswerLine& answer, std::uint32_t k, std::uint32_t size, const Word& word,
                                const std::uint32_t (&line)[Line::kWords]) {
  std::uint32_t words[Line::kWords] = {};
  if (k == 0) words[0] = line[0];
  for (std::uint32_t j = 0; j < Line::kWords; ++j) {
    if (bytes_before<Line>(k) + j * kWordBytes < size) words[j] = word(k * Line::kWords - 1 + j, line[j]);
  }
  Line::store(answer.line, words, answer.number);
}

// Both ends behind a message and its answer, of so many lines.
template <class Scope, class Line>
GIGABAR_DEVICE void pass_both(const Scope& scope, BasicRecvRing<Line>& from, BasicSendRing<Line>& to, std::uint32_t lines) {
  from.pass(lines);
  give_credit(scope, from);
  to.pass(lines);
}

// A message of one piece, for whose answer there is room. Each thread answers its lines as they come: no thread waits for another
// before its answer is on the way. The lines may be answered again, by the same words, when another thread did not find its own.
// Errors: out_of_range (another message), timed_out, peer_lost.
template <class Scope, class Line, class Word>
GIGABAR_DEVICE Status reply_at_once(const Scope& scope, const BasicRecvRing<Line>& from, const BasicSendRing<Line>& to,
                                    const Word& word, std::uint32_t& size, Timeout timeout) {
  // What does not depend on the message is computed before it comes.
  const std::uint32_t k = scope.rank(), step = scope.size(), free = to.room_bytes() - 1;
  const std::uint32_t room = free < from.piece_bytes() ? free : from.piece_bytes();
  std::uint32_t begin = k == 0 ? 0 : bytes_before<Line>(k), number = from.number(k), head[Line::kWords], own[Line::kWords];
  const MessageLine* line = from.line(k);
  AnswerLine answer{to.line(k), to.number(k)};
  compute_now(begin);
  compute_now(number);
  compute_now(line);
  compute_now(answer.line);
  compute_now(answer.number);
  Deadline deadline(timeout);
  const Status status = await(from.status(), nullptr, deadline, [&] {
    const bool has_head = Line::template load<Order::none>(from.first_line(), from.first_number(), head);
    bool is_here = Line::template load<Order::none>(line, number, own);
    is_here |= begin >= head[0];
    is_here |= head[0] > room;
    is_here &= has_head;
    // Here, before the threads meet behind their polls: that would take 40 ns.
    if (is_here && head[0] <= room && (k == 0 || begin < head[0])) answer_line<Line>(answer, k, head[0], word, own);
    return is_here;
  });
  size = head[0];
  if (status != Status::ok) return status;
  if (size > room) return Status::out_of_range;
  if (size <= bytes_before<Line>(step)) return Status::ok;
  return await_more(scope, from, BasicRing<Line>::lines_of(size), k + step, deadline,
                    [&](std::uint32_t at, const std::uint32_t(&more)[Line::kWords]) {
                      answer_line<Line>({to.line(at), to.number(at)}, at, size, word, more);
                    });
}

template <class Line>
struct Replied {
  Status status;
  BasicRecvRing<Line> from;
  BasicSendRing<Line> to;
  std::uint64_t bytes;
};

// reply_words(), whatever the message.
template <class Scope, class Line, class Word>
GIGABAR_DEVICE_CALLED Replied<Line> reply_any(Scope scope, BasicRecvRing<Line> from, BasicSendRing<Line> to, Word word,
                                              Timeout timeout) {
  if (from.done_bytes != 0 || to.done_bytes != 0) return {Status::invalid_argument, from, to, 0};
  PieceHead<Line> head;
  const auto nothing = [](std::uint64_t, std::uint32_t, std::uint32_t) {};
  const std::uint32_t room = from.piece_bytes() < to.piece_bytes() ? from.piece_bytes() : to.piece_bytes();
  Status status = take_piece<Reads::first>(scope, from, room, nothing, timeout, Order::none, head);
  if (patient(scope, timeout).any(status != Status::ok)) {
    const Failure failure = agree_on_failure(scope, status, head.left);
    return {failure.status, from, to, failure.bytes};
  }
  const std::uint32_t lines = BasicRing<Line>::lines_of(head.left);
  status = make_room(scope, to, lines, timeout);
  if (status != Status::ok) return {status, from, to, 0};
  Deadline deadline(timeout);
  status = await_more(scope, from, lines, scope.rank(), deadline, [&](std::uint32_t k, const std::uint32_t(&line)[Line::kWords]) {
    answer_line<Line>({to.line(k), to.number(k)}, k, head.left, word, line);
  });
  Line::flush();
  if (patient(scope, timeout).any(status != Status::ok)) return {agree_on_failure(scope, status, 0).status, from, to, 0};
  pass_both(scope, from, to, lines);
  return {Status::ok, from, to, head.left};
}

}  // namespace detail

// Receives the next message of `from` and answers it by one of as many bytes through `to`, whose word i is `word(i, found)`, where
// `found` is the message's word i; what lies beyond the message has any contents. Neither needs memory, and no thread waits for
// another between a line and its answer: a call of 8 bytes takes 0.2 us less than by recv() and send_words(). Any thread of the
// scope asks for any word, perhaps more than once. Let `word` capture by value: a kernel keeps in local memory what is captured by
// reference, which takes 0.08 us more of each message. `bytes` is the message's size, up to the smaller piece_bytes() of both
// rings. Errors: timed_out (the message or some of its lines did not arrive in time, or there is no room for the answer; repeat the
// call to continue), peer_lost, out_of_range (a longer message: it stays, and `bytes` is its size), invalid_argument (a message of
// several pieces is sent or received in part).
template <class Scope, class Line, class Word>
GIGABAR_DEVICE Status reply_words(const Scope& scope, BasicRecvRing<Line>& from, BasicSendRing<Line>& to, const Word& word,
                                  std::uint64_t& bytes, Timeout timeout) {
  if (from.done_bytes == 0 && to.done_bytes == 0 && to.room_bytes() != 0) {
    std::uint32_t size = 0;
    const Status status = detail::reply_at_once(scope, from, to, word, size, timeout);
    Line::flush();
    if (!detail::patient(scope, timeout).any(status != Status::ok)) {
      detail::pass_both(scope, from, to, BasicRing<Line>::lines_of(size));
      bytes = size;
      return Status::ok;
    }
    const Status waited = status == Status::out_of_range ? Status::ok : status;
    if (scope.any(waited != Status::ok)) {
      bytes = 0;
      return detail::agree_on_failure(scope, waited, 0).status;
    }
  }
  const auto replied = detail::reply_any(scope, from, to, word, timeout);
  from = replied.from;
  to = replied.to;
  bytes = replied.bytes;
  return replied.status;
}

}  // namespace gigabar::inline v0::device
