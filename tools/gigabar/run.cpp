// SPDX-License-Identifier: Apache-2.0
// gigabar run: the ranks of a job, all on this host, each with what find_job() reads.
#include "commands.hpp"
#include "run/launcher.hpp"
#include "support/options.hpp"

namespace gigabar::tool {

void add_run(const Command& program, Invocation& invocation) {
  const auto [command, settings] = add_subcommand<run::JobSettings>(
      program, invocation, "run", "Start a program several times on this host, as the ranks of one job",
      [](run::JobSettings& chosen, Invocation& invoked) {
        chosen.path = run::find_program(chosen.program.front());
        invoked.exit_status = run::launch(chosen);
      });
  command->add_option("-n,--ranks", settings.rank_count, whole_number(1, 4096), "How many ranks")->required()->default_str("");
  command
      ->add_option("--timeout", settings.timeout_s, seconds(1e6),
                   "Of the whole run: all ranks are ended after this time; exit status 124")
      ->default_str("");
  command->add_option("--grace", settings.grace_s, seconds(1e6), "Between asking ranks to end (SIGTERM) and killing them");
  command
      ->add_option("--stand-in", settings.stand_in_count, whole_number(1, 64, "K"),
                   "Give every rank this many stand-in devices (GIGABAR_STAND_IN)")
      ->default_str("");
  command->add_flag("--keep-going", settings.keeps_going,
                    "When a rank fails let the others go on, to the end that they choose (peer_lost tells them)");
  command->add_flag("--label", settings.has_labels, "Write '[rank] ' before every line of output");
  command->add_option("program", settings.program, Value{"PROGRAM ARGS..."}, "The program and its arguments, after '--'")
      ->required();
  command->footer(
      "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, GIGABAR_JOB_ID and a\n"
      "GIGABAR_JOB_KEY_FILE with a random key. Rank 0 reads standard input, unless it is a terminal. When a rank fails the others\n"
      "are ended, or with --keep-going run on. What a failed rank itself had started is ended in any case.\n"
      "Exit status: that of the first rank that failed (128 + N when signal N ended it), also when the others then succeed;\n"
      "124 at the timeout, unless a rank had failed before; 126 when the program cannot be executed, 127 when it is not found;\n"
      "2 the command line cannot be followed.");
}

}  // namespace gigabar::tool
