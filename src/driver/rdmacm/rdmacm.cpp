// SPDX-License-Identifier: Apache-2.0
#include "driver/rdmacm/rdmacm.hpp"

#include "base/errors.hpp"
#include "driver/loader.hpp"

namespace gigabar::rdmacm {
#if GIGABAR_HAS_RDMACM
namespace {

struct Library : Functions {
  Availability availability;
};

const char* fill(Library& library, const OpenedLibrary& opened) {
#define GIGABAR_RDMACM_SYMBOL(function, version) \
  if (!find_function(opened, library.function, Need::required, #function, version)) return #function;
#include "driver/rdmacm/symbols.def"
#undef GIGABAR_RDMACM_SYMBOL
  return nullptr;
}

const Library& library() {
  static const Library instance =
      load_functions("librdmacm.so.1", "GIGABAR_RDMACM_LIBRARY", "install rdma-core's librdmacm (package librdmacm1 or librdmacm)",
                     "install a newer rdma-core", fill);
  return instance;
}

}  // namespace

const Availability& availability() { return library().availability; }
const Functions& functions() { return library(); }

#else

const Availability& availability() {
  static const Availability not_built{AvailabilityCode::not_built,
                                      "this build has no support for connections of RDMA devices",
                                      "configure with rdma/rdma_cma.h (package librdmacm-dev or rdma-core-devel)",
                                      {}};
  return not_built;
}

#endif
}  // namespace gigabar::rdmacm
