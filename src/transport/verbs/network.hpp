// SPDX-License-Identifier: Apache-2.0
// What the network is asked for on behalf of a connection (service level, traffic class), and what it then has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/rdmacm/rdmacm.hpp"
#include "driver/verbs/functions.hpp"
#include "transport/transport.hpp"
#include "transport/verbs/wire.hpp"

namespace gigabar::transport::rdma {

// Whether connections of that kind can have the service level of the options. Errors: not_supported (iWARP has none),
// invalid_argument (Ethernet has priorities 0 to 7).
Result<void> check_service_level(const TransportOptions& options, Technology technology, const std::string& rail);

// The type of service that rdma_cm is given. Nothing: the system's. Over RoCE a service level without a traffic class takes the
// class selector of that number, which adapters and switches that trust DSCP put into the same priority.
std::optional<std::uint8_t> type_of_service(const TransportOptions& options, Technology technology) noexcept;

// `found`, which rdma_cm resolved, with another service level, in the form in which rdma_cm takes it back in place of resolving the
// route (RDMA_OPTION_IB_PATH).
ibv_path_data path_with(const ibv_sa_path_rec& found, std::uint8_t service_level) noexcept;

// "GID 1 RoCE v2, MTU 1024, traffic class 96, service level 3" of a connected queue pair; empty where nobody tells (iWARP).
std::string network_of(ibv_qp* pair, const std::string& device, unsigned port, Technology technology);

}  // namespace gigabar::transport::rdma
