// SPDX-License-Identifier: Apache-2.0
// Another program, run to its end. What it reads and writes are files in memory: it does so at its own pace, so no pipe can fill up
// or break.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gigabar::tool {

struct Finished {
  int start_error = 0;           // errno; then nothing was run
  std::optional<int> status;     // waitpid()'s; nothing: it was not done in time, and was ended
  std::string output, messages;  // of one that was done
};

// Starts the program of that name in PATH with its words, the first being the name. Its input is the text, null: this process's
// own. `option` is what it is needed for, "--svg": the message of a command that ends for want of memory begins with it.
Finished run_program(std::string_view option, std::vector<std::string> words, const std::string* input, double most_seconds);

// As exec() and its like take arguments and variables; as long as `texts` lives unchanged.
std::vector<char*> pointers_to(std::vector<std::string>& texts);

}  // namespace gigabar::tool
