// Options that several subcommands share, under GDRCopy's letters where it has one, and a long name each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"

// Declared, not included: CLI11 is a header of seconds, which only the files need that declare options.
namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
}

namespace gigabar::tool {

// What main() knows and every command may need.
struct Invocation {
  std::vector<std::string> arguments;  // the command line as typed, program first
  int exit_status = 0;                 // of a command that ran to its end
};

struct DeviceOptions {
  int device = 0;
  DeviceAllocator allocator = DeviceAllocator::cuda_malloc;
  std::optional<MappingType> type;        // -M: the mapping must be of this type
  std::optional<MappingBackend> backend;  // --backend: as GIGABAR_MAPPING
  int processor = -1;                     // --cpu: run on this one
  std::string json_path;
};

void add_device_option(CLI::App& command, DeviceOptions& options);
void add_json_option(CLI::App& command, DeviceOptions& options);
// -d, -a, -M, --backend, --cpu, --json.
void add_device_options(CLI::App& command, DeviceOptions& options);

}  // namespace gigabar::tool
