// SPDX-License-Identifier: Apache-2.0
// What the kernels of matvec are told.
#pragma once

#include <cstdint>

#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks {

// Rank 1 streams batches of vectors to rank 0, which multiplies each by one matrix and streams the products back. Unit u has
// `vectors` of each batch. A segment has, one behind the other: source_count batches that are sent in turn (rank 1), slot_count
// batches that arrive (rank 0), batch_count batches of products (both), the matrix (rank 0).
struct MatvecPlan : PairPlan {
  std::uint32_t elements = 1;  // of a vector; the matrix is square
  std::uint32_t vectors = 1;   // of a unit's part of a batch
  std::uint32_t unit_count = 1;
  std::uint32_t batch_count = 1;
  std::uint32_t source_count = 1;
  std::uint32_t slot_count = 1;  // batches under way
  std::uint64_t slots_offset_bytes = 0;
  std::uint64_t products_offset_bytes = 0;
  std::uint64_t matrix_offset_bytes = 0;
  bool uses_messages = false;  // of kernels that stream: by a ring for each unit, else by writes

  GIGABAR_DEVICE std::uint64_t part_values() const { return std::uint64_t{vectors} * elements; }
  GIGABAR_DEVICE std::uint64_t part_bytes() const { return part_values() * sizeof(float); }
  GIGABAR_DEVICE std::uint64_t batch_bytes() const { return part_bytes() * unit_count; }
  GIGABAR_DEVICE std::uint64_t matrix_values() const { return std::uint64_t{elements} * elements; }
  // Of the fast memory of a block: the matrix and a part of a batch.
  GIGABAR_DEVICE std::uint64_t fast_bytes() const { return (matrix_values() + part_values()) * sizeof(float); }
  GIGABAR_DEVICE std::uint64_t source_offset(std::uint32_t batch) const { return batch % source_count * batch_bytes(); }
  GIGABAR_DEVICE std::uint32_t slot_of(std::uint32_t batch) const { return slot_count > 1 ? batch % slot_count : 0; }
  GIGABAR_DEVICE std::uint64_t slot_offset(std::uint32_t batch) const {
    return slots_offset_bytes + slot_of(batch) * batch_bytes();
  }
  GIGABAR_DEVICE std::uint64_t product_offset(std::uint32_t batch) const { return products_offset_bytes + batch * batch_bytes(); }
};

// What the kernel of one launch does.
enum class MatvecTask : std::uint8_t {
  fill,      // rank 1: the vectors, and what no product is where products arrive; rank 0: the matrix
  stream,    // all batches: rank 1 sends and takes, rank 0 multiplies
  multiply,  // rank 0: the batch that has arrived, sent by the CPU
};

// Between -1 and 1; the matrix is transposed, so that neighbouring rows lie side by side.
GIGABAR_DEVICE float value_of(std::uint64_t name) {
  const std::uint64_t spread = ((name + 1) ^ (name >> 17)) * 0x9e3779b97f4a7c15U;
  return static_cast<float>(static_cast<std::int32_t>(spread >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}
GIGABAR_DEVICE float matrix_value(std::uint32_t row, std::uint32_t column) {
  return value_of((std::uint64_t{1} << 60) + (std::uint64_t{row} << 24) + column);
}
// Of `source`, a batch of all units.
GIGABAR_DEVICE float vector_value(std::uint32_t source, std::uint64_t index) {
  return value_of((std::uint64_t{source} << 40) + index);
}

}  // namespace gigabar::tool::device_ranks
