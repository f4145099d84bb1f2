// SPDX-License-Identifier: Apache-2.0
#include "driver/ucp/ucp.hpp"

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "driver/loader.hpp"
#include "driver/probe.hpp"

namespace gigabar::ucp {
#if GIGABAR_HAS_UCP
namespace {

constexpr unsigned kMinMinor = 13;  // of version 1: the oldest that this code was tried with
constexpr const char* kRemedy = "install UCX 1.13 or newer (package libucx0 or ucx)";

// UCX reads these once, when it is loaded. Its handlers would take over the program's signals, its hooks would rewrite the
// program's mmap and brk, its file system needs a thread, and its messages go to standard output.
constexpr std::pair<const char*, const char*> kQuiet[] = {
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_LOG_LEVEL", "fatal"},
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_VFS_ENABLE", "n"},
};

// Sets what the user has not set, for the scope.
class QuietEnvironment : InPlace {
 public:
  QuietEnvironment() {
    for (const auto& [name, value] : kQuiet) {
      if (std::getenv(name) != nullptr) continue;
      ::setenv(name, value, 1);
      set_.push_back(name);
    }
  }
  ~QuietEnvironment() {
    for (const char* name : set_) ::unsetenv(name);
  }

 private:
  std::vector<const char*> set_;
};

Library load() {
  Library untried;
  untried.availability = try_library("libucp");
  if (!untried.availability.is_ok()) return untried;
  const QuietEnvironment quiet;
  Library library{load_functions<Functions>("libucp.so.0", "GIGABAR_UCP_LIBRARY", kRemedy, kRemedy)};
  if (!library.availability.is_ok()) return library;
  library.ucp_get_version(&library.major, &library.minor, &library.patch);
  const std::string version = text("UCX ", library.major, '.', library.minor, '.', library.patch);
  if (library.major != 1 || library.minor < kMinMinor) {
    library.availability = {AvailabilityCode::driver_too_old,
                            text(library.availability.reason, " is ", version, ", not 1.13 or newer"), kRemedy};
    return library;
  }
  library.availability.reason = text(version, ", ", library.availability.reason);
  return library;
}

}  // namespace

const Library& library() {
  static const Library instance = load();
  return instance;
}

const Availability& availability() { return library().availability; }

#else

const Availability& availability() {
  static const Availability absent = not_built("UCX", "build with UCX's headers (package libucx-dev)");
  return absent;
}

#endif
}  // namespace gigabar::ucp
