// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, in this program's words: CLI11 tells it in sentences of its own, names no option that is
// hidden and, of a word that it does not know, only that it was not expected.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
class ParseError;
}  // namespace CLI

namespace gigabar::tool {

// "gigabar copylat: '--sise' is not one of its options; did you mean '--size'?; see 'gigabar copylat --help'". `arguments`: the
// command line as typed. A name that nobody knows comes before everything else that is wrong.
std::string usage_line(const CLI::App& program, const CLI::ParseError& error, const std::vector<std::string>& arguments);

// "gigabar copylat", as far as the command line got.
std::string command_name(const CLI::App& program);

// Ends the command for "--json=" without a value, as of a shell's variable that is empty. CLI11 would take the next word, or go on
// without one.
void refuse_empty_values(const std::vector<std::string>& arguments);
// Says on standard error which options have another name since the version before.
void warn_of_old_names(const std::vector<std::string>& arguments);

}  // namespace gigabar::tool
