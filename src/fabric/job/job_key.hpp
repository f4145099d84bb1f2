// SPDX-License-Identifier: Apache-2.0
// Where the job's secret comes from.
#pragma once

#include "fabric/job/job.hpp"
#include "secure/handshake.hpp"

namespace gigabar::fabric {

// libsodium, made ready once for the process. Errors: device_error (the system has no random numbers).
Result<void> start_sodium();

// Who this rank is to the others. Throws std::bad_alloc.
secure::Identity identity_of(const Job& job, secure::Purpose purpose);

// The key of the options, of GIGABAR_JOB_KEY or of the file GIGABAR_JOB_KEY_FILE; not set when none of them says anything.
// Errors: invalid_argument naming what is malformed; no_permission (others can read the file); unavailable (it cannot be read).
Result<JobKey> find_key(const FabricOptions& options);

// Made by rank 0 and handed to the others through PMIx's store: the same for every call in a process. Errors: timed_out.
Result<JobKey> pmix_key(Rank rank, std::int64_t deadline_ns);

}  // namespace gigabar::fabric
