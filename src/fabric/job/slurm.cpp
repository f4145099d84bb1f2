// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/slurm.hpp"

#include <algorithm>
#include <array>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "fabric/job/launchers.hpp"

namespace gigabar::fabric {
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

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_of_name(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '-' || byte == '_' ||
         byte == '.';
}

// Reads a node list from its beginning to its end. Each function answers what is wrong, null when nothing is.
class NodeListReader {
 public:
  explicit NodeListReader(std::string_view list) : rest_(list) {}

  // `first`: the list's first name.
  const char* read(std::string& first) {
    if (const char* wrong = read_name(first)) return wrong;
    while (take(',')) {
      std::string other;
      if (const char* wrong = read_name(other)) return wrong;
    }
    return rest_.empty() ? nullptr : rest_.front() == ']' ? "a ']' has no '['" : "a node's name has an unexpected character";
  }

 private:
  bool take(char byte) {
    if (rest_.empty() || rest_.front() != byte) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // The first of the names that "r[1-2]n[01-04]" stands for.
  const char* read_name(std::string& name) {
    while (!rest_.empty()) {
      if (take('[')) {
        if (const char* wrong = read_ranges(name)) return wrong;
      } else if (is_of_name(rest_.front())) {
        name += rest_.front();
        rest_.remove_prefix(1);
      } else {
        break;
      }
    }
    if (name.empty()) return "a node's name is empty";
    return name.size() <= kMaxNameBytes ? nullptr : "a node's name is too long";
  }

  // "003-010,12]": appends the first number as it is written.
  const char* read_ranges(std::string& name) {
    for (bool is_first = true; is_first || take(','); is_first = false) {
      const std::string_view low = take_digits();
      const std::string_view high = take('-') ? take_digits() : low;
      const auto first = parse_number(low, 0, kMaxNumber), last = parse_number(high, 0, kMaxNumber);
      if (!first || !last) return "what stands in brackets is no list of numbers and ranges";
      if (*first > *last) return "a range ends before it begins";
      if (is_first) name += low;
    }
    return take(']') ? nullptr : "what stands in brackets is no list of numbers and ranges, or a '[' has no ']'";
  }

  std::string_view take_digits() {
    std::size_t count = 0;
    while (count < rest_.size() && is_digit(rest_[count])) ++count;
    const std::string_view digits = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return digits;
  }

  static constexpr std::uint64_t kMaxNumber = 999'999'999'999'999'999;
  std::string_view rest_;
};

template <std::size_t kCount>
bool has_one_of(const std::array<const char*, kCount>& variables) {
  return std::any_of(variables.begin(), variables.end(), is_set);
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

Result<std::optional<SlurmStep>> slurm_step() {
  const auto id = number_from("SLURM_STEP_ID", 0, kMaxId);
  if (!id) return id.error();
  const auto rank = number_from("SLURM_PROCID", 0, kMaxRanks - 1);
  if (!rank) return rank.error();
  if (*id && **id >= kFirstReservedStep) {
    if (rank->value_or(0) == 0) return std::optional<SlurmStep>();
    return refuse_job("SLURM_STEP_ID", text("SLURM_PROCID is ", **rank, ", SLURM_STEP_ID is not that of a step of srun"));
  }
  if (!*id && is_outside_of_steps(*rank)) return std::optional<SlurmStep>();
  const auto count = rank_count_of_step();
  if (!count) return count.error();
  if (!*id || !*rank || !*count) return require_whole_step({}).error();
  if (**rank >= **count) return refuse_job("SLURM_PROCID", text(**rank, " is not below the step's number of tasks, ", **count));
  const auto local_rank = number_from("SLURM_LOCALID", 0, **count - 1);
  if (!local_rank) return local_rank.error();
  SlurmStep step{static_cast<Rank>(**rank), **count, {}};
  if (*local_rank) step.local_rank = static_cast<Rank>(**local_rank);
  return std::optional(step);
}

Result<void> require_whole_step(const FabricOptions& options) {
  const std::array<NeededVariable, 5> variables = {
      {{"SLURM_STEP_ID", is_set("SLURM_STEP_ID")},
       {"SLURM_PROCID", is_set("SLURM_PROCID")},
       {"SLURM_NTASKS", has_one_of(kTaskCounts)},
       {"SLURM_JOB_ID", is_set("SLURM_JOB_ID") || is_set("GIGABAR_MASTER_PORT") || options.master_port},
       {"SLURM_STEP_NODELIST", has_one_of(kNodeLists) || is_set("MASTER_ADDR") || options.master_address}}};
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
  std::string first;
  if (const char* wrong = NodeListReader(list).read(first))
    return refuse_job(variable, text("'", list.substr(0, 64), "' is no list of nodes: ", wrong), kListRemedy);
  return first;
}

}  // namespace gigabar::fabric
