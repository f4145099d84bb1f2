// Checks for CLI11 of what is typed behind an option. For the files that declare options; the others need options.hpp alone.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

namespace gigabar::tool {

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

}  // namespace gigabar::tool
