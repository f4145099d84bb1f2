// SPDX-License-Identifier: Apache-2.0
// The commands between ranks in a build without the fabric (no libsodium for this processor): they say so.
#include "commands.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace {

void add(const Command& program, const char* name) {
  const Command command = program.add_subcommand(name, "Not in this build: it has no libsodium");
  command->allow_extras();
  command->callback([] { fail("this build has no fabric (not_built): libsodium was not there; install it and build again"); });
}

}  // namespace

void add_latency(const Command& program, Invocation& /*invocation*/) { add(program, "latency"); }
void add_bw(const Command& program, Invocation& /*invocation*/) { add(program, "bw"); }
void add_bibw(const Command& program, Invocation& /*invocation*/) { add(program, "bibw"); }
void add_multi_lat(const Command& program, Invocation& /*invocation*/) { add(program, "multi-lat"); }
void add_mbw_mr(const Command& program, Invocation& /*invocation*/) { add(program, "mbw-mr"); }
void add_tune(const Command& program, Invocation& /*invocation*/) { add(program, "tune"); }
void add_device_latency(const Command& program, Invocation& /*invocation*/) { add(program, "device-latency"); }
void add_device_bw(const Command& program, Invocation& /*invocation*/) { add(program, "device-bw"); }
void add_device_rate(const Command& program, Invocation& /*invocation*/) { add(program, "device-rate"); }
void add_pingpong(const Command& program, Invocation& /*invocation*/) { add(program, "pingpong"); }
void add_matvec(const Command& program, Invocation& /*invocation*/) { add(program, "matvec"); }

}  // namespace gigabar::tool
