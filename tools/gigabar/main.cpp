// SPDX-License-Identifier: Apache-2.0
// gigabar: the command line, one subcommand per file beside this one.
#include <csignal>
#include <cstdio>
#include <exception>

#include "commands.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "transport/ucx/open.hpp"

namespace {

void declare(const gigabar::tool::Command& program, gigabar::tool::Invocation& invocation) {
  program->footer(
      "Without a GPU the commands run on a stand-in device (host memory), and say so in every output.\n"
      "Exit status: 0 done, 1 failed, 2 the command line cannot be followed.");
  for (gigabar::tool::AddCommand* const add : gigabar::tool::kCommands) add(program, invocation);
}

}  // namespace

int main(int argc, char** argv) {
  gigabar::transport::serve_ucx_probes(argc, argv);
  gigabar::tool::report_failed_writes();
  std::signal(SIGCHLD, SIG_DFL);  // who started this may ignore it: then no child's end could be told
  try {
    const int status = gigabar::tool::run_command_line(GIGABAR_DESCRIPTION, "gigabar " GIGABAR_VERSION, argc, argv, declare);
    // A command that could not print has ended with a line that says so.
    const bool is_told = status == gigabar::tool::kExitFailed && std::ferror(stdout) != 0;
    if (!is_told) gigabar::tool::flush(stdout);
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gigabar: %s\n", error.what());
    return gigabar::tool::kExitFailed;
  }
}
