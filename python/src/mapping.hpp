// SPDX-License-Identifier: Apache-2.0
// Mappings of GPU memory and copies.
#pragma once

#include <nanobind/nanobind.h>

namespace gigabar::python {

void add_mapping(nanobind::module_& module);

}  // namespace gigabar::python
