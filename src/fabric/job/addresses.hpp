// SPDX-License-Identifier: Apache-2.0
// At which addresses of this host a job of several hosts listens, and where the directory of a job is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/job/job.hpp"
#include "platform/network.hpp"

namespace gigabar::fabric {

using network::is_loopback;
using network::SocketAddress;

// By its text alone: a host's own name may stand for loopback there and for another address elsewhere.
bool is_written_as_loopback(const std::string& address);
// One that is there already is not added.
void add(std::vector<SocketAddress>& addresses, SocketAddress address);
bool is_of_this_host(SocketAddress address);

// Whether GIGABAR_INTERFACES names any.
bool has_named_interfaces();
// For ranks of one host that do not meet at its Unix sockets, which are those of one network name space.
inline constexpr const char* kRemedyOfNetworks =
    "ranks in containers with networks of their own need one network name space for all, or GIGABAR_JOB_KEY, MASTER_ADDR with an "
    "address of rank 0 that all reach (PMIx needs neither) and GIGABAR_INTERFACES with the interfaces between them: the job then "
    "uses TCP";

// Without a port, at most one of each address: those that GIGABAR_INTERFACES names ("eth0,192.0.2.7,198.51.100.0/24"); without it
// those that the system would use on the way to rank 0; where rank 0's address is not known or is this host's own loopback, those
// of the default route; where there is none, all but loopback. Errors: invalid_argument (GIGABAR_INTERFACES), unavailable (there is
// none, or the address of rank 0 is unknown).
Result<std::vector<SocketAddress>> outer_addresses(const Job& job);
// "192.0.2.7,fd00::7". Errors: the same.
Result<std::string> outer_address_list(const Job& job);
// Their interfaces, "eth0,eth1", for libraries that listen by interface. Errors: the same.
Result<std::string> outer_interfaces(const Job& job);

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
