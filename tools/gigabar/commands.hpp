// SPDX-License-Identifier: Apache-2.0
// One function per subcommand, or per family of them: declares their options and what happens when one is chosen.
#pragma once

#include "support/options.hpp"

namespace gigabar::tool {

using AddCommand = void(const Command& program, Invocation& invocation);

AddCommand add_info, add_copylat, add_copybw, add_apiperf, add_pplat, add_sanity, add_calibrate, add_streams, add_topology,
    add_doctor, add_preflight, add_explain, add_survey, add_compare, add_report, add_point_to_point, add_matrix, add_tune,
    add_device_measures, add_pingpong, add_matvec, add_softhca, add_run;

// In the order of the help.
inline constexpr AddCommand* kCommands[] = {
    add_info,     add_copylat, add_copybw,          add_apiperf,  add_pplat,  add_sanity,  add_calibrate, add_streams,
    add_topology, add_doctor,  add_preflight,       add_explain,  add_survey, add_compare, add_report,    add_point_to_point,
    add_matrix,   add_tune,    add_device_measures, add_pingpong, add_matvec, add_softhca, add_run};

}  // namespace gigabar::tool
