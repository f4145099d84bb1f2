// SPDX-License-Identifier: Apache-2.0
// Segments that loads and stores of this process, or kernels of its GPU, access.
#pragma once

#include "fabric_object.hpp"

namespace gigabar::python {

void add_mapped_segments(nb::module_& module, nb::class_<FabricObject>& fabric);

}  // namespace gigabar::python
