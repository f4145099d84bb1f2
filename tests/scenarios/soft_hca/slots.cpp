// SPDX-License-Identifier: Apache-2.0
#include "scenarios/soft_hca/slots.hpp"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "support/pattern.hpp"

namespace gigabar::tool::softhca {
namespace {

constexpr std::uint64_t kGuardSeed = 0x6a09'e667'f3bc'c908;
constexpr std::byte kSpoiled{0x01};  // flips one bit

std::uint64_t seed_of(std::uint64_t place, std::uint64_t number) noexcept {
  return (place + 1) * 0x9e37'79b9'7f4a'7c15U + number * 0xbf58'476d'1ce4'e5b9U;
}

std::uint64_t random_word(std::uint64_t seed) noexcept {
  std::byte bytes[sizeof(std::uint64_t)];
  Pattern(seed).fill(bytes);
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

std::uint64_t load_word(std::span<const std::byte> bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

void store_word(std::span<std::byte> bytes, std::uint64_t word) noexcept { std::memcpy(bytes.data(), &word, sizeof word); }

std::optional<std::string> check_block(const char* side, std::span<const std::byte> block, const Layout& layout) {
  const Pattern guards(kGuardSeed);
  std::uint64_t from = 0;
  for (std::uint64_t place = 0; place <= layout.place_count; ++place) {
    const std::uint64_t end = layout.offset(place);
    const auto wrong = guards.compare(block.subspan(from, end - from), from);
    if (wrong) return fmt::format("a byte of the {} that nothing was to write, {}", side, wrong->to_string());
    from = end + layout.bytes;
  }
  return {};
}

std::optional<std::string> complaint(const char* what, const std::optional<Mismatch>& wrong) {
  if (!wrong) return {};
  return fmt::format("{}, {}", what, wrong->to_string());
}

}  // namespace

void fill_guards(const TwoSides& rig) {
  Pattern(kGuardSeed).fill(rig.local.span());
  Pattern(kGuardSeed).fill(rig.remote.span());
}

std::optional<std::string> check_guards(const TwoSides& rig, const Layout& layout) {
  auto wrong = check_block("initiator", rig.local.span(), layout);
  return wrong ? wrong : check_block("target", rig.remote.span(), layout);
}

std::span<std::byte> Slots::initiator(std::uint64_t place) const noexcept {
  return rig_->local.span().subspan(layout_.offset(place), layout_.bytes);
}
std::span<std::byte> Slots::target(std::uint64_t place) const noexcept {
  return rig_->remote.span().subspan(layout_.offset(place), layout_.bytes);
}

device::Inline Slots::inline_payload(std::uint64_t place) const noexcept {
  device::Inline payload;
  payload.bytes = bytes();
  std::memcpy(payload.words, source(place).data(), bytes());
  return payload;
}

// --- Atomics ---------------------------------------------------------------------------------------------------------------------

std::uint64_t Slots::word_before(std::uint64_t place, std::uint64_t number) const noexcept {
  return random_word(seed_of(place, number));
}

std::uint64_t Slots::operand(std::uint64_t place, std::uint64_t number) const noexcept {
  return random_word(~seed_of(place, number));
}

// Each third comparison is to find another value.
std::uint64_t Slots::expected(std::uint64_t place, std::uint64_t number) const noexcept {
  const std::uint64_t before = word_before(place, number);
  return number % 3 == 2 ? before + 1 : before;
}

std::uint64_t Slots::word_after(std::uint64_t place, std::uint64_t number) const noexcept {
  const std::uint64_t before = word_before(place, number);
  if (op_ == Op::fetch_add) return before + operand(place, number);
  return expected(place, number) == before ? operand(place, number) : before;
}

std::optional<std::string> Slots::check_atomic(std::uint64_t place, std::uint64_t number, bool is_done) const {
  const std::uint64_t before = word_before(place, number);
  const std::uint64_t wanted = is_done ? word_after(place, number) : before;
  const std::uint64_t result = is_done ? before : ~before;
  if (load_word(target(place)) != wanted) {
    return fmt::format("the target's word, expected 0x{:016x}, found 0x{:016x}", wanted, load_word(target(place)));
  }
  if (load_word(initiator(place)) == result) return {};
  return fmt::format("the result, expected 0x{:016x}, found 0x{:016x}", result, load_word(initiator(place)));
}

// --- Ranges ----------------------------------------------------------------------------------------------------------------------

void Slots::prepare(std::uint64_t place, std::uint64_t number) const noexcept {
  if (is_atomic(op_)) {
    store_word(target(place), word_before(place, number));
    store_word(initiator(place), ~word_before(place, number));
    return;
  }
  const Pattern pattern(seed_of(place, number));
  pattern.fill(source(place));
  pattern.poison(destination(place));
}

std::optional<std::string> Slots::check_done(std::uint64_t place, std::uint64_t number) const {
  if (is_atomic(op_)) return check_atomic(place, number, true);
  const Pattern pattern(seed_of(place, number));
  auto wrong = complaint("destination", pattern.compare(destination(place)));
  return wrong ? wrong : complaint("source", pattern.compare(source(place)));
}

std::optional<std::string> Slots::check_untouched(std::uint64_t place, std::uint64_t number) const {
  if (is_atomic(op_)) return check_atomic(place, number, false);
  const Pattern pattern(seed_of(place, number));
  auto wrong = complaint("destination of what was not done", pattern.compare_poison(destination(place)));
  return wrong ? wrong : complaint("source", pattern.compare(source(place)));
}

bool Slots::is_read_here(std::uint64_t place, std::uint64_t number) const {
  const std::span<std::byte> bytes = destination(place);
  std::vector<std::byte> seen(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto* const byte = reinterpret_cast<const unsigned char*>(&bytes[i]);
    seen[i] = std::byte{__atomic_load_n(byte, __ATOMIC_ACQUIRE)};
  }
  return !Pattern(seed_of(place, number)).compare(seen);
}

void Slots::spoil_destination(std::uint64_t place) const noexcept { destination(place).back() ^= kSpoiled; }

void Slots::spoil_guard(std::uint64_t place) const noexcept {
  rig_->remote.span()[layout_.offset(place) + layout_.bytes] ^= kSpoiled;
}

}  // namespace gigabar::tool::softhca
