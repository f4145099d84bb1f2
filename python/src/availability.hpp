// SPDX-License-Identifier: Apache-2.0
// Which paths, libraries and kernel interfaces can be used.
#pragma once

#include <nanobind/nanobind.h>

namespace gigabar::python {

void add_availability(nanobind::module_& module);

}  // namespace gigabar::python
