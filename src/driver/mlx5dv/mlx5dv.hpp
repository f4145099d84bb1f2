// SPDX-License-Identifier: Apache-2.0
// libmlx5.so.1, opened at run time: what an adapter of mlx5 keeps of a queue pair in memory, so that others than libibverbs can use
// it.
#pragma once

#include "driver/loader.hpp"
#include "gigabar/status.hpp"

#if GIGABAR_HAS_MLX5DV
#include "driver/verbs/functions.hpp"
// Behind it, which takes away what the library's header wraps around exported functions.
#include <infiniband/mlx5dv.h>
#define GIGABAR_SYMBOLS "driver/mlx5dv/symbols.def"
#endif

namespace gigabar::mlx5dv {

#include "driver/functions.inc"

// The process's table, loaded on first use. Threads: any.
const LibraryOf<Functions>& functions();
// ok when the library was opened and has every function that is needed.
inline const Availability& availability() { return functions().availability; }

}  // namespace gigabar::mlx5dv
