// SPDX-License-Identifier: Apache-2.0
// Where the directory of a job listens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/job/interfaces.hpp"
#include "fabric/job/job.hpp"

namespace gigabar::fabric {

// "[::1]:29500", for messages.
std::string name_of_master(const Job& job);

// Rank 0's. A job of one host: Unix sockets, whose names follow from the key, the port and the user; only processes of the same
// user are heard. A job of several hosts: TCP at those of the master's addresses that are this host's; where none of them can be
// reached from outside, at outer_addresses() too; and, where it is free, the Unix socket at which a rank of this host without the
// key is told so. Errors: unavailable (the port is taken, there is no address), out_of_descriptors,
// invalid_argument.
Result<std::vector<Descriptor>> listen_as_master(const Job& job);

// Where the others find it, best first. Errors: unavailable (the address is unknown), no_permission (no address of this host, and
// no key).
Result<std::vector<SocketAddress>> master_addresses(const Job& job);

// Both families, with the port. Errors: unavailable.
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port);

}  // namespace gigabar::fabric
