// SPDX-License-Identifier: Apache-2.0
// Where each operation's data lie, what they are before it and after it, and what nothing may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "scenarios/soft_hca/rig.hpp"
#include "scenarios/soft_hca/words.hpp"

namespace gigabar::tool::softhca {

using soft_hca::test::TwoSides;

// Of both blocks: places of `bytes`, with guard bytes before, between and behind them.
struct Layout {
  std::uint64_t bytes = 0;
  std::uint64_t place_count = 0;

  static constexpr std::uint64_t kGuardBytes = 64;
  std::uint64_t stride_bytes() const noexcept { return (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes + kGuardBytes; }
  std::uint64_t offset(std::uint64_t place) const noexcept { return kGuardBytes + place * stride_bytes(); }
  std::uint64_t block_bytes() const noexcept { return offset(place_count); }
};

// Fills both blocks with the guard pattern, before anything is posted.
void fill_guards(const TwoSides& rig);
// The first guard byte that is not what it was, in words.
std::optional<std::string> check_guards(const TwoSides& rig, const Layout& layout);

// Data of operations of one kind. `place` is where in the layout, `number` which operation of that place: its data follow from
// both.
class Slots {
 public:
  Slots(TwoSides& rig, Op op, const Layout& layout) noexcept : rig_(&rig), layout_(layout), op_(op) {}

  device::Remote remote(std::uint64_t place) const noexcept { return rig_->at_peer(layout_.offset(place)); }
  device::Local local(std::uint64_t place) const noexcept { return rig_->at_local(layout_.offset(place)); }
  std::uint32_t bytes() const noexcept { return static_cast<std::uint32_t>(layout_.bytes); }
  device::Inline inline_payload(std::uint64_t place) const noexcept;
  std::uint64_t operand(std::uint64_t place, std::uint64_t number) const noexcept;   // what is added, or stored
  std::uint64_t expected(std::uint64_t place, std::uint64_t number) const noexcept;  // what is compared: at times not what is there

  // Source and poisoned destination.
  void prepare(std::uint64_t place, std::uint64_t number) const noexcept;
  // What is wrong with a place whose operation is done, or with one whose operation must not have done anything.
  std::optional<std::string> check_done(std::uint64_t place, std::uint64_t number) const;
  std::optional<std::string> check_untouched(std::uint64_t place, std::uint64_t number) const;
  // Whether a read's data are there, looked at while they may be coming.
  bool is_read_here(std::uint64_t place, std::uint64_t number) const;
  // One wrong byte in the destination, or behind it.
  void spoil_destination(std::uint64_t place) const noexcept;
  void spoil_guard(std::uint64_t place) const noexcept;

 private:
  std::span<std::byte> initiator(std::uint64_t place) const noexcept;
  std::span<std::byte> target(std::uint64_t place) const noexcept;
  std::span<std::byte> source(std::uint64_t place) const noexcept { return op_ == Op::read ? target(place) : initiator(place); }
  std::span<std::byte> destination(std::uint64_t place) const noexcept {
    return op_ == Op::read ? initiator(place) : target(place);
  }
  std::uint64_t word_before(std::uint64_t place, std::uint64_t number) const noexcept;
  std::uint64_t word_after(std::uint64_t place, std::uint64_t number) const noexcept;
  std::optional<std::string> check_atomic(std::uint64_t place, std::uint64_t number, bool is_done) const;

  TwoSides* rig_;
  Layout layout_;
  Op op_;
};

}  // namespace gigabar::tool::softhca
