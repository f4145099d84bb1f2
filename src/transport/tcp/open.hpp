// SPDX-License-Identifier: Apache-2.0
// TCP, over connections that have proved a key.
#pragma once

#include <memory>

#include "gigabar/status.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport {

// Errors: invalid_argument (TransportOptions::tcp_interfaces), unavailable (there is no such interface, or nothing can listen
// there), out_of_descriptors.
Result<std::unique_ptr<Transport>> open_tcp(const TransportOptions& options);

}  // namespace gigabar::transport
