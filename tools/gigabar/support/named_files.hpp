// SPDX-License-Identifier: Apache-2.0
// The files that a command line names. One that is written has one name there: what is read from it, or written to it under another
// name, would be lost.
#pragma once

#include <string>
#include <string_view>

namespace gigabar::tool {

enum class FileUse { read, written };

// `name`: of the option or the argument, "--json". Ends the command as bad usage where another name has the same file and either
// writes it. Devices, pipes and this process' own streams may have many. Before anything is written; by one thread at a time.
void add_named_file(std::string_view name, const std::string& path, FileUse use);

// How messages call it: "--baseline FILE", or the path alone where an argument is one.
std::string file_text(std::string_view name, const std::string& path);

}  // namespace gigabar::tool
