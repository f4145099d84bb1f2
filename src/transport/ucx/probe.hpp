// SPDX-License-Identifier: Apache-2.0
// UCX opened by a process that may die of it (driver/probe.hpp).
#pragma once

namespace gigabar::transport {

// What main() of a program calls first that can be started for probes. Returns, unless this process was.
void serve_ucx_probes(int argument_count, char** arguments);

}  // namespace gigabar::transport
