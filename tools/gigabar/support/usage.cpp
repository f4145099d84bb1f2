// SPDX-License-Identifier: Apache-2.0
#include "support/usage.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "support/failure.hpp"
#include "support/nearest.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool {
namespace {

std::vector<const CLI::App*> chosen_apps(const CLI::App& program) {
  std::vector<const CLI::App*> apps = {&program};
  for (const CLI::App* each : program.get_subcommands()) apps.push_back(each);
  return apps;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option*) { return true; });
}

std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  return option.get_single_name();
}

bool is_given(const CLI::Option& option) { return option.count() > 0; }

bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0 || option.get_type_size() == 0; }

// --- Words that nobody knows
// --------------------------------------------------------------------------------------------------------

struct Leftover {
  const CLI::App* app;  // to which it was given
  std::string word;
  bool is_option;
};

// An option goes before other words: those may be the value that it was to have.
std::optional<Leftover> find_leftover(const CLI::App& program) {
  std::optional<Leftover> first;
  for (const CLI::App* app : chosen_apps(program)) {
    bool may_be_option = true;
    for (const std::string& word : app->remaining()) {
      if (word == "--") {
        may_be_option = false;
        continue;
      }
      const bool is_option = may_be_option && word.size() > 1 && word.starts_with('-');
      if (is_option) return Leftover{app, word, true};
      if (!first) first = Leftover{app, word, false};
    }
  }
  return first;
}

std::vector<std::string> shown_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(app)) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string unknown_word(const std::string& word, const char* what, const std::vector<std::string>& known) {
  const std::string name = word.substr(0, word.find('='));
  const std::string meant = nearest(name, known);
  return fmt::format("'{}' {}{}", plain(name), what, meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
}

std::string leftover_text(const CLI::App& program, const Leftover& leftover) {
  if (leftover.is_option) return unknown_word(leftover.word, "is not one of its options", shown_options(*leftover.app));
  if (!program.get_subcommands().empty()) return fmt::format("'{}' was not expected; leave it out", plain(leftover.word));
  std::vector<std::string> commands;
  for (const CLI::App* each : program.get_subcommands([](const CLI::App*) { return true; })) commands.push_back(each->get_name());
  return unknown_word(leftover.word, "is not one of its commands", commands);
}

// --- What CLI11 found, looked for again by what the command holds
// ---------------------------------------------------------------------

std::string required_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : options_of(app)) {
    if (!option->get_required() || is_given(*option)) continue;
    text += fmt::format("{}{} is missing ({})", text.empty() ? "" : "; ", name_of(*option), option->get_description());
  }
  return text.empty() ? "a subcommand is missing" : text;
}

std::string excludes_text(const CLI::App& app) {
  for (const CLI::Option* option : options_of(app)) {
    for (const CLI::Option* other : option->get_excludes()) {
      if (is_given(*option) && is_given(*other))
        return fmt::format("{} and {} cannot go together; leave one of them out", name_of(*option), name_of(*other));
    }
  }
  return "two of the options cannot go together";
}

// The option whose value is missing is the end of the last word: "-vt" is "-v -t".
std::string no_value_text(const CLI::App& app, const std::string& last) {
  const std::string typed = last.starts_with("--") ? last : fmt::format("-{}", last.back());
  const CLI::Option* const option = app.get_option_no_throw(typed);
  const std::string name = option == nullptr ? plain(typed) : name_of(*option);
  return fmt::format("{} has no value; write {} {}", name, name, option == nullptr ? "VALUE" : option->get_type_name());
}

std::string count_text(const CLI::App& app, const std::string& last) {
  for (const CLI::Option* option : options_of(app)) {
    const int most = std::max(option->get_items_expected_max(), 1);
    if (static_cast<int>(option->count()) <= most || is_flag(*option)) continue;
    if (most == 1) return fmt::format("{} is given {} times; give it once", name_of(*option), option->count());
    return fmt::format("{}: {} are given, and it takes {} at most; give fewer", name_of(*option), option->count(), most);
  }
  return no_value_text(app, last);
}

// Values of options have checks of their own, so it is a flag's.
std::string conversion_text(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    const std::size_t at = argument.find('=');
    if (!argument.starts_with("--") || at == std::string::npos) continue;
    const CLI::Option* const option = app.get_option_no_throw(argument.substr(0, at));
    if (option == nullptr || !is_flag(*option)) continue;
    return fmt::format("{} takes no value; leave '{}' out", argument.substr(0, at), plain(argument.substr(at)));
  }
  return "a value cannot be read";
}

template <class Kind>
bool is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::string fault_text(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  if (is<CLI::RequiredError>(error)) return required_text(app);
  if (is<CLI::ExcludesError>(error)) return excludes_text(app);
  if (is<CLI::ArgumentMismatch>(error)) return count_text(app, arguments.back());
  if (is<CLI::ConversionError>(error)) return conversion_text(app, arguments);
  // What a check of ours says, behind the option's name; CLI11 has none for an option that is hidden.
  const std::string text = error.what();
  return text.starts_with(": ") ? text.substr(2) : text;
}

std::string line(const std::string& command, const std::string& text) {
  return fmt::format("{}: {}; see '{} --help'", command, text, command);
}

}  // namespace

std::string command_name(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? program.get_name() : program.get_name() + " " + chosen.front()->get_name();
}

std::string usage_line(const CLI::App& program, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const std::optional<Leftover> leftover = find_leftover(program);
  const bool is_of_words = is<CLI::ExtrasError>(error) || program.get_subcommands().empty();
  if (leftover && (leftover->is_option || is_of_words)) {
    return line(leftover->app == &program ? program.get_name() : command_name(program), leftover_text(program, *leftover));
  }
  return line(command_name(program), fault_text(*chosen_apps(program).back(), error, arguments));
}

void refuse_empty_values(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      const std::string name = plain(argument.substr(0, argument.size() - 1));
      refuse_usage(fmt::format("{}: the value behind the '=' is empty; write one", name));
    }
  }
}

void warn_of_old_names(const std::vector<std::string>& arguments) {
  struct OldName {
    std::string_view command;  // empty: of every command that has it
    std::string_view old, current;
  };
  static constexpr OldName kOldNames[] = {
      {"", "--kind", "--op"},
      {"", "--no-trials", "--no-probes"},
      {"", "--warm-up", "--warmup"},
      {"matvec", "-m", "--vector-size"},
      {"sanity", "--deadline", "--timeout"},
      {"softhca", "--timeout-ms", "--timeout"},
      {"streams", "--iterations", "--iter"},
      {"tune", "-d", "--accelerator"},
  };
  if (arguments.size() < 2) return;
  const std::string_view command = arguments[1];
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
    for (const OldName& one : kOldNames) {
      if (name != one.old || (!one.command.empty() && one.command != command)) continue;
      fmt::print(stderr, "note: {} is called {} now\n", one.old, one.current);
    }
  }
}

}  // namespace gigabar::tool
