// SPDX-License-Identifier: Apache-2.0
// Names of what `gigabar softhca` speaks of.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "gigabar/device/mlx5.hpp"
#include "gigabar/device/sharing.hpp"
#include "support/names.hpp"

namespace gigabar::tool::softhca {

using device::Sharing;
using device::mlx5::Syndrome;

enum class Op : std::uint8_t { write, inline_write, read, fetch_add, compare_swap };
inline bool is_atomic(Op op) noexcept { return op == Op::fetch_add || op == Op::compare_swap; }

enum class ScopeKind : std::uint8_t { thread, block };

// In the order in which they are run.
inline constexpr std::array kOps = {Named{Op::write, "write"}, Named{Op::inline_write, "inline-write"}, Named{Op::read, "read"},
                                    Named{Op::fetch_add, "fetch-add"}, Named{Op::compare_swap, "compare-swap"}};
// By name, as the help lists them.
inline constexpr std::array kScopes = {Named{ScopeKind::block, "block"}, Named{ScopeKind::thread, "thread"}};
inline constexpr std::array kSharings = {Named{Sharing::block, "block"}, Named{Sharing::device, "device"},
                                         Named{Sharing::exclusive, "exclusive"}};
// Those that a CQE can tell of.
inline constexpr std::array kSyndromes = {Named{Syndrome::bad_response, "bad_response"},
                                          Named{Syndrome::flushed, "flushed"},
                                          Named{Syndrome::local_access, "local_access"},
                                          Named{Syndrome::local_length, "local_length"},
                                          Named{Syndrome::local_operation, "local_operation"},
                                          Named{Syndrome::local_protection, "local_protection"},
                                          Named{Syndrome::not_ready_retries_exceeded, "not_ready_retries_exceeded"},
                                          Named{Syndrome::remote_aborted, "remote_aborted"},
                                          Named{Syndrome::remote_access, "remote_access"},
                                          Named{Syndrome::remote_operation, "remote_operation"},
                                          Named{Syndrome::remote_request, "remote_request"},
                                          Named{Syndrome::retries_exceeded, "retries_exceeded"}};

inline std::string_view name_of(Op op) noexcept { return name_in(kOps, op); }
inline std::string_view name_of(ScopeKind scope) noexcept { return name_in(kScopes, scope); }
inline std::string_view name_of(Sharing sharing) noexcept { return name_in(kSharings, sharing); }
inline std::string_view name_of(Syndrome syndrome) noexcept { return name_in(kSyndromes, syndrome); }

}  // namespace gigabar::tool::softhca
