// SPDX-License-Identifier: Apache-2.0
// UCX's protocol layer, opened at run time.
#pragma once

#include "driver/loader.hpp"
#include "gigabar/status.hpp"

#if GIGABAR_HAS_UCP
#include <ucp/api/ucp.h>
#endif

namespace gigabar::ucp {

// Whether libucp.so.0 (GIGABAR_UCP_LIBRARY names another one), 1.13 or newer, can be used; the reason tells its version. The first
// call opens the library, after another process has done so and lived (driver/probe.hpp): while that lasts, variables of the
// environment that switch UCX's signal handlers, memory hooks and messages off are set where the user has not set them, so make it
// before there are threads that read the environment.
const Availability& availability();

#if GIGABAR_HAS_UCP
#define GIGABAR_SYMBOLS "driver/ucp/symbols.def"
#include "driver/functions.inc"

struct Library : LibraryOf<Functions> {
  unsigned major = 0, minor = 0, patch = 0;
};

// Its functions may be called only when availability() is ok.
const Library& library();
#endif

}  // namespace gigabar::ucp
