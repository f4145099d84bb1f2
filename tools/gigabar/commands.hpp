// SPDX-License-Identifier: Apache-2.0
// One function per subcommand: declares its options and what happens when it is chosen.
#pragma once

#include "support/options.hpp"

namespace gigabar::tool {

void add_info(const Command& program, Invocation& invocation);
void add_copylat(const Command& program, Invocation& invocation);
void add_copybw(const Command& program, Invocation& invocation);
void add_apiperf(const Command& program, Invocation& invocation);
void add_pplat(const Command& program, Invocation& invocation);
void add_sanity(const Command& program, Invocation& invocation);
void add_calibrate(const Command& program, Invocation& invocation);
void add_streams(const Command& program, Invocation& invocation);
void add_topology(const Command& program, Invocation& invocation);
void add_doctor(const Command& program, Invocation& invocation);
void add_explain(const Command& program, Invocation& invocation);
void add_survey(const Command& program, Invocation& invocation);
void add_compare(const Command& program, Invocation& invocation);
void add_run(const Command& program, Invocation& invocation);
void add_latency(const Command& program, Invocation& invocation);
void add_bw(const Command& program, Invocation& invocation);
void add_bibw(const Command& program, Invocation& invocation);
void add_multi_lat(const Command& program, Invocation& invocation);
void add_mbw_mr(const Command& program, Invocation& invocation);
void add_tune(const Command& program, Invocation& invocation);
void add_device_latency(const Command& program, Invocation& invocation);
void add_device_bw(const Command& program, Invocation& invocation);
void add_device_rate(const Command& program, Invocation& invocation);
void add_pingpong(const Command& program, Invocation& invocation);
void add_matvec(const Command& program, Invocation& invocation);
void add_softhca(const Command& program, Invocation& invocation);

}  // namespace gigabar::tool
