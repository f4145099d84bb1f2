// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/launchers.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::fabric {
namespace {

struct Row {
  Launcher launcher;
  const char* rank;   // the variable that is its sign
  const char* count;  // null: it has none. Alone it is half an environment
  // Of unsupported ones.
  const char* name = nullptr;
  const char* remedy = nullptr;
  bool may_be_of_step = false;  // srun sets the same variables
};

constexpr const char* kOtherMpi = "start the program with an mpirun that speaks PMIx (Open MPI), srun or torchrun";

// In this order: whoever starts processes inside another launcher's job leaves the inner job's variables. Variables that a user may
// have set for Gigabar come before those of launchers that cannot be used.
constexpr std::array kRows = {
    Row{Launcher::pmix, "PMIX_RANK", nullptr},
    Row{Launcher::environment, "RANK", "WORLD_SIZE"},
    Row{Launcher::unsupported, "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux", "start the program with flux run -o pmi=pmix"},
    Row{Launcher::unsupported, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "jsrun",
        "start the program with a jsrun that speaks PMIx"},
    Row{Launcher::unsupported, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun",
        "start the program with an mpirun of Open MPI that was built with PMIx"},
    Row{Launcher::unsupported, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH2", kOtherMpi},
    Row{Launcher::unsupported, "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVAPICH", kOtherMpi},
    Row{Launcher::unsupported, "PMI_RANK", "PMI_SIZE", "a launcher with PMI (Hydra of MPICH or Intel MPI, PALS)", kOtherMpi, true},
    Row{Launcher::unsupported, "PMI_ID", "PMI_SIZE", "a launcher with PMI (Hydra of MPICH or Intel MPI)", kOtherMpi, true},
    Row{Launcher::unsupported, "PALS_RANKID", "PMI_SIZE", "PALS", kOtherMpi, true},
    Row{Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_ID"},
};

// Newer servers have further versions of their address, each in a variable that begins so.
bool has_pmix_server() {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (std::string_view(*variable).starts_with("PMIX_SERVER_URI")) return true;
  return false;
}

// The numbers are those of the step of which this process is a task, as srun's plugins for PMI set them. mpiexec of Hydra starts
// its processes from tasks of a step too: one on each node, which have other numbers.
bool is_of_step(std::optional<std::uint64_t> rank, std::optional<std::uint64_t> count) {
  const auto step = slurm_step();
  return step && *step && (!rank || *rank == (*step)->rank) && count == (*step)->rank_count;
}

// True only as an error; false for a job of one process.
Result<bool> refuse_larger_job(const Row& row) {
  const auto rank = number_from(row.rank, 0, kMaxRanks - 1);
  if (!rank) return rank.error();
  const auto count = number_from(row.count, 1, kMaxRanks);
  if (!count) return count.error();
  if (*rank && *count && **rank >= **count) return refuse_job(row.rank, text(**rank, " is not below ", row.count, ", ", **count));
  if (*count == 1 || (row.may_be_of_step && is_of_step(*rank, *count))) return false;
  const std::string who = *rank ? text("rank ", **rank) : std::string("a rank");
  const std::string of = *count ? std::to_string(**count) : std::string("an unknown number");
  return refuse_job(*rank ? row.rank : row.count,
                    text(row.name, " without PMIx started this process as ", who, " of ", of, ", and does not say where rank 0 is"),
                    text(row.remedy,
                         ", or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of each process; "
                         "GIGABAR_LAUNCHER=none makes each a job of its own"));
}

// Whether the launcher of `row`, of which there is a sign, started this process as part of a job.
Result<bool> is_started_by(const Row& row) {
  if (row.launcher == Launcher::pmix) return has_pmix_server();
  if (row.launcher == Launcher::unsupported) return refuse_larger_job(row);
  if (row.launcher != Launcher::slurm) return true;
  const auto step = slurm_step();
  if (!step) return step.error();
  return *step && (*step)->rank_count > 1;
}

Result<Launcher> find_by(const char* Row::* sign) {
  for (const Row& row : kRows) {
    if (!is_set(row.*sign)) continue;
    const auto is_started = is_started_by(row);
    if (!is_started) return is_started.error();
    if (*is_started) return row.launcher;
  }
  return Launcher::none;
}

// What is left when no row applies.
Result<Launcher> find_half() {
  if (is_set("MASTER_ADDR") || is_set("MASTER_PORT")) return Launcher::environment;
  if (is_set("PMIX_RANK"))
    return refuse_job("PMIX_SERVER_URI", "PMIX_RANK is set, its server's address is not",
                      "start the program with mpirun or srun --mpi=pmix");
  if (const auto step = slurm_step(); !step) return step.error();
  return Launcher::none;
}

Result<Launcher> launcher_called(const std::string& name) {
  for (const Launcher launcher : {Launcher::none, Launcher::environment, Launcher::pmix, Launcher::slurm})
    if (name == name_of(launcher)) return launcher;
  return refuse_job("GIGABAR_LAUNCHER", text("'", name.substr(0, 64), "' is none of none, environment, pmix, slurm"),
                    "unset it, or choose one");
}

// "RANK", "RANK and WORLD_SIZE", "RANK, WORLD_SIZE and MASTER_ADDR".
std::string list_of(const std::vector<std::string_view>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) list += text(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  return list;
}

}  // namespace

Result<Launcher> find_launcher() {
  if (const auto name = environment("GIGABAR_LAUNCHER")) return launcher_called(*name);
  for (const char* Row::* sign : {&Row::rank, &Row::count}) {
    const auto found = find_by(sign);
    if (!found || *found != Launcher::none) return found;
  }
  return find_half();
}

std::string stated_rank() {
  if (environment("GIGABAR_LAUNCHER") == name_of(Launcher::none)) return "0";
  for (const Row& row : kRows)
    if (auto rank = environment(row.rank)) return *rank;
  return "0";
}

Error refuse_job(const std::string& object, std::string cause, std::string remedy) {
  return make_error(Status::invalid_argument, "find the job", object, std::move(cause), std::move(remedy));
}

bool is_set(const char* variable) { return variable != nullptr && environment(variable).has_value(); }

Result<void> require_all(std::span<const NeededVariable> variables, std::string remedy) {
  std::vector<std::string_view> missing, there;
  for (const NeededVariable& variable : variables) (variable.is_there ? there : missing).emplace_back(variable.name);
  if (missing.empty()) return {};
  const std::string cause = there.empty() ? std::string("none of them is set")
                                          : text(list_of(there), there.size() == 1 ? " is set, " : " are set, ", list_of(missing),
                                                 missing.size() == 1 ? " is not" : " are not");
  return refuse_job(list_of(missing), cause, std::move(remedy));
}

Result<std::optional<std::uint64_t>> number_from(const char* variable, std::uint64_t min, std::uint64_t max) {
  const auto value = environment(variable);
  if (!value) return std::optional<std::uint64_t>();
  const auto number = parse_number(*value, min, max);
  if (!number) return refuse_job(variable, text("'", value->substr(0, 64), "' is not a number from ", min, " to ", max));
  return number;
}

// --- Slurm -----------------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t kMaxId = 0xffffffff;
// From here on ids stand for the batch script, the shell of salloc and other things that are no tasks of a job.
constexpr std::uint64_t kFirstReservedStep = 0xfffffff0;
constexpr std::uint64_t kFirstPort = 21000;
constexpr std::uint64_t kPorts = 8191;  // prime
constexpr std::uint64_t kPortsPerJob = 97;
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::array kNodeLists = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};
// srun --preserve-env leaves the allocation's number in SLURM_NTASKS.
constexpr std::array kTaskCounts = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
constexpr const char* kListRemedy = "set MASTER_ADDR to the host name or address of rank 0";

constexpr std::uint64_t kMaxNumber = 999'999'999'999'999'999;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_of_name(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '-' || byte == '_' ||
         byte == '.';
}

bool take(std::string_view& rest, char byte) {
  if (rest.empty() || rest.front() != byte) return false;
  rest.remove_prefix(1);
  return true;
}

std::string_view take_all(std::string_view& rest, bool (*is_one)(char)) {
  const auto count = static_cast<std::size_t>(std::ranges::find_if_not(rest, is_one) - rest.begin());
  const std::string_view taken = rest.substr(0, count);
  rest.remove_prefix(count);
  return taken;
}

// The following read from the beginning of what is left of a node list, and answer what is wrong; null: nothing.

// "003-010,12]": appends the first number as it is written.
const char* read_ranges(std::string_view& rest, std::string& name) {
  for (bool is_first = true; is_first || take(rest, ','); is_first = false) {
    const std::string_view low = take_all(rest, is_digit);
    const std::string_view high = take(rest, '-') ? take_all(rest, is_digit) : low;
    const auto first = parse_number(low, 0, kMaxNumber), last = parse_number(high, 0, kMaxNumber);
    if (!first || !last) return "what stands in brackets is no list of numbers and ranges";
    if (*first > *last) return "a range ends before it begins";
    if (is_first) name += low;
  }
  return take(rest, ']') ? nullptr : "what stands in brackets is no list of numbers and ranges, or a '[' has no ']'";
}

// The first of the names that "r[1-2]n[01-04]" stands for.
const char* read_name(std::string_view& rest, std::string& name) {
  name = take_all(rest, is_of_name);
  while (take(rest, '[')) {
    if (const char* wrong = read_ranges(rest, name)) return wrong;
    name += take_all(rest, is_of_name);
  }
  if (name.empty()) return "a node's name is empty";
  return name.size() <= kMaxNameBytes ? nullptr : "a node's name is too long";
}

// Nothing when no variable tells it.
Result<std::optional<Rank>> rank_count_of_step() {
  for (const char* variable : kTaskCounts) {
    const auto count = number_from(variable, 1, kMaxRanks);
    if (!count) return count.error();
    if (*count) return std::optional(static_cast<Rank>(**count));
  }
  return std::optional<Rank>();
}

// A batch script has task number 0 and no step; a shell of salloc has not even that. Of variables that were set by hand, or passed
// on in part, not even the job is known.
bool is_outside_of_steps(std::optional<std::uint64_t> rank) {
  if (!rank) return !is_set("SLURM_STEP_NUM_TASKS");
  return *rank == 0 && (is_set("SLURM_JOB_ID") || environment("SLURM_NTASKS") == "1");
}

Result<std::uint64_t> id_from(const char* variable) {
  const auto id = number_from(variable, 0, kMaxId);
  if (!id) return id.error();
  if (!*id)
    return refuse_job(variable, "the port of rank 0 follows from it, and it is not set", "set GIGABAR_MASTER_PORT at every rank");
  return **id;
}

}  // namespace

Result<std::optional<OwnRank>> slurm_step() {
  const auto id = number_from("SLURM_STEP_ID", 0, kMaxId);
  if (!id) return id.error();
  const auto rank = number_from("SLURM_PROCID", 0, kMaxRanks - 1);
  if (!rank) return rank.error();
  if (*id && **id >= kFirstReservedStep) {
    if (rank->value_or(0) == 0) return std::optional<OwnRank>();
    return refuse_job("SLURM_STEP_ID", text("SLURM_PROCID is ", **rank, ", SLURM_STEP_ID is not that of a step of srun"));
  }
  if (!*id && is_outside_of_steps(*rank)) return std::optional<OwnRank>();
  const auto count = rank_count_of_step();
  if (!count) return count.error();
  if (!*id || !*rank || !*count) return require_whole_step({}).error();
  if (**rank >= **count) return refuse_job("SLURM_PROCID", text(**rank, " is not below the step's number of tasks, ", **count));
  const auto local_rank = number_from("SLURM_LOCALID", 0, **count - 1);
  if (!local_rank) return local_rank.error();
  OwnRank own{static_cast<Rank>(**rank), **count, {}};
  if (*local_rank) own.local_rank = static_cast<Rank>(**local_rank);
  return std::optional(own);
}

Result<void> require_whole_step(const FabricOptions& options) {
  const std::array<NeededVariable, 5> variables = {
      {{"SLURM_STEP_ID", is_set("SLURM_STEP_ID")},
       {"SLURM_PROCID", is_set("SLURM_PROCID")},
       {"SLURM_NTASKS", std::ranges::any_of(kTaskCounts, is_set)},
       {"SLURM_JOB_ID", is_set("SLURM_JOB_ID") || is_set("GIGABAR_MASTER_PORT") || options.master_port},
       {"SLURM_STEP_NODELIST", std::ranges::any_of(kNodeLists, is_set) || is_set("MASTER_ADDR") || options.master_address}}};
  const bool is_step_known = variables[0].is_there && variables[1].is_there && variables[2].is_there;
  return require_all(variables, is_step_known
                                    ? "set GIGABAR_MASTER_PORT (in place of SLURM_JOB_ID) and MASTER_ADDR (in place of the "
                                      "list of nodes) at every rank"
                                    : kJobRemedy);
}

Result<std::string> slurm_master() {
  if (environment("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary"))
    return refuse_job("SLURM_DISTRIBUTION", "with arbitrary distribution rank 0 need not be on the step's first node", kListRemedy);
  for (const char* variable : kNodeLists)
    if (const auto list = environment(variable)) return first_node(variable, *list);
  return refuse_job("SLURM_STEP_NODELIST", "SLURM_PROCID is set, the list of the step's nodes is not", kListRemedy);
}

Result<std::uint16_t> slurm_port() {
  const auto job = id_from("SLURM_JOB_ID");
  if (!job) return job.error();
  const auto step = id_from("SLURM_STEP_ID");
  if (!step) return step.error();
  return static_cast<std::uint16_t>(kFirstPort + (kPortsPerJob * *job + *step) % kPorts);
}

Result<std::string> first_node(const char* variable, std::string_view list) {
  std::string first, other;
  std::string_view rest = list;
  const char* wrong = read_name(rest, first);
  while (wrong == nullptr && take(rest, ',')) wrong = read_name(rest, other);
  if (wrong == nullptr && !rest.empty())
    wrong = rest.front() == ']' ? "a ']' has no '['" : "a node's name has an unexpected character";
  if (wrong == nullptr) return first;
  return refuse_job(variable, text("'", list.substr(0, 64), "' is no list of nodes: ", wrong), kListRemedy);
}

}  // namespace gigabar::fabric
