// SPDX-License-Identifier: Apache-2.0
// Shared libraries opened at run time, each able to say why it is not there.
#pragma once

#include <string>
#include <utility>

#include "base/errors.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

struct OpenedLibrary {
  void* handle = nullptr;  // never closed: functions of it stay in tables for the life of the process
  std::string path;        // what was opened
  Availability availability;
};

// Opens the library that the environment variable `variable` names (ignored for setuid programs), else `name`. `remedy` is given
// back when it is missing.
OpenedLibrary open_library(const char* name, const char* variable, std::string remedy);

// The symbol's address or null. `version`: of its ABI; null: the one that the library gives by default.
void* find_symbol(const OpenedLibrary& library, const char* name, const char* version = nullptr);

enum class Need { required, optional };

// Sets `function`, to null where the library lacks it. False: it is required and not there.
template <class Function>
bool find_function(const OpenedLibrary& library, Function*& function, Need need, const char* name, const char* version = nullptr) {
  function = reinterpret_cast<Function*>(find_symbol(library, name, version));
  return function != nullptr || need == Need::optional;
}

// A table of functions, that of functions.inc, with its availability.
template <class Functions>
struct LibraryOf : Functions {
  Availability availability;
};

// The table from the library that open_library() opens. fill() of the table's namespace sets the functions and names the first
// required one that the library lacks, else answers null; `symbol_remedy` is for that. Without the library all are null.
template <class Functions>
LibraryOf<Functions> load_functions(const char* name, const char* variable, std::string remedy, std::string symbol_remedy) {
  LibraryOf<Functions> library;
  const OpenedLibrary opened = open_library(name, variable, std::move(remedy));
  library.availability = opened.availability;
  if (!library.availability.is_ok()) return library;
  if (const char* const missing = fill(library, opened)) {
    library.availability = {AvailabilityCode::symbol_missing, text(opened.path, " has no ", missing), std::move(symbol_remedy)};
    return library;
  }
  library.availability.reason = opened.path;
  return library;
}

// Of a build without the library's header.
Availability not_built(const char* what, const char* remedy);

// As above; not_built(what, header_remedy) where the table is that of a build without the header.
template <class Functions>
LibraryOf<Functions> load_functions(const char* name, const char* variable, std::string remedy, std::string symbol_remedy,
                                    const char* what, const char* header_remedy) {
  if constexpr (requires(Functions& functions, const OpenedLibrary& opened) { fill(functions, opened); }) {
    return load_functions<Functions>(name, variable, std::move(remedy), std::move(symbol_remedy));
  } else {
    return {{}, not_built(what, header_remedy)};
  }
}

}  // namespace gigabar::inline v0
