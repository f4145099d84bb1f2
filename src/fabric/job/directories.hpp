// SPDX-License-Identifier: Apache-2.0
// The kinds of directory that open_directory() chooses from.
#pragma once

#include "fabric/job/job.hpp"

namespace gigabar::fabric {

// Rank 0's: keeps all addresses and gives them out within poll(). Who has not proved itself `handshake_ns` after it was accepted is
// cut off, and before that when others come and there is no room (pending_limit.hpp). Errors: unavailable (the port is taken, the
// master's address is unknown), no_permission (it is no address of this host, and there is no key), out_of_descriptors.
inline constexpr std::int64_t kHandshakeNs = 5'000'000'000;
Result<std::unique_ptr<Directory>> open_bootstrap_server(const Job& job, std::int64_t handshake_ns = kHandshakeNs);

// Any other rank's: a connection to the bootstrap server. Waits for it. Errors: timed_out (rank 0 never listened), unavailable (its
// address is unknown), no_permission (another key, or a key is needed), invalid_argument (rank 0 has another rank count, or this
// rank is there already), not_supported (another version of the protocol), out_of_descriptors (this process had none for a
// connection until the deadline).
Result<std::unique_ptr<Directory>> open_member(const Job& job, std::int64_t deadline_ns);

// PMIx's store.
Result<std::unique_ptr<Directory>> open_pmix_directory(const Job& job);

// The limits of every kind. Errors: invalid_argument (too long, or published before), out_of_range (no such rank).
Result<void> check_rank_address(const std::string& rank_address, bool is_published);
Result<void> check_rank(const Job& job, Rank rank);

}  // namespace gigabar::fabric
