// SPDX-License-Identifier: Apache-2.0
#include "conformance/rank_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "memory/runtime.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::uint64_t pattern_word(std::uint64_t index, std::uint64_t seed) noexcept {
  std::uint64_t word = index + seed * 0x9e3779b97f4a7c15U + 1;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31);
}

}  // namespace

unsigned char pattern_byte(std::uint64_t position, std::uint64_t seed) noexcept {
  return static_cast<unsigned char>(pattern_word(position / 8, seed) >> (8 * (position % 8)));
}

void fill_pattern(void* destination, std::size_t bytes, std::uint64_t seed, std::uint64_t position) noexcept {
  auto* out = static_cast<unsigned char*>(destination);
  std::size_t i = 0;
  for (; i < bytes && (position + i) % 8 != 0; ++i) out[i] = pattern_byte(position + i, seed);
  for (; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = pattern_word((position + i) / 8, seed);  // little endian, as pattern_byte counts
    std::memcpy(out + i, &word, sizeof word);
  }
  for (; i < bytes; ++i) out[i] = pattern_byte(position + i, seed);
}

testing::AssertionResult is_pattern(const void* data, std::size_t bytes, std::uint64_t seed, std::uint64_t position) {
  const auto* seen = static_cast<const unsigned char*>(data);
  std::vector<unsigned char> right(bytes);
  fill_pattern(right.data(), bytes, seed, position);
  if (bytes == 0 || std::memcmp(seen, right.data(), bytes) == 0) return testing::AssertionSuccess();
  std::size_t wrong = 0, first = bytes, last = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (seen[i] == right[i]) continue;
    ++wrong;
    first = std::min(first, i);
    last = i;
  }
  return testing::AssertionFailure() << wrong << " of " << bytes << " bytes are wrong, the first at " << first << " ("
                                     << int(seen[first]) << " for " << int(right[first]) << "), the last at " << last;
}

testing::AssertionResult is_filled(const void* data, std::size_t bytes, unsigned char value) {
  const auto* seen = static_cast<const unsigned char*>(data);
  const auto* wrong = std::find_if(seen, seen + bytes, [value](unsigned char byte) { return byte != value; });
  if (wrong == seen + bytes) return testing::AssertionSuccess();
  const auto count = bytes - std::size_t(std::count(seen, seen + bytes, value));
  return testing::AssertionFailure() << count << " of " << bytes << " bytes were written, the first at " << wrong - seen << " ("
                                     << int(*wrong) << ")";
}

RankMemory::RankMemory(MemoryChoice choice, std::size_t bytes, std::size_t shift_bytes) : choice_(choice), bytes_(bytes) {
  const std::size_t whole = kGuardBytes + shift_bytes + bytes + kGuardBytes;
  if (choice == MemoryChoice::host) {
    host_.resize(whole + kPageBytes);
    const auto number = reinterpret_cast<std::uintptr_t>(host_.data());
    begin_ = host_.data() + (kPageBytes - number % kPageBytes) % kPageBytes;
  } else if (choice == MemoryChoice::shared) {
    auto allocated = HostMemory::allocate(whole, {.pages = HostPages::pageable, .is_shared = true});
    if (!allocated) throw std::runtime_error(allocated.error().message());
    shared_ = std::move(*allocated);
    begin_ = static_cast<unsigned char*>(shared_->address());
  } else {
    const auto all = devices();
    if (!all) throw std::runtime_error(all.error().message());
    number_ = int(RankProcess().rank() % all->size());
    auto allocated = DeviceMemory::allocate(number_, whole);
    if (!allocated) throw std::runtime_error(allocated.error().message());
    if (allocated->is_stand_in() != (choice == MemoryChoice::stand_in))
      throw std::runtime_error("not the kind that the test wants");
    device_ = std::move(*allocated);
    begin_ = static_cast<unsigned char*>(device_->address());
  }
  address_ = begin_ + kGuardBytes + shift_bytes;
  fill();
}

void RankMemory::put(std::size_t offset, const void* source, std::size_t bytes) {
  if (choice_ != MemoryChoice::device) {
    std::memcpy(address_ + offset, source, bytes);
    return;
  }
  const auto outcome = engine_copy_to(number_, reinterpret_cast<std::uintptr_t>(address_ + offset), source, bytes);
  EXPECT_TRUE(is_ok(outcome));
}

std::vector<unsigned char> RankMemory::take(std::size_t offset, std::size_t bytes) const {
  std::vector<unsigned char> taken(bytes);
  if (bytes == 0) return taken;
  if (choice_ != MemoryChoice::device) {
    std::memcpy(taken.data(), address_ + offset, bytes);
    return taken;
  }
  const auto outcome = engine_copy_from(number_, taken.data(), reinterpret_cast<std::uintptr_t>(address_ + offset), bytes);
  EXPECT_TRUE(is_ok(outcome));
  return taken;
}

void RankMemory::put_pattern(std::size_t offset, std::size_t bytes, std::uint64_t seed, std::uint64_t position) {
  if (choice_ != MemoryChoice::device) {
    fill_pattern(address_ + offset, bytes, seed, position);
    return;
  }
  std::vector<unsigned char> data(bytes);
  fill_pattern(data.data(), bytes, seed, position);
  if (bytes > 0) put(offset, data.data(), bytes);
}

void RankMemory::fill(unsigned char value) {
  const std::size_t front = std::size_t(address_ - begin_);
  const std::size_t whole = front + bytes_ + kGuardBytes;
  if (choice_ != MemoryChoice::device) {
    std::memset(begin_, value, whole);
    std::memset(begin_, kCanary, front);
    std::memset(address_ + bytes_, kCanary, kGuardBytes);
    return;
  }
  std::vector<unsigned char> data(whole, kCanary);
  std::fill_n(data.begin() + std::ptrdiff_t(front), bytes_, value);
  EXPECT_TRUE(is_ok(engine_copy_to(number_, reinterpret_cast<std::uintptr_t>(begin_), data.data(), whole)));
}

testing::AssertionResult RankMemory::holds_pattern(std::size_t offset, std::size_t bytes, std::uint64_t seed,
                                                   std::uint64_t position) const {
  if (choice_ != MemoryChoice::device) return is_pattern(address_ + offset, bytes, seed, position);
  const auto data = take(offset, bytes);
  return is_pattern(data.data(), bytes, seed, position);
}

testing::AssertionResult RankMemory::is_untouched(std::size_t offset, std::size_t bytes) const {
  if (choice_ != MemoryChoice::device) return is_filled(address_ + offset, bytes);
  const auto data = take(offset, bytes);
  return is_filled(data.data(), bytes);
}

testing::AssertionResult RankMemory::is_untouched_around(std::size_t offset, std::size_t bytes) const {
  if (auto before = is_untouched(0, offset); !before) return before << " before the data";
  if (auto after = is_untouched(offset + bytes, bytes_ - offset - bytes); !after) return after << " after the data";
  return are_guards_whole();
}

testing::AssertionResult RankMemory::are_guards_whole() const {
  const std::size_t front = std::size_t(address_ - begin_);
  std::vector<unsigned char> guards(front + kGuardBytes);
  if (choice_ != MemoryChoice::device) {
    std::memcpy(guards.data(), begin_, front);
    std::memcpy(guards.data() + front, address_ + bytes_, kGuardBytes);
  } else {
    EXPECT_TRUE(is_ok(engine_copy_from(number_, guards.data(), reinterpret_cast<std::uintptr_t>(begin_), front)));
    EXPECT_TRUE(
        is_ok(engine_copy_from(number_, guards.data() + front, reinterpret_cast<std::uintptr_t>(address_ + bytes_), kGuardBytes)));
  }
  return is_filled(guards.data(), guards.size()) << " of the guards";
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * std::size_t(::sysconf(_SC_PAGESIZE));
}

}  // namespace gigabar::test
