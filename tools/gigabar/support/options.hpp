// SPDX-License-Identifier: Apache-2.0
// The command line of the program and of a subcommand: CLI11's words, without its headers, which take seconds in each file that
// declares an option; only command_line.cpp includes them. And options that several subcommands share, under GDRCopy's letters
// where it has one, and a long name each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/machine.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/names.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
class Option;
}  // namespace CLI

namespace gigabar::tool {

// Looks at the text behind an option, and may rewrite it: returns what is wrong with it, or nothing.
using Check = std::function<std::string(std::string& text)>;

// What stands behind an option: its name in the help, and what may be typed; without a check: anything.
struct Value {
  const char* name = nullptr;  // null: CLI11's for the type
  Check check = nullptr;
  bool is_size = false;  // the help shows its default as "64K"

  std::string operator()(std::string& text) const { return check(text); }
};
// Why `text` is none of `names`.
std::string unknown_name(const std::string& text, const std::vector<std::string>& names);
bool is_same_name(std::string_view first, std::string_view second);  // in any case of letters
// What a user may have meant by a name that does not exist: the candidate that is nearest to `wanted`, dashes at their beginnings
// left aside; empty when none is similar, or `wanted` has fewer than three letters.
std::string nearest(std::string_view wanted, const std::vector<std::string>& candidates);

// A view of an option of a Command, which lives as long as the program's. Each function returns the option again.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  const Option* operator->() const { return this; }

  const Option& check(const Check& check) const;  // of each text behind it
  const Option& required() const;
  const Option& excludes(const Option& other) const;
  const Option& expected(int least, int most) const;  // texts
  const Option& delimiter(char delimiter) const;      // between several values in one text
  const Option& allow_extra_args(bool is_allowed) const;
  const Option& take_all() const;
  const Option& trigger_on_parse() const;  // its function is called in the order of the command line
  // For the help.
  const Option& type_name(const std::string& name) const;
  const Option& group(const std::string& name) const;  // "": it is not shown
  const Option& default_str(const std::string& text) const;

 private:
  CLI::Option* option_;
};

// A view of a subcommand, or of the program. Targets and what functions refer to live as long as the program's command line.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  const Command* operator->() const { return this; }

  Command add_subcommand(const std::string& name, const std::string& description) const;
  // For the types that command_line.cpp names. The help shows what a number or a text holds before as its default, where its value
  // is named.
  template <class T>
  Option add_option(const std::string& names, T& target, const Value& value, const std::string& help = "") const;
  template <class T>
  Option add_option(const std::string& names, T& target, const std::string& help = "") const {
    return add_option(names, target, Value{}, help);
  }
  // One of a list of Named, in any case of letters. The help shows their names, and that of what `target` holds as the default.
  template <class Target, class List>
  Option add_choice(const std::string& names, Target& target, const List& choices, const std::string& help = "") const {
    std::vector<std::string> all;
    std::string shown, usual;
    for (const auto& each : choices) {
      all.emplace_back(each.name);
      shown += (shown.empty() ? "" : "|") + all.back();
      if (target == each.value) usual = all.back();
    }
    const std::vector kept(choices.begin(), choices.end());
    const Check check = [kept, all, &target](const std::string& text) -> std::string {
      const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& each) { return is_same_name(each.name, text); });
      if (found == kept.end()) return unknown_name(text, all);
      target = found->value;
      return {};
    };
    return add_option_function(names, [](const std::string&) {}, help).check(check).type_name(shown).default_str(usual);
  }
  Option add_option_function(const std::string& names, const std::function<void(const std::string&)>& function,
                             const std::string& help = "") const;
  // "!--no-x": the option makes it false; so does each of several names with a "!".
  Option add_flag(const std::string& names, bool& target, const std::string& help = "") const;
  // Sets `target` to false.
  Option add_flag_that_clears(const std::string& names, bool& target, const std::string& help) const;
  Option add_flag_callback(const std::string& names, const std::function<void()>& function, const std::string& help) const;
  void set_version_flag(const std::string& names, const std::string& version) const;
  void set_help_flag(const std::string& names, const std::string& help) const;
  Option add_help_flag(const std::string& names, const std::string& help) const;  // another one
  void allow_extras() const;
  void footer(const std::string& text) const;
  void callback(const std::function<void()>& function) const;

 private:
  CLI::App* app_;
};

// What main() knows and every command may need.
struct Invocation {
  std::vector<std::string> arguments;  // the command line as typed, program first
  int exit_status = 0;                 // of a command that ran to its end
};

// Reads the command line of the program, whose subcommands `declare` adds, and runs what was chosen. Returns the exit status, of
// which Invocation holds that of the command.
int run_command_line(const char* description, const char* version, int argc, char** argv,
                     const std::function<void(const Command& program, Invocation& invocation)>& declare);

// A subcommand, and its options, which live as long as the command line.
template <class Options>
struct Subcommand {
  Command command;
  Options& options;
};
// `run(options, invocation)` is called when it is chosen.
template <class Options, class Run>
Subcommand<Options> add_subcommand(const Command& program, Invocation& invocation, std::string_view name, const char* description,
                                   const Run& run) {
  const auto options = std::make_shared<Options>();
  const Command command = program.add_subcommand(std::string(name), description);
  command.callback([options, run, &invocation] { run(*options, invocation); });
  return {command, *options};
}

// --- Checks of what is typed behind an option; sizes on the command line, and ranges of them -------------------------------------

// A size in bytes ("4096", "64K", "2M", "1G", powers of 1024), turned into digits.
Value byte_count(std::uint64_t least, std::uint64_t most = std::uint64_t{1} << 40);
Value whole_number(std::uint64_t least, std::uint64_t most, const char* name = "N");
// A number from `least` to `most`, both included.
Value real_number(double least, double most, const char* name);
// `what` it has to be, for the message.
Value number_above_0(double most, const char* name, const char* what = "a number");
// Seconds, with fractions, above 0.
Value seconds(double most);

// The name of a file that is written; "-", which is standard output elsewhere, is none.
Check file_name();

// The whole text as a number.
std::optional<double> read_number(std::string_view text);

// The text as a size in bytes ("4096", "64K", "2M", "1G", powers of 1024); nothing when it is none.
std::optional<std::uint64_t> parse_size(const std::string& text);

struct SizeRange {
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
};
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 34;

// "MAX", "MIN:MAX" or "MIN:", in bytes or with K, M, G. Nothing for another text, or when the least is above the most.
std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise);
// The least, then doubled up to the most; after 0 comes 1.
std::vector<std::uint64_t> sizes_of(const SizeRange& range);

// What a range behind an option has to be.
struct RangeRule {
  SizeRange usual;         // where nothing is typed
  std::uint64_t unit = 0;  // the least is a multiple of it and not 0; 0: any
  std::uint64_t most = kMaxBytes;
};
// For `target` as typed. The help shows the `usual` one.
Option add_range_option(const Command& command, const std::string& names, std::string& target, const std::string& help,
                        const std::string& usual);
// Ends the command as bad usage where what is typed is none.
SizeRange settle_range(const std::string& option, const std::string& typed, const RangeRule& rule);

// --- Options that several subcommands share --------------------------------------------------------------------------------------

struct DeviceOptions {
  int device = 0;
  DeviceAllocator allocator = DeviceAllocator::cuda_malloc;
  std::optional<MappingType> type;        // -M: the mapping must be of this type
  std::optional<MappingBackend> backend;  // --backend: as GIGABAR_MAPPING
  int processor = -1;                     // --cpu: run on this one
  std::string json_path;
};

// Whether a result that was measured is stored, and where.
struct StoreOptions {
  bool is_wanted = true;
  std::string path;  // empty: where the library looks for it
};

// --store, --no-store.
void add_store_options(const Command& command, StoreOptions& options);
void add_device_option(const Command& command, DeviceOptions& options);
void add_cpu_option(const Command& command, DeviceOptions& options);
// --budget.
Option add_budget_option(const Command& command, double& target, double most = 600,
                         const std::string& help = "About this long in all");
Option add_json_option(const Command& command, std::string& path);
// -d, -a, -M, --backend, --cpu, --json.
void add_device_options(const Command& command, DeviceOptions& options);

// --- --sysroot: which machine a command looks at, and how its output says so ----------------------------------------------------

class Report;

Option add_sysroot_option(const Command& command, std::string& path);

// This machine when `path` is empty. Ends the command as bad usage when the path cannot be opened: nothing was looked at then.
Machine open_machine(const std::string& path);

// On top of the text, and under "origin" in the document: that the machine is a captured one, and what its maker says of it; of
// this machine, that GIGABAR_STAND_IN asks for stand-ins in place of its GPUs. Ends the command where that is no number.
void tell_origin(Report& report, const Machine& machine);

}  // namespace gigabar::tool
