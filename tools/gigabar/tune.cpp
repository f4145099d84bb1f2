// SPDX-License-Identifier: Apache-2.0
// gigabar tune: measures between two ranks where one path should end and the next begin, and stores it where every fabric of this
// machine looks for it.
#include <memory>

#include "commands.hpp"
#include "ranks/tune_command.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {

void add_tune(const Command& program, Invocation& invocation) {
  auto options = std::make_shared<ranks::TuneOptions>();
  const Command command = program.add_subcommand("tune", "Measure the size limits between the paths of two ranks, and store them");
  command
      ->add_option("--accelerator", options->accelerator, "Memory of both ranks: cuda (stand-ins where there is no GPU), or host")
      ->type_name("cuda|host")
      ->capture_default_str();
  command->add_option("-d", options->accelerator)->group("");  // its old name
  command->add_option("-m,--message-size", options->sizes, "Sizes: doubled from MIN to MAX")
      ->type_name("[MIN:]MAX")
      ->default_str("1K:4M");
  command->add_option("-i,--iterations", options->iteration_count, "Timed rounds per size; in each of them every way is taken once")
      ->check(whole_number(1, 1000000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("-x,--warmup", options->warm_up_count, "Untimed rounds before the timed ones")
      ->check(whole_number(0, 1000000))
      ->type_name("N")
      ->capture_default_str();
  add_store_options(command, options->stored);
  add_json_option(command, options->json_path);
  ranks::add_fabric_options(command, options->fabric);
  command->footer(
      "Ranks: two of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. Measured: "
      "the\n"
      "chunk of staged writes, gdr_limit, gdr_read_limit, and the size from which several rails pay. What an option gives is not\n"
      "measured. The file is that of --store, else GIGABAR_TUNING, else tuning-<machine>.json in $XDG_CACHE_HOME/gigabar or\n"
      "~/.cache/gigabar. Exit status: 0 measured, and stored unless --no-store; 1 nothing could be measured or stored; 2 the "
      "command\n"
      "line cannot be followed.");
  command->callback([options, &invocation] { ranks::run_tune(*options, invocation); });
}

}  // namespace gigabar::tool
