// SPDX-License-Identifier: Apache-2.0
#include "support/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "gigabar/fabric.hpp"

namespace gigabar::tool {
namespace {

// One that hides its type name: the option's own help text says what it wants.
CLI::Validator validator(const Check& check) { return CLI::Validator(check, "", ""); }

}  // namespace

const Option& Option::check(const Check& check) const {
  option_->check(validator(check));
  return *this;
}
const Option& Option::transform(const Check& check) const {
  option_->transform(validator(check));
  return *this;
}
const Option& Option::required() const {
  option_->required();
  return *this;
}
const Option& Option::excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}
const Option& Option::excludes(const std::string& other) const {
  option_->excludes(other);
  return *this;
}
const Option& Option::expected(int least, int most) const {
  option_->expected(least, most);
  return *this;
}
const Option& Option::delimiter(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}
const Option& Option::allow_extra_args(bool is_allowed) const {
  option_->allow_extra_args(is_allowed);
  return *this;
}
const Option& Option::take_all() const {
  option_->take_all();
  return *this;
}
const Option& Option::trigger_on_parse() const {
  option_->trigger_on_parse();
  return *this;
}
const Option& Option::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}
const Option& Option::group(const std::string& name) const {
  option_->group(name);
  return *this;
}
const Option& Option::default_str(const std::string& text) const {
  option_->default_str(text);
  return *this;
}
const Option& Option::capture_default_str() const {
  option_->capture_default_str();
  return *this;
}
std::size_t Option::count() const { return option_->count(); }

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

template <class T>
Option Command::add_option(const std::string& names, T& target, const std::string& help) const {
  return Option(app_->add_option(names, target, help));
}
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint32_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::uint32_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::uint32_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<TransportKind>&, const std::string&) const;

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
void Command::set_version_flag(const std::string& names, const std::string& version) const {
  app_->set_version_flag(names, version, "Print the version");
}
void Command::set_help_flag(const std::string& names, const std::string& help) const { app_->set_help_flag(names, help); }
Option Command::add_help_flag(const std::string& names, const std::string& help) const {
  return add_flag_callback(names, [] { throw CLI::CallForHelp(); }, help);
}
void Command::allow_extras() const { app_->allow_extras(); }
void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::callback(const std::function<void()>& function) const { app_->callback(function); }
std::size_t Command::count(const std::string& name) const { return app_->count(name); }

}  // namespace gigabar::tool
