// SPDX-License-Identifier: Apache-2.0
// Words: behind the writes, without the peer's CPU. link.hpp says what their order rests on.
#include "transport/verbs/link.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace gigabar::transport::rdma {

std::string VerbsLink::why_no_word(WordKind kind, const RemoteRegion& words) const {
  const auto* const theirs = dynamic_cast<const VerbsRemoteRegion*>(&words);
  if (theirs == nullptr || !theirs->has_rail(peer_rail_)) return "the peer's notifications are not registered on this rail";
  if (device_->is_iwarp) return std::string(kNoWordsOfIwarp);
  if (read_depth_ == 0) return text("the adapters of ", rail_, " and its peer agreed on no reads and no atomics");
  if (kind == WordKind::set) return {};
  if (!theirs->key.has_atomics) return "the peer's adapters have no atomics, or none that are atomic with each other";
  return device_->attributes.atomic_cap != IBV_ATOMIC_NONE ? "" : text("the adapter of ", rail_, " has no atomics");
}

Posted VerbsLink::post_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value) {
  const auto& theirs = static_cast<const VerbsRemoteRegion&>(words);
  const std::size_t count = std::min(words_in(theirs.bytes()), kCountedWords);
  if (index >= count) {
    fail(failed(Status::invalid_argument, text("word ", index, " is beyond the ", count, " of the peer")));
    return Posted::broken;
  }
  if (state_ == LinkState::broken || failure_) return Posted::broken;
  if (state_ != LinkState::ready) return Posted::full;
  if (kind == WordKind::set) return post_set(theirs, index, value);
  return post_unwanted_read(WorkKind::atomic, 0, theirs, word_counter_at(index), value);
}

// Signalled, so that the next word soon knows that it need not wait for this one.
Posted VerbsLink::post_set(const VerbsRemoteRegion& words, std::size_t index, std::uint32_t value) {
  unsigned flags = IBV_SEND_SIGNALED;
  if (!peer_->is_in_order && std::max(ledger_.retired_count(), writes_placed_) < writes_posted_) {
    if (!ledger_.has_room(2)) return Posted::full;
    const Posted posted = post_unwanted_read(WorkKind::barrier, writes_posted_, words, 0);
    if (posted != Posted::ok) return posted;
    flags |= IBV_SEND_FENCE;
  }
  const std::uint64_t word = value;  // with the bytes behind it, see transport.hpp
  return post_bytes_to(words, word_value_at(index), std::as_bytes(std::span(&word, 1)), flags);
}

// A read or an atomic of 8 bytes, which nobody wants: a responder keeps an answer for either.
Posted VerbsLink::post_unwanted_read(WorkKind kind, std::uint64_t number, const VerbsRemoteRegion& words, std::uint64_t offset,
                                     std::uint64_t addend) {
  if (!ledger_.has_room(1) || reads_under_way_ >= read_depth_) return Posted::full;
  const Span span{device_->unwanted_sink(), words.key.address + offset, sizeof(std::uint64_t), device_->probe->lkey,
                  words.key.keys[peer_rail_]};
  const auto opcode = kind == WorkKind::atomic ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ;
  const int result = post(opcode, span, work_id(kind, number), IBV_SEND_SIGNALED, addend);
  if (result != 0) return refused_post(result);
  ledger_.add_read();
  ++reads_under_way_;
  return Posted::ok;
}

}  // namespace gigabar::transport::rdma
