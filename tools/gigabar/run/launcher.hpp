// SPDX-License-Identifier: Apache-2.0
// The ranks of one job on this host, from their start to the end of the last one.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace gigabar::tool::run {

struct JobSettings {
  std::string path;                  // of the program, found
  std::vector<std::string> program;  // its argument vector
  unsigned rank_count = 1;
  unsigned stand_in_count = 0;  // 0: as the environment says
  bool has_labels = false;
  double timeout_s = 0;  // 0: none
  double grace_s = 10;
  bool keeps_going = false;             // when a rank fails the others run on
  std::string speaker = "gigabar run";  // before messages
  // The ranks are this process's own command: what it has said they need not say again, and one that exits has said why.
  bool is_repeated = false;
};

// Of GIGABAR_JOB_ID in the ranks of such a command.
inline constexpr const char* kRepeatedId = "repeated-";

inline constexpr int kExitTimedOut = 124;  // as timeout(1)
// Of a program that was not started, as of env(1) and of shells.
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Where `program` is, as a shell would find it. Ends the command with one of these when it is missing, a folder, or not executable.
std::string find_program(const std::string& program);

// Starts all ranks and waits for them. When one fails (unless the job keeps going), at the timeout, and when this process gets
// SIGINT, SIGTERM or SIGHUP, the others are asked to end and killed after the grace period. Answers the exit status of the first
// rank that failed (128 + the number of the signal that ended it), 124 at the timeout when none had failed before, 0 when all
// succeeded. Labelled output that cannot be written fails the job like a rank that fails: 1 takes the place of 0. A reader that is
// gone is left to the ranks, who get SIGPIPE. A slow one is waited for, also after the last rank's end, until the timeout or a
// signal.
int launch(const JobSettings& settings);

// --- What launch() is made of ---------------------------------------------------------------------------------------------------

// What all ranks get, for the life of the job.
struct JobEnvironment {
  Descriptor port;  // of loopback: nobody else is given it while this lives, and a rank can listen at it
  // The job's key, in memory that ranks read as a file while this process has it open: processes of this user that this process's
  // name space shows. A variable with the key itself would be in every program that a rank starts, in `ps e`, and in core dumps; a
  // file on a disk would be left behind when this process is killed.
  Descriptor key;
  std::vector<std::string> variables;  // this process's, without another launcher's words, and the job's
};
JobEnvironment make_environment(const JobSettings& settings);

struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe(unsigned rank, bool has_labels);

// Its process, whose number is that of its process group too. `output` and `errors`: where it writes; none: as this process.
// `descriptor_limit` is what the rank gets: this process may have raised its own. Fails with a CommandFailure, of the same statuses
// when the program cannot be executed.
pid_t start_rank(const JobSettings& settings, const JobEnvironment& environment, unsigned rank, const Descriptor& output,
                 const Descriptor& errors, const rlimit& descriptor_limit);

}  // namespace gigabar::tool::run
