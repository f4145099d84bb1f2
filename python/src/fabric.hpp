// SPDX-License-Identifier: Apache-2.0
// Ranks.
#pragma once

#include <nanobind/nanobind.h>

namespace gigabar::python {

void add_fabric(nanobind::module_& module);

}  // namespace gigabar::python
