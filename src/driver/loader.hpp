// Shared libraries opened at run time, each able to say why it is not there.
#pragma once

#include <string>

#include "gigabar/status.hpp"

namespace gigabar {

struct OpenedLibrary {
  void* handle = nullptr;  // never closed: functions of it stay in tables for the life of the process
  std::string path;        // what was opened
  Availability availability;
};

// Opens the library that the environment variable `variable` names (ignored for setuid programs), else `name`. `remedy` is given
// back when it is missing.
OpenedLibrary open_library(const char* name, const char* variable, std::string remedy);

// The symbol's address or null.
void* find_symbol(const OpenedLibrary& library, const char* name);

}  // namespace gigabar
