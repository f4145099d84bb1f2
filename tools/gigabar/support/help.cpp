// SPDX-License-Identifier: Apache-2.0
#include "support/help.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace gigabar::tool {
namespace {

constexpr std::size_t kLeftColumns = 30;  // names and value; longer ones stand on a line of their own
constexpr std::size_t kMaxColumns = 120;

std::string names_of(const CLI::Option& option) {
  std::string text;
  if (!option.get_snames().empty()) text = "-" + option.get_snames().front();
  if (!option.get_lnames().empty()) text += (text.empty() ? "--" : ",--") + option.get_lnames().front();
  return text.empty() ? option.get_single_name() : text;
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

// Words in lines of at most kMaxColumns; the first begins behind an indent that is there already.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string lines;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column + 1 + word.size() > kMaxColumns && begin > 0) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (begin > 0) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
    begin = end + 1;
  }
  return lines + "\n";
}

std::string row(const std::string& left, const std::string& text) {
  std::string start = "  " + left;
  start += start.size() + 2 > kLeftColumns ? "\n" + std::string(kLeftColumns, ' ') : std::string(kLeftColumns - start.size(), ' ');
  return start + wrapped(text, kLeftColumns);
}

std::string row(const CLI::Option& option) {
  return row(names_of(option) + value_of(option), option.get_description() + notes_of(option));
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

std::string rows_of(const CLI::App& app, const std::string& heading, const std::function<bool(const CLI::Option*)>& is_chosen) {
  std::string text;
  for (const CLI::Option* option : app.get_options(is_chosen)) text += row(*option);
  return text.empty() ? text : fmt::format("\n{}:\n{}", heading, text);
}

std::string subcommands_of(const CLI::App& app) {
  std::string text;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    text += row(each->get_name(), each->get_description());
  }
  return text.empty() ? text : "\nSubcommands:\n" + text;
}

std::string footer_of(const CLI::App& app) {
  std::string text;
  std::istringstream lines(app.get_footer());
  for (std::string line; std::getline(lines, line);) text += line.size() <= kMaxColumns ? line + "\n" : wrapped(line, 0);
  return text.empty() ? text : "\n" + text;
}

class HelpForm : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    std::string text = app->get_description() + "\n" + usage_of(*app, name);
    text += rows_of(*app, "Positionals", [](const CLI::Option* option) { return option->get_positional(); });
    for (const std::string& group : app->get_groups()) {
      if (group.empty()) continue;
      text += rows_of(*app, group,
                      [&group](const CLI::Option* option) { return option->nonpositional() && option->get_group() == group; });
    }
    return text + subcommands_of(*app) + footer_of(*app);
  }
};

}  // namespace

void set_help_form(CLI::App& program) { program.formatter(std::make_shared<HelpForm>()); }

}  // namespace gigabar::tool
