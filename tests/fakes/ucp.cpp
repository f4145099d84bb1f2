// SPDX-License-Identifier: Apache-2.0
// A libucp.so.0 that ends the process which opens it, or comes back to it late or never: GIGABAR_FAKE_UCP says how. As a library of
// version 1.13 it has every function that is asked for.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace {

std::string_view part() {
  const char* const given = std::getenv("GIGABAR_FAKE_UCP");
  return given != nullptr ? given : "";
}

__attribute__((constructor)) void be_opened() {
  if (part() == "abort") {
    std::fputs("a line before\nthe fake gives up\n", stderr);
    std::abort();
  }
  if (part() == "crash") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit instead
    std::raise(SIGSEGV);
  }
  if (part() == "exit") std::exit(0);
  if (part() == "hang") {
    while (true) ::pause();
  }
  if (part() == "work") {  // 0.8 s of a processor
    timespec used{};
    while (used.tv_sec == 0 && used.tv_nsec < 800'000'000) ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  }
}

long play(std::string_view function, unsigned* first, unsigned* second, unsigned* third) {
  if (function == "ucp_get_version") *first = 1, *second = 13, *third = 1;
  if (function == "ucp_init_version" && part() == "abort in init") {
    std::fputs("an assertion of the fake\n", stderr);
    std::abort();
  }
  return function == "ucp_init_version" ? -1 : 0;
}

}  // namespace

#define GIGABAR_SYMBOL(function, version, need) \
  extern "C" long function(unsigned* first, unsigned* second, unsigned* third) { return play(#function, first, second, third); }
#include "driver/ucp/symbols.def"
#undef GIGABAR_SYMBOL
