// SPDX-License-Identifier: Apache-2.0
// gigabar: the command line, one subcommand per file beside this one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "commands.hpp"
#include "support/failure.hpp"
#include "support/help.hpp"
#include "support/options.hpp"
#include "support/output.hpp"
#include "support/usage.hpp"
#include "transport/ucx/probe.hpp"

namespace {

using gigabar::tool::Invocation;

int report_usage(const CLI::App& program, const CLI::ParseError& error, const Invocation& invocation) {
  if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
  fmt::print(stderr, "{}\n", gigabar::tool::usage_line(program, error, invocation.arguments));
  return gigabar::tool::kExitBadUsage;
}

int run(int argc, char** argv) {
  Invocation invocation;
  invocation.arguments.assign(argv, argv + argc);
  CLI::App program(GIGABAR_DESCRIPTION, "gigabar");
  gigabar::tool::set_help_form(program);
  program.set_help_flag("-h,--help", "Print this help");
  program.set_version_flag("--version", "gigabar " GIGABAR_VERSION, "Print the version");
  program.require_subcommand(1);
  program.footer(
      "Without a GPU the commands run on a stand-in device (host memory), and say so in every output.\n"
      "Exit status: 0 done, 1 failed, 2 the command line cannot be followed.");
  const gigabar::tool::Command root(&program);
  gigabar::tool::add_info(root, invocation);
  gigabar::tool::add_copylat(root, invocation);
  gigabar::tool::add_copybw(root, invocation);
  gigabar::tool::add_apiperf(root, invocation);
  gigabar::tool::add_pplat(root, invocation);
  gigabar::tool::add_sanity(root, invocation);
  gigabar::tool::add_calibrate(root, invocation);
  gigabar::tool::add_streams(root, invocation);
  gigabar::tool::add_topology(root, invocation);
  gigabar::tool::add_doctor(root, invocation);
  gigabar::tool::add_explain(root, invocation);
  gigabar::tool::add_survey(root, invocation);
  gigabar::tool::add_compare(root, invocation);
  gigabar::tool::add_latency(root, invocation);
  gigabar::tool::add_bw(root, invocation);
  gigabar::tool::add_bibw(root, invocation);
  gigabar::tool::add_multi_lat(root, invocation);
  gigabar::tool::add_mbw_mr(root, invocation);
  gigabar::tool::add_tune(root, invocation);
  gigabar::tool::add_device_latency(root, invocation);
  gigabar::tool::add_device_bw(root, invocation);
  gigabar::tool::add_device_rate(root, invocation);
  gigabar::tool::add_pingpong(root, invocation);
  gigabar::tool::add_matvec(root, invocation);
  gigabar::tool::add_softhca(root, invocation);
  gigabar::tool::add_run(root, invocation);
  try {
    gigabar::tool::refuse_empty_values(invocation.arguments);
    gigabar::tool::warn_of_old_names(invocation.arguments);
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_usage(program, error, invocation);
  } catch (const gigabar::tool::CommandFailure& failure) {
    fmt::print(stderr, "{}: {}\n", gigabar::tool::command_name(program), failure.what());
    return failure.exit_status();
  }
  return invocation.exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  gigabar::transport::serve_ucx_probes(argc, argv);
  gigabar::tool::report_broken_pipes();
  try {
    const int status = run(argc, argv);
    gigabar::tool::flush(stdout);
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gigabar: %s\n", error.what());
    return gigabar::tool::kExitFailed;
  }
}
