// SPDX-License-Identifier: Apache-2.0
// How much one side may ask of the other. Part of the protocol: both sides count alike.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gigabar::transport::ucx {

inline constexpr std::size_t kMaxPayloadBytes = 65536;
inline constexpr std::uint64_t kWindowUnits = 2U << 20;  // what either side holds at most for messages of a link, in bytes

// What a message counts: its bytes and the record that keeps them.
constexpr std::uint64_t units_of(std::size_t payload_bytes) { return payload_bytes + 256; }

}  // namespace gigabar::transport::ucx
