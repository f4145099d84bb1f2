// SPDX-License-Identifier: Apache-2.0
// The extension gigabar._core.
#include <nanobind/nanobind.h>

#include "availability.hpp"
#include "fabric.hpp"
#include "mapping.hpp"
#include "memory.hpp"

NB_MODULE(_core, module) {
  module.doc() = "The extension of the package gigabar, over libgigabar.so.1.";
  gigabar::python::add_memory(module);
  gigabar::python::add_mapping(module);
  gigabar::python::add_fabric(module);
  gigabar::python::add_availability(module);
}
