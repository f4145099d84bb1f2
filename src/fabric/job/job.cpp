// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/job.hpp"

#include <sodium.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/pmix/pmix.hpp"
#include "fabric/job/addresses.hpp"
#include "fabric/job/launchers.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kMaxIdBytes = 256;
constexpr std::size_t kMaxAddressBytes = 255;  // of a host name

std::int64_t deadline_of(Timeout timeout) {
  constexpr auto kEnd = std::numeric_limits<std::int64_t>::max();
  const std::int64_t now = now_ns();
  return timeout.is_forever() || timeout.ns() > kEnd - now ? kEnd : now + timeout.ns();
}

std::string hash_id(const std::string& of) {
  std::array<unsigned char, 16> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(of.data()), of.size(), nullptr, 0);
  std::array<char, 2 * hash.size() + 1> digits{};
  return sodium_bin2hex(digits.data(), digits.size(), hash.data(), hash.size());
}

// The rules for the id, in their order; `name_space` is PMIx's or empty.
Result<std::string> find_id(const Job& job, const std::string& name_space) {
  if (auto id = environment("GIGABAR_JOB_ID")) {
    if (id->empty() || id->size() > kMaxIdBytes)
      return refuse_job("GIGABAR_JOB_ID", text("it has ", id->size(), " bytes; 1 to ", kMaxIdBytes, " are possible"),
                        "set the same short name at every rank, another one for every job");
    return *id;
  }
  // torchrun writes "none" for a job that was given no name.
  if (auto id = environment("TORCHELASTIC_RUN_ID"); id && !id->empty() && *id != "none")
    return id->size() <= kMaxIdBytes ? *id : hash_id(*id);
  if (!name_space.empty()) return name_space;
  if (job.rank_count == 1) return text("alone-", ::getpid(), "-", randombytes_random());  // there are no others to agree with
  return hash_id(text(job.master_address, " ", job.master_port));
}

// "::1" of "[::1]", as an IPv6 address is written before a port.
std::string without_brackets(const std::string& address) {
  const bool has_brackets = address.size() > 2 && address.front() == '[' && address.back() == ']';
  return has_brackets && address.find(':') != std::string::npos ? address.substr(1, address.size() - 2) : address;
}

// `who` asks for it.
Result<void> find_master_address(Job& job, const FabricOptions& options, const char* who) {
  const auto written = options.master_address ? options.master_address : environment("MASTER_ADDR");
  if (!written && job.launcher == Launcher::slurm) {
    auto node = slurm_master();
    if (!node) return node.error();
    job.master_address = std::move(*node);
    return {};
  }
  if (!written) return refuse_job("MASTER_ADDR", text(who, " is set, MASTER_ADDR is not"));
  std::string address = without_brackets(*written);
  const bool is_every = address == "0.0.0.0" || address == "::";
  if (is_every || address.empty() || address.size() > kMaxAddressBytes ||
      address.find_first_of(std::string_view("[]\0", 3)) != std::string::npos)
    return refuse_job(options.master_address ? "master_address" : "MASTER_ADDR",
                      is_every ? text(address, " stands for all addresses of a host, and for none that others could connect to")
                               : "it is no host name or address",
                      "give the host name or address of rank 0");
  job.master_address = std::move(address);
  return {};
}

// MASTER_PORT; `who` asks for it.
Result<std::uint16_t> port_of_environment(const char* who) {
  const auto port = number_from("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  if (!*port) return refuse_job("MASTER_PORT", text(who, " is set, MASTER_PORT is not"));
  // torchrun's agent listens at the job's port itself.
  const bool is_taken = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (is_taken && **port == 65535)
    return refuse_job("MASTER_PORT", "65535 is torchrun's own, and there is no next one", "set GIGABAR_MASTER_PORT at every rank");
  return static_cast<std::uint16_t>(**port + (is_taken ? 1 : 0));
}

Result<std::uint16_t> find_master_port(const Job& job, const FabricOptions& options, const char* who) {
  if (options.master_port) {
    if (*options.master_port == 0) return refuse_job("master_port", "0 is no port", "give the port that rank 0 shall listen at");
    return *options.master_port;
  }
  const auto own = number_from("GIGABAR_MASTER_PORT", 1, 65535);
  if (!own) return own.error();
  if (*own) return static_cast<std::uint16_t>(**own);
  return job.launcher == Launcher::slurm ? slurm_port() : port_of_environment(who);
}

// With where the directory is: options, then the environment. `who` asks for it.
Result<Job> with_master(Job job, const FabricOptions& options, const char* who) {
  if (Result<void> found = find_master_address(job, options, who); !found) return std::move(found).error();
  const auto port = find_master_port(job, options, who);
  if (!port) return port.error();
  job.master_port = *port;
  return job;
}

Result<Job> from_options(const FabricOptions& options) {
  Job job;
  job.launcher = Launcher::options;
  if (!options.rank) return refuse_job("rank", "rank_count is given, rank is not", "give both");
  if (!options.rank_count) return refuse_job("rank_count", "rank is given, rank_count is not", "give both");
  if (*options.rank_count == 0 || *options.rank_count > kMaxRanks)
    return refuse_job("rank_count", text(*options.rank_count, " is not a number from 1 to ", kMaxRanks),
                      "give the number of ranks");
  if (*options.rank >= *options.rank_count)
    return refuse_job("rank", text(*options.rank, " is not below the rank count, ", *options.rank_count), "ranks count from 0");
  job.rank = *options.rank;
  job.rank_count = *options.rank_count;
  if (job.rank_count == 1) return job;
  return with_master(std::move(job), options, "rank");
}

// What a launcher says beside what a Job holds.
struct Launch {
  std::string name_space;            // PMIx's, or empty
  std::optional<bool> has_one_host;  // nothing: it does not say
};

// A launcher that says how many ranks are on this host.
Result<void> take_local_count(std::optional<std::uint64_t> local_count, const Job& job, bool has_key, Launch& launch) {
  if (!local_count) return {};
  launch.has_one_host = *local_count == job.rank_count;
  if (has_key || *launch.has_one_host) return {};
  return make_error(Status::no_permission, "find the job", "LOCAL_WORLD_SIZE",
                    text(*local_count, " of the ", counted(job.rank_count, "rank"), *local_count == 1 ? " is" : " are",
                         " on this host, and the job has no key"),
                    "set GIGABAR_JOB_KEY to the same secret at every rank ('openssl rand -hex 32')");
}

// The variables that make a rank of a process that another launcher, or a user, has started. A job of one rank has nobody to meet.
Result<void> require_whole_environment(const FabricOptions& options) {
  const bool is_alone = environment("WORLD_SIZE") == "1";
  const std::array<NeededVariable, 4> variables = {
      {{"RANK", is_set("RANK")},
       {"WORLD_SIZE", is_set("WORLD_SIZE")},
       {"MASTER_ADDR", is_set("MASTER_ADDR") || options.master_address || is_alone},
       {"MASTER_PORT", is_set("MASTER_PORT") || is_set("GIGABAR_MASTER_PORT") || options.master_port || is_alone}}};
  return require_all(variables);
}

Result<Job> from_environment(const FabricOptions& options, bool has_key, Launch& launch) {
  if (Result<void> whole = require_whole_environment(options); !whole) return std::move(whole).error();
  Job job;
  job.launcher = Launcher::environment;
  const auto count = number_from("WORLD_SIZE", 1, kMaxRanks);
  if (!count) return count.error();
  const auto rank = number_from("RANK", 0, kMaxRanks - 1);
  if (!rank) return rank.error();
  if (**rank >= **count) return refuse_job("RANK", text(**rank, " is not below WORLD_SIZE, ", **count));
  job.rank = static_cast<Rank>(**rank);
  job.rank_count = static_cast<Rank>(**count);
  const auto local_rank = number_from("LOCAL_RANK", 0, **count - 1);
  if (!local_rank) return local_rank.error();
  if (*local_rank) job.local_rank = static_cast<Rank>(**local_rank);
  if (job.rank_count == 1) return job;
  const auto local_count = number_from("LOCAL_WORLD_SIZE", 1, **count);
  if (!local_count) return local_count.error();
  if (Result<void> taken = take_local_count(*local_count, job, has_key, launch); !taken) return std::move(taken).error();
  return with_master(std::move(job), options, "RANK");
}

// Without a key ranks meet within one host.
Result<void> check_nodes(bool has_key, Launch& launch) {
  const auto count = number_from("SLURM_STEP_NUM_NODES", 1, kMaxRanks);
  if (!count) return count.error();
  if (*count) launch.has_one_host = **count == 1;
  if (has_key || count->value_or(1) == 1) return {};
  return make_error(Status::no_permission, "find the job", "SLURM_STEP_NUM_NODES",
                    text("the step is on ", **count, " nodes and the job has no key"),
                    "set GIGABAR_JOB_KEY to the same secret at every rank ('openssl rand -hex 32')");
}

Result<Job> from_slurm(const FabricOptions& options, bool has_key, Launch& launch) {
  const auto step = slurm_step();
  if (!step) return step.error();
  if (!*step)
    return refuse_job("SLURM_STEP_ID", "this process is no task of a step of srun",
                      "start the program with srun, or unset GIGABAR_LAUNCHER");
  Job job;
  static_cast<OwnRank&>(job) = **step;
  job.launcher = Launcher::slurm;
  if (job.rank_count == 1) return job;
  if (Result<void> whole = require_whole_step(options); !whole) return std::move(whole).error();
  if (Result<void> checked = check_nodes(has_key, launch); !checked) return std::move(checked).error();
  return with_master(std::move(job), options, "SLURM_PROCID");
}

// Workers of a launcher that itself was started by another one carry both sets of variables.
Result<void> check_agreement(const Job& job) {
  const auto rank = environment("RANK");
  const auto count = environment("WORLD_SIZE");
  if (!rank || !count || (*rank == text(job.rank) && *count == text(job.rank_count))) return {};
  return refuse_job("RANK",
                    text("RANK and WORLD_SIZE say ", rank->substr(0, 16), " of ", count->substr(0, 16), ", PMIx says ", job.rank,
                         " of ", job.rank_count),
                    "set GIGABAR_LAUNCHER to 'environment' or 'pmix' for the one that started this process");
}

Result<Job> from_pmix(const FabricOptions& options, std::int64_t deadline_ns, Launch& launch) {
  const auto found = pmix::join(deadline_ns);
  if (!found) return found.error();
  Job job;
  job.launcher = Launcher::pmix;
  if (found->rank_count > kMaxRanks)
    return refuse_job("PMIX_NAMESPACE", text("its job has ", counted(found->rank_count, "rank"), "; ", kMaxRanks, " are the most"));
  job.rank = found->rank;
  job.rank_count = found->rank_count;
  job.local_rank = found->local_rank;
  launch.name_space = found->name_space;
  if (found->local_count) launch.has_one_host = *found->local_count == found->rank_count;
  if (!environment("GIGABAR_LAUNCHER")) {
    if (Result<void> agreed = check_agreement(job); !agreed) return std::move(agreed).error();
  }
  if (!options.master_address && !options.master_port) return job;
  job.launcher = Launcher::options;  // they ask for a directory of ours
  return with_master(std::move(job), options, "master_port");
}

Result<Job> find_ranks(const FabricOptions& options, bool has_key, std::int64_t deadline_ns, Launch& launch) {
  if (options.rank || options.rank_count) return from_options(options);
  const auto launcher = find_launcher();
  if (!launcher) return launcher.error();
  switch (*launcher) {
    case Launcher::pmix: return from_pmix(options, deadline_ns, launch);
    case Launcher::environment: return from_environment(options, has_key, launch);
    case Launcher::slurm: return from_slurm(options, has_key, launch);
    default: return Job{};
  }
}

}  // namespace

std::string_view name_of(Launcher launcher) noexcept {
  constexpr std::array<std::string_view, 6> kNames = {"none", "options", "environment", "pmix", "slurm", "unsupported"};
  return kNames[static_cast<std::size_t>(launcher)];
}

Result<Job> find_job(const FabricOptions& options) {
  const std::int64_t deadline_ns = deadline_of(options.connect_timeout);
  if (Result<void> started = start_sodium(); !started) return std::move(started).error();
  // Before the ranks: a key that is wrong is told at once.
  auto key = find_key(options);
  if (!key) return key.error();
  Launch launch;
  auto job = find_ranks(options, key->is_set(), deadline_ns, launch);
  if (!job) return job;
  auto id = find_id(*job, launch.name_space);
  if (!id) return id.error();
  job->id = std::move(*id);
  if (!key->is_set() && !launch.name_space.empty() && job->rank_count > 1) {
    key = pmix_key(job->rank, deadline_ns);
    if (!key) return key.error();
  }
  job->key = std::move(*key);
  job->is_on_one_host = job->rank_count == 1 || !job->key.is_set() || is_written_as_loopback(job->master_address) ||
                        (launch.has_one_host.value_or(false) && !has_named_interfaces());
  return job;
}

}  // namespace gigabar::fabric
