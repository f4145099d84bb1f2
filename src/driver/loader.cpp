// SPDX-License-Identifier: Apache-2.0
#include "driver/loader.hpp"

#include <dlfcn.h>

#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::inline v0 {

OpenedLibrary open_library(const char* name, const char* variable, std::string remedy) {
  OpenedLibrary library;
  library.path = environment(variable).value_or(name);
  library.handle = ::dlopen(library.path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library.handle == nullptr) {
    const char* why = ::dlerror();
    library.availability = {AvailabilityCode::library_missing,
                            why != nullptr ? why : text("cannot open ", library.path),
                            std::move(remedy),
                            {NativeDomain::loader, 0, "dlopen"}};
  }
  return library;
}

void* find_symbol(const OpenedLibrary& library, const char* name, const char* version) {
  if (library.handle == nullptr) return nullptr;
  return version != nullptr ? ::dlvsym(library.handle, name, version) : ::dlsym(library.handle, name);
}

Availability not_built(const char* what, const char* remedy) {
  return {AvailabilityCode::not_built, text("this build has no support for ", what), remedy};
}

}  // namespace gigabar::inline v0
