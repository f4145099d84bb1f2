// SPDX-License-Identifier: Apache-2.0
// What a command reads whole. A file that cannot be read ends the command as bad usage, with a line that says why.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gigabar::tool {

struct InputForm {
  std::size_t most_bytes = 0;
  std::string_view remedy;            // "name a text file": where it cannot be read
  std::string_view remedy_if_larger;  // than `most_bytes`
};

// The file of an option or an argument: `option` is its name, "--baseline". The first writer of a FIFO is waited for, 30 s at most;
// one that is there has all the time that it needs. Bad usage too where an output has the same file.
std::string read_file(std::string_view option, const std::string& path, const InputForm& form);

// For "--symptom -"; `name` stands in the message.
std::string read_standard_input(const std::string& name, const InputForm& form);

}  // namespace gigabar::tool
