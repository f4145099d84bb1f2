// SPDX-License-Identifier: Apache-2.0
// UCX opened by a process that may die of it (driver/trial.hpp).
#pragma once

namespace gigabar::transport {

// What main() of a program calls first that can be started for trials. Returns, unless this process was.
void serve_ucx_trials(int argument_count, char** arguments);

}  // namespace gigabar::transport
