// SPDX-License-Identifier: Apache-2.0
// librdmacm.so.1, opened at run time: connections between RDMA devices by IP address, the only way that works on InfiniBand, RoCE
// and iWARP alike.
#pragma once

#include "driver/loader.hpp"
#include "gigabar/status.hpp"

#if GIGABAR_HAS_RDMACM
#include <rdma/rdma_cma.h>
#define GIGABAR_SYMBOLS "driver/rdmacm/symbols.def"
#endif

namespace gigabar::rdmacm {

#include "driver/functions.inc"

// The process's table, loaded on first use. Threads: any.
const LibraryOf<Functions>& functions();
// ok when the library was opened and has every function that is needed.
inline const Availability& availability() { return functions().availability; }

}  // namespace gigabar::rdmacm
