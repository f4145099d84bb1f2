// SPDX-License-Identifier: Apache-2.0
#include "driver/rdmacm/rdmacm.hpp"

#include "base/errors.hpp"
#include "driver/loader.hpp"

namespace gigabar::rdmacm {
#if GIGABAR_HAS_RDMACM
namespace {

const LibraryOf<Functions>& library() {
  static const auto instance =
      load_functions<Functions>("librdmacm.so.1", "GIGABAR_RDMACM_LIBRARY",
                                "install rdma-core's librdmacm (package librdmacm1 or librdmacm)", "install a newer rdma-core");
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
