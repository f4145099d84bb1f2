// One function per subcommand: declares its options and what happens when it is chosen.
#pragma once

#include "support/options.hpp"

namespace gigabar::tool {

void add_info(CLI::App& program, Invocation& invocation);
void add_copylat(CLI::App& program, Invocation& invocation);
void add_copybw(CLI::App& program, Invocation& invocation);
void add_apiperf(CLI::App& program, Invocation& invocation);
void add_pplat(CLI::App& program, Invocation& invocation);
void add_sanity(CLI::App& program, Invocation& invocation);
void add_calibrate(CLI::App& program, Invocation& invocation);
void add_streams(CLI::App& program, Invocation& invocation);
void add_topology(CLI::App& program, Invocation& invocation);
void add_doctor(CLI::App& program, Invocation& invocation);
void add_explain(CLI::App& program, Invocation& invocation);
void add_survey(CLI::App& program, Invocation& invocation);
void add_compare(CLI::App& program, Invocation& invocation);
void add_run(CLI::App& program, Invocation& invocation);
void add_latency(CLI::App& program, Invocation& invocation);
void add_bw(CLI::App& program, Invocation& invocation);
void add_bibw(CLI::App& program, Invocation& invocation);
void add_multi_lat(CLI::App& program, Invocation& invocation);
void add_mbw_mr(CLI::App& program, Invocation& invocation);
void add_tune(CLI::App& program, Invocation& invocation);
void add_device_latency(CLI::App& program, Invocation& invocation);
void add_device_bw(CLI::App& program, Invocation& invocation);
void add_device_rate(CLI::App& program, Invocation& invocation);
void add_pingpong(CLI::App& program, Invocation& invocation);
void add_matvec(CLI::App& program, Invocation& invocation);
void add_softhca(CLI::App& program, Invocation& invocation);

}  // namespace gigabar::tool
