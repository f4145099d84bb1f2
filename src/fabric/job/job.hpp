// SPDX-License-Identifier: Apache-2.0
// The job: who this process is among how many, and where the others' addresses are found. Read from what the launcher left; nothing
// is guessed from half of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/in_place.hpp"
#include "gigabar/fabric_options.hpp"
#include "gigabar/status.hpp"
#include "secure/handshake.hpp"
#include "secure/secret.hpp"

namespace gigabar::fabric {

enum class Launcher : std::uint8_t {
  none,
  options,
  environment,  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: torchrun, gigabar run
  pmix,
  slurm,  // srun without PMIx
  unsupported
};
std::string_view name_of(Launcher launcher) noexcept;

using JobKey = secure::Secret;
inline constexpr std::size_t kMinKeyBytes = 16;

// Who a process is among how many.
struct OwnRank {
  Rank rank = 0;
  Rank rank_count = 1;
  std::optional<Rank> local_rank;  // the launcher's word, if it says it
};

struct Job : OwnRank {
  Launcher launcher = Launcher::none;
  std::string id;              // the same at every rank, different between jobs that run side by side
  JobKey key;                  // not set: only processes of the same user of this host are accepted
  std::string master_address;  // where rank 0's directory is; IPv6 without brackets. Not with pmix
  std::uint16_t master_port = 0;
  // All ranks are processes of this host and share a network name space: nothing of the job listens on TCP. So it is without a key,
  // where the master's address is a loopback address, and where the launcher says that all ranks are here and no GIGABAR_INTERFACES
  // says that they meet on a network all the same (containers).
  bool is_on_one_host = true;
};

// What `options` and the launcher say. In this order: FabricOptions; GIGABAR_LAUNCHER; PMIx (PMIX_RANK and its server's address are
// set); RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK); launchers that are refused (launchers.cpp); a step of srun
// (launchers.hpp); else a job of one rank. The key: FabricOptions, GIGABAR_JOB_KEY (hexadecimal), GIGABAR_JOB_KEY_FILE (not
// readable by others), PMIx (made by rank 0, passed through its servers). The directory's port: FabricOptions, GIGABAR_MASTER_PORT,
// the launcher; torchrun's agent keeps MASTER_PORT for itself when TORCHELASTIC_USE_AGENT_STORE is True: the directory is then at
// the next port. Errors: invalid_argument naming the variable that is missing or malformed or the launcher that is refused,
// no_permission (a key file that others can read, several hosts without a key).
Result<Job> find_job(const FabricOptions& options);

// libsodium, made ready once for the process. Errors: device_error (the system has no random numbers).
Result<void> start_sodium();

// Who this rank is to the others. Throws std::bad_alloc.
secure::Identity identity_of(const Job& job, secure::Purpose purpose);

// The key of the options, of GIGABAR_JOB_KEY or of the file GIGABAR_JOB_KEY_FILE; not set when none of them says anything.
// Errors: invalid_argument naming what is malformed; no_permission (others can read the file); unavailable (it cannot be read).
Result<JobKey> find_key(const FabricOptions& options);

// Made by rank 0 and handed to the others through PMIx's store: the same for every call in a process. Errors: timed_out.
Result<JobKey> pmix_key(Rank rank, std::int64_t deadline_ns);

// Where ranks leave an address and fetch the others'. Never waits in a call; not for several threads at once. As it is here, that
// of a job of one rank: nobody else asks. The kinds for others (directories.hpp) say how an address gets to them.
class Directory : InPlace {
 public:
  explicit Directory(Job job) : job_(std::move(job)) {}
  virtual ~Directory() = default;
  // At most kMaxRankAddressBytes; once. Errors: invalid_argument (too long, or published before), and those of its kind.
  Result<void> publish(std::string rank_address);
  // The address of `rank`, when it has come; nothing: not yet, ask again after poll(). Asking starts to fetch it. Errors:
  // out_of_range (no such rank), peer_lost (the bootstrap server is gone), no_permission (it holds another key).
  Result<std::optional<std::string>> rank_address(Rank rank);
  virtual Result<void> poll() { return {}; }
  // Readable when poll() has something to do; -1: poll at least every 10 ms while addresses are missing.
  virtual int wake_descriptor() const noexcept { return -1; }
  // Connections that were turned away, by the rank that keeps the addresses.
  virtual std::uint64_t refused_count() const noexcept { return 0; }

 protected:
  // This rank's own address, which is kept already; an error takes it back.
  virtual Result<void> tell(const std::string& /*rank_address*/) { return {}; }
  // For an address that is not kept.
  virtual Result<std::optional<std::string>> ask(Rank /*rank*/) { return std::optional<std::string>(); }

  const Job job_;
  std::unordered_map<Rank, std::string> rank_addresses_;
};
inline constexpr std::size_t kMaxRankAddressBytes = 8192;

// Opens the job's directory: rank 0 listens (addresses.hpp says where), others connect to it and try again until `deadline_ns`
// (now_ns() clock); PMIx's own store; this process alone for one rank. Both ends prove that they hold the key
// (secure/handshake.hpp). Errors: unavailable (the port is taken; at every rank and at once: the address is unknown), timed_out,
// no_permission, out_of_descriptors.
Result<std::unique_ptr<Directory>> open_directory(const Job& job, std::int64_t deadline_ns);

}  // namespace gigabar::fabric
