#include "fabric/job/job.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/pmix/pmix.hpp"
#include "fabric/job/job_key.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::uint64_t kMostRanks = 1U << 20;
constexpr std::size_t kMostIdBytes = 256;
constexpr std::size_t kMostAddressBytes = 255;  // of a host name
constexpr const char* kRemedy =
    "start the program with 'gigabar run', mpirun, srun or torchrun, or set all of RANK, WORLD_SIZE, MASTER_ADDR "
    "and MASTER_PORT";

Error refuse(const std::string& object, std::string cause, std::string remedy = kRemedy) {
  return make_error(Status::invalid_argument, "find the job", object, std::move(cause), std::move(remedy));
}

// Nothing when the variable is not set.
Result<std::optional<std::uint64_t>> number_from(const char* variable, std::uint64_t least, std::uint64_t most) {
  const auto value = environment(variable);
  if (!value) return std::optional<std::uint64_t>();
  const auto number = parse_number(*value, least, most);
  if (!number) return refuse(variable, text("'", value->substr(0, 64), "' is not a number from ", least, " to ", most));
  return number;
}

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

// A job of one rank has no others to agree with.
std::string lone_id() { return text("alone-", ::getpid(), "-", randombytes_random()); }

// The rules for the id, in their order; `name_space` is PMIx's or empty.
Result<std::string> find_id(const Job& job, const std::string& name_space) {
  if (auto id = environment("GIGABAR_JOB_ID")) {
    if (id->empty() || id->size() > kMostIdBytes)
      return refuse("GIGABAR_JOB_ID", text("it has ", id->size(), " bytes; 1 to ", kMostIdBytes, " are possible"),
                    "set the same short name at every rank, another one for every job");
    return *id;
  }
  // torchrun writes "none" for a job that was given no name.
  if (auto id = environment("TORCHELASTIC_RUN_ID"); id && !id->empty() && *id != "none")
    return id->size() <= kMostIdBytes ? *id : hash_id(*id);
  if (!name_space.empty()) return name_space;
  if (job.rank_count == 1) return lone_id();
  return hash_id(text(job.master_address, " ", job.master_port));
}

// The address of the directory: options, then the environment. `who` asks for it.
Outcome find_master(Job& job, const FabricOptions& options, const char* who) {
  const auto address = options.master_address ? options.master_address : environment("MASTER_ADDR");
  const char* const address_name = options.master_address ? "master_address" : "MASTER_ADDR";
  if (!address) return refuse("MASTER_ADDR", text(who, " is set, MASTER_ADDR is not"));
  if (address->empty() || address->size() > kMostAddressBytes || address->find('\0') != std::string::npos)
    return refuse(address_name, "it is no host name or address", "give the host name or address of rank 0");
  job.master_address = *address;
  if (options.master_port) {
    if (*options.master_port == 0) return refuse("master_port", "0 is no port", "give the port that rank 0 shall listen at");
    job.master_port = *options.master_port;
    return {};
  }
  const auto own_port = number_from("GIGABAR_MASTER_PORT", 1, 65535);
  if (!own_port) return own_port.error();
  const auto port = number_from("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  if (!*port && !*own_port) return refuse("MASTER_PORT", text(who, " is set, MASTER_PORT is not"));
  // torchrun's agent listens at the job's port itself.
  const bool is_taken = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (!*own_port && is_taken && **port == 65535)
    return refuse("MASTER_PORT", "65535 is torchrun's own, and there is no next one", "set GIGABAR_MASTER_PORT at every rank");
  job.master_port = static_cast<std::uint16_t>(*own_port ? **own_port : **port + (is_taken ? 1 : 0));
  return {};
}

Result<Job> from_options(const FabricOptions& options) {
  Job job;
  job.launcher = Launcher::options;
  if (!options.rank) return refuse("rank", "rank_count is given, rank is not", "give both");
  if (!options.rank_count) return refuse("rank_count", "rank is given, rank_count is not", "give both");
  if (*options.rank_count == 0 || *options.rank_count > kMostRanks)
    return refuse("rank_count", text(*options.rank_count, " is not a number from 1 to ", kMostRanks), "give the number of ranks");
  if (*options.rank >= *options.rank_count)
    return refuse("rank", text(*options.rank, " is not below the rank count, ", *options.rank_count), "ranks count from 0");
  job.rank = *options.rank;
  job.rank_count = *options.rank_count;
  if (job.rank_count == 1) return job;
  if (Outcome found = find_master(job, options, "rank"); !found) return std::move(found).take_error();
  return job;
}

bool has_environment() {
  constexpr std::array kVariables = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  return std::any_of(kVariables.begin(), kVariables.end(), [](const char* name) { return environment(name).has_value(); });
}

// What of the four is set first: named beside the one that lacks.
const char* first_set() {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    if (environment(name)) return name;
  return "GIGABAR_LAUNCHER";
}

Result<Job> from_environment(const FabricOptions& options) {
  Job job;
  job.launcher = Launcher::environment;
  const auto count = number_from("WORLD_SIZE", 1, kMostRanks);
  if (!count) return count.error();
  const auto rank = number_from("RANK", 0, kMostRanks - 1);
  if (!rank) return rank.error();
  if (!*rank) return refuse("RANK", text(first_set(), " is set, RANK is not"));
  if (!*count) return refuse("WORLD_SIZE", "RANK is set, WORLD_SIZE is not");
  if (**rank >= **count) return refuse("RANK", text(**rank, " is not below WORLD_SIZE, ", **count));
  job.rank = static_cast<Rank>(**rank);
  job.rank_count = static_cast<Rank>(**count);
  const auto local_rank = number_from("LOCAL_RANK", 0, **count - 1);
  if (!local_rank) return local_rank.error();
  job.has_local_rank = local_rank->has_value();
  job.local_rank = static_cast<Rank>(local_rank->value_or(0));
  if (job.rank_count == 1) return job;
  if (Outcome found = find_master(job, options, "RANK"); !found) return std::move(found).take_error();
  return job;
}

// Newer servers have further versions of their address, each in a variable that begins so.
bool has_pmix_server() {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (std::string_view(*variable).starts_with("PMIX_SERVER_URI")) return true;
  return false;
}

bool has_pmix() { return environment("PMIX_RANK") && has_pmix_server(); }

// Workers of a launcher that itself was started by another one carry both sets of variables.
Outcome check_agreement(const Job& job) {
  const auto rank = environment("RANK");
  const auto count = environment("WORLD_SIZE");
  if (!rank || !count || (*rank == text(job.rank) && *count == text(job.rank_count))) return {};
  return refuse("RANK",
                text("RANK and WORLD_SIZE say ", rank->substr(0, 16), " of ", count->substr(0, 16), ", PMIx says ", job.rank,
                     " of ", job.rank_count),
                "set GIGABAR_LAUNCHER to 'environment' or 'pmix' for the one that started this process");
}

Result<Job> from_pmix(const FabricOptions& options, bool is_asked_for, std::int64_t deadline_ns, std::string& name_space) {
  const auto found = pmix::join(deadline_ns);
  if (!found) return found.error();
  Job job;
  job.launcher = Launcher::pmix;
  if (found->rank_count > kMostRanks)
    return refuse("PMIX_NAMESPACE", text("its job has ", found->rank_count, " ranks; ", kMostRanks, " are the most"));
  job.rank = found->rank;
  job.rank_count = found->rank_count;
  job.has_local_rank = found->local_rank.has_value();
  job.local_rank = found->local_rank.value_or(0);
  name_space = found->name_space;
  if (!is_asked_for) {
    if (Outcome agreed = check_agreement(job); !agreed) return std::move(agreed).take_error();
  }
  if (!options.master_address && !options.master_port) return job;
  job.launcher = Launcher::options;  // they ask for a directory of ours
  if (Outcome master = find_master(job, options, "master_port"); !master) return std::move(master).take_error();
  return job;
}

// The launcher that GIGABAR_LAUNCHER asks for; nothing when it is not set.
Result<std::optional<Launcher>> asked_launcher() {
  const auto name = environment("GIGABAR_LAUNCHER");
  if (!name) return std::optional<Launcher>();
  for (const Launcher launcher : {Launcher::none, Launcher::environment, Launcher::pmix})
    if (*name == name_of(launcher)) return std::optional(launcher);
  return refuse("GIGABAR_LAUNCHER", text("'", name->substr(0, 64), "' is none of none, environment, pmix"),
                "unset it, or choose one");
}

Result<Job> find_ranks(const FabricOptions& options, std::int64_t deadline_ns, std::string& name_space) {
  if (options.rank || options.rank_count) return from_options(options);
  const auto asked = asked_launcher();
  if (!asked) return asked.error();
  if (*asked == Launcher::pmix || (!*asked && has_pmix())) return from_pmix(options, asked->has_value(), deadline_ns, name_space);
  if (*asked == Launcher::environment || (!*asked && has_environment())) return from_environment(options);
  if (!*asked && environment("PMIX_RANK"))
    return refuse("PMIX_SERVER_URI", "PMIX_RANK is set, its server's address is not",
                  "start the program with mpirun or srun --mpi=pmix");
  return Job{};
}

}  // namespace

std::string_view name_of(Launcher launcher) noexcept {
  switch (launcher) {
    case Launcher::none: return "none";
    case Launcher::options: return "options";
    case Launcher::environment: return "environment";
    case Launcher::pmix: return "pmix";
  }
  return "unknown";
}

Result<Job> find_job(const FabricOptions& options) {
  const std::int64_t deadline_ns = deadline_of(options.connect_timeout);
  if (Outcome started = start_sodium(); !started) return std::move(started).take_error();
  // Before the ranks: a key that is wrong is told at once.
  auto key = find_key(options);
  if (!key) return key.error();
  std::string name_space;
  auto job = find_ranks(options, deadline_ns, name_space);
  if (!job) return job;
  auto id = find_id(*job, name_space);
  if (!id) return id.error();
  job->id = std::move(*id);
  if (!key->is_set() && !name_space.empty() && job->rank_count > 1) {
    key = pmix_key(job->rank, deadline_ns);
    if (!key) return key.error();
  }
  job->key = std::move(*key);
  return job;
}

}  // namespace gigabar::fabric
