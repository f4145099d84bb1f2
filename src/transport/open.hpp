// SPDX-License-Identifier: Apache-2.0
// The transports that there are, opened: each in the folder of its name.
#pragma once

#include <memory>

#include "gigabar/status.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport {

// Why it cannot be used, or the opened transport. Errors, where no others are named: unavailable with the availability's reason, and
// as register_memory.
//
// One host: shared memory, CUDA IPC, CPU mappings of GPU memory.
Result<std::unique_ptr<Transport>> open_local(const TransportOptions& options);
// InfiniBand, RoCE and iWARP.
Result<std::unique_ptr<Transport>> open_verbs(const TransportOptions& options);
// UCP: TCP and every network that UCX knows.
Result<std::unique_ptr<Transport>> open_ucx(const TransportOptions& options);
// TCP, over connections that have proved a key. Errors: invalid_argument (TransportOptions::tcp_interfaces), unavailable (there is
// no such interface, or nothing can listen there), out_of_descriptors. Without libsodium there is none.
Result<std::unique_ptr<Transport>> open_tcp(const TransportOptions& options);

// UCX opened by a process that may die of it (driver/probe.hpp): what main() of a program calls first that can be started for
// probes. Returns, unless this process was.
void serve_ucx_probes(int argument_count, char** arguments);

}  // namespace gigabar::transport
