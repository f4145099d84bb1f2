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

namespace gigabar::verbs {

// Those that symbols.def calls optional may be null; all are when the library cannot be used.
struct Functions {
#define GIGABAR_VERBS_SYMBOL(function, version, need) decltype(&::function) function = nullptr;
#include "driver/verbs/symbols.def"
#undef GIGABAR_VERBS_SYMBOL
};

// The process's table, loaded on first use. Threads: any.
const Functions& functions();

// The errno of a result: functions of verbs, and of rdma_cm, return an errno, minus an errno, or -1 with errno set.
int code_of(int result) noexcept;

}  // namespace gigabar::verbs

#endif
