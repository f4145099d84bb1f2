// SPDX-License-Identifier: Apache-2.0
// Options that several subcommands share, under GDRCopy's letters where it has one, and a long name each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/machine.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/command_line.hpp"

namespace gigabar::tool {

// What main() knows and every command may need.
struct Invocation {
  std::vector<std::string> arguments;  // the command line as typed, program first
  int exit_status = 0;                 // of a command that ran to its end
};

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
