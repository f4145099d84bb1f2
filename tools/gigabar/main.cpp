// SPDX-License-Identifier: Apache-2.0
// gigabar: the command line, one subcommand per file beside this one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "commands.hpp"
#include "support/failure.hpp"
#include "support/help.hpp"
#include "support/nearest.hpp"
#include "support/options.hpp"
#include "support/output.hpp"
#include "support/plain_text.hpp"
#include "transport/ucx/trial.hpp"

namespace {

using gigabar::tool::Invocation;

// "gigabar copylat", as far as the command line got.
std::string command_name(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? program.get_name() : program.get_name() + " " + chosen.front()->get_name();
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// "'--sise' is not one of its options; did you mean '--size'?" CLI11 names neither the word nor, of several, their order.
std::string unknown_word(const std::string& word, const char* what, const std::vector<std::string>& known) {
  const std::string name = word.substr(0, word.find('='));
  const std::string meant = gigabar::tool::nearest(name, known);
  return fmt::format("'{}' {}{}", gigabar::tool::plain(name), what,
                     meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
}

// CLI11 has no name for an option that is hidden, so that its check names it.
std::string error_text(const CLI::ParseError& error) {
  const std::string text = error.what();
  return text.starts_with(": ") ? text.substr(2) : text;
}

std::string unexpected_text(const CLI::App& program, const CLI::ParseError& error) {
  const auto chosen = program.get_subcommands();
  const CLI::App& command = chosen.empty() ? program : *chosen.front();
  const std::vector<std::string> words = command.remaining();
  if (words.empty()) return error_text(error);
  const std::string& first = words.front();
  if (first.starts_with('-')) return unknown_word(first, "is not one of its options", option_names(command));
  if (!chosen.empty()) return fmt::format("'{}' was not expected", gigabar::tool::plain(first));
  std::vector<std::string> commands;
  for (const CLI::App* each : program.get_subcommands([](const CLI::App*) { return true; })) commands.push_back(each->get_name());
  return unknown_word(first, "is not one of its commands", commands);
}

// "--json=" without a value, as of a shell's variable that is empty. CLI11 would take the next word, or go on without one.
void refuse_empty_values(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      const std::string name = gigabar::tool::plain(argument.substr(0, argument.size() - 1));
      gigabar::tool::refuse_usage(fmt::format("{}: the value behind the '=' is empty; write one", name));
    }
  }
}

int report_usage(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
  const std::string name = command_name(program);
  const bool is_of_words = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || program.get_subcommands().empty();
  fmt::print(stderr, "{}: {}; see '{} --help'\n", name, is_of_words ? unexpected_text(program, error) : error_text(error), name);
  return gigabar::tool::kExitBadUsage;
}

int run(int argc, char** argv) {
  Invocation invocation;
  invocation.arguments.assign(argv, argv + argc);
  CLI::App program(GIGABAR_DESCRIPTION, "gigabar");
  gigabar::tool::set_help_form(program);
  program.set_help_flag("-h,--help", "Print this help");
  program.set_version_flag("--version", "gigabar " GIGABAR_VERSION);
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
    refuse_empty_values(invocation.arguments);
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_usage(program, error);
  } catch (const gigabar::tool::CommandFailure& failure) {
    fmt::print(stderr, "{}: {}\n", command_name(program), failure.what());
    return failure.exit_status();
  }
  return invocation.exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  gigabar::transport::serve_ucx_trials(argc, argv);
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
