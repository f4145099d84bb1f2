// Options that several subcommands share, under GDRCopy's letters where it has one, and a long name each.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"

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

// Checks a size in bytes ("4096", "64K", "2M", "1G", powers of 1024) and turns it into digits for CLI11.
CLI::Validator byte_count(std::uint64_t least, std::uint64_t most = std::uint64_t{1} << 40);
// Checks a whole number.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);
// Seconds, with fractions, above 0.
CLI::Validator seconds(double most);

// Reads one of the names of `choices`, in any case of letters, into `target`, which must live as long as the command line is read.
template <class T>
CLI::Validator choice(const std::map<std::string, T>& choices, T& target) {
  return CLI::Validator(
      [choices, &target](std::string& text) -> std::string {
        std::string names;
        for (const auto& [name, value] : choices) {
          if (CLI::detail::to_lower(name) == CLI::detail::to_lower(text)) {
            target = value;
            return {};
          }
          names += (names.empty() ? "" : ", ") + name;
        }
        return "'" + text + "' is unknown; choose one of: " + names;
      },
      "", "");
}

// The text as a size; nothing when it is none.
std::optional<std::uint64_t> parse_size(const std::string& text);

}  // namespace gigabar::tool
