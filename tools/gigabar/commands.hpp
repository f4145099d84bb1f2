// SPDX-License-Identifier: Apache-2.0
// One function per subcommand: declares its options and what happens when it is chosen.
#pragma once

#include "support/options.hpp"

namespace gigabar::tool {

using AddCommand = void(const Command& program, Invocation& invocation);

AddCommand add_info, add_copylat, add_copybw, add_apiperf, add_pplat, add_sanity, add_calibrate, add_streams, add_topology,
    add_doctor, add_explain, add_survey, add_compare, add_latency, add_bw, add_bibw, add_multi_lat, add_mbw_mr, add_tune,
    add_device_latency, add_device_bw, add_device_rate, add_pingpong, add_matvec, add_softhca, add_run;

// In the order of the help.
inline constexpr AddCommand* kCommands[] = {
    add_info,        add_copylat,  add_copybw,    add_apiperf, add_pplat,  add_sanity,         add_calibrate,
    add_streams,     add_topology, add_doctor,    add_explain, add_survey, add_compare,        add_latency,
    add_bw,          add_bibw,     add_multi_lat, add_mbw_mr,  add_tune,   add_device_latency, add_device_bw,
    add_device_rate, add_pingpong, add_matvec,    add_softhca, add_run};

}  // namespace gigabar::tool
