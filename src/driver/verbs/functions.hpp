// SPDX-License-Identifier: Apache-2.0
// The functions of libibverbs.so.1 themselves, for components that keep queues of their own. verbs.hpp says whether they can be
// used.
#pragma once

#if GIGABAR_HAS_VERBS

#include <infiniband/verbs.h>
// The header wraps these around the exported functions; the table below takes the exported ones.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#include "driver/loader.hpp"

namespace gigabar::verbs {

#define GIGABAR_SYMBOLS "driver/verbs/symbols.def"
#include "driver/functions.inc"

// The process's table, loaded on first use. Threads: any.
const LibraryOf<Functions>& functions();

// The errno of a result: functions of verbs, and of rdma_cm, return an errno, minus an errno, or -1 with errno set.
int code_of(int result) noexcept;

}  // namespace gigabar::verbs

#endif
