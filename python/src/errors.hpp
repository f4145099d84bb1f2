// SPDX-License-Identifier: Apache-2.0
// Errors of the library as exceptions of Python: gigabar.Error, or gigabar.TimedOut.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>

#include "gigabar/status.hpp"

namespace gigabar::python {

namespace nb = nanobind;

// Of paths and names of other programs too, which need not be UTF-8.
nb::str text_of(std::string_view text);

// Throws what nanobind turns into the exception. The caller holds the GIL, as for everything here.
[[noreturn]] void raise(const ErrorRecord& record);

// Refuses an argument before the library sees it.
struct Refusal {
  const char* operation;
  const char* argument;
  std::string cause;
  std::string remedy;
};
[[noreturn]] void refuse(const Refusal& refusal, Status status = Status::invalid_argument);

template <class T>
T take(Result<T>&& result) {
  if (!result) raise(result.error().record());
  return std::move(result).value();
}
inline void take(Result<void>&& result) {
  if (!result) [[unlikely]] {
    raise(result.record());
  }
}

}  // namespace gigabar::python
