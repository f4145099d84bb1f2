// SPDX-License-Identifier: Apache-2.0
// One host: shared memory, CUDA IPC, CPU mappings of GPU memory.
#pragma once

#include <memory>

#include "gigabar/status.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport {

// Why it cannot be used, or the opened transport. Errors: unavailable with the availability's reason, and as register_memory.
Result<std::unique_ptr<Transport>> open_local(const TransportOptions& options);

}  // namespace gigabar::transport
