// The commands between ranks in a build without the fabric (no libsodium for this processor): they say so.
#include "commands.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace {

void add(CLI::App& program, const char* name) {
  CLI::App* const command = program.add_subcommand(name, "Not in this build: it has no libsodium");
  command->allow_extras();
  command->callback([] { fail("this build has no fabric (not_built): libsodium was not there; install it and build again"); });
}

}  // namespace

void add_latency(CLI::App& program, Invocation& /*invocation*/) { add(program, "latency"); }
void add_bw(CLI::App& program, Invocation& /*invocation*/) { add(program, "bw"); }
void add_bibw(CLI::App& program, Invocation& /*invocation*/) { add(program, "bibw"); }
void add_multi_lat(CLI::App& program, Invocation& /*invocation*/) { add(program, "multi-lat"); }
void add_mbw_mr(CLI::App& program, Invocation& /*invocation*/) { add(program, "mbw-mr"); }
void add_tune(CLI::App& program, Invocation& /*invocation*/) { add(program, "tune"); }
void add_device_latency(CLI::App& program, Invocation& /*invocation*/) { add(program, "device-latency"); }
void add_device_bw(CLI::App& program, Invocation& /*invocation*/) { add(program, "device-bw"); }
void add_device_rate(CLI::App& program, Invocation& /*invocation*/) { add(program, "device-rate"); }
void add_pingpong(CLI::App& program, Invocation& /*invocation*/) { add(program, "pingpong"); }
void add_matvec(CLI::App& program, Invocation& /*invocation*/) { add(program, "matvec"); }

}  // namespace gigabar::tool
