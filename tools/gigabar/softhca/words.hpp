// SPDX-License-Identifier: Apache-2.0
// Names of what `gigabar softhca` speaks of.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gigabar/device/mlx5.hpp"
#include "gigabar/device/sharing.hpp"

namespace gigabar::tool::softhca {

using device::Sharing;
using device::mlx5::Syndrome;

enum class Op : std::uint8_t { write, inline_write, read, fetch_add, compare_swap };
std::span<const Op> all_ops() noexcept;
std::string_view name_of(Op op) noexcept;
inline bool is_atomic(Op op) noexcept { return op == Op::fetch_add || op == Op::compare_swap; }

enum class ScopeKind : std::uint8_t { thread, block };
std::string_view name_of(ScopeKind scope) noexcept;

std::string_view name_of(Sharing sharing) noexcept;

// Those that a CQE can tell of.
std::span<const Syndrome> all_syndromes() noexcept;
std::string_view name_of(Syndrome syndrome) noexcept;

}  // namespace gigabar::tool::softhca
