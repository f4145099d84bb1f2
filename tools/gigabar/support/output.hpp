// SPDX-License-Identifier: Apache-2.0
// What a command writes. A write that fails ends the command with exit status 1 and a line that says why.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace gigabar::tool {

// Text printed so far; `text` is standard output or standard error.
void flush(std::FILE* text);

// The file of an output option: `option` is its name, "--json". See base/output_file.hpp for devices, pipes and links.
void write_file(std::string_view option, const std::string& path, std::string_view content);

// Ends the command as write_file() would where nothing can be written, and as bad usage where another option or argument names the
// same file, before a command begins its work.
void require_writable(std::string_view option, const std::string& path);

// The same for a file whose folder is made where it is missing.
void require_storable(std::string_view option, const std::string& path);

// A whole document on standard output, for "--json -".
void write_standard_output(std::string_view content);

// For the whole program: a reader that is gone and a file that has reached the limit of its size (ulimit -f) are errors of the
// write, not signals that end this process where it is. Programs started from here get the signals as usual.
void report_failed_writes();

}  // namespace gigabar::tool
