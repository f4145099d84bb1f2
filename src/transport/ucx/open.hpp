// SPDX-License-Identifier: Apache-2.0
// UCP: TCP and every network that UCX knows.
#pragma once

#include <memory>

#include "gigabar/status.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport {

// Why it cannot be used, or the opened transport. Errors: unavailable with the availability's reason, and as register_memory.
Result<std::unique_ptr<Transport>> open_ucx(const TransportOptions& options);

// UCX opened by a process that may die of it (driver/probe.hpp): what main() of a program calls first that can be started for
// probes. Returns, unless this process was.
void serve_ucx_probes(int argument_count, char** arguments);

}  // namespace gigabar::transport
