// SPDX-License-Identifier: Apache-2.0
// What a program may still wait for, by id. A flat table: a node of a general map for every message would cost more than sending
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gigabar::fabric {

// Ids are never 0 and mostly follow one another, so that each has the place of its last bits to itself.
template <class Value>
class IdTable {
 public:
  std::size_t size() const noexcept { return size_; }

  // Null: none of that id. Good until the next insert() or erase().
  const Value* find(std::uint64_t id) const noexcept {
    const Slot& slot = slots_[place_of(id)];
    return slot.id != 0 ? &slot.value : nullptr;
  }

  // For one more, so that the next insert() allocates nothing.
  void make_room() {
    if (size_ * 2 >= slots_.size()) grow();
  }

  // `id` is not there yet.
  void insert(std::uint64_t id, Value value) {
    make_room();
    slots_[place_of(id)] = {id, std::move(value)};
    ++size_;
  }

  void erase(std::uint64_t id) noexcept {
    std::size_t hole = place_of(id);
    if (slots_[hole].id == 0) return;
    --size_;
    slots_[hole] = {};
    // What was put further on because of this one comes back.
    for (std::size_t next = after(hole); slots_[next].id != 0; next = after(next)) {
      const std::size_t place = place_of(slots_[next].id);
      if (place == next) continue;
      slots_[place] = std::exchange(slots_[next], {});
    }
  }

 private:
  struct Slot {
    std::uint64_t id = 0;  // 0: nothing
    Value value{};
  };

  std::size_t after(std::size_t place) const noexcept { return (place + 1) & (slots_.size() - 1); }
  // Where the id is, or else where it would go.
  std::size_t place_of(std::uint64_t id) const noexcept {
    std::size_t place = id & (slots_.size() - 1);
    while (slots_[place].id != 0 && slots_[place].id != id) place = after(place);
    return place;
  }
  void grow() {
    std::vector<Slot> larger(slots_.size() * 2);
    const std::vector<Slot> old = std::exchange(slots_, std::move(larger));
    for (const Slot& slot : old) {
      if (slot.id != 0) slots_[place_of(slot.id)] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::size_t size_ = 0;
};

}  // namespace gigabar::fabric
