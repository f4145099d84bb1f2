// SPDX-License-Identifier: Apache-2.0
// All that is done with CLI11: its headers take seconds to compile.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <sstream>
#include <type_traits>

#include "base/edit_distance.hpp"
#include "base/options.hpp"
#include "fabric/job/launchers.hpp"
#include "gigabar/fabric.hpp"
#include "run/launcher.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool {
namespace {

// One that hides its type name: the option's own help text says what it wants.
CLI::Validator validator(const Check& check) { return CLI::Validator(check, "", ""); }

// --- What --help prints: one form, in place of CLI11's own ----------------------------------------------------------------------
//
// A row is
//   -d,--device N               What it does (required; not with --other; default: 0)
// "[FILE]" means that the value may be left out. The first short and the first long name are shown: further ones are old names of
// the option, which still work.

constexpr std::size_t kLeftColumns = 30;  // names and value; longer ones stand on a line of their own
constexpr std::size_t kMaxColumns = 120;

std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  return option.get_single_name();
}

std::string names_of(const CLI::Option& option) {
  const bool has_both = !option.get_snames().empty() && !option.get_lnames().empty();
  return (has_both ? "-" + option.get_snames().front() + "," : "") + name_of(option);
}

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0 && option.get_type_size() != 0; }

// " FILE", " [FILE]", or nothing for a flag.
std::string value_of(const CLI::Option& option) {
  if (!takes_value(option) || option.get_type_name().empty()) return "";
  const std::string name = option.get_type_name();
  return option.get_expected_min() == 0 ? " [" + name + "]" : " " + name;
}

std::string notes_of(const CLI::Option& option) {
  std::vector<std::string> notes;
  if (option.get_required()) notes.emplace_back("required");
  if (!option.get_excludes().empty()) {
    std::vector<std::string> others;
    for (const CLI::Option* other : option.get_excludes()) others.push_back(names_of(*other));
    notes.push_back(fmt::format("not with {}", fmt::join(others, " or ")));
  }
  // What is taken without a value is told in the option's own words.
  if (takes_value(option) && option.get_expected_min() > 0 && !option.get_default_str().empty()) {
    notes.push_back("default: " + option.get_default_str());
  }
  return notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; "));
}

std::string row(const std::string& left, const std::string& text) {
  std::string start = "  " + left;
  start += start.size() + 2 > kLeftColumns ? "\n" + std::string(kLeftColumns, ' ') : std::string(kLeftColumns - start.size(), ' ');
  return start + wrapped(text, kMaxColumns, kLeftColumns).substr(kLeftColumns);
}

std::string usage_of(const CLI::Option& positional) {
  std::string text = positional.get_single_name();
  if (positional.get_expected_max() >= CLI::detail::expected_max_vector_size) text += "...";
  return positional.get_required() ? text : "[" + text + "]";
}

std::string usage_of(const CLI::App& app, const std::string& name) {
  std::string text = fmt::format("Usage: {} [OPTIONS]", name);
  for (const CLI::Option* each : app.get_options([](const CLI::Option* option) { return option->get_positional(); })) {
    text += " " + usage_of(*each);
  }
  if (app.get_require_subcommand_min() > 0) text += " SUBCOMMAND";
  return text + "\n";
}

std::string footer_of(const CLI::App& app) {
  std::string text;
  std::istringstream lines(app.get_footer());
  for (std::string line; std::getline(lines, line);)
    text += line.size() <= kMaxColumns ? line + "\n" : wrapped(line, kMaxColumns, 0);
  return text.empty() ? text : "\n" + text;
}

std::string help_of(const CLI::App* app, const std::string& name, CLI::AppFormatMode /*mode*/) {
  std::string text = app->get_description() + "\n" + usage_of(*app, name);
  const auto add = [&text](const std::string& heading, const auto& entries, const auto& row_of) {
    if (!entries.empty()) text += fmt::format("\n{}:\n", heading);
    for (const auto* each : entries) text += row_of(*each);
  };
  const auto option_row = [](const CLI::Option& option) {
    return row(names_of(option) + value_of(option), option.get_description() + notes_of(option));
  };
  add("Positionals", app->get_options([](const CLI::Option* option) { return option->get_positional(); }), option_row);
  for (const std::string& group : app->get_groups()) {
    const auto is_of_it = [&](const CLI::Option* option) { return option->nonpositional() && option->get_group() == group; };
    if (!group.empty()) add(group, app->get_options(is_of_it), option_row);
  }
  add("Subcommands", app->get_subcommands({}), [](const CLI::App& one) { return row(one.get_name(), one.get_description()); });
  return text + footer_of(*app);
}

// --- What is wrong with a command line, in this program's words -----------------------------------------------------------------
//
// CLI11 tells it in sentences of its own, names no option that is hidden and, of a word that it does not know, only that it was not
// expected. A name that nobody knows comes before everything else that is wrong.

std::vector<const CLI::App*> chosen_apps(const CLI::App& program) {
  std::vector<const CLI::App*> apps = {&program};
  for (const CLI::App* each : program.get_subcommands()) apps.push_back(each);
  return apps;
}

// --- Words that nobody knows ----------------------------------------------------------------------------------------------------

std::vector<std::string> shown_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
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

std::string unexpected_word(const CLI::App& program, const std::string& word) {
  if (!program.get_subcommands().empty()) return fmt::format("'{}' was not expected; leave it out", plain(word));
  std::vector<std::string> commands;
  for (const CLI::App* each : program.get_subcommands({})) commands.push_back(each->get_name());
  return unknown_word(word, "is not one of its commands", commands);
}

std::string line(const std::string& command, const std::string& text) {
  return fmt::format("{}: {}; see '{} --help'", command, text, command);
}

std::string command_name(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? program.get_name() : program.get_name() + " " + chosen.front()->get_name();
}

// Empty: there is none. An option goes before other words: those may be the value that it was to have.
std::string leftover_line(const CLI::App& program, bool are_words_wrong) {
  std::string first;
  for (const CLI::App* app : chosen_apps(program)) {
    const std::string command = app == &program ? program.get_name() : command_name(program);
    bool may_be_option = true;
    for (const std::string& word : app->remaining()) {
      if (word == "--") {
        may_be_option = false;
        continue;
      }
      if (may_be_option && word.size() > 1 && word.starts_with('-'))
        return line(command, unknown_word(word, "is not one of its options", shown_options(*app)));
      if (are_words_wrong && first.empty()) first = line(command, unexpected_word(program, word));
    }
  }
  return first;
}

// --- What CLI11 found, looked for again by what the command holds ---------------------------------------------------------------

std::string required_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    text += fmt::format("{}{} is missing ({})", text.empty() ? "" : "; ", name_of(*option), option->get_description());
  }
  return text.empty() ? "a subcommand is missing" : text;
}

std::string excludes_text(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const CLI::Option* other : option->get_excludes()) {
      if (option->count() > 0 && other->count() > 0)
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
  for (const CLI::Option* option : app.get_options()) {
    const int most = std::max(option->get_items_expected_max(), 1);
    if (static_cast<int>(option->count()) <= most || !takes_value(*option)) continue;
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
    if (option == nullptr || takes_value(*option)) continue;
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

std::string usage_line(const CLI::App& program, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  std::string leftover = leftover_line(program, is<CLI::ExtrasError>(error) || program.get_subcommands().empty());
  if (!leftover.empty()) return leftover;
  return line(command_name(program), fault_text(*chosen_apps(program).back(), error, arguments));
}

// "--json=": the word behind it would be taken for the value.
void refuse_empty_values(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      const std::string name = plain(argument.substr(0, argument.size() - 1));
      refuse_usage(fmt::format("{}: the value behind the '=' is empty; write one", name));
    }
  }
}

// "--json ''", as of a variable that is not set. Words without a name may be empty: another program's are among them.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || !takes_value(*option)) continue;
    const std::vector<std::string>& values = option->results();
    if (std::ranges::find(values, "") == values.end()) continue;
    refuse_usage(fmt::format("{}: the value is empty; write one, or leave {} out", name_of(*option), name_of(*option)));
  }
}

struct OldName {
  std::string_view command;  // empty: of every command that has it
  std::string_view old, current;
};

bool is_written_as(std::string_view argument, std::string_view name) {
  const bool is_letter = name.size() == 2;  // its value may follow at once
  return is_letter ? argument.starts_with(name) : argument.substr(0, argument.find('=')) == name;
}

// Says on standard error which options have another name since the version before. Of ranks the first one does, unless the process
// that started them with the same words has done so.
void warn_of_old_names(const CLI::App& program, const std::vector<std::string>& arguments) {
  static constexpr OldName kOldNames[] = {
      {"", "--kind", "--op"},
      {"", "--no-trials", "--no-probes"},
      {"", "--warm-up", "--warmup"},
      {"matvec", "-m", "--vector-size"},
      {"sanity", "--deadline", "--timeout"},
      {"softhca", "--timeout-ms", "--timeout"},
      {"streams", "--iterations", "--iter"},
      {"tune", "-d", "--accelerator"},
      {"tune", "--dry-run", "--no-store"},
  };
  const auto commands =
      program.get_subcommands([&](const CLI::App* one) { return arguments.size() > 1 && one->get_name() == arguments[1]; });
  const bool is_repeated = environment("GIGABAR_JOB_ID").value_or("").starts_with(run::kRepeatedId);
  if (commands.empty() || is_repeated || fabric::stated_rank() != "0") return;
  for (const OldName& one : kOldNames) {
    if (!one.command.empty() && one.command != arguments[1]) continue;
    if (commands.front()->get_option_no_throw(std::string(one.old)) == nullptr) continue;
    const auto end = std::find(arguments.begin(), arguments.end(), "--");
    if (std::any_of(arguments.begin() + 2, std::max(arguments.begin() + 2, end),
                    [&](const std::string& argument) { return is_written_as(argument, one.old); }))
      fmt::print(stderr, "note: {} is called {} now\n", one.old, one.current);
  }
}

}  // namespace

std::string unknown_name(const std::string& text, const std::vector<std::string>& names) {
  return fmt::format("'{}' is unknown; choose one of: {}", text, fmt::join(names, ", "));
}

bool is_same_name(std::string_view first, std::string_view second) {
  return std::ranges::equal(first, second,
                            [](unsigned char one, unsigned char other) { return std::tolower(one) == std::tolower(other); });
}

std::string nearest(std::string_view wanted, const std::vector<std::string>& candidates) {
  constexpr std::size_t kMaxLetters = 64;  // no name is longer
  constexpr std::size_t kMinLetters = 3;   // every name is near to fewer
  const auto letters_of = [](std::string_view name) { return name.substr(std::min(name.find_first_not_of('-'), name.size())); };
  const std::string_view letters = letters_of(wanted).substr(0, kMaxLetters);
  std::string found;
  if (letters.size() < kMinLetters) return found;
  std::size_t least = letters.size() / 3 + 1;  // more than a third of it is another word
  for (const std::string& candidate : candidates) {
    const std::string_view known = letters_of(candidate);
    const std::size_t distance = known.starts_with(letters) ? 1 : edit_distance(letters, known);
    if (distance < least) {
      least = distance;
      found = candidate;
    }
  }
  return found;
}

const Option& Option::check(const Check& check) const { return option_->check(validator(check)), *this; }
const Option& Option::required() const { return option_->required(), *this; }
const Option& Option::excludes(const Option& other) const { return option_->excludes(other.option_), *this; }
const Option& Option::expected(int least, int most) const { return option_->expected(least, most), *this; }
const Option& Option::delimiter(char delimiter) const { return option_->delimiter(delimiter), *this; }
const Option& Option::allow_extra_args(bool is_allowed) const { return option_->allow_extra_args(is_allowed), *this; }
const Option& Option::take_all() const { return option_->take_all(), *this; }
const Option& Option::trigger_on_parse() const { return option_->trigger_on_parse(), *this; }
const Option& Option::type_name(const std::string& name) const { return option_->type_name(name), *this; }
const Option& Option::group(const std::string& name) const { return option_->group(name), *this; }
const Option& Option::default_str(const std::string& text) const { return option_->default_str(text), *this; }

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

template <class T>
Option Command::add_option(const std::string& names, T& target, const Value& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(names, target, help);
  if (value.name == nullptr) return Option(option);
  option->type_name(value.name);
  // The text that the check leaves is read.
  if (value.check) option->transform(validator(value.check));
  if constexpr (std::is_arithmetic_v<T>)
    option->default_str(value.is_size ? format_bytes(static_cast<std::uint64_t>(target)) : fmt::format("{}", target));
  if constexpr (std::is_same_v<T, std::string>) option->default_str(target);
  return Option(option);
}

#define GIGABAR_OPTION_OF(...) \
  template Option Command::add_option(const std::string&, __VA_ARGS__&, const Value&, const std::string&) const;
GIGABAR_OPTION_OF(std::string)
GIGABAR_OPTION_OF(int)
GIGABAR_OPTION_OF(std::uint32_t)
GIGABAR_OPTION_OF(std::uint64_t)
GIGABAR_OPTION_OF(double)
GIGABAR_OPTION_OF(std::optional<std::string>)
GIGABAR_OPTION_OF(std::optional<int>)
GIGABAR_OPTION_OF(std::optional<std::uint32_t>)
GIGABAR_OPTION_OF(std::optional<std::uint64_t>)
GIGABAR_OPTION_OF(std::optional<double>)
GIGABAR_OPTION_OF(std::vector<std::string>)
GIGABAR_OPTION_OF(std::vector<std::uint32_t>)
GIGABAR_OPTION_OF(std::vector<TransportKind>)
#undef GIGABAR_OPTION_OF

Option Command::add_option_function(const std::string& names, const std::function<void(const std::string&)>& function,
                                    const std::string& help) const {
  return Option(app_->add_option_function<std::string>(names, function, help));
}
Option Command::add_flag(const std::string& names, bool& target, const std::string& help) const {
  return Option(app_->add_flag(names, target, help));
}
Option Command::add_flag_callback(const std::string& names, const std::function<void()>& function, const std::string& help) const {
  return Option(app_->add_flag_callback(names, function, help));
}
// CLI11's own, "!--name", lets an exception of the standard library out where a value is a number that is too large.
Option Command::add_flag_that_clears(const std::string& names, bool& target, const std::string& help) const {
  return add_flag_callback(names, [&target] { target = false; }, help);
}
void Command::set_version_flag(const std::string& names, const std::string& version) const {
  app_->set_version_flag(names, version, "Print the version");
}
void Command::set_help_flag(const std::string& names, const std::string& help) const { app_->set_help_flag(names, help); }
Option Command::add_help_flag(const std::string& names, const std::string& help) const {
  return add_flag_callback(names, [] { throw CLI::CallForHelp(); }, help);
}
void Command::allow_extras() const { app_->allow_extras(); }
void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::callback(const std::function<void()>& function) const {
  app_->callback([app = app_, function] {
    refuse_empty_values(*app);
    function();
  });
}

int run_command_line(const char* description, const char* version, int argc, char** argv,
                     const std::function<void(const Command& program, Invocation& invocation)>& declare) {
  Invocation invocation;
  invocation.arguments.assign(argv, argv + argc);
  CLI::App program(description, "gigabar");
  program.formatter_fn(help_of);
  program.set_help_flag("-h,--help", "Print this help");
  program.set_version_flag("--version", version, "Print the version");
  program.require_subcommand(1);
  declare(Command(&program), invocation);
  try {
    refuse_empty_values(invocation.arguments);
    warn_of_old_names(program, invocation.arguments);
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    fmt::print(stderr, "{}\n", usage_line(program, error, invocation.arguments));
    return kExitBadUsage;
  } catch (const CommandFailure& failure) {
    fmt::print(stderr, "{}: {}\n", command_name(program), failure.what());
    return failure.exit_status();
  }
  return invocation.exit_status;
}

}  // namespace gigabar::tool
