// SPDX-License-Identifier: Apache-2.0
// The commands between ranks in a build without the fabric (no libsodium for this processor): they say so.
#include <initializer_list>

#include "commands.hpp"
#include "support/failure.hpp"

namespace gigabar::tool {
namespace {

void add(const Command& program, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const Command command = program.add_subcommand(name, "Not in this build: it has no libsodium");
    command->allow_extras();
    command->callback([] { fail("this build has no fabric (not_built): libsodium was not there; install it and build again"); });
  }
}

}  // namespace

void add_point_to_point(const Command& program, Invocation&) { add(program, {"latency", "bw", "bibw", "multi-lat", "mbw-mr"}); }
void add_matrix(const Command& program, Invocation&) { add(program, {"matrix"}); }
void add_tune(const Command& program, Invocation&) { add(program, {"tune"}); }
void add_device_measures(const Command& program, Invocation&) { add(program, {"device-latency", "device-bw", "device-rate"}); }
void add_pingpong(const Command& program, Invocation&) { add(program, {"pingpong"}); }
void add_matvec(const Command& program, Invocation&) { add(program, {"matvec"}); }

}  // namespace gigabar::tool
