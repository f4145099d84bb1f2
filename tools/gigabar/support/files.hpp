// SPDX-License-Identifier: Apache-2.0
// What a command reads and writes: the files that a command line names, and the standard streams.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace gigabar::tool {

// --- Names ----------------------------------------------------------------------------------------------------------------------
//
// A file that is written has one name on the command line: what is read from it, or written to it under another name, would be
// lost.

enum class FileUse { read, written };

// `name`: of the option or the argument, "--json". Ends the command as bad usage where another name has the same file and either
// writes it. Devices, pipes and this process' own streams may have many. Before anything is written; by one thread at a time.
void add_named_file(std::string_view name, const std::string& path, FileUse use);

// How messages call it: "--baseline FILE", or the path alone where an argument is one.
std::string file_text(std::string_view name, const std::string& path);

// --- Input ----------------------------------------------------------------------------------------------------------------------
//
// A file that cannot be read ends the command as bad usage, with a line that says why.

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

// --- Output ---------------------------------------------------------------------------------------------------------------------
//
// A write that fails ends the command with exit status 1 and a line that says why.

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
