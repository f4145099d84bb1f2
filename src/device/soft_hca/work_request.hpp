// SPDX-License-Identifier: Apache-2.0
// A work request as an HCA reads it from the ring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/soft_hca/wire.hpp"

namespace gigabar::soft_hca {

// As the wire is told of it once its local memory was found, and what only the queue looks at.
struct WorkRequest : WireOperation {
  Syndrome syndrome = Syndrome::none;  // local_operation: it makes no sense, and of the rest only `flags` may be good
  std::uint8_t flags = 0;
  bool is_inline = false;
  std::uint64_t local_address = 0;
  std::uint32_t local_key = 0;
  std::array<std::uint32_t, device::mlx5::kMaxInlineBytes / sizeof(std::uint32_t)> payload{};  // of an inline one
};

// Whether the WQE with this index of this queue is in its place as a whole: one without tags as soon as its name is, since its
// device has ordered it in front of the doorbell.
bool has_arrived(const device::mlx5::Block& block, std::uint64_t index, std::uint32_t queue_number);
// So that what is stored there next shows by its own.
void clear_tags(device::mlx5::Block& block);

// Reads the block once, and checks that it is the WQE with this index of this queue.
WorkRequest read_work_request(const device::mlx5::Block& block, std::uint64_t index, std::uint32_t queue_number);

}  // namespace gigabar::soft_hca
