// SPDX-License-Identifier: Apache-2.0
#include "waiting.hpp"

#include <string>

namespace gigabar::python {

Timeout timeout_of(nb::handle seconds, const char* operation) {
  if (seconds.is_none()) return Timeout::forever();
  const double value = PyFloat_AsDouble(seconds.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    const std::string what = std::string(operation) + ": timeout: seconds or None are expected";
    throw nb::type_error(what.c_str());
  }
  if (!(value >= 0)) refuse({operation, "timeout", "it is " + std::to_string(value), "pass seconds from 0 on, or None"});
  return Timeout(std::chrono::duration<double>(value));
}

}  // namespace gigabar::python
